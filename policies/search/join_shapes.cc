#include "policies/search/join_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace kevin::search {
namespace {

bool StartsWith(const std::string& line, const char* word) {
  const size_t at = line.find_first_not_of(' ');
  return at != std::string::npos && line.compare(at, std::string(word).size(), word) == 0;
}

// Preprocessor lines apply to the whole file, so they go before the namespaces, each once.
void Split(const std::string& text, std::vector<std::string>& directives, std::string& rest) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (StartsWith(line, "#include")) {
      if (std::find(directives.begin(), directives.end(), line) == directives.end())
        directives.push_back(line);
      continue;
    }
    const std::string linkage = "extern \"C\" void launch(";
    if (line.rfind(linkage, 0) == 0) line = line.substr(std::string("extern \"C\" ").size());
    rest += line + "\n";
  }
}

// `B == 4 && N == 1001`, over the symbols that differ between the shapes.
std::string ConditionOf(const Task& task, size_t shape) {
  std::string condition;
  for (const auto& [name, value] : task.shape_graphs[shape].symbols) {
    const bool differs =
        std::any_of(task.shape_graphs.begin(), task.shape_graphs.end(), [&](const TaskShape& other) {
          const auto found = other.symbols.find(name);
          return found == other.symbols.end() || found->second != value;
        });
    if (differs) condition += fmt::format("{}{} == {}", condition.empty() ? "" : " && ", name, value);
  }
  return condition.empty() ? "true" : condition;
}

}  // namespace

std::string JoinShapes(const Task& task, const std::vector<std::string>& texts) {
  std::vector<std::string> directives;
  std::string body, dispatch, parameters, arguments;
  for (const TaskArgument& argument : task.arguments) {
    parameters +=
        fmt::format("{}{} a{}", parameters.empty() ? "" : ", ", argument.cpp_type,
                    arguments.empty() ? 0 : std::count(arguments.begin(), arguments.end(), ',') + 1);
    arguments += fmt::format("{}a{}", arguments.empty() ? "" : ", ",
                             arguments.empty() ? 0 : std::count(arguments.begin(), arguments.end(), ',') + 1);
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string rest;
    Split(texts[i], directives, rest);
    body += fmt::format("namespace shape_{} {{\n\n{}\n}}  // namespace shape_{}\n\n", i + 1, rest, i + 1);
    const std::string head = i == 0 ? "  " : "  } else ";
    dispatch +=
        i + 1 == texts.size() ? "  } else {\n" : fmt::format("{}if ({}) {{\n", head, ConditionOf(task, i));
    dispatch += fmt::format("    shape_{}::launch({});\n", i + 1, arguments);
  }
  std::string text;
  for (const std::string& line : directives) text += line + "\n";
  return text + "\n" + body + (task.kind == "cuda" ? "" : "extern \"C\" ") + "void launch(" + parameters +
         ") {\n" + dispatch + "  }\n}\n";
}

}  // namespace kevin::search
