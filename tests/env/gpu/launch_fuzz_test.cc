// Broken texts give complaints, never anything else. The mutations are the same every time.

#include <random>

#include "env/error.h"
#include "tests/env/gpu/launch_fixture.h"

namespace kevin {
namespace {

using namespace launch_testing;

const char* const kCuda = R"---(#include <cuda_fp16.h>
#define TILE 16
#define CEIL(a, b) (((a) + (b) - 1) / (b))
#if defined(TILE) && TILE > 8
namespace ns { constexpr int kRows = 4; enum class Mode { kA = 1, kB }; }
#else
#error "x"
#endif
__constant__ float taps[4];
template <typename T, int V = 4> __global__ void __launch_bounds__(256) k(const T* __restrict__ x, T* out, long n) {
  if (n < 3) { out[0] = x[0]; } // it's
}
__global__ void plain(const float* x, float* out) { /* } */ }
__host__ __device__ constexpr long square(long a) { return a * a; }
template <int BLOCK, typename T> void run(const T* x, T* out, long n = 7) {
  auto kernel = k<T, BLOCK / 64>;
  kernel<<<CEIL(n, BLOCK), BLOCK, 2 * sizeof(T), cluster(1)>>>(x, out, n);
}
extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  const long n = B * N, m = square(4);
  float* scratch = workspace<float>(ns::kRows * n, zeroed);
  int sizes[3] = {1, 2, 3};
  dim3 grid(TILE, 2), block = {32, 4};
  const char* text = R"x({"(})x";
  for (int i = 0; i < 3; ++i) {
    switch (sizes[i] % 2) { case 0: grid.x += i; break; default: grid.y = max(1, (int)grid.y - i); }
    if (i == 1) continue; else while (false) { }
  }
  auto twice = [&](long a) { return a << 1; };
  cudaMemsetAsync(out, 0, n * sizeof(float), stream);
  constant(taps, {1.0f, 2.5f, -0x1p3, 'a'});
  void* args[] = {(void*)&x, &out};
  cudaLaunchCooperativeKernel((void*)plain, grid, block, args, 0, stream);
  cudaLaunchConfig_t config = {.gridDim = grid, .blockDim = block};
  cudaLaunchAttribute attrs[1]; attrs[0].id = cudaLaunchAttributeClusterDimension; config.attrs = attrs;
  cudaLaunchKernelEx(&config, plain, x, reinterpret_cast<float*>(scratch + 4));
  run<256>(x, out, twice(n));
})---";

const char* const kPtxText =
    "//\n.version 8.0\n.target sm_90a\n.address_size 64\n#define T 4\nconstexpr int kB = 64 * T;\n"
    "long blocks(long n) { return (n + kB - 1) / kB; }\n"
    "void launch(const float* x, float* out) { relu<<<blocks(B * N), kB>>>(x, out); }\n"
    ".visible .entry relu(.param .u64 x) {\n  .reg .f32 %f<4>;\n$L1:\n  ret;\n}\n";

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string Mutate(std::string text) {
    for (size_t count = 1 + Below(4); count > 0; --count) Once(&text);
    return text;
  }

 private:
  size_t Below(size_t limit) { return static_cast<size_t>(random_()) % limit; }

  void Once(std::string* text) {
    static const std::vector<std::string> kPieces = {"(",
                                                     ")",
                                                     "{",
                                                     "}",
                                                     "<",
                                                     ">",
                                                     "<<<",
                                                     ">>>",
                                                     "\"",
                                                     "'",
                                                     "/*",
                                                     "*/",
                                                     "//",
                                                     "\\\n",
                                                     "#",
                                                     "\n#if 1\n",
                                                     "\n#endif\n",
                                                     "\n#define x x x\n",
                                                     "R\"(",
                                                     ";",
                                                     ",",
                                                     "::",
                                                     "0",
                                                     "-1",
                                                     "9223372036854775807",
                                                     "1e999",
                                                     "\xff",
                                                     "%",
                                                     "&",
                                                     "*",
                                                     "template <",
                                                     "namespace {",
                                                     "launch",
                                                     "launch(",
                                                     "for (;;) ",
                                                     "[&]",
                                                     "&x",
                                                     "x[",
                                                     ".x",
                                                     "->",
                                                     "?",
                                                     ":",
                                                     "dim3 ",
                                                     "sizeof(",
                                                     "(float*)",
                                                     "reinterpret_cast<int*>(",
                                                     "workspace<float>(",
                                                     "return ",
                                                     "int ",
                                                     "case 1:",
                                                     "operator()"};
    if (text->empty()) *text = " ";
    const size_t at = Below(text->size()), length = 1 + Below(12);
    switch (Below(6)) {
      case 0:
        text->erase(at, length);
        break;
      case 1:
        text->insert(at, kPieces[Below(kPieces.size())]);
        break;
      case 2:
        (*text)[at] = static_cast<char>(Below(256));
        break;
      case 3:
        text->insert(Below(text->size()), text->substr(at, length * 4));
        break;
      case 4:
        text->replace(at, length, kPieces[Below(kPieces.size())]);
        break;
      default:
        if (Below(8) == 0) text->resize(at);
        std::swap((*text)[Below(std::max<size_t>(text->size(), 1))], (*text)[0]);
    }
  }

  std::mt19937 random_;
};

TEST_CASE("broken texts only ever give a LaunchException") {
  const std::string valid = kCuda;
  CHECK(Complaint(valid) == "");
  CHECK(Complaint(kPtxText, "ptx") == "");
  LaunchFunctionLimits limits;
  limits.steps = 20'000;
  int complaints = 0, wanted = 0;
  const auto attempt = [&](const std::string& text, const std::string& kind) {
    ++wanted;
    const std::string complaint = Complaint(text, kind, limits);
    if (complaint.empty()) return;
    ++complaints;
    const bool shaped =
        complaint.rfind("line ", 0) == 0 && Contains(complaint, ", column ") && Contains(complaint, "\n");
    if (!shaped) FAIL_CHECK(complaint);
  };
  for (size_t length = 0; length < valid.size(); ++length) attempt(valid.substr(0, length), "cuda");
  for (unsigned seed = 0; seed < 4000; ++seed) attempt(Mutator(seed).Mutate(valid), "cuda");
  for (unsigned seed = 0; seed < 1000; ++seed) attempt(Mutator(seed).Mutate(kPtxText), "ptx");
  CHECK(wanted > 6000);
  CHECK(complaints > wanted / 2);
}

}  // namespace
}  // namespace kevin
