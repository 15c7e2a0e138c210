// The endpoints, without HTTP: what is asked, what is answered, what is refused.

#include "policies/local/serve/model_api.h"

#include <sstream>

#include "tests/catch.h"
#include "tests/policies/local/serve/letters.h"

namespace kevin::local {
namespace {

using remote::At;
using remote::IntegerAt;
using remote::TextAt;

struct Server {
  explicit Server(const FakeRunner::Options& with = test::LettersRunner())
      : options(with), engine(std::make_unique<FakeRunner>(with)), api(engine, test::LettersModel()) {}

  Reply Ask(const std::string& path, const Json& body) { return api.Answer("POST", path, body.dump()); }
  static std::string BodyOf(const Reply& reply) {
    if (reply.in_progress == nullptr) return reply.body;
    std::string body;
    while (const auto bytes = reply.in_progress->Next(1)) body += *bytes;
    return body;
  }
  Json AskJson(const std::string& path, const Json& body) { return Json::parse(BodyOf(Ask(path, body))); }
  // The events' data; the last is "[DONE]".
  std::vector<Json> AskEvents(const std::string& path, Json body) {
    body["stream"] = true;
    std::istringstream lines(BodyOf(Ask(path, body)));
    std::vector<Json> events;
    for (std::string line, end; std::getline(lines, line) && std::getline(lines, end);) {
      REQUIRE((line.starts_with("data: ") && end.empty()));
      line.erase(0, 6);
      events.push_back(line == "[DONE]" ? Json(line) : Json::parse(line));
    }
    return events;
  }
  std::vector<SampledToken> True(const std::vector<int32_t>& prompt, uint64_t seed, int tokens) const {
    TokenSampling sampling;
    sampling.seed = seed;
    auto truth = FakeRunner::TrueAnswer(options, prompt, sampling, tokens);
    for (size_t i = 0; i < truth.size(); ++i) {
      if (truth[i].id == test::kEnd) truth.resize(i + 1);
    }
    return truth;
  }

  const FakeRunner::Options options;
  Engine engine;
  ModelApi api;
};

Json Chat(const std::string& text) {
  return {
      {"messages", Json::array({{{"role", "user"}, {"content", text}}})}, {"seed", 7}, {"max_tokens", 40}};
}

std::vector<int32_t> IdsOf(const std::vector<SampledToken>& tokens) {
  std::vector<int32_t> ids;
  for (const SampledToken& token : tokens) ids.push_back(token.id);
  return ids;
}

TEST_CASE("a chat is answered with text, ids, both kinds of log-probabilities and usage", "[serve]") {
  Server server;
  const std::vector<int32_t> prompt = test::Letters().Encode("user:Hello\nassistant:", false);
  Json body = Chat("Hello");
  body["temperature"] = 0.8;
  body["logprobs"] = true;
  body["return_token_ids"] = true;
  TokenSampling sampling;
  sampling.seed = 7;
  sampling.temperature = 0.8f;
  auto truth = FakeRunner::TrueAnswer(server.options, prompt, sampling, 40);
  for (const bool drawn_from : {false, true}) {
    body["logprobs_mode"] = drawn_from ? "processed_logprobs" : "raw_logprobs";
    const Json reply = server.AskJson("/v1/chat/completions", body);
    CHECK(TextAt(reply, "object") == "chat.completion");
    CHECK(TextAt(reply, "model") == "letters");
    CHECK(reply.at("prompt_token_ids") == Json(prompt));
    const Json& choice = reply.at("choices").at(0);
    const std::vector<int32_t> ids = choice.at("token_ids");
    truth.resize(ids.size());
    CHECK(ids == IdsOf(truth));
    CHECK(TextAt(choice, "finish_reason") == (ids.back() == test::kEnd ? "stop" : "length"));
    CHECK(TextAt(choice.at("message"), "content") == test::Letters().Decode(ids));
    const Json& content = choice.at("logprobs").at("content");
    REQUIRE(content.size() == ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      CHECK(content[i].at("logprob").get<float>() ==
            (drawn_from ? truth[i].logprob : truth[i].model_logprob));
      CHECK(TextAt(content[i], "token") == test::LetterOf(ids[i]));
    }
    CHECK(IntegerAt(reply.at("usage"), "prompt_tokens") == static_cast<int64_t>(prompt.size()));
    CHECK(IntegerAt(reply.at("usage"), "completion_tokens") == static_cast<int64_t>(ids.size()));
    const auto cached = IntegerAt(At(reply.at("usage"), "prompt_tokens_details"), "cached_tokens");
    CHECK(cached == (drawn_from ? 16 : 0));
  }
}

TEST_CASE("a stream gives the same text as one answer", "[serve]") {
  Server server;
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    const bool is_chat = std::string(path).find("chat") != std::string::npos;
    Json body = Chat("Hello");
    body["prompt"] = "Once upon a time";
    body["n"] = 3;
    body["return_token_ids"] = true;
    body["logprobs"] = is_chat ? Json(true) : Json(1);
    body["stream_options"] = {{"include_usage", true}};
    const Json whole = server.AskJson(path, body);
    std::vector<std::string> texts(3), finishes(3);
    std::vector<std::vector<int32_t>> ids(3);
    std::vector<size_t> logprobs(3);
    const auto events = server.AskEvents(path, body);
    REQUIRE(events.size() > 5);
    CHECK(events.back() == "[DONE]");
    const Json& last = events[events.size() - 2];
    CHECK(last.at("choices").empty());
    CHECK(last.at("usage").at("completion_tokens") == whole.at("usage").at("completion_tokens"));
    for (size_t e = 0; e + 2 < events.size(); ++e) {
      const Json& choice = events[e].at("choices").at(0);
      const size_t index = choice.at("index");
      texts[index] += is_chat
                          ? TextAt(choice.at("delta"), "content") + TextAt(choice.at("delta"), "reasoning")
                          : TextAt(choice, "text");
      for (const Json& id : At(choice, "token_ids")) ids[index].push_back(id);
      const Json& values = choice.at("logprobs");
      logprobs[index] += is_chat ? At(values, "content").size() : At(values, "token_logprobs").size();
      finishes[index] += TextAt(choice, "finish_reason");
    }
    for (size_t i = 0; i < 3; ++i) {
      const Json& choice = whole.at("choices").at(i);
      INFO(path << ", answer " << i);
      CHECK(texts[i] ==
            (is_chat ? TextAt(choice.at("message"), "content") + TextAt(choice.at("message"), "reasoning")
                     : TextAt(choice, "text")));
      CHECK(Json(ids[i]) == choice.at("token_ids"));
      CHECK(logprobs[i] == ids[i].size());
      CHECK(finishes[i] == TextAt(choice, "finish_reason"));
    }
    CHECK(ids[0] != ids[1]);
  }
}

TEST_CASE("completions take text, ids, and lists of them", "[serve]") {
  Server server;
  Json body = {{"prompt", "abc"}, {"seed", 3}, {"max_tokens", 10}, {"return_token_ids", true}};
  const std::vector<int32_t> with_start = {test::kStart, 0, 1, 2};
  const Json from_text = server.AskJson("/v1/completions", body).at("choices").at(0);
  CHECK(from_text.at("prompt_token_ids") == Json(with_start));
  CHECK(from_text.at("token_ids") == Json(IdsOf(server.True(with_start, 3, 10))));
  body["prompt"] = with_start;
  CHECK(server.AskJson("/v1/completions", body).at("choices").at(0).at("text") == from_text.at("text"));
  body["prompt"] = Json::array({"abc", "abc", "xyz"});
  body["n"] = 2;
  const Json several = server.AskJson("/v1/completions", body).at("choices");
  REQUIRE(several.size() == 6);
  CHECK(several[0].at("text") == from_text.at("text"));
  CHECK(several[2].at("text") != from_text.at("text"));
  CHECK(several[5].at("prompt_token_ids") == Json({test::kStart, 23, 24, 25}));
}

TEST_CASE("reasoning is separated, whether the model or the template opened it", "[serve]") {
  Server server;
  int closed = 0;
  for (int seed = 0; seed < 60; ++seed) {
    Json body = Chat("Hello");
    body["seed"] = seed;
    body["max_tokens"] = 80;
    body["ignore_eos"] = true;
    body["return_token_ids"] = true;
    body["chat_template_kwargs"] = {{"think", true}};
    const Json reply = server.AskJson("/v1/chat/completions", body);
    const Json& choice = reply.at("choices").at(0);
    const std::string all = test::Letters().Decode(choice.at("token_ids").get<std::vector<int32_t>>());
    const size_t close = all.find("</think>");
    const Json& message = choice.at("message");
    INFO(all);
    CHECK(TextAt(message, "reasoning_content") == all.substr(0, close));
    CHECK(TextAt(message, "reasoning") == TextAt(message, "reasoning_content"));
    const auto reasoning_tokens =
        IntegerAt(reply.at("usage").at("completion_tokens_details"), "reasoning_tokens");
    if (close == std::string::npos) {
      CHECK(TextAt(message, "content").empty());
      CHECK(reasoning_tokens == 80);
      continue;
    }
    ++closed;
    const size_t text = std::min(all.find_first_not_of(" \n", close + 8), all.size());
    CHECK(TextAt(message, "content") == all.substr(text));
    CHECK(reasoning_tokens < 80);
  }
  CHECK(closed > 10);
}

TEST_CASE("stop texts cut the text, not the tokens", "[serve]") {
  Server server;
  Json body = Chat("Hello");
  body["ignore_eos"] = true;
  body["return_token_ids"] = true;
  const std::string text =
      TextAt(server.AskJson("/v1/chat/completions", body).at("choices").at(0).at("message"), "content");
  REQUIRE(text.size() > 20);
  body["stop"] = text.substr(10, 3);
  const Json choice = server.AskJson("/v1/chat/completions", body).at("choices").at(0);
  CHECK(TextAt(choice.at("message"), "content") == text.substr(0, text.find(text.substr(10, 3))));
  CHECK(TextAt(choice, "finish_reason") == "stop");
  CHECK(choice.at("token_ids").size() >= 3);
}

TEST_CASE("the likeliest tokens are told where they are asked for", "[serve]") {
  Server server;
  Json body = Chat("Hello");
  body["logprobs"] = true;
  body["top_logprobs"] = 20;
  for (const bool stream : {false, true}) {
    std::vector<Json> tokens;
    if (stream) {
      const auto events = server.AskEvents("/v1/chat/completions", body);
      for (size_t e = 0; e + 1 < events.size(); ++e) {
        for (const Json& token : At(events[e].at("choices").at(0).at("logprobs"), "content"))
          tokens.push_back(token);
      }
    } else {
      const Json whole = server.AskJson("/v1/chat/completions", body);
      for (const Json& token : whole.at("choices").at(0).at("logprobs").at("content"))
        tokens.push_back(token);
    }
    REQUIRE(tokens.size() > 3);
    for (const Json& token : tokens) {
      const Json& tops = token.at("top_logprobs");
      REQUIRE(tops.size() == 20);
      double total = 0;
      for (size_t i = 0; i < tops.size(); ++i) {
        total += std::exp(tops[i].at("logprob").get<double>());
        if (i > 0) CHECK(tops[i].at("logprob") <= tops[i - 1].at("logprob"));
        if (tops[i].at("token") == token.at("token") && !TextAt(token, "token").empty())
          CHECK(tops[i].at("logprob").get<double>() ==
                Approx(token.at("logprob").get<double>()).margin(1e-5));
      }
      CHECK((total > 0.3 && total < 1));
    }
  }
}

TEST_CASE("seeds repeat answers; without one no two are alike", "[serve]") {
  Server server;
  Json body = Chat("Hello");
  const auto text = [&] { return server.AskJson("/v1/chat/completions", body).at("choices").dump(); };
  CHECK(text() == text());
  body.erase("seed");
  CHECK(text() != text());
}

TEST_CASE("what a request may not be is said with the field", "[serve]") {
  Server server;
  struct Case {
    const char* path;
    const char* changes;
    int status;
    const char* field;
    const char* says;
  };
  const std::vector<Case> cases = {
      {"chat/completions", R"({"messages": null})", 400, "messages", "at least one message"},
      {"chat/completions", R"({"messages": []})", 400, "messages", "at least one message"},
      {"chat/completions", R"({"messages": [3]})", 400, "messages", "no role"},
      {"chat/completions", R"({"messages": [{"role": "nobody", "content": ""}]})", 400, "messages", "nobody"},
      {"chat/completions", R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", 400,
       "messages", "no text"},
      {"chat/completions", R"({"temperature": -1})", 400, "temperature", "from 0 to 100"},
      {"chat/completions", R"({"temperature": "hot"})", 400, "temperature", "a number"},
      {"chat/completions", R"({"top_p": 1.5})", 400, "top_p", "from 0 to 1"},
      {"chat/completions", R"({"max_tokens": 0})", 400, "max_tokens", "from 1"},
      {"chat/completions", R"({"max_tokens": 99999999999999999999})", 400, "max_tokens", "integer"},
      {"chat/completions", R"({"n": 5000})", 400, "n", "from 1 to 1024"},
      {"chat/completions", R"({"stop": [""]})", 400, "stop", "none of them empty"},
      {"chat/completions", R"({"stream": 1})", 400, "stream", "true or false"},
      {"chat/completions", R"({"top_logprobs": 3})", 400, "top_logprobs", "needs logprobs"},
      {"chat/completions", R"({"logprobs_mode": "x"})", 400, "logprobs_mode", "raw_logprobs"},
      {"chat/completions", R"({"frequency_penalty": 0.5})", 400, "frequency_penalty", "does not have it"},
      {"chat/completions", R"({"tools": [{"type": "function"}]})", 400, "tools", "does not have it"},
      {"chat/completions", R"({"response_format": {"type": "json_object"}})", 400, "response_format",
       "plain text"},
      {"chat/completions", R"({"model": "gpt"})", 404, "model", "this server has \"letters\""},
      {"completions", R"({"prompt": null})", 400, "prompt", "a list of token ids"},
      {"completions", R"({"prompt": []})", 400, "prompt", "empty"},
      {"completions", R"({"prompt": [1, -5]})", 400, "prompt", "token ids"},
      {"completions", R"({"prompt": [1, 64]})", 400, "", "token 64 of the prompt"},
      {"completions", R"({"best_of": 4})", 400, "best_of", "does not have it"},
      {"completions", R"({"echo": true})", 400, "echo", "does not have it"},
  };
  for (const Case& c : cases) {
    if (c.status == 0) continue;
    Json body = Chat("Hello");
    body["prompt"] = "x";
    const Json changes = Json::parse(c.changes);
    for (const auto& [name, value] : changes.items()) body[name] = value;
    INFO(c.path << " " << c.changes);
    const Reply reply = server.Ask(std::string("/v1/") + c.path, body);
    CHECK(reply.status == c.status);
    const Json error = Json::parse(reply.body).at("error");
    CHECK(TextAt(error, "param") == c.field);
    CHECK(TextAt(error, "type") == "invalid_request_error");
    CHECK(TextAt(error, "message").find(c.says) != std::string::npos);
  }
  CHECK(server.api.Answer("POST", "/v1/completions", "{").status == 400);
  CHECK(server.api.Answer("POST", "/v1/completions", "[]").status == 400);
  CHECK(server.api.Answer("POST", "/v1/completions", "{\"prompt\": \"\xff\"}").status == 400);
  CHECK(server.api.Answer("GET", "/v1/completions", "").status == 404);
  CHECK(server.engine.Statistics().requests == 0);
}

TEST_CASE("defaults that clients send anyway are taken", "[serve]") {
  Server server;
  Json body = Chat("Hello");
  body.merge_patch(Json::parse(R"({"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {},
    "tools": [], "response_format": {"type": "text"}, "user": "me", "top_k": -1, "seed": -3})"));
  CHECK(server.Ask("/v1/chat/completions", body).status == 200);
}

TEST_CASE("a prompt without room for an answer is a context_length_exceeded", "[serve]") {
  Server server;
  const Reply reply = server.Ask("/v1/chat/completions", Chat(std::string(600, 'x')));
  CHECK(reply.status == 400);
  CHECK(TextAt(Json::parse(reply.body).at("error"), "code") == "context_length_exceeded");
  Json long_answer = Chat(std::string(500, 'x'));
  long_answer["max_tokens"] = 1000;
  long_answer["ignore_eos"] = true;
  const Json cut = server.AskJson("/v1/chat/completions", long_answer);
  CHECK(IntegerAt(cut.at("usage"), "total_tokens") == 600);
  CHECK(TextAt(cut.at("choices").at(0), "finish_reason") == "length");
}

TEST_CASE("tokens and text, models, health and figures", "[serve]") {
  Server server;
  const auto get = [&](const char* path) { return server.api.Answer("GET", path, ""); };
  const Json tokens = server.AskJson("/tokenize", {{"prompt", "abc"}});
  CHECK(tokens.at("tokens") == Json({test::kStart, 0, 1, 2}));
  CHECK(IntegerAt(tokens, "count") == 4);
  CHECK(server.AskJson("/tokenize", {{"prompt", "abc"}, {"add_special_tokens", false}}).at("count") == 3);
  const Json chat = server.AskJson("/tokenize", Chat("Hello"));
  CHECK(chat.at("tokens") == Json(test::Letters().Encode("user:Hello\nassistant:", false)));
  CHECK(server.AskJson("/detokenize", {{"tokens", {0, 1, test::kAccent}}}).at("prompt") == "ab\xc3\xa9");
  CHECK(server.Ask("/detokenize", Json::object()).status == 400);
  const Json model = Json::parse(get("/v1/models").body).at("data").at(0);
  CHECK(TextAt(model, "id") == "letters");
  CHECK(IntegerAt(model, "max_model_len") == 600);
  CHECK(get("/health").status == 200);
  server.AskJson("/v1/chat/completions", Chat("Hello"));
  std::string metrics;
  for (int i = 0; i < 1000 && metrics.find("kevin_model_requests_total 1\n") == std::string::npos; ++i)
    metrics = get("/metrics").body;
  CHECK(metrics.find("# TYPE kevin_model_requests_total counter\nkevin_model_requests_total 1\n") !=
        std::string::npos);
}

TEST_CASE("an engine that fails is said in the stream and by /health", "[serve]") {
  FakeRunner::Options options = test::LettersRunner();
  options.fail_at_step = 3;
  Server server(options);
  Json body = Chat("Hello");
  body["ignore_eos"] = true;
  const auto events = server.AskEvents("/v1/chat/completions", body);
  REQUIRE(events.size() > 2);
  CHECK(TextAt(events[events.size() - 2].at("error"), "message") == "the device fell off the bus");
  CHECK(server.api.Answer("GET", "/health", "").status == 503);
  CHECK(server.Ask("/v1/chat/completions", body).status == 500);
}

TEST_CASE("a reply that nobody reads any more is cancelled", "[serve]") {
  FakeRunner::Options options = test::LettersRunner();
  options.step_seconds = 0.002;
  Server server(options);
  Json body = Chat("Hello");
  body["ignore_eos"] = true;
  body["max_tokens"] = 500;
  { const Reply reply = server.Ask("/v1/chat/completions", body); }
  EngineStatistics now;
  for (int i = 0; i < 500 && (now.requests == 0 || now.running + now.waiting > 0); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    now = server.engine.Statistics();
  }
  CHECK(now.requests == 1);
  CHECK(now.running + now.waiting == 0);
  CHECK(now.generated_tokens < 400);
}

}  // namespace
}  // namespace kevin::local
