#pragma once
// Audits: whether each call of a batch does its own work in its own time. The inputs of a batch lie ready when
// it starts, so that a call could compute what later calls are asked for. Batches of one call have no later
// calls and need no audit.

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "env/cpu/checks.h"
#include "env/verdict/pace.h"

namespace kevin {

// When an audit pauses a batch and what it changes.
struct AuditPlan {
  std::vector<double> moments_us;
  bool redraws = false;  // at the first pause: inputs are drawn anew; else one element in 256 changes
  bool changes = true;   // false: the same pauses, but inputs stay
  // Before the batch. A kernel can feel that they are gone, because first accesses to its own pages take longer then; so
  // there are audits of both kinds.
  bool removes_marks = true;
  // The first pause comes within the first tenth of the batch: a kernel that is honest from its first pause on is so in nearly
  // all of it, and as slow as without work ahead.
  bool is_early = false;
};
// `usual_us`: of a timed batch of as many calls. `inputs_bytes`: of all slots; where they are few there are more pauses. Half
// of the audits are early unless `is_early` says which, also of those that remove marks: what is computed ahead at the beginning of a batch alone is found
// by its marks where times are too noisy to show it.
AuditPlan DrawAuditPlan(double usual_us, size_t calls, int64_t inputs_bytes, bool removes_marks,
                        SecretRandom& random, std::optional<bool> is_early = std::nullopt);

// One audited batch: unannounced, and like a timed batch until its first pause. A candidate can find out how
// long a batch is and where its buffers lie, and it can forge every count in the shared control page. While
// the process is stopped at a random moment,
//
//   - outputs of calls that count as returned must be finished, and may not change any more;
//   - input-outputs of calls that count as returned are compared as a whole with what they are after the batch: what a
//     call writes into them may be a small part. Those of calls that have not begun get their values again, changed or
//     not, so that nothing written ahead stays;
//   - inputs of calls that have not begun are changed, at random places or all of them. A call that does not
//     answer its inputs as they are now has worked ahead. One that notices and computes again takes longer
//     than without changes (AuditedPace).
//   - inputs of calls that have not begun may not have been read, by the marks in the page table of the process where they
//     were removed before.
//     Whoever else maps the inputs has no marks either while a batch runs that may refuse the kernel (OtherMarks):
//     theirs would become its own when the kernel's memory management ages a page.
//     A processor marks only what it looks up in the page table: it must not remember translations (FlushTranslations).
//     This needs no clock: a kernel that is only a few calls ahead loses little when it computes again. Each input of
//     each slot is mapped on its own, behind pages of zeros (inputs_apart.h), so that neither a processor that
//     guesses nor a kernel that prefetches touches a neighbour.
//
// The time of the batch is not used otherwise. Needs a stopped process.
class Audit {
 public:
  // Whether this process, the session's reference and `start`, the kernel that is compared (null: none), lose their marks
  // too. They visit all slots before they are timed again: first accesses take longer.
  struct OtherMarks {
    bool are_removed = false;
    const BatchProcess* start = nullptr;
  };

  // Removes the marks of `process` where the plan says so.
  Audit(Session& session, const BatchProcess& process, const OutputMemory& outputs,
        std::span<const uint16_t> slots, const AuditPlan& plan, OtherMarks others);

  // For BatchProcess::RunBatch. Valid as long as this object.
  BatchPauses Pauses();

  // After the batch.
  bool Deferred() const { return !located_ || final_.Unwritten() || final_.Changed(); }
  bool WereInputsChanged(size_t call) const { return changed_[call]; }
  // False where the batch ended before the first pause.
  bool Happened() const { return pauses_ > 0; }
  // Inputs of a call that had not begun were read.
  bool ReadAhead() const { return read_ahead_; }
  // Whether the marks were removed, so that they tell what was read.
  bool MarksWork() const { return marks_work_; }
  // Without what stopping took: on a busy machine that hides the pace.
  double RanUs() const { return ran_us_; }
  // Shares of the batch's time, and of its CPU time, that had passed at the first pause, less the share of the calls.
  // On a busy machine a correct kernel waits for a processor first, which its time shows as a lag and its CPU time
  // does not.
  double Lag() const { return first_pause_us_ / ran_us_ - finished_; }
  double CpuLag() const {
    return (first_pause_cpu_s_ - cpu_begin_s_) / (cpu_end_s_ - cpu_begin_s_) - finished_;
  }
  // Shares of the calls that had returned at the first pause, less those of the time and the CPU time that had passed: not
  // above 0 where calls take turns.
  double Ahead() const { return -Lag() - 0.5 / static_cast<double>(slots_.size()); }
  double CpuAhead() const { return -CpuLag() - 0.5 / static_cast<double>(slots_.size()); }
  void AfterBatch() { cpu_end_s_ = process_.CpuSeconds(); }
  // How long the process was kept stopped before the batch to remove its marks.
  double MarksSeconds() const { return marks_s_; }

 private:
  void OnPause(double ran_us);
  bool WasReadAhead(size_t begun) const;
  bool DoMarksWork();

  Session& session_;
  const BatchProcess& process_;
  const OutputMemory& outputs_;
  std::span<const uint16_t> slots_;
  const AuditPlan& plan_;
  FinalOutputs final_;
  std::vector<bool> changed_;
  size_t seen_calls_ = 0;  // whose outputs were remembered
  int pauses_ = 0;
  bool located_ = true;  // a Python worker has named the outputs of the calls that had returned
  const OtherMarks others_;
  double marks_s_ = 0;
  bool read_ahead_ = false, marks_work_ = false;
  double ran_us_ = 0, first_pause_us_ = 0, finished_ = 0;  // finished_: share of the calls at the first pause
  double cpu_begin_s_ = 0, first_pause_cpu_s_ = 0, cpu_end_s_ = 0;
};

}  // namespace kevin
