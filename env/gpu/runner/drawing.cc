#include "env/gpu/runner/drawing.h"

#include <algorithm>

#include "env/problem/precision.h"

namespace kevin {

Drawing DrawingOf(const ConcreteTensor& tensor, InputMode mode, uint64_t member) {
  enum { kNormal, kUniform, kUniform01, kHeavyTailed, kPositive, kSigns };
  const TensorSpec& spec = tensor.spec;
  Drawing drawing{kNormal, static_cast<float>(spec.scale), static_cast<float>(spec.offset)};
  drawing.element_bytes = static_cast<int>(DTypeBytes(spec.dtype));
  drawing.whole = !IsFloating(spec.dtype);
  drawing.brain = spec.dtype == DType::kBF16;
  drawing.structure = static_cast<int>(spec.structure);
  drawing.rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  if (mode == InputMode::kKernelBench && !spec.is_param && IsFloating(spec.dtype) &&
      spec.distribution != Distribution::kSigns) {
    drawing.distribution = kUniform01;
    drawing.scale = 1;
    drawing.offset = 0;
    return drawing;
  }
  switch (spec.distribution) {
    case Distribution::kNormal:
    case Distribution::kStored:  // copied by whoever fills
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
    case Distribution::kSigns:
      drawing.distribution = kSigns;
      break;
    case Distribution::kMixture:
      drawing.distribution = member == 1 ? kUniform : member == 2 ? kHeavyTailed : kNormal;
      drawing.scale *= member == 1 ? 2.0F : member == 3 ? 8.0F : 1.0F;
      break;
  }
  return drawing;
}

FillKernels FillKernelsOf(CuHandle module) {
  FillKernels kernels;
  KEVIN_CU(ModuleGetFunction, &kernels.fill, module, "kevin_fill");
  KEVIN_CU(ModuleGetFunction, &kernels.fill_f16, module, "kevin_fill_f16");
  KEVIN_CU(ModuleGetFunction, &kernels.fill_bf16, module, "kevin_fill_bf16");
  KEVIN_CU(ModuleGetFunction, &kernels.impose_16, module, "kevin_impose_16");
  KEVIN_CU(ModuleGetFunction, &kernels.whole, module, "kevin_fill_whole");
  KEVIN_CU(ModuleGetFunction, &kernels.impose, module, "kevin_impose");
  return kernels;
}

void FillOnDevice(const FillKernels& kernels, CuHandle stream, CuDevicePtr data, int64_t elements,
                  const Drawing& drawing, uint64_t seed) {
  constexpr int64_t kMostBlocks = 2112, kElementsPerBlock = 1024;
  Drawing by = drawing;
  long long count = elements;
  void* filled[] = {&data, &count, &by.distribution, &seed, &by.scale, &by.offset, &by.element_bytes};
  CuLaunchConfig config;
  config.grid_x = static_cast<unsigned>(std::clamp<int64_t>(elements / kElementsPerBlock, 1, kMostBlocks));
  config.block_x = 256;
  config.stream = stream;
  const bool narrow = drawing.element_bytes == 2;
  const CuHandle floats = !narrow ? kernels.fill : drawing.brain ? kernels.fill_bf16 : kernels.fill_f16;
  KEVIN_CU(LaunchKernelEx, &config, drawing.whole ? kernels.whole : floats, filled, nullptr);
  if (drawing.structure == 0) return;
  void* imposed[] = {&data, &by.rows, &by.structure};
  KEVIN_CU(LaunchKernelEx, &config, narrow ? kernels.impose_16 : kernels.impose, imposed, nullptr);
}

}  // namespace kevin
