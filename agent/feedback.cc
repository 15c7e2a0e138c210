#include "agent/feedback.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "agent/code_text.h"
#include "agent/gpu_feedback.h"
#include "agent/knob_feedback.h"
#include "agent/ranking.h"
#include "agent/shape_records.h"
#include "agent/text.h"
#include "env/problem/problem.h"
#include "env/verdict/shapes.h"

namespace kevin {
namespace {

constexpr size_t kMaxFeedbackLogBytes = 1500;
constexpr size_t kMaxSignatureBytes = 400;
constexpr const char* kSignatureFile = "required-signature:";  // as env/cpu/compile.cc names it
constexpr double kNearFloor = 1.25;  // times the smallest possible time; below it only details remain

std::string Fenced(std::string_view text) {
  return fmt::format("```\n{}{}```", text, text.ends_with("\n") ? "" : "\n");
}

// A reply may hold fences of its own.
std::string FencedReply(std::string_view text) {
  std::string fence = "~~~~";
  while (text.find(fence) != std::string_view::npos) fence += "~";
  return fmt::format("{}\n{}\n{}", fence, TrimRight(text), fence);
}

const char* VerdictWords(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFast:
      return "faster than the reference";
    case Verdict::kSlow:
      return "slower than the reference";
    case Verdict::kSame:
      return "as fast as the reference";
    case Verdict::kAmbiguous:
      return "too close to the reference to decide";
  }
  return "";
}

std::string Rates(const Measured& m, const FeedbackContext& context) {
  std::string text = fmt::format("One call takes {} us, the reference {} us. That is {} GB/s and {} GFLOP/s",
                                 SignificantText(m.candidate_us, 4), SignificantText(m.reference_us, 4),
                                 SignificantText(m.gb_per_s, 3), SignificantText(m.gflop_per_s, 3));
  if (m.floor_us > 0) {
    text += fmt::format(
        "; the smallest possible time on this machine is {} us, and this kernel takes {} times that",
        SignificantText(m.floor_us, 4), SignificantText(m.candidate_us / m.floor_us, 3));
  }
  text += ".";
  if (context.problem == nullptr || context.problem->bytes <= 0) return text;
  const double intensity = context.problem->flops / context.problem->bytes;
  switch (RooflineBound(*context.problem)) {
    case Bound::kMemory:
      return text + fmt::format(" At {:.2g} flop per byte the operation is memory-bound.", intensity);
    case Bound::kCompute:
      return text + fmt::format(" At {:.3g} flop per byte the operation is compute-bound.", intensity);
    case Bound::kUnclear:
      return text +
             fmt::format(" At {:.2g} flop per byte either memory or arithmetic may be the limit.", intensity);
  }
  return text;
}

std::string Advice(const Measured& m, const FeedbackContext& context) {
  if (m.floor_us > 0 && m.candidate_us <= kNearFloor * m.floor_us) {
    return "It is close to the smallest possible time. What remains are details such as alignment and the "
           "cost of starting threads.";
  }
  const Bound bound = context.problem ? RooflineBound(*context.problem) : Bound::kUnclear;
  std::string text = "It can still be made faster. ";
  if (m.verdict == Verdict::kSlow) {
    text +=
        fmt::format("First make sure that all {} threads have work and that the inner loop is vectorised. ",
                    context.threads);
  }
  switch (bound) {
    case Bound::kMemory:
      return text +
             "Move fewer bytes: make one pass over the data, read and write every value once, use unit stride, "
             "and write results that are not read again with non-temporal stores.";
    case Bound::kCompute:
      return text +
             "Do more arithmetic per load: use tiles that fit the caches, a block of accumulators in "
             "registers, fused multiply-add, and packed operands.";
    case Bound::kUnclear:
      return text +
             "Reuse values in registers and cache before loading more, and keep several independent chains of "
             "arithmetic in flight.";
  }
  return text;
}

// Its rates and what to try next.
std::string Remarks(const Measured& m, const Evaluation& evaluation, const FeedbackContext& context) {
  if (!IsForGpu(context.kind)) return Rates(m, context) + "\n" + Advice(m, context);
  const std::string notes = KernelNotes(evaluation);
  return GpuRates(m, evaluation) + (notes.empty() ? "" : "\n" + notes) + "\n" + GpuAdvice(m, evaluation);
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

std::string SharePercent(double share) {
  return share == 0 ? "0 %" : share < 0.001 ? "below 0.1 %" : fmt::format("{:.2g} %", 100 * share);
}

// In the same pairs as the best turn so far.
std::string AgainstBest(const FeedbackContext& context) {
  if (!context.against_best) return "";
  const Ratio& r = *context.against_best;
  const std::string best = context.against_best_turn == 0
                               ? "the start kernel, the best so far,"
                               : fmt::format("turn {}, the best so far,", context.against_best_turn);
  const std::string ratio = RatioText(r.value, r.low, r.high);
  switch (DistinctionOf(r)) {
    case Distinction::kFaster:
      return fmt::format(" Timed side by side with {} it is faster: {}. It is the new best.", best, ratio);
    case Distinction::kSlower:
      return fmt::format(" Timed side by side with {} it is slower: {}.", best, ratio);
    case Distinction::kNotDistinguishable:
      break;
  }
  return fmt::format(" Timed side by side with {} it is not distinguishable: {}.", best, ratio);
}

std::string Describe(const Measured& m, const Evaluation& evaluation, const FeedbackContext& context) {
  const bool has_shapes = !evaluation.shapes.empty();
  std::string text =
      fmt::format("The kernel is correct{}. Its speed-up{} is {}: {}.", has_shapes ? " at all shapes" : "",
                  has_shapes ? ", the weighted geometric mean over the shapes," : "",
                  RatioText(m.speedup.value, m.speedup.low, m.speedup.high), VerdictWords(m.verdict));
  text += AgainstBest(context);
  if (m.error_bound > 0) {
    text += fmt::format(" Its largest error is {} of the allowed one.",
                        SharePercent(m.max_error / m.error_bound));
  }
  if (m.against_start && (!context.against_best || context.against_best_turn != 0)) {
    const Ratio& ratio = *m.against_start;
    text += fmt::format(" Its speed-up over the start kernel is {}.",
                        RatioText(ratio.value, ratio.low, ratio.high));
  }
  return text + "\n" + (has_shapes ? ShapeRemarks(evaluation, context) : Remarks(m, evaluation, context));
}

std::string Describe(const ParseFailed& o, const Evaluation&, const FeedbackContext& context) {
  std::string text = fmt::format("No kernel could be read from the reply: {}.", o.message);
  if (!context.advice.empty()) text += " " + context.advice;
  text += fmt::format(" Send the complete file in one fenced block marked `{}`.", context.kind);
  if (!context.unread.empty()) text += "\n\nThe reply, shortened:\n\n" + FencedReply(context.unread);
  return text;
}

// The log without what the compiler says of the declaration behind the candidate (env/cpu/compile.cc).
std::string WithoutSignature(const std::string& log) {
  std::string rest;
  for (const std::string_view line : SplitLines(log)) {
    if (!line.starts_with(kSignatureFile)) rest.append(line).append("\n");
  }
  return rest;
}

// Both signatures, the candidate's with its line.
std::string SignatureText(const FeedbackContext& context) {
  std::string text =
      fmt::format("{:<9} | {}\n", "required", LaunchSignature(*context.problem->problem, context.kind));
  for (const FunctionText& function : FunctionsIn(context.source)) {
    if (function.name != "launch") continue;
    const std::string_view source = context.source;
    const auto line =
        1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(function.begin), '\n');
    const std::string_view head =
        source.substr(function.begin, source.find('{', function.begin) - function.begin);
    text += fmt::format("{:<9} | {}\n", fmt::format("line {}", line), Clip(Trim(head), kMaxSignatureBytes));
  }
  return text;
}

std::string Describe(const CompileFailed& o, const Evaluation&, const FeedbackContext& context) {
  const std::string where = o.where.empty() ? "" : " " + o.where;
  if (context.problem == nullptr || o.log.find(kSignatureFile) == std::string::npos)
    return fmt::format("The kernel does not compile{}:\n\n{}", where,
                       Fenced(TrimmedErrors(o.log, context.source)));
  std::string text =
      fmt::format("The kernel does not compile{}: the signature of `launch` is not the required one.\n\n{}",
                  where, Fenced(SignatureText(context)));
  const std::string rest = WithoutSignature(o.log);
  if (rest.find("error: ") != std::string::npos)
    text += "\n\nFurther errors:\n\n" + Fenced(TrimmedErrors(rest, context.source));
  return text;
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
  if (o.error_bound > 0 && std::isfinite(o.max_error)) {
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

Bound RooflineBound(const SizedProblem& problem) {
  if (problem.bytes <= 0) return Bound::kUnclear;
  const double intensity = problem.flops / problem.bytes;
  if (intensity < kMemoryBoundBelow) return Bound::kMemory;
  return intensity > kComputeBoundAbove ? Bound::kCompute : Bound::kUnclear;
}

std::string RatioText(double value, double low, double high) {
  return fmt::format("{:.3g}x ({:.3g}x to {:.3g}x)", value, low, high);
}

std::string Feedback(const Evaluation& evaluation, const FeedbackContext& context) {
  std::string text = std::visit([&](const auto& outcome) { return Describe(outcome, evaluation, context); },
                                evaluation.outcome);
  if (std::holds_alternative<Crashed>(evaluation.outcome) && !Trim(evaluation.log).empty()) {
    text += "\n\nIt printed:\n\n" + Fenced(Clip(Trim(evaluation.log), kMaxFeedbackLogBytes));
  }
  if (!std::holds_alternative<Measured>(evaluation.outcome)) text += CorrectElsewhere(evaluation);
  if (const std::string notes = KnobNotes(context.trials); !notes.empty()) text += "\n" + notes;
  if (!evaluation.cached_from.empty() && !context.is_start) {
    text += "\nAn identical kernel was judged before, and this is its stored verdict. Try something else.";
  }
  return text;
}

}  // namespace kevin
