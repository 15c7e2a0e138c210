#include "policies/local/serve/parse_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kevin::local {

Json ApiError::Body() const {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const char* type = status_ >= 500 ? "server_error" : "invalid_request_error";
  return {{"error",
           {{"message", remote::ValidUtf8(what())},
            {"type", type},
            {"param", text_or_null(parameter_)},
            {"code", text_or_null(code_)}}}};
}

void RefuseField(const char* name, const std::string& why) {
  throw ApiError(400, fmt::format("{}: {}", name, why), "", name);
}

RequestFields::RequestFields(const Json& body) : body_(body) {
  if (!body.is_object()) throw ApiError(400, "the body is no JSON object");
}

std::optional<double> RequestFields::Number(const char* name, double low, double high) const {
  const Json& value = At(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) RefuseField(name, "must be a number");
  const double number = value.get<double>();
  if (!(number >= low && number <= high))
    RefuseField(name, fmt::format("must be from {:g} to {:g}", low, high));
  return number;
}

std::optional<int64_t> RequestFields::Integer(const char* name, int64_t low, int64_t high) const {
  const Json& value = At(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number_integer()) RefuseField(name, "must be an integer");
  const bool is_huge = value.is_number_unsigned() &&
                       value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const int64_t number = is_huge ? high : value.get<int64_t>();
  if (is_huge ? high != std::numeric_limits<int64_t>::max() : number < low || number > high)
    RefuseField(name, fmt::format("must be from {} to {}", low, high));
  return is_huge ? static_cast<int64_t>(value.get<uint64_t>()) : number;
}

bool RequestFields::Flag(const char* name, bool otherwise) const {
  const Json& value = At(name);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) RefuseField(name, "must be true or false");
  return value.get<bool>();
}

std::optional<std::string> RequestFields::Text(const char* name) const {
  const Json& value = At(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_string()) RefuseField(name, "must be a text");
  return value.get<std::string>();
}

Json RequestFields::Object(const char* name) const {
  const Json& value = At(name);
  if (value.is_null()) return Json::object();
  if (!value.is_object()) RefuseField(name, "must be an object");
  return value;
}

std::vector<std::string> RequestFields::Texts(const char* name, size_t most) const {
  const Json& value = At(name);
  std::vector<std::string> texts;
  if (value.is_null()) return texts;
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      RefuseField(name, "must be a text or a list of texts, none of them empty");
    texts.push_back(text.get<std::string>());
  }
  if (texts.size() > most) RefuseField(name, fmt::format("has more than {} texts", most));
  return texts;
}

std::vector<int32_t> RequestFields::Integers(const char* name) const {
  const Json& value = At(name);
  std::vector<int32_t> integers;
  if (value.is_null()) return integers;
  if (!value.is_array()) RefuseField(name, "must be a list of integers");
  integers.reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 ||
        item.get<int64_t>() > std::numeric_limits<int32_t>::max())
      RefuseField(name, "must be a list of token ids");
    integers.push_back(item.get<int32_t>());
  }
  return integers;
}

void RequestFields::Lacks(const char* name, const Json& harmless) const {
  const Json& value = At(name);
  if (value.is_null() || value == harmless) return;
  if ((value.is_array() || value.is_object()) && value.empty()) return;
  RefuseField(name, "this server does not have it");
}

namespace {

TopLogprobs::Likely LikeliestOf(std::span<const float> logits, size_t count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end(), likelier);
  const double max = logits[static_cast<size_t>(ids[0])];
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - max);
  TopLogprobs::Likely likely;
  for (size_t i = 0; i < count; ++i) {
    const double gap = logits[static_cast<size_t>(ids[i])] - max;
    likely.emplace_back(ids[i], static_cast<float>(gap - std::log(total)));
  }
  return likely;
}

}  // namespace

AnswerProcessor TopLogprobs::Recorder(int answer) {
  return [this, answer](std::span<const int32_t> so_far, std::span<float> logits) {
    Likely likely = LikeliestOf(logits, count_);
    const std::lock_guard lock(mutex_);
    seen_[{answer, so_far.size()}] = std::move(likely);
  };
}

TopLogprobs::Likely TopLogprobs::Take(int answer, size_t token) {
  const std::lock_guard lock(mutex_);
  auto found = seen_.extract({answer, token});
  return found ? std::move(found.mapped()) : Likely{};
}

namespace {

constexpr int64_t kMostAnswers = 1024;
constexpr size_t kMostStops = 32;
constexpr int64_t kMostTopLogprobs = 20;

void CheckModel(const RequestFields& fields, const ServedModel& model) {
  const auto name = fields.Text("model");
  if (!name || *name == model.name) return;
  throw ApiError(404, fmt::format("the model \"{}\" is not here; this server has \"{}\"", *name, model.name),
                 "model_not_found", "model");
}

void RefuseWhatIsMissing(const RequestFields& fields) {
  for (const char* penalty : {"frequency_penalty", "presence_penalty"}) fields.Lacks(penalty, 0);
  fields.Lacks("repetition_penalty", 1);
  fields.Lacks("logit_bias", Json::object());
  fields.Lacks("best_of", 1);
  fields.Lacks("echo", false);
  fields.Lacks("suffix", "");
  fields.Lacks("tools", Json::array());
  fields.Lacks("functions", Json::array());
  fields.Lacks("min_tokens", 0);
  fields.Lacks("use_beam_search", false);
  fields.Lacks("prompt_logprobs", 0);
  for (const char* guided : {"guided_json", "guided_regex", "guided_choice", "guided_grammar"})
    fields.Lacks(guided, "");
  const Json format = fields.Object("response_format");
  if (!format.empty() && remote::TextAt(format, "type") != "text")
    RefuseField("response_format", "this server answers with plain text only");
}

TokenSampling SamplingOf(const RequestFields& fields, const ServedModel& model, uint64_t seed) {
  TokenSampling sampling = model.sampling;
  const auto number = [&](const char* name, double low, double high, float* value) {
    if (const auto given = fields.Number(name, low, high)) *value = static_cast<float>(*given);
  };
  number("temperature", 0, 100, &sampling.temperature);
  number("top_p", 0, 1, &sampling.top_p);
  number("min_p", 0, 1, &sampling.min_p);
  if (const auto k = fields.Integer("top_k", -1, std::numeric_limits<int>::max()))
    sampling.top_k = static_cast<int>(std::max<int64_t>(0, *k));
  const auto own =
      fields.Integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  sampling.seed = own ? static_cast<uint64_t>(*own) : seed;
  return sampling;
}

// All fields except the prompt.
GenerationRequest GenerationOf(const RequestFields& fields, const ServedModel& model, uint64_t seed) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  GenerationRequest request;
  request.sampling = SamplingOf(fields, model, seed);
  request.answers = static_cast<int>(fields.Integer("n", 1, kMostAnswers).value_or(1));
  auto most = fields.Integer("max_completion_tokens", 1, kMost);
  if (!most) most = fields.Integer("max_tokens", 1, kMost);
  if (most) request.max_tokens = static_cast<int>(*most);
  if (!fields.Flag("ignore_eos", false)) request.stop_tokens = model.stop_tokens;
  for (const int32_t id : fields.Integers("stop_token_ids")) request.stop_tokens.push_back(id);
  request.stop_texts = fields.Texts("stop", kMostStops);
  request.make_text = [text = model.text] { return text->NewText(); };
  return request;
}

AnswerFormat FormatOf(const RequestFields& fields) {
  AnswerFormat format;
  format.stream = fields.Flag("stream", false);
  const Json stream_options = fields.Object("stream_options");
  format.include_usage = RequestFields(stream_options).Flag("include_usage", false);
  format.token_ids = fields.Flag("return_token_ids", false);
  const auto mode = fields.Text("logprobs_mode");
  if (mode && *mode != "raw_logprobs" && *mode != "processed_logprobs")
    RefuseField("logprobs_mode", "must be raw_logprobs or processed_logprobs");
  format.of_drawn_from = mode == "processed_logprobs";
  return format;
}

// Concatenates parts of text; other kinds of parts are errors.
Json MessagesOf(const RequestFields& fields) {
  const Json& given = fields.At("messages");
  if (!given.is_array() || given.empty()) RefuseField("messages", "must be a list with at least one message");
  Json messages = given;
  for (Json& message : messages) {
    if (remote::TextAt(message, "role").empty()) RefuseField("messages", "a message has no role");
    Json& content = message["content"];
    if (content.is_null()) content = "";
    if (content.is_array()) {
      std::string text;
      for (const Json& part : content) {
        if (remote::TextAt(part, "type") != "text")
          RefuseField("messages", "a message has a part that is no text");
        text += remote::TextAt(part, "text");
      }
      content = text;
    }
    if (!content.is_string()) RefuseField("messages", "the content of a message is no text");
  }
  return messages;
}

std::string RenderedChat(const RequestFields& fields, const ServedModel& model) {
  const Json messages = MessagesOf(fields);
  Json variables = fields.Object("chat_template_kwargs");
  if (const auto effort = fields.Text("reasoning_effort")) variables.emplace("reasoning_effort", *effort);
  try {
    return model.text->RenderChat(messages, fields.Flag("add_generation_prompt", true), variables);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "", "messages");
  }
}

bool EndsWithinThought(const std::string& prompt) {
  const size_t end = prompt.find_last_not_of(" \t\r\n");
  return end != std::string::npos && prompt.substr(0, end + 1).ends_with("<think>");
}

std::vector<int32_t> EncodeText(const ServedModel& model, const std::string& text, bool whole) {
  try {
    return model.text->Encode(text, whole);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "", "prompt");
  }
}

bool IsTokens(const Json& prompt) { return prompt.is_array() && !prompt.empty() && prompt[0].is_number(); }

std::vector<int32_t> PromptOf(const Json& prompt, const RequestFields& fields, const ServedModel& model) {
  if (IsTokens(prompt)) {
    const Json holder = {{"prompt", prompt}};
    return RequestFields(holder).Integers("prompt");
  }
  if (!prompt.is_string()) RefuseField("prompt", "must be a text, a list of token ids, or a list of these");
  return EncodeText(model, prompt.get<std::string>(), fields.Flag("add_special_tokens", true));
}

}  // namespace

ParsedRequest ParseChat(const Json& body, const ServedModel& model, uint64_t seed) {
  const RequestFields fields(body);
  CheckModel(fields, model);
  RefuseWhatIsMissing(fields);
  ParsedRequest parsed;
  parsed.format = FormatOf(fields);
  parsed.format.is_chat = true;
  parsed.format.logprobs = fields.Flag("logprobs", false);
  parsed.format.top_logprobs =
      static_cast<int>(fields.Integer("top_logprobs", 0, kMostTopLogprobs).value_or(0));
  if (parsed.format.top_logprobs > 0 && !parsed.format.logprobs)
    RefuseField("top_logprobs", "needs logprobs to be true");
  const std::string prompt = RenderedChat(fields, model);
  parsed.format.opens_thought = EndsWithinThought(prompt);
  GenerationRequest request = GenerationOf(fields, model, seed);
  request.prompt = EncodeText(model, prompt, false);
  if (parsed.format.top_logprobs > 0) {
    parsed.top_logprobs = std::make_shared<TopLogprobs>(parsed.format.top_logprobs);
    request.make_processor = [tops = parsed.top_logprobs](int answer) { return tops->Recorder(answer); };
  }
  parsed.prompts.push_back(std::move(request));
  return parsed;
}

ParsedRequest ParseCompletion(const Json& body, const ServedModel& model, uint64_t seed) {
  const RequestFields fields(body);
  CheckModel(fields, model);
  RefuseWhatIsMissing(fields);
  ParsedRequest parsed;
  parsed.format = FormatOf(fields);
  parsed.format.logprobs = fields.Integer("logprobs", 0, kMostTopLogprobs).has_value();
  const Json& prompt = fields.At("prompt");
  const bool is_one = !prompt.is_array() || IsTokens(prompt);
  const Json prompts = is_one ? Json::array({prompt}) : prompt;
  if (prompts.empty()) RefuseField("prompt", "is empty");
  const GenerationRequest request = GenerationOf(fields, model, seed);
  if (static_cast<int64_t>(prompts.size()) * request.answers > kMostAnswers)
    RefuseField("n", fmt::format("asks for more than {} answers", kMostAnswers));
  for (const Json& each : prompts) {
    parsed.prompts.push_back(request);
    parsed.prompts.back().prompt = PromptOf(each, fields, model);
    // Equal prompts in one list get different answers.
    parsed.prompts.back().sampling.seed =
        AnswerSeed(request.sampling.seed, static_cast<int>(parsed.prompts.size() - 1) * request.answers);
  }
  return parsed;
}

std::vector<int32_t> ParseTokenize(const Json& body, const ServedModel& model) {
  const RequestFields fields(body);
  CheckModel(fields, model);
  if (!fields.Has("messages")) {
    if (!fields.Text("prompt")) RefuseField("prompt", "a prompt or messages are needed");
    return PromptOf(fields.At("prompt"), fields, model);
  }
  return EncodeText(model, RenderedChat(fields, model), false);
}

}  // namespace kevin::local
