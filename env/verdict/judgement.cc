#include "env/verdict/judgement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "env/error.h"
#include "env/process/machine.h"

namespace kevin {

void EndJudgement(bool is_candidate, const Outcome& outcome) {
  if (is_candidate) throw Ended{outcome};
  throw Error(ExitCode::kBadRequest,
              fmt::format("the kernel to compare with: {}: {}", OutcomeName(outcome), OutcomeReason(outcome)),
              "judge it alone first: kevin bench FILE --problem ID");
}

std::string AskedOwnShare(const Problem& problem) {
  const bool is_usual = problem.least_own_share == kLeastOwnShare;
  return fmt::format("{} for {:.3g} %", is_usual ? "the rules `kevin` ask" : "this problem asks",
                     problem.least_own_share * 100);
}

void MarkSamples(size_t first, const std::string& why, JudgeResult* result) {
  for (size_t i = first; i < result->samples.size(); ++i) result->samples[i].phase = why;
}

SequentialVerdicts RunSequentialTest(const SequentialPlan& plan,
                                     const std::function<RoundTimes(int pair)>& round,
                                     const std::function<void()>& start_process) {
  SequentialTest against_reference(plan.against_reference, plan.first_look);
  SequentialTest against_start(plan.against_start, plan.first_look);
  SequentialVerdicts verdicts;
  for (int pair = 0;; ++pair) {
    if (plan.rounds_of_process > 0 && pair > 0 && pair % plan.rounds_of_process == 0) {
      start_process();
      against_reference.StartProcess();
      against_start.StartProcess();
    }
    const RoundTimes times = round(pair);
    if (times.same_clock && times.believed) {
      against_reference.Add(std::log(times.reference_us / times.candidate_us));
      if (plan.has_start) against_start.Add(std::log(times.start_us / times.candidate_us));
    }
    if (verdicts.against_reference == Verdict::kAmbiguous)
      verdicts.against_reference = against_reference.Current();
    if (plan.has_start && verdicts.against_start == Verdict::kAmbiguous)
      verdicts.against_start = against_start.Current();
    const Verdict last = plan.has_start ? verdicts.against_start : verdicts.against_reference;
    const bool open = last == Verdict::kAmbiguous;
    if (!open && verdicts.against_reference != Verdict::kAmbiguous) return verdicts;
    const double patience = open ? plan.patience : 1;
    const bool late = SecondsSince(plan.begin) > plan.budget_s * patience && pair >= plan.least_rounds;
    if (pair + 1 >= plan.most_rounds * patience || late) return verdicts;
  }
}

void LeaveOutMoved(std::vector<RoundTimes>* rounds) {
  const auto moved = [](const RoundTimes& round) { return !round.same_clock; };
  if (2 * std::count_if(rounds->begin(), rounds->end(), moved) <= static_cast<int>(rounds->size()))
    std::erase_if(*rounds, moved);
}

Measured ReportRounds(std::span<const std::vector<RoundTimes>> rounds_by_process,
                      ClockCalibration against_reference, ClockCalibration against_start,
                      const SizedProblem& sized, const SequentialVerdicts& verdicts,
                      const CheckResult& verified) {
  std::vector<std::vector<double>> reference_ratios, start_ratios;
  std::vector<double> candidate_us, reference_us;
  bool has_start = false;
  for (const std::vector<RoundTimes>& process : rounds_by_process) {
    reference_ratios.emplace_back();
    start_ratios.emplace_back();
    for (const RoundTimes& round : process) {
      reference_ratios.back().push_back(std::log(round.reference_us / round.candidate_us));
      if (round.start_us > 0) start_ratios.back().push_back(std::log(round.start_us / round.candidate_us));
      has_start |= round.start_us > 0;
      candidate_us.push_back(round.candidate_us);
      reference_us.push_back(round.reference_us);
    }
  }
  Measured measured = ReportErrors(verified);
  measured.speedup = EstimateRatio(reference_ratios, against_reference);
  if (has_start) measured.against_start = EstimateRatio(start_ratios, against_start);
  measured.verdict = verdicts.against_reference;
  measured.verdict_against_start = verdicts.against_start;
  measured.candidate_us = Median(candidate_us);
  std::vector<double> all;
  for (const std::vector<double>& process : reference_ratios)
    all.insert(all.end(), process.begin(), process.end());
  // The median hides calls that are slow; the mean of the ratios does not.
  const bool hides = HasSlowPairsOfItsOwn(all, against_reference.is_quiet);
  measured.reference_us = Median(reference_us);
  if (hides)
    measured.candidate_us = std::max(measured.candidate_us, measured.reference_us / measured.speedup.value);
  measured.gb_per_s = sized.bytes / measured.candidate_us * 1e-3;
  measured.gflop_per_s = sized.flops / measured.candidate_us * 1e-3;
  return measured;
}

Measured ReportErrors(const CheckResult& verified) {
  Measured correct;
  correct.max_error = verified.max_error;
  correct.error_bound = verified.error_bound;
  return correct;
}

void RefuseImpossibleTime(const Measured& measured, const std::string& where) {
  if (!(measured.candidate_us < measured.floor_us)) return;
  throw Ended{Refused{
      fmt::format("impossible time: {:.2f} us a call, but no correct kernel can need less than {:.2f} us {}",
                  measured.candidate_us, measured.floor_us, where)}};
}

std::string InputsNote(const SizedProblem& sized, InputMode mode, int member, size_t earlier) {
  static constexpr const char* kNames[kMixtureMembers] = {"bell-shaped", "uniform in [-2, 2]", "heavy-tailed",
                                                          "bell-shaped times 8"};
  const bool has_mixture =
      std::any_of(sized.inputs.begin(), sized.inputs.end(), [&](const ConcreteTensor& input) {
        const bool is_replaced = mode == InputMode::kKernelBench && !input.spec.is_param;
        return input.spec.distribution == Distribution::kMixture && IsFloating(input.spec.dtype) &&
               !is_replaced;
      });
  if (!has_mixture || member < 0) return "";
  const bool is_shifted = member % kMixtureMembers == kMixtureMembers - 1 && mode == InputMode::kDefault &&
                          std::any_of(sized.inputs.begin(), sized.inputs.end(),
                                      [](const ConcreteTensor& input) { return input.spec.row_shift != 0; });
  std::string text = fmt::format("; of the mixture, the inputs of this call were {}{}",
                                 kNames[member % kMixtureMembers], is_shifted ? ", with shifted rows" : "");
  std::vector<std::string> before;
  for (size_t i = std::min<size_t>(earlier, kMixtureMembers - 1); i > 0; --i)
    before.emplace_back(kNames[(member + kMixtureMembers - static_cast<int>(i)) % kMixtureMembers]);
  if (earlier >= kMixtureMembers) return text + ", and calls with all four members were correct before it";
  return before.empty()
             ? text
             : text + fmt::format(", and calls with {} ones were correct before it", fmt::join(before, ", "));
}

Wrong WrongAnswer(const CheckResult& check) { return {check.message, check.max_error, check.error_bound}; }

Wrong WrongTimedAnswer(const CheckResult& check) {
  return {kInTimedCall + check.message, check.max_error, check.error_bound};
}

}  // namespace kevin
