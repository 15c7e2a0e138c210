#pragma once
// Commands of `kevin` run inside a test.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "env/error.h"
#include "tools/commands.h"

namespace kevin {

using Json = nlohmann::json;
using AddCommand = void (*)(CLI::App& app, Action* action);

// What one command line did: its exit code, what it printed, and the text of the Error it threw.
struct Result {
  int code = 0;
  std::string output, error;
};

inline Result RunCommand(const std::vector<AddCommand>& commands, std::vector<std::string> arguments) {
  Result result;
  std::FILE* const capture = std::tmpfile();
  std::fflush(stdout);
  const int saved = dup(STDOUT_FILENO);
  dup2(fileno(capture), STDOUT_FILENO);
  CLI::App app{"kevin"};
  Action action;
  for (const AddCommand add : commands) add(app, &action);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
    result.code = action();
  } catch (const CLI::ParseError& error) {
    result = {2, "", error.what()};
  } catch (const Error& error) {
    result = {static_cast<int>(error.code()), "", std::string(error.what()) + " | " + error.next_step()};
  }
  std::fflush(stdout);
  dup2(saved, STDOUT_FILENO);
  close(saved);
  std::rewind(capture);
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, capture)) > 0;) result.output.append(buffer, n);
  std::fclose(capture);
  return result;
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::vector<Json> Lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

inline std::string Bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace kevin
