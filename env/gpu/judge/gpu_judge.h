#pragma once
// START HERE for the GPU. What the evaluator decides: the verdict on one compiled candidate, the admission of a
// problem, and the cost of preparing one.
//
// A candidate must be correct on fresh seeds first; then it is timed against eager in pairs of single calls,
// by the rules of env/verdict/README.md. The rules it shares with the CPU are in
// env/verdict/judgement.h. Every call, also in verification, is made in the same way and looks the same from
// inside: new inputs and weights, poisoned outputs and workspaces, scrubbed shared memory, flushed L2. The
// check of the events by the wall clock (env/verdict/call_clock.h) is over the timed calls themselves.

#include <functional>
#include <span>
#include <vector>

#include "env/error.h"
#include "env/gpu/judge/gpu_session.h"
#include "env/gpu/runner/driver.h"
#include "env/verdict/admission.h"
#include "env/verdict/judgement.h"
#include "env/verdict/verify.h"

namespace kevin {

struct GpuJudgeRequest : JudgeOptions {
  LaunchPlan plan;
  std::optional<LaunchPlan> start_plan;  // the kernel to pair against as well
  double call_timeout_s = 20;
  bool is_alone = false;  // no other session has memory of the device
  std::function<void(const std::string& phase)> on_phase;
};

// Throws Error for what the candidate did not cause; the evaluation is then void. kMachine: the GPU itself
// fails. OutOfMemory where a kernel does not fit beside other sessions; where there are none, the candidate has crashed.
JudgeResult JudgeOnGpu(GpuSession& session, const GpuJudgeRequest& request);

// Admission at sizes that only fit on a GPU: the decoys of env/verdict/admission.h, made on the device in the
// output memory of one slot, so that only one slot and one fp64 truth must fit. Decoys "from rounded inputs"
// or "from other values" come from eager here, not from the truth. In 16 bits this check cannot find out
// whether a coarse answer lies within the rounding of the outputs: one that passes counts against the
// problem, and its reason says so. Takes the lock of the GPU, shared. Throws DriverError, Error.
std::vector<DecoyResult> AdmitOnGpu(GpuSession& session);

// The cost of everything before a first candidate can be judged: seconds and memory.
struct GpuPreparation {
  double session_s = 0;    // reference compiled, memory laid out, peaks measured, eager warm
  double draw_s = 0;       // inputs and weights of one slot, anew
  double reference_s = 0;  // eager, once
  double truth_s = 0;      // fp64, once
  int slots = 0;
  int64_t used_bytes = 0, total_bytes = 0;  // of the GPU; torch keeps what it has allocated
};

// Everything but session_s.
GpuPreparation PrepareOnGpu(GpuSession& session);

// A driver call that fails in trusted work, as an Error(kMachine).
template <typename Work>
auto NamingDriverFailures(const Work& work) {
  try {
    return work();
  } catch (const DriverError& error) {
    throw Error(
        ExitCode::kMachine, "the GPU fails in Kevin's own work: " + error.text(),
        "see `nvidia-smi` and the kernel's log (Xid); reset the GPU or use another with --device cuda:N");
  }
}

// Correct or incorrect on the GPU: the rule of env/verdict/verify.h, computed on the device.

// fp64 outputs for a slot's inputs; none where all outputs are indices.
struct SlotTruth {
  std::vector<DoubleTensor> outputs;
  DoubleTensor scale;
};

// The trusted kernel NAME for tensors of a type: "kevin_fill", "kevin_fill_f16", "kevin_fill_bf16".
std::string KernelFor(const std::string& name, DType dtype);

class GpuChecker {
 public:
  explicit GpuChecker(GpuSession& session) : session_(session) {}
  SlotTruth TruthOf(int slot);
  bool has_computed_truth() const { return has_computed_truth_; }
  // The outputs of the slot against the fp64 truth of its present inputs. The reference must have run on the
  // slot. Remembers the error of the reference, for the margin of timed checks.
  CheckResult AgainstTruth(int slot) { return AgainstTruth(slot, TruthOf(slot)); }
  CheckResult AgainstTruth(int slot, const SlotTruth& truth);
  // Of a timed call: against the output of the reference. The truth decides where that finds an incorrect element, unless it is
  // off by a hundred bounds.
  CheckResult AgainstReference(int slot);
  // The verdict of AgainstTruth, without the truth where the reference decides, once an evaluation of the session has had it: a
  // truth takes longer than all else of an evaluation.
  // - Off by a hundred bounds of a timed call: incorrect.
  // - In fp32, with y the answer, r the reference, t the truth, e = |r - t|, F the floor of the bound at t, s its scale: where
  //   |y - r| is at most half of the floor at r, |y - t| <= F / 2 + e (1 + small), and that is within max(4 e, F), whether e is
  //   below F / 4 or above, as long as the RMS of e along a row is less than half of s. The largest e / s of the session's truths
  //   must be a tenth of that. The bound that is told is then F, and the error |y - r|.
  CheckResult Verify(int slot) {
    return VerifyWith(slot, [&] { return AgainstTruth(slot); });
  }
  // The same of a timed call. As AgainstReference where there is no memory for the truth.
  CheckResult VerifyTimed(int slot) {
    return VerifyWith(slot, [&] { return AgainstTruthIfItFits(slot); });
  }
  // Copies the slot's outputs to memory that no runner maps, for OfKept: the next call may then overwrite them. False: there
  // is no memory for it.
  bool Keep(int slot);
  // A check of the outputs that were kept. Words that were never written are not named as such.
  CheckResult OfKept(const std::function<CheckResult()>& check);
  // Whether all of these slots are correct without doubt, by one look for all. False says nothing.
  bool AreSurelyCorrect(std::span<const uint16_t> slots);

 private:
  CheckResult Floats(int slot, size_t output, const TensorView& reference, const double* truth,
                     const double* scale, bool describes = true);
  CheckResult AgainstReferenceAlone(int slot, bool describes = true);
  CheckResult AgainstTruthIfItFits(int slot);
  CheckResult VerifyWith(int slot, const std::function<CheckResult()>& against_truth);
  CheckResult NearReference(int slot);
  bool SurelyCorrect(int slot, size_t output, const TensorView& reference);
  void CountDoubtful(int slot, size_t output, const TensorView& reference);
  CheckResult Index(int slot, size_t output, const TensorView& reference);

  CuDevicePtr Answer(int slot, size_t output) const;

  GpuSession& session_;
  DeviceBuffer sums_, errors_, verdict_;
  std::vector<DeviceBuffer> kept_;  // one an output; empty before the first Keep
  bool checks_kept_ = false;
  bool has_computed_truth_ = false;
  double margin_ = 0;
};

}  // namespace kevin
