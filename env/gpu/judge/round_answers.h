#pragma once
// The answers of one round of timed calls, each of which is checked against eager's for the same inputs. All kernels write to the
// same outputs of a slot. So an answer that waits for eager is checked before the next call overwrites it, or copied to
// memory that no runner maps. One thread.

#include <functional>

#include "env/gpu/judge/gpu_judge.h"
#include "env/outcome.h"

namespace kevin {

class RoundAnswers {
 public:
  static constexpr int kReference = -1;  // the side that is eager's

  // `verified`: the side whose answer is checked by the whole rule, as in verification; kReference: none. `fail` is called with
  // the first side whose answer is incorrect, and does not return.
  RoundAnswers(GpuSession& session, GpuChecker& checker, int slot, int verified,
               std::function<void(int side, const Wrong& wrong)> fail)
      : session_(session), checker_(checker), slot_(slot), verified_(verified), fail_(std::move(fail)) {}

  // Before each call of a candidate. Where there is no memory for a copy, eager runs once more.
  void BeforeCall();
  // After each call of a side.
  void After(int side);

 private:
  CheckResult Check(int side) const;
  void Require(int side, const CheckResult& check) const;

  GpuSession& session_;
  GpuChecker& checker_;
  const int slot_, verified_;
  const std::function<void(int side, const Wrong& wrong)> fail_;
  bool reference_ran_ = false;
  int waiting_ = kReference, kept_ = kReference;  // sides whose answers are not checked yet; kReference: none
};

}  // namespace kevin
