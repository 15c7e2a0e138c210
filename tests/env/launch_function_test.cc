// What a launch function may say, and what it comes to.

#include <algorithm>
#include <cmath>

#include "tests/env/launch_fixture.h"

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

TEST_CASE("a launch function comes to a list of launches") {
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
        std::vector<std::string>{"line 2: launch needs no stream: everything runs in one"});
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

TEST_CASE("kernels take template arguments, namespaces and variables") {
  const std::string top =
      "namespace ns { namespace { __global__ void hidden() {} } template <int W> __global__ void k2() {}\n"
      "void run() { k2<4><<<1, 1>>>(); } }\n"
      "template <int BLOCK, typename T, bool V = true> void run(const T* in, T* o) {\n"
      "  t<T, BLOCK * 2, V><<<1, BLOCK>>>(in, o, 1);\n}\n"
      "enum class Op { kSum, kMax };\nstruct Add {};\n"
      "constexpr int kTile = 8;\n#define W 4\n";
  CHECK(Kernel("t<float, 2 * kTile, true><<<1, 1>>>(x, out, 1);", top) == "t<float, 16, true>");
  CHECK(Kernel("t< float ,W, (3>2)><<<1, 1>>>(x, out, 1);", top) == "t<float, 4, true>");
  CHECK(Kernel("any<const float*, float *, unsigned int><<<1, 1>>>(x, out, 1);") ==
        "any<const float*, float*, unsigned int>");
  CHECK(Kernel("any<Op::kMax, Add, -1><<<1, 1>>>(x);", top) == "any<(Op)1, Add, -1>");
  CHECK(Kernel("ns::k2<2><<<1, 1>>>();", top) == "ns::k2<2>");
  CHECK(Kernel("ns::hidden<<<1, 1>>>();", top) == "ns::hidden");
  CHECK(Kernel("ns::run();", top) == "ns::k2<4>");
  CHECK(Kernel("run<64, float>(x, out);", top) == "t<float, 128, true>");
  CHECK(Kernel("run<64>(x, out);", top) == "t<float, 128, true>");
  CHECK(Kernel("run<64, float, false>(x, out);", top) == "t<float, 128, false>");
  CHECK(Kernel("auto kernel = t<float, 1, false>; kernel<<<1, 1>>>(x, out, 1);") == "t<float, 1, false>");
  CHECK(
      Kernel("auto kernel = N % 4 ? t<float, 1, false> : t<float, 4, true>; kernel<<<1, 1>>>(x, out, 1);") ==
      "t<float, 4, true>");
  CHECK(Kernel("void (*kernel)(const float*, float*, long) = &k; kernel<<<1, 1>>>(x, out, 1);") == "k");
  CHECK(Kernel("using T = float; t<T, 1, true><<<1, 1>>>(x, out, 1);") == "t<float, 1, true>");
  CHECK(Kernel("g<<<1, 1>>>(x, 1.0f);", "template <typename T> __global__ void g(const T* a, T b) {}") ==
        "g<float>");
  CHECK(Kernel("g<<<1, 1>>>(x);", "template <typename T, int V = 4> __global__ void g(const T* a) {}") ==
        "g<float>");
  CHECK(Kernel("same(x, out);",
               "template <typename T> void same(const T* a, T* b) { if constexpr (std::is_same_v<T, "
               "float>) k<<<1, 1>>>(a, b, 1); else unknown(); }") == "k");
  CHECK(Kernel("g<<<1, 1>>>();", "template <int V = 4> __global__ void g() {}") == "g<>");
  CHECK(Kernel("for (int i = 0; i < 1; ++i) t<float, 1, true><<<1 << 2, 64 >> 1>>>(x, out, 1);") ==
        "t<float, 1, true>");
  CHECK(Kernel("cutlass::Kernel<Shape<1, 2>><<<1, 1>>>(x);", "#include \"cutlass/gemm.h\"") ==
        "cutlass::Kernel<Shape<1, 2>>");
}

TEST_CASE("launch configurations") {
  const auto launch = [](const std::string& body) { return OnlyLaunch(Interpret(Text(body))); };
  CHECK(launch("dim3 g(2, 3, 4), b{8, 8}; any<<<g, b>>>();").grid == Dim3{2, 3, 4});
  CHECK(launch("dim3 g = {2, 3}; any<<<g, dim3(8, 8)>>>();").block == Dim3{8, 8, 1});
  CHECK(launch("any<<<{2, 3}, dim3{32}>>>();").grid == Dim3{2, 3, 1});
  CHECK(launch("dim3 g; any<<<g, 1>>>();").grid == Dim3{1, 1, 1});
  CHECK(launch("any<<<dim3(N), 32, 3 * 32 * sizeof(float)>>>();").shared_bytes == 384);
  CHECK(launch("any<<<1, 1, 232448>>>();").shared_bytes == 227 * 1024);
  CHECK(launch("any<<<4, 32, 0, cluster(2)>>>();").cluster == Dim3{2, 1, 1});
  CHECK(launch("any<<<dim3(4, 4), 32, 0, cluster(2, 4)>>>();").cluster == Dim3{2, 4, 1});
  CHECK(launch("any<<<dim3(4, 4), 32, cluster(dim3(2, 2))>>>();").cluster == Dim3{2, 2, 1});
  CHECK(launch("any<<<4, 32, 0, cooperative()>>>();").cooperative);
  CHECK(!launch("any<<<4, 32>>>();").cooperative);
  CHECK(launch("any<<<2147483647, 1024>>>();").grid == Dim3{2147483647, 1, 1});
  CHECK(launch("any<<<dim3(1, 65535, 65535), dim3(4, 4, 64)>>>();").block == Dim3{4, 4, 64});
  const InterpretedLaunch stream = Interpret(Text("any<<<1, 1, 0, 0>>>();\nany<<<1, 1, 0, nullptr>>>();"));
  CHECK(stream.split.notes ==
        std::vector<std::string>{"line 6: the stream is ignored: everything runs in one",
                                 "line 7: the stream is ignored: everything runs in one"});
}

TEST_CASE("programmatic launches need one before them") {
  const InterpretedLaunch interpreted =
      Interpret(Text("any<<<1, 1, 0, programmatic()>>>();\nany<<<2, 1, 0, cluster(2), programmatic()>>>();"));
  CHECK(!std::get<KernelLaunch>(interpreted.list.operations[0]).programmatic);
  CHECK(std::get<KernelLaunch>(interpreted.list.operations[1]).programmatic);
  CHECK(std::get<KernelLaunch>(interpreted.list.operations[1]).cluster == Dim3{2, 1, 1});
  CHECK(interpreted.split.notes ==
        std::vector<std::string>{"line 6: `programmatic` does nothing on the first launch"});
}

TEST_CASE("CUDA's own launch calls") {
  const std::string attributes =
      "k<<<1, 1>>>(x, out, 0);\n"
      "cudaLaunchConfig_t config = {0}; config.gridDim = dim3(4); config.blockDim = 128;\n"
      "config.dynamicSmemBytes = 64; config.stream = 0; cudaLaunchAttribute attrs[2];\n"
      "attrs[0].id = cudaLaunchAttributeClusterDimension; attrs[0].val.clusterDim.x = 2;\n"
      "attrs[0].val.clusterDim.y = 1; attrs[0].val.clusterDim.z = 1;\n"
      "attrs[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;\n"
      "attrs[1].val.programmaticStreamSerializationAllowed = 1;\n"
      "config.attrs = attrs; config.numAttrs = 2;\n"
      "cudaLaunchKernelEx(&config, t<float, 1, true>, x, out, 5L);";
  const auto list = Interpret(Text(attributes)).list;
  REQUIRE(list.operations.size() == 2);
  const auto& launch = std::get<KernelLaunch>(list.operations[1]);
  CHECK(launch.kernel == "t<float, 1, true>");
  CHECK(launch.grid == Dim3{4, 1, 1});
  CHECK(launch.block == Dim3{128, 1, 1});
  CHECK(launch.shared_bytes == 64);
  CHECK(launch.cluster == Dim3{2, 1, 1});
  CHECK(launch.programmatic);
  CHECK(launch.arguments.size() == 3);
  const KernelLaunch designated = OnlyLaunch(Interpret(
      Text("cudaLaunchConfig_t c = {.gridDim = 3, .blockDim = {4, 2}}; cudaLaunchKernelEx(&c, any, x);")));
  CHECK(designated.grid == Dim3{3, 1, 1});
  CHECK(designated.block == Dim3{4, 2, 1});
  const std::string cooperative =
      "long n = 7; void* args[] = {(void*)&x, &out, &n};\n"
      "cudaLaunchCooperativeKernel((void*)k, dim3(2), dim3(64), args, 16, 0);";
  const KernelLaunch launched = OnlyLaunch(Interpret(Text(cooperative)));
  CHECK(launched.cooperative);
  CHECK(launched.shared_bytes == 16);
  CHECK(launched.arguments ==
        std::vector<LaunchArgument>{BufferAddress{0, 0}, BufferAddress{1, 0}, int64_t{7}});
}

TEST_CASE("workspaces are buffers after the tensors") {
  const InterpretedLaunch interpreted =
      Interpret(Text("float* a = workspace<float>(N);\nauto b = workspace<float4>(2, zeroed);\n"
                     "int* c = zeroed_workspace<int>(1);\n__half* d = workspace<__half>(3);\nany<<<1, "
                     "1>>>(a, b + 1, &c[0], d);"));
  CHECK(interpreted.list.workspaces ==
        std::vector<Workspace>{{4000, false}, {32, true}, {4, true}, {6, false}});
  REQUIRE(interpreted.list.operations.size() == 3);
  CHECK(std::get<MemorySet>(interpreted.list.operations[0]) == MemorySet{{3, 0}, 0, 32});
  CHECK(std::get<MemorySet>(interpreted.list.operations[1]) == MemorySet{{4, 0}, 0, 4});
  CHECK(std::get<KernelLaunch>(interpreted.list.operations[2]).arguments ==
        std::vector<LaunchArgument>{BufferAddress{2, 0}, BufferAddress{3, 16}, BufferAddress{4, 0},
                                    BufferAddress{5, 0}});
}

TEST_CASE("addresses are computed in elements") {
  const auto address = [](const std::string& expression, const std::string& statements = "") {
    return std::get<BufferAddress>(Computed(expression, statements));
  };
  CHECK(address("x + N") == BufferAddress{0, 4000});
  CHECK(address("&x[8]") == BufferAddress{0, 32});
  CHECK(address("out + 8 - 4") == BufferAddress{1, 16});
  CHECK(address("reinterpret_cast<const float4*>(x) + 2") == BufferAddress{0, 32});
  CHECK(address("(double*)(x + 2) + 1") == BufferAddress{0, 16});
  CHECK(address("x + B * N") == BufferAddress{0, 256000});
  CHECK(address("p", "const float* p = x; p += 4; p++; --p;") == BufferAddress{0, 16});
  CHECK(address("p", "void* p = out;") == BufferAddress{1, 0});
  CHECK(Computed("nullptr") == LaunchArgument(NullPointer{}));
  CHECK(Computed("(const float*)nullptr") == LaunchArgument(NullPointer{}));
  CHECK(Whole("(x + 8) - x") == 8);
  CHECK(Truth("x != nullptr"));
  CHECK(Truth("x + 1 > x"));
  CHECK(std::get<bool>(Computed("x == out")) == false);
}

TEST_CASE("memory is set and copied within the device") {
  const auto list =
      Interpret(Text("cudaMemsetAsync(out, 0, B * N * sizeof(float), 0);\ncudaMemset(out + 1, 0xff, 4);\n"
                     "cudaMemcpyAsync(out, x, 8, cudaMemcpyDeviceToDevice);\nany<<<1, 1>>>();"))
          .list;
  REQUIRE(list.operations.size() == 4);
  CHECK(std::get<MemorySet>(list.operations[0]) == MemorySet{{1, 0}, 0, 256000});
  CHECK(std::get<MemorySet>(list.operations[1]) == MemorySet{{1, 4}, 255, 4});
  CHECK(std::get<MemoryCopy>(list.operations[2]) == MemoryCopy{{1, 0}, {0, 0}, 8});
}

TEST_CASE("habits that do no harm leave a note") {
  const InterpretedLaunch interpreted = Interpret(Text(
      "cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16);\n"
      "cudaFuncSetCacheConfig(k, cudaFuncCachePreferL1);\ncudaGetLastError();\ncudaDeviceSynchronize();\n"
      "cudaStreamSynchronize(0);\nassert(N == 1000);\nstatic_assert(4 == 4, \"x\");\nk<<<1, 1>>>(x, out, "
      "1);"));
  CHECK(interpreted.split.notes ==
        std::vector<std::string>{
            "line 6: `cudaFuncSetAttribute` is not needed", "line 7: `cudaFuncSetCacheConfig` is not needed",
            "line 8: `cudaGetLastError` is not needed", "line 9: `cudaDeviceSynchronize` is not needed",
            "line 10: `cudaStreamSynchronize` is not needed"});
}

TEST_CASE("__constant__ variables get values") {
  const std::string top = "__constant__ float taps[4];\nnamespace ns { __constant__ int offset; }";
  const auto constants = [&](const std::string& body) {
    return Interpret(Text(body + " any<<<1, 1>>>();", top)).list.constants;
  };
  const std::vector<uint8_t> one_two = {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40};
  CHECK(constants("constant(taps, {1, 2.0});") == std::vector<ConstantValue>{{"taps", 0, one_two}});
  CHECK(constants("const float h[2] = {1, 2}; cudaMemcpyToSymbol(taps, h, sizeof(h));") ==
        std::vector<ConstantValue>{{"taps", 0, one_two}});
  CHECK(constants("const float h[2] = {1, 2}; cudaMemcpyToSymbolAsync(taps, h, 4, 8);") ==
        std::vector<ConstantValue>{{"taps", 8, {0, 0, 0x80, 0x3f}}});
  CHECK(constants("constant(ns::offset, -2);") ==
        std::vector<ConstantValue>{{"ns::offset", 0, {0xfe, 0xff, 0xff, 0xff}}});
  CHECK(constants("int v = 258; cudaMemcpyToSymbol(ns::offset, &v, sizeof(int));") ==
        std::vector<ConstantValue>{{"ns::offset", 0, {2, 1, 0, 0}}});
}

TEST_CASE("tensor maps") {
  const LaunchArgument argument = Computed("m",
                                           "CUtensorMap m = tensor_map<float>(x, {N, B}, {N * 4}, {32, 8}, "
                                           "128, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);");
  TensorMap map;
  map.dtype = "float32";
  map.base = {0, 0};
  map.sizes = {1000, 64};
  map.stride_bytes = {4000};
  map.box = {32, 8};
  map.element_strides = {1, 1};
  map.swizzle = 3;
  map.l2_promotion = 2;
  CHECK(argument == LaunchArgument(map));
}

constexpr const char* kPtx = R"(//
.version 8.0
.target sm_90a
.address_size 64
#define TILE 4
constexpr int kBlock = 64 * TILE;
long blocks(long n) { return (n + kBlock - 1) / kBlock; }
void launch(const float* x, float* out) {
  relu<<<blocks(B * N), kBlock>>>(x, out, B * N);
}
.visible .entry relu(.param .u64 x, .param .u64 out, .param .u64 n)
{
  .reg .f32 %f<4>;
  @%p1 bra $L1;
$L1:
  ret;
}
)";

TEST_CASE("PTX holds a launch function too") {
  const InterpretedLaunch interpreted = Interpret(kPtx, "ptx");
  const KernelLaunch launch = OnlyLaunch(interpreted);
  CHECK(launch.kernel == "relu");
  CHECK(launch.grid == Dim3{250, 1, 1});
  CHECK(launch.line == 9);
  const std::string& device = interpreted.split.device_text;
  CHECK(device.find(".visible .entry") == std::string(kPtx).find(".visible .entry"));
  for (const char* host : {"launch", "kBlock", "TILE", "blocks", "void"}) CHECK(!Contains(device, host));
  CHECK(Contains(device, ".address_size 64"));
  const std::string at_end =
      ".version 8.0\n.target sm_90a\n.entry relu() { ret; }\nlaunch(const float* x, float* out) { "
      "relu<<<1, 1>>>(); }\n";
  CHECK(OnlyLaunch(Interpret(at_end, "ptx")).kernel == "relu");
  CHECK(Contains(
      Complaint(".entry relu() { ret; }\nvoid launch(float* x, float* out) { relu<4><<<1, 1>>>(); }", "ptx"),
      "line 2, column 37: kernels in PTX have no template arguments"));
  CHECK(Contains(
      Complaint(".entry relu() { ret; }\nvoid launch(float* x, float* out) { gelu<<<1, 1>>>(); }", "ptx"),
      "the text has the kernel `relu`"));
}

}  // namespace
}  // namespace kevin
