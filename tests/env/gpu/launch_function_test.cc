// What a launch function may contain, and the list it resolves to.

#include <algorithm>
#include <cmath>

#include "tests/env/gpu/launch_fixture.h"

namespace kevin {
namespace {

using namespace launch_testing;

CATCH_TRANSLATE_EXCEPTION(const LaunchException& exception) { return exception.error().message; }

constexpr const char* kRelu = R"(// A kernel.
#include <cuda_runtime.h>
__global__ void relu(const float* x, float* out, long n) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i < n) out[i] = x[i] > 0 ? x[i] : 0;
}

void launch(const float* x, float* out) {
  const long n = B * N;                       // the problem's shape symbols
  relu<<<ceil_div(n, 4 * 256), 256>>>(x, out, n);
}
)";

std::string Kernel(const std::string& body, const std::string& top = "") {
  return OnlyLaunch(Interpret(Text(body, top))).kernel;
}

TEST_CASE("a launch function resolves to a list of launches") {
  const InterpretedLaunch interpreted = Interpret(kRelu);
  const KernelLaunch launch = OnlyLaunch(interpreted);
  CHECK(launch.kernel == "relu");
  CHECK(launch.grid == Dim3{63, 1, 1});
  CHECK(launch.block == Dim3{256, 1, 1});
  CHECK(launch.shared_bytes == 0);
  CHECK(!launch.cluster.has_value());
  CHECK(launch.line == 10);
  CHECK(launch.arguments ==
        std::vector<LaunchArgument>{BufferAddress{0, 0}, BufferAddress{1, 0}, int64_t{64000}});
  CHECK(interpreted.kernels == std::set<std::string>{"relu"});
  CHECK(interpreted.split.notes.empty());
}

TEST_CASE("the device text keeps its lines and loses launch") {
  const std::string text = kRelu;
  const SplitCandidate split = Interpret(text).split;
  CHECK(split.device_text.size() == text.size());
  CHECK(split.device_text.find("relu(const float* x") == text.find("relu(const float* x"));
  CHECK(!Contains(split.device_text, "launch"));
  CHECK(!Contains(split.device_text, "<<<"));
  CHECK(Contains(split.host_text, "relu<<<ceil_div(n, 4 * 256), 256>>>(x, out, n);"));
  CHECK(!Contains(split.host_text, "__global__"));
  CHECK(std::count(split.device_text.begin(), split.device_text.end(), '\n') == 11);
  CHECK(std::count(split.host_text.begin(), split.host_text.end(), '\n') == 11);
}

TEST_CASE("helpers that start kernels leave the device text, others stay") {
  const std::string top =
      "constexpr long blocks(long n) { return (n + 255) / 256; }\n"
      "static long sized(long n) { return ceil_div(n, 2); }\n"
      "int unused(int a) { return std::vector<int>(a).size(); }\n"
      "__host__ __device__ inline int both(int a) { return a + 1; }\n"
      "void run(const float* x, float* out);\n"
      "void run(const float* x, float* out) { k<<<blocks(sized(512)), both(255)>>>(x, out, 1); }\n";
  const InterpretedLaunch interpreted = Interpret(Text("run(x, out);", top));
  CHECK(OnlyLaunch(interpreted).grid == Dim3{1, 1, 1});
  CHECK(OnlyLaunch(interpreted).block == Dim3{256, 1, 1});
  const std::string& device = interpreted.split.device_text;
  CHECK(Contains(device, "blocks(long n)"));
  CHECK(!Contains(device, "sized"));
  CHECK(Contains(device, "int unused(int a)"));
  CHECK(Contains(device, "both(int a)"));
  CHECK(!Contains(device, "run("));
}

TEST_CASE("a main that calls launch goes with it") {
  const std::string after =
      "int main() { launch(nullptr, nullptr); return both(1); }\nint both(int a) { return a; }\n";
  const std::string device = Interpret(kRelu + after).split.device_text;
  CHECK(!Contains(device, "main"));
  CHECK(Contains(device, "int both(int a)"));
}

TEST_CASE("launch may be spelled as models spell it") {
  const std::string kernel = "__global__ void k(const float* x, float* out) {}\n";
  const std::string body = " { k<<<1, 32>>>(x, out); }";
  const auto notes = [&](const std::string& before, const std::string& after = "",
                         const std::string& parameters = "const float* x, float* out") {
    const InterpretedLaunch interpreted =
        Interpret(kernel + before + "launch(" + parameters + ")" + body + after);
    CHECK(OnlyLaunch(interpreted).kernel == "k");
    CHECK(!Contains(interpreted.split.device_text, "launch"));
    return interpreted.split.notes;
  };
  const std::vector<std::string> none;
  CHECK(notes("void ") == none);
  CHECK(notes("") == none);
  CHECK(notes("static void ") == none);
  CHECK(notes("inline void ") == none);
  CHECK(notes("__host__ void ") == none);
  CHECK(notes("extern \"C\" {\nvoid ", "\n}") == none);
  CHECK(notes("extern \"C\" void ") == std::vector<std::string>{"line 2: `extern \"C\"` is not needed"});
  CHECK(notes("void ", "", "const float* x, float* out, cudaStream_t stream") ==
        std::vector<std::string>{"line 2: launch needs no stream: all work runs in one"});
  CHECK(notes("void ", "", "float* x, float* out") == none);
  CHECK(notes("void ", "", "const float* __restrict__ x, float *__restrict__ out") == none);
  CHECK(notes("void ", "", "float const * const x, float * const out") == none);
}

TEST_CASE("a signature fits the problem's element types") {
  struct Row {
    DType dtype;
    std::vector<const char*> accepted;
  };
  for (const Row& row :
       {Row{DType::kF16, {"__half", "half"}}, Row{DType::kBF16, {"__nv_bfloat16", "nv_bfloat16"}},
        Row{DType::kI64, {"long", "long long", "int64_t", "long int", "std::int64_t"}},
        Row{DType::kI32, {"int", "int32_t", "signed"}}, Row{DType::kBool, {"bool", "uint8_t"}}}) {
    const Problem problem = SmallProblem(row.dtype);
    const SizedProblem sized = AtSize(problem, "small");
    for (const std::string type : row.accepted) {
      const std::string text = "__global__ void k(const " + type + "* x, float* out) {}\nvoid launch(const " +
                               type + "* x, float* out) { k<<<1, 1>>>(x, out); }";
      CHECK_NOTHROW(InterpretLaunch(sized, "cuda", text));
    }
    CHECK_THROWS_AS(InterpretLaunch(sized, "cuda", kRelu), LaunchException);
  }
  CHECK(LaunchSignature(SmallProblem(DType::kF16, DType::kBF16), "cuda") ==
        "void launch(const __half* x, __nv_bfloat16* out)");
}

TEST_CASE("integers follow C++") {
  CHECK(Whole("7 / 2 * 2 + 7 % 4 - (1 << 3)") == 1);
  CHECK(Whole("-7 / 2") == -3);
  CHECK(Whole("-7 % 4") == -3);
  CHECK(Whole("0x10 + 0b11 + 010 + 1'000") == 1027);
  CHECK(Whole("'a' + 1") == 98);
  CHECK(Whole("~5 & 0xff") == 250);
  CHECK(Whole("6 | 1 ^ 3") == 6);
  CHECK(Whole("-8 >> 1") == -4);
  CHECK(Whole("1u - 2u") == 4294967295);
  CHECK(Whole("(unsigned char)300") == 44);
  CHECK(Whole("(unsigned)-1") == 4294967295);
  CHECK(Whole("2147483647 + 1L") == 2147483648);
  CHECK(Whole("2147483648 - 1") == 2147483647);
  CHECK(Whole("int64_t(1) << 40") == int64_t{1} << 40);
  CHECK(Whole("(long)3.99") == 3);
  CHECK(Whole("static_cast<int>(true) + sizeof(float4) + sizeof(double*)") == 25);
  CHECK(Whole("B * N") == 64000);
  CHECK(Whole("B > 10 ? 1 : 2") == 1);
  CHECK(Whole("(1, 2)") == 2);
  CHECK(Whole("5000000000u * 5000000000u") == 6553255926290448384);
  CHECK(Truth("-1 > 0u"));
  CHECK(Truth("-1L < 1u"));
  CHECK(Truth("1 < 2 && !(3 <= 2) || false"));
  CHECK(Truth("B == 64 and N != 64"));
  CHECK(Truth("false && 1 / 0") == false);
  CHECK(Truth("bool(7)"));
}

TEST_CASE("floating numbers keep their precision") {
  CHECK(Floating("0.1f") == static_cast<double>(0.1f));
  CHECK(Floating("0.1") == 0.1);
  CHECK(Floating("1.0f / N") == static_cast<double>(1.0f / 1000.0f));
  CHECK(Floating("1 / 3.0") == 1 / 3.0);
  CHECK(Floating("float(0.1)") == static_cast<double>(0.1f));
  CHECK(Floating("1e-5f") == static_cast<double>(1e-5f));
  CHECK(Floating("-INFINITY") == -HUGE_VAL);
  CHECK(Floating("-FLT_MAX") == -3.4028234663852886e38);
  CHECK(Floating("std::numeric_limits<float>::infinity()") == HUGE_VAL);
  CHECK(Floating("std::numeric_limits<float>::lowest()") == -3.4028234663852886e38);
  CHECK(Floating("1.0f / sqrtf(64.0f)") == 0.125);
  CHECK(Floating("std::pow(2.0, 10)") == 1024);
  CHECK(Floating("x ? rsqrtf(16.0f) : 0.0f") == 0.25);
  CHECK(Floating("__float2half(0.5f)") == 0.5);
}

TEST_CASE("helpers that need no definition") {
  CHECK(Whole("ceil_div(N, 256)") == 4);
  CHECK(Whole("ceil_div(512, 256)") == 2);
  CHECK(Whole("cdiv(1, 256) + div_up(257, 256)") == 3);
  CHECK(Whole("round_up(N, 256)") == 1024);
  CHECK(Whole("next_power_of_2(N)") == 1024);
  CHECK(Whole("next_power_of_2(1024)") == 1024);
  CHECK(Whole("min(3, N) + max(1, 2)") == 5);
  CHECK(Whole("std::min<long>(3, N) + std::max<long>(1, 2)") == 5);
  CHECK(Whole("std::min({5, 4, 6})") == 4);
  CHECK(Whole("std::abs(-5) + abs(2)") == 7);
  CHECK(Whole("std::numeric_limits<int>::max()") == INT32_MAX);
  CHECK(Whole("INT_MAX") == INT32_MAX);
  CHECK(Floating("max(1, 2.5)") == 2.5);
}

TEST_CASE("statements run as in C++") {
  CHECK(
      Whole("s",
            "int s = 0; for (int i = 0; i < 10; ++i) { if (i == 3) continue; if (i == 6) break; s += i; }") ==
      12);
  CHECK(Whole("s", "int s = 1; while (s < 100) s *= 2;") == 128);
  CHECK(Whole("s", "int s = 0; do s++; while (s < 0);") == 1);
  CHECK(Whole("s", "int s = 5; s -= 2; s <<= 3; s |= 1; s ^= 8; s %= 13; s >>= 1; s /= 1; s &= 7;") == 2);
  CHECK(Whole("i++ + ++i", "int i = 1;") == 4);
  CHECK(Whole("i-- - --i", "int i = 1;") == 2);
  CHECK(Whole("s",
              "int s = 0; switch (B) { case 1: s = 1; break; case 64: s = 2; case 3: s += 3; break; default: "
              "s = 9; }") == 5);
  CHECK(Whole("s", "int s = 0; switch (7) { case 1: s = 1; break; default: s = 9; }") == 9);
  CHECK(Whole("s", "int s; if constexpr (B > 64) s = 1; else if (N > 999) { s = 2; } else s = 3;") == 2);
  CHECK(Whole("s", "int s = 0; if (int q = 4; q > 3) s = q;") == 4);
  CHECK(Whole("a + b", "const int a = 1, b{2};") == 3);
  CHECK(Whole("a[1] + a[3]", "int a[4] = {1, 2}; a[3] = 5;") == 7);
  CHECK(Whole("sizeof(a) / sizeof(a[0])", "const long a[] = {1, 2, 3};") == 3);
  CHECK(
      Whole("s",
            "int s = 0; for (int v : {1, 2, 3}) s += v; const int a[2] = {4, 5}; for (auto v : a) s += v;") ==
      15);
  CHECK(Whole("f(3)", "auto f = [&](long a) { return a * N; };") == 3000);
  CHECK(Whole("f()", "int c = 1; auto f = [=]() { return c; }; c = 2;") == 1);
  CHECK(Whole("f()", "int c = 1; auto f = [&] { return c; }; c = 2;") == 2);
  CHECK(Whole("c", "int a = 1; int& c = a; a = 7;") == 7);
  CHECK(Whole("T(3)", "using T = long;") == 3);
  CHECK(Whole("g.x * 100 + g.y * 10 + g.z", "dim3 g(2); g.y = 3;") == 231);
  CHECK(Whole("s", "int s = 1; { int s = 2; } for (;;) { break; }") == 1);
}

TEST_CASE("a return ends launch") {
  const InterpretedLaunch interpreted =
      Interpret(Text("if (N % 4 == 0) { k<<<1, 1>>>(x, out, 1); return; }\nk<<<2, 1>>>(x, out, 2);"));
  CHECK(OnlyLaunch(interpreted).grid == Dim3{1, 1, 1});
}

TEST_CASE("the text's constants, enums, namespaces and aliases") {
  const std::string top = R"(
constexpr int kTile = 16, kRows = kTile * 2;
const long kTotal = B * N;
static const unsigned kMask = ~0u;
const float kTaps[3] = {1, 2, 4};
enum { kFirst, kSecond = 5, kThird };
enum Color { kRed, kGreen };
enum class Mode : int { kFast = 3, kSlow };
using index_t = long long;
typedef float real;
namespace a { namespace b { constexpr int kDeep = 7; __host__ __device__ constexpr int twice(int v) { return v * kDeep; } } }
namespace c::d { const int kOther = a::b::kDeep + 1; }
namespace { constexpr int kHidden = 3; }
__device__ constexpr int kShared = 9;
struct Unused { int value = undefined_thing(); };
const int kBroken = undefined_thing();
)";
  const auto value = [&](const std::string& expression) { return Whole(expression, "", top); };
  CHECK(value("kTile + kRows") == 48);
  CHECK(value("kTotal") == 64000);
  CHECK(value("kMask") == 4294967295);
  CHECK(value("(int)kTaps[2]") == 4);
  CHECK(value("kFirst + kSecond * 10 + kThird * 100") == 650);
  CHECK(value("Color::kGreen + kGreen") == 2);
  CHECK(value("(int)Mode::kSlow") == 4);
  CHECK(value("a::b::kDeep + c::d::kOther + a::b::twice(2)") == 29);
  CHECK(value("kHidden + ::kTile + kShared") == 28);
  CHECK(value("sizeof(index_t) + (index_t)sizeof(real)") == 12);
  CHECK(Contains(Complaint(Text("any<<<1, 1>>>(x, out, kBroken);", top)),
                 "`undefined_thing` is not known in launch"));
}

TEST_CASE("macros expand and conditionals choose") {
  const std::string top = R"(
const int rec = 5;
#define rec rec + 1
#define TILE 16
#define AREA (TILE * TILE)
#define CEIL(a, b) (((a) + (b) - 1) / (b))
#define NESTED(n) CEIL(n, TILE)
#define EMPTY
#define SELF SELF_VALUE + 0
#define SELF_VALUE 3
#define ALIAS NESTED
#define SUM(first, ...) add(first, __VA_ARGS__)
#define LONG_ONE \
  (1 + \
   2)
#define CUDA_CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "CUDA error %s at %s:%d\n", cudaGetErrorString(err), __FILE__, __LINE__); exit(1); } } while (0)
constexpr int add(int a, int b) { return a + b; }
#if defined(TILE) && TILE >= 16 && !defined(MISSING) && B == 64 && UNKNOWN == 0 && (1 << 3) == 8
#define BRANCH 1
#elif 1 / 0
#define BRANCH 2
#else
#define BRANCH 3
#endif
#ifndef TILE
#error no tile
#elif TILE == 16
#define OTHER 5
#endif
#undef EMPTY
#ifdef EMPTY
void launch(int) {}
#endif
#define GLUE(a, b) a##b
)";
  const auto value = [&](const std::string& expression) { return Whole(expression, "", top); };
  CHECK(value("AREA") == 256);
  CHECK(value("CEIL(100, 16) + NESTED(CEIL(33, 2))") == 9);
  CHECK(value("SELF") == 3);
  CHECK(value("ALIAS(17)") == 2);
  CHECK(value("SUM(1, 2)") == 3);
  CHECK(value("rec * 2") == 7);
  CHECK(value("LONG_ONE") == 3);
  CHECK(value("BRANCH * 10 + OTHER") == 15);
  CHECK(value("__LINE__") > 30);
  CHECK(
      Interpret(Text("any<<<1, 1>>>(x, out); CUDA_CHECK(cudaGetLastError());", top)).list.operations.size() ==
      1);
  CHECK(Contains(Complaint(Text("any<<<1, 1>>>(x, GLUE(o, ut));", top)), "the macro `GLUE` uses ##"));
  CHECK(Contains(Complaint(Text("any<<<CEIL(1), 1>>>(x, out);", top)),
                 "the macro `CEIL` takes 2 arguments, not 1"));
}

TEST_CASE("the lexer is not fooled by comments, strings and directives") {
  const std::string top = R"---(
// void launch() {
/* void launch() { */
const char* a = "void launch() { \" {";
const char* b = R"x(void launch() { )" )x";
const char c = '{', d = '\'', e = '"';
#define OPEN {
#define TEXT "}"
__device__ int f() { return 1'000'000; } \
// still a comment \
void launch() {
#if 0
void launch(it's) {
#endif
)---";
  CHECK(Kernel("k<<<1, 1>>>(x, out, 1); /* } */ // }", top) == "k");
}

}  // namespace
}  // namespace kevin
