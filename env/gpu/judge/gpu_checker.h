#pragma once
// Correct or incorrect on the GPU: the rule of env/verdict/verify.h, computed on the device.

#include "env/gpu/judge/gpu_session.h"
#include "env/verdict/verify.h"

namespace kevin {

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
  // The outputs of the slot against the fp64 truth of its present inputs. The reference must have run on the
  // slot. Remembers the error of the reference, for the margin of timed checks.
  CheckResult AgainstTruth(int slot) { return AgainstTruth(slot, TruthOf(slot)); }
  CheckResult AgainstTruth(int slot, const SlotTruth& truth);
  CheckResult AgainstReference(int slot);

 private:
  CheckResult Floats(int slot, size_t output, const TensorView& reference, const double* truth,
                     const double* scale);
  bool SurelyCorrect(int slot, size_t output, const TensorView& reference);
  CheckResult Index(int slot, size_t output, const TensorView& reference);

  GpuSession& session_;
  DeviceBuffer sums_, errors_, verdict_;
  double margin_ = 0;
};

}  // namespace kevin
