#include "env/diagnosis/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace kevin {
namespace {

constexpr const char* kTimesLine = "kevin-stage-times";
constexpr double kLeastUnnamed = 0.01;

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

std::string_view SkipBlanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

bool Skip(std::string_view word, std::string_view* text) {
  if (text->substr(0, word.size()) != word) return false;
  text->remove_prefix(word.size());
  return true;
}

// Of "  // stage NAME", with `comment` the sign "//"; empty for any other line.
std::string StageNameIn(std::string_view line, std::string_view comment) {
  std::string_view rest = SkipBlanks(line);
  if (!Skip(comment, &rest)) return "";
  rest = SkipBlanks(rest);
  if (!Skip("stage", &rest) || rest.empty() || (rest[0] != ' ' && rest[0] != '\t')) return "";
  rest = SkipBlanks(rest);
  size_t length = 0;
  while (length < rest.size() && IsNameCharacter(rest[length])) ++length;
  const std::string_view name = rest.substr(0, length), after = rest.substr(length);
  if (name.empty() || name.size() > static_cast<size_t>(kMostStageNameBytes)) return "";
  return after.find_first_not_of(" \t\r") == std::string_view::npos ? std::string(name) : "";
}

// The number of the stage that the line marks, from 1; a new name joins `names` while there is room. 0: none.
size_t StageOf(std::string_view line, std::string_view comment, std::vector<std::string>* names) {
  const std::string name = StageNameIn(line, comment);
  if (name.empty()) return 0;
  auto found = std::find(names->begin(), names->end(), name);
  if (found == names->end()) {
    if (names->size() == static_cast<size_t>(kMostStages)) return 0;
    found = names->insert(found, name);
  }
  return static_cast<size_t>(found - names->begin()) + 1;
}

// The names of the parameters of "extern "C" void launch(const float* x, float* out)".
std::string ArgumentsOf(const std::string& signature) {
  const size_t open = signature.find('('), close = signature.rfind(')');
  std::istringstream parameters(signature.substr(open + 1, close - open - 1));
  std::string arguments;
  for (std::string parameter; std::getline(parameters, parameter, ',');) {
    const size_t last = parameter.find_last_not_of(" \t\n");
    size_t first = last;
    while (first > 0 && (std::isalnum(static_cast<unsigned char>(parameter[first - 1])) != 0 ||
                         parameter[first - 1] == '_'))
      --first;
    arguments += (arguments.empty() ? "" : ", ") + parameter.substr(first, last + 1 - first);
  }
  return arguments;
}

}  // namespace

MarkedSource MarkStages(const std::string& source) {
  MarkedSource marked;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (const size_t stage = StageOf(line, "//", &marked.names); stage > 0)
      line = fmt::format("kevin_stages::Mark({});", stage);
    marked.text += line + "\n";
  }
  if (marked.names.empty()) marked.text = source;
  return marked;
}

std::vector<std::string> StageNamesInPython(const std::string& source) {
  std::vector<std::string> names;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) StageOf(line, "#", &names);
  return names;
}

std::string StageTimerAbove() {
  return R"(#include <omp.h>
#include <unistd.h>
#include <x86intrin.h>
#include <cstdio>
namespace kevin_stages {
inline unsigned long long ticks[17], last, calls;
inline int stage;
inline void Mark(int next) {
  if (omp_get_thread_num() != 0) return;
  const unsigned long long now = __rdtsc();
  ticks[stage] += now - last;
  last = now;
  stage = next;
}
inline void Begin() {
  stage = 0;
  last = __rdtsc();
}
inline void End() {
  Mark(0);
  if ((++calls & (calls - 1)) != 0) return;
  char line[512];
  int at = std::snprintf(line, sizeof(line), "\nkevin-stage-times");
  for (const unsigned long long sum : ticks) at += std::snprintf(line + at, sizeof(line) - at, " %llu", sum);
  line[at++] = '\n';
  [[maybe_unused]] const auto written = write(2, line, at);
}
}  // namespace kevin_stages
#define launch kevin_marked_launch
)";
}

std::string StageTimerBelow(const std::string& launch_signature) {
  return "#undef launch\n" + launch_signature + " {\n  kevin_stages::Begin();\n  kevin_marked_launch(" +
         ArgumentsOf(launch_signature) + ");\n  kevin_stages::End();\n}\n";
}

std::vector<StageShare> ReadStageTimes(const std::string& log, const std::vector<std::string>& names) {
  std::vector<double> sums;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word != kTimesLine) continue;
    std::vector<double> read;
    for (uint64_t sum = 0; words >> sum;) read.push_back(static_cast<double>(sum));
    if (read.size() == static_cast<size_t>(kMostStages) + 1 && words.eof()) sums = std::move(read);
  }
  double whole = 0;
  for (const double sum : sums) whole += sum;
  std::vector<StageShare> shares;
  if (whole <= 0) return shares;
  if (sums[0] / whole >= kLeastUnnamed) shares.push_back({"(before the first)", sums[0] / whole});
  for (size_t i = 0; i < names.size(); ++i) shares.push_back({names[i], sums[i + 1] / whole});
  return shares;
}

}  // namespace kevin
