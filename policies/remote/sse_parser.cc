#include "policies/remote/sse_parser.h"

namespace kevin::remote {

bool SseParser::Feed(std::string_view bytes) {
  progress_ = false;
  for (const char c : bytes) {
    if (c == '\n' && after_cr_) {
      after_cr_ = false;
      continue;
    }
    after_cr_ = c == '\r';
    if (c == '\n' || c == '\r') {
      TakeLine();
    } else {
      line_ += c;
    }
  }
  return progress_;
}

void SseParser::Finish() {
  line_.clear();
  Dispatch();
}

void SseParser::TakeLine() {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  std::string_view line = line_;
  if (at_start_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  at_start_ = false;
  if (line.empty()) {
    Dispatch();
  } else if (line.front() == ':') {
    progress_ = true;
  } else {
    const size_t colon = line.find(':');
    const std::string_view field = line.substr(0, colon);
    std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (field == "event") name_ = value;
    if (field == "data") {
      if (has_data_) data_ += '\n';
      data_ += value;
      has_data_ = true;
    }
  }
  line_.clear();
}

void SseParser::Dispatch() {
  const SseEvent event{std::move(name_), std::move(data_)};
  const bool has_data = has_data_;
  name_.clear();
  data_.clear();
  has_data_ = false;
  if (!has_data) return;
  progress_ = true;
  on_event_(event);
}

}  // namespace kevin::remote
