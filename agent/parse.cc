#include "agent/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <vector>

#include "agent/code_text.h"
#include "agent/edits.h"
#include "agent/reply_blocks.h"
#include "agent/reply_text.h"
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

// A block marked as a diff that is a whole kernel: without hunks and marks of lines, or with each line added.
void TakeAsKernel(const std::string& kind, ReplyBlock* block) {
  if (!IsDiffBlock(*block)) return;
  std::string plain, added;
  bool is_plain = true, is_added = true;
  for (const std::string_view line : SplitLines(block->code)) {
    const bool is_header = line.starts_with("@@") || line.starts_with("--- ") || line.starts_with("+++ ") ||
                           line.starts_with("diff ") || line.starts_with("index ") ||
                           line.starts_with("new file ") || line.starts_with("\\ No newline");
    const bool is_marked = line.starts_with("+") || line.starts_with("-");
    is_plain = is_plain && !is_header && !is_marked;
    plain.append(line).append("\n");
    if (is_header || Trim(line).empty()) continue;
    is_added = is_added && line.starts_with("+");
    added.append(line.substr(1)).append("\n");
  }
  const std::string& code = is_plain ? plain : added;
  const bool is_kernel = (is_plain || is_added) && DefinesCandidate(code, kind) &&
                         (IsPython(kind) ? IsCompletePython(code) : IsCompleteCode(code));
  if (is_kernel) block->code = code, block->language.clear();
}

std::vector<ReplyBlock> BlocksOf(const std::vector<std::string_view>& lines, const std::string& kind) {
  std::vector<ReplyBlock> blocks = FindBlocks(lines, kind);
  for (ReplyBlock& block : blocks) TakeAsKernel(kind, &block);
  return blocks;
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
    return kind != "ptx" && !IsPtx(block.language) && DefinesCandidate(block.code, kind) &&
           HasWord(Mask(block.code).text, "void");
  });
  return found == blocks.rend() ? nullptr : &*found;
}

const ReplyBlock* BlockWithLaunch(const std::vector<ReplyBlock>& blocks, const std::string& kind) {
  if (IsPython(kind))
    return LastBlock(blocks, kind, [&](const ReplyBlock& block) {
      return block.closed && DefinesCandidate(block.code, kind);
    });
  const auto defines = [&](const std::string& code) { return DefinesCandidate(code, kind); };
  for (const std::function<bool(const std::string&)>& has_launch :
       {std::function<bool(const std::string&)>(defines), {MentionsLaunch}}) {
    if (kind == "cpp") {  // that for the CPU, where there is one for a GPU too
      const ReplyBlock* block = LastBlock(
          blocks, kind, [&](const ReplyBlock& b) { return has_launch(b.code) && !IsCudaCode(b.code); });
      if (block != nullptr) return block;
    } else {  // text around a GPU's kernel often shows host code that calls `launch`
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
  const bool is_complete = IsPython(kind) || IsCompleteCode(file.code);
  if (!is_complete || !DefinesCandidate(file.code, kind)) return std::nullopt;
  return file;
}

// The name of a further file of the reply that `code` includes: the other blocks or the prose name it.
std::string OtherFileOf(std::string_view code, const std::string& answer,
                        const std::vector<ReplyBlock>& blocks) {
  constexpr int kMostFileNames = 20;  // each is looked for in the whole answer
  int names = 0;
  if (blocks.size() < 2) return "";
  for (const std::string_view line : SplitLines(code)) {
    const std::string_view text = Trim(line);
    if (!text.starts_with("#include")) continue;
    const size_t open = text.find('"'), close = text.rfind('"');
    if (open == std::string_view::npos || close <= open + 1) continue;
    if (++names > kMostFileNames) break;
    const std::string name(text.substr(open + 1, close - open - 1));
    for (size_t at = answer.find(name); at != std::string::npos; at = answer.find(name, at + 1)) {
      if (at == 0 || answer[at - 1] != '"') return name;
    }
  }
  return "";
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
  Reader(std::string_view reply, const std::string& kind, std::span<const std::string> bases,
         const ReplyFacts& facts)
      : reply_(reply),
        kind_(kind),
        bases_(bases),
        facts_(facts),
        answer_(WithoutReasoning(WithUnixLines(reply))),
        clean_(WithoutHidden(answer_.text)),
        lines_(SplitLines(clean_.text)),
        blocks_(BlocksOf(lines_, kind)) {}

  ParsedReply Read() {
    if (!(TakeKernel() || TakeDiff() || TakeRest() || TakeBare()) && parsed_.failure.empty())
      Fail(WhyNoSource(reply_, facts_, answer_, blocks_, kind_));
    if (parsed_.source && parsed_.source->size() > kMaxSourceBytes)
      Fail({"the code block is larger than 512 KiB", "Write loops and templates instead of repeated code."});
    if (!parsed_.failure.empty()) {
      parsed_.summary = Prose(lines_, blocks_, 0, lines_.size());
      parsed_.unread = Shortened(answer_.text);
    }
    return std::move(parsed_);
  }

 private:
  void Fail(ReplyFailure failure) {
    parsed_.source.reset();
    parsed_.form.clear(), parsed_.note.clear();
    parsed_.failure = std::move(failure.reason), parsed_.advice = std::move(failure.advice);
  }

  void AddNote(const std::string& note) {
    if (!note.empty()) parsed_.note += (parsed_.note.empty() ? "" : " ") + note;
  }

  bool Take(std::string source, const char* form, size_t first_line, size_t end_line) {
    const bool is_whole = form == std::string_view("whole");
    parsed_.source = std::move(source);
    parsed_.form = form;
    parsed_.summary = Prose(lines_, blocks_, end_line, lines_.size());
    if (parsed_.summary.empty()) parsed_.summary = Prose(lines_, blocks_, 0, first_line);
    // Behind the line of the fence a whole kernel begins with line 1.
    AddNote(HiddenNote(clean_.hidden, first_line + 1, end_line, is_whole ? 1 : 0));
    return true;
  }

  bool FailForKind(const ReplyBlock& block) {
    std::optional<ReplyFailure> failure = WhyOtherKind(block.code, kind_);
    if (failure) Fail(std::move(*failure));
    return failure.has_value();
  }

  bool TakeWhole(const ReplyBlock& block) {
    parsed_.truncated_fence = !block.closed;
    AddNote(OtherBlocksNote(blocks_, block, kind_));
    return Take(block.code, "whole", block.first_line, block.end_line);
  }

  // A block with `launch`: a whole kernel, or functions of an earlier one.
  bool TakeKernel() {
    const ReplyBlock* block = BlockWithLaunch(blocks_, kind_);
    if (block == nullptr) return false;
    if (FailForKind(*block)) return true;
    if (const std::string file = OtherFileOf(block->code, clean_.text, blocks_); !file.empty()) {
      Fail({fmt::format("the kernel includes `{}`, another file of the reply, and only one file is judged",
                        Clip(file, 60)),
            "Put its content into the file."});
      return true;
    }
    if (!TakeFunctions(*block)) return TakeWhole(*block);
    parsed_.truncated_fence = !block->closed;
    return true;
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
    if (diff.empty() && blocks_.empty() && IsDiff(clean_.text))
      diff = clean_.text, first = 0, end = lines_.size();
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
    return FailForKind(*block) || TakeWhole(*block);
  }

  bool TakeBare() {
    if (!blocks_.empty()) return false;
    const std::optional<BareFile> file = FindBareFile(lines_, kind_);
    if (!file) return false;
    parsed_.source = file->code;
    parsed_.form = "file";
    parsed_.summary = Prose(lines_, {}, file->end, lines_.size());
    if (parsed_.summary.empty()) parsed_.summary = Prose(lines_, {}, 0, file->first);
    AddNote(HiddenNote(clean_.hidden, file->first, file->end, 1));
    return true;
  }

  const std::string_view reply_;
  const std::string& kind_;
  const std::span<const std::string> bases_;
  const ReplyFacts& facts_;
  const ReplyAnswer answer_;
  const CleanText clean_;
  const std::vector<std::string_view> lines_;
  const std::vector<ReplyBlock> blocks_;
  ParsedReply parsed_;
};

}  // namespace

ParsedReply ParseReply(std::string_view reply, const std::string& kind, std::span<const std::string> bases,
                       const ReplyFacts& facts) {
  if (reply.size() > kMaxReplyBytes) {
    ParsedReply parsed;
    parsed.failure = fmt::format("the reply is larger than {} MiB", kMaxReplyBytes >> 20);
    parsed.advice = "Send one file and a short summary.";
    parsed.unread = Shortened(reply);
    return parsed;
  }
  return Reader(reply, kind, bases, facts).Read();
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
