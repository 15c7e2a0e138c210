#include "env/gpu/compile/gpu_module.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

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

namespace {

constexpr int kWarp = 32, kRegisterUnit = 256, kSharedUnit = 128, kWarpUnit = 4;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Occupancy OccupancyOf(const MultiprocessorLimits& limits, int threads_per_block, int registers_per_thread,
                      int64_t shared_bytes_per_block, int64_t blocks) {
  const int64_t warps = (threads_per_block + kWarp - 1) / kWarp, most_warps = limits.threads / kWarp;
  Occupancy occupancy;
  if (warps == 0) return occupancy;
  // Registers are given to warps in units of 256, and warps lie evenly on four schedulers.
  const int64_t per_warp =
      std::max<int64_t>(RoundUp(int64_t{registers_per_thread} * kWarp, kRegisterUnit), kRegisterUnit);
  const int64_t warps_by_registers = limits.registers / per_warp / kWarpUnit * kWarpUnit;
  const int64_t shared = RoundUp(shared_bytes_per_block, kSharedUnit) + limits.reserved_shared_bytes;
  const int64_t by_grid = blocks > 0 && limits.multiprocessors > 0
                              ? (blocks + limits.multiprocessors - 1) / limits.multiprocessors
                              : std::numeric_limits<int64_t>::max();
  const std::pair<int64_t, const char*> bounds[] = {{most_warps / warps, "threads"},
                                                    {warps_by_registers / warps, "registers"},
                                                    {limits.shared_bytes / shared, "shared memory"},
                                                    {limits.blocks, "blocks"},
                                                    {by_grid, "the grid"}};
  const auto least = std::min_element(std::begin(bounds), std::end(bounds),
                                      [](const auto& a, const auto& b) { return a.first < b.first; });
  occupancy.blocks = static_cast<int>(least->first);
  occupancy.limited_by = least->second;
  occupancy.share = static_cast<double>(least->first * warps) / static_cast<double>(most_warps);
  return occupancy;
}

}  // namespace kevin
