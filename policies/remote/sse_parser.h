#pragma once
// Server-sent events (the WHATWG's event-stream format), from bytes in chunks of any size.

#include <functional>
#include <string>
#include <string_view>

namespace kevin::remote {

struct SseEvent {
  std::string name;  // of `event:`; empty: none given
  std::string data;  // `data:` lines joined by line feeds
};

class SseParser {
 public:
  using OnEvent = std::function<void(const SseEvent&)>;
  explicit SseParser(OnEvent on_event) : on_event_(std::move(on_event)) {}

  // Bytes may end anywhere, also within a UTF-8 sequence or a CRLF. Returns whether anything became whole: an
  // event or a comment.
  bool Feed(std::string_view bytes);

  // The stream has ended. An event whose lines are all whole counts even when the empty line after it is
  // missing, as some servers have it.
  void Finish();

 private:
  void TakeLine();
  void Dispatch();

  OnEvent on_event_;
  std::string line_, name_, data_;
  bool has_data_ = false, after_cr_ = false, at_start_ = true, progress_ = false;
};

}  // namespace kevin::remote
