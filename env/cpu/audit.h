#pragma once
// Looks while a batch is under way and tells whether each call did its own work in its own time. A candidate
// can find out how long a batch is and where its buffers lie, and it can forge every count in the hand-over
// page, so only two things are proof, and both are looked for:
//   deferred      the outputs of a call that counts as returned are unfinished, or change afterwards;
//   worked ahead  inputs of calls that have not begun are changed under way, and an answer does not show it.
// Unannounced and otherwise like a timed batch, whose time is then not used.

#include <span>
#include <vector>

#include "env/cpu/session.h"

namespace kevin {

// Words of outputs that must be final, remembered to be looked at again later.
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

class Audit {
 public:
  Audit(Session& session, Side& side, const OutputMemory& outputs, std::span<const uint16_t> slots,
        double expected_us);

  // What Side::RunBatch calls while the batch runs.
  void Watch();
  // After the batch.
  bool Deferred() const { return final_.Unwritten() || final_.Changed(); }
  // Calls whose inputs were changed before they began: their answers must be those to the inputs as they are
  // now. The answers of calls that may have begun meanwhile say nothing.
  enum class Inputs { kAsDrawn, kChangedBefore, kChangedPerhapsDuring };
  Inputs InputsOf(size_t call) const { return inputs_[call]; }

 private:
  void ChangeInputs(size_t first_call);

  Session& session_;
  Side& side_;
  std::span<const uint16_t> slots_;
  FinalOutputs final_;
  std::vector<double> moments_us_;
  std::vector<Inputs> inputs_;
};

}  // namespace kevin
