// Which kernels a candidate in Python has written itself.

#include "env/python/own_kernels.h"

#include "tests/catch.h"

namespace kevin {

TEST_CASE("the names of kernels are found in a candidate's text") {
  const std::string cuda = R"py(
source = """
template <int N>
__global__ void __launch_bounds__(256, 2) relu_kernel(const float* x, float* out, long n) {}
extern "C" __global__ __cluster_dims__(2) void second(float* out);
// a word about __global__
"""
)py";
  CHECK(OwnKernelNames(cuda) == std::set<std::string>{"relu_kernel", "second"});
  const std::string triton = R"py(
@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def fused(x, out, n, BLOCK: tl.constexpr):
    pass

class A:
    @triton.jit
    def inner(x):
        pass

# text = "@triton.jit"
def not_a_kernel(x):
    pass
)py";
  CHECK(OwnKernelNames(triton) == std::set<std::string>{"fused", "inner"});
  CHECK(OwnKernelNames("import torch").empty());
}

TEST_CASE("comments and docstrings name no kernels") {
  CHECK(OwnKernelNames(R"py(
# __global__ void in_a_comment(float* x) {}
def build():
    """__global__ void in_a_docstring(float* x) {}"""
    '__global__ void in_a_statement(float* x) {}'
    return load_inline("m", "", """
// __global__ void after_slashes(float* x) {}
/* __global__ void between_stars(float* x) {} */
const char* text = "__global__ void in_a_string(float* x) {}";
__global__ void own(float* x) { x[0] = '"'; }
__global__ void last(float* x) {}
""")
text = "# @triton.jit"
text = '''
@triton.jit
def in_a_literal(x): pass
'''
)py") == std::set<std::string>{"last", "own"});
  // Texts of several literals, with escapes; a raw one.
  CHECK(OwnKernelNames("a = ('// one\\n__global__ void '\n  'first(float* x) {}')\n"
                       "b = \\\n'''__global__ void second() {}'''\n"
                       "c = r'__global__ void third() { \\'; }'  # __global__ void fourth() {}\n"
                       "d = [\n'__global__ void fifth() {}']\n") ==
        std::set<std::string>{"fifth", "first", "second", "third"});
  for (const char* broken : {"'''__global__", "'", "\"\\", "r'\\", "/*", "x = '/*'", "x = '\"'",
                             "x = '\"\\\\'", "__global__ void f("})
    CHECK(OwnKernelNames(broken).empty());
}

TEST_CASE("a kernel of a library is never own, whatever the text defines") {
  for (const char* name :
       {"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma",
        "ampere_sgemm_128x64_tn", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "volta_scudnn_128x32_relu_interior_nn_v1", "sgemm_32x32x32_NN_vec", "sgemm_largek_lds64",
        "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", "cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4",
        "cudnn_infer_ampere_scudnn_winograd", "triton_poi_fused_relu_0", "triton_red_fused_sum_1",
        "implicit_convolve_sgemm", "fmha_cutlassF_f32_aligned_64x64_sm80", "ncclDevKernel_AllReduce"}) {
    INFO(name);
    CHECK_FALSE(IsOwnKernel(name, {name}));
    CHECK_FALSE(IsOwnKernel(std::string("void ") + name + "<4>(float*)", {name}));
  }
  CHECK_FALSE(IsOwnKernel("void dot_kernel<float, 128, cublasDotParams<float> >(cublasDotParams<float>)",
                          {"dot_kernel"}));
  for (const char* name : {"sgemm_tiled", "sm90_gemm", "sgemm", "gemm_128x128", "dot_kernel", "triton_relu",
                           "ampere_relu", "hopper_gemm_kernel", "reduce_nn"}) {
    INFO(name);
    CHECK(IsOwnKernel(std::string("void ") + name + "(float*)", {name}));
  }
}

TEST_CASE("a kernel is own by its whole name") {
  const std::set<std::string> own = {"relu_kernel", "vectorized_elementwise_kernel", "fused"};
  CHECK(IsOwnKernel("fused", own));
  CHECK(IsOwnKernel("void relu_kernel<4>(float const*, float*, long)", own));
  CHECK(IsOwnKernel("(anonymous namespace)::relu_kernel(float const*)", own));
  CHECK(IsOwnKernel("mine::relu_kernel(at::Tensor)", own));
  CHECK_FALSE(IsOwnKernel("relu_kernel_2(float*)", own));
  CHECK_FALSE(IsOwnKernel("void at::native::vectorized_elementwise_kernel<4, at::native::F>(int)", own));
  CHECK_FALSE(IsOwnKernel("void cutlass::relu_kernel<cutlass::A>(int)", own));
  CHECK_FALSE(IsOwnKernel("Memcpy DtoD (Device -> Device)", own));
  CHECK_FALSE(IsOwnKernel("", own));
}

TEST_CASE("the share of own kernels is one of device time, and unknown without any") {
  const std::set<std::string> own = {"mine"};
  CHECK(OwnKernelShare({{"mine(float*)", 30}, {"Memset (Device)", 10}}, own) == 0.75);
  CHECK(OwnKernelShare({{"theirs", 10}}, own) == 0.0);
  CHECK(NamesOfOthers({{"Memset (Device)", 10}, {"mine(float*)", 30}, {"sgemm", 60}}, own) ==
        "sgemm 60 %, Memset (Device) 10 %");
  CHECK(NamesOfOthers({{"a", 4}, {"b", 3}, {"c", 2}, {"d", 1}}, own) == "a 40 %, b 30 %, c 20 %");
  CHECK(NamesOfOthers({{"mine", 1000}, {"little", 1}}, own).empty());
  CHECK(NamesOfOthers({{"mine", 0}, {"none", 0}}, own).empty());
  CHECK(NamesOfOthers({}, own).empty());
  CHECK(NamesOfOthers({{std::string(5000, 'k'), 1}}, own).size() < 100);
  CHECK_FALSE(OwnKernelShare({}, own).has_value());
  CHECK_FALSE(OwnKernelShare({{"mine", 0}}, own).has_value());
  CHECK_FALSE(OwnKernelShare({{"mine", -5}, {"theirs", 10}}, own).has_value());
}

}  // namespace kevin
