#include "policies/local/model/moe.h"

#include <ATen/ATen.h>

#include "policies/local/model/apply_linear.h"
#include "policies/local/model/primitives.h"

namespace kevin::local {
namespace {

// The tokens once per expert they go to, ordered by expert.
struct Dispatch {
  at::Tensor weights;  // [T, experts_per_token], the compute type
  at::Tensor order;    // of the T * experts_per_token copies: which comes at each place
  at::Tensor counts;   // int64 [experts]
};

Dispatch Route(const Experts& experts, const ModelConfig& config, const at::Tensor& x) {
  const at::Tensor shares = at::softmax(at::linear(x, experts.router), 1, at::kFloat);
  auto [weights, chosen] = shares.topk(config.experts_per_token, 1);
  if (config.normalize_expert_weights) weights = weights / weights.sum(1, true);
  const at::Tensor flat = chosen.reshape({-1});
  const at::Tensor counts =
      at::zeros({config.experts}, flat.options()).scatter_add_(0, flat, at::ones_like(flat));
  return {weights.to(x.scalar_type()), std::get<1>(flat.sort(true, 0, false)), counts};
}

at::Tensor OneExpert(const Experts& experts, int64_t expert, const at::Tensor& x) {
  const size_t i = static_cast<size_t>(expert);
  if (!experts.gate_up.defined())
    return ApplyQuantized(experts.quantized_down[i], Swiglu(ApplyQuantized(experts.quantized_gate_up[i], x)));
  return at::linear(Swiglu(at::linear(x, experts.gate_up.select(0, expert))), experts.down.select(0, expert));
}

at::Tensor EachExpert(const Experts& experts, const at::Tensor& counts, const at::Tensor& x) {
  const at::Tensor on_cpu = counts.cpu();
  const int64_t* rows = on_cpu.const_data_ptr<int64_t>();
  std::vector<at::Tensor> outputs;
  int64_t row = 0;
  for (int64_t expert = 0; expert < on_cpu.numel(); row += rows[expert++]) {
    if (rows[expert] > 0) outputs.push_back(OneExpert(experts, expert, x.narrow(0, row, rows[expert])));
  }
  return at::cat(outputs, 0);
}

at::Tensor Grouped(const Experts& experts, const at::Tensor& counts, const at::Tensor& x) {
  const at::Tensor ends = counts.cumsum(0).to(at::kInt);
  const at::Tensor inner = at::_grouped_mm(x, experts.gate_up.transpose(1, 2), ends);
  return at::_grouped_mm(Swiglu(inner), experts.down.transpose(1, 2), ends);
}

}  // namespace

at::Tensor ApplyExperts(const Experts& experts, const ModelConfig& config, const at::Tensor& x) {
  const int64_t tokens = x.size(0), copies = config.experts_per_token;
  const Dispatch dispatch = Route(experts, config, x);
  // A permutation of copies rather than a gather of rows: its gradient adds nothing up in random order.
  const at::Tensor copied = x.unsqueeze(1).expand({tokens, copies, x.size(1)}).reshape({tokens * copies, -1});
  const at::Tensor ordered = copied.index_select(0, dispatch.order);
  const bool grouped = x.is_cuda() && x.scalar_type() == at::kBFloat16 && experts.gate_up.defined();
  const at::Tensor outputs =
      grouped ? Grouped(experts, dispatch.counts, ordered) : EachExpert(experts, dispatch.counts, ordered);
  at::Tensor places = at::empty_like(dispatch.order);
  places.index_copy_(0, dispatch.order, at::arange(tokens * copies, dispatch.order.options()));
  const at::Tensor back = outputs.index_select(0, places).view({tokens, copies, -1});
  return (back * dispatch.weights.unsqueeze(2)).sum(1);
}

}  // namespace kevin::local
