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
  CHECK_FALSE(OwnKernelShare({}, own).has_value());
  CHECK_FALSE(OwnKernelShare({{"mine", 0}}, own).has_value());
  CHECK_FALSE(OwnKernelShare({{"mine", -5}, {"theirs", 10}}, own).has_value());
}

}  // namespace kevin
