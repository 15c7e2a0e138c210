// Kernels, launches, memory and PTX: what of CUDA a launch function may use.

#include "tests/env/gpu/launch_fixture.h"

namespace kevin {
namespace {

using namespace launch_testing;

std::string Kernel(const std::string& body, const std::string& top = "") {
  return OnlyLaunch(Interpret(Text(body, top))).kernel;
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
        std::vector<std::string>{"line 6: the stream is ignored: all work runs in one stream",
                                 "line 7: the stream is ignored: all work runs in one stream"});
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

TEST_CASE("accepted items without effect leave a note") {
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
