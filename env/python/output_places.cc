#include "env/python/output_places.h"

#include <algorithm>

namespace kevin {

uint64_t ExtentOfOutput(const ConcreteTensor& tensor, const std::vector<int64_t>& strides) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (strides.size() != tensor.shape.size()) return 0;
  int64_t last = 0;
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    const int64_t steps = tensor.shape[dim] - 1;
    if (strides[dim] < 0 || strides[dim] > (kMost - last) / std::max<int64_t>(steps, 1))
      return 0;  // no overflow
    last += steps * strides[dim];
  }
  return static_cast<uint64_t>((last + 1) * DTypeBytes(tensor.spec.dtype));
}

std::string RefusedPlace(const ConcreteTensor& tensor, uint64_t offset, uint64_t extent,
                         uint64_t memory_bytes) {
  if (extent == 0) return "an output has strides that reach outside its memory";
  if (offset > memory_bytes || extent > memory_bytes - offset ||
      offset % static_cast<uint64_t>(DTypeBytes(tensor.spec.dtype)) != 0) {
    return "output `" + tensor.spec.name +
           "` is no new tensor: it aliases an input or a weight, or its memory is not from torch's allocator";
  }
  return "";
}

std::string RefusedOverlap(std::vector<std::pair<uint64_t, uint64_t>> taken) {
  std::sort(taken.begin(), taken.end());
  for (size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].first < taken[i - 1].second)
      return "an output aliases the output of an earlier call: each call must return memory of its own";
  }
  return "";
}

}  // namespace kevin
