#include "env/cpu/checks.h"

#include <algorithm>
#include <cstring>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

template <typename T>
std::span<const T> SpanOf(const void* data, int64_t elements) {
  return {static_cast<const T*>(data), static_cast<size_t>(elements)};
}

template <typename Narrow>
std::span<const float> Widened(const void* data, int64_t elements, int threads, std::vector<float>* space) {
  const auto* narrow = static_cast<const Narrow*>(data);
  space->resize(static_cast<size_t>(elements));
  float* wide = space->data();
  ParallelFor(elements, 1 << 16, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) wide[i] = ToFloat(narrow[i]);
  });
  return *space;
}

}  // namespace

CheckShape Checker::ShapeOf(size_t output) const {
  const ConcreteTensor& tensor = session_.sized().outputs[output];
  return {tensor.spec.name, tensor.shape, session_.sized().reduction, tensor.spec.dtype,
          session_.sized().problem->error_spread};
}

std::span<const float> Checker::Floats(const TensorView& tensor, std::vector<float>* space) const {
  const int64_t elements = ElementCount(tensor.shape);
  const int threads = session_.options().threads;
  if (tensor.dtype == DType::kF16) return Widened<Float16>(tensor.data, elements, threads, space);
  if (tensor.dtype == DType::kBF16) return Widened<BFloat16>(tensor.data, elements, threads, space);
  return SpanOf<float>(tensor.data, elements);
}

std::span<const float> Checker::Floats(size_t output, const std::byte* data,
                                       std::vector<float>* space) const {
  const ConcreteTensor& tensor = session_.sized().outputs[output];
  return Floats({const_cast<std::byte*>(data), tensor.spec.dtype, tensor.shape}, space);
}

CheckResult Checker::Index(size_t slot, size_t output, const std::byte* answer) const {
  const Problem& problem = *session_.sized().problem;
  if (!problem.extreme_dim) {
    throw Error(ExitCode::kBadRequest, problem.id + ": an integer output needs check.extreme_dim",
                "say in [check] along which dimension it points at an extreme value");
  }
  const TensorView values = session_.Inputs(slot)[0];
  const ConcreteTensor& tensor = session_.sized().outputs[output];
  std::vector<float> space;
  return CheckExtremeIndex(tensor.spec.name, SpanOf<int64_t>(answer, tensor.elements), Floats(values, &space),
                           values.shape, *problem.extreme_dim, problem.extreme_is_max);
}

bool Checker::IsLeft(size_t slot, size_t output, const std::byte* answer) const {
  const auto input = InOutOf(*session_.sized().problem, output);
  if (!input) return false;
  const auto bytes = static_cast<size_t>(session_.sized().outputs[output].bytes);
  return std::memcmp(session_.Inputs(slot)[*input].data, answer, bytes) == 0;
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
          ShapeOf(o), Floats(o, answer[o], &wide_answer_), Floats(o, reference[o], &wide_reference_),
          truth[o].values(), o == 0 ? scale.values() : std::span<const double>(), session_.options().threads);
      margin_ = std::max(margin_, 10 * result.reference_error);
    }
    if (!result.ok && IsLeft(slot, o, answer[o]))
      result.message = "input-output `" + tensor.spec.name + "` was left as it was before the call";
    if (!result.ok) return result;
    if (o == 0 || IsNearerItsBound(result, worst)) worst = result;
  }
  return worst;
}

CheckResult Checker::AgainstReference(size_t slot, std::span<const std::byte* const> answer,
                                      std::span<const std::byte* const> reference) {
  const CheckResult result = AgainstReferenceAlone(slot, answer, reference);
  return result.ok ? result : AgainstTruth(slot, answer, reference);
}

CheckResult Checker::AgainstReferenceAlone(size_t slot, std::span<const std::byte* const> answer,
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
        ShapeOf(o), Floats(o, answer[o], &wide_answer_), Floats(o, reference[o], &wide_reference_),
        o == 0 ? scale.values() : std::span<const double>(), margin_, session_.options().threads);
  }
  return result;
}

namespace {

constexpr int kProbes = 24;  // words looked at in each output

uint32_t WordAt(const std::byte* place) {
  uint32_t word = 0;
  std::memcpy(&word, place, sizeof(word));
  return word;
}

}  // namespace

void FinalOutputs::Remember(size_t call) {
  for (size_t o = 0; o < session_.sized().outputs.size(); ++o) {
    const std::byte* data = session_.Output(outputs_, slots_[call], o);
    const auto words = static_cast<uint64_t>((session_.sized().outputs[o].bytes + 3) / 4);
    for (int probe = 0; probe < kProbes; ++probe) {
      const uint64_t at = probe == 0 ? 0 : probe == 1 ? words - 1 : random_() % words;
      seen_.push_back({call, o, data + at * 4, at * 4, WordAt(data + at * 4)});
      unwritten_ += session_.IsUnwritten(outputs_, slots_[call], o, at);
    }
  }
}

void FinalOutputs::RememberInOuts(size_t call) {
  for (size_t o = 0; o < session_.sized().outputs.size(); ++o) {
    if (session_.sized().outputs[o].spec.is_inout) whole_.push_back({call, o, HashOf(call, o)});
  }
}

// Not secret: who wants to change the memory later does not know when it is looked at.
uint64_t FinalOutputs::HashOf(size_t call, size_t output) const {
  const std::byte* data = session_.Output(outputs_, slots_[call], output);
  const int64_t bytes = session_.sized().outputs[output].bytes;
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (int64_t at = 0; at < bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, static_cast<size_t>(std::min<int64_t>(8, bytes - at)));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

bool FinalOutputs::Changed() const {
  const auto differs = [&](const Whole& one) { return HashOf(one.call, one.output) != one.hash; };
  if (std::any_of(whole_.begin(), whole_.end(), differs)) return true;
  return std::any_of(seen_.begin(), seen_.end(), [&](const Seen& seen) {
    // A Python worker may name another place in the end.
    return session_.Output(outputs_, slots_[seen.call], seen.output) + seen.at != seen.place ||
           WordAt(seen.place) != seen.word;
  });
}

}  // namespace kevin
