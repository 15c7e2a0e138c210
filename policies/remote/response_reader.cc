#include "policies/remote/response_reader.h"

namespace kevin::remote {
namespace {

bool IsGood(const HttpResponse& response) {
  return response.status && *response.status >= 200 && *response.status <= 299;
}

bool HasType(const HttpResponse& response, const char* type) {
  const auto found = response.headers.find("content-type");
  return found != response.headers.end() && found->second.find(type) != std::string::npos;
}

}  // namespace

ResponseReader::ResponseReader(const Wire& wire, OnText on_text)
    : wire_(wire), answer_(std::move(on_text)), parser_([this](const SseEvent& event) { OnEvent(event); }) {}

Reading ResponseReader::Take(const HttpResponse& so_far, std::string_view piece) {
  if (!IsGood(so_far) || !HasType(so_far, "text/event-stream")) return Reading::kProgress;
  is_stream_ = true;
  const bool progress = parser_.Feed(piece);
  if (malformed_ || answer_.done || answer_.error) return Reading::kEnough;
  return progress ? Reading::kProgress : Reading::kNothingNew;
}

void ResponseReader::OnEvent(const SseEvent& event) {
  if (malformed_ || answer_.done || answer_.error) return;
  std::optional<Json> data;
  if (event.data != "[DONE]") {
    data = ParseJson(event.data);
    malformed_ = !data;
    if (malformed_) return;
  }
  wire_.ReadEvent(event, data.value_or(Json()), &answer_);
  if (!first_token_s_ && answer_.HasText())
    first_token_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ResponseReader::Finish(const HttpResponse& response) {
  if (is_stream_) return parser_.Finish();
  if (!IsGood(response) || !HasType(response, "json")) return;
  const auto body = ParseJson(response.body);
  malformed_ = !body;
  if (!body) return;
  if (!At(*body, "error").is_null()) {
    answer_.error = ErrorIn(*body);
  } else {
    wire_.ReadBody(*body, &answer_);
  }
}

}  // namespace kevin::remote
