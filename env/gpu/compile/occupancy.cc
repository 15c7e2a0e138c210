#include "env/gpu/compile/occupancy.h"

#include <algorithm>
#include <utility>

namespace kevin {
namespace {

constexpr int kWarp = 32, kRegisterUnit = 256, kSharedUnit = 128, kWarpUnit = 4;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Occupancy OccupancyOf(const MultiprocessorLimits& limits, int threads_per_block, int registers_per_thread,
                      int64_t shared_bytes_per_block) {
  const int64_t warps = (threads_per_block + kWarp - 1) / kWarp, most_warps = limits.threads / kWarp;
  Occupancy occupancy;
  if (warps == 0) return occupancy;
  // Registers are given to warps in units of 256, and warps lie evenly on four schedulers.
  const int64_t per_warp =
      std::max<int64_t>(RoundUp(int64_t{registers_per_thread} * kWarp, kRegisterUnit), kRegisterUnit);
  const int64_t warps_by_registers = limits.registers / per_warp / kWarpUnit * kWarpUnit;
  const int64_t shared = RoundUp(shared_bytes_per_block, kSharedUnit) + limits.reserved_shared_bytes;
  const std::pair<int64_t, const char*> bounds[] = {{most_warps / warps, "threads"},
                                                    {warps_by_registers / warps, "registers"},
                                                    {limits.shared_bytes / shared, "shared memory"},
                                                    {limits.blocks, "blocks"}};
  const auto least = std::min_element(std::begin(bounds), std::end(bounds),
                                      [](const auto& a, const auto& b) { return a.first < b.first; });
  occupancy.blocks = static_cast<int>(least->first);
  occupancy.limited_by = least->second;
  occupancy.share = static_cast<double>(least->first * warps) / static_cast<double>(most_warps);
  return occupancy;
}

}  // namespace kevin
