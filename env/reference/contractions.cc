#include "env/reference/contractions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace kevin {
namespace {

thread_local CoarseContractionScope* current_scope = nullptr;

// The operators that torch's layers end in, and which of their arguments are multiplied.
struct Contraction {
  std::string_view name;
  std::vector<size_t> factors;
};

const Contraction* FindContraction(std::string_view name) {
  static const std::vector<Contraction> kContractions = {
      {"aten::convolution", {0, 1}},
      {"aten::mm", {0, 1}},
      {"aten::bmm", {0, 1}},
      {"aten::mv", {0, 1}},
      {"aten::dot", {0, 1}},
      {"aten::addmm", {1, 2}},
      {"aten::addmv", {1, 2}},
      {"aten::addbmm", {1, 2}},
      {"aten::baddbmm", {1, 2}},
      {"aten::_cudnn_rnn", {0, 1, 4}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", {0, 1, 2}},
      {"aten::_scaled_dot_product_flash_attention", {0, 1, 2}},
      {"aten::_scaled_dot_product_efficient_attention", {0, 1, 2}},
      {"aten::_scaled_dot_product_cudnn_attention", {0, 1, 2}},
  };
  const auto found = std::find_if(kContractions.begin(), kContractions.end(),
                                  [name](const Contraction& one) { return one.name == name; });
  return found == kContractions.end() ? nullptr : &*found;
}

at::Tensor Coarsened(const at::Tensor& values, int dropped) {
  const int shift = 29 + dropped;  // fp64 has 29 bits more than float32
  at::Tensor rounded = values.clone(at::MemoryFormat::Contiguous);
  at::Tensor bits = rounded.view(at::kLong);
  const at::Tensor odd = at::bitwise_and(at::bitwise_right_shift(bits, shift), 1);
  bits.add_(odd).add_((int64_t{1} << (shift - 1)) - 1).bitwise_and_(~((int64_t{1} << shift) - 1));
  return rounded;
}

}  // namespace

// Which tensors hold other values during a call, and what they held before.
struct CoarseContractionScope::Call : at::ObserverContext {
  std::vector<std::pair<at::Tensor, c10::intrusive_ptr<c10::TensorImpl>>> before;

  // The tensor itself is kept, because the operator has it already; its contents are exchanged.
  void Exchange(const at::Tensor& tensor, int dropped) {
    if (!tensor.defined() || tensor.scalar_type() != at::kDouble) return;
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    before.emplace_back(tensor, impl->shallow_copy_and_detach(c10::VariableVersion(), true));
    impl->shallow_copy_from(Coarsened(tensor, dropped).getIntrusivePtr());
  }
  void Restore() {
    for (auto one = before.rbegin(); one != before.rend(); ++one)
      one->first.unsafeGetTensorImpl()->shallow_copy_from(one->second);
  }
};

std::unique_ptr<at::ObserverContext> CoarseContractionScope::Begin(const at::RecordFunction& call) {
  CoarseContractionScope* scope = current_scope;
  const Contraction* contraction = FindContraction(call.name());
  if (!contraction) return nullptr;
  auto context = std::make_unique<Call>();
  if (scope->depth_++ > 0) return context;
  const size_t number = scope->count_++;
  if (!scope->is_coarse_ || !scope->is_coarse_(number)) return context;
  const at::DisableRecordFunctionGuard unrecorded;
  const auto inputs = call.inputs();
  for (const size_t i : contraction->factors) {
    if (inputs[i].isTensor()) context->Exchange(inputs[i].toTensor(), scope->dropped_);
    if (!inputs[i].isTensorList()) continue;
    for (const at::Tensor& tensor : inputs[i].toTensorVector()) context->Exchange(tensor, scope->dropped_);
  }
  return context;
}

void CoarseContractionScope::End(const at::RecordFunction&, at::ObserverContext* context) {
  if (!context) return;
  --current_scope->depth_;
  static_cast<Call*>(context)->Restore();
}

CoarseContractionScope::CoarseContractionScope(int dropped, std::function<bool(size_t number)> is_coarse)
    : dropped_(dropped),
      is_coarse_(std::move(is_coarse)),
      handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(Begin, End).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
  current_scope = this;
}

CoarseContractionScope::~CoarseContractionScope() {
  at::removeCallback(handle_);
  current_scope = nullptr;
}

}  // namespace kevin
