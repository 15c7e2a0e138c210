#include "policies/local/model/apply_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "policies/local/model/primitives.h"
#include "policies/local/model/weights.h"

namespace kevin::local {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One product for several projections; the gradient of each is its rows of the whole. `leaves` are the
// projections' weights, then their biases: they share the memory of `weight` and `bias`.
struct FusedProduct : torch::autograd::Function<FusedProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, at::TensorList leaves) {
    context->save_for_backward({x, weight});
    std::vector<int64_t> rows;
    for (const at::Tensor& leaf : leaves) rows.push_back(leaf.size(0));
    context->saved_data["rows"] = rows;
    context->saved_data["bias"] = bias.has_value();
    return at::linear(x, weight, bias);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::vector<int64_t> rows = context->saved_data["rows"].toIntVector();
    const bool bias = context->saved_data["bias"].toBool();
    const size_t weights = bias ? rows.size() / 2 : rows.size();
    const at::Tensor& of_y = gradients[0];
    const at::Tensor of_weight = at::mm(of_y.t(), saved[0]);
    variable_list result = {at::mm(of_y, saved[1]), at::Tensor(), at::Tensor()};
    int64_t row = 0;
    for (size_t i = 0; i < weights; row += rows[i++]) result.push_back(of_weight.narrow(0, row, rows[i]));
    if (!bias) return result;
    const at::Tensor of_bias = of_y.sum(0);
    row = 0;
    for (size_t i = weights; i < rows.size(); row += rows[i++])
      result.push_back(of_bias.narrow(0, row, rows[i]));
    return result;
  }
};

struct HeldMatrix : torch::CustomClassHolder {
  explicit HeldMatrix(QuantizedMatrix held) : matrix(std::move(held)) {}
  QuantizedMatrix matrix;
};

struct QuantizedProduct : torch::autograd::Function<QuantizedProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const QuantizedMatrix& matrix) {
    context->saved_data["matrix"] = c10::IValue::make_capsule(c10::make_intrusive<HeldMatrix>(matrix));
    return at::linear(x, Dequantize(matrix, x.scalar_type()));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto held = context->saved_data["matrix"].toCapsule();
    const QuantizedMatrix& matrix = static_cast<const HeldMatrix&>(*held).matrix;
    return {at::mm(gradients[0], Dequantize(matrix, gradients[0].scalar_type())), at::Tensor()};
  }
};

at::Tensor ApplyDense(const Linear& linear, const at::Tensor& x) {
  const std::optional<at::Tensor> bias =
      linear.bias.defined() ? std::make_optional(linear.bias) : std::nullopt;
  if (!at::GradMode::is_enabled() || !linear.parts[0].weight.requires_grad())
    return at::linear(x, linear.weight, bias);
  std::vector<at::Tensor> leaves;
  for (const Projection& part : linear.parts) leaves.push_back(part.weight);
  for (const Projection& part : linear.parts) {
    if (bias) leaves.push_back(part.bias);
  }
  return FusedProduct::apply(x, linear.weight, bias, at::TensorList(leaves));
}

at::Tensor ApplyParts(const Linear& linear, const at::Tensor& x) {
  std::vector<at::Tensor> products;
  for (const Projection& part : linear.parts) products.push_back(ApplyQuantized(part.quantized, x));
  const at::Tensor y = products.size() == 1 ? products[0] : at::cat(products, 1);
  return linear.bias.defined() ? y + linear.bias : y;
}

}  // namespace

at::Tensor ApplyQuantized(const QuantizedMatrix& matrix, const at::Tensor& x) {
  if (!at::GradMode::is_enabled()) return at::linear(x, Dequantize(matrix, x.scalar_type()));
  return QuantizedProduct::apply(x, matrix);
}

at::Tensor Apply(const Linear& linear, const at::Tensor& x) {
  const at::Tensor y = linear.IsQuantized() ? ApplyParts(linear, x) : ApplyDense(linear, x);
  if (!linear.HasAdapters()) return y;
  std::vector<at::Tensor> deltas;
  for (const Projection& part : linear.parts) {
    if (!part.lora_a.defined()) {
      deltas.push_back(at::zeros({x.size(0), part.rows}, x.options()));
      continue;
    }
    const at::Tensor inner = at::linear(x, part.lora_a.to(x.scalar_type()));
    deltas.push_back(at::linear(inner, part.lora_b.to(x.scalar_type())));
  }
  return at::add(y, deltas.size() == 1 ? deltas[0] : at::cat(deltas, 1), linear.lora_scale);
}

at::Tensor AdapterProduct(const Projection& projection, double scale) {
  return at::mm(projection.lora_b.to(at::kFloat), projection.lora_a.to(at::kFloat)).mul_(scale);
}

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

// Adapters of each expert, as views of the stacked ones: one gradient for all of them.
struct EachAdapters {
  explicit EachAdapters(const ExpertAdapters& adapters) {
    if (adapters.a.defined()) a = adapters.a.unbind(0), b = adapters.b.unbind(0);
  }
  // What they add to the product of x, unscaled; [rows, out].
  at::Tensor Of(size_t expert, const at::Tensor& x, int64_t out) const {
    if (a.empty()) return at::zeros({x.size(0), out}, x.options());
    const at::ScalarType type = x.scalar_type();
    return at::linear(at::linear(x, a[expert].to(type)), b[expert].to(type));
  }
  std::vector<at::Tensor> a, b;
};

class EachExpert {
 public:
  explicit EachExpert(const Experts& experts)
      : experts_(experts), gate_(experts.lora_gate), up_(experts.lora_up), down_(experts.lora_down) {}

  at::Tensor Apply(const at::Tensor& counts, const at::Tensor& x) const {
    const at::Tensor on_cpu = counts.cpu();
    const int64_t* rows = on_cpu.const_data_ptr<int64_t>();
    std::vector<at::Tensor> outputs;
    int64_t row = 0;
    for (int64_t expert = 0; expert < on_cpu.numel(); row += rows[expert++]) {
      if (rows[expert] > 0)
        outputs.push_back(One(static_cast<size_t>(expert), x.narrow(0, row, rows[expert])));
    }
    return at::cat(outputs, 0);
  }

 private:
  at::Tensor One(size_t expert, const at::Tensor& x) const {
    at::Tensor inner = GateUp(expert, x);
    if (experts_.HasAdapters()) {
      const int64_t ffn = inner.size(1) / 2;
      inner =
          at::add(inner, at::cat({gate_.Of(expert, x, ffn), up_.Of(expert, x, ffn)}, 1), experts_.lora_scale);
    }
    const at::Tensor middle = Swiglu(inner), y = Down(expert, middle);
    return experts_.HasAdapters() ? at::add(y, down_.Of(expert, middle, y.size(1)), experts_.lora_scale) : y;
  }

  at::Tensor GateUp(size_t expert, const at::Tensor& x) const {
    if (experts_.gate_up.defined())
      return at::linear(x, experts_.gate_up.select(0, static_cast<int64_t>(expert)));
    return at::cat({ApplyQuantized(experts_.quantized_gate[expert], x),
                    ApplyQuantized(experts_.quantized_up[expert], x)},
                   1);
  }
  at::Tensor Down(size_t expert, const at::Tensor& x) const {
    if (experts_.down.defined()) return at::linear(x, experts_.down.select(0, static_cast<int64_t>(expert)));
    return ApplyQuantized(experts_.quantized_down[expert], x);
  }

  const Experts& experts_;
  const EachAdapters gate_, up_, down_;
};

at::Tensor GroupedAdapters(const ExpertAdapters& adapters, const at::Tensor& ends, const at::Tensor& x,
                           int64_t out) {
  if (!adapters.a.defined()) return at::zeros({x.size(0), out}, x.options());
  const at::Tensor inner = at::_grouped_mm(x, adapters.a.to(x.scalar_type()).transpose(1, 2), ends);
  return at::_grouped_mm(inner, adapters.b.to(x.scalar_type()).transpose(1, 2), ends);
}

at::Tensor Grouped(const Experts& experts, const at::Tensor& counts, const at::Tensor& x) {
  const at::Tensor ends = counts.cumsum(0).to(at::kInt);
  at::Tensor inner = at::_grouped_mm(x, experts.gate_up.transpose(1, 2), ends);
  if (experts.HasAdapters()) {
    const int64_t ffn = inner.size(1) / 2;
    inner = at::add(inner,
                    at::cat({GroupedAdapters(experts.lora_gate, ends, x, ffn),
                             GroupedAdapters(experts.lora_up, ends, x, ffn)},
                            1),
                    experts.lora_scale);
  }
  const at::Tensor middle = Swiglu(inner), y = at::_grouped_mm(middle, experts.down.transpose(1, 2), ends);
  if (!experts.HasAdapters()) return y;
  return at::add(y, GroupedAdapters(experts.lora_down, ends, middle, y.size(1)), experts.lora_scale);
}

// Grouped products take rows of whole 16 bytes.
bool CanGroup(const Experts& experts, const at::Tensor& x) {
  if (!x.is_cuda() || x.scalar_type() != at::kBFloat16 || !experts.gate_up.defined()) return false;
  for (const ExpertAdapters* adapters : {&experts.lora_gate, &experts.lora_up, &experts.lora_down}) {
    if (adapters->a.defined() && adapters->a.size(1) % 8 != 0) return false;
  }
  return true;
}

}  // namespace

at::Tensor ApplyExperts(const Experts& experts, const ModelConfig& config, const at::Tensor& x) {
  const int64_t tokens = x.size(0), copies = config.experts_per_token;
  const Dispatch dispatch = Route(experts, config, x);
  // A permutation of copies rather than a gather of rows: its gradient adds nothing up in random order.
  const at::Tensor copied = x.unsqueeze(1).expand({tokens, copies, x.size(1)}).reshape({tokens * copies, -1});
  const at::Tensor ordered = copied.index_select(0, dispatch.order);
  const at::Tensor outputs = CanGroup(experts, x) ? Grouped(experts, dispatch.counts, ordered)
                                                  : EachExpert(experts).Apply(dispatch.counts, ordered);
  at::Tensor places = at::empty_like(dispatch.order);
  places.index_copy_(0, dispatch.order, at::arange(tokens * copies, dispatch.order.options()));
  const at::Tensor back = outputs.index_select(0, places).view({tokens, copies, -1});
  return (back * dispatch.weights.unsqueeze(2)).sum(1);
}

}  // namespace kevin::local
