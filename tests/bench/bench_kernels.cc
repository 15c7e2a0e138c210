#include "tests/bench/bench_kernels.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <regex>
#include <thread>

#include "agent/machine.h"
#include "env/error.h"
#include "env/gpu/compile/device_source.h"
#include "env/process/spawn.h"
#include "env/sandbox/sandbox.h"
#include "tests/support/search_text.h"

namespace kevin {
namespace {

constexpr const char* kRelu = R"(
id = "bench/relu"
name = "ReLU of {0} numbers"
families = ["elementwise"]
reference = '''
def forward(x):
    return torch.relu(x)
'''
[sizes.full]
N = {0}
[[inputs]]
name = "x"
shape = ["N"]
[[outputs]]
name = "out"
shape = ["N"]
[cost]
flops = "N"
bytes = "8*N"
min_flops = 0
min_bytes = "8*N"
)";

// The remaining steps have a loop of their own, else the compiler leaves them rolled: a rolled step costs
// several unrolled ones, and 31 steps could take longer than 32.
constexpr const char* kDelayed = R"(
__global__ void __launch_bounds__(256) relu(const float4* x, float4* out, float zero) {{
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i >= N / 4) return;
  float4 v = x[i];
  constexpr int steps = {};
#pragma unroll 1
  for (int round = 0; round < steps / 16; ++round)
#pragma unroll
    for (int step = 0; step < 16; ++step) v.x = __fadd_rn(v.x, zero);
#pragma unroll
  for (int step = 0; step < steps % 16; ++step) v.x = __fadd_rn(v.x, zero);
  v.x = v.x < 0 ? 0 : v.x;
  v.y = v.y < 0 ? 0 : v.y;
  v.z = v.z < 0 ? 0 : v.z;
  v.w = v.w < 0 ? 0 : v.w;
  out[i] = v;
}}

void launch(const float* x, float* out) {{
  relu<<<ceil_div(N / 4, 256), 256>>>((const float4*)x, (float4*)out, 0.0f);
}}
)";

constexpr const char* kEagerForm = R"(
__global__ void __launch_bounds__(128) relu(const float4* x, float4* out) {
  const long first = blockIdx.x * 512L + threadIdx.x;
  float4 v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (first + k * 128 < N / 4) v[k] = x[first + k * 128];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    v[k].x = v[k].x < 0 ? 0 : v[k].x;
    v[k].y = v[k].y < 0 ? 0 : v[k].y;
    v[k].z = v[k].z < 0 ? 0 : v[k].z;
    v[k].w = v[k].w < 0 ? 0 : v[k].w;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (first + k * 128 < N / 4) out[first + k * 128] = v[k];
}

void launch(const float* x, float* out) {
  relu<<<ceil_div(N / 4, 512), 128>>>((const float4*)x, (float4*)out);
}
)";

}  // namespace

std::string SearchKernel(const Problem& problem) { return testing::SearchText(problem, "full", "cuda"); }

std::string Variant(const std::string& source, const std::string& mark) {
  const std::vector<std::string> kernels = KernelsIn(source);
  if (kernels.empty()) throw Error(ExitCode::kBroken, "a benchmark's text has no kernel");
  std::string text = source;
  for (const std::string& kernel : kernels)
    text = std::regex_replace(text, std::regex("\\b" + kernel + "\\b"), kernel + mark);
  return "// variant " + mark + "\n" + text;
}

std::string ZeroKernel(const Problem& problem) {
  const SizedProblem sized = AtSize(problem, "full");
  std::string launches;
  for (const ConcreteTensor& output : sized.outputs) {
    launches += fmt::format("  zero<{}><<<{}, 256>>>({}, {}L);\n", DTypeInKind(output.spec.dtype, "cuda"),
                            (output.elements + 255) / 256, output.spec.name, output.elements);
  }
  return fmt::format(R"(
template <typename T>
__global__ void zero(T* out, long count) {{
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i < count) out[i] = 0;
}}

{} {{
{}}}
)",
                     LaunchSignature(problem, "cuda"), launches);
}

std::string BrokenKernel(const std::string& source) {
  return "__device__ float broken(float x) { return x + ; }\n" + source;
}

Problem ReluProblem(int64_t elements) { return ParseProblem(fmt::format(kRelu, elements), "bench_gpu"); }

std::string DelayedRelu(int steps) { return fmt::format(kDelayed, steps); }

std::string EagerFormRelu() { return kEagerForm; }

namespace {

namespace fs = std::filesystem;

constexpr CompileSource kSources[] = {{"ReLU", R"(
__global__ void kernel(const float4* x, float4* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = x[i];
  v.x = fmaxf(v.x, 0.f); v.y = fmaxf(v.y, 0.f); v.z = fmaxf(v.z, 0.f); v.w = fmaxf(v.w, @.f * 0.f);
  y[i] = v;
})"},
                                      {"softmax", R"(#include <cuda_runtime.h>
#include <cfloat>
template <typename T> __device__ T warp_max(T v) {
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
  return v;
}
__device__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  return v;
}
__global__ void kernel(const float* x, float* y, int n) {
  __shared__ float part[32];
  const float* row = x + (long)blockIdx.x * n;
  float most = -FLT_MAX, sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float v = row[i], higher = fmaxf(most, v);
    sum = sum * __expf(most - higher) + __expf(v - higher);
    most = higher;
  }
  float all = warp_max(most);
  sum = warp_sum(sum * __expf(most - all));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum + @.f * 1e-30f;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < blockDim.x / 32; ++i) total += part[i];
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[(long)blockIdx.x * n + i] = __expf(row[i] - all) / total;
})"},
                                      {"wmma matmul", R"(#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
__global__ void kernel(const half* a, const half* b, float* c, int m, int n, int k) {
  __shared__ half sa[64][32 + 8], sb[32][64 + 8];
  int warp = threadIdx.x / 32, row = blockIdx.y * 64, column = blockIdx.x * 64;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) wmma::fill_fragment(fc[i], @.f * 0.f);
  for (int at = 0; at < k; at += 32) {
    for (int i = threadIdx.x; i < 64 * 32; i += blockDim.x) {
      sa[i / 32][i % 32] = a[(long)(row + i / 32) * k + at + i % 32];
      sb[i / 64][i % 64] = b[(long)(at + i / 64) * n + column + i % 64];
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < 32; step += 16) {
      wmma::load_matrix_sync(fa, &sa[warp * 16][step], 40);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wmma::load_matrix_sync(fb, &sb[step][i * 16], 72);
        wmma::mma_sync(fc[i], fa, fb, fc[i]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    wmma::store_matrix_sync(c + (long)(row + warp * 16) * n + column + i * 16, fc[i], n, wmma::mem_row_major);
})"},
                                      {"cooperative groups", R"(#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void kernel(const float* x, float* y) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  float sum = cg::reduce(warp, x[blockIdx.x * blockDim.x + threadIdx.x] + @.f, cg::plus<float>());
  if (warp.thread_rank() == 0) y[blockIdx.x * warp.meta_group_size() + warp.meta_group_rank()] = sum;
})"},
                                      {"cub block reduce", R"(#include <cub/block/block_reduce.cuh>
__global__ void kernel(const float* x, float* y) {
  using Reduce = cub::BlockReduce<float, 256>;
  __shared__ Reduce::TempStorage storage;
  float sum = Reduce(storage).Sum(x[blockIdx.x * 256 + threadIdx.x] * @.f);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
})"}};

CompileFarmOptions FarmOptions(const fs::path& folder) {
  CompileFarmOptions options;
  options.compiler_program = ProgramDirectory() / "kevin-gpu-compiler";
  options.runner_program = ProgramDirectory() / "kevin-runner";
  options.cache_directory = folder;
  options.namespaces = NamespacesAvailable();
  return options;
}

GpuCompileRequest RequestFor(const CompileSource& source, int number) {
  GpuCompileRequest request;
  request.device_text = source.text;
  request.device_text.replace(request.device_text.find('@'), 1, std::to_string(number));
  request.kernels = {"kernel"};
  return request;
}

fs::path NewFolder() {
  static std::atomic<int> count = 0;
  return fs::temp_directory_path() /
         ("kevin-bench-" + std::to_string(getpid()) + "-" + std::to_string(count++));
}

}  // namespace

std::span<const CompileSource> CompileSources() { return kSources; }

BenchCompiler::BenchCompiler(int processes) : folder_(NewFolder()), toolchain_(FindCudaToolchain()) {
  CompileFarmOptions options = FarmOptions(folder_);
  options.processes = processes;
  farm_ = std::make_unique<CompileFarm>(toolchain_, options);
}

BenchCompiler::~BenchCompiler() {
  farm_.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void BenchCompiler::WarmUp() {
  Milliseconds(kSources[0], -1);
  std::this_thread::sleep_for(std::chrono::seconds(15));  // idle compilers precompile headers
}

double BenchCompiler::Milliseconds(const CompileSource& source, int number) {
  const GpuCompiled compiled = farm_->Compile(RequestFor(source, number));
  if (compiled.module.cubin.empty() || compiled.cached || !compiled.refused.empty())
    throw Error(ExitCode::kBroken,
                std::string(source.name) + " was not compiled: " + compiled.log + compiled.refused);
  return compiled.seconds * 1e3;
}

BenchCompiler::Times BenchCompiler::OneAfterAnother(const CompileSource& source, int count) {
  Times times;
  times.first_ms = Milliseconds(source, 0);
  Milliseconds(source, 1);  // may be the first of the other compiler
  for (int i = 0; i < count; ++i) times.later_ms.push_back(Milliseconds(source, i + 2));
  return times;
}

}  // namespace kevin
