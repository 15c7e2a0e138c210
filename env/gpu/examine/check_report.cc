#include "env/gpu/examine/check_report.h"

#include <cstdlib>
#include <sstream>
#include <string_view>

namespace kevin {
namespace {

constexpr std::string_view kMark = "========= ";
constexpr int kMostLines = 6;

bool Starts(std::string_view line, std::string_view with) { return line.substr(0, with.size()) == with; }

// "ERROR SUMMARY: 3 errors", "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
int CountIn(const std::string& line) { return std::atoi(line.c_str() + line.find(": ") + 2); }

// "    at relu(float *, long)+0x120 in candidate.cu:4" -> 4
int LineIn(const std::string& text, const std::string& source_name) {
  const size_t at = text.find(source_name + ":");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + source_name.size() + 1);
}

// The host's call stack, the failures that follow from the first one and the tool's own limits say nothing
// about the candidate.
bool IsAside(std::string_view text) {
  return text.find("Host Frame") != std::string_view::npos ||
         text.find("Saved host backtrace") != std::string_view::npos ||
         text.find("Maximum number of hazards") != std::string_view::npos ||
         text.find("Target application returned an error") != std::string_view::npos ||
         text.find("Program hit ") != std::string_view::npos;
}

}  // namespace

CheckReport ReadCheckReport(const std::string& tool, const std::string& output,
                            const std::string& source_name) {
  CheckReport report;
  report.tool = tool;
  std::istringstream lines(output);
  int kept = 0;
  bool first_over = false;
  for (std::string line; std::getline(lines, line);) {
    if (!Starts(line, kMark)) continue;
    const std::string text = line.substr(kMark.size());
    if (text.find("SUMMARY: ") != std::string::npos) {
      report.errors = CountIn(text);
      continue;
    }
    if (Starts(text, "COMPUTE-SANITIZER") || text.find_first_not_of(" \t\r") == std::string::npos) {
      first_over = first_over || kept > 0;
      continue;
    }
    if (first_over || kept >= kMostLines || IsAside(text)) continue;
    if (report.line == 0) report.line = LineIn(text, source_name);
    report.finding += (kept++ > 0 ? "\n" : "") + text.substr(text.find_first_not_of(' '));
  }
  return report;
}

}  // namespace kevin
