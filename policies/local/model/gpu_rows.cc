#include "policies/local/model/gpu_rows.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "env/error.h"
#include "policies/local/gpu/gpu_program.h"

namespace kevin::local {
namespace {

constexpr int kThreads = 256, kEach = 8;     // numbers of a thread at a time
constexpr unsigned kBlocksForGradients = 8;  // of the norms' backward pass, for each multiprocessor

int NumberOf(at::ScalarType type) { return type == at::kFloat ? 0 : type == at::kBFloat16 ? 1 : 2; }

// The kernels for one type on one device.
struct RowKernels {
  explicit RowKernels(int device, int number)
      : gpu(ShapeOfGpu(device)), program(kRowsKernels, {fmt::format("NUMBER={}", number)}, gpu) {}
  GpuShape gpu;
  GpuProgram program;
  std::map<std::string, GpuProgram::Kernel> found;
};

std::mutex kernels_mutex;

// Null if unavailable. Never freed: the driver may be unloaded before static storage is destroyed.
RowKernels* KernelsFor(const at::Tensor& x) {
  static auto& known = *new std::map<std::pair<int, int>, std::unique_ptr<RowKernels>>;
  const int device = x.get_device(), number = NumberOf(x.scalar_type());
  const std::lock_guard lock(kernels_mutex);
  UseGpu(device);
  const auto [place, is_new] = known.try_emplace({device, number});
  if (is_new) {
    try {
      place->second = std::make_unique<RowKernels>(device, number);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kMachine) throw;
    }
  }
  return place->second.get();
}

void Launch(const at::Tensor& x, const std::string& name, unsigned blocks_x, unsigned blocks_y,
            std::initializer_list<void*> arguments) {
  RowKernels* kernels = KernelsFor(x);
  GpuProgram::Kernel kernel = nullptr;
  {
    const std::lock_guard lock(kernels_mutex);
    GpuProgram::Kernel& known = kernels->found[name];
    if (!known) known = kernels->program.Find(name.c_str());
    kernel = known;
  }
  GpuLaunch launch;
  launch.grid[0] = blocks_x, launch.grid[1] = blocks_y, launch.threads = kThreads;
  launch.stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(x.device()).native_handle();
  GpuProgram::Launch(kernel, launch, {arguments.begin(), arguments.size()});
}

const void* Data(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
void* Target(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

unsigned UpDiv(int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

// The distribution of a norm's rows over blocks.
struct NormCut {
  int threads, vectors;  // for each row, and for each of them
  explicit NormCut(int64_t columns) : threads(columns <= 32 * kEach * 4 ? 32 : kThreads), vectors(1) {
    while (vectors * threads * kEach < columns) vectors *= 2;
  }
  int rows_of_a_block() const { return kThreads / threads; }
  std::string Suffix() const { return fmt::format("_{}_{}", threads, vectors); }
};

}  // namespace

bool HasGpuRows(const at::Tensor& x) {
  if (!x.is_cuda() || x.dim() < 1 || x.size(-1) % kEach != 0 || !x.is_contiguous()) return false;
  const at::ScalarType type = x.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) return false;
  return KernelsFor(x) != nullptr;
}

NormedRows GpuAddNorm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight,
                      double epsilon) {
  int n = static_cast<int>(x.size(-1));
  const int64_t rows = x.numel() / n;
  NormedRows out{added.defined() ? at::empty_like(x) : x, at::empty_like(x),
                 at::empty({rows}, x.options().dtype(at::kFloat))};
  if (rows == 0) return out;
  const NormCut cut(n);
  const void *from = Data(x), *more = Data(added), *w = Data(weight);
  void *sum = added.defined() ? Target(out.sum) : nullptr, *normed = Target(out.normed),
       *scale = Target(out.scale);
  int64_t count = rows;
  auto small = static_cast<float>(epsilon);
  Launch(x, "kevin_norm" + cut.Suffix(), UpDiv(rows, cut.rows_of_a_block()), 1,
         {&from, &more, &w, &sum, &normed, &scale, &count, &n, &small});
  return out;
}

NormGradients GpuNormBackward(const at::Tensor& of_normed, const at::Tensor& of_sum, const NormedRows& rows,
                              const at::Tensor& weight, bool with_weight) {
  const at::Tensor& x = rows.sum;
  int n = static_cast<int>(x.size(-1));
  int64_t count = x.numel() / n;
  NormGradients out{at::empty_like(x), at::Tensor()};
  const NormCut cut(n);
  const unsigned most = kBlocksForGradients * static_cast<unsigned>(KernelsFor(x)->gpu.multiprocessors);
  const unsigned blocks = std::min(most, UpDiv(count, cut.rows_of_a_block()));
  at::Tensor parts;
  if (with_weight)
    parts =
        at::empty({static_cast<int64_t>(blocks) * cut.rows_of_a_block(), n}, x.options().dtype(at::kFloat));
  const at::Tensor g = of_normed.contiguous(), s = of_sum.defined() ? of_sum.contiguous() : of_sum;
  const void *g_data = Data(g), *s_data = Data(s), *x_data = Data(x), *scale = Data(rows.scale),
             *w = Data(weight);
  void *of_x = Target(out.x), *of_weight = Target(parts);
  Launch(x, "kevin_norm_backward" + cut.Suffix(), blocks, 1,
         {&g_data, &s_data, &x_data, &scale, &w, &of_x, &of_weight, &count, &n});
  if (with_weight) out.weight = parts.sum(0).to(weight.scalar_type());
  return out;
}

at::Tensor GpuGate(const at::Tensor& gate_up) {
  auto n = static_cast<uint32_t>(gate_up.size(-1) / 2);
  at::Tensor out = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
  auto vectors = static_cast<uint32_t>(out.numel() / kEach);
  if (vectors == 0) return out;
  const void* from = Data(gate_up);
  void* to = Target(out);
  Launch(gate_up, "kevin_gate", UpDiv(vectors, kThreads), 1, {&from, &to, &vectors, &n});
  return out;
}

at::Tensor GpuGateBackward(const at::Tensor& of_out, const at::Tensor& gate_up) {
  auto n = static_cast<uint32_t>(gate_up.size(-1) / 2);
  auto vectors = static_cast<uint32_t>(gate_up.numel() / 2 / kEach);
  at::Tensor out = at::empty_like(gate_up);
  const at::Tensor g = of_out.contiguous();
  const void *g_data = Data(g), *from = Data(gate_up);
  void* to = Target(out);
  Launch(gate_up, "kevin_gate_backward", UpDiv(vectors, kThreads), 1, {&g_data, &from, &to, &vectors, &n});
  return out;
}

void GpuRotate(const HeadTensors& from, const HeadTensors& to, const at::Tensor& cos, const at::Tensor& sin,
               float sign) {
  struct {
    const void* data[3] = {};
    int64_t row_stride[3] = {};
  } source, target;
  uint32_t heads[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (!from[i].defined()) continue;
    heads[i] = static_cast<uint32_t>(from[i].size(1));
    source.data[i] = Data(from[i]), source.row_stride[i] = from[i].stride(0);
    target.data[i] = Target(to[i]), target.row_stride[i] = to[i].stride(0);
  }
  auto dim = static_cast<uint32_t>(from[0].size(2));
  auto vectors =
      static_cast<uint32_t>(from[0].size(0)) * (heads[0] + heads[1] + heads[2]) * (dim / 2 / kEach);
  if (vectors == 0) return;
  const void *cosines = Data(cos), *sines = Data(sin);
  Launch(from[0], "kevin_turn", UpDiv(vectors, kThreads), 1,
         {&source, &target, &cosines, &sines, &vectors, &heads[0], &heads[1], &heads[2], &dim, &sign});
}

RowLogprobs GpuLogprobs(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& temperatures,
                        bool with_entropy) {
  const int64_t rows = logits.size(0);
  const at::TensorOptions floats = logits.options().dtype(at::kFloat);
  RowLogprobs out{at::empty({rows}, floats), at::empty({rows}, floats), at::Tensor()};
  if (with_entropy) out.entropies = at::empty({rows}, floats);
  int n = static_cast<int>(logits.size(1));
  const void *from = Data(logits), *of = Data(targets), *at_temperatures = Data(temperatures);
  void *logprobs = Target(out.logprobs), *normalisers = Target(out.normalisers),
       *entropies = Target(out.entropies);
  Launch(logits, "kevin_logprob", static_cast<unsigned>(rows), 1,
         {&from, &of, &at_temperatures, &logprobs, &normalisers, &entropies, &n});
  return out;
}

void GpuLogprobsBackward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& temperatures,
                         const RowLogprobs& forward, const at::Tensor& of_logprobs,
                         const at::Tensor& of_entropies) {
  int n = static_cast<int>(logits.size(1));
  void* in_place = Target(logits);
  const void *of = Data(targets), *at_temperatures = Data(temperatures),
             *normalisers = Data(forward.normalisers), *g = Data(of_logprobs),
             *entropies = Data(forward.entropies), *h = Data(of_entropies);
  Launch(logits, "kevin_logprob_backward", static_cast<unsigned>(logits.size(0)), UpDiv(n, kThreads * kEach),
         {&in_place, &of, &at_temperatures, &normalisers, &g, &entropies, &h, &n});
}

}  // namespace kevin::local
