// Device code compiled for real, with no GPU: what works, what is known of the result, and the messages for the author.

#include <cstring>
#include <fstream>

#include "env/gpu/compile/device_source.h"
#include "tests/env/gpu/compile_samples.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// The compiled text of one kernel `k`, which must be fine.
KernelInfo CompileK(Farm& farm, const std::string& text) {
  const GpuCompiled compiled = farm.Compile(text, {"k"});
  INFO(compiled.log << compiled.refused);
  REQUIRE(!compiled.module.cubin.empty());
  CHECK(compiled.refused.empty());
  CHECK(compiled.log.empty());  // NVRTC complains here when it cannot precompile headers
  REQUIRE(compiled.module.kernels.size() == 1);
  return compiled.module.kernels[0];
}

// The contents of the sections with instructions of an ELF file of 64 bits.
std::vector<std::string> InstructionsOf(const std::string& cubin) {
  const auto number = [&](size_t at, size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, cubin.data() + at, bytes);
    return value;
  };
  const uint64_t table = number(0x28, 8), entry = number(0x3a, 2), count = number(0x3c, 2);
  constexpr uint64_t kExecutable = 4;
  std::vector<std::string> contents;
  for (uint64_t at = table; at < table + count * entry; at += entry) {
    if (number(at + 8, 8) & kExecutable)
      contents.push_back(cubin.substr(number(at + 0x18, 8), number(at + 0x20, 8)));
  }
  return contents;
}

}  // namespace

TEST_CASE("a kernel compiles, and what is known about it comes back") {
  if (!TestToolchain()) return;
  Farm farm;
  const GpuCompiled compiled = farm.Compile(kRelu, {"relu"});
  INFO(compiled.log << compiled.refused);
  REQUIRE(compiled.module.cubin.substr(1, 3) == "ELF");
  CHECK(Contains(compiled.module.ptx, ".target sm_90a"));
  CHECK(compiled.log.empty());
  CHECK(compiled.notes.empty());
  REQUIRE(compiled.module.kernels.size() == 1);
  const KernelInfo& relu = compiled.module.kernels[0];
  CHECK(relu.name == "relu");
  CHECK(relu.lowered_name == "_Z4reluPKfPfi");
  REQUIRE(relu.parameters.size() == 3);
  CHECK(relu.parameters[0].type == "u64");
  CHECK(relu.parameters[2].type == "u32");
  CHECK(relu.parameters[2].bytes == 4);
  CHECK(relu.registers >= 8);
  CHECK(relu.spill_store_bytes == 0);
}

TEST_CASE("extern C, templates, namespaces, shared memory, structs, symbols and constants") {
  if (!TestToolchain()) return;
  Farm farm;
  GpuCompileRequest request;
  request.device_text = R"(
struct Box { float* p; int n; char c; };
extern "C" __global__ void plain(float* x) { x[N - 1] = H * W; }
template <typename T, int S> __global__ void scale(T* x) { __shared__ T s[S]; s[threadIdx.x] = x[threadIdx.x];
  __syncthreads(); x[threadIdx.x] = s[S - 1 - threadIdx.x] * table[threadIdx.x]; }
namespace deep { __global__ void boxed(Box b, __grid_constant__ const Box c, double d, bool e) { *b.p = c.n + d + e; } }
)";
  request.device_text.insert(0, "static __constant__ float table[64];");
  request.kernels = {"plain", "scale<float, 64>", "deep::boxed"};
  request.variables = {"table"};
  request.symbols = {{"N", 5}, {"H", 2}, {"W", 3000000000}};
  const GpuCompiled compiled = farm->Compile(request);
  INFO(compiled.log << compiled.refused);
  REQUIRE(compiled.module.kernels.size() == 3);
  CHECK(compiled.module.kernels[0].lowered_name == "plain");
  CHECK(compiled.module.kernels[1].static_shared_bytes == 256);
  const KernelInfo& boxed = compiled.module.kernels[2];
  REQUIRE(boxed.parameters.size() == 4);
  CHECK(boxed.parameters[0].type == "b8");
  CHECK(boxed.parameters[0].bytes == 16);
  CHECK(boxed.parameters[0].align == 8);
  CHECK(boxed.parameters[2].type == "f64");
  CHECK(boxed.parameters[3].bytes == 1);
  CHECK(Contains(compiled.module.ptx, compiled.variables.at("table") + "[256]"));
}

TEST_CASE("spills and the stack are read from the assembler's report") {
  if (!TestToolchain()) return;
  Farm farm;
  std::string text =
      "__global__ __launch_bounds__(1024, 2) void k(float* x) {\n  float v[96];\n#pragma unroll\n";
  text +=
      "  for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];\n  __syncthreads();\n#pragma "
      "unroll\n";
  text += "  for (int i = 0; i < 96; ++i) x[(95 - i) * 1024 + threadIdx.x] = v[i] * v[(i * 7) % 96];\n}\n";
  const KernelInfo kernel = CompileK(farm, text);
  CHECK(kernel.registers <= 32);
  CHECK(kernel.spill_store_bytes > 0);
  CHECK(kernel.spill_load_bytes > 0);
  CHECK(kernel.stack_bytes > 0);
}

TEST_CASE("CUDA's own headers work") {
  if (!TestToolchain()) return;
  Farm farm;
  const char* const texts[] = {
      "#include <cuda_fp16.h>\n__global__ void k(__half2* x) { x[threadIdx.x] = __hmul2(x[threadIdx.x], "
      "x[0]); }",
      "#include <cuda_bf16.h>\n__global__ void k(__nv_bfloat16* x) { x[0] = __float2bfloat16(2.f * "
      "float(x[1])); }",
      "#include <cuda_fp8.h>\n__global__ void k(__nv_fp8_e4m3* x, float f) { x[0] = __nv_fp8_e4m3(f); }",
      "#include <mma.h>\nusing namespace nvcuda;\n__global__ void k(const half* a, const half* b, float* c) "
      "{\n"
      "  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;\n"
      "  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;\n"
      "  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;\n  wmma::fill_fragment(fc, 0.f);\n"
      "  wmma::load_matrix_sync(fa, a, 16); wmma::load_matrix_sync(fb, b, 16);\n"
      "  wmma::mma_sync(fc, fa, fb, fc); wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major); }",
      "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\nnamespace cg = "
      "cooperative_groups;\n"
      "__global__ void k(float* x) { auto w = cg::tiled_partition<32>(cg::this_thread_block());\n"
      "  x[0] = cg::reduce(w, x[threadIdx.x], cg::plus<float>()); cg::this_grid().sync(); x[1] = 1; }",
      "#include <cuda/barrier>\n__global__ void k(int* x) { __shared__ "
      "cuda::barrier<cuda::thread_scope_block> b;\n"
      "  if (threadIdx.x == 0) init(&b, blockDim.x); __syncthreads(); b.arrive_and_wait(); x[0] = 1; }",
      "#include <cuda/pipeline>\n__global__ void k(int* x) { __shared__ int s[32]; auto p = "
      "cuda::make_pipeline();\n"
      "  p.producer_acquire(); cuda::memcpy_async(s, x, 128, p); p.producer_commit(); p.consumer_wait();\n"
      "  x[40] = s[1]; p.consumer_release(); }",
      "#include <cuda/ptx>\n__global__ void k(int* x) { x[0] = cuda::ptx::get_sreg_laneid(); }",
      "#include <cub/block/block_reduce.cuh>\n__global__ void k(float* x) { using R = "
      "cub::BlockReduce<float, 256>;\n"
      "  __shared__ R::TempStorage t; float v = R(t).Sum(x[threadIdx.x]); if (threadIdx.x == 0) x[0] = v; }",
      "#include <cuda.h>\n#include <cuda/barrier>\n__global__ void k(const __grid_constant__ CUtensorMap "
      "map, int* x)"
      " { x[0] = sizeof(map); }",
      "__global__ void k(const __grid_constant__ CUtensorMap map, int* x) { x[0] = sizeof(map); }",
      "struct alignas(64) CUtensorMap { char bytes[128]; };\n"
      "__global__ void k(const __grid_constant__ CUtensorMap map, int* x) { x[0] = sizeof(map); }",
      "typedef struct { int a[32]; } CUtensorMap;\n__global__ void k(const CUtensorMap map, int* x) { x[0] = map.a[0]; }",
      "__global__ void k(int* x) { cudaGridDependencySynchronize(); x[0] = 1; "
      "cudaTriggerProgrammaticLaunchCompletion(); }",
      "static __device__ __forceinline__ void cudaGridDependencySynchronize() {}\n"
      "__global__ void k(int* x) { cudaGridDependencySynchronize(); x[0] = 1; }",
      "#include <cuda_device_runtime_api.h>\n__global__ void k(int* x) { cudaGridDependencySynchronize(); x[0] = 1; }",
  };
  for (const char* text : texts) {
    INFO(text);
    CompileK(farm, text);
  }
}

TEST_CASE("names of the prompts are given where a text uses them and does not declare them") {
  const auto is_given = [](const std::string& text) {
    return BuildDeviceSource(text, {}).text.find("#include <cuda.h>\n") != std::string::npos;
  };
  CHECK(is_given("void f(const CUtensorMap* map);"));
  CHECK(is_given("template <class T> void f(CUtensorMap map);"));
  CHECK(is_given("struct Two { CUtensorMap map; };"));
  CHECK(!is_given("struct alignas(64) CUtensorMap { char bytes[128]; };"));
  CHECK(!is_given("typedef struct { char bytes[128]; } CUtensorMap;"));
  CHECK(!is_given("using CUtensorMap = int;"));
  CHECK(!is_given("#define CUtensorMap int"));
  CHECK(!is_given("// CUtensorMap\nvoid f(CUtensorMapping x);"));
  // Texts that are no code.
  CHECK(is_given(") CUtensorMap"));
  CHECK(is_given("CUtensorMap"));
  CHECK(is_given("))))) CUtensorMap("));
  CHECK(is_given(std::string(100000, ')') + "CUtensorMap"));
}

TEST_CASE("compatibility headers leave a note, and their usual names are there") {
  if (!TestToolchain()) return;
  Farm farm;
  std::string text;
  for (const char* header : {"cuda_runtime.h",
                             "stdint.h",
                             "cstdint",
                             "math.h",
                             "cmath",
                             "stdio.h",
                             "cstdio",
                             "cfloat",
                             "float.h",
                             "climits",
                             "limits",
                             "algorithm",
                             "type_traits",
                             "torch/extension.h",
                             "torch/all.h",
                             "ATen/cuda/CUDAContext.h",
                             "c10/cuda/CUDAStream.h",
                             "vector",
                             "iostream",
                             "cuda.h",
                             "cuda_fp16.h",
                             "device_launch_parameters.h",
                             "cublas_v2.h",
                             "cstring",
                             "assert.h",
                             "cuda/std/limits",
                             "cuda/std/cstdint"})
    text += "#include <" + std::string(header) + ">\n";
  text += R"(
static_assert(std::numeric_limits<float>::max() == FLT_MAX && std::numeric_limits<int>::min() == INT_MIN);
static_assert(std::is_same_v<std::remove_cvref_t<const float&>, float> && std::is_integral_v<long>);
static_assert(sizeof(uint64_t) == 8 && INT32_MAX == 2147483647 && std::max(3, 4L) == 4);
constexpr float kLowest = -INFINITY;
float helper(float v) { return std::fmax(v, kLowest) + static_cast<float>(M_PI) + std::exp(v) + std::sqrt(v); }
__global__ void k(float* x, std::int64_t n) {
  assert(n > 0);
  uint32_t i = std::min<uint32_t>(threadIdx.x, 7u);
  x[i] = helper(x[i]) + std::numeric_limits<float>::infinity() + NAN + DBL_EPSILON;
}
)";
  const GpuCompiled compiled = farm.Compile(text, {"k"});
  INFO(compiled.log << compiled.refused);
  CHECK(!compiled.module.cubin.empty());
  CHECK(compiled.refused.empty());
  CHECK(compiled.notes.size() == 9);
  CHECK(std::count(compiled.notes.begin(), compiled.notes.end(),
                   "`#include <torch/extension.h>` is ignored: there is no host code") == 1);
}

TEST_CASE("an error names the candidate's own line, and is remembered") {
  if (!TestToolchain()) return;
  Farm farm;
  GpuCompileRequest request;
  request.device_text =
      "#include <cuda_fp16.h>\n#include <vector>\n__global__ void k(float* x) {\n  x[0] = nonsense;\n}\n";
  request.kernels = {"k"};
  request.symbols = {{"N", 5}, {"M", 6}};
  const GpuCompiled first = farm->Compile(request);
  CHECK(first.module.cubin.empty());
  CHECK(!first.cached);
  CHECK(Contains(first.log, "candidate.cu(4): error: identifier \"nonsense\" is undefined"));
  CHECK(!Contains(first.log, "__nv_name_map"));
  const GpuCompiled second = farm->Compile(request);
  CHECK(second.cached);
  CHECK(second.log == first.log);
  CHECK(second.notes == first.notes);
}

TEST_CASE("a kernel that is not there is named, with those that are") {
  if (!TestToolchain()) return;
  Farm farm;
  const std::string text = std::string(kRelu) +
                           "// __global__ void old(int)\ntemplate <int S> __global__ "
                           "__launch_bounds__(S) void wide(float* x) { x[0] = S; }\n"
                           "__device__ float helper(float v) { return v; }\n";
  const GpuCompiled absent = farm.Compile(text, {"relu", "gelu<3>"});
  CHECK(absent.module.cubin.empty());
  CHECK(Contains(absent.log, "launches `gelu<3>`, but the text has no such kernel"));
  CHECK(Contains(absent.log, "relu, wide\n"));
  const GpuCompiled wrong = farm.Compile(text, {"wide<float>"});
  CHECK(wrong.module.cubin.empty());
  CHECK(Contains(wrong.log, "`wide<float>`, which does not fit"));
  const GpuCompiled no_kernel = farm.Compile(text, {"helper"});
  CHECK(no_kernel.module.cubin.empty());
  CHECK(Contains(no_kernel.log, "`helper`"));
  CHECK(!farm.Compile(text, {"relu", "wide<32>"}).module.cubin.empty());
}

TEST_CASE("what a text breaks of the rules comes back as refused; printf is allowed for debugging") {
  if (!TestToolchain()) return;
  Farm farm;
  CHECK(Contains(farm.Compile("#define T clock64()\n__global__ void k(long* x) { *x = T; }", {"k"}).refused,
                 "%clock64"));
  CHECK(Contains(farm.Compile("__global__ void k(int* x) { __trap(); }", {"k"}).refused, "trap"));
  CHECK(Contains(farm.Compile("__global__ void k(int** x) { *x = (int*)malloc(4); }", {"k"}).refused,
                 "workspace"));
  CHECK(Contains(
      farm.Compile("__device__ float big[20000]; __global__ void k(int i) { big[i] += 1; }", {"k"}).refused,
      "__device__ variables"));
  CHECK(Contains(
      farm.Compile("__global__ void k(cudaTextureObject_t t, float* x) { *x = tex2D<float>(t, 1, 2); }",
                   {"k"})
          .refused,
      "textures"));
  CHECK(Contains(farm.Compile("__global__ void k(int* x) { asm volatile(\"// end inline asm\\n mov.u32 %0, "
                              "%%globaltimer_lo;\" : \"=r\"(*x)); }",
                              {"k"})
                     .refused,
                 "%globaltimer_lo"));
  GpuCompileRequest request;
  request.device_text = "#include <stdio.h>\n__global__ void k(int* x) { printf(\"%clock %d\\n\", *x); }";
  request.kernels = {"k"};
  const GpuCompiled refused = farm->Compile(request);
  CHECK(Contains(refused.refused, "printf"));
  CHECK(refused.module.cubin.size() > 0);
  request.debug = true;
  const GpuCompiled allowed = farm->Compile(request);
  CHECK(allowed.cached);
  CHECK(allowed.refused.empty());
}

TEST_CASE("line numbers are there where they are asked for, and change no machine code") {
  if (!TestToolchain()) return;
  Farm farm;
  for (const std::string kind : {"cuda", "ptx"}) {
    GpuCompileRequest request;
    request.kind = kind;
    request.device_text = kind == "cuda" ? kRelu : farm.Compile(kRelu, {"relu"}).module.ptx;
    request.kernels = {kind == "cuda" ? "relu" : "_Z4reluPKfPfi"};
    const std::string without = farm->Compile(request).module.cubin;
    request.lines = true;
    const std::string with = farm->Compile(request).module.cubin;
    INFO(kind);
    REQUIRE(!without.empty());
    CHECK_FALSE(Contains(without, ".debug_line"));
    CHECK(Contains(with, ".debug_line"));
    const std::vector<std::string> code = InstructionsOf(without);
    REQUIRE(code.size() == 1);
    CHECK(code[0].size() > 64);
    CHECK(code == InstructionsOf(with));
  }
}

TEST_CASE("PTX is assembled, with the report, the rules and the errors") {
  if (!TestToolchain()) return;
  if (TestToolchain()->nvjitlink.empty()) FAIL("no nvJitLink");
  Farm farm;
  GpuCompileRequest request;
  request.kind = "ptx";
  request.device_text = farm.Compile(kRelu, {"relu"}).module.ptx;
  request.kernels = {"_Z4reluPKfPfi"};
  const GpuCompiled compiled = farm->Compile(request);
  INFO(compiled.log << compiled.refused);
  REQUIRE(compiled.module.kernels.size() == 1);
  CHECK(compiled.module.cubin.substr(1, 3) == "ELF");
  CHECK(compiled.module.kernels[0].registers >= 8);
  CHECK(compiled.module.kernels[0].parameters.size() == 3);
  request.kernels = {"gelu"};
  CHECK(Contains(farm->Compile(request).log, "the kernels there are: _Z4reluPKfPfi"));
  request.device_text =
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n  nonsense;\n}\n";
  const GpuCompiled wrong = farm->Compile(request);
  CHECK(wrong.module.cubin.empty());
  CHECK(Contains(wrong.log, "line 5"));
  request.device_text = "hello";
  CHECK(!farm->Compile(request).log.empty());
}

}  // namespace kevin
