#pragma once
// Checks of a candidate's calls: of their outputs, and of when the work was done.

#include <span>
#include <vector>

#include "env/cpu/session.h"
#include "env/verdict/verify.h"

namespace kevin {

// Compares the outputs of one slot with the truth or with the reference, by the check of the problem.
class Checker {
 public:
  explicit Checker(Session& session) : session_(session) {}

  // fp64 truth of the slot's inputs as they are now; `answer` and `reference` have one pointer an output.
  // Remembers the error of the reference, for the margin of timed checks.
  CheckResult AgainstTruth(size_t slot, std::span<const std::byte* const> answer,
                           std::span<const std::byte* const> reference);
  // Of a timed call: against the output of the reference. The truth decides where that finds an incorrect element.
  CheckResult AgainstReference(size_t slot, std::span<const std::byte* const> answer,
                               std::span<const std::byte* const> reference);

 private:
  CheckResult AgainstReferenceAlone(size_t slot, std::span<const std::byte* const> answer,
                                    std::span<const std::byte* const> reference);
  CheckShape ShapeOf(size_t output) const;
  // The values as floats: where they lie, or widened into `space`.
  std::span<const float> Floats(const TensorView& tensor, std::vector<float>* space) const;
  std::span<const float> Floats(size_t output, const std::byte* data, std::vector<float>* space) const;
  // Whether an input-output is what it was before the call.
  bool IsLeft(size_t slot, size_t output, const std::byte* answer) const;
  CheckResult Index(size_t slot, size_t output, const std::byte* answer) const;

  Session& session_;
  std::vector<float> wide_answer_, wide_reference_;
  double margin_ = 0;
};

// Words of outputs that must be final, remembered to be compared again later. The process must be stopped.
class FinalOutputs {
 public:
  FinalOutputs(const Session& session, const OutputMemory& outputs, std::span<const uint16_t> slots)
      : session_(session), outputs_(outputs), slots_(slots) {}
  void Remember(size_t call);
  // The whole of its input-outputs, by a hash: a call may write to a small part, which no few words show.
  void RememberInOuts(size_t call);
  bool Changed() const;
  bool Unwritten() const { return unwritten_ > 1; }  // words were still poison when they were remembered

 private:
  struct Seen {
    size_t call, output;
    const std::byte* place;  // of the word
    uint64_t at;             // the word's offset
    uint32_t word;
  };
  struct Whole {
    size_t call, output;
    uint64_t hash;
  };
  uint64_t HashOf(size_t call, size_t output) const;

  const Session& session_;
  const OutputMemory& outputs_;
  std::span<const uint16_t> slots_;
  SecretRandom random_;
  std::vector<Seen> seen_;
  std::vector<Whole> whole_;
  int unwritten_ = 0;
};

}  // namespace kevin
