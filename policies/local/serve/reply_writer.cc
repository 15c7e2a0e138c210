#include "policies/local/serve/reply_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <utility>

namespace kevin::local {
namespace {

constexpr std::chrono::seconds kHashPatience{60};

std::string NewId(bool is_chat) {
  static thread_local std::mt19937_64 random(std::random_device{}());
  return fmt::format("{}-{:016x}{:016x}", is_chat ? "chatcmpl" : "cmpl", random(), random());
}

int64_t UnixSeconds() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count();
}

std::string AsEvent(const Json& json) {
  return "data: " + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
}

const char* NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "abort";
    case FinishReason::kFailed:
      break;
  }
  return "error";
}

Json IdsOf(const std::vector<SampledToken>& tokens) {
  Json ids = Json::array();
  for (const SampledToken& token : tokens) ids.push_back(token.id);
  return ids;
}

Json BytesOf(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

}  // namespace

Json IdentityJson(const ServedModel& model, const ServedWeights::State& weights,
                  std::chrono::seconds patience) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const bool is_known =
      weights.identity.valid() && weights.identity.wait_for(patience) == std::future_status::ready;
  return {{"weights_hash", is_known ? or_null(weights.identity.get()) : Json()},
          {"weights_version", weights.version},
          {"tokenizer_hash", or_null(model.tokenizer_hash)},
          {"chat_template_hash", or_null(model.chat_template_hash)}};
}

ReplyWriter::ReplyWriter(ParsedRequest request, const ServedModel& model)
    : request_(std::move(request)),
      model_(model),
      weights_(model.weights ? model.weights->Get() : ServedWeights::State{}),
      id_(NewId(request_.format.is_chat)),
      created_(UnixSeconds()),
      choices_(request_.prompts.size() * static_cast<size_t>(request_.prompts[0].answers)),
      open_(choices_.size()) {
  if (!request_.format.opens_thought) return;
  for (Choice& choice : choices_) choice.splitter.Feed("<think>");
}

std::string ReplyWriter::Take(int answer, const AnswerPiece& piece) {
  Choice& choice = choices_[static_cast<size_t>(answer)];
  Delta delta = DeltaOf(answer, piece);
  if (delta.is_last) {
    --open_;
    choice.finish = *piece.finish;
    choice.cached_tokens = static_cast<size_t>(piece.cached_tokens);
    if (choice.finish == FinishReason::kFailed) error_ = piece.error;
  }
  if (request_.format.stream) return Event(answer, delta);
  choice.text += delta.text;
  choice.reasoning += delta.reasoning;
  if (request_.format.token_ids || request_.format.logprobs)
    choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  choice.tops.insert(choice.tops.end(), delta.tops.begin(), delta.tops.end());
  return "";
}

ReplyWriter::Delta ReplyWriter::DeltaOf(int answer, const AnswerPiece& piece) {
  Choice& choice = choices_[static_cast<size_t>(answer)];
  Delta delta;
  delta.tokens = piece.tokens;
  delta.is_last = piece.finish.has_value();
  if (request_.format.is_chat) {
    remote::ThinkSplitter::Pieces pieces = choice.splitter.Feed(piece.text);
    if (delta.is_last) {
      const remote::ThinkSplitter::Pieces rest = choice.splitter.Finish();
      pieces.text += rest.text;
      pieces.reasoning += rest.reasoning;
    }
    delta.text = std::move(pieces.text);
    delta.reasoning = std::move(pieces.reasoning);
  } else {
    delta.text = piece.text;
  }
  if (request_.top_logprobs != nullptr) {
    for (size_t i = 0; i < piece.tokens.size(); ++i)
      delta.tops.push_back(request_.top_logprobs->Take(answer, choice.token_count + i));
  }
  choice.token_count += piece.tokens.size();
  choice.has_text |= !delta.text.empty();
  if (!delta.reasoning.empty() || (!choice.has_text && choice.reasoning_tokens > 0))
    choice.reasoning_tokens = choice.token_count;
  return delta;
}

std::string ReplyWriter::Event(int answer, const Delta& delta) {
  Choice& choice = choices_[static_cast<size_t>(answer)];
  const bool shows_tokens = request_.format.token_ids || request_.format.logprobs;
  const bool is_empty =
      delta.text.empty() && delta.reasoning.empty() && (delta.tokens.empty() || !shows_tokens);
  if (is_empty && !delta.is_last) return "";
  Json chunk = Head(true);
  if (request_.format.token_ids && request_.format.is_chat && !choice.has_begun)
    chunk["prompt_token_ids"] = PromptOf(answer);
  chunk["choices"] = Json::array({ChoiceJson(answer, delta, false)});
  if (delta.is_last) AddIdentity(&chunk);
  choice.has_begun = true;
  return AsEvent(chunk);
}

std::string ReplyWriter::Finish() {
  if (request_.format.stream) {
    std::string events;
    if (!error_.empty()) events += AsEvent(ApiError(500, error_, "engine_failed").Body());
    if (request_.format.include_usage) {
      Json chunk = Head(true);
      chunk["choices"] = Json::array();
      chunk["usage"] = UsageJson();
      events += AsEvent(chunk);
    }
    return events + "data: [DONE]\n\n";
  }
  if (!error_.empty()) return ApiError(500, error_, "engine_failed").Body().dump();
  Json whole = Head(false);
  whole["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    const Delta all{choice.text, choice.reasoning, choice.tokens, choice.tops, true};
    whole["choices"].push_back(ChoiceJson(static_cast<int>(i), all, true));
  }
  whole["usage"] = UsageJson();
  AddIdentity(&whole);
  if (request_.format.token_ids && request_.format.is_chat) whole["prompt_token_ids"] = PromptOf(0);
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json ReplyWriter::ChoiceJson(int answer, const Delta& delta, bool is_whole) {
  Choice& choice = choices_[static_cast<size_t>(answer)];
  Json json = {{"index", answer}};
  if (request_.format.is_chat) {
    json[is_whole ? "message" : "delta"] = ChatPart(choice, delta, is_whole);
  } else {
    json["text"] = delta.text;
  }
  json["logprobs"] = request_.format.logprobs ? Logprobs(choice, delta) : Json();
  json["finish_reason"] = delta.is_last ? Json(NameOf(choice.finish)) : Json();
  if (request_.format.token_ids) {
    json["token_ids"] = IdsOf(delta.tokens);
    if (!request_.format.is_chat && !choice.has_begun) json["prompt_token_ids"] = PromptOf(answer);
  }
  choice.text_length += delta.text.size();
  return json;
}

// Both names that servers use for reasoning.
Json ReplyWriter::ChatPart(Choice& choice, const Delta& delta, bool is_whole) const {
  Json part = Json::object();
  if (is_whole || !choice.has_begun) part["role"] = "assistant";
  if (is_whole || !delta.text.empty() || !choice.has_begun) part["content"] = delta.text;
  if (!delta.reasoning.empty()) {
    part["reasoning_content"] = delta.reasoning;
    part["reasoning"] = delta.reasoning;
  }
  return part;
}

Json ReplyWriter::Logprobs(Choice& choice, const Delta& delta) const {
  if (request_.format.is_chat) return ChatLogprobs(delta);
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const SampledToken& token : delta.tokens) {
    const float value = request_.format.of_drawn_from ? token.logprob : token.model_logprob;
    const std::string text = remote::ValidUtf8(model_.text->Bytes(token.id));
    tokens.push_back(text);
    values.push_back(value);
    tops.push_back({{text, value}});
    offsets.push_back(choice.text_length);
  }
  return {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

Json ReplyWriter::ChatLogprobs(const Delta& delta) const {
  const auto entry = [this](int32_t id, float value) {
    const std::string bytes = model_.text->Bytes(id);
    return Json{{"token", remote::ValidUtf8(bytes)}, {"logprob", value}, {"bytes", BytesOf(bytes)}};
  };
  Json content = Json::array();
  for (size_t i = 0; i < delta.tokens.size(); ++i) {
    const SampledToken& token = delta.tokens[i];
    Json json = entry(token.id, request_.format.of_drawn_from ? token.logprob : token.model_logprob);
    json["top_logprobs"] = Json::array();
    if (i < delta.tops.size()) {
      for (const auto& [id, value] : delta.tops[i]) json["top_logprobs"].push_back(entry(id, value));
    }
    content.push_back(std::move(json));
  }
  return {{"content", content}};
}

Json ReplyWriter::Head(bool is_chunk) const {
  const char* chat = is_chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_},
          {"object", request_.format.is_chat ? chat : "text_completion"},
          {"created", created_},
          {"model", model_.name}};
}

void ReplyWriter::AddIdentity(Json* reply) const {
  if (model_.weights) (*reply)["kevin"] = IdentityJson(model_, weights_, kHashPatience);
}

Json ReplyWriter::UsageJson() const {
  size_t prompt = 0, answer = 0, reasoning = 0, cached = 0;
  for (const GenerationRequest& request : request_.prompts) prompt += request.prompt.size();
  const size_t each = static_cast<size_t>(request_.prompts[0].answers);
  for (size_t i = 0; i < choices_.size(); ++i) {
    answer += choices_[i].token_count;
    reasoning += choices_[i].reasoning_tokens;
    if (i % each == 0) cached += choices_[i].cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", answer},
          {"total_tokens", prompt + answer},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

const std::vector<int32_t>& ReplyWriter::PromptOf(int answer) const {
  return request_.prompts[static_cast<size_t>(answer / request_.prompts[0].answers)].prompt;
}

}  // namespace kevin::local
