// Small products in 16 bits: which are so, and with which tiles. Times are microseconds on an H200, from counts.

#include <algorithm>

#include "policies/search/cuda_wgmma.h"

namespace kevin::search {
namespace {

constexpr double kSmallBytes = 8e4;    // to one multiprocessor from the second-level cache, in a microsecond
constexpr double kSmallTerms = 2.2e6;  // multiplications of one multiprocessor by mma.sync, in a microsecond
constexpr double kSmallStart = 0.8;    // until the first slice is there
// wgmma: multiplications of a multiprocessor in a microsecond; descriptors, barriers and registers before the first one.
constexpr double kWgmmaTerms = 3.75e6, kWgmmaStart = 1.5;
constexpr double kMostSmall = 6;  // beyond, larger tiles reuse more

int64_t SmallTiles(const Contraction& c, int64_t m, int64_t n) {
  return Points(c.batch) * ((Points(c.m) + m - 1) / m) * ((Points(c.n) + n - 1) / n);
}

double SmallTime(const Contraction& c, int64_t members, int64_t multiprocessors, int64_t m, int64_t n) {
  const int64_t mine = (members * SmallTiles(c, m, n) + multiprocessors - 1) / multiprocessors;
  const double k = static_cast<double>(mine * Points(c.k));
  return kSmallStart + k * static_cast<double>(2 * (m + n)) / kSmallBytes +
         k * static_cast<double>(m * n) / kSmallTerms;
}

// Slices of a block of that tile, and the sums of its warps (at most eight).
bool FitsSmall(const TaskDevice& device, int64_t m, int64_t n, int64_t depth, int64_t stages) {
  const auto slice = [&](int64_t lines) { return std::max(lines * (depth + 8), depth * (lines + 8)); };
  return std::max(stages * (slice(m) + slice(n)) * 2 + depth * 64, 8 * m * (n + 8) * 4) <=
         device.block_shared_bytes;
}

}  // namespace

CudaSmallChoice ChooseCudaSmall(const Program& program, const Task& task, const Contraction& c,
                                int64_t members) {
  if (CudaProductType(program, c) == "float32" || Points(c.k) < 64) return {};
  const bool limited = std::any_of(c.k_limits.begin(), c.k_limits.end(),
                                   [](const ExprPtr& limit) { return limit != nullptr; });
  const CudaOperand left = ReadCudaOperand(program, c.lhs, c.m, c.k, limited),
                    right = ReadCudaOperand(program, c.rhs, c.n, c.k, limited);
  // Elements that do not move in packs are slower than the count below.
  if (limited || !left.is_split || !right.is_split || left.copy < 8 || right.copy < 8) return {};
  const int64_t multiprocessors = std::max(1, task.device.multiprocessors);
  std::vector<std::pair<double, int64_t>> times;
  double alone = kMostSmall;
  for (const int64_t m : {16, 32, 64}) {
    for (const int64_t n : {32, 64}) {
      if ((m > 2 * Points(c.m) && m > 16) || !FitsSmall(task.device, m, n, 64, 2)) continue;
      alone = std::min(alone, SmallTime(c, 1, multiprocessors, m, n));
      times.emplace_back(SmallTime(c, members, multiprocessors, m, n), m * 1000 + n);
    }
  }
  const bool has_wgmma = SuitsCudaWgmma(program, task, c, left, right) && IsCudaMatrix(program, c, left) &&
                         IsCudaMatrix(program, c, right);
  const double other = has_wgmma ? ChooseCudaWgmma(task, c).cost / kWgmmaTerms + kWgmmaStart : kMostSmall;
  if (times.empty() || alone >= std::min(other, kMostSmall)) return {};
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  CudaSmallChoice choice;
  for (size_t i = 0; i < std::min<size_t>(4, times.size()); ++i) choice.tiles.push_back(times[i].second);
  choice.depths = Points(c.k) >= 128 ? std::vector<int64_t>{128, 64} : std::vector<int64_t>{64, 32};
  const int64_t slices = (Points(c.k) + choice.depths[0] - 1) / choice.depths[0];
  for (const int64_t stages : {4, 3, 2}) {
    const bool fits = std::all_of(choice.tiles.begin(), choice.tiles.end(), [&](int64_t tile) {
      return FitsSmall(task.device, tile / 1000, tile % 1000, choice.depths[0], stages);
    });
    // One stage more than slices would stay empty.
    if ((fits && stages <= std::max<int64_t>(slices, 1) + 1) || stages == 2) choice.stages.push_back(stages);
  }
  return choice;
}

}  // namespace kevin::search
