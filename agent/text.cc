#include "agent/text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

namespace kevin {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";
constexpr std::string_view kEllipsis = "…";

constexpr size_t kMaxErrors = 3;
constexpr size_t kMaxLogBytes = 1500;
constexpr size_t kMaxSourceLineBytes = 160;

struct CompileError {
  int line = 0, column = 0;  // 0: not said
  std::string message;
};

std::optional<int> TakeNumber(std::string_view* text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

// "ptxas application ptx input, line 12; error   : ..." and "ptxas error   : ..."
std::optional<CompileError> ParsePtxasError(std::string_view line) {
  size_t mark = line.find("error ");
  if (mark == std::string_view::npos) mark = line.find("fatal ");
  if (!line.starts_with("ptxas ") || mark == std::string_view::npos) return std::nullopt;
  const size_t colon = line.find(": ", mark);
  if (colon == std::string_view::npos) return std::nullopt;
  CompileError error{0, 0, "ptxas: " + std::string(Trim(line.substr(colon + 2)))};
  constexpr std::string_view kLine = ", line ";
  if (const size_t at = line.find(kLine); at < mark) {
    std::string_view place = line.substr(at + kLine.size());
    error.line = TakeNumber(&place).value_or(0);
  }
  return error;
}

// "candidate.cpp:12:5: error: message" of g++ and clang++, "candidate.cu(12): error: message" of NVRTC.
std::optional<CompileError> ParseError(std::string_view line) {
  constexpr std::string_view kMark = "error: ";
  const size_t mark = line.find(kMark);
  if (mark == std::string_view::npos) return ParsePtxasError(line);
  CompileError error{0, 0, std::string(Trim(line.substr(mark + kMark.size())))};
  if (error.message.starts_with("ld returned") || error.message.starts_with("linker command"))
    return std::nullopt;
  std::string_view place = line.substr(0, mark);
  const size_t end_of_name = place.find_first_of(":(");
  if (end_of_name == std::string_view::npos) return std::nullopt;
  place.remove_prefix(end_of_name + 1);
  if (const auto number = TakeNumber(&place)) error.line = *number;
  if (error.line > 0 && place.starts_with(":")) {
    place.remove_prefix(1);
    error.column = TakeNumber(&place).value_or(0);
  }
  return error;
}

std::string Quote(const CompileError& error, const std::vector<std::string_view>& source) {
  if (error.line == 0) return fmt::format("{}\n", error.message);
  std::string text = fmt::format("line {}", error.line);
  if (error.column > 0) text += fmt::format(", column {}", error.column);
  text += fmt::format(": {}\n", error.message);
  // ptxas counts lines of the PTX that NVRTC wrote, not of the candidate.
  if (static_cast<size_t>(error.line) > source.size() || error.message.starts_with("ptxas")) return text;
  const std::string_view line = source[static_cast<size_t>(error.line) - 1];
  return text + fmt::format("{:>6} | {}\n", error.line, Clip(TrimRight(line), kMaxSourceLineBytes));
}

}  // namespace

std::string_view TrimRight(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? text.substr(0, 0) : text.substr(0, last + 1);
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? text.substr(0, 0) : TrimRight(text.substr(first));
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

std::string Clip(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes > kEllipsis.size() ? max_bytes - kEllipsis.size() : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(TrimRight(text.substr(0, end))) + std::string(kEllipsis);
}

std::string SignificantText(double value, int digits) {
  const bool is_long = std::abs(value) >= std::pow(10.0, digits) - 0.5;
  return is_long ? fmt::format("{:.0f}", value) : fmt::format("{:.{}g}", value, digits);
}

std::string Counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string FileName(std::string_view text) {
  constexpr size_t kMaxBytes = 120;
  std::string name(text.substr(0, kMaxBytes));
  for (char& c : name) {
    const bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || c == '.';
    if (!stays) c = '_';
  }
  if (name.empty()) return "_";
  if (name[0] == '.' || name[0] == '-') name[0] = '_';
  return name;
}

std::string TrimmedErrors(const std::string& log, const std::string& source) {
  const std::vector<std::string_view> source_lines = SplitLines(source);
  std::string text;
  size_t count = 0;
  for (const std::string_view line : SplitLines(log)) {
    if (const auto error = ParseError(line)) {
      if (++count <= kMaxErrors) text += Quote(*error, source_lines);
    } else if (line.find("undefined reference") != std::string_view::npos && ++count <= kMaxErrors) {
      text += fmt::format("{}\n", Trim(line.substr(line.find("undefined reference"))));
    }
  }
  if (count == 0) return Clip(Trim(log), kMaxLogBytes) + "\n";
  if (count > kMaxErrors) text += fmt::format("({} more errors)\n", count - kMaxErrors);
  return text;
}

}  // namespace kevin
