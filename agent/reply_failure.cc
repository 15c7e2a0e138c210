#include "agent/reply_failure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "agent/code_text.h"
#include "agent/text.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

constexpr size_t kMostMarks = 4, kMaxMarkBytes = 20;

constexpr const char* kNoModule =
    "Do not write `class ModelNew`, `load_inline` or `torch::Tensor`: put the computation of `forward` into "
    "the function `launch` of the rules, on plain pointers.";

bool IsPythonCode(std::string_view code) {
  const std::string text = Mask(code).text;
  const std::vector<std::string_view> lines = SplitLines(text);
  return std::any_of(lines.begin(), lines.end(), [](std::string_view line) {
    const bool is_import = line.starts_with("import ") ||
                           (line.starts_with("from ") && line.find(" import ") != std::string_view::npos);
    return (is_import && !TrimRight(line).ends_with(";")) ||
           (line.starts_with("def ") && line.find('(') != std::string_view::npos);
  });
}

std::string MarkText(const ReplyBlock& block) {
  return block.language.empty() ? "no mark" : fmt::format("`{}`", Clip(block.language, kMaxMarkBytes));
}

// "`rust`", "`rust` and `python`": the marks of blocks with code, each once.
std::string Marks(const std::vector<ReplyBlock>& blocks) {
  std::vector<std::string> marks;
  for (const ReplyBlock& block : blocks) {
    const std::string mark = MarkText(block);
    const bool is_new = std::find(marks.begin(), marks.end(), mark) == marks.end();
    if (!block.language.empty() && !Trim(block.code).empty() && is_new && marks.size() < kMostMarks)
      marks.push_back(mark);
  }
  if (marks.size() < 2) return marks.empty() ? "" : marks.front();
  const std::string last = marks.back();
  marks.pop_back();
  return fmt::format("{} and {}", fmt::join(marks, ", "), last);
}

bool IsTriton(std::string_view code) { return code.find("triton") != std::string_view::npos; }

std::string InsteadOfPython(std::string_view code, const std::string& kind) {
  return fmt::format("{}rite the kernels in {}, and the function `launch` of the rules.",
                     IsTriton(code) ? "Do not use Triton: w" : "W", LanguageOf(kind));
}

// What to write in place of the code of these blocks.
std::string InsteadOfOtherCode(const std::vector<ReplyBlock>& blocks, const std::string& kind) {
  const auto any = [&](const auto& fits) {
    return std::any_of(blocks.begin(), blocks.end(),
                       [&](const ReplyBlock& block) { return fits(block.code); });
  };
  const bool is_cpp =
      any([](const std::string& code) { return DefinesCandidate(code, "cpp") || IsCudaCode(code); });
  if (kind == "modelnew" && is_cpp)
    return "Write a Python file with `class ModelNew` that has this code in a string for load_inline.";
  if (kind == "triton" && is_cpp)
    return "Write the kernels in Python with `@triton.jit`, and `def launch` that starts them.";
  const bool is_triton = any(IsTriton);
  return !IsPython(kind) && is_triton ? InsteadOfPython("triton", kind) : "";
}

ReplyFailure UnfinishedReasoning(const ReplyAnswer& answer, std::string_view reasoning) {
  const std::string_view thought = answer.behind_it.empty() ? reasoning : std::string_view(answer.behind_it);
  std::string reason = "the reply ended inside its reasoning, before an answer";
  if (!answer.open_tag.empty()) reason += fmt::format(": `{}` is never closed", answer.open_tag);
  const size_t fence = thought.find("```");
  if (fence != std::string_view::npos && thought.find("```", fence + 3) != std::string_view::npos)
    return {reason, "Code inside the reasoning is not read: end the reasoning, then send the file."};
  return {reason, "Reason briefly and leave enough of the length limit for the file."};
}

}  // namespace

bool IsCudaCode(std::string_view code) {
  const std::string text = Mask(code).text;
  return HasWord(text, "__global__") || text.find("<<<") != std::string::npos;
}

bool IsPyTorchModule(std::string_view text) {
  return HasWord(text, "ModelNew") || text.find("torch::Tensor") != std::string_view::npos ||
         text.find("load_inline") != std::string_view::npos ||
         (text.find("import torch") != std::string_view::npos && HasWord(text, "class"));
}

std::optional<ReplyFailure> WhyOtherKind(std::string_view code, const std::string& kind) {
  if (IsPython(kind)) {
    const bool is_triton = kind == "triton";
    if (HasWord(code, is_triton ? "launch" : "ModelNew")) return std::nullopt;
    return ReplyFailure{
        fmt::format("the file defines no `{}`", is_triton ? "def launch" : "class ModelNew"),
        is_triton
            ? "Let a function `launch` start the kernels, with the parameters of the rules."
            : "Let a class `ModelNew` call the kernels in `forward`, with the parameters of the reference's "
              "class."};
  }
  if (kind == "cpp" && IsCudaCode(code))
    return ReplyFailure{
        "the code is CUDA C++ for a GPU, and C++ for the CPU is asked for",
        "Write loops with OpenMP and vector instructions in `launch`; there are no kernels and no `<<<...>>>`."};
  const bool is_python = IsPythonCode(code);
  if (!is_python && !HasWord(Mask(code).text, "fn launch")) return std::nullopt;
  return ReplyFailure{
      fmt::format("the code is {}, and {} is asked for", is_python ? "Python" : "Rust", LanguageOf(kind)),
      is_python ? InsteadOfPython(code, kind) : ""};
}

ReplyFailure WhyNoSource(std::string_view reply, const ReplyFacts& facts, const ReplyAnswer& answer,
                         const std::vector<ReplyBlock>& blocks, const std::string& kind) {
  const std::string language = LanguageOf(kind);
  const bool is_empty = Trim(answer.text).empty();
  if (Trim(reply).empty() && Trim(facts.reasoning).empty()) return {"the reply was empty", ""};
  if ((is_empty || !answer.open_tag.empty()) && blocks.empty())
    return UnfinishedReasoning(answer, facts.reasoning);
  if (blocks.empty() && WithoutReasoning(std::string(facts.reasoning)).open_tag != "")
    return UnfinishedReasoning(answer, facts.reasoning);  // the server split it at a marker of its own
  if (!IsPython(kind) && IsPyTorchModule(answer.text))
    return {fmt::format("the reply is a PyTorch module or extension, and {} is asked for", language),
            kNoModule};
  if (blocks.empty() && facts.is_at_limit)
    return {"the reply reached the length limit before a code block", "Write the file first, and be brief."};
  if (blocks.empty()) return {"the reply held no fenced code block and is no complete file", ""};
  if (!blocks.back().closed && !Trim(blocks.back().code).empty())
    return {"the reply was cut off inside its code block", "Keep the reply within the length limit."};
  const bool is_other = std::any_of(blocks.begin(), blocks.end(), [&](const ReplyBlock& block) {
    return !Trim(block.code).empty() && IsOtherLanguage(block.language, kind);
  });
  if (!is_other) return {"the reply's code blocks were empty or not " + language, ""};
  const std::string marks = Marks(blocks);
  return {fmt::format("its code {} marked {}, and {} is asked for",
                      marks.find(" and ") == std::string::npos ? "is" : "blocks are", marks, language),
          InsteadOfOtherCode(blocks, kind)};
}

std::string OtherBlocksNote(const std::vector<ReplyBlock>& blocks, const ReplyBlock& taken,
                            const std::string& kind) {
  std::set<std::string> own;
  for (const FunctionText& function : FunctionsIn(taken.code)) own.insert(function.name);
  const auto is_new = [&](const FunctionText& function) { return !own.contains(function.name); };
  std::vector<std::string> others;
  size_t number = 0, of_taken = 0;
  for (const ReplyBlock& block : blocks) {
    ++number;
    if (&block == &taken) {
      of_taken = number;
      continue;
    }
    if (Trim(block.code).empty() || !block.closed) continue;
    std::string what;
    if (DefinesCandidate(block.code, kind)) {
      what = IsPython(kind) && kind != "triton" ? ", with `ModelNew`" : ", with `launch`";
    } else if (!IsPython(kind) && !IsOtherLanguage(block.language, kind)) {
      const std::vector<FunctionText> functions = FunctionsIn(block.code);
      const auto missing = std::find_if(functions.begin(), functions.end(), is_new);
      if (missing == functions.end()) continue;
      what = fmt::format(", with `{}`", Clip(missing->name, 60));
    } else {
      continue;
    }
    if (others.size() < kMostMarks)
      others.push_back(fmt::format("block {} ({}{})", number, MarkText(block), what));
  }
  if (others.empty()) return "";
  return fmt::format("One block of a reply is judged, here block {} of {} ({}). Left out: {}.", of_taken,
                     blocks.size(), MarkText(taken), fmt::join(others, ", "));
}

}  // namespace kevin
