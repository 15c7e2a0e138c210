#include "env/gpu/judge/gpu_ceilings.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "env/error.h"
#include "env/gpu/runner/stopwatch.h"
#include "env/problem/precision.h"
#include "env/process/generator.h"
#include "env/process/random.h"
#include "env/reference/reference.h"

namespace kevin {
namespace {

constexpr int64_t kBytes = int64_t{1} << 30;  // read or written by one window: many times the L2
constexpr int64_t kRows = 8192;               // of the matrices: one product takes a millisecond or more
constexpr int kRepeats = 12;
constexpr unsigned kBlocksOfMultiprocessor = 8, kThreads = 256;

constexpr const char* kProduct = R"(
id = "ceiling/product"
name = "Product of matrices"
families = ["matmul"]
reference = '''
def forward(a, b):
    return torch.matmul(a, b)
'''
[sizes.full]
N = 8192
[[inputs]]
name = "a"
shape = ["N", "N"]
[[inputs]]
name = "b"
shape = ["N", "N"]
[[outputs]]
name = "c"
shape = ["N", "N"]
[cost]
flops = "2*N*N*N"
bytes = "12*N*N"
min_flops = "0"
min_bytes = "12*N*N"
[check]
reduction = "N"
)";

class CeilingMeasurement {
 public:
  CeilingMeasurement(int device, const std::string& trusted_cubin) : device_(device) {
    KEVIN_CU(ModuleLoadData, &module_, trusted_cubin.data());
    fill_ = FillKernelsOf(module_);
    multiprocessors_ = AttributeOf(device, kCuMultiprocessors);
  }
  ~CeilingMeasurement() { Cu().ModuleUnload(module_); }
  CeilingMeasurement(const CeilingMeasurement&) = delete;
  CeilingMeasurement& operator=(const CeilingMeasurement&) = delete;

  Ceilings Measure() {
    Ceilings ceilings;
    struct Unit {
      const char* name;
      Precision precision;
      bool tf32;
    };
    for (const Unit& unit :
         {Unit{kTf32Unit, Precision::kFp32, true}, Unit{kFp16Unit, Precision::kFp16, false},
          Unit{kBf16Unit, Precision::kBf16, false}}) {
      const double rate = ProductRate(unit.precision, unit.tf32);
      if (rate > 0) ceilings.gflop_per_s[unit.name] = rate * 1e-9;
    }
    ceilings.gflop_per_s[kFp32Unit] = MultiplyAddRate() * 1e-9;
    ceilings.gb_per_s = Bandwidth() * 1e-9;
    return ceilings;
  }

 private:
  CuHandle Function(const char* name) const {
    CuHandle function = nullptr;
    KEVIN_CU(ModuleGetFunction, &function, module_, name);
    return function;
  }

  void Launch(const char* name, unsigned blocks, void** arguments) const {
    CuLaunchConfig config;
    config.grid_x = blocks;
    config.block_x = kThreads;
    config.stream = stream_;
    KEVIN_CU(LaunchKernelEx, &config, Function(name), arguments, nullptr);
  }

  double BestUs(const std::function<void()>& enqueue) {
    if (!stopwatch_)
      stopwatch_ = std::make_unique<Stopwatch>(StopwatchOptions{device_, stream_, Function("kevin_scrub")});
    return stopwatch_->BestUs(kRepeats, enqueue);
  }

  // FLOP a second; 0: there is not enough memory.
  double ProductRate(Precision precision, bool tf32) {
    if (static_cast<int64_t>(MemoryOfDevice().free) < 2 * kBytes) return 0;
    const Problem problem = InPrecision(ParseProblem(kProduct, "ceiling.toml"), precision);
    const SizedProblem sized = AtSize(problem, "full");
    Reference reference(problem, ReferenceOptions{1, device_, tf32});
    stream_ = reference.Stream();  // the same of all references
    std::vector<DeviceBuffer> buffers;
    std::vector<TensorView> views;
    for (size_t i = 0; i < sized.inputs.size(); ++i) {
      const ConcreteTensor& input = sized.inputs[i];
      buffers.emplace_back(static_cast<size_t>(input.bytes));
      FillOnDevice(fill_, stream_, buffers.back().data(), input.elements,
                   DrawingOf(input, InputMode::kDefault, 0), keys_.Next().OfTensor(i));
      views.push_back({reinterpret_cast<void*>(buffers.back().data()), input.spec.dtype, input.shape});
    }
    reference.BindSlot(0, views);
    reference.RunSlot(0);  // loads the library
    KEVIN_CU(StreamSynchronize, stream_);
    return 2.0 * kRows * kRows * kRows / BestUs([&] { reference.RunSlot(0); }) * 1e6;
  }

  double MultiplyAddRate() {
    const DeviceBuffer result(16);
    CuDevicePtr sink = result.data();
    int rounds = 8192;
    void* arguments[] = {&sink, &rounds};
    const unsigned blocks = kBlocksOfMultiprocessor * static_cast<unsigned>(multiprocessors_);
    const double us = BestUs([&] { Launch("kevin_fma", blocks, arguments); });
    return 2.0 * 16 * rounds * blocks * kThreads / us * 1e6;
  }

  // Bytes a second, the best of reading, writing and copying.
  double Bandwidth() {
    const DeviceBuffer from(kBytes), to(kBytes), result(16);
    CuDevicePtr in = from.data(), out = to.data(), sink = result.data();
    KEVIN_CU(MemsetD8Async, in, 0, kBytes, stream_);
    long long vectors = kBytes / 16;
    void* read[] = {&in, &vectors, &sink};
    void* write[] = {&out, &vectors};
    void* copy[] = {&out, &in, &vectors};
    double best = 0;
    for (const unsigned blocks :
         {kBlocksOfMultiprocessor * static_cast<unsigned>(multiprocessors_),
          32 * static_cast<unsigned>(multiprocessors_), static_cast<unsigned>(vectors / kThreads)}) {
      best = std::max(best, kBytes / BestUs([&] { Launch("kevin_read", blocks, read); }) * 1e6);
      best = std::max(best, kBytes / BestUs([&] { Launch("kevin_write", blocks, write); }) * 1e6);
      best = std::max(best, 2.0 * kBytes / BestUs([&] { Launch("kevin_copy", blocks, copy); }) * 1e6);
    }
    return best;
  }

  int device_, multiprocessors_ = 0;
  CuHandle module_ = nullptr, stream_ = nullptr;
  FillKernels fill_;
  std::unique_ptr<Stopwatch> stopwatch_;
  DrawingKeys keys_;
};

}  // namespace

Ceilings MeasureGpuCeilings(int device, const std::string& trusted_cubin) {
  return CeilingMeasurement(device, trusted_cubin).Measure();
}

}  // namespace kevin
