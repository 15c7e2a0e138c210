// The kernels between matrix products beside torch's operators in double precision on the CPU: values and
// gradients, every number type, rows of every cut.

#include "policies/local/model/gpu_rows.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "policies/local/model/device.h"
#include "policies/local/model/primitives.h"
#include "policies/local/train/token_logprobs.h"
#include "tests/catch.h"
#include "tests/policies/local/fused/has_gpu.h"

namespace kevin::testing {
namespace {

using namespace local;

const at::Device kGpu(at::kCUDA, 0);

// A leaf on the GPU in the type, and the same numbers in double on the CPU.
struct Both {
  at::Tensor gpu, exact;
};
Both Leaf(at::IntArrayRef shape, at::ScalarType type, double scale = 1, double shift = 0) {
  const at::Tensor gpu = (at::randn(shape, at::kFloat) * scale + shift).to(kGpu, type);
  return {gpu.detach().requires_grad_(true), gpu.to(at::kCPU, at::kDouble).requires_grad_(true)};
}
Both Plain(at::IntArrayRef shape, at::ScalarType type) {
  const Both both = Leaf(shape, type);
  return {both.gpu.detach(), both.exact.detach()};
}

void CheckClose(const char* what, const at::Tensor& gpu, const at::Tensor& exact, at::ScalarType type) {
  const at::Tensor difference = gpu.detach().to(at::kCPU, at::kDouble) - exact.detach();
  const double apart = (difference.norm() / exact.detach().norm()).item<double>();
  INFO(what << " in " << at::toString(type) << ": apart " << apart);
  CHECK(apart < (type == at::kFloat ? 2e-6 : type == at::kHalf ? 8e-4 : 6e-3));
}

at::Tensor ExactNorm(const at::Tensor& x, const at::Tensor& weight) {
  return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * weight;
}

at::Tensor ExactTurn(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);
  return at::cat({a * c - b * s, b * c + a * s}, -1);
}

at::ScalarType AnyType() { return GENERATE(at::kFloat, at::kBFloat16, at::kHalf); }

}  // namespace

// The default stream would read what the slow products before it have not written yet.
TEST_CASE("kernels between products run on the stream that torch uses", "[gpu]") {
  if (!HasGpu()) return;
  OpenCuda(kGpu);
  at::manual_seed(1);
  const at::Tensor one = at::eye(8192, at::TensorOptions(at::kBFloat16).device(kGpu));
  const at::Tensor x = Plain({8192, 8192}, at::kBFloat16).gpu, expected = GpuGate(x);
  at::Tensor product = at::zeros_like(x), other = at::zeros_like(x), gated;
  at::accelerator::synchronizeDevice(0);
  {
    const c10::StreamGuard guard(c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(kGpu));
    at::mm_out(other, x, one);
    for (int i = 0; i < 4; ++i) at::mm_out(product, other, one), at::mm_out(other, product, one);
    product.copy_(other);  // x, after nine products
    gated = GpuGate(product);
  }
  at::accelerator::synchronizeDevice(0);
  CHECK(at::equal(gated, expected));
}

TEST_CASE("norms of sums and their gradients are the exact ones", "[gpu]") {
  if (!HasGpu()) return;
  at::manual_seed(1);
  const at::ScalarType type = AnyType();
  const int64_t columns = GENERATE(8, 256, 504, 1024, 1536, 3584, 8192), rows = GENERATE(1, 1500);
  INFO(rows << " rows of " << columns);
  const Both x = Leaf({rows, columns}, type), y = Leaf({rows, columns}, type, 0.5);
  const Both weight = Leaf({columns}, type, 0.1, 1);
  const Both of_sum = Plain({rows, columns}, type), of_norm = Plain({rows, columns}, type);
  REQUIRE(HasGpuRows(x.gpu));
  const auto [sum, normed] = AddAndNorm(x.gpu, y.gpu, weight.gpu, 1e-6);
  const at::Tensor exact_sum = x.exact + y.exact, exact_norm = ExactNorm(exact_sum, weight.exact);
  CheckClose("sum", sum, exact_sum, type), CheckClose("norm", normed, exact_norm, type);
  torch::autograd::backward({sum, normed}, {of_sum.gpu, of_norm.gpu});
  torch::autograd::backward({exact_sum, exact_norm}, {of_sum.exact, of_norm.exact});
  CheckClose("gradient of x", x.gpu.grad(), x.exact.grad(), type);
  CheckClose("gradient of y", y.gpu.grad(), y.exact.grad(), type);
  CheckClose("gradient of the weight", weight.gpu.grad(), weight.exact.grad(), type);

  const Both alone = Leaf({rows, columns}, type);
  const at::Tensor plain = RmsNorm(alone.gpu, weight.gpu.detach(), 1e-6);
  const at::Tensor exact_plain = ExactNorm(alone.exact, weight.exact.detach());
  CheckClose("plain norm", plain, exact_plain, type);
  torch::autograd::backward({plain}, {of_norm.gpu});
  torch::autograd::backward({exact_plain}, {of_norm.exact});
  CheckClose("gradient of a plain norm", alone.gpu.grad(), alone.exact.grad(), type);
}

TEST_CASE("gates and rotations and their gradients are the exact ones", "[gpu]") {
  if (!HasGpu()) return;
  at::manual_seed(2);
  const at::ScalarType type = AnyType();
  const int64_t rows = GENERATE(1, 777);
  const Both gate_up = Leaf({rows, 2 * 4864}, type), of_gate = Plain({rows, 4864}, type);
  const at::Tensor gated = Swiglu(gate_up.gpu);
  const at::Tensor exact = at::silu(gate_up.exact.narrow(1, 0, 4864)) * gate_up.exact.narrow(1, 4864, 4864);
  CheckClose("gate", gated, exact, type);
  torch::autograd::backward({gated}, {of_gate.gpu});
  torch::autograd::backward({exact}, {of_gate.exact});
  CheckClose("gradient of gate and up", gate_up.gpu.grad(), gate_up.exact.grad(), type);

  const int64_t dim = GENERATE(16, 64, 128);
  const bool with_norms = GENERATE(false, true);
  const at::Tensor angles = at::rand({rows, dim / 2}, at::kFloat) * 6;
  const at::Tensor cos = angles.cos(), sin = angles.sin();
  const Both qkv = Leaf({rows, 9, dim}, type), norm = Leaf({dim}, type, 0.1, 1);
  const at::Tensor none;
  const Heads heads = PrepareHeads(qkv.gpu, 2, with_norms ? norm.gpu : none, with_norms ? norm.gpu : none,
                                   1e-6, cos.to(kGpu), sin.to(kGpu));
  const auto exact_heads = [&](int64_t first, int64_t count) {
    const at::Tensor part = qkv.exact.narrow(1, first, count);
    return ExactTurn(with_norms ? ExactNorm(part, norm.exact) : part, cos, sin);
  };
  const at::Tensor q = exact_heads(0, 5), k = exact_heads(5, 2), v = qkv.exact.narrow(1, 7, 2);
  CheckClose("queries", heads.q, q, type), CheckClose("keys", heads.k, k, type);
  CheckClose("values", heads.v, v, type);
  const Both of_q = Plain({rows, 5, dim}, type), of_k = Plain({rows, 2, dim}, type),
             of_v = Plain({rows, 2, dim}, type);
  torch::autograd::backward({heads.q, heads.k, heads.v}, {of_q.gpu, of_k.gpu, of_v.gpu});
  torch::autograd::backward({q, k, v}, {of_q.exact, of_k.exact, of_v.exact});
  CheckClose("gradient of the projection", qkv.gpu.grad(), qkv.exact.grad(), type);
}

TEST_CASE("log-probabilities, entropies and their gradients are the exact ones", "[gpu]") {
  if (!HasGpu()) return;
  at::manual_seed(3);
  const at::ScalarType type = AnyType();
  const int64_t columns = GENERATE(8, 151936), rows = 37;
  const bool with_entropy = GENERATE(false, true);
  const Both logits = Leaf({rows, columns}, type, 3);
  at::Tensor targets = at::randint(0, columns, {rows}, at::kLong);
  targets[0] = 0, targets[1] = columns - 1;
  const at::Tensor temperatures = at::rand({rows}, at::kFloat) + 0.5;
  const Both of_logprobs = Plain({rows}, at::kFloat), of_entropies = Plain({rows}, at::kFloat);
  const auto head = [](const at::Tensor& x) { return x * 1; };
  const TokenLogprobs ours =
      LogprobsOf(logits.gpu, head, targets.to(kGpu), temperatures.to(kGpu), 16, with_entropy);
  const at::Tensor all = at::log_softmax(logits.exact / temperatures.unsqueeze(1), 1);
  const at::Tensor logprobs = all.gather(1, targets.unsqueeze(1)).squeeze(1);
  const at::Tensor entropies = -(all.exp() * all).sum(1);
  CheckClose("log-probabilities", ours.logprobs, logprobs, at::kFloat);
  if (with_entropy) CheckClose("entropies", ours.entropy, entropies, at::kFloat);
  at::Tensor loss = (ours.logprobs * of_logprobs.gpu).sum(), exact = (logprobs * of_logprobs.exact).sum();
  if (with_entropy) {
    loss = loss + (ours.entropy * of_entropies.gpu).sum();
    exact = exact + (entropies * of_entropies.exact).sum();
  }
  loss.backward(), exact.backward();
  CheckClose("gradient of the logits", logits.gpu.grad(), logits.exact.grad(), type);
}

}  // namespace kevin::testing
