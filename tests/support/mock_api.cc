#include "tests/support/mock_api.h"

#include <fmt/format.h>

#include <algorithm>

namespace kevin {
namespace {

using remote::Format;
using remote::Json;

constexpr size_t kPieceBytes = 12;  // of an answer's text, an event each

// Whole characters, so that each piece is text by itself.
std::vector<std::string> Pieces(const std::string& text) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.size(), at + kPieceBytes);
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

std::string Event(const Json& data, const std::string& name = "") {
  const std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  return (name.empty() ? "" : "event: " + name + "\n") + "data: " + text + "\n\n";
}

// --- Chat completions, and completions with token prompts ---

std::string OpenAiStop(const std::string& stop) { return stop == "filtered" ? "content_filter" : stop; }

Json OpenAiUsage(const Usage& u) {
  return {{"prompt_tokens", u.prompt_tokens},
          {"completion_tokens", u.completion_tokens},
          {"total_tokens", u.prompt_tokens + u.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", u.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", u.reasoning_tokens}}}};
}

Json ChatLogprobs(const MockAnswer& answer) {
  Json content = Json::array();
  for (const float value : answer.logprobs) content.push_back({{"token", "t"}, {"logprob", value}});
  return {{"content", content}};
}

Json ChatChunk(const MockAnswer& answer, const Json& delta) {
  return {{"id", "chatcmpl-mock"},
          {"object", "chat.completion.chunk"},
          {"model", answer.model},
          {"choices", {{{"index", 0}, {"delta", delta}, {"finish_reason", nullptr}}}}};
}

std::vector<std::string> ChatEvents(const MockAnswer& answer) {
  std::vector<std::string> events = {Event(ChatChunk(answer, {{"role", "assistant"}, {"content", ""}}))};
  const bool inline_thought = answer.reasoning_field.empty() && !answer.reasoning.empty();
  if (!inline_thought) {
    for (const std::string& piece : Pieces(answer.reasoning))
      events.push_back(Event(ChatChunk(answer, {{answer.reasoning_field, piece}})));
  }
  const std::string thought = inline_thought ? "<think>\n" + answer.reasoning + "</think>\n\n" : "";
  for (const std::string& piece : Pieces(thought + answer.text))
    events.push_back(Event(ChatChunk(answer, {{"content", piece}})));
  Json last = ChatChunk(answer, Json::object());
  last["choices"][0]["finish_reason"] = OpenAiStop(answer.stop);
  if (!answer.token_ids.empty()) {
    last["choices"][0]["token_ids"] = answer.token_ids;
    last["choices"][0]["logprobs"] = ChatLogprobs(answer);
    last["prompt_token_ids"] = answer.prompt_token_ids;
  }
  events.push_back(Event(last));
  if (answer.has_usage) {
    Json usage = ChatChunk(answer, Json::object());
    usage["choices"] = Json::array();
    usage["usage"] = OpenAiUsage(answer.usage);
    events.push_back(Event(usage));
  }
  events.push_back("data: [DONE]\n\n");
  return events;
}

Json ChatBody(const MockAnswer& answer) {
  Json body = ChatChunk(answer, Json::object());
  body["object"] = "chat.completion";
  body["choices"][0].erase("delta");
  body["choices"][0]["message"] = {{"role", "assistant"}, {"content", answer.text}};
  if (!answer.reasoning.empty()) body["choices"][0]["message"][answer.reasoning_field] = answer.reasoning;
  body["choices"][0]["finish_reason"] = OpenAiStop(answer.stop);
  if (!answer.token_ids.empty()) {
    body["choices"][0]["token_ids"] = answer.token_ids;
    body["choices"][0]["logprobs"] = ChatLogprobs(answer);
    body["prompt_token_ids"] = answer.prompt_token_ids;
  }
  if (answer.has_usage) body["usage"] = OpenAiUsage(answer.usage);
  return body;
}

Json CompletionsBody(const MockAnswer& answer) {
  Json body = {{"id", "cmpl-mock"}, {"object", "text_completion"}, {"model", answer.model}};
  body["choices"] = {{{"index", 0},
                      {"text", answer.text},
                      {"token_ids", answer.token_ids},
                      {"prompt_token_ids", answer.prompt_token_ids},
                      {"logprobs", {{"token_logprobs", answer.logprobs}}},
                      {"finish_reason", OpenAiStop(answer.stop)}}};
  if (answer.has_usage) body["usage"] = OpenAiUsage(answer.usage);
  return body;
}

// --- Responses ---

Json ResponsesBody(const MockAnswer& answer) {
  const bool whole = answer.stop == "stop";
  Json body = {{"id", "resp_mock"},
               {"object", "response"},
               {"model", answer.model},
               {"status", whole ? "completed" : "incomplete"}};
  if (!whole) {
    body["incomplete_details"] = {
        {"reason", answer.stop == "length" ? "max_output_tokens" : "content_filter"}};
  }
  body["output"] = Json::array();
  if (!answer.reasoning.empty()) {
    body["output"].push_back(
        {{"type", "reasoning"}, {"summary", {{{"type", "summary_text"}, {"text", answer.reasoning}}}}});
  }
  body["output"].push_back(
      {{"type", "message"}, {"content", {{{"type", "output_text"}, {"text", answer.text}}}}});
  const Usage& u = answer.usage;
  if (answer.has_usage) {
    body["usage"] = {{"input_tokens", u.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", u.cached_tokens}}},
                     {"output_tokens", u.completion_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", u.reasoning_tokens}}}};
  }
  return body;
}

std::vector<std::string> ResponsesEvents(const MockAnswer& answer) {
  int number = 0;
  std::vector<std::string> events;
  const auto add = [&](const std::string& type, Json data) {
    data["type"] = type;
    data["sequence_number"] = number++;
    events.push_back(Event(data, type));
  };
  add("response.created", {{"response", {{"id", "resp_mock"}, {"status", "in_progress"}}}});
  add("response.output_item.added", {{"output_index", 0}});
  for (const std::string& piece : Pieces(answer.reasoning))
    add("response.reasoning_summary_text.delta", {{"delta", piece}});
  for (const std::string& piece : Pieces(answer.text)) add("response.output_text.delta", {{"delta", piece}});
  add("response.output_text.done", {{"text", answer.text}});
  add(answer.stop == "stop" ? "response.completed" : "response.incomplete",
      {{"response", ResponsesBody(answer)}});
  return events;
}

// --- Messages ---

std::string AnthropicStop(const std::string& stop) {
  return stop == "length" ? "max_tokens" : stop == "filtered" ? "refusal" : "end_turn";
}

// Tokens that came from or went to the cache are counted beside the others.
Json AnthropicUsage(const MockAnswer& answer, int64_t output) {
  const Usage& u = answer.usage;
  return {{"input_tokens", u.prompt_tokens - u.cached_tokens - u.cache_write_tokens},
          {"cache_read_input_tokens", u.cached_tokens},
          {"cache_creation_input_tokens", u.cache_write_tokens},
          {"output_tokens", output}};
}

std::vector<std::string> MessagesEvents(const MockAnswer& answer) {
  std::vector<std::string> events;
  const auto add = [&](const std::string& type, Json data) {
    data["type"] = type;
    events.push_back(Event(data, type));
  };
  Json message = {
      {"id", "msg_mock"}, {"role", "assistant"}, {"model", answer.model}, {"content", Json::array()}};
  if (answer.has_usage) message["usage"] = AnthropicUsage(answer, 1);
  add("message_start", {{"message", message}});
  add("ping", Json::object());
  int index = 0;
  const auto add_block = [&](const char* type, const char* delta, const std::string& text) {
    if (text.empty()) return;
    add("content_block_start", {{"index", index}, {"content_block", {{"type", type}, {type, ""}}}});
    for (const std::string& piece : Pieces(text))
      add("content_block_delta", {{"index", index}, {"delta", {{"type", delta}, {type, piece}}}});
    add("content_block_stop", {{"index", index++}});
  };
  add_block("thinking", "thinking_delta", answer.reasoning);
  add_block("text", "text_delta", answer.text);
  Json last = {{"delta", {{"stop_reason", AnthropicStop(answer.stop)}}}};
  if (answer.has_usage) last["usage"] = {{"output_tokens", answer.usage.completion_tokens}};
  add("message_delta", last);
  add("message_stop", Json::object());
  return events;
}

Json MessagesBody(const MockAnswer& answer) {
  Json body = {{"id", "msg_mock"}, {"type", "message"}, {"model", answer.model}, {"content", Json::array()}};
  if (!answer.reasoning.empty())
    body["content"].push_back({{"type", "thinking"}, {"thinking", answer.reasoning}, {"signature", "s"}});
  body["content"].push_back({{"type", "text"}, {"text", answer.text}});
  body["stop_reason"] = AnthropicStop(answer.stop);
  if (answer.has_usage) body["usage"] = AnthropicUsage(answer, answer.usage.completion_tokens);
  return body;
}

// --- SGLang's /generate ---

Json GenerateBody(const MockAnswer& answer, const std::string& text, bool is_last) {
  const Usage& u = answer.usage;
  Json meta = {{"id", "gen-mock"}, {"finish_reason", nullptr}};
  if (answer.has_usage) {
    meta["prompt_tokens"] = u.prompt_tokens;
    meta["completion_tokens"] = u.completion_tokens;
    meta["cached_tokens"] = u.cached_tokens;
  }
  if (is_last) {
    meta["finish_reason"] = {{"type", OpenAiStop(answer.stop)}};
    meta["output_token_logprobs"] = Json::array();
    for (size_t i = 0; i < answer.token_ids.size(); ++i)
      meta["output_token_logprobs"].push_back({answer.logprobs.at(i), answer.token_ids[i], nullptr});
  }
  return {{"text", text}, {"meta_info", meta}};
}

std::vector<std::string> GenerateEvents(const MockAnswer& answer) {
  std::vector<std::string> events;
  std::string so_far;
  for (const std::string& piece : Pieces(answer.text))
    events.push_back(Event(GenerateBody(answer, so_far += piece, false)));
  events.push_back(Event(GenerateBody(answer, answer.text, true)));
  events.push_back("data: [DONE]\n\n");
  return events;
}

// --- Faults ---

MockReply ErrorReply(Format format, int status, const std::string& type) {
  const Json error = {{"type", type}, {"message", "mock " + type}};
  Json body = {{"error", error}};
  if (format == Format::kMessages) body["type"] = "error";
  return {status, {"content-type: application/json"}, {{0, body.dump()}}, MockReply::End::kWhole};
}

void Spoil(MockFault fault, MockReply* reply) {
  std::vector<MockReply::Piece>& pieces = reply->pieces;
  const size_t middle = pieces.size() / 2;
  if (fault == MockFault::kStall || fault == MockFault::kCut) {
    pieces.resize(middle);
    reply->end = fault == MockFault::kStall ? MockReply::End::kSilence : MockReply::End::kCut;
  }
  if (fault == MockFault::kMalformed) pieces[middle].bytes = "data: {\"choices\": [{\"del\n\n";
  if (fault == MockFault::kErrorInStream) {
    pieces.resize(middle);
    pieces.push_back(
        {0, Event({{"type", "error"}, {"error", {{"type", "overloaded_error"}, {"message", "Overloaded"}}}},
                  "error")});
  }
  if (fault == MockFault::kSlowLoris) {
    pieces.assign(100000, {0.02, "d"});
    reply->end = MockReply::End::kSilence;
  }
}

}  // namespace

std::vector<std::string> EventsOf(Format format, const MockAnswer& answer) {
  switch (format) {
    case Format::kChat:
      return ChatEvents(answer);
    case Format::kResponses:
      return ResponsesEvents(answer);
    case Format::kMessages:
      return MessagesEvents(answer);
    case Format::kCompletions:
      return {Event(CompletionsBody(answer)), "data: [DONE]\n\n"};
    case Format::kGenerate:
      return GenerateEvents(answer);
  }
  return {};
}

std::string BodyOf(Format format, const MockAnswer& answer) {
  switch (format) {
    case Format::kChat:
      return ChatBody(answer).dump();
    case Format::kResponses:
      return ResponsesBody(answer).dump();
    case Format::kMessages:
      return MessagesBody(answer).dump();
    case Format::kCompletions:
      return CompletionsBody(answer).dump();
    case Format::kGenerate:
      return GenerateBody(answer, answer.text, true).dump();
  }
  return "";
}

std::optional<Format> FormatOfPath(const std::string& path) {
  if (path.ends_with("/chat/completions")) return Format::kChat;
  if (path.ends_with("/responses")) return Format::kResponses;
  if (path.ends_with("/v1/messages")) return Format::kMessages;
  if (path.ends_with("/completions")) return Format::kCompletions;
  if (path.ends_with("/generate")) return Format::kGenerate;
  return std::nullopt;
}

MockReply ReplyTo(const MockRequest& request, const MockAnswer& given, MockFault fault,
                  double retry_after_s) {
  const auto format = FormatOfPath(request.path);
  if (!format) return ErrorReply(Format::kChat, 404, "not_found_error");
  if (fault == MockFault::kTooMany) return ErrorReply(*format, 429, "rate_limit_error");
  if (fault == MockFault::kTooManyWait) {
    MockReply reply = ErrorReply(*format, 429, "rate_limit_error");
    reply.headers.push_back(fmt::format("retry-after: {}", retry_after_s));
    return reply;
  }
  if (fault == MockFault::kOverloaded) return ErrorReply(*format, 529, "overloaded_error");
  if (fault == MockFault::kServerError) return ErrorReply(*format, 500, "api_error");
  if (fault == MockFault::kWrongType)
    return {200, {"content-type: text/html"}, {{0, "<html>Sign in</html>"}}, MockReply::End::kWhole};
  MockAnswer answer = given;
  if (fault == MockFault::kNoUsage) answer.has_usage = false;
  const auto body = remote::ParseJson(request.body);
  const Json& stream = body ? remote::At(*body, "stream") : Json();
  if (!stream.is_boolean() || !stream.get<bool>())
    return {200, {"content-type: application/json"}, {{0, BodyOf(*format, answer)}}, MockReply::End::kWhole};
  MockReply reply{200, {"content-type: text/event-stream; charset=utf-8"}, {}, MockReply::End::kWhole};
  for (const std::string& event : EventsOf(*format, answer)) reply.pieces.push_back({0, event});
  Spoil(fault, &reply);
  return reply;
}

}  // namespace kevin
