// Inputs drawn on a GPU: the same values as on the CPU, and how fast. Skipped without a GPU.

#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "env/gpu/runner/device_memory.h"
#include "env/problem/precision.h"
#include "env/process/generator.h"
#include "tests/env/gpu/gpu_fixture.h"
#include "tests/env/process/value_streams.h"

namespace kevin {
namespace {

constexpr unsigned kNonBlocking = 1;

GpuModule TrustedModule() {
  Farm farm;
  const GpuCompiled compiled = farm.Compile(TrustedKernelText(), TrustedKernelNames());
  INFO(compiled.log);
  REQUIRE(!compiled.module.cubin.empty());
  return compiled.module;
}

// The context, the trusted kernels and a stream on device 0; nothing where there is no usable GPU.
struct Device {
  CuHandle stream = nullptr, module = nullptr;
  FillKernels kernels;

  static std::unique_ptr<Device> Open() {
    try {
      LoadDriver();
      auto device = std::make_unique<Device>();
      UsePrimaryContext(0);
      KEVIN_CU(StreamCreate, &device->stream, kNonBlocking);
      KEVIN_CU(ModuleLoadData, &device->module, TrustedModule().cubin.data());
      device->kernels = FillKernelsOf(device->module);
      return device;
    } catch (const Error& error) {
      std::printf("skipped: no usable GPU: %s\n", error.what());
      return nullptr;
    }
  }
};

ConcreteTensor TensorOf(Distribution distribution, DType dtype, int64_t elements) {
  ConcreteTensor tensor;
  tensor.spec.distribution = distribution;
  tensor.spec.dtype = dtype;
  tensor.spec.scale = dtype == DType::kI64 ? 1000 : 1.37;
  tensor.spec.offset = 0.3;
  tensor.shape = {elements};
  tensor.elements = elements;
  tensor.bytes = elements * DTypeBytes(dtype);
  return tensor;
}

bool DrawsAlike(const Device& device, const ConcreteTensor& tensor, const ValueStream& stream) {
  const auto bytes = static_cast<size_t>(tensor.bytes);
  std::vector<char> expected(bytes), drawn(bytes);
  FillTensor(tensor.spec, InputMode::kDefault, stream, tensor.elements, 2, expected.data());
  const DeviceBuffer buffer(bytes + 16);
  FillOnDevice(device.kernels, device.stream, buffer.data(), tensor.elements,
               DrawingOf(tensor, InputMode::kDefault, stream.member), stream);
  KEVIN_CU(StreamSynchronize, device.stream);
  KEVIN_CU(MemcpyDtoH, drawn.data(), buffer.data(), bytes);
  return expected == drawn;
}

}  // namespace

TEST_CASE("GPU and CPU draw the same values from the same key") {
  if (!TestToolchain()) return;
  const std::unique_ptr<Device> device = Device::Open();
  if (!device) return;
  const ValueStream stream = StreamOf(99).OfCall(2).OfTensor(5);
  for (const Distribution distribution :
       {Distribution::kMixture, Distribution::kNormal, Distribution::kUniform, Distribution::kUniform01,
        Distribution::kHeavyTailed, Distribution::kPositive, Distribution::kSigns}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kBool}) {
      for (const int64_t elements : {int64_t{1}, int64_t{511}, int64_t{9'000'001}}) {
        const ConcreteTensor tensor = TensorOf(distribution, dtype, elements);
        INFO(DistributionName(distribution) << ", " << DTypeName(dtype) << ", " << elements << " elements");
        CHECK(DrawsAlike(*device, tensor, stream));
      }
    }
  }
}

TEST_CASE("GPU and CPU shift the same rows") {
  if (!TestToolchain()) return;
  const std::unique_ptr<Device> device = Device::Open();
  if (!device) return;
  constexpr int64_t kElements = 1'000'003;
  for (uint64_t seed = 0; seed < 2 * kMixtureMembers; ++seed) {
    const ValueStream stream = StreamOf(seed).OfCall(3).OfTensor(1);
    for (const Distribution distribution : {Distribution::kMixture, Distribution::kNormal}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const int64_t row : {int64_t{1}, int64_t{10}, int64_t{511}, int64_t{4096}, int64_t{300'000}}) {
          ConcreteTensor tensor = TensorOf(distribution, dtype, kElements);
          tensor.spec.row_shift = 150;
          tensor.spec.row_elements = row;
          INFO(DistributionName(distribution)
               << ", " << DTypeName(dtype) << ", rows of " << row << ", seed " << seed);
          CHECK(DrawsAlike(*device, tensor, stream));
        }
      }
    }
  }
}

TEST_CASE("how fast a GPU draws") {
  if (!TestToolchain()) return;
  const std::unique_ptr<Device> device = Device::Open();
  if (!device) return;
  constexpr int64_t kElements = int64_t{1} << 28;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Distribution distribution :
         {Distribution::kNormal, Distribution::kUniform, Distribution::kHeavyTailed}) {
      const ConcreteTensor tensor = TensorOf(distribution, dtype, kElements);
      const DeviceBuffer buffer(static_cast<size_t>(tensor.bytes));
      double best_s = 1e9;
      for (int i = 0; i < 10; ++i) {
        KEVIN_CU(StreamSynchronize, device->stream);
        const auto start = std::chrono::steady_clock::now();
        FillOnDevice(device->kernels, device->stream, buffer.data(), kElements,
                     DrawingOf(tensor, InputMode::kDefault, 0), StreamOf(1));
        KEVIN_CU(StreamSynchronize, device->stream);
        best_s =
            std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      std::printf("draws %.1f G values/s, %s %s\n", kElements / best_s * 1e-9, DTypeName(dtype),
                  DistributionName(distribution));
      CHECK(best_s < 1);
    }
  }
}

}  // namespace kevin
