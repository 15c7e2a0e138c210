#pragma once
// Compares one slot's outputs with the truth or with the reference, by the problem's own check.

#include <span>
#include <vector>

#include "env/cpu/session.h"
#include "env/verdict/verify.h"

namespace kevin {

class Checker {
 public:
  explicit Checker(Session& session) : session_(session) {}

  // fp64 truth of the slot's inputs as they are now; `answer` and `reference` have one pointer an output.
  // Remembers how far the reference was off, for the margin of timed checks.
  CheckResult AgainstTruth(size_t slot, std::span<const std::byte* const> answer,
                           std::span<const std::byte* const> reference);
  CheckResult AgainstReference(size_t slot, std::span<const std::byte* const> answer,
                               std::span<const std::byte* const> reference);

 private:
  CheckShape ShapeOf(size_t output) const;
  // The values as floats: where they lie, or widened into `space`.
  std::span<const float> Floats(const TensorView& tensor, std::vector<float>* space) const;
  std::span<const float> Floats(size_t output, const std::byte* data, std::vector<float>* space) const;
  CheckResult Index(size_t slot, size_t output, const std::byte* answer) const;

  Session& session_;
  std::vector<float> wide_answer_, wide_reference_;
  double margin_ = 0;
};

}  // namespace kevin
