#include "env/gpu/compile/ptxas_report.h"

#include <cstdlib>
#include <sstream>
#include <string_view>

namespace kevin {
namespace {

// The number before `unit`: "Used 10 registers" -> 10; 0 when it is not there.
int64_t NumberBefore(const std::string& line, const std::string& unit) {
  const size_t at = line.find(" " + unit);
  if (at == std::string::npos) return 0;
  size_t start = at;
  while (start > 0 && line[start - 1] >= '0' && line[start - 1] <= '9') --start;
  return std::strtoll(line.c_str() + start, nullptr, 10);
}

bool Contains(const std::string& line, std::string_view part) { return line.find(part) != std::string::npos; }

// Part of the report, not advice such as "(C7510) Potential Performance Loss".
bool IsReport(const std::string& line) {
  const std::string_view text(line);
  if (text.substr(0, 15) == "ptxas         .") return true;
  return text.substr(0, 10) == "ptxas info" && !Contains(line, ": (C");
}

}  // namespace

PtxasReport ReadPtxasReport(const std::string& log) {
  PtxasReport report;
  KernelInfo function;  // properties of a function that is no kernel end here
  KernelInfo* kernel = &function;
  std::string entry;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (!IsReport(line)) {
      report.rest += line + "\n";
      continue;
    }
    const size_t name = line.find("Compiling entry function '");
    if (name != std::string::npos) {
      const size_t start = line.find('\'') + 1;
      entry = line.substr(start, line.find('\'', start) - start);
      kernel = &report.kernels[entry];
    } else if (const size_t at = line.find("Function properties for "); at != std::string::npos) {
      kernel = line.substr(at + 24) == entry ? &report.kernels[entry] : &function;
    } else if (Contains(line, "bytes stack frame")) {
      kernel->stack_bytes = NumberBefore(line, "bytes stack frame");
      kernel->spill_store_bytes = NumberBefore(line, "bytes spill stores");
      kernel->spill_load_bytes = NumberBefore(line, "bytes spill loads");
    } else if (Contains(line, " registers") && !entry.empty()) {
      report.kernels[entry].registers = static_cast<int>(NumberBefore(line, "registers"));
      report.kernels[entry].static_shared_bytes = NumberBefore(line, "bytes smem");
    }
  }
  return report;
}

}  // namespace kevin
