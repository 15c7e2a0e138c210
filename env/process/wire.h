#pragma once
// The evaluator's protocol: one JSON object a line on a socket. `kevin` asks, kevin-evaluator answers with
// any number of {"phase": ...} lines and one {"result": ...} or {"error": ...}. Both ends are trusted and of
// the same build.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "env/verdict/judge_result.h"

namespace kevin {

nlohmann::json SampleToJson(const Sample& sample);
Sample SampleFromJson(const nlohmann::json& json);

nlohmann::json JudgeResultToJson(const JudgeResult& result);
// What the judge found goes into the evaluation; its own log is added, trimmed to `max_log_bytes`.
void TakeJudgeResult(const nlohmann::json& result, int64_t max_log_bytes, Evaluation* evaluation);

// Line-wise reading and writing on a socket; one object per connection and thread.
class LineSocket {
 public:
  explicit LineSocket(int fd) : fd_(fd) {}
  // False when the other side is gone.
  bool Write(const std::string& line);
  // False at the end of the stream.
  bool Read(std::string* line);

 private:
  int fd_;
  std::string buffer_;
};

// The evaluator's side: answers requests until the other side is gone. `after_error` runs when `answer` threw
// an Error, which goes back to the other side.
void ServeRequests(LineSocket* socket, const std::function<nlohmann::json(const nlohmann::json&)>& answer,
                   const std::function<void()>& after_error);

}  // namespace kevin
