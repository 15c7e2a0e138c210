#include "policies/local/model/primitives.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "policies/local/model/cpu_rows.h"

namespace kevin::local {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowsWorthAThread = 16;

// In floats, whatever the type of x.
at::Tensor Turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  at::Tensor out = at::empty(x.sizes(), x.options());
  out.narrow(-1, 0, half).copy_(a * cos - b * sin);
  out.narrow(-1, half, half).copy_(b * cos + a * sin);
  return out;
}

struct Turn : torch::autograd::Function<Turn> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return Turned(x, cos, sin);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    return {Turned(gradients[0], saved[0], saved[1].neg()), at::Tensor(), at::Tensor()};
  }
};

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up) {
    context->save_for_backward({gate_up});
    const int64_t n = gate_up.size(-1) / 2;
    return at::silu(gate_up.narrow(-1, 0, n)).mul_(gate_up.narrow(-1, n, n));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor gate_up = context->get_saved_variables()[0];
    const int64_t n = gate_up.size(-1) / 2;
    const at::Tensor gate = gate_up.narrow(-1, 0, n), up = gate_up.narrow(-1, n, n);
    at::Tensor result = at::empty(gate_up.sizes(), gate_up.options());
    result.narrow(-1, 0, n).copy_(at::silu_backward(gradients[0] * up, gate));
    result.narrow(-1, n, n).copy_(at::silu(gate).mul_(gradients[0]));
    return {result};
  }
};

}  // namespace

bool IsPlainCpu(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && c10::InferenceMode::is_enabled();
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (!IsPlainCpu(x) || !x.is_contiguous()) return at::rms_norm(x, weight.sizes(), weight, epsilon);
  at::Tensor out = at::empty(x.sizes(), x.options());
  const int64_t n = x.size(-1);
  const float *from = x.const_data_ptr<float>(), *scale = weight.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel() / n, kRowsWorthAThread, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      NormalizeRow(from + row * n, scale, n, static_cast<float>(epsilon), to + row * n);
  });
  return out;
}

at::Tensor PrepareHeads(const at::Tensor& x, const at::Tensor& norm, double epsilon, const at::Tensor& cos,
                        const at::Tensor& sin) {
  if (!IsPlainCpu(x)) {
    const at::Tensor normed = norm.defined() ? at::rms_norm(x, norm.sizes(), norm, epsilon) : x;
    return Turn::apply(normed, cos.unsqueeze(1), sin.unsqueeze(1));
  }
  const int64_t heads = x.size(1), dim = x.size(2), stride = x.stride(0);
  float* data = x.mutable_data_ptr<float>();
  const float *cosines = cos.const_data_ptr<float>(), *sines = sin.const_data_ptr<float>();
  const float* weight = norm.defined() ? norm.const_data_ptr<float>() : nullptr;
  at::parallel_for(0, x.size(0), kRowsWorthAThread, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < heads; ++head) {
        float* place = data + row * stride + head * dim;
        if (weight) NormalizeRow(place, weight, dim, static_cast<float>(epsilon), place);
        TurnHead(place, cosines + row * (dim / 2), sines + row * (dim / 2), dim / 2);
      }
    }
  });
  return x;
}

at::Tensor Swiglu(const at::Tensor& gate_up) {
  if (!IsPlainCpu(gate_up) || !gate_up.is_contiguous()) return SwigluFunction::apply(gate_up);
  const int64_t rows = gate_up.size(0), n = gate_up.size(1) / 2;
  at::Tensor out = at::empty({rows, n}, gate_up.options());
  const float* from = gate_up.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, rows, kRowsWorthAThread, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      SwigluRow(from + row * 2 * n, from + row * 2 * n + n, n, to + row * n);
  });
  return out;
}

at::Tensor Add(const at::Tensor& x, const at::Tensor& y) {
  if (!c10::InferenceMode::is_enabled()) return x + y;
  at::Tensor sum = x;
  return sum.add_(y);
}

}  // namespace kevin::local
