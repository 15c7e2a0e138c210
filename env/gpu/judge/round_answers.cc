#include "env/gpu/judge/round_answers.h"

#include "env/verdict/judgement.h"

namespace kevin {

void RoundAnswers::BeforeCall() {
  if (waiting_ == kReference) return;
  if (checker_.Keep(slot_)) {
    kept_ = waiting_;
    waiting_ = kReference;
    return;
  }
  session_.TimeReferenceUs(slot_);
  After(kReference);
}

void RoundAnswers::After(int side) {
  if (side == kReference) {
    reference_ran_ = true;
  } else {
    const std::string broken = session_.BrokenGuard(slot_);
    if (!broken.empty()) fail_(side, Wrong{broken, 0, 0});
    waiting_ = side;
  }
  if (!reference_ran_) return;
  if (kept_ != kReference) Require(kept_, checker_.OfKept([this] { return Check(kept_); }));
  if (waiting_ != kReference) Require(waiting_, Check(waiting_));
  kept_ = waiting_ = kReference;
}

CheckResult RoundAnswers::Check(int side) const {
  return side == verified_ ? checker_.VerifyTimed(slot_) : checker_.AgainstReference(slot_);
}

void RoundAnswers::Require(int side, const CheckResult& check) const {
  if (!check.ok) fail_(side, WrongTimedAnswer(check));
}

}  // namespace kevin
