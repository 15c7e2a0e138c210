#include "agent/text.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <string_view>
#include <vector>

namespace kevin {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";
constexpr std::string_view kEllipsis = "…";

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
