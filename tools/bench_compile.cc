// bench_compile: how long the compile farm takes for a text that it has not seen. Prints the median and the
// worst of N distinct sources of each kind, one after another on warm compilers, and how many a second all
// cores compile together. Usage: bench_compile [--sources N]; the programs are those beside it.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "env/error.h"
#include "env/gpu/compile_farm.h"
#include "env/machine.h"
#include "env/sandbox/sandbox.h"
#include "tools/places.h"

namespace kevin {
namespace {

struct Source {
  const char* name;
  const char* text;  // @ stands for a number that makes each one another text
};

constexpr Source kSources[] = {{"ReLU", R"(
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

GpuCompileRequest Request(const Source& source, int number) {
  GpuCompileRequest request;
  request.device_text = source.text;
  request.device_text.replace(request.device_text.find('@'), 1, std::to_string(number));
  request.kernels = {"kernel"};
  return request;
}

double Milliseconds(CompileFarm* farm, const Source& source, int number) {
  const GpuCompiled compiled = farm->Compile(Request(source, number));
  if (compiled.module.cubin.empty() || compiled.cached || !compiled.refused.empty())
    throw Error(ExitCode::kBroken,
                std::string(source.name) + " was not compiled: " + compiled.log + compiled.refused);
  return compiled.seconds * 1e3;
}

void OneAfterAnother(CompileFarm* farm, const Source& source, int sources) {
  const double first_ms = Milliseconds(farm, source, 0);
  Milliseconds(farm, source, 1);  // the other compiler's first, perhaps
  std::vector<double> times_ms;
  for (int i = 0; i < sources; ++i) times_ms.push_back(Milliseconds(farm, source, i + 2));
  std::sort(times_ms.begin(), times_ms.end());
  fmt::print("{:<20} {:>9.0f} {:>9.1f} {:>9.1f} {:>9.1f}\n", source.name, first_ms,
             times_ms[times_ms.size() / 2], times_ms[times_ms.size() * 9 / 10], times_ms.back());
}

void AllTogether(CompileFarm* farm, int sources) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < UsableCpus(); ++thread) {
    threads.emplace_back([=] {
      for (int i = 0; i < sources; ++i) Milliseconds(farm, kSources[i % 3], 100'000 + thread * sources + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} threads, the first three mixed: {:.1f} a second\n", UsableCpus(),
             sources * UsableCpus() / seconds);
}

void Run(const std::filesystem::path& folder, int sources) {
  CompileFarmOptions options;
  options.compiler_program = ProgramDirectory() / "kevin-gpu-compiler";
  options.runner_program = ProgramDirectory() / "kevin-runner";
  options.cache_directory = folder;
  options.namespaces = NamespacesAvailable();
  const CudaToolchain toolchain = FindCudaToolchain();
  fmt::print("{}, {} compilers, {} distinct sources each, sm_90a, ms\n", toolchain.version, UsableCpus(),
             sources);
  CompileFarm farm(toolchain, options);
  Milliseconds(&farm, kSources[0], -1);
  std::this_thread::sleep_for(std::chrono::seconds(15));  // the idle farm precompiles headers
  fmt::print("{:<20} {:>9} {:>9} {:>9} {:>9}\n", "", "first", "p50", "p90", "worst");
  for (const Source& source : kSources) OneAfterAnother(&farm, source, sources);
  AllTogether(&farm, sources);
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  CLI::App app{"How long does a text that was never seen take to compile for a GPU?"};
  int sources = 20;
  app.add_option("--sources", sources, "Distinct sources of each kind")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("kevin-bench-{}", getpid());
  int code = 0;
  try {
    kevin::Run(folder, sources);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_compile: {}\n  {}\n", error.what(), error.next_step());
    code = static_cast<int>(error.code());
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return code;
}
