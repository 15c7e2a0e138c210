#include "agent/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "agent/text.h"
#include "env/error.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

struct Block {
  std::string language;  // lower case
  std::string code;
  size_t first_line = 0, end_line = 0;  // lines of the reply, fences included, end exclusive
  bool closed = false;
};

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

bool IsPtx(std::string_view language) { return IsOneOf(language, std::array{"ptx", "asm"}); }

bool IsTagOf(std::string_view language, const std::string& kind) {
  return language == kind || (kind == "cuda" && language == "cu");
}

// Languages in which a candidate of the kind may come.
bool IsOfKind(std::string_view language, const std::string& kind) {
  return kind == "ptx" ? IsPtx(language) : IsCpp(language);
}

// Blocks in these languages are never the candidate, whatever they mention.
bool IsOtherLanguage(std::string_view language, const std::string& kind) {
  if (kind != "ptx" && IsPtx(language)) return true;
  return IsOneOf(language, std::array{"python", "py", "bash", "sh", "shell", "console", "diff", "json",
                                      "make", "cmake", "toml"});
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

std::vector<Block> FindBlocks(const std::vector<std::string_view>& lines, const std::string& kind) {
  std::vector<Block> blocks;
  std::optional<Fence> open;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (open) {
      Block& block = blocks.back();
      block.end_line = i + 1;
      if (const auto close = ClosingFence(lines[i], *open)) {
        if (!Trim(lines[i].substr(0, *close)).empty()) {
          AppendCode(lines[i].substr(0, *close), open->indent, &block.code);
        }
        block.closed = true;
        open.reset();
        continue;
      }
      const auto next = OpeningFence(lines[i]);
      if (!next || !IsOfKind(next->language, kind)) {
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

bool MentionsLaunch(std::string_view code) {
  constexpr std::string_view kName = "launch";
  for (size_t at = code.find(kName); at != std::string_view::npos; at = code.find(kName, at + 1)) {
    if (at > 0 && (std::isalnum(static_cast<unsigned char>(code[at - 1])) || code[at - 1] == '_')) continue;
    const size_t next = code.find_first_not_of(" \t\n", at + kName.size());
    if (next != std::string_view::npos && code[next] == '(') return true;
  }
  return false;
}

// The code without comments and the contents of literals. An unterminated one swallows the rest.
std::string Skeleton(std::string_view code) {
  std::string out;
  for (size_t i = 0; i < code.size(); ++i) {
    const std::string_view rest = code.substr(i);
    size_t end = 0;
    if (rest.substr(0, 2) == "//") {
      end = rest.find('\n');
    } else if (rest.substr(0, 2) == "/*") {
      end = rest.find("*/", 2);
      if (end == std::string_view::npos) return out + "/*";
      ++end;
    } else if (rest[0] == '"' || rest[0] == '\'') {
      const bool digit_separator =
          rest[0] == '\'' && i > 0 && std::isalnum(static_cast<unsigned char>(code[i - 1]));
      for (end = 1; !digit_separator && end < rest.size() && rest[end] != rest[0] && rest[end] != '\n';
           ++end) {
        if (rest[end] == '\\') ++end;
      }
      if (digit_separator) end = 0;
    } else {
      out += rest[0];
    }
    if (end == std::string_view::npos) break;
    i += end;
  }
  return out;
}

bool IsComplete(std::string_view code) {
  const std::string skeleton = Skeleton(code);
  std::string stack;
  for (const char c : skeleton) {
    if (c == '{' || c == '(' || c == '[') stack += c;
    if (c == '}' || c == ')' || c == ']') {
      const char wanted = c == '}' ? '{' : c == ')' ? '(' : '[';
      if (stack.empty() || stack.back() != wanted) return false;
      stack.pop_back();
    }
  }
  const std::string_view trimmed = TrimRight(skeleton);
  return stack.empty() && !trimmed.empty() && (trimmed.back() == '}' || trimmed.back() == ';');
}

std::string WithoutReasoning(std::string text, const std::string& name) {
  const std::string open = "<" + name + ">", close = "</" + name + ">";
  for (size_t start = text.find(open); start != std::string::npos; start = text.find(open)) {
    const size_t end = text.find(close, start);
    if (end == std::string::npos) {
      if (text.find(close) == std::string::npos) text.erase(start);
      break;
    }
    text.erase(start, end + close.size() - start);
  }
  const size_t last = text.rfind(close);
  return last == std::string::npos ? text : text.substr(last + close.size());
}

std::string Prose(const std::vector<std::string_view>& lines, const std::vector<Block>& blocks, size_t from,
                  size_t to) {
  std::string out;
  for (size_t i = from; i < to; ++i) {
    const bool in_block = std::any_of(blocks.begin(), blocks.end(),
                                      [&](const Block& b) { return i >= b.first_line && i < b.end_line; });
    if (!in_block) out.append(lines[i]).append("\n");
  }
  return Clip(Trim(out), kMaxSummaryBytes);
}

const Block* ChooseBlock(const std::vector<Block>& blocks, const std::string& kind) {
  const auto last = [&](const auto& fits) -> const Block* {
    const auto found = std::find_if(blocks.rbegin(), blocks.rend(), [&](const Block& block) {
      return !IsOtherLanguage(block.language, kind) && !Trim(block.code).empty() &&
             (block.closed || IsComplete(block.code)) && fits(block);
    });
    return found == blocks.rend() ? nullptr : &*found;
  };
  const Block* block = nullptr;
  if (kind != "cpp") {  // text around a GPU's kernel often shows host code that calls `launch`
    block = last([&](const Block& b) { return IsTagOf(b.language, kind) && MentionsLaunch(b.code); });
  }
  if (block == nullptr) block = last([](const Block& b) { return MentionsLaunch(b.code); });
  if (block != nullptr) return block;
  return last([&](const Block& b) { return IsOfKind(b.language, kind) || b.language.empty(); });
}

bool IsBareFile(std::string_view text, const std::string& kind) {
  const std::string_view code = Trim(text);
  if (code.starts_with("# ") || code.starts_with("##")) return false;
  const auto starts_with = [&](const auto& beginnings) {
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [&](const char* beginning) { return code.starts_with(beginning); });
  };
  const bool starts =
      starts_with(std::array{"#", "extern", "//", "/*"}) ||
      (kind == "cuda" && starts_with(std::array{"__global__", "__device__", "template", "constexpr"})) ||
      (kind == "ptx" && code.starts_with(".version"));
  return starts && MentionsLaunch(code) && IsComplete(code);
}

std::string WhyNoSource(std::string_view reply, std::string_view answer, const std::vector<Block>& blocks,
                        const std::string& kind) {
  if (Trim(reply).empty()) return "the reply was empty";
  if (Trim(answer).empty()) return "the reply ended inside its reasoning, before an answer";
  if (blocks.empty()) return "the reply held no fenced code block";
  if (!blocks.back().closed && !Trim(blocks.back().code).empty()) {
    return "the reply was cut off inside its code block";
  }
  return "the reply's code blocks were empty or not " + LanguageOf(kind);
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

}  // namespace

ParsedReply ParseReply(std::string_view reply, const std::string& kind) {
  const std::string answer = WithoutReasoning(WithoutReasoning(UnixLines(reply), "think"), "thinking");
  const std::vector<std::string_view> lines = SplitLines(answer);
  const std::vector<Block> blocks = FindBlocks(lines, kind);
  ParsedReply parsed;
  if (const Block* block = ChooseBlock(blocks, kind)) {
    parsed.source = block->code;
    parsed.truncated_fence = !block->closed;
    parsed.summary = Prose(lines, blocks, block->end_line, lines.size());
    if (parsed.summary.empty()) parsed.summary = Prose(lines, blocks, 0, block->first_line);
  } else if (blocks.empty() && IsBareFile(answer, kind)) {
    parsed.source = std::string(Trim(answer)) + "\n";
  } else {
    parsed.failure = WhyNoSource(reply, answer, blocks, kind);
    parsed.summary = Prose(lines, blocks, 0, lines.size());
  }
  if (parsed.source && parsed.source->size() > kMaxSourceBytes) {
    parsed.source.reset();
    parsed.failure = "the code block is larger than 512 KiB";
  }
  return parsed;
}

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

std::string FirstSentence(std::string_view text, size_t max_bytes) {
  std::string line;
  for (const char c : Trim(text)) {
    const bool space = std::isspace(static_cast<unsigned char>(c));
    if (space && (line.empty() || line.back() == ' ')) continue;
    if (space && (line.back() == '.' || line.back() == '!' || line.back() == '?')) break;
    line += space ? ' ' : c;
  }
  return Clip(line, max_bytes);
}

}  // namespace kevin
