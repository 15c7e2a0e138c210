#include "agent/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <vector>

#include "agent/code_text.h"
#include "agent/edits.h"
#include "agent/reply_blocks.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/printable.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

bool MentionsLaunch(std::string_view code) {
  constexpr std::string_view kName = "launch";
  for (size_t at = code.find(kName); at != std::string_view::npos; at = code.find(kName, at + 1)) {
    if (at > 0 && (std::isalnum(static_cast<unsigned char>(code[at - 1])) || code[at - 1] == '_')) continue;
    const size_t next = code.find_first_not_of(" \t\n", at + kName.size());
    if (next != std::string_view::npos && code[next] == '(') return true;
  }
  return false;
}

// "{ ... launch(...) { ... } ... }": not only a call of it.
bool DefinesLaunch(std::string_view code) {
  const std::vector<FunctionText> functions = FunctionsIn(code);
  return std::any_of(functions.begin(), functions.end(),
                     [](const FunctionText& function) { return function.name == "launch"; });
}

// Linear in the text: a hostile reply has a million tags.
std::string WithoutReasoning(const std::string& text, const std::string& name) {
  const std::string open = "<" + name + ">", close = "</" + name + ">";
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    const size_t start = text.find(open, at);
    if (start == std::string::npos) {
      out.append(text, at);
      break;
    }
    const size_t end = text.find(close, start);
    out.append(text, at, start - at);
    if (end == std::string::npos) {
      if (out.find(close) != std::string::npos) out.append(text, start);
      break;
    }
    at = end + close.size();
  }
  const size_t last = out.rfind(close);
  return last == std::string::npos ? out : out.substr(last + close.size());
}

std::string Prose(const std::vector<std::string_view>& lines, const std::vector<ReplyBlock>& blocks,
                  size_t from, size_t to) {
  std::vector<bool> in_block(lines.size(), false);
  for (const ReplyBlock& block : blocks) {
    for (size_t i = block.first_line; i < std::min(block.end_line, lines.size()); ++i) in_block[i] = true;
  }
  std::string out;
  for (size_t i = from; i < to; ++i) {
    if (!in_block[i]) out.append(lines[i]).append("\n");
  }
  return Clip(Trim(out), kMaxSummaryBytes);
}

bool IsDiffBlock(const ReplyBlock& block) {
  return block.language == "diff" || block.language == "patch" || IsDiff(block.code);
}

bool IsUsable(const ReplyBlock& block) {
  return !Trim(block.code).empty() && (block.closed || IsCompleteCode(block.code));
}

// Of the blocks that may hold a kernel, the last one that fits; null: none.
template <typename Fits>
const ReplyBlock* LastBlock(const std::vector<ReplyBlock>& blocks, const std::string& kind,
                            const Fits& fits) {
  const auto found = std::find_if(blocks.rbegin(), blocks.rend(), [&](const ReplyBlock& block) {
    if (!IsUsable(block) || IsDiffBlock(block) || !fits(block)) return false;
    // A wrong mark does not hide a kernel.
    if (!IsOtherLanguage(block.language, kind)) return true;
    if (IsPython(kind)) return false;
    return kind != "ptx" && !IsPtx(block.language) && DefinesLaunch(block.code) &&
           HasWord(Mask(block.code).text, "void");
  });
  return found == blocks.rend() ? nullptr : &*found;
}

// What every candidate of a Python kind defines.
bool DefinesModel(std::string_view code, const std::string& kind) {
  const std::string_view definition = kind == "triton" ? "def launch" : "class ModelNew";
  for (size_t at = code.find(definition); at != std::string_view::npos; at = code.find(definition, at + 1)) {
    if (at == 0 || code[at - 1] == '\n') return true;
  }
  return false;
}

const ReplyBlock* BlockWithLaunch(const std::vector<ReplyBlock>& blocks, const std::string& kind) {
  if (IsPython(kind))
    return LastBlock(blocks, kind,
                     [&](const ReplyBlock& block) { return block.closed && DefinesModel(block.code, kind); });
  for (const auto has_launch : {&DefinesLaunch, &MentionsLaunch}) {
    if (kind != "cpp") {  // text around a GPU's kernel often shows host code that calls `launch`
      const ReplyBlock* tagged = LastBlock(
          blocks, kind, [&](const ReplyBlock& b) { return IsTagOf(b.language, kind) && has_launch(b.code); });
      if (tagged != nullptr) return tagged;
    }
    const ReplyBlock* block =
        LastBlock(blocks, kind, [&](const ReplyBlock& b) { return has_launch(b.code); });
    if (block != nullptr) return block;
  }
  return nullptr;
}

bool StartsCode(std::string_view line, const std::string& kind) {
  const std::string_view code = Trim(line);
  if (IsPython(kind)) return line.starts_with("import ") || line.starts_with("from ");
  const auto starts_with = [&](const auto& beginnings) {
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [&](const char* beginning) { return code.starts_with(beginning); });
  };
  return starts_with(std::array{"#include", "#pragma", "#define", "#if", "extern", "//", "/*", "static ",
                                "inline ", "template", "using ", "namespace", "typedef ", "struct ",
                                "constexpr ", "const ", "void ", "alignas"}) ||
         (kind == "cuda" &&
          starts_with(std::array{"__global__", "__device__", "__constant__", "__shared__"})) ||
         (kind == "ptx" && code.starts_with(".version"));
}

struct BareFile {
  size_t first = 0, end = 0;  // lines
  std::string code;
};

// A reply without a fence that is a whole file, perhaps with prose before or after it.
std::optional<BareFile> FindBareFile(const std::vector<std::string_view>& lines, const std::string& kind) {
  BareFile file;
  while (file.first < lines.size() && !StartsCode(lines[file.first], kind)) ++file.first;
  file.end = lines.size();
  const auto ends_code = [&](std::string_view line) {
    const std::string_view text = TrimRight(line);
    if (IsPython(kind)) return !text.empty();
    return !text.empty() && (text.back() == '}' || text.back() == ';');
  };
  while (file.end > file.first && !ends_code(lines[file.end - 1])) --file.end;
  for (size_t i = file.first; i < file.end; ++i) file.code.append(lines[i]).append("\n");
  if (IsPython(kind)) return DefinesModel(file.code, kind) ? std::optional(file) : std::nullopt;
  if (!DefinesLaunch(file.code) || !IsCompleteCode(file.code)) return std::nullopt;
  return file;
}

bool IsPyTorchModule(std::string_view text) {
  return HasWord(text, "ModelNew") || text.find("torch::Tensor") != std::string_view::npos ||
         text.find("load_inline") != std::string_view::npos ||
         (text.find("import torch") != std::string_view::npos && HasWord(text, "class"));
}

// The name of a further file of the reply that `code` includes: the other blocks or the prose name it.
std::string OtherFileOf(std::string_view code, const std::string& answer,
                        const std::vector<ReplyBlock>& blocks) {
  if (blocks.size() < 2) return "";
  for (const std::string_view line : SplitLines(code)) {
    const std::string_view text = Trim(line);
    if (!text.starts_with("#include")) continue;
    const size_t open = text.find('"'), close = text.rfind('"');
    if (open == std::string_view::npos || close <= open + 1) continue;
    const std::string name(text.substr(open + 1, close - open - 1));
    for (size_t at = answer.find(name); at != std::string::npos; at = answer.find(name, at + 1)) {
      if (at == 0 || answer[at - 1] != '"') return name;
    }
  }
  return "";
}

struct Failure {
  std::string reason, advice;
};

Failure WhyNoSource(std::string_view reply, const std::string& answer, const std::vector<ReplyBlock>& blocks,
                    const std::string& kind) {
  const std::string language = LanguageOf(kind);
  if (Trim(reply).empty()) return {"the reply was empty", ""};
  if (Trim(answer).empty())
    return {"the reply ended inside its reasoning, before an answer",
            "Reason briefly and leave enough of the length limit for the file."};
  if (!IsPython(kind) && IsPyTorchModule(answer))
    return {
        fmt::format("the reply is a PyTorch module or extension, and {} is asked for", language),
        "Do not write `class ModelNew`, `load_inline` or `torch::Tensor`: put the computation of `forward` into "
        "the function `launch` of the rules, on plain pointers."};
  if (blocks.empty()) return {"the reply held no fenced code block and is no complete file", ""};
  if (!blocks.back().closed && !Trim(blocks.back().code).empty())
    return {"the reply was cut off inside its code block", "Keep the reply within the length limit."};
  for (const ReplyBlock& block : blocks) {
    if (IsUsable(block) && IsOtherLanguage(block.language, kind))
      return {fmt::format("its code is marked `{}`, and {} is asked for", Clip(block.language, 20), language),
              ""};
  }
  return {"the reply's code blocks were empty or not " + language, ""};
}

std::string UnixLines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  return out;
}

// The beginning and the end of what was not understood; no control characters.
std::string Shortened(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  if (trimmed.size() <= kMaxUnreadBytes) return Printable(trimmed);
  const std::string_view tail = trimmed.substr(trimmed.size() - kMaxUnreadBytes / 3);
  const size_t line = tail.find('\n');
  return Printable(Clip(trimmed, kMaxUnreadBytes * 2 / 3)) + "\n[...]\n" +
         Printable(line == std::string_view::npos ? tail : tail.substr(line + 1));
}

class Reader {
 public:
  Reader(std::string_view reply, const std::string& kind, std::span<const std::string> bases)
      : reply_(reply),
        kind_(kind),
        bases_(bases),
        answer_(WithoutReasoning(WithoutReasoning(UnixLines(reply), "think"), "thinking")),
        lines_(SplitLines(answer_)),
        blocks_(FindBlocks(lines_, kind)) {}

  ParsedReply Read() {
    if (!(TakeKernel() || TakeDiff() || TakeRest() || TakeBare()) && parsed_.failure.empty())
      Fail(WhyNoSource(reply_, answer_, blocks_, kind_));
    if (parsed_.source && parsed_.source->size() > kMaxSourceBytes)
      Fail({"the code block is larger than 512 KiB", "Write loops and templates instead of repeated code."});
    if (!parsed_.failure.empty()) {
      parsed_.summary = Prose(lines_, blocks_, 0, lines_.size());
      parsed_.unread = Shortened(answer_);
    }
    return std::move(parsed_);
  }

 private:
  void Fail(Failure failure) {
    parsed_.source.reset();
    parsed_.form.clear();
    parsed_.failure = std::move(failure.reason), parsed_.advice = std::move(failure.advice);
  }

  bool Take(std::string source, const char* form, size_t first_line, size_t end_line) {
    parsed_.source = std::move(source);
    parsed_.form = form;
    parsed_.summary = Prose(lines_, blocks_, end_line, lines_.size());
    if (parsed_.summary.empty()) parsed_.summary = Prose(lines_, blocks_, 0, first_line);
    return true;
  }

  // A block with `launch`: a whole kernel, or functions of an earlier one.
  bool TakeKernel() {
    const ReplyBlock* block = BlockWithLaunch(blocks_, kind_);
    if (block == nullptr) return false;
    if (const std::string file = OtherFileOf(block->code, answer_, blocks_); !file.empty()) {
      Fail({fmt::format("the kernel includes `{}`, another file of the reply, and only one file is judged",
                        Clip(file, 60)),
            "Put its content into the file."});
      return true;
    }
    parsed_.truncated_fence = !block->closed;
    return TakeFunctions(*block) || Take(block->code, "whole", block->first_line, block->end_line);
  }

  bool TakeFunctions(const ReplyBlock& block) {
    if (IsPython(kind_)) return false;
    for (const std::string& base : bases_) {
      if (auto changed = ReplaceFunctions(block.code, base))
        return Take(std::move(*changed), "function", block.first_line, block.end_line);
    }
    return false;
  }

  // All diffs of the reply, one after the other.
  bool TakeDiff() {
    std::string diff;
    size_t first = lines_.size(), end = 0;
    for (const ReplyBlock& block : blocks_) {
      if (!block.closed || !IsDiffBlock(block) || Trim(block.code).empty()) continue;
      diff += block.code;
      first = std::min(first, block.first_line), end = block.end_line;
    }
    if (diff.empty() && blocks_.empty() && IsDiff(answer_)) diff = answer_, first = 0, end = lines_.size();
    if (diff.empty()) return false;
    if (bases_.empty()) {
      Fail({"the reply is a diff, and there is no earlier kernel", ""});
      return true;
    }
    std::string failure;
    for (const std::string& base : bases_) {
      Edited edited = ApplyDiff(diff, base);
      if (edited.failure.empty()) return Take(std::move(edited.source), "diff", first, end);
      if (failure.empty()) failure = edited.failure;
    }
    Fail({failure, "The diff must fit the latest kernel above."});
    return true;
  }

  // A block without `launch`: functions of an earlier kernel, or a file that the compiler shall comment on.
  bool TakeRest() {
    const ReplyBlock* block = LastBlock(blocks_, kind_, [](const ReplyBlock&) { return true; });
    if (block == nullptr) return false;
    if (TakeFunctions(*block)) return true;
    if (!IsPython(kind_) && IsPyTorchModule(block->code)) return false;
    parsed_.truncated_fence = !block->closed;
    return Take(block->code, "whole", block->first_line, block->end_line);
  }

  bool TakeBare() {
    if (!blocks_.empty()) return false;
    const std::optional<BareFile> file = FindBareFile(lines_, kind_);
    if (!file) return false;
    parsed_.source = file->code;
    parsed_.form = "file";
    parsed_.summary = Prose(lines_, {}, file->end, lines_.size());
    if (parsed_.summary.empty()) parsed_.summary = Prose(lines_, {}, 0, file->first);
    return true;
  }

  const std::string_view reply_;
  const std::string& kind_;
  const std::span<const std::string> bases_;
  const std::string answer_;
  const std::vector<std::string_view> lines_;
  const std::vector<ReplyBlock> blocks_;
  ParsedReply parsed_;
};

}  // namespace

ParsedReply ParseReply(std::string_view reply, const std::string& kind, std::span<const std::string> bases) {
  if (reply.size() > kMaxReplyBytes) {
    ParsedReply parsed;
    parsed.failure = fmt::format("the reply is larger than {} MiB", kMaxReplyBytes >> 20);
    parsed.advice = "Send one file and a short summary.";
    parsed.unread = Shortened(reply);
    return parsed;
  }
  return Reader(reply, kind, bases).Read();
}

std::string FenceOf(const std::string& kind) { return IsPython(kind) ? "python" : kind; }

std::string ReadSourceFile(const std::filesystem::path& path) {
  std::string reason, text;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (std::filesystem::is_directory(path)) {
    reason = "is a folder";
  } else if (!file.is_open()) {
    reason = std::strerror(errno);
  } else {
    text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (Trim(text).empty()) reason = "is empty";
    if (text.size() > kMaxSourceBytes) reason = "is larger than 512 KiB";
  }
  if (reason.empty()) return text;
  throw Error(
      ExitCode::kBadRequest, fmt::format("{}: {}", path.string(), reason),
      "give a kernel's file: C++ with `extern \"C\" void launch(...)`, or CUDA (.cu) with a launch function");
}

}  // namespace kevin
