#include "agent/places.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "agent/parse.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/process/spawn.h"

namespace kevin {
namespace fs = std::filesystem;
namespace {

std::string ShellWord(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=+,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

fs::path CacheDirectory() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/')
    return fs::path(xdg) / "kevin";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return fs::path(home) / ".cache/kevin";
  return fs::temp_directory_path() / "kevin-cache";
}

std::string CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line;
  for (std::string word; std::getline(file, word, '\0');) line += (line.empty() ? "" : " ") + ShellWord(word);
  return line;
}

EnvironmentOptions EnvironmentOptionsFor(int threads, const std::string& isolation) {
  EnvironmentOptions options;
  options.program_directory = ProgramDirectory();
  options.cache_directory = CacheDirectory();
  options.threads = threads;
  options.reduced_isolation = isolation == "reduced";
  return options;
}

std::string ReadSourceFile(const fs::path& path) {
  std::string reason, text;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (fs::is_directory(path)) {
    reason = "is a folder";
  } else if (!file.is_open()) {
    reason = std::strerror(errno);
  } else {
    text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (Trim(text).empty()) reason = "is empty";
    if (text.size() > kMaxSourceBytes) reason = "is larger than 512 KiB";
  }
  if (reason.empty()) return text;
  throw Error(
      ExitCode::kBadRequest, fmt::format("{}: {}", path.string(), reason),
      "give a kernel's file: C++ with `extern \"C\" void launch(...)`, or CUDA (.cu) with a launch function");
}

}  // namespace kevin
