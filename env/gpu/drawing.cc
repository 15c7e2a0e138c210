#include "env/gpu/drawing.h"

#include <algorithm>

namespace kevin {

Drawing DrawingOf(const TensorSpec& spec, InputMode mode, uint64_t member) {
  enum { kNormal, kUniform, kUniform01, kHeavyTailed, kPositive };
  if (mode == InputMode::kKernelBench) return {kUniform01, 1, 0};
  Drawing drawing{kNormal, static_cast<float>(spec.scale), static_cast<float>(spec.offset)};
  switch (spec.distribution) {
    case Distribution::kNormal:
      break;
    case Distribution::kUniform:
      drawing.distribution = kUniform;
      break;
    case Distribution::kUniform01:
      drawing.distribution = kUniform01;
      break;
    case Distribution::kHeavyTailed:
      drawing.distribution = kHeavyTailed;
      break;
    case Distribution::kPositive:
      drawing.distribution = kPositive;
      break;
    case Distribution::kMixture:
      drawing.distribution = member == 1 ? kUniform : member == 2 ? kHeavyTailed : kNormal;
      drawing.scale *= member == 1 ? 2.0F : member == 3 ? 8.0F : 1.0F;
      break;
  }
  return drawing;
}

void FillOnDevice(CuHandle fill, CuHandle stream, CuDevicePtr data, int64_t elements, const Drawing& drawing,
                  uint64_t seed) {
  constexpr int64_t kMostBlocks = 2112, kElementsPerBlock = 1024;
  Drawing by = drawing;
  long long count = elements;
  void* arguments[] = {&data, &count, &by.distribution, &seed, &by.scale, &by.offset};
  CuLaunchConfig config;
  config.grid_x = static_cast<unsigned>(std::clamp<int64_t>(elements / kElementsPerBlock, 1, kMostBlocks));
  config.block_x = 256;
  config.stream = stream;
  KEVIN_CU(LaunchKernelEx, &config, fill, arguments, nullptr);
}

}  // namespace kevin
