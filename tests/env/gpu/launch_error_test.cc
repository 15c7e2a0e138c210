// What a launch function may not say, where the message points, and what it advises.

#include "env/error.h"
#include "tests/env/gpu/launch_fixture.h"

namespace kevin {
namespace {

using namespace launch_testing;

struct Row {
  const char* body;   // line 6 of the text
  const char* start;  // of the message
  const char* part;   // in the message
};

void CheckAll(const std::vector<Row>& rows, const std::string& top = "") {
  for (const Row& row : rows) {
    const std::string complaint = Complaint(Text(row.body, top));
    INFO(row.body);
    INFO(complaint);
    CHECK(complaint.rfind(row.start, 0) == 0);
    CHECK(Contains(complaint, row.part));
  }
}

TEST_CASE("a complaint shows its line and a caret") {
  const std::string text =
      "__global__ void k() {}\nvoid launch(const float* x, float* out) {\n\tk<<<0, 1>>>();\n}\n";
  CHECK(Complaint(text) == "line 3, column 2: grid.x is 0; write at least 1\n\tk<<<0, 1>>>();\n\t^");
  try {
    Interpret(text);
    FAIL("no exception");
  } catch (const LaunchException& exception) {
    CHECK(exception.error().line == 3);
    CHECK(exception.error().column == 2);
  }
  const std::string wide = "void launch(const float* x, float* out) { /* \xc3\xa9\xc3\xa9 \x1b[31m */ a; }";
  CHECK(Complaint(wide).ends_with(
      "\nvoid launch(const float* x, float* out) { /* \xc3\xa9\xc3\xa9 \\x1b[31m */ a; }\n" +
      std::string(60, ' ') + "^"));
  const std::string far =
      Complaint("void launch(const float* x, float* out) { " + std::string(5000, ' ') + "a; }");
  CHECK(far.rfind("line 1, column 5043: ", 0) == 0);
  CHECK(far.size() < 600);
  CHECK(Complaint(Text(std::string(5000, 'a') + ";")).size() < 1200);
}

TEST_CASE("launches keep within CUDA's limits") {
  CheckAll(
      {
          {"k<<<0, 1>>>(x, out, 1);", "line 6, column 1: ", "grid.x is 0; write at least 1"},
          {"k<<<dim3(1, 65536), 1>>>(x, out, 1);",
           "line 6, column 1: ", "grid.y is 65536, and CUDA allows 65535"},
          {"k<<<dim3(1, 1, 65536), 1>>>(x, out, 1);", "line 6, column 1: ", "grid.z is 65536"},
          {"k<<<2147483648, 1>>>(x, out, 1);",
           "line 6, column 1: ", "grid.x is 2147483648, and CUDA allows 2147483647"},
          {"k<<<-1, 1>>>(x, out, 1);", "line 6, column 1: ", "grid.x is -1"},
          {"k<<<1, 0>>>(x, out, 1);", "line 6, column 1: ", "block.x is 0"},
          {"k<<<1, 1025>>>(x, out, 1);", "line 6, column 1: ", "block.x is 1025, and CUDA allows 1024"},
          {"k<<<1, dim3(1, 1, 65)>>>(x, out, 1);", "line 6, column 1: ", "block.z is 65, and CUDA allows 64"},
          {"k<<<1, dim3(32, 33)>>>(x, out, 1);",
           "line 6, column 1: ", "a block of 1056 threads, and CUDA allows 1024"},
          {"k<<<1, 1, 232449>>>(x, out, 1);", "line 6, column 1: ", "232449 bytes of dynamic shared memory"},
          {"k<<<1, 1, -1>>>(x, out, 1);", "line 6, column 1: ", "-1 bytes of dynamic shared memory"},
          {"k<<<16, 1, 0, cluster(16)>>>(x, out, 1);", "line 6, column 1: ", "cluster.x is 16"},
          {"k<<<dim3(4, 4), 1, 0, cluster(4, 4)>>>(x, out, 1);",
           "line 6, column 1: ", "a cluster of 16 blocks"},
          {"k<<<5, 1, 0, cluster(2)>>>(x, out, 1);",
           "line 6, column 1: ", "is not a multiple of the cluster (2, 1, 1); round"},
          {"k<<<1>>>(x, out, 1);", "line 6, column 2: ", "write <<<grid, block>>>"},
          {"k<<<1, 1, 0, 7>>>(x, out, 1);", "line 6, column 14: ", "this is not a launch option"},
          {"k<<<x, 1>>>(x, out, 1);", "line 6, column 5: ", "the grid is a float*"},
          {"k<<<1, 1>>>(x, out);", "line 6, column 1: ", "kernel `k` takes 3 arguments and gets 2"},
          {"k<<<1, 1>>>(x, 5, 1);",
           "line 6, column 16: ", "argument 2 of `k` is the number 5, and the kernel takes float*"},
          {"k<<<1, 1>>>(x, out, out);",
           "line 6, column 21: ", "argument 3 of `k` is a float*, and the kernel takes long"},
          {"k<<<1, 1>>>(x, (int*)out, 1);", "line 6, column 16: ", "write reinterpret_cast<float*>(...)"},
          {"k<<<1, 1>>>(x, out, dim3(1));", "line 6, column 21: ", "a kernel cannot take a dim3"},
          {"any<<<1, 1>>>(\"text\");", "line 6, column 1: ", "a kernel cannot take a text"},
          {"k(x, out, 1);", "line 6, column 1: ", "`k` is a kernel; write k<<<grid, block>>>(...)"},
          {"kk<<<1, 1>>>(x, out, 1);", "line 6, column 1: ", "the text has the kernels `k`, `t`, `any`"},
          {"k<4><<<1, 1>>>(x, out, 1);", "line 6, column 1: ", "the kernel `k` is not a template"},
          {"t<float, 1, true, 4><<<1, 1>>>(x, out, 1);",
           "line 6, column 1: ", "has 3 template parameters, not 4"},
          {"t<float, 1><<<1, 1>>>(x, out, 1);",
           "line 6, column 1: ", "the template parameter `C` of `t` has no value"},
          {"t<float, 1.5, true><<<1, 1>>>(x, out, 1);",
           "line 6, column 10: ", "write an integer, a bool or a type"},
          {"x<<<1, 1>>>();", "line 6, column 1: ", "a float* is not a kernel"},
          {"d<<<1, 1>>>();", "line 6, column 1: ", "`d` is not __global__"},
          {"long n = 4;", "line 5, column 6: ", "launch starts no kernel"},
      },
      "__device__ void d() {}");
}

TEST_CASE("numbers that do not fit are errors") {
  CheckAll({
      {"int n = 65536 * 65536;",
       "line 6, column 15: ", "`*` overflows int (the result is 4294967296); make one operand long"},
      {"long n = LONG_MAX + 1;", "line 6, column 19: ", "`+` overflows long; compute with smaller numbers"},
      {"int n = -INT_MIN;", "line 6, column 9: ", "`-` overflows int"},
      {"int n = INT_MIN / -1;", "line 6, column 17: ", "`/` overflows int"},
      {"int n = 1 << 31;", "line 6, column 11: ", "`<<` overflows int"},
      {"int n = 1 << 32;", "line 6, column 11: ", "a shift by 32 exceeds the width of int"},
      {"int n = 1 >> -1;", "line 6, column 11: ", "a shift by -1 exceeds the width of int"},
      {"int n = 1 / (B - 64);", "line 6, column 11: ", "`/` divides by zero"},
      {"int n = 1 % 0;", "line 6, column 11: ", "`%` divides by zero"},
      {"int n = 5000000000;", "line 6, column 9: ", "5000000000 does not fit into int; make it long"},
      {"int n = (int)5000000000;", "line 6, column 9: ", "5000000000 does not fit into int"},
      {"int n = 1e10f;", "line 6, column 9: ", "does not fit into int"},
      {"long n = NAN;", "line 6, column 10: ", "nan does not fit into long"},
      {"int n = INT_MAX; n++;", "line 6, column 19: ", "`+` overflows int"},
      {"int n = 1.5 % 2;", "line 6, column 13: ", "`%` needs integers"},
      {"long n = 99999999999999999999;", "line 6, column 10: ", "does not fit into 64 bits"},
      {"long n = 12abc;", "line 6, column 10: ", "`12abc` is not a number"},
      {"dim3 g(1ul - 2ul);", "line 6, column 12: ", "which does not fit into a 64-bit long"},
      {"next_power_of_2(INT_MAX);", "line 6, column 1: ", "2147483648 does not fit into int"},
      {"const int n = 1; n = 2;", "line 6, column 20: ", "this variable is const"},
      {"const int n;", "line 6, column 11: ", "`n` is const and has no value"},
      {"int n; int m = n + 1;",
       "line 6, column 16: ", "this has no value yet; write one where it is declared"},
      {"int a[2]; int m = a[1] + 1;", "line 6, column 20: ", "this has no value yet"},
      {"int a[2]; min(a);", "line 6, column 11: ", "this has no value yet"},
      {"int m; m += 1;", "line 6, column 8: ", "this has no value yet"},
      {"B = 3;", "line 6, column 3: ", "this variable is const"},
      {"int a[2]; a[2] = 1;", "line 6, column 12: ", "the index 2 is outside the array of 2 elements"},
      {"int a[70000];", "line 6, column 5: ", "an array of 70000 elements"},
      {"int a[1] = {1, 2};", "line 6, column 5: ", "an array of 1 elements with 2 values"},
      {"int a[2][2];", "line 6, column 9: ", "arrays have one dimension here"},
  });
}

TEST_CASE("memory lives on the device") {
  CheckAll({
      {"float v = x[0];", "line 6, column 12: ", "tensors are in device memory"},
      {"out[0] = 1;", "line 6, column 4: ", "tensors are in device memory"},
      {"*out = 1;", "line 6, column 1: ", "tensors are in device memory"},
      {"float v = *x;", "line 6, column 11: ", "tensors are in device memory"},
      {"any<<<1, 1>>>(x + B * N + 1);", "line 6, column 25: ", "byte 256004 is outside `x` (256000 bytes)"},
      {"any<<<1, 1>>>(x - 1);", "line 6, column 17: ", "byte -4 is outside `x`"},
      {"any<<<1, 1>>>(&x[-1]);", "line 6, column 15: ", "byte -4 is outside `x`"},
      {"any<<<1, 1>>>((float4*)(x + 1));",
       "line 6, column 15: ", "is not aligned for float4*; use an offset"},
      {"auto w = workspace<int>(2);\nany<<<1, 1>>>(w + 3);",
       "line 7, column 17: ", "outside the workspace of line 6 (8 bytes)"},
      {"const float* p = nullptr; p + 1;", "line 6, column 29: ", "arithmetic on a null pointer"},
      {"void* p = out; p + 1;", "line 6, column 18: ", "a void* has no element size"},
      {"x - out;", "line 6, column 3: ", "the two pointers lie in different buffers"},
      {"x * 2;", "line 6, column 3: ", "`*` cannot combine a float* and the number 2"},
      {"x + LONG_MAX;", "line 6, column 3: ", "this address is outside its buffer"},
      {"int* p = x;", "line 6, column 10: ", "float* is not int*; write reinterpret_cast<int*>(...)"},
      {"long n = (long)x;", "line 6, column 10: ", "a float* cannot become long"},
      {"workspace<float>(0);", "line 6, column 1: ", "a workspace of 0 elements"},
      {"workspace<float>(-1);", "line 6, column 1: ", "a workspace of -1 elements"},
      {"workspace<float>(5000000000);",
       "line 6, column 1: ", "workspaces of 20000000000 bytes together are more than the 17179869184"},
      {"workspace<float>(LONG_MAX);", "line 6, column 1: ", "bytes together are more"},
      {"workspace<void>(1);", "line 6, column 1: ", "a workspace cannot hold void"},
      {"workspace(4);", "line 6, column 1: ", "write workspace<float>(count)"},
      {"workspace<Foo*>(4);", "line 6, column 11: ", "the type `Foo` is not known in launch"},
      {"cudaMemsetAsync(x, 0, 4);", "line 6, column 17: ", "`x` is an input, and inputs are read-only"},
      {"cudaMemset(out + 1, 0, 256000);",
       "line 6, column 16: ", "256000 bytes from byte 4 on are more than `out`"},
      {"cudaMemset(out, 0, -1);", "line 6, column 12: ", "-1 bytes from byte 0 on"},
      {"cudaMemset(nullptr, 0, 1);", "line 6, column 12: ", "this is a null pointer"},
      {"cudaMemcpy(x, out, 4, cudaMemcpyDeviceToDevice);", "line 6, column 1: ", "inputs are read-only"},
      {"cudaMemcpy(out, x, 4, cudaMemcpyHostToDevice);",
       "line 6, column 23: ", "only copies within the device"},
      {"cudaMemcpy(out, out + 1, 8, cudaMemcpyDeviceToDevice);", "line 6, column 1: ", "overlap"},
  });
}

TEST_CASE("other host code says what to write instead") {
  CheckAll(
      {
          {"float* p; cudaMalloc(&p, 4);",
           "line 6, column 11: ", "`cudaMalloc` is not possible in launch; use workspace<float>(count)"},
          {"cudaFree(out);", "line 6, column 1: ", "use workspace<float>(count)"},
          {"float* p = new float[4];", "line 6, column 12: ", "write workspace<float>(count)"},
          {"float* p = (float*)malloc(4);", "line 6, column 20: ", "use workspace<float>(count)"},
          {"cudaStream_t s; cudaStreamCreate(&s);",
           "line 6, column 17: ", "all work runs in order in one stream"},
          {"cudaEventRecord(0);", "line 6, column 1: ", "all work runs in order in one stream"},
          {"cudaGraphLaunch(0, 0);", "line 6, column 1: ", "all work runs in order in one stream"},
          {"printf(\"%d\", 1);", "line 6, column 1: ", "remove the output"},
          {"std::cout << 1;", "line 6, column 1: ", "remove the output"},
          {"std::vector<int> v(4);", "line 6, column 1: ", "use a local array"},
          {"torch::empty({1});", "line 6, column 1: ", "launch gets plain pointers"},
          {"at::Tensor t;", "line 6, column 1: ", "launch gets plain pointers"},
          {"throw std::runtime_error(\"x\");", "line 6, column 1: ", "launch cannot throw"},
          {"int d; cudaDeviceGetAttribute(&d, 16, 0);",
           "line 6, column 8: ", "for example 132 multiprocessors"},
          {"int i = threadIdx.x;", "line 6, column 9: ", "it exists in kernels only"},
          {"foo(1);", "line 6, column 1: ", "`foo` is not known in launch; define the function in the text"},
          {"int n = foo;", "line 6, column 9: ", "`foo` is not known here"},
          {"Foo f;", "line 6, column 1: ", "the type `Foo` is not known in launch"},
          {"goto end;", "line 6, column 1: ", "`goto` is not possible in launch"},
          {"d();", "line 6, column 1: ", "`d` is device-only; write `__host__ __device__` before it"},
          {"h(1, 2);", "line 6, column 1: ", "`h` takes 1 arguments, not 2"},
          {"o(1);", "line 6, column 1: ", "several overloads"},
          {"f<3>();", "line 6, column 1: ", "the template parameter `T` cannot be deduced"},
          {"assert(N == 7);", "line 6, column 1: ", "this assertion fails"},
          {"ceil_div(1, 2, 3);", "line 6, column 1: ", "`ceil_div` takes 2 arguments, not 3"},
          {"ceil_div(1, 0);", "line 6, column 1: ", "`/` divides by zero"},
          {"int n = \"text\";", "line 6, column 9: ", "a text cannot become int"},
          {"if (dim3(1)) ;", "line 6, column 5: ", "a dim3 is neither true nor false"},
          {"int n = 1; int n = 2;", "line 6, column 16: ", "`n` is declared already"},
          {"3 = 4;", "line 6, column 1: ", "this is not a variable"},
          {"constant(k, {1});", "line 6, column 10: ", "this is not a __constant__ variable"},
          {"constant(taps, {});", "line 6, column 16: ", "0 bytes of constants"},
          {"float a[2] = {1, 2}; cudaMemcpyToSymbol(taps, a, 12);",
           "line 6, column 50: ", "12 bytes of an array of 8"},
          {"cudaMemcpyToSymbol(taps, x, 4);", "line 6, column 26: ", "a float* is not on the host"},
          {"cudaLaunchConfig_t c; c.foo = 1;", "line 6, column 25: ", "has no member `foo`"},
          {"cudaLaunchConfig_t c; c.numAttrs = 1; cudaLaunchKernelEx(&c, k, x, out, 1);",
           "line 6, column 39: ", "numAttrs is 1 and there are 0 attributes"},
          {"cudaLaunchKernelEx(k, k);", "line 6, column 20: ", "this is no launch configuration"},
          {"void* a[] = {x}; cudaLaunchKernel((void*)k, 1, 1, a, 0, 0);",
           "line 6, column 51: ", "write {&x, &out, &n}"},
          {"tensor_map<double>(x, {1}, {}, {1});", "line 6, column 1: ", "a tensor map cannot hold double"},
          {"tensor_map<float>(x, {N, B}, {N * 4}, {30, 8});",
           "line 6, column 1: ", "the box's rows have 120 bytes"},
          {"tensor_map<float>(x, {N, B}, {N * 4}, {512, 8});", "line 6, column 1: ", "box 0 is 512"},
          {"tensor_map<float>(x, {N, B}, {}, {32, 8});", "line 6, column 1: ", "2 dimensions need 1 strides"},
          {"tensor_map<float>(x, {N, B}, {4002}, {32, 8});", "line 6, column 1: ", "a stride of 4002 bytes"},
          {"tensor_map<float>(x, {N, B}, {4000}, {64, 8}, 128);",
           "line 6, column 1: ", "more than the swizzle of 128"},
          {"tensor_map<float>(x, {N, 65}, {4000}, {32, 8});",
           "line 6, column 19: ", "260000 bytes from byte 0 on are more"},
          {"tensor_map<float>(x, {N, B}, {4000}, {32, 8}, 5);",
           "line 6, column 1: ", "this option is not known"},
      },
      "__device__ void d() {} void h(int a) {} void o(int a) {} void o(long a) {} template <int N, typename "
      "T> void f() "
      "{} __constant__ float taps[4];");
}

TEST_CASE("syntax errors say what is expected") {
  CheckAll({
      {"int n = ;", "line 6, column 9: ", "`;` is not expected here; write an expression"},
      {"int n = 1", "line 7, column 1: ", "the text ends here; write `;` after the declaration"},
      {"k<<<1, 1>>(x);", "line 6, column 14: ", "`>>>` after the launch's grid and block"},
      {"k<<<1, 1(x, out, 1);", "line 6, column 20: ", "`>>>` after the launch's grid and block"},
      {"for (int i = 0; i < 3) ;", "line 6, column 22: ", "`;` after the loop's condition"},
      {"if B > 1;", "line 6, column 4: ", "`(` after `if`"},
      {"int n = 'a;", "line 6, column 9: ", "this ' is never closed"},
      {"int n = 1 @ 2;", "line 6, column 11: ", "this character is not C++"},
      {"int 3;", "line 6, column 5: ", "after the type, or a name"},
      {"else {}", "line 6, column 1: ", "`else` is not expected here; write an expression"},
  });
  CHECK(Contains(Complaint(Text(std::string(5000, '(') + "1")), "nested too deeply"));
  CHECK(Contains(Complaint(Text("int n = " + std::string(3000, '(') + "1" + std::string(3000, ')') + ";")),
                 "nested too deeply"));
  CHECK(Contains(Complaint(Text("int n = " + std::string(3000, '!') + "1;")), "nested too deeply"));
  std::string sum = "long n = 1";
  for (int i = 0; i < 3000; ++i) sum += " + 1";
  CHECK(Contains(Complaint(Text(sum + ";")), "this expression is too long"));
  std::string blocks = std::string(3000, '{') + std::string(3000, '}');
  CHECK(Contains(Complaint(Text(blocks)), "nested too deeply"));
}

TEST_CASE("exactly one launch function with the problem's tensors") {
  const std::string k = "__global__ void k() {}\n";
  const std::string wanted = "write `void launch(const float* x, float* out)`";
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"", "line 1, column 1: there is no launch function; write `void launch(const float* x, float* out) {"},
      {"// void launch() {}\n", "there is no launch function"},
      {"__global__ void launch() {}", "line 1, column 17: `launch` is the name of the host function"},
      {"void launch(const float* x, float* out) {}\nvoid launch(int a) {}",
       "line 2, column 6: `launch` is defined twice"},
      {"template <int N> void launch(const float* x, float* out) {}",
       "line 1, column 23: `launch` cannot be a template"},
      {k + "void launch(const float* x) { k<<<1, 1>>>(); }",
       "line 2, column 6: launch takes 1 tensors and the problem has 2; " + wanted},
      {k + "void launch(float* x, float* y, int n) { }", "line 2, column 6: launch takes 3 tensors"},
      {k + "void launch(const float* x, const float* out) {}",
       "line 2, column 42: parameter 2 is the output `out` and must not be const; " + wanted},
      {k + "void launch(const double* x, float* out) {}",
       "line 2, column 27: parameter 1 is const double*, and `x` holds float32; " + wanted},
      {k + "void launch(const float x, float* out) {}", "line 2, column 25: parameter 1 is const float"},
      {k + "void launch(const torch::Tensor& x, float* out) {}",
       "line 2, column 13: the type `torch::Tensor` is not known"},
      {k + "void launch(const float* x, float* out) {", "line 2, column 41: this `{` is never closed"},
      {"/* " + k + "void launch() {}", "line 1, column 1: this comment is never closed"},
      {"#if 1\n" + k, "line 1, column 1: this conditional is never closed; write #endif"},
      {"#endif\n", "line 1, column 1: #endif without an #if before it"},
      {"#if 1\n#else\n#elif 1\n#endif\n", "line 3, column 1: #elif after #else"},
      {"#if\n#endif\n", "line 1, column 1: this #if has no condition"},
      {"#if 1 / 0\n#endif\n", "line 1, column 7: this condition divides by zero"},
      {"#if (1\n#endif\n", "line 1, column 7: the condition ends where `)` is expected"},
      {"#if 1 2\n#endif\n", "line 1, column 7: `2` is in a condition where an operator is expected"},
      {"#define 3\n", "line 1, column 1: #define needs a name"},
      {"#define A(x\n", "line 1, column 1: the macro's parameter list is never closed"},
  };
  for (const auto& [text, message] : rows) {
    INFO(text);
    INFO(Complaint(text));
    CHECK(Contains(Complaint(text), message));
  }
}

TEST_CASE("nothing runs for ever") {
  const std::string steps = "launch takes more than 1000000 steps; write loops that end";
  for (const char* body :
       {"for (;;) {}", "while (true) ;", "do {} while (1);", "int i = 0; while (i < 5) { --i; ++i; }"}) {
    INFO(body);
    CHECK(Contains(Complaint(Text(body)), steps));
  }
  CHECK(Contains(Complaint(Text("f(1);", "int f(int a) { return f(a + 1); }")),
                 "calls are nested deeper than 64"));
  CHECK(Contains(
      Complaint(Text("f(1);", "int g(int a); int f(int a) { return g(a); } int g(int a) { return f(a); }")),
      "calls are nested deeper than 64"));
  CHECK(Whole("f(10)", "", "int f(int a) { return a < 2 ? a : f(a - 1) + f(a - 2); }") == 55);
  CHECK(Contains(Complaint(Text("int n = kA;", "const int kA = kB + 1; const int kB = kA + 1;")),
                 "is not known here"));
  CHECK(Contains(Complaint(Text("for (int i = 0; i < 20000; ++i) any<<<1, 1>>>();")),
                 "launch has more than 16384 operations"));
  CHECK(Contains(Complaint(Text("for (int i = 0; i < 20000; ++i) workspace<char>(1);")),
                 "launch has more than 16384 workspaces"));
  LaunchFunctionLimits limits;
  limits.steps = 20;
  CHECK(Contains(Complaint(Text("int s = 0; for (int i = 0; i < 100; ++i) s += i;"), "cuda", limits),
                 "more than 20 steps"));
  std::string bomb = "#define A0 1\n";
  for (int i = 1; i < 64; ++i) {
    const std::string before = "A" + std::to_string(i - 1);
    bomb += "#define A" + std::to_string(i) + " " + before + " + " + before + "\n";
  }
  CHECK(Contains(Complaint(Text("int n = A63;", bomb)), "expands to more tokens than launch may have"));
  CHECK(Contains(
      Complaint("#define F(a) a a\n" +
                Text("int n = F(F(F(F(F(F(F(F(F(F(F(F(F(F(F(F(F(F(F(F(F(F(F(1)))))))))))))))))))))));")),
      "expands to more tokens than launch may have"));
  std::string open;
  for (int i = 0; i < 100000; ++i) open += "F(";
  CHECK(Contains(Complaint("#define F(a) a\n" + Text(open)), "expands to more tokens than launch may have"));
  CHECK(Contains(Complaint(std::string((2 << 20) + 1, ' ')), "the text has 2097153 bytes"));
}

TEST_CASE("kinds without a launch function are no candidate's fault") {
  CHECK_THROWS_AS(Interpret("", "cpp"), Error);
}

}  // namespace
}  // namespace kevin
