#include "agent/feedback.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "agent/diagnosis_text.h"
#include "agent/gpu_feedback.h"
#include "agent/knob_feedback.h"
#include "agent/rates.h"
#include "agent/shape_records.h"
#include "agent/text.h"
#include "env/problem/problem.h"
#include "env/verdict/shapes.h"

namespace kevin {
namespace {

constexpr size_t kMaxFeedbackLogBytes = 1500;

std::string Fenced(std::string_view text) {
  return fmt::format("```\n{}{}```", text, text.ends_with("\n") ? "" : "\n");
}

// Its rates, and the evidence of what limits it.
std::string Remarks(const Measured& m, const Evaluation& evaluation, const FeedbackContext& context) {
  std::string text = RateText(m, evaluation);
  if (const std::string notes = KernelNotes(evaluation, context.diagnosis); !notes.empty())
    text += "\n" + notes;
  if (const std::string advice = CeilingAdvice(m, evaluation, context.problem); !advice.empty())
    text += "\n" + advice;
  const std::string evidence = context.diagnosis ? DiagnosisText(*context.diagnosis) : "";
  return evidence.empty() ? text : text + "\n" + evidence;
}

// Of a size set with several shapes: all of them, then the remarks on the one with the smallest speed-up.
std::string ShapeRemarks(const Evaluation& evaluation, const FeedbackContext& context) {
  std::string text;
  for (const ShapeResult& shape : evaluation.shapes) text += fmt::format("- {}\n", ShapeLine(shape));
  const ShapeResult& weakest = evaluation.shapes[WeakestShape(evaluation.shapes)];
  Evaluation there = evaluation;
  there.peak_gb_per_s = weakest.peak_gb_per_s;
  there.peak_gflop_per_s = weakest.peak_gflop_per_s;
  FeedbackContext context_there = context;
  std::optional<SizedProblem> sized;
  if (context.problem)
    context_there.problem = &sized.emplace(AtSize(*context.problem->problem, weakest.size));
  return fmt::format("{}The speed-up is smallest at {}:\n{}", text, weakest.size,
                     Remarks(std::get<Measured>(weakest.outcome), there, context_there));
}

std::string Describe(const Measured& m, const Evaluation& evaluation, const FeedbackContext& context) {
  const bool has_shapes = !evaluation.shapes.empty();
  std::string text =
      fmt::format("The kernel is correct{}. Its speed-up{} is {}: {}.", has_shapes ? " at all shapes" : "",
                  has_shapes ? ", the weighted geometric mean over the shapes," : "",
                  RatioText(m.speedup.value, m.speedup.low, m.speedup.high),
                  VerdictWords(m.verdict, m.speedup, "the reference"));
  if (m.against_start) {
    const Ratio& ratio = *m.against_start;
    text += fmt::format(" Its speed-up over the start kernel is {}: {}.",
                        RatioText(ratio.value, ratio.low, ratio.high),
                        VerdictWords(m.verdict_against_start, ratio, "the start kernel"));
  }
  return text + "\n" + (has_shapes ? ShapeRemarks(evaluation, context) : Remarks(m, evaluation, context));
}

std::string Describe(const ParseFailed& o, const Evaluation&, const FeedbackContext& context) {
  return fmt::format(
      "No kernel could be read from the reply: {}. Send the complete file in one fenced block marked `{}`, and "
      "keep the reply within the length limit.",
      o.message, context.kind);
}

std::string Describe(const CompileFailed& o, const Evaluation&, const FeedbackContext& context) {
  return fmt::format("The kernel does not compile{}:\n\n{}", o.where.empty() ? "" : " " + o.where,
                     Fenced(TrimmedErrors(o.log, context.source)));
}

std::string Describe(const Refused& o, const Evaluation&, const FeedbackContext&) {
  return fmt::format(
      "The kernel was refused: {}. It must do all of its work inside each call and follow the rules.",
      Trim(o.reason));
}

std::string Describe(const Crashed& o, const Evaluation& evaluation, const FeedbackContext& context) {
  std::string text = fmt::format("The kernel compiles but crashed: {}. ", Trim(o.message));
  if (!IsForGpu(context.kind)) {
    return text +
           "Check index ranges at the ends of loops, alignment of vector loads and the size of arrays on the "
           "stack.";
  }
  text +=
      "Check the bounds of the last block, alignment of vector loads (16 bytes for float4), and the sizes "
      "of block, shared memory and workspace.";
  const std::string notes = KernelNotes(evaluation);
  return notes.empty() ? text : text + "\n" + notes;
}

std::string Describe(const TimedOut& o, const Evaluation&, const FeedbackContext& context) {
  return fmt::format(
      "The kernel did not finish: {} took longer than {:g} s. Look for an endless loop, a {}, or far too much "
      "work.",
      o.phase, o.limit_s,
      IsForGpu(context.kind)
          ? "barrier that not all threads reach, a wait for a block that is not running yet"
          : "deadlock");
}

std::string Describe(const Wrong& o, const Evaluation&, const FeedbackContext&) {
  std::string text = fmt::format("The kernel runs but its result is incorrect: {}.", TrimRight(o.message));
  if (o.error_bound > 0) {
    text += fmt::format(" The error is {:.3g} times the allowed error.", o.max_error / o.error_bound);
  }
  return text;
}

// Of a failure at one of several shapes: the shapes without one.
std::string CorrectElsewhere(const Evaluation& evaluation) {
  std::string text;
  for (const ShapeResult& shape : evaluation.shapes) {
    if (!std::holds_alternative<Measured>(shape.outcome)) continue;
    text += (text.empty() ? "It is correct at " : ", ") + ShapeName(shape.size, shape.symbols);
  }
  return text.empty() ? "" : "\n" + text + ".";
}

}  // namespace

std::string Feedback(const Evaluation& evaluation, const FeedbackContext& context) {
  std::string text = std::visit([&](const auto& outcome) { return Describe(outcome, evaluation, context); },
                                evaluation.outcome);
  if (std::holds_alternative<Crashed>(evaluation.outcome) && !Trim(evaluation.log).empty()) {
    text += "\n\nIt printed:\n\n" + Fenced(Clip(Trim(evaluation.log), kMaxFeedbackLogBytes));
  }
  if (!std::holds_alternative<Measured>(evaluation.outcome)) text += CorrectElsewhere(evaluation);
  if (const std::string notes = KnobNotes(context.trials); !notes.empty()) text += "\n" + notes;
  if (!evaluation.cached_from.empty()) {
    text += "\nAn identical kernel was judged before, and this is its stored verdict. Try something else.";
  }
  return text;
}

}  // namespace kevin
