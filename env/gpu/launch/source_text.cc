#include "env/gpu/launch/source_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/gpu/launch/launch_function.h"
#include "env/problem/text.h"

namespace kevin::launch {

namespace {
constexpr size_t kMaxMessageBytes = 800;  // a name may be as long as the text
constexpr size_t kQuotedBytes = 160;      // of a long line, around the place
}  // namespace

SourceText::SourceText(std::string text) : text_(std::move(text)), line_starts_{0} {
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
}

int SourceText::Line(size_t offset) const {
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  return static_cast<int>(after - line_starts_.begin());
}

int SourceText::Column(size_t offset) const {
  return static_cast<int>(offset - line_starts_[static_cast<size_t>(Line(offset) - 1)]) + 1;
}

std::string SourceText::Quote(size_t offset) const {
  const size_t start = line_starts_[static_cast<size_t>(Line(offset) - 1)];
  const size_t end = std::min(text_.find('\n', start), text_.size());
  const size_t from = offset - start > kQuotedBytes / 2 ? offset - kQuotedBytes / 2 : start;
  const std::string line = text_.substr(from, std::min(end - from, kQuotedBytes));
  std::string caret;
  for (size_t i = 0; i < offset - from && i < line.size(); ++i) {
    const bool continues = (static_cast<unsigned char>(line[i]) & 0xc0) == 0x80;  // UTF-8
    if (!continues) caret += line[i] == '\t' ? '\t' : ' ';
  }
  return Printable(line) + "\n" + caret + "^";
}

void SourceText::Fail(size_t offset, const std::string& what) const {
  offset = std::min(offset, text_.size());
  LaunchError error;
  error.line = Line(offset);
  error.column = Column(offset);
  error.message = fmt::format("line {}, column {}: {}\n{}", error.line, error.column,
                              Printable(what.substr(0, kMaxMessageBytes)), Quote(offset));
  throw LaunchException(std::move(error));
}

}  // namespace kevin::launch
