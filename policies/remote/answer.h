#pragma once
// The answer in one response, collected piece by piece, and the two parsers that it needs:
//   SseParser       bytes of an event stream to events
//   ThinkSplitter   text with an inline <think> block to text and reasoning
//   Answer          pieces from the wire formats (wire.h) to a Completion
// One object serves one response and one thread.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policies/policy.h"

namespace kevin::remote {

// One server-sent event (the WHATWG's event-stream format).
struct SseEvent {
  std::string name;  // the `event:` field; empty: absent
  std::string data;  // the `data:` lines, joined by line feeds
};

class SseParser {
 public:
  using OnEvent = std::function<void(const SseEvent&)>;
  explicit SseParser(OnEvent on_event) : on_event_(std::move(on_event)) {}

  // Chunks may end anywhere, also within a UTF-8 sequence or a CRLF. Returns whether an event or a comment
  // was completed.
  bool Feed(std::string_view bytes);

  // The stream has ended. An event with complete lines counts even without the empty line after it, which
  // some servers omit.
  void Finish();

 private:
  void TakeLine();
  void Dispatch();

  OnEvent on_event_;
  std::string line_, name_, data_;
  bool has_data_ = false, after_cr_ = false, at_start_ = true, progress_ = false;
};

// Separates inline reasoning from the text. Models put it first, between <think> and </think>. Where the chat
// template has already opened the block, the text only closes it: see SplitUnopenedThought.
class ThinkSplitter {
 public:
  struct Pieces {
    std::string text, reasoning;  // to be appended; a possible beginning of a tag is held back
  };
  Pieces Feed(std::string_view piece);
  Pieces Finish();  // the rest

 private:
  enum class State { kStart, kThinking, kAfter, kText };
  void Take(char c, Pieces* pieces);

  State state_ = State::kStart;
  std::string held_;
};

// For a complete text that closes a block without opening it: everything before the last </think> moves to
// the front of *reasoning, the rest stays in *text. Returns whether there was such a tag.
bool SplitUnopenedThought(std::string* text, std::string* reasoning);

struct ServerError {
  std::string type, code, message;  // as the server spells them; any may be empty
};

class Answer {
 public:
  // `on_text` receives the text of the first choice; may be empty.
  explicit Answer(OnText on_text) : on_text_(std::move(on_text)) {}

  // `choice` counts from 0. Inline <think> blocks in the text are moved to the reasoning.
  void AddText(size_t choice, const std::string& piece);
  void AddReasoning(size_t choice, const std::string& piece);
  void AddTokens(size_t choice, const std::vector<int32_t>& ids, const std::vector<float>& logprobs);
  void SetTokens(size_t choice, std::vector<int32_t> ids, std::vector<float> logprobs);
  void Stop(size_t choice, StopReason reason, const std::string& cause);

  // Every choice has a stop reason, or the server has declared the end.
  bool IsComplete() const;
  bool HasText() const { return has_text_; }  // or reasoning

  // The completion; called once, after the last piece.
  Completion Finish();

  // Set by the wire formats.
  std::vector<int32_t> prompt_token_ids;
  std::optional<Usage> usage;  // final
  std::optional<ServerError> error;
  std::string model, id;   // as reported by the server
  ModelIdentity identity;  // likewise
  std::string stop_cause;  // of the first choice
  bool done = false;       // the server has declared the end
  // State of wire formats whose events repeat or refine earlier ones.
  Usage usage_so_far;
  std::string text_so_far;
  size_t tokens_so_far = 0;

 private:
  struct Part {
    OtherAnswer choice;
    ThinkSplitter splitter;
    std::string shown;  // passed to on_text
    bool stopped = false;
  };
  Part& At(size_t choice);
  void Append(size_t choice, const ThinkSplitter::Pieces& pieces);

  OnText on_text_;
  std::vector<Part> parts_;
  bool has_text_ = false;
};

}  // namespace kevin::remote
