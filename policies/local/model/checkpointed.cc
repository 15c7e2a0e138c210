#include "policies/local/model/checkpointed.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace kevin::local {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldFunction : torch::CustomClassHolder {
  std::function<at::Tensor(const at::Tensor&)> run;
  std::vector<at::Tensor> leaves;
};

struct RunAgain : torch::autograd::Function<RunAgain> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList,
                            const c10::intrusive_ptr<HeldFunction>& held) {
    context->save_for_backward({x});
    context->saved_data["held"] = c10::IValue::make_capsule(held);
    return held->run(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["held"].toCapsule();
    const HeldFunction& held = static_cast<const HeldFunction&>(*capsule);
    const at::AutoGradMode with_gradients(true);
    variable_list inputs = {context->get_saved_variables()[0].detach().requires_grad_(true)};
    inputs.insert(inputs.end(), held.leaves.begin(), held.leaves.end());
    const at::Tensor y = held.run(inputs[0]);
    variable_list result = torch::autograd::grad({y}, inputs, {gradients[0]}, std::nullopt, false,
                                                 /*allow_unused=*/true);
    result.push_back(at::Tensor());
    return result;
  }
};

}  // namespace

at::Tensor Checkpointed(const at::Tensor& x, const std::vector<at::Tensor>& leaves,
                        std::function<at::Tensor(const at::Tensor&)> run) {
  if (!at::GradMode::is_enabled()) return run(x);
  auto held = c10::make_intrusive<HeldFunction>();
  held->run = std::move(run);
  held->leaves = leaves;
  return RunAgain::apply(x, at::TensorList(leaves), held);
}

}  // namespace kevin::local
