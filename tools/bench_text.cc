#include "tools/bench_text.h"

#include <fmt/format.h>

#include "agent/diagnosis_text.h"
#include "agent/gpu_feedback.h"
#include "agent/knob_feedback.h"
#include "agent/rates.h"
#include "agent/terminal.h"
#include "env/verdict/shapes.h"
#include "env/verdict/words.h"
#include "tools/device_options.h"
#include "tools/episode_text.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

std::string RatioOf(const Ratio& ratio) { return RatioText(ratio.value, ratio.low, ratio.high); }

std::vector<std::string> RowOf(const std::string& name, const Outcome& outcome) {
  const Measured* measured = std::get_if<Measured>(&outcome);
  if (!measured) return {name, OutcomeName(outcome)};
  return {name,
          OutcomeName(outcome),
          RatioOf(measured->speedup),
          VerdictWord(measured->verdict, measured->speedup),
          fmt::format("{:.1f}", measured->candidate_us),
          fmt::format("{:.1f}", measured->reference_us),
          fmt::format("{:.1f}", measured->gb_per_s),
          fmt::format("{:.1f}", measured->gflop_per_s),
          fmt::format("{:.2g} of {:.2g}", measured->max_error, measured->error_bound)};
}

// Its rates against the machine's ceilings, the kernels of a GPU candidate, and the diagnosis.
void PrintRates(const Judged& judged) {
  const Evaluation& evaluation = judged.evaluation;
  const Diagnosis* diagnosis = judged.diagnosis ? &*judged.diagnosis : nullptr;
  std::string text;
  const auto* m = std::get_if<Measured>(&evaluation.outcome);
  if (m != nullptr && evaluation.shapes.empty()) text = RateText(*m, evaluation) + "\n";
  if (const std::string notes = KernelNotes(evaluation, diagnosis); !notes.empty()) text += notes + "\n";
  if (diagnosis != nullptr) text += DiagnosisTextOf(judged) + "\n";
  if (!text.empty()) PrintFormat(stdout, "\n{}: {}", judged.path, text);
}

void PrintOverBaseline(const Judged& judged, const std::optional<Baseline>& baseline) {
  const Measured* measured = std::get_if<Measured>(&judged.evaluation.outcome);
  if (!measured) return;
  const std::string over_baseline = OverBaselineText(baseline, measured->speedup.value);
  if (!over_baseline.empty())
    PrintFormat(stdout, "\n{}: {:.3g}x over eager{}\n", judged.path, measured->speedup.value, over_baseline);
}

// The settings of a kernel's knobs as they were tried, and the one that was judged.
std::string KnobText(const Judged& judged) {
  if (judged.trials.empty()) return "";
  return fmt::format(
      "{}: {} judged{}\n{}\n", judged.path, SettingLine(ChosenTrial(judged.trials)->setting),
      judged.trials.size() > 1 ? ", the fastest in short timings of:\n" : ", no other setting was tried",
      judged.trials.size() > 1 ? TrialTable(judged.trials) : "");
}

}  // namespace

std::string DiagnosisTextOf(const Judged& judged) {
  if (!judged.diagnosis) return "";
  const auto* measured = std::get_if<Measured>(&judged.evaluation.outcome);
  return DiagnosisText(*judged.diagnosis, measured != nullptr ? measured->candidate_us : 0);
}

void PrintBenchReport(const std::vector<Judged>& all, const Problem& problem,
                      const std::optional<Baseline>& baseline, const EnvironmentFacts& facts) {
  const Evaluation& last = all.back().evaluation;
  PrintFormat(stdout, "{} {} at size {}{}, inputs {}{}, on {}, isolation {}{}{}\n\n", problem.id,
              problem.name, last.workload.size, PrecisionNote(last.workload.precision), last.workload.inputs,
              RulesNote(last.backend, last.workload.rules), last.device, last.isolation,
              last.workload.tf32 ? ", TF32 allowed" : "", BaselineNote(baseline, problem, facts));
  for (const Judged& judged : all) Print(stdout, KnobText(judged));
  std::vector<std::vector<std::string>> table{{"kernel", "outcome", "speed-up over eager (99 % interval)",
                                               "against eager", "us", "eager us", "GB/s", "GFLOP/s",
                                               "error"}};
  for (const Judged& judged : all) {
    table.push_back(RowOf(judged.path, judged.evaluation.outcome));
    for (const ShapeResult& shape : judged.evaluation.shapes) {
      table.push_back(
          RowOf(fmt::format("  {}, weight {:g}", ShapeName(shape.size, shape.symbols), shape.weight),
                shape.outcome));
    }
  }
  Print(stdout, AlignedTable(table));
  if (!last.shapes.empty())
    PrintFormat(stdout, "\nOf several shapes the first row is the weighted geometric mean.\n");
  for (const Judged& judged : all) {
    const std::string reason = OutcomeReason(judged.evaluation.outcome);
    if (!reason.empty()) PrintFormat(stdout, "\n{}: {}\n", judged.path, reason);
    PrintOverBaseline(judged, baseline);
    PrintRates(judged);
  }
  const Measured* measured = std::get_if<Measured>(&last.outcome);
  if (measured && measured->against_start) {
    PrintFormat(stdout, "\n{} against {}, in the same pairs: {}  {}\n", all.back().path, all.front().path,
                RatioOf(*measured->against_start),
                VerdictWord(measured->verdict_against_start, *measured->against_start));
    for (const ShapeResult& shape : last.shapes) {
      const auto& there = std::get<Measured>(shape.outcome);
      PrintFormat(stdout, "  {}: {}  {}\n", ShapeName(shape.size, shape.symbols),
                  RatioOf(*there.against_start),
                  VerdictWord(there.verdict_against_start, *there.against_start));
    }
  }
}

}  // namespace kevin
