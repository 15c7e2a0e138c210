#include "agent/reply_blocks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "agent/code_text.h"
#include "agent/text.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

constexpr int kMostLooksForLiterals = 50;  // in a reply; each costs time

struct Fence {
  char mark = 0;
  size_t length = 0, indent = 0;
  std::string language;
};

template <size_t N>
bool IsOneOf(std::string_view language, const std::array<const char*, N>& names) {
  return std::find(names.begin(), names.end(), language) != names.end();
}

bool IsCpp(std::string_view language) {
  return IsOneOf(language, std::array{"cpp", "c++", "cc", "cxx", "c", "h", "hpp", "cuda", "cu"});
}

bool IsPythonTag(std::string_view language) {
  return IsOneOf(language, std::array{"python", "py", "python3", "triton", "modelnew"});
}

std::string Language(std::string_view info) {
  std::string word;
  for (const char c : Trim(info)) {
    if (std::isspace(static_cast<unsigned char>(c)) || c == '{' || c == ',') break;
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return word;
}

std::optional<Fence> OpeningFence(std::string_view line) {
  const size_t indent = line.find_first_not_of(" \t");
  if (indent == std::string_view::npos || (line[indent] != '`' && line[indent] != '~')) return std::nullopt;
  Fence fence;
  fence.mark = line[indent];
  fence.indent = indent;
  size_t end = indent;
  while (end < line.size() && line[end] == fence.mark) ++end;
  fence.length = end - indent;
  const std::string_view info = line.substr(end);
  if (fence.length < 3 || info.find(fence.mark) != std::string_view::npos) return std::nullopt;
  fence.language = Language(info);
  return fence;
}

// "Here it is: ```cpp": prose, then the only fence of the line, then the language's tag.
std::optional<Fence> OpeningFenceAfterProse(std::string_view line, const std::string& kind) {
  const size_t at = line.find("```");
  if (at == std::string_view::npos || line.rfind("```") != at) return std::nullopt;
  const std::string language = Language(line.substr(at + 3));
  if (!IsOfKind(language, kind) || Trim(line.substr(at + 3)).size() != language.size()) return std::nullopt;
  return Fence{'`', 3, 0, language};
}

// Where the closing fence starts in `line`, if it closes: alone on its line, or after the last code.
std::optional<size_t> ClosingFence(std::string_view line, const Fence& open) {
  const std::string_view trimmed = TrimRight(line);
  size_t start = trimmed.size();
  while (start > 0 && trimmed[start - 1] == open.mark) --start;
  const size_t length = trimmed.size() - start;
  const bool alone = Trim(trimmed.substr(0, start)).empty();
  if (length < open.length || (!alone && open.mark == '~')) return std::nullopt;
  return start;
}

void AppendCode(std::string_view line, size_t indent, std::string* code) {
  size_t skip = 0;
  while (skip < indent && skip < line.size() && (line[skip] == ' ' || line[skip] == '\t')) ++skip;
  code->append(line.substr(skip)).append("\n");
}

// `code` is that of the block up to a fence: whether a literal or a comment is open there.
bool EndsInside(std::string_view code, bool is_python) {
  const MaskedCode masked = is_python ? MaskPython(code) : Mask(code);
  return masked.ends_inside || masked.ends_in_line;
}

bool IsComplete(std::string_view code, bool is_python) {
  return is_python ? IsCompletePython(code) : IsCompleteCode(code);
}

// Cheap: whether a literal or a comment may be open at the fence at `at` of `line`.
bool MayHideFence(const ReplyBlock& block, std::string_view line, size_t at, bool is_python) {
  constexpr size_t kLargest = size_t{1} << 20;  // no kernel is as large
  if (block.code.size() > kLargest) return false;
  const auto has = [&](const char* part) { return block.code.find(part) != std::string::npos; };
  const bool is_open = is_python ? has("\"\"\"") || has("'''") : has("R\"") || has("/*");
  return is_open || block.code.ends_with("\\\n") || !Trim(line.substr(0, at)).empty();
}

// A fence in a literal or a comment of the code opens and closes nothing, if one below closes the block with the code.
bool IsInsideLiteral(const ReplyBlock& block, const Fence& open, const std::vector<std::string_view>& lines,
                     size_t line, size_t at, const std::string& kind) {
  constexpr size_t kFarthest = 2000;  // lines
  constexpr int kMostFences = 8;
  const bool is_python = IsPython(kind);
  std::string code = block.code;
  const std::string here = code + std::string(Trim(lines[line].substr(0, at)));
  if (!EndsInside(here, is_python)) return false;
  // "}  // the end```"
  if (IsComplete(here, is_python) && DefinesCandidate(here, kind)) return false;
  int fences = 0;
  for (size_t i = line; i < std::min(lines.size(), line + kFarthest) && fences < kMostFences; ++i) {
    const std::optional<size_t> close = i > line ? ClosingFence(lines[i], open) : std::nullopt;
    if (close) {
      if (IsComplete(code + std::string(lines[i].substr(0, *close)), is_python)) return true;
      ++fences;
    }
    code.append(lines[i]).append("\n");
  }
  return false;
}

}  // namespace

bool DefinesCandidate(std::string_view code, const std::string& kind) {
  if (!IsPython(kind)) {
    const std::vector<FunctionText> functions = FunctionsIn(code);
    return std::any_of(functions.begin(), functions.end(),
                       [](const FunctionText& function) { return function.name == "launch"; });
  }
  const std::string_view definition = kind == "triton" ? "def launch" : "class ModelNew";
  for (size_t at = code.find(definition); at != std::string_view::npos; at = code.find(definition, at + 1)) {
    if (at == 0 || code[at - 1] == '\n') return true;
  }
  return false;
}

bool IsPtx(std::string_view language) { return IsOneOf(language, std::array{"ptx", "asm"}); }

bool IsTagOf(std::string_view language, const std::string& kind) {
  return language == kind || (kind == "cuda" && language == "cu");
}

bool IsOfKind(std::string_view language, const std::string& kind) {
  if (IsPython(kind)) return IsPythonTag(language);
  return kind == "ptx" ? IsPtx(language) : IsCpp(language);
}

bool IsOtherLanguage(std::string_view language, const std::string& kind) {
  if (IsPython(kind)) return !language.empty() && !IsPythonTag(language);
  if (kind != "ptx" && IsPtx(language)) return true;
  return IsOneOf(
      language,
      std::array{"python", "py",      "python3",  "bash",       "sh",         "shell",    "console", "diff",
                 "patch",  "json",    "make",     "text",       "txt",        "cmake",    "toml",    "yaml",
                 "xml",    "html",    "rust",     "rs",         "go",         "java",     "js",      "ts",
                 "julia",  "fortran", "f90",      "csharp",     "swift",      "kotlin",   "mojo",    "zig",
                 "ruby",   "lua",     "matlab",   "javascript", "typescript", "markdown", "md",      "nasm",
                 "sql",    "output",  "plaintext"});
}

std::vector<ReplyBlock> FindBlocks(const std::vector<std::string_view>& lines, const std::string& kind) {
  std::vector<ReplyBlock> blocks;
  std::optional<Fence> open;
  int looks = 0;  // for literals around a fence
  const auto is_hidden = [&](size_t line, size_t at) {
    return MayHideFence(blocks.back(), lines[line], at, IsPython(kind)) && looks++ < kMostLooksForLiterals &&
           IsInsideLiteral(blocks.back(), *open, lines, line, at, kind);
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    if (open) {
      ReplyBlock& block = blocks.back();
      block.end_line = i + 1;
      const auto close = ClosingFence(lines[i], *open);
      if (close && !is_hidden(i, *close)) {
        if (!Trim(lines[i].substr(0, *close)).empty()) {
          AppendCode(lines[i].substr(0, *close), open->indent, &block.code);
        }
        block.closed = true;
        open.reset();
        continue;
      }
      const auto next = OpeningFence(lines[i]);
      if (!next || !IsOfKind(next->language, kind) || is_hidden(i, next->indent)) {
        AppendCode(lines[i], open->indent, &block.code);
        continue;
      }
      block.end_line = i;
    }
    open = OpeningFence(lines[i]);
    if (!open) open = OpeningFenceAfterProse(lines[i], kind);
    if (open) blocks.push_back({open->language, "", i, i + 1, false});
  }
  return blocks;
}

}  // namespace kevin
