#pragma once
// The protocol between `kevin` and kevin-evaluator: one JSON object a line on a socket. `kevin` sends a
// request; the evaluator answers with any number of {"phase": ...} lines and one {"result": ...} or {"error":
// ...}. The last line also has `resident`: the keys of the sessions that the evaluator keeps. Both are trusted and
// of the same build.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "env/process/shared_memory.h"
#include "env/verdict/judgement.h"

namespace kevin {

nlohmann::json SampleToJson(const Sample& sample);
Sample SampleFromJson(const nlohmann::json& json);

// In place of a result: what the evaluator's process has become spoils the answer, and a new one is to give it.
inline nlohmann::json StartAgainAnswer() { return {{"start_again", true}}; }
inline bool IsStartAgain(const nlohmann::json& result) {
  return result.is_object() && result.value("start_again", false);
}

// Into a request, and out of it.
void PutJudgeOptions(const EvaluateOptions& options, bool verify_only, nlohmann::json* request);
JudgeOptions JudgeOptionsOf(const nlohmann::json& request);

nlohmann::json JudgeResultToJson(const JudgeResult& result);
// Copies a JudgeResult into the evaluation and appends its log, trimmed to `max_log_bytes`.
void TakeJudgeResult(const nlohmann::json& result, int64_t max_log_bytes, Evaluation* evaluation);

// Lines on a socket; one object per connection and thread.
class LineSocket {
 public:
  explicit LineSocket(int fd) : fd_(fd) {}
  // False if the other side has closed.
  bool Write(const std::string& line);
  // False at the end of the stream.
  bool Read(std::string* line);
  // True when Read has a line, the end of the stream or a part of a line; false after timeout_ms without.
  bool AwaitInput(int timeout_ms) const;

 private:
  int fd_;
  std::string buffer_;
};

// What an evaluator does with a request.
struct RequestHandlers {
  std::function<nlohmann::json(const nlohmann::json& request)>
      answer;  // what it throws is sent back as an Error
  std::function<void()> after_error;
  std::function<std::vector<std::string>()> resident;  // the keys of the sessions that it keeps
  // Work for later requests, once none has come for a while (kIdleMs) after an answer. May be empty; must not throw.
  std::function<void()> when_idle = {};
};

// Opens a file that a request names, to read; "": none. `what`: for the message. Throws Error(kBroken).
Fd OpenNamed(const std::string& path, const std::string& what);

// The evaluator's side: answers requests until the other side closes.
void ServeRequests(LineSocket* socket, const RequestHandlers& handlers);

}  // namespace kevin
