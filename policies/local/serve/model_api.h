#pragma once
// START HERE for the server: OpenAI's and vLLM's endpoints over an Engine, without HTTP. Any thread.
//
//   POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize; GET /v1/models, /health, /metrics

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "policies/local/generate/engine.h"
#include "policies/local/serve/reply_writer.h"

namespace kevin::local {

// A reply in progress. One thread reads it.
class ReplyInProgress {
 public:
  ReplyInProgress(Engine& engine, ParsedRequest request, const ServedModel& model);
  ~ReplyInProgress();  // cancels the rest
  ReplyInProgress(const ReplyInProgress&) = delete;
  ReplyInProgress& operator=(const ReplyInProgress&) = delete;

  // The next bytes of the body; empty after `seconds` without any; nullopt: the reply is complete.
  std::optional<std::string> Next(double seconds);

 private:
  struct Inbox {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::pair<int, AnswerPiece>> pieces;
  };
  Engine& engine_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  const std::vector<GenerationRequest> prompts_;
  ReplyWriter writer_;
  std::vector<int64_t> numbers_;
  bool is_over_ = false;
};

struct Reply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::shared_ptr<ReplyInProgress> in_progress;  // not null: replaces `body`
};

// The statistics of an engine in Prometheus' text format.
std::string MetricsText(const EngineStatistics& statistics);

class ModelApi {
 public:
  // The engine must outlive this and its replies.
  ModelApi(Engine& engine, ServedModel model);

  // Never throws; errors are replies.
  Reply Answer(const std::string& method, const std::string& path, const std::string& body);
  const ServedModel& model() const { return model_; }

 private:
  Reply Route(const std::string& method, const std::string& path, const std::string& body);
  Reply Generate(ParsedRequest request);
  Reply Models() const;
  Reply Tokenize(const Json& body) const;
  Reply Detokenize(const Json& body) const;
  Reply Health() const;

  Engine& engine_;
  const ServedModel model_;
  std::atomic<uint64_t> next_seed_;
  const int64_t created_;
};

}  // namespace kevin::local
