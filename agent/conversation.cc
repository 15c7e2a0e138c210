#include "agent/conversation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "agent/feedback.h"
#include "agent/history.h"
#include "agent/parse.h"
#include "agent/problem_text.h"
#include "agent/ranking.h"
#include "agent/rates.h"
#include "agent/text.h"
#include "env/ceilings.h"
#include "env/knobs/knobs.h"
#include "env/printable.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "env/problem/python_model.h"
#include "prompts/prompts.h"

namespace kevin {
namespace {

// Of the attempts, what is shown until a prompt fits.
constexpr size_t kAllRows = std::numeric_limits<size_t>::max();
constexpr HistoryLimits kHistoryLimits[] = {{3, kAllRows}, {2, kAllRows}, {1, kAllRows}, {0, kAllRows},
                                            {0, 16},       {0, 4},        {0, 1}};
constexpr size_t kMostReferenceBytes = 16384;  // of an imported problem; above it only its source is shown

std::string WithoutLastLineEnd(std::string_view text) { return std::string(TrimRight(text)); }

// Extents are given as numbers only where there is one shape.
std::string TensorLine(const ConcreteTensor& tensor, const char* role, bool with_numbers) {
  if (tensor.spec.shape.empty())
    return fmt::format("- {} `{}`: {}, a scalar", role, tensor.spec.name, DTypeName(tensor.spec.dtype));
  const std::string line = fmt::format("- {} `{}`: {}, [{}]", role, tensor.spec.name,
                                       DTypeName(tensor.spec.dtype), fmt::join(tensor.spec.shape, ", "));
  return with_numbers ? fmt::format("{} = [{}]", line, fmt::join(tensor.shape, ", ")) : line;
}

// The name of a parameter in the module.
std::string NameInModule(const Problem& problem, const TensorSpec& input) {
  if (!input.is_param || !problem.model) return "";
  return fmt::format(", in state_dict() `{}`", problem.model->parameters.at(input.name));
}

// A parameter's place in the block that `launch` takes; empty where it is an argument of its own.
std::string PlaceInBlock(const SizedProblem& problem, const TensorSpec& input, bool with_numbers) {
  const auto offset = problem.symbols.find(OffsetName(input.name));
  if (!input.is_param || !HasParamBlock(*problem.problem)) return "";
  const std::string place = fmt::format(", at `{} + {}`", kParamBlockName, offset->first);
  return with_numbers ? fmt::format("{} ({})", place, offset->second) : place;
}

const char* RoleText(const TensorSpec& input) {
  if (input.is_inout)
    return "input-output: not read-only; `launch` writes the new values into the same buffer, whose other elements "
           "must stay as they are";
  return input.is_param ? "parameter" : "input";
}

std::string Tensors(const ConversationContext& context) {
  const SizedProblem& problem = *context.problem;
  const bool with_numbers = context.shapes.empty();
  std::vector<std::string> lines;
  for (const ConcreteTensor& tensor : problem.inputs) {
    lines.push_back(TensorLine(tensor, RoleText(tensor.spec), with_numbers) +
                    (context.kind == "modelnew" ? NameInModule(*problem.problem, tensor.spec)
                                                : PlaceInBlock(problem, tensor.spec, with_numbers)) +
                    "; " + ValuesText(tensor.spec, context.kernelbench_inputs, with_numbers));
  }
  for (const ConcreteTensor& tensor : problem.outputs) {
    if (!tensor.spec.is_inout) lines.push_back(TensorLine(tensor, "output", with_numbers));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string SymbolList(const Symbols& symbols) {
  if (symbols.empty()) return "none";
  std::vector<std::string> items;
  for (const auto& [name, value] : symbols) items.push_back(fmt::format("`{}` = {}", name, value));
  return fmt::format("{}", fmt::join(items, ", "));
}

std::string Shapes(const ConversationContext& context) {
  std::vector<std::string> lines;
  for (const auto& [size, weight] : context.shapes) {
    lines.push_back(fmt::format("- `{}`: {}; weight {:g}", size,
                                SymbolList(context.problem->problem->sizes.at(size)), weight));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// The constants in a candidate's scope.
std::string Constants(const ConversationContext& context) {
  const Symbols& symbols = context.problem->problem->sizes.at(context.problem->size);
  if (context.shapes.empty()) return SymbolList(symbols);
  std::vector<std::string> names;
  for (const auto& [name, value] : symbols) names.push_back(fmt::format("`{}`", name));
  return fmt::format("{}, with the values of the shape that it is compiled for", fmt::join(names, ", "));
}

// Each kind of candidate has its own system message, rules and example: KIND_system.md, KIND_rules.md, ...
std::string PromptOf(const ConversationContext& context, const char* name) {
  return context.kind + "_" + name;
}

std::string CompilerText(const ConversationContext& context) {
  if (!context.compiler.empty()) return context.compiler;
  return IsForGpu(context.kind) ? "NVRTC" : "g++ or clang++";
}

std::string FlagsText(const ConversationContext& context) {
  if (!context.compiler_flags.empty()) return context.compiler_flags;
  return IsForGpu(context.kind) ? "for this GPU" : "-std=c++20 -O3 -march=native -fopenmp";
}

// Of products on tensor cores, where they may do the work of this problem; else empty.
std::string TensorCoreText(const ConversationContext& context) {
  const Problem& problem = *context.problem->problem;
  if (!context.on_gpu || !HasProducts(problem)) return "";
  Workload workload;
  workload.precision = PrecisionName(PrecisionOf(problem));
  workload.tf32 = context.tf32;
  const std::string unit = UnitFor(workload, true);
  if (unit != kFp32Unit) {
    const auto rate = context.unit_gflop_per_s.find(unit);
    if (rate == context.unit_gflop_per_s.end()) return "";
    return fmt::format("{} GFLOP/s of {}", SignificantText(rate->second, 3), unit);
  }
  const SplitCeiling split = SplitCeilingOf(context.unit_gflop_per_s);
  if (split.products == 0) return "";
  return fmt::format(
      "{} GFLOP/s of {}, so that products of float32 inputs {} ({} products in place of one, at full precision) can reach {} "
      "GFLOP/s",
      SignificantText(split.unit_gflop_per_s, 3), split.unit, SplitText(split), split.products,
      SignificantText(split.gflop_per_s, 3));
}

// "24 GB/s of memory bandwidth, 100 GFLOP/s of float32 multiply-adds (two operations each)"
std::string CeilingsText(const ConversationContext& context) {
  std::vector<std::string> ceilings;
  if (context.peak_gb_per_s > 0)
    ceilings.push_back(SignificantText(context.peak_gb_per_s, 3) + " GB/s of memory bandwidth" +
                       (context.on_gpu ? " (the best of reading, writing and copying)" : ""));
  if (context.peak_gflop_per_s > 0)
    ceilings.push_back(SignificantText(context.peak_gflop_per_s, 3) +
                       " GFLOP/s of float32 multiply-adds (two operations each)");
  if (std::string units = TensorCoreText(context); !units.empty()) ceilings.push_back(std::move(units));
  return fmt::format("{}", fmt::join(ceilings, ", "));
}

std::string Rules(const ConversationContext& context) {
  const SizedProblem& sized = *context.problem;
  const Precision precision = PrecisionOf(*sized.problem);
  PromptValues values = {{"signature", LaunchSignature(*sized.problem, context.kind)},
                         {"symbols", Constants(context)},
                         {"one_shape", context.shapes.empty() ? "yes" : ""},
                         {"block", HasParamBlock(*sized.problem) ? kParamBlockName : ""},
                         {"knobs", context.tune > 1 ? fmt::format("{}", context.tune) : ""},
                         {"knob_values", fmt::format("{}", kMaxKnobValues)},
                         {"most_knobs", fmt::format("{}", kMaxKnobs)},
                         {"alignment", std::to_string(kParamAlignment)},
                         {"precision", DTypeName(DTypeOf(precision))},
                         {"tolerance", ToleranceText(sized, context.shapes.empty())},
                         {"mixture", HasMixture(*sized.problem, context.kernelbench_inputs) ? "yes" : ""},
                         {"compiler", CompilerText(context)},
                         {"flags", FlagsText(context)},
                         {"float16", precision == Precision::kFp16 ? "yes" : ""},
                         {"bfloat16", precision == Precision::kBf16 ? "yes" : ""}};
  if (IsForGpu(context.kind) || IsPython(context.kind)) {
    values["tf32"] = context.tf32 ? "yes" : "";
    const bool may_round = context.tf32 || precision != Precision::kFp32;
    values["no_tf32"] = may_round || !HasProducts(*sized.problem) ? "" : "yes";
  } else {
    values["threads"] = fmt::format("{}", context.threads);
  }
  if (IsPython(context.kind)) {
    for (const char* name : {"compiler", "flags", "float16", "bfloat16"}) values.erase(name);
    values["gpu"] = context.on_gpu ? "yes" : "";
    values["cpu"] = context.on_gpu ? "" : "yes";
  }
  if (context.kind == "modelnew") {
    for (const char* name : {"signature", "symbols", "one_shape", "block", "alignment"}) values.erase(name);
    values["threads"] = fmt::format("{}", context.threads);
    const double least = sized.problem->least_own_share;
    values["own_kernels"] = context.own_kernels && least > 0 ? fmt::format("{:.3g} %", least * 100) : "";
  }
  return Render(PromptOf(context, "rules"), values);
}

bool HasAttempts(const std::vector<TurnRecord>& turns) { return !turns.empty() && turns.back().turn > 0; }

// Of an imported problem the module's source is shown too, and alone where the graph made of it is long: a
// deep network has thousands of lines.
// Python kinds read the problem as a Python module, the user's own where there is one.
std::string ReferenceText(const ConversationContext& context) {
  const Problem& problem = *context.problem->problem;
  if (IsPython(context.kind))
    return WithoutLastLineEnd(problem.source.empty() ? PythonModel(*context.problem) : problem.source);
  if (problem.source.empty()) return WithoutLastLineEnd(problem.reference);
  const std::string made =
      "# It was generated from this module; each `.` in its tensor names became `_`:\n\n";
  const bool is_long = problem.reference.size() > kMostReferenceBytes;
  return (is_long ? std::string() : problem.reference + "\n") + made + WithoutLastLineEnd(problem.source);
}

// The values for both templates, first_turn and refine_turn.
PromptValues CommonValues(const ConversationContext& context) {
  const Problem& problem = *context.problem->problem;
  return {{"name", problem.name},
          {"problem", problem.id},
          {"reference", ReferenceText(context)},
          {"form", IsPython(context.kind) ? "a Python module" : "in TorchScript"},
          {"tensors", Tensors(context)},
          {"one_shape", context.shapes.empty() ? "yes" : ""},
          {"shapes", Shapes(context)},
          {"machine", context.machine},
          {"ceilings", CeilingsText(context)},
          {"rules", WithoutLastLineEnd(Rules(context))},
          {"fence", FenceOf(context.kind)},
          {"note", std::string(Trim(context.note))}};
}

// What a database of other runs says is shown on one line each, whatever is in it.
std::string RelatedList(const std::vector<TaskRelated>& related) {
  std::vector<std::string> lines;
  for (const TaskRelated& one : related) {
    std::vector<std::string> sizes, knobs;
    for (const auto& [name, value] : one.symbols) sizes.push_back(fmt::format("{} = {}", name, value));
    for (const auto& [name, value] : one.chosen) knobs.push_back(fmt::format("{} = {}", name, value));
    lines.push_back(fmt::format(
        "- {} ({}; {}; {}; {}): {:.2f} times as fast as eager, {:.1f} us per call{}{}",
        PrintableLine(one.name), PrintableLine(one.problem),
        PrintableLine(fmt::format("{}", fmt::join(sizes, ", "))), PrintableLine(one.precision),
        PrintableLine(DeviceModel(one.device)), one.speedup, one.candidate_us, knobs.empty() ? "" : ", with ",
        PrintableLine(fmt::format("{}", fmt::join(knobs, ", ")))));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// The user message with its cache points: after the rules, which are equal in all turns and episodes of a
// problem, and after the best attempt, which comes again while it leads.
Message UserMessage(const std::string& content, const std::string& rules, const std::string& best) {
  Message message{"user", content};
  size_t at = 0;
  for (const std::string& part : {rules, WithoutLastLineEnd(best)}) {
    const size_t found = content.find(part, at);
    if (part.empty() || found == std::string::npos) continue;
    at = found + part.size();
    message.cache_points.push_back(at);
  }
  return message;
}

std::string ExampleAnswer(const ConversationContext& context) {
  return WithoutLastLineEnd(Render("kernelbench_example_answer", {{"gpu", context.on_gpu ? "yes" : ""},
                                                                  {"cpu", context.on_gpu ? "" : "yes"}}));
}

std::string Example(const ConversationContext& context) {
  PromptValues values;
  if (context.kind == "modelnew") values["answer"] = ExampleAnswer(context);
  return Render(PromptOf(context, "example"), values);
}

// KernelBench's form: one user message with the architecture, an example pair at first, and earlier attempts.
std::vector<Message> KernelBenchMessages(const ConversationContext& context,
                                         const std::vector<TurnRecord>& turns) {
  const std::string backend = context.on_gpu ? "CUDA" : "C++";
  PromptValues values = {{"backend", backend},
                         {"reference", ReferenceText(context)},
                         {"note", std::string(Trim(context.note))},
                         {"example_model", ""},
                         {"example_answer", ""}};
  if (!HasAttempts(turns)) {
    values["example_model"] = WithoutLastLineEnd(Render("kernelbench_example_model", {}));
    values["example_answer"] = ExampleAnswer(context);
  }
  const TurnRecord* best = LeaderOf(turns);
  for (size_t left_out = 0;; ++left_out) {
    std::vector<std::string> attempts;
    size_t missing = 0;
    for (size_t i = 0; i < turns.size(); ++i) {
      if (i >= left_out || &turns[i] == best) {
        attempts.push_back(AttemptText(turns[i], context.kind));
      } else {
        ++missing;
      }
    }
    values["attempts"] = WithoutLastLineEnd(fmt::format("{}", fmt::join(attempts, "\n")));
    values["left_out"] = missing == 0 ? "" : fmt::format("{}", missing);
    std::vector<Message> messages = {{"user", WithoutLastLineEnd(Render("kernelbench", values))}};
    const bool fits = PromptTokens(messages, turns) <= context.prompt_token_budget;
    if (fits || left_out + 1 >= turns.size()) return messages;
  }
}

Message FirstTurn(const ConversationContext& context, const std::vector<TurnRecord>& turns) {
  PromptValues values = CommonValues(context);
  values["example"] = WithoutLastLineEnd(Example(context));
  values["related"] = RelatedList(context.related);
  values["start_source"] = turns.empty() ? "" : WithoutLastLineEnd(turns.front().evaluation.source);
  values["start_feedback"] = turns.empty() ? "" : turns.front().feedback;
  return UserMessage(WithoutLastLineEnd(Render("first_turn", values)), values["rules"], "");
}

Message RefineTurn(const ConversationContext& context, const std::vector<TurnRecord>& turns,
                   const HistoryLimits& limits) {
  PromptValues values = CommonValues(context);
  const History history = HistoryOf(turns, context.kind, limits);
  const TurnRecord* latest = LatestWithSource(turns);
  const bool takes_diff = context.asks_for_diff && latest != nullptr;
  values["attempts"] = WithoutLastLineEnd(fmt::format("{}", fmt::join(history.attempts, "\n")));
  values["best"] = history.best;
  values["table"] = history.table;
  values["difference"] = history.difference;
  values["whole"] = takes_diff ? "" : "yes";
  values["edits"] = takes_diff ? fmt::format("turn {}", latest->turn) : "";
  return UserMessage(WithoutLastLineEnd(Render("refine_turn", values)), values["rules"],
                     history.begins_with_best ? history.attempts.front() : "");
}

}  // namespace

int64_t EstimateTokens(const std::string& text) { return static_cast<int64_t>((text.size() + 3) / 4); }

int64_t PromptTokens(const std::vector<Message>& messages, const std::vector<TurnRecord>& turns) {
  const auto bytes_of = [](const auto& list) {
    size_t bytes = 0;
    for (const auto& message : list) bytes += message.content.size();
    return static_cast<double>(bytes);
  };
  double tokens_per_byte = 0.25;
  for (const TurnRecord& turn : turns) {
    const double bytes = bytes_of(turn.messages);
    if (turn.usage.prompt_tokens && bytes > 0)
      tokens_per_byte = std::max(tokens_per_byte, static_cast<double>(*turn.usage.prompt_tokens) / bytes);
  }
  return static_cast<int64_t>(std::ceil(bytes_of(messages) * tokens_per_byte));
}

const char* PromptTemplateFor(const ConversationContext& context, const std::vector<TurnRecord>& turns) {
  if (context.prompts == kKernelBenchPrompts) return kKernelBenchPrompts;
  return HasAttempts(turns) ? "refine_turn" : "first_turn";
}

std::vector<Message> BuildMessages(const ConversationContext& context, const std::vector<TurnRecord>& turns) {
  if (context.prompts == kKernelBenchPrompts) return KernelBenchMessages(context, turns);
  Message system{"system", WithoutLastLineEnd(Render(PromptOf(context, "system"), {}))};
  system.cache_points = {system.content.size()};
  if (!HasAttempts(turns)) return {system, FirstTurn(context, turns)};
  std::vector<Message> messages;
  for (const HistoryLimits& limits : kHistoryLimits) {
    messages = {system, RefineTurn(context, turns, limits)};
    if (PromptTokens(messages, turns) <= context.prompt_token_budget) break;
  }
  return messages;
}

}  // namespace kevin
