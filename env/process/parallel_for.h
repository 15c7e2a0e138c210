#pragma once
// Splits trusted-side work (drawing, poisoning, comparing) over threads. The threads live only as long as the
// call: none is left to disturb a timed window.

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace kevin {

// Calls work(begin, end) for consecutive parts of [0, count), one part a thread, cut at multiples of `grain`.
// `work` must not throw.
template <typename Work>
void ParallelFor(int64_t count, int64_t grain, int threads, const Work& work) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(threads, grains));
  const auto bound = [&](int64_t part) { return std::min(count, grains * part / parts * grain); };
  std::vector<std::jthread> others;
  for (int64_t part = 1; part < parts; ++part) {
    others.emplace_back([&work, begin = bound(part), end = bound(part + 1)] { work(begin, end); });
  }
  work(0, bound(1));
}

}  // namespace kevin
