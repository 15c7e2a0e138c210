// The parts of remote policies, without a server.

#include <sys/stat.h>

#include <fstream>
#include <random>
#include <thread>

#include "policies/remote/answer.h"
#include "policies/remote/endpoint.h"
#include "policies/remote/json.h"
#include "policies/remote/limits.h"
#include "policies/remote/response.h"
#include "policies/remote/wire.h"
#include "tests/catch.h"
#include "tests/policies/remote/remote_fixture.h"
#include "tests/support/fakes.h"

using namespace kevin;
using namespace kevin::remote;
using kevin::test::Contains;
using kevin::test::ErrorOf;
using kevin::test::Variable;

namespace {

std::vector<std::string> Events(const std::vector<std::string>& chunks) {
  std::vector<std::string> events;
  SseParser parser([&](const SseEvent& event) { events.push_back(event.name + "|" + event.data); });
  for (const std::string& chunk : chunks) parser.Feed(chunk);
  parser.Finish();
  return events;
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("events: every line end, comments, fields of several lines, a byte order mark") {
  CHECK(Events({"data: a\n\n"}) == Strings{"|a"});
  CHECK(Events({"data: a\r\n\r\ndata:b\r\rdata\n\n"}) == Strings{"|a", "|b", "|"});
  CHECK(Events({": keep alive\n\ndata: a\n: more\ndata:  b\ndata: c\n\n"}) == Strings{"|a\n b\nc"});
  CHECK(Events({"\xEF\xBB\xBF"
                "event: x\nid: 7\nretry: 10\nunknown: y\ndata: {\"a\":\ndata: 1}\n\n"}) ==
        Strings{"x|{\"a\":\n1}"});
  CHECK(Events({"event: named\n\ndata: a\n\n"}) == Strings{"|a"});         // without data there is no event
  CHECK(Events({"data: a\n\ndata: whole\n"}) == Strings{"|a", "|whole"});  // no empty line at the end
  CHECK(Events({"data: a\n\ndata: cut in the mid"}) == Strings{"|a"});
}

TEST_CASE("events: chunks may end anywhere") {
  const std::string stream =
      "event: one\r\ndata: h\xC3\xA9llo \xF0\x9F\x9A\x80\r\n\r\n: c\r\ndata: 2a\r\ndata: 2b\r\n\r\ndata: "
      "[DONE]\n\n";
  const Strings whole = {"one|h\xC3\xA9llo \xF0\x9F\x9A\x80", "|2a\n2b", "|[DONE]"};
  for (size_t cut = 0; cut <= stream.size(); ++cut)
    CHECK(Events({stream.substr(0, cut), stream.substr(cut)}) == whole);
  Strings bytes;
  for (const char c : stream) bytes.push_back(std::string(1, c));
  CHECK(Events(bytes) == whole);
}

TEST_CASE("events: only a complete event is progress") {
  SseParser parser([](const SseEvent&) {});
  CHECK_FALSE(parser.Feed("data: slow"));
  CHECK_FALSE(parser.Feed("ly\n"));
  CHECK(parser.Feed("\n"));
  CHECK(parser.Feed(": comment\n"));
}

TEST_CASE("inline reasoning is taken out, wherever the pieces are cut") {
  const std::string whole = "\n<think>\nFirst a < b, </thin not yet.\n</think>\n\nThe <think> answer.";
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    ThinkSplitter splitter;
    std::string text, reasoning;
    for (const auto& pieces :
         {splitter.Feed(whole.substr(0, cut)), splitter.Feed(whole.substr(cut)), splitter.Finish()}) {
      text += pieces.text;
      reasoning += pieces.reasoning;
    }
    CHECK(text == "The <think> answer.");
    CHECK(reasoning == "\nFirst a < b, </thin not yet.\n");
  }
  ThinkSplitter cut_off;
  CHECK(cut_off.Feed("<think>still thin").text.empty());
  CHECK(cut_off.Finish().reasoning.empty());
  ThinkSplitter plain;
  CHECK(plain.Feed("<thi").text.empty());
  CHECK(plain.Feed("s is text").text == "<this is text");

  std::string text = "thought</think>\n\nanswer", reasoning;
  CHECK(SplitUnopenedThought(&text, &reasoning));
  CHECK((text == "answer" && reasoning == "thought"));
  CHECK_FALSE(SplitUnopenedThought(&text, &reasoning));
}

TEST_CASE("a character that a server cuts in two joins again") {
  const auto first = ParseJson("{\"t\": \"a\xF0\x9F\"}"), second = ParseJson("{\"t\": \"\x9A\x80 z\"}");
  REQUIRE((first && second));
  CHECK(TextAt(*first, "t") + TextAt(*second, "t") == "a\xF0\x9F\x9A\x80 z");
  CHECK(ValidUtf8("a\xF0\x9F z\xC0") == "a\xEF\xBF\xBD\xEF\xBF\xBD z\xEF\xBF\xBD");
  CHECK_FALSE(ParseJson("{\"t\": \"a"));
  CHECK_FALSE(ParseJson("\xFF"));
  CHECK(TextAt(Json(3), "t").empty());
  CHECK_FALSE(IntegerAt(Json{{"n", "7"}}, "n"));
}

TEST_CASE("specs: provider, model, address") {
  const Endpoint own = ParseSpec("openai:gpt-5", "");
  CHECK((own.base_url == "https://api.openai.com/v1" && own.is_vendors_own && own.model == "gpt-5"));
  CHECK(own.Spec() == "openai:gpt-5");
  const Endpoint other = ParseSpec("openai:org/model@2:free", "http://127.0.0.1:8000/v1/");
  CHECK((other.model == "org/model@2:free" && other.base_url == "http://127.0.0.1:8000/v1"));
  CHECK_FALSE(other.is_vendors_own);
  CHECK(other.Spec() == "openai:org/model@2:free@http://127.0.0.1:8000/v1");
  CHECK(ParseSpec(other.Spec(), "").base_url == other.base_url);
  CHECK(ParseSpec(other.Spec(), "").model == other.model);
  const Endpoint local = ParseSpec("openai:m@unix:/run/m.sock", "");
  CHECK((local.unix_socket == "/run/m.sock" && local.base_url == "http://localhost/v1"));
  CHECK(ParseSpec(local.Spec(), "").unix_socket == local.unix_socket);
  CHECK(ParseSpec("anthropic:c", "unix:/run/m.sock").base_url == "http://localhost");
  {
    const Variable base("ANTHROPIC_BASE_URL", "https://proxy.example/anthropic");
    CHECK(ParseSpec("anthropic:c", "").base_url == "https://proxy.example/anthropic");
    CHECK(ParseSpec("anthropic:c", "https://api.anthropic.com").is_vendors_own);
    CHECK(ParseSpec("openai:c", "").is_vendors_own);
  }
  CHECK((IsRemoteSpec("openai-responses:x") && !IsRemoteSpec("search") && !IsRemoteSpec("openai")));
  for (const char* spec : {"openai:", "openai:@http://x"})
    CHECK(ErrorOf([&] { ParseSpec(spec, ""); }).code == ExitCode::kBadRequest);
  for (const char* url : {"127.0.0.1:8000", "ftp://x", "http://name:secret@host/v1",
                          "http://host/v1?key=secret", "unix:", "http://", "http://a b/v1"}) {
    const auto error = ErrorOf([&] { ParseSpec("openai:m", url); });
    CHECK(error.code == ExitCode::kBadRequest);
    CHECK_FALSE(Contains(error.what + error.next_step, "secret"));
  }
}

TEST_CASE("keys: variable, private file, or a good reason") {
  const Endpoint own = ParseSpec("openai:gpt-5", "");
  unsetenv("OPENAI_API_KEY");
  CHECK(Contains(ErrorOf([&] { FindKey(own, "", ""); }).next_step, "OPENAI_API_KEY"));
  CHECK(FindKey(ParseSpec("openai:m", "http://127.0.0.1:1/v1"), "", "").empty());
  const Variable key("OPENAI_API_KEY", "sk-usual"), other("OTHER_KEY", "sk-other");
  CHECK(FindKey(own, "", "") == "sk-usual");
  CHECK(FindKey(own, "", "OTHER_KEY") == "sk-other");
  CHECK(ErrorOf([&] { FindKey(own, "", "NO_SUCH_KEY"); }).code == ExitCode::kBadRequest);

  kevin::testing::TempFolder folder;
  const auto file = folder.path() / "key";
  std::ofstream(file) << "sk-file\n";
  chmod(file.c_str(), 0644);
  const auto open = ErrorOf([&] { FindKey(own, file, ""); });
  CHECK((open.code == ExitCode::kBadRequest && Contains(open.next_step, "chmod 600")));
  chmod(file.c_str(), 0600);
  CHECK(FindKey(own, file, "") == "sk-file");
  std::ofstream(file) << "two\nlines\n";
  CHECK(Contains(ErrorOf([&] { FindKey(own, file, ""); }).what, "line end"));
  CHECK(ErrorOf([&] { FindKey(own, folder.path() / "none", ""); }).code == ExitCode::kBadRequest);
  CHECK(WithoutKey("bad key sk-usual, really sk-usual", "sk-usual") == "bad key [key], really [key]");
  CHECK(WithoutKey("nothing", "") == "nothing");
}

TEST_CASE("prices: cached, written, reasoning and long prompts; unknown is unknown") {
  kevin::testing::TempFolder folder;
  const auto file = folder.path() / "prices.json";
  std::ofstream(file) << R"({"sample_spec": {"mode": "chat"},
    "plain": {"input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6, "max_input_tokens": 128000},
    "anthropic/full": {"input_cost_per_token": 3e-6, "output_cost_per_token": 15e-6,
      "cache_read_input_token_cost": 3e-7, "cache_creation_input_token_cost": 3.75e-6,
      "output_cost_per_reasoning_token": 10e-6,
      "input_cost_per_token_above_200k_tokens": 6e-6, "output_cost_per_token_above_200k_tokens": 22e-6}})";
  const PriceTable table = PriceTable::Read(file);
  REQUIRE(table.Find("openai", "plain") != nullptr);
  CHECK(table.Find("openai", "plain")->max_input_tokens == 128000);
  CHECK(table.Find("openai", "plain-2026-01-31") == table.Find("openai", "plain"));
  CHECK(table.Find("openai", "plain-20260131") == table.Find("openai", "plain"));
  CHECK(table.Find("openai", "full") == nullptr);
  CHECK(table.Find("openai", "sample_spec") == nullptr);
  const Price* full = table.Find("anthropic", "full");
  REQUIRE(full != nullptr);
  // 1000 prompt tokens: 300 fresh, 500 cached, 200 written; 100 answered, of which 40 reasoned.
  CHECK(Cost(*full, {1000, 100, 500, 40, 200}) ==
        Approx(300 * 3e-6 + 500 * 3e-7 + 200 * 3.75e-6 + 60 * 15e-6 + 40 * 10e-6));
  CHECK(Cost(*full, {200001, 10, 0, 0, 0}) == Approx(200001 * 6e-6 + 10 * 22e-6));
  CHECK(Cost(*table.Find("openai", "plain"), {1000, 100, 500, 40, 0}) == Approx(1000 * 1e-6 + 100 * 4e-6));
  std::ofstream(folder.path() / "bad.json") << "[1]";
  CHECK(ErrorOf([&] { PriceTable::Read(folder.path() / "bad.json"); }).code == ExitCode::kBadRequest);
  CHECK(ErrorOf([&] { PriceTable::Read(folder.path() / "none.json"); }).code == ExitCode::kBadRequest);
}

namespace {

HttpResponse Response(int status, const std::string& body, std::map<std::string, std::string> headers = {}) {
  HttpResponse response;
  response.status = status;
  response.body = body;
  response.headers = std::move(headers);
  return response;
}

Remedy RemedyOf(const HttpResponse& response) { return FailureOf(response, Answer(nullptr), false)->remedy; }

}  // namespace

TEST_CASE("failures: which are retried") {
  for (const int status : {408, 409, 429, 500, 502, 503, 504, 529})
    CHECK(RemedyOf(Response(status, "{}")) == Remedy::kRetry);
  for (const int status : {400, 401, 403, 404, 413, 422, 301})
    CHECK(RemedyOf(Response(status, "{}")) == Remedy::kCorrect);
  const std::string quota = R"({"error": {"code": "insufficient_quota", "message": "You exceeded"}})";
  CHECK(RemedyOf(Response(429, quota)) == Remedy::kGiveUp);
  CHECK(RemedyOf(Response(429, R"({"error": {"type": "enforced_spend_limit_reached"}})")) == Remedy::kGiveUp);
  CHECK(RemedyOf(Response(402, "{}")) == Remedy::kGiveUp);
  const std::string length = R"({"error": {"code": "context_length_exceeded", "message": "too long"}})";
  CHECK(RemedyOf(Response(400, length)) == Remedy::kShorten);
  CHECK(RemedyOf(Response(503, "{}", {{"x-should-retry", "false"}})) == Remedy::kGiveUp);
  CHECK(RemedyOf(Response(400, "{}", {{"x-should-retry", "true"}})) == Remedy::kRetry);
  const auto failure = FailureOf(Response(503, "<html>\r\nbusy"), Answer(nullptr), false);
  CHECK(failure->what == "HTTP 503: <html>  busy");
}

TEST_CASE("Retry-After: seconds, milliseconds, a date, nonsense") {
  CHECK(RetryAfter(Response(429, "", {{"retry-after", "2.5"}})) == 2.5);
  CHECK(RetryAfter(Response(429, "", {{"retry-after", "9"}, {"retry-after-ms", "250"}})) == 0.25);
  CHECK(RetryAfter(Response(429, "", {{"retry-after", "Sat, 21 Nov 1998 16:00:00 GMT"}})) == 0);
  const auto far = RetryAfter(Response(429, "", {{"retry-after", "Fri, 21 Nov 2098 16:00:00 GMT"}}));
  CHECK((far && *far > 1e8));
  for (const char* nonsense : {"soon", "-1", "nan", ""})
    CHECK_FALSE(RetryAfter(Response(429, "", {{"retry-after", nonsense}})));
}

TEST_CASE("pauses double, are random, and never shorter than asked for") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) {
    const double second = RetryDelay(2, 0.5, {}, random), fifth = RetryDelay(5, 0.5, {}, random);
    CHECK((second >= 0.25 && second <= 0.5));
    CHECK((fifth >= 2 && fifth <= 4));
    CHECK(RetryDelay(1000, 0.5, {}, random) <= 30);
    CHECK(RetryDelay(2, 0.5, 7.0, random) == 7.0);
  }
  CHECK(RetryDelay(2, 0.5, {}, random) != RetryDelay(2, 0.5, {}, random));
}

TEST_CASE("the limiter spreads requests, counts tokens and limits concurrency") {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](const Rates& rates, int requests, int64_t tokens) {
    Limiter limiter(rates);
    const auto start = Clock::now();
    for (int i = 0; i < requests; ++i) {
      limiter.Enter(tokens, nullptr);
      limiter.Leave(tokens, tokens);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  CHECK(seconds({}, 1000, 1000) < 0.5);
  // 1200 a minute: 200 at once, then 20 a second.
  const double rate = seconds({1200, 0, 0}, 206, 1);
  CHECK((rate > 0.2 && rate < 1.5));
  // 60,000 tokens a minute: 10,000 at once, then 1,000 a second.
  const double by_tokens = seconds({0, 60000, 0}, 12, 1000);
  CHECK((by_tokens > 0.4 && by_tokens < 3));

  Limiter two({0, 0, 2});
  CHECK((two.Enter(1, nullptr) && two.Enter(1, nullptr)));
  const CancelToken cancel = true;
  CHECK_FALSE(two.Enter(1, &cancel));
  two.Leave(1, 1);
  CHECK(two.Enter(1, nullptr));
}

TEST_CASE(
    "the circuit opens after consecutive failures, one request probes, and at last the server is unavailable") {
  using Pass = CircuitBreaker::Pass;
  CircuitBreaker breaker({3, 0.05, 0.1, 2});
  for (int i = 0; i < 2; ++i) breaker.Failed(breaker.Enter(nullptr));
  breaker.Succeeded();
  for (int i = 0; i < 3; ++i) {
    CHECK(breaker.Enter(nullptr) == Pass::kGo);
    breaker.Failed(Pass::kGo);
  }
  CHECK(breaker.Enter(nullptr) == Pass::kTry);
  CancelToken cancel = false;
  std::thread interrupt([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    cancel = true;
  });
  CHECK(breaker.Enter(&cancel) == Pass::kCancelled);  // one tries, the others wait
  interrupt.join();
  breaker.Succeeded();
  CHECK(breaker.Enter(nullptr) == Pass::kGo);
  for (int i = 0; i < 3; ++i) breaker.Failed(Pass::kGo);
  for (int i = 0; i < 2; ++i) {
    CHECK(breaker.Enter(nullptr) == Pass::kTry);
    breaker.Failed(Pass::kTry);
  }
  CHECK(breaker.Enter(nullptr) == Pass::kUnavailable);
}

TEST_CASE("a budget is exceeded by requests under way at most") {
  Budget money({0.0999, {}, {}});
  for (int i = 0; i < 9; ++i) {
    money.Begin();
    money.End(100, 0.01);
  }
  money.Begin();  // 0.09 spent; with it 0.01 is under way
  CHECK_THROWS_AS(money.Begin(), BudgetReached);
  money.End(100, 0.01);
  CHECK_THROWS_AS(money.Begin(), BudgetReached);
  Budget tokens({{}, {}, 100});
  tokens.Begin();
  tokens.End(100, 0);
  CHECK(Contains(ErrorOf([&] { tokens.Begin(); }).what, "100 tokens"));
  Budget time({{}, 0.0, {}});
  CHECK_THROWS_AS(time.Begin(), BudgetReached);
}

TEST_CASE("what a format cannot express is reported before a request is sent") {
  const auto why = [](Format format, const std::function<void(Sampling*)>& change, bool own = false) {
    Sampling sampling;
    change(&sampling);
    WireContext context;
    context.is_vendors_own = own;
    return MakeWire(format)->WhyNot(sampling, context);
  };
  const auto top_k = [](Sampling* s) { s->top_k = 20; };
  const auto thinking = [](Sampling* s) { s->thinking_tokens = 2048; };
  const auto several = [](Sampling* s) { s->n = 4; };
  const auto effort = [](Sampling* s) { s->reasoning_effort = "high"; };
  const auto nothing = [](Sampling*) {};
  for (const Format format : {Format::kChat, Format::kResponses, Format::kMessages}) {
    CHECK(why(format, nothing, true).empty());
    CHECK(why(format, effort, true).empty());
  }
  CHECK(why(Format::kChat, top_k).empty());
  CHECK_FALSE(why(Format::kChat, top_k, true).empty());
  CHECK_FALSE(why(Format::kResponses, top_k).empty());
  CHECK(why(Format::kMessages, top_k).empty());
  CHECK_FALSE(why(Format::kChat, thinking).empty());
  CHECK_FALSE(why(Format::kResponses, thinking).empty());
  CHECK(why(Format::kMessages, thinking).empty());
  CHECK(why(Format::kChat, several).empty());
  CHECK_FALSE(why(Format::kResponses, several).empty());
  CHECK_FALSE(why(Format::kMessages, several).empty());
  CHECK_FALSE(why(Format::kCompletions, effort).empty());
  CHECK_FALSE(why(Format::kGenerate, several).empty());
  CHECK_FALSE(why(Format::kMessages, [](Sampling* s) { s->thinking_tokens = 100; }).empty());
  CHECK_FALSE(why(Format::kMessages, [](Sampling* s) { s->thinking_tokens = 16384; }).empty());
  CHECK_FALSE(why(Format::kMessages, [](Sampling* s) { s->temperature = 1.5; }).empty());
  CHECK_FALSE(why(Format::kResponses, [](Sampling* s) { s->stop = {"x"}; }).empty());
}

TEST_CASE("Anthropic's messages are cut where they will be the same next time") {
  Request request = kevin::test::SmallRequest();
  request.messages[0].cache_points = {request.messages[0].content.size()};
  request.messages[1].content = "problem|attempt 1|now answer";
  request.messages[1].cache_points = {8, 18};
  WireContext context;
  context.model = "m";
  const Json body = MakeWire(Format::kMessages)->Body(request, context);
  const Json& content = body["messages"][0]["content"];
  REQUIRE(content.size() == 3);
  CHECK(content[0]["text"] == "problem|");
  CHECK_FALSE(content[0].contains("cache_control"));
  CHECK(content[1]["text"] == "attempt 1|");
  CHECK(content[1]["cache_control"]["type"] == "ephemeral");
  CHECK(content[2]["text"] == "now answer");
  CHECK(body["system"][0]["cache_control"]["type"] == "ephemeral");
}
