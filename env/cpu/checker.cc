#include "env/cpu/checker.h"

#include "env/error.h"

namespace kevin {
namespace {

template <typename T>
std::span<const T> SpanOf(const void* data, int64_t elements) {
  return {static_cast<const T*>(data), static_cast<size_t>(elements)};
}

}  // namespace

CheckShape Checker::ShapeOf(size_t output) const {
  const ConcreteTensor& tensor = session_.sized().outputs[output];
  return {tensor.spec.name, tensor.shape, session_.sized().reduction};
}

CheckResult Checker::Index(size_t slot, size_t output, const std::byte* answer) const {
  const Problem& problem = *session_.sized().problem;
  if (!problem.extreme_dim) {
    throw Error(ExitCode::kBadRequest, problem.id + ": an integer output needs check.extreme_dim",
                "say in [check] along which dimension it points at an extreme value");
  }
  const TensorView values = session_.Inputs(slot)[0];
  const ConcreteTensor& tensor = session_.sized().outputs[output];
  return CheckExtremeIndex(tensor.spec.name, SpanOf<int64_t>(answer, tensor.elements),
                           SpanOf<float>(values.data, ElementCount(values.shape)), values.shape,
                           *problem.extreme_dim, problem.extreme_is_max);
}

CheckResult Checker::AgainstTruth(size_t slot, std::span<const std::byte* const> answer,
                                  std::span<const std::byte* const> reference) {
  const std::vector<TensorView> inputs = session_.Inputs(slot);
  CheckResult worst;
  std::vector<DoubleTensor> truth;
  DoubleTensor scale;
  for (size_t o = 0; o < session_.sized().outputs.size(); ++o) {
    const ConcreteTensor& tensor = session_.sized().outputs[o];
    CheckResult result;
    if (tensor.spec.dtype == DType::kI64) {
      result = Index(slot, o, answer[o]);
    } else {
      if (truth.empty()) {
        truth = session_.truth().Truth(inputs);
        scale = session_.truth().Scale(inputs);
      }
      result = CheckAgainstTruth(
          ShapeOf(o), SpanOf<float>(answer[o], tensor.elements), SpanOf<float>(reference[o], tensor.elements),
          truth[o].values(), o == 0 ? scale.values() : std::span<const double>(), session_.options().threads);
      margin_ = std::max(margin_, 10 * result.reference_error);
    }
    if (!result.ok) return result;
    if (o == 0 || result.max_error * worst.error_bound > worst.max_error * result.error_bound) worst = result;
  }
  return worst;
}

CheckResult Checker::AgainstReference(size_t slot, std::span<const std::byte* const> answer,
                                      std::span<const std::byte* const> reference) {
  CheckResult result;
  DoubleTensor scale;
  for (size_t o = 0; o < session_.sized().outputs.size() && result.ok; ++o) {
    const ConcreteTensor& tensor = session_.sized().outputs[o];
    if (tensor.spec.dtype == DType::kI64) {
      result = Index(slot, o, answer[o]);
      continue;
    }
    if (o == 0) scale = session_.truth().Scale(session_.Inputs(slot));
    result = CheckAgainstReference(
        ShapeOf(o), SpanOf<float>(answer[o], tensor.elements), SpanOf<float>(reference[o], tensor.elements),
        o == 0 ? scale.values() : std::span<const double>(), margin_, session_.options().threads);
  }
  return result;
}

}  // namespace kevin
