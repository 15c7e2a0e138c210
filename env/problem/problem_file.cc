// The text of a problem file: read, parsed, and hashed for its contents.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "env/error.h"
#include "env/problem/problem.h"
#include "env/problem/text.h"
#include "env/problem/toml_reader.h"

namespace kevin {
namespace {

// Calls `visit` with the line on which each value of `node` begins.
template <typename Visit>
void VisitLines(const toml::node& node, const Visit& visit) {
  visit(static_cast<size_t>(node.source().begin.line));
  if (const toml::table* table = node.as_table()) {
    for (const auto& [key, value] : *table) VisitLines(value, visit);
  } else if (const toml::array* array = node.as_array()) {
    for (const toml::node& value : *array) VisitLines(value, visit);
  }
}

size_t OffsetOfLine(const std::string& text, size_t line) {
  size_t at = 0;
  for (size_t i = 1; i < line; ++i) at = text.find('\n', at) + 1;
  return at;
}

// The text without the lines of the table [model]: from its header to the next table, or, at the end of the file, with
// the empty line before it.
std::string WithoutModel(const std::string& text, const toml::table& root, const std::string& file) {
  const toml::node* model = root.get("model");
  if (model == nullptr) return text;
  const TomlSection top(file, root);
  const size_t line = model->source().begin.line;
  const size_t begin = OffsetOfLine(text, line);
  if (!text.substr(begin).starts_with("[model]"))
    top.Fail("model", "is not written as a table of its own", "begin a line with [model]");
  size_t next = 0, last = line;  // of the following table; of [model]
  for (const auto& [key, value] : root) {
    if (key.str() == "model") continue;
    VisitLines(value, [&](size_t at) {
      if (at > line && (next == 0 || at < next)) next = at;
    });
  }
  bool is_split = false;
  VisitLines(*model, [&](size_t at) { is_split |= at < line, last = std::max(last, at); });
  if (is_split || (next != 0 && last >= next))
    top.Fail("model", "has parts before it or behind other tables",
             "write [model] and [model.parameters] in one place");
  std::string before = text.substr(0, begin);
  if (next != 0) {
    size_t end = OffsetOfLine(text, next);
    while (end > begin && text[end] != '[') end = text.rfind('\n', end - 2) + 1;  // to the header
    return before + text.substr(end);
  }
  if (before.ends_with("\n\n")) before.pop_back();
  return before;
}

}  // namespace

Problem ParseProblem(const std::string& text, const std::filesystem::path& path_for_messages) {
  const std::string file = path_for_messages.string();
  toml::table root;
  try {
    root = toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}:{}: not TOML: {}", file, error.source().begin.line, error.description()),
                "correct this line");
  }
  Problem problem = ReadProblem(TomlSection(file, root));
  problem.text = text;
  problem.content_hash = Sha256Hex(WithoutModel(text, root, file));
  problem.path = path_for_messages;
  return problem;
}

Problem LoadProblemFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: {}", path.string(), error ? error.message() : "not a regular file"),
                "give the path of a problem's TOML file, or an id from `kevin problems`");
  }
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream.is_open() || stream.bad()) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: cannot be read", path.string()),
                "check its permissions");
  }
  return ParseProblem(text, path);
}

}  // namespace kevin
