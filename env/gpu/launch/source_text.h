#pragma once
// A candidate's text and how to point into it. Everywhere here a place is a byte offset into this text.

#include <cstddef>
#include <string>
#include <vector>

namespace kevin::launch {

class SourceText {
 public:
  explicit SourceText(std::string text);
  const std::string& text() const { return text_; }
  int Line(size_t offset) const;    // from 1
  int Column(size_t offset) const;  // in bytes, from 1

  // Throws LaunchException: "line 3, column 7: WHAT", the line and a caret.
  [[noreturn]] void Fail(size_t offset, const std::string& what) const;

 private:
  std::string Quote(size_t offset) const;

  std::string text_;
  std::vector<size_t> line_starts_;
};

}  // namespace kevin::launch
