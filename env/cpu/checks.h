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

// Words of outputs that must be final, remembered to be compared again later.
class FinalOutputs {
 public:
  FinalOutputs(Session& session, const OutputMemory& outputs, std::span<const uint16_t> slots)
      : session_(session), outputs_(outputs), slots_(slots) {}
  // Of the first `calls` calls of the batch.
  void Remember(size_t calls);
  bool Changed() const;
  bool Unwritten() const;  // some were still poison when they were remembered

 private:
  struct Seen {
    const std::byte* place;
    uint32_t word;
  };
  Session& session_;
  const OutputMemory& outputs_;
  std::span<const uint16_t> slots_;
  std::vector<Seen> seen_;
};

// Looks while a batch is under way and finds out whether each call did its own work in its own time. A
// candidate can find out how long a batch is and where its buffers lie, and it can forge every count in the
// shared control page. Only two things are proof, and both are looked for:
//
//   deferred      the outputs of a call that counts as returned are unfinished, or change afterwards
//   worked ahead  inputs of calls that have not begun are changed during the batch, without effect on an answer
//
// Unannounced and otherwise like a timed batch; its time is not used.
class Audit {
 public:
  Audit(Session& session, BatchProcess& process, const OutputMemory& outputs, std::span<const uint16_t> slots,
        double expected_us);

  // What BatchProcess::RunBatch calls while the batch runs.
  void Watch();
  // After the batch.
  bool Deferred() const { return final_.Unwritten() || final_.Changed(); }
  // Calls whose inputs were changed before they began must answer the inputs as they are now. The answers of
  // calls that may have begun meanwhile say nothing.
  enum class Inputs { kAsDrawn, kChangedBefore, kChangedPerhapsDuring };
  Inputs InputsOf(size_t call) const { return inputs_[call]; }

 private:
  void ChangeInputs(size_t first_call);

  Session& session_;
  BatchProcess& process_;
  std::span<const uint16_t> slots_;
  FinalOutputs final_;
  std::vector<double> moments_us_;
  std::vector<Inputs> inputs_;
};

}  // namespace kevin
