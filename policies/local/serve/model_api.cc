#include "policies/local/serve/model_api.h"

#include <fmt/format.h>

#include <chrono>

#include "policies/local/serve/parse_request.h"
#include "policies/policy.h"

namespace kevin::local {

std::string MetricsText(const EngineStatistics& s) {
  std::string text;
  const auto add = [&](const char* type, const char* name, auto value, const char* help) {
    text += fmt::format("# HELP kevin_model_{0} {1}\n# TYPE kevin_model_{0} {2}\nkevin_model_{0} {3}\n", name,
                        help, type, value);
  };
  add("counter", "requests_total", s.requests, "Requests taken.");
  add("counter", "answers_total", s.answers, "Answers begun; a request may ask for several.");
  add("counter", "generated_tokens_total", s.generated_tokens, "Tokens in answers.");
  add("counter", "wasted_tokens_total", s.wasted_tokens, "Tokens drawn for answers that had ended.");
  add("counter", "prompt_tokens_total", s.prompt_tokens, "Tokens of prompts, once for each answer.");
  add("counter", "cached_tokens_total", s.cached_tokens, "Of these, found in the cache.");
  add("counter", "run_tokens_total", s.run_tokens, "Tokens that went through the model.");
  add("counter", "steps_total", s.steps, "Steps of the model.");
  add("counter", "step_sequences_total", s.step_sequences, "Answers in them; by steps: the mean batch.");
  add("counter", "preemptions_total", s.preemptions, "Answers put off for want of pages.");
  add("counter", "busy_seconds_total", s.busy_s, "Time with something to do.");
  add("gauge", "running", s.running, "Answers in the batch.");
  add("gauge", "waiting", s.waiting, "Answers not in it yet.");
  add("gauge", "pages", s.pages, "Pages of the cache.");
  add("gauge", "used_pages", s.used_pages, "Pages that answers use.");
  add("gauge", "cached_pages", s.cached_pages, "Pages kept for prompts to come.");
  return text;
}

namespace {

Reply Plain(const Json& body) {
  Reply reply;
  reply.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

Reply Failed(const ApiError& error) {
  Reply reply = Plain(error.Body());
  reply.status = error.status();
  return reply;
}

Json Parsed(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_discarded()) throw ApiError(400, "the body is no JSON in UTF-8");
  return json;
}

int64_t UnixTime() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

ReplyInProgress::ReplyInProgress(Engine& engine, ParsedRequest request, const ServedModel& model)
    : engine_(engine), prompts_(request.prompts), writer_(std::move(request), model) {
  int first = 0;
  try {
    for (const GenerationRequest& prompt : prompts_) {
      numbers_.push_back(engine_.Submit(prompt, [inbox = inbox_, first](const AnswerPiece& piece) {
        {
          const std::lock_guard lock(inbox->mutex);
          inbox->pieces.emplace_back(first + piece.answer, piece);
        }
        inbox->wake.notify_one();
      }));
      first += prompt.answers;
    }
  } catch (...) {
    for (const int64_t number : numbers_) engine_.Cancel(number);
    throw;
  }
}

ReplyInProgress::~ReplyInProgress() {
  if (writer_.IsComplete()) return;
  for (const int64_t number : numbers_) engine_.Cancel(number);
}

std::optional<std::string> ReplyInProgress::Next(double seconds) {
  if (is_over_) return std::nullopt;
  std::deque<std::pair<int, AnswerPiece>> pieces;
  {
    std::unique_lock lock(inbox_->mutex);
    inbox_->wake.wait_for(lock, std::chrono::duration<double>(seconds),
                          [this] { return !inbox_->pieces.empty(); });
    pieces.swap(inbox_->pieces);
  }
  std::string bytes;
  for (const auto& [answer, piece] : pieces) bytes += writer_.Take(answer, piece);
  if (writer_.IsComplete()) {
    bytes += writer_.Finish();
    is_over_ = true;
  }
  return bytes;
}

ModelApi::ModelApi(Engine& engine, ServedModel model)
    : engine_(engine), model_(std::move(model)), next_seed_(model_.seed), created_(UnixTime()) {}

Reply ModelApi::Answer(const std::string& method, const std::string& path, const std::string& body) {
  try {
    return Route(method, path, body);
  } catch (const ApiError& error) {
    return Failed(error);
  } catch (const PromptTooLong& error) {
    return Failed(ApiError(400, error.what(), "context_length_exceeded", "messages"));
  } catch (const Error& error) {
    const bool is_ours = error.code() != ExitCode::kBadRequest;
    return Failed(ApiError(is_ours ? 500 : 400, error.what(), is_ours ? "engine_failed" : ""));
  } catch (const std::exception& error) {
    return Failed(ApiError(500, error.what()));
  }
}

Reply ModelApi::Route(const std::string& method, const std::string& path, const std::string& body) {
  if (method == "GET") {
    if (path == "/v1/models") return Models();
    if (path == "/health") return Health();
    if (path == "/metrics") {
      Reply reply;
      reply.type = "text/plain; version=0.0.4";
      reply.body = MetricsText(engine_.Statistics());
      return reply;
    }
  }
  if (method == "POST") {
    if (path == "/v1/chat/completions") return Generate(ParseChat(Parsed(body), model_, next_seed_++));
    if (path == "/v1/completions") return Generate(ParseCompletion(Parsed(body), model_, next_seed_++));
    if (path == "/tokenize") return Tokenize(Parsed(body));
    if (path == "/detokenize") return Detokenize(Parsed(body));
  }
  throw ApiError(
      404,
      fmt::format("{} {} is not here; there are /v1/models, /v1/chat/completions, /v1/completions, "
                  "/tokenize, /detokenize, /health and /metrics",
                  method, path),
      "not_found");
}

Reply ModelApi::Generate(ParsedRequest request) {
  Reply reply;
  if (request.format.stream) reply.type = "text/event-stream";
  reply.in_progress = std::make_shared<ReplyInProgress>(engine_, std::move(request), model_);
  return reply;
}

Reply ModelApi::Models() const {
  Json model = {{"id", model_.name},
                {"object", "model"},
                {"created", created_},
                {"owned_by", "kevin"},
                {"root", model_.root},
                {"parent", nullptr},
                {"max_model_len", engine_.ContextTokens()}};
  if (model_.weights) model["kevin"] = IdentityJson(model_, model_.weights->Get(), std::chrono::seconds(0));
  return Plain({{"object", "list"}, {"data", Json::array({model})}});
}

Reply ModelApi::Tokenize(const Json& body) const {
  const std::vector<int32_t> tokens = ParseTokenize(body, model_);
  return Plain({{"count", tokens.size()}, {"max_model_len", engine_.ContextTokens()}, {"tokens", tokens}});
}

Reply ModelApi::Detokenize(const Json& body) const {
  const RequestFields fields(body);
  if (!fields.Has("tokens")) RefuseField("tokens", "is missing");
  const std::vector<int32_t> tokens = fields.Integers("tokens");
  return Plain({{"prompt", model_.text->Decode(tokens)}});
}

Reply ModelApi::Health() const {
  if (const auto failure = engine_.PermanentFailure())
    return Failed(ApiError(503, failure->what(), "engine_failed"));
  return Plain({{"status", "ok"}});
}

}  // namespace kevin::local
