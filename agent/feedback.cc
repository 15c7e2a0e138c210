#include "agent/feedback.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>

#include "agent/code_text.h"
#include "agent/compile_errors.h"
#include "agent/diagnosis_text.h"
#include "agent/gpu_feedback.h"
#include "agent/knob_feedback.h"
#include "agent/parse.h"
#include "agent/ranking.h"
#include "agent/rates.h"
#include "agent/shape_records.h"
#include "agent/text.h"
#include "env/problem/problem.h"
#include "env/verdict/judgement.h"
#include "env/verdict/shapes.h"
#include "env/verdict/words.h"

namespace kevin {
namespace {

constexpr size_t kMaxFeedbackLogBytes = 1500;
constexpr size_t kMaxPythonLogBytes = 3000;
constexpr size_t kMaxSignatureBytes = 400;
constexpr double kWideInterval = 1.15;  // half of it, as a factor, from which it is said what it hides

std::string Fenced(std::string_view text) {
  return fmt::format("```\n{}{}```", text, text.ends_with("\n") ? "" : "\n");
}

// A reply may hold fences of its own.
std::string FencedReply(std::string_view text) {
  std::string fence = "~~~~";
  while (text.find(fence) != std::string_view::npos) fence += "~";
  return fmt::format("{}\n{}\n{}", fence, TrimRight(text), fence);
}

MemoryFacts MemoryFactsOf(const Measured& m, const Evaluation& evaluation, const FeedbackContext& context) {
  MemoryFacts memory;
  if (!IsForGpu(context.kind) && !evaluation.device.starts_with("cuda"))
    memory.cache_bytes = context.cache_bytes;
  memory.bandwidth_share = RooflineOf(m, evaluation).memory;
  if (context.problem == nullptr) return memory;
  for (const auto* tensors : {&context.problem->inputs, &context.problem->outputs}) {
    for (const ConcreteTensor& tensor : *tensors) memory.tensor_bytes += static_cast<double>(tensor.bytes);
  }
  return memory;
}

// Its rates, and the evidence of what limits it.
std::string Remarks(const Measured& m, const Evaluation& evaluation, const FeedbackContext& context) {
  std::string text = RateText(m, evaluation);
  if (evaluation.own_share)
    text += fmt::format("\nKernels of its own did {} of the work.", PercentText(*evaluation.own_share));
  if (const std::string notes = KernelNotes(evaluation, context.diagnosis); !notes.empty())
    text += "\n" + notes;
  if (const std::string advice = CeilingAdvice(m, evaluation, context.problem); !advice.empty())
    text += "\n" + advice;
  const std::string evidence = context.diagnosis ? DiagnosisText(*context.diagnosis, m.candidate_us,
                                                                 MemoryFactsOf(m, evaluation, context))
                                                 : "";
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
  return fmt::format(" Timed side by side with {} it is {}: {}.{}", best,
                     VerdictWords(Verdict::kAmbiguous, r, "that one"), RatioText(r.value, r.low, r.high),
                     StandingOf(r) == Standing::kFaster ? " It is the new best." : "");
}

// What an interval is too wide to show.
std::string WidthNote(const Ratio& r) {
  if (r.low <= 0 || r.high <= 0) return "";
  const double half = std::sqrt(r.high / r.low);
  if (half < kWideInterval) return "";
  return fmt::format(
      " The times of the pairs vary: speed-ups over the reference that differ by less than {:.0f} % are not distinguishable.",
      100 * (half - 1));
}

std::string Describe(const Measured& m, const Evaluation& evaluation, const FeedbackContext& context) {
  const bool has_shapes = !evaluation.shapes.empty();
  std::string text =
      fmt::format("The kernel is correct{}. Its speed-up{} is {}: {}.", has_shapes ? " at all shapes" : "",
                  has_shapes ? ", the weighted geometric mean over the shapes," : "",
                  RatioText(m.speedup.value, m.speedup.low, m.speedup.high),
                  VerdictWords(m.verdict, m.speedup, "the reference"));
  text += WidthNote(m.speedup) + AgainstBest(context);
  if (m.error_bound > 0) {
    text += fmt::format(" Its largest error is {} of the allowed one.",
                        SharePercent(m.max_error / m.error_bound));
  }
  if (m.against_start && (!context.against_best || context.against_best_turn != 0)) {
    const Ratio& ratio = *m.against_start;
    text += fmt::format(" Its speed-up over the start kernel is {}: {}.",
                        RatioText(ratio.value, ratio.low, ratio.high),
                        VerdictWords(m.verdict_against_start, ratio, "the start kernel"));
  }
  return text + "\n" + (has_shapes ? ShapeRemarks(evaluation, context) : Remarks(m, evaluation, context));
}

std::string Describe(const ParseFailed& o, const Evaluation&, const FeedbackContext& context) {
  std::string text = fmt::format("No kernel could be read from the reply: {}.", o.message);
  if (!context.advice.empty()) text += " " + context.advice;
  text += fmt::format(" Send the complete file in one fenced block marked `{}`.", FenceOf(context.kind));
  if (!context.unread.empty()) text += "\n\nThe reply, shortened:\n\n" + FencedReply(context.unread);
  return text;
}

// What the compiler says of the declaration behind the candidate, the required signature (env/cpu/compile.cc).
struct SignatureErrors {
  bool is_other = false;       // `launch` has another signature
  bool is_unfinished = false;  // the text before it is not complete
  std::string open_lines;      // where the brackets stand that are not closed: "lines 1, 5"; empty: not said
  std::string rest;            // the log without these lines
};

SignatureErrors SignatureErrorsIn(const std::string& log) {
  constexpr int kMostOpenLines = 4;
  SignatureErrors errors;
  std::set<int> open;
  for (const std::string_view line : SplitLines(log)) {
    // "candidate.cpp:5:20: note: to match this '{'"
    const size_t note = line.find(": note: to match this"), colon = line.find(':');
    if (note != std::string_view::npos && colon < note) {
      const int number = std::atoi(std::string(line.substr(colon + 1, 9)).c_str());
      if (number > 0 && open.size() < kMostOpenLines) open.insert(number);
    }
    if (!line.starts_with(std::string(kSignatureFile) + ":")) {
      errors.rest.append(line).append("\n");
    } else if (line.find("error: ") != std::string_view::npos) {
      // Of clang the last one: "functions that differ only in their return type cannot be overloaded".
      const bool is_other =
          line.find("launch") != std::string_view::npos || line.find("overloaded") != std::string_view::npos;
      (is_other ? errors.is_other : errors.is_unfinished) = true;
    }
  }
  errors.is_unfinished = errors.is_unfinished && !errors.is_other;
  if (!open.empty())
    errors.open_lines = fmt::format("line{} {}", open.size() == 1 ? "" : "s", fmt::join(open, ", "));
  return errors;
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
  // Python's message names the candidate's line; a compiler's counts lines of the sources in its strings.
  if (IsPython(context.kind))
    return fmt::format("The file {}{}:\n\n{}",
                       o.log.starts_with("extension ") ? "does not compile" : "cannot be imported", where,
                       Fenced(Clip(Trim(o.log), kMaxPythonLogBytes)));
  const SignatureErrors signature = SignatureErrorsIn(o.log);
  const bool has_more = signature.rest.find("error: ") != std::string::npos;
  const std::string more = has_more ? Fenced(TrimmedErrors(signature.rest, context.source)) : std::string();
  if (context.problem != nullptr && signature.is_other) {
    return fmt::format(
        "The kernel does not compile{}: the signature of `launch` is not the required one.\n\n{}{}", where,
        Fenced(SignatureText(context)), has_more ? "\n\nFurther errors:\n\n" + more : "");
  }
  if (signature.is_unfinished) {
    return fmt::format(
        "The kernel does not compile{}: its text is not complete. {}.{}", where,
        signature.open_lines.empty()
            ? "A bracket, a comment, a string or an `#if` is not closed, or a semicolon is missing at the end"
            : fmt::format("What is opened in {} is not closed", signature.open_lines),
        has_more ? "\n\n" + more : "");
  }
  return fmt::format("The kernel does not compile{}:\n\n{}", where,
                     Fenced(TrimmedErrors(o.log, context.source)));
}

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// What to write instead of what was refused.
std::string InsteadOf(std::string_view reason, bool on_gpu, const std::string& kind) {
  if (Has(reason, "kernels of its own"))
    return fmt::format(
        "Write the computation as kernels of your own ({}) and call them in `{}`. PyTorch's operators may "
        "allocate, reshape and connect, but not compute.",
        kind == "triton" ? "@triton.jit"
        : on_gpu         ? "CUDA with load_inline, or Triton"
                         : "C++ with load_inline",
        kind == "triton" ? "launch" : "forward");
  if (Has(reason, "no place for these weights")) return "";  // the reason says it
  if (Has(reason, "KernelBench's static rules")) return "Change the file so that this rule permits it.";
  if (Has(reason, "no new tensor") || Has(reason, "aliases the output"))
    return "Return a tensor that this call allocates, such as torch.empty_like(x), filled by your kernel.";
  if (Has(reason, "subclass of Tensor")) return "Return plain tensors.";
  return "It must do all of its work inside each call and follow the rules.";
}

std::string Describe(const Refused& o, const Evaluation& evaluation, const FeedbackContext& context) {
  std::string reason = ReasonForPolicies(std::string(Trim(o.reason)));
  if (reason.ends_with(".")) reason.pop_back();
  const std::string instead = InsteadOf(reason, evaluation.device.starts_with("cuda"), context.kind);
  return fmt::format("The kernel was refused: {}.{}{}", reason, instead.empty() ? "" : " ", instead);
}

std::string Describe(const Crashed& o, const Evaluation& evaluation, const FeedbackContext& context) {
  std::string text = fmt::format("The kernel compiles but crashed: {}. ", Trim(o.message));
  if (IsPython(context.kind)) return text;  // the message ends with Python's own lines
  if (!IsForGpu(context.kind)) {
    return text +
           "Check index ranges at the ends of loops, alignment of vector loads and the size of arrays on the "
           "stack.";
  }
  text +=
      o.message.find("ILLEGAL_INSTRUCTION") != std::string::npos
          ? "This GPU does not take an instruction with these operands. Look at inline PTX: a cache policy that `createpolicy` did "
            "not make or that does not fit the instruction, a malformed tensor map or shared memory descriptor, register counts of "
            "`setmaxnreg`."
          : "Check the bounds of the last block, alignment of vector loads (16 bytes for float4), and the sizes "
            "of block, shared memory and workspace.";
  const std::string notes = KernelNotes(evaluation);
  return notes.empty() ? text : text + "\n" + notes;
}

// What makes a compiler take long.
std::string WhyCompileIsLong(const std::string& kind) {
  if (kind == "modelnew")
    return "Compile few extensions with one load_inline, without large headers beside torch/extension.h, and compute "
           "nothing at the top level.";
  return IsPython(kind)
             ? "Compute nothing at the top level of the file."
             : "Look for templates that instantiate each other many times, and for large unrolled loops.";
}

std::string Describe(const TimedOut& o, const Evaluation&, const FeedbackContext& context) {
  if (o.phase == "compile")
    return fmt::format("The kernel did not compile within {:g} s{}. {}", o.limit_s,
                       IsForGpu(context.kind) ? "" : ", also while nothing else of Kevin was running",
                       WhyCompileIsLong(context.kind));
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
  if (o.message.starts_with(kInTimedCall)) {
    text +=
        " Verification before it was correct, with other values: a race between threads, scratch memory that is not written "
        "again, or state that is kept between calls explains that, and so does an error that few values of the inputs show.";
  }
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

std::string ReasonForPolicies(std::string reason) {
  constexpr std::string_view kForUsers = " (--rules open permits that)";
  if (const size_t at = reason.find(kForUsers); at != std::string::npos) reason.erase(at, kForUsers.size());
  return reason;
}

std::string Feedback(const Evaluation& evaluation, const FeedbackContext& context) {
  std::string text = std::visit([&](const auto& outcome) { return Describe(outcome, evaluation, context); },
                                evaluation.outcome);
  if (std::holds_alternative<Crashed>(evaluation.outcome) && !Trim(evaluation.log).empty()) {
    text += "\n\nIt printed:\n\n" + Fenced(Clip(Trim(evaluation.log), kMaxFeedbackLogBytes));
  }
  if (!std::holds_alternative<Measured>(evaluation.outcome)) text += CorrectElsewhere(evaluation);
  const auto* measured = std::get_if<Measured>(&evaluation.outcome);
  const auto* wrong = std::get_if<Wrong>(&evaluation.outcome);
  if (const std::string notes =
          KnobNotes(context.trials, measured != nullptr,
                    measured != nullptr && evaluation.shapes.empty() ? measured->candidate_us : 0,
                    wrong != nullptr && wrong->error_bound > 0 ? wrong->max_error / wrong->error_bound : 0);
      !notes.empty())
    text += "\n" + notes;
  if (!context.note.empty()) text += "\n" + context.note;
  if (!evaluation.cached_from.empty() && !context.is_start) {
    text += "\nAn identical kernel was judged before, and this is its stored verdict. Try something else.";
  }
  return text;
}

}  // namespace kevin
