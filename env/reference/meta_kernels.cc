// The shapes of results for operators that torch itself can run on tensors without data (its device "meta") from
// Python only. Registered with torch's dispatcher when this file is linked.

#include "env/reference/meta_kernels.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

namespace kevin {
namespace {

using at::Tensor;
using OptionalDims = at::OptionalIntArrayRef;

// The argument `out`, where there is one, or a tensor of that shape and type.
void Return(const c10::OperatorHandle& op, torch::jit::Stack* stack, at::IntArrayRef shape,
            at::ScalarType type, at::TensorOptions options) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  std::vector<c10::IValue> results;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite()) results.push_back(stack->at(i));
  }
  const bool in_place = !results.empty() && !arguments.back().is_out();
  if (!results.empty() && !in_place) results[0].toTensor().resize_(shape);
  while (results.size() < op.schema().returns().size())
    results.emplace_back(at::empty(shape, options.dtype(type).device(at::kMeta)));
  *stack = std::move(results);
}

// A result like the first tensor; in place: that tensor.
void LikeFirst(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor first = stack->at(0).toTensor();
  Return(op, stack, first.sizes(), first.scalar_type(), first.options());
}

void BoolLikeFirst(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor first = stack->at(0).toTensor();
  Return(op, stack, first.sizes(), at::kBool, first.options());
}

// Of all tensors of the arguments but `out`; where.self does not count its condition.
void Broadcast(const c10::OperatorHandle& op, torch::jit::Stack* stack, bool skip_first, bool gives_bool) {
  std::vector<int64_t> shape;
  at::native::ResultTypeState types;
  at::TensorOptions options;
  for (size_t i = 0; i < stack->size(); ++i) {
    const c10::Argument& argument = op.schema().arguments()[i];
    if (!(*stack)[i].isTensor() || argument.is_out()) continue;
    const Tensor tensor = (*stack)[i].toTensor();
    options = tensor.options();
    shape = at::infer_size(shape, tensor.sizes());
    if (i > 0 || !skip_first) types = at::native::update_result_type_state(tensor, types);
  }
  Return(op, stack, shape, gives_bool ? at::kBool : at::native::result_type(types), options);
}

void BroadcastAll(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Broadcast(op, stack, false, false);
}
void BroadcastBool(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Broadcast(op, stack, false, true);
}
void BroadcastWhere(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Broadcast(op, stack, true, false);
}

// A tensor without dimensions of the first one's type.
void Scalar(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor first = stack->at(0).toTensor();
  Return(op, stack, {}, first.scalar_type(), first.options());
}

std::vector<int64_t> ReducedShape(const Tensor& self, OptionalDims dims, bool keepdim) {
  std::vector<bool> is_reduced(static_cast<size_t>(self.dim()), !dims || dims->empty());
  if (dims) {
    for (const int64_t dim : *dims)
      is_reduced.at(static_cast<size_t>(c10::maybe_wrap_dim(dim, self.dim()))) = true;
  }
  std::vector<int64_t> shape;
  for (size_t i = 0; i < is_reduced.size(); ++i) {
    if (!is_reduced[i]) shape.push_back(self.sizes()[i]);
    if (is_reduced[i] && keepdim) shape.push_back(1);
  }
  return shape;
}

Tensor Reduced(const Tensor& self, OptionalDims dims, bool keepdim, std::optional<at::ScalarType> type = {}) {
  return at::empty(ReducedShape(self, dims, keepdim),
                   self.options().dtype(type.value_or(self.scalar_type())));
}

std::optional<at::ScalarType> SumType(const Tensor& self, std::optional<at::ScalarType> type) {
  return !type && at::isIntegralType(self.scalar_type(), true) ? at::kLong : type;
}

Tensor Convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>&,
                   at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                   at::IntArrayRef output_padding, int64_t groups) {
  const auto window = static_cast<size_t>(input.dim()) - 2;
  const auto at = [](at::IntArrayRef list, size_t i) { return list.size() == 1 ? list[0] : list[i]; };
  std::vector<int64_t> shape = {input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (size_t i = 0; i < window; ++i) {
    const int64_t size = input.sizes()[i + 2], reach = at(dilation, i) * (weight.sizes()[i + 2] - 1);
    const int64_t out =
        transposed ? (size - 1) * at(stride, i) - 2 * at(padding, i) + reach + at(output_padding, i) + 1
                   : (size + 2 * at(padding, i) - reach - 1) / at(stride, i) + 1;
    TORCH_CHECK(out > 0, "a convolution has no output");
    shape.push_back(out);
  }
  return at::empty(shape, input.options());
}

std::tuple<Tensor, Tensor, Tensor> BatchNorm(const Tensor& input, const std::optional<Tensor>&,
                                             const std::optional<Tensor>&, const std::optional<Tensor>&,
                                             const std::optional<Tensor>&, bool training, double, double) {
  const int64_t channels = training ? input.size(1) : 0;
  return {at::empty_like(input), at::empty({channels}, input.options()),
          at::empty({channels}, input.options())};
}

std::tuple<Tensor, Tensor> MaxPool3d(const Tensor& self, at::IntArrayRef kernel, at::IntArrayRef stride,
                                     at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  const auto at = [](at::IntArrayRef list, size_t i) { return list.size() == 1 ? list[0] : list[i]; };
  std::vector<int64_t> shape = self.sizes().vec();
  for (size_t i = 0; i < 3; ++i) {
    int64_t& size = shape[shape.size() - 3 + i];
    const int64_t step = stride.empty() ? at(kernel, i) : at(stride, i), pad = at(padding, i);
    const int64_t room = size + 2 * pad - at(dilation, i) * (at(kernel, i) - 1) - 1;
    int64_t out = (room + (ceil_mode ? step - 1 : 0)) / step + 1;
    if (ceil_mode && (out - 1) * step >= size + pad) --out;
    size = out;
  }
  return {at::empty(shape, self.options()), at::empty(shape, self.options().dtype(at::kLong))};
}

Tensor AdaptivePool(const Tensor& self, at::IntArrayRef output) {
  std::vector<int64_t> shape = self.sizes().vec();
  for (size_t i = 0; i < output.size(); ++i) shape[shape.size() - output.size() + i] = output[i];
  return at::empty(shape, self.options());
}

Tensor IndexSelect(const Tensor& self, int64_t dim, const Tensor& index) {
  std::vector<int64_t> shape = self.sizes().vec();
  if (!shape.empty()) shape[static_cast<size_t>(c10::maybe_wrap_dim(dim, self.dim()))] = index.numel();
  return at::empty(shape, self.options());
}

Tensor ReflectionPad2d(const Tensor& self, at::IntArrayRef padding) {
  std::vector<int64_t> shape = self.sizes().vec();
  shape.end()[-1] += padding[0] + padding[1];
  shape.end()[-2] += padding[2] + padding[3];
  return at::empty(shape, self.options());
}

Tensor Loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  return at::empty(reduction == at::Reduction::None ? at::infer_size(self.sizes(), target.sizes())
                                                    : std::vector<int64_t>(),
                   self.options());
}

using torch::CppFunction;

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  for (const char* name : {"relu",
                           "relu_",
                           "hardswish",
                           "hardswish_",
                           "hardtanh",
                           "hardtanh_",
                           "flip",
                           "roll",
                           "_prelu_kernel",
                           "_logcumsumexp",
                           "logit",
                           "logit_",
                           "channel_shuffle",
                           "angle",
                           "abs.out",
                           "zero_",
                           "fill_.Scalar",
                           "fill_.Tensor",
                           "masked_fill_.Scalar",
                           "masked_fill_.Tensor",
                           "masked_scatter_",
                           "floor_divide_.Tensor",
                           "index_fill_.int_Scalar",
                           "index_fill_.int_Tensor",
                           "cholesky",
                           "linalg_matrix_exp"})
    m.impl(name, CppFunction::makeFromBoxedFunction<&LikeFirst>());
  for (const char* name : {"isnan", "logical_not.out"})
    m.impl(name, CppFunction::makeFromBoxedFunction<&BoolLikeFirst>());
  for (const char* name : {"floor_divide", "rsub.Tensor", "ldexp.Tensor", "__lshift__.Tensor",
                           "__lshift__.Scalar", "__rshift__.Tensor", "__rshift__.Scalar"})
    m.impl(name, CppFunction::makeFromBoxedFunction<&BroadcastAll>());
  for (const char* name : {"logical_and.out", "logical_or.out", "logical_xor.out"})
    m.impl(name, CppFunction::makeFromBoxedFunction<&BroadcastBool>());
  for (const char* name : {"where.self", "where.self_out"})
    m.impl(name, CppFunction::makeFromBoxedFunction<&BroadcastWhere>());
  for (const char* name : {"max", "min", "median", "nanmedian", "trace", "dot", "vdot"})
    m.impl(name, CppFunction::makeFromBoxedFunction<&Scalar>());
  m.impl("convolution_overrideable", Convolution);
  m.impl("native_batch_norm", BatchNorm);
  m.impl("max_pool3d_with_indices", MaxPool3d);
  m.impl("_adaptive_avg_pool2d", AdaptivePool);
  m.impl("_adaptive_avg_pool3d", AdaptivePool);
  m.impl("index_select", IndexSelect);
  m.impl("take",
         [](const Tensor& self, const Tensor& index) { return at::empty(index.sizes(), self.options()); });
  m.impl("reflection_pad2d", ReflectionPad2d);
  m.impl("huber_loss", [](const Tensor& self, const Tensor& target, int64_t reduction, double) {
    return Loss(self, target, reduction);
  });
  m.impl("binary_cross_entropy", [](const Tensor& self, const Tensor& target, const std::optional<Tensor>&,
                                    int64_t reduction) { return Loss(self, target, reduction); });
  m.impl("prod", [](const Tensor& self, std::optional<at::ScalarType> type) {
    return Reduced(self, std::nullopt, false, SumType(self, type));
  });
  m.impl("nansum",
         [](const Tensor& self, OptionalDims dims, bool keepdim, std::optional<at::ScalarType> type) {
           return Reduced(self, dims, keepdim, SumType(self, type));
         });
  m.impl("count_nonzero.dim_IntList",
         [](const Tensor& self, at::IntArrayRef dims) { return Reduced(self, dims, false, at::kLong); });
  m.impl("std.correction", [](const Tensor& self, OptionalDims dims, const std::optional<at::Scalar>&,
                              bool keepdim) { return Reduced(self, dims, keepdim); });
  m.impl("var.correction", [](const Tensor& self, OptionalDims dims, const std::optional<at::Scalar>&,
                              bool keepdim) { return Reduced(self, dims, keepdim); });
  for (const char* name : {"std_mean.correction", "var_mean.correction"}) {
    m.impl(name, [](const Tensor& self, OptionalDims dims, const std::optional<at::Scalar>&, bool keepdim) {
      return std::tuple(Reduced(self, dims, keepdim), Reduced(self, dims, keepdim));
    });
  }
}

}  // namespace

void LinkMetaKernels() { LinkMetaShapes(); }

}  // namespace kevin
