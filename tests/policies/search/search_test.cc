// What the search policy answers: no kernel is compiled here.

#include <set>

#include "env/error.h"
#include "policies/policy.h"
#include "policies/search/search_policy.h"
#include "policies/search/setting_text.h"
#include "tests/catch.h"
#include "tests/support/graph_text.h"
#include "tests/support/reply.h"

using namespace kevin;
using namespace kevin::test;
using kevin::search::TextWithoutRecord;

namespace {

Request ReluRequest(const std::string& kind = "cpp") {
  Request request = GraphRequest({{"x", {64, 128}}}, ReluSteps({64, 128}));
  request.task.kind = kind;
  return request;
}

// relu(a b) and then the softmax of its rows.
Request ProductRequest(const std::string& kind, int64_t m = 256, int64_t k = 512, int64_t n = 384) {
  Request request = GraphRequest({{"a", {m, k}}, {"b", {k, n}}},
                                 {{"matmul", R"({"self":{"tensor":0},"other":{"tensor":1}})", {m, n}},
                                  {"relu", R"({"self":{"tensor":2}})", {m, n}},
                                  {"softmax", R"({"self":{"tensor":3},"dim":1,"dtype":null})", {m, n}}});
  request.task.kind = kind;
  return request;
}

std::string ReplyTo(const Request& request) {
  return MakeSearchPolicy()->Complete(request, nullptr, nullptr).text;
}

std::string Next(const Request& request) { return SourceOf(ReplyTo(request)); }

std::string WhyNot(const Request& request) { return MakeSearchPolicy()->WhyNot(request.task); }

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// Whether constants that stand for knobs follow the setting.
bool HasConstants(const std::string& text) {
  size_t at = 0;
  while (text.compare(at, 10, "// search:") == 0) at = text.find('\n', at) + 1;
  return text.compare(at, 14, "constexpr int ") == 0;
}

constexpr const char* kKinds[] = {"cpp", "cuda"};

// Texts of one episode; `results` are the speed-ups of its turns, below 0.1: wrong. Ends where all settings were tried.
std::vector<std::string> TextsOf(Request request, uint64_t seed, const std::vector<double>& results) {
  request.sampling.seed = seed;
  std::vector<std::string> texts;
  for (const double speedup : results) {
    try {
      texts.push_back(SourceOf(ReplyTo(request)));
    } catch (const NothingLeft&) {
      return texts;
    }
    AddAttempt(request.task, texts.back(), speedup < 0.1 ? "wrong" : "measured", speedup);
  }
  return texts;
}

const std::vector<double> kResults = {1.10, 1.05, 0, 1.20, 0.90, 1.00, 1.30, 0, 1.25, 1.28, 1.40, 1.31};

}  // namespace

TEST_CASE("equal tasks and seeds give equal texts; seeds differ after the first turn") {
  for (const char* kind : kKinds) {
    INFO(kind);
    const std::vector<std::string> once = TextsOf(ProductRequest(kind), 1, kResults);
    CHECK(once == TextsOf(ProductRequest(kind), 1, kResults));
    const std::vector<std::string> other = TextsOf(ProductRequest(kind), 2, kResults);
    CHECK(once != other);
    CHECK(once[0] == other[0]);
  }
}

TEST_CASE("no text comes twice in twelve turns") {
  for (const char* kind : kKinds) {
    for (const int tune : {0, 8}) {
      for (const uint64_t seed : {1u, 5u}) {
        INFO(kind << " tune " << tune << " seed " << seed);
        Request request = ProductRequest(kind);
        request.task.tune = tune;
        const std::vector<std::string> texts = TextsOf(request, seed, kResults);
        CHECK(std::set<std::string>(texts.begin(), texts.end()).size() == texts.size());
        CHECK(texts.size() >= 4);
      }
    }
  }
}

TEST_CASE("after its last text the policy says that nothing is left, whatever the results were") {
  for (const char* kind : kKinds) {
    for (const double speedup : {1.1, 0.0}) {
      INFO(kind << " at " << speedup);
      Request request = ReluRequest(kind);
      std::set<std::string> texts;
      const auto ask = [&] {
        const std::string text = SourceOf(ReplyTo(request));
        CHECK(texts.insert(TextWithoutRecord(text)).second);
        AddAttempt(request.task, text, speedup < 0.1 ? "wrong" : "measured", speedup);
      };
      CHECK_THROWS_AS(
          [&] {
            for (int turn = 0; turn < 2000; ++turn) ask();
          }(),
          NothingLeft);
      CHECK_FALSE(texts.empty());
    }
  }
}

TEST_CASE("a text begins with its setting, and declares knobs where the environment tries them") {
  for (const char* kind : kKinds) {
    Request request = ProductRequest(kind);
    const std::string fixed = Next(request);
    INFO(fixed.substr(0, 600));
    CHECK(fixed.rfind("// search: ", 0) == 0);
    CHECK_FALSE(Has(fixed, "// knob "));
    request.task.tune = 1;  // one setting is none to choose from
    CHECK(Next(request) == fixed);
    request.task.tune = 8;
    const std::string tuned = Next(request);
    CHECK(tuned.rfind("// search: ", 0) == 0);
    const int declared = Count(tuned, "\n// knob ");
    CHECK(declared <= 8);
    CHECK((declared > 0) == HasConstants(fixed));
  }
}

TEST_CASE(
    "after an incorrect result in 16 bits, CUDA keeps fp32 between stages and begins again with the first values") {
  const auto request_of = [](const std::string& dtype) {
    const std::vector<TensorShape> inputs = {
        {"a", {64, 64}, dtype}, {"b", {64, 64}, dtype}, {"c", {64, 64}, dtype}};
    Request request =
        GraphRequest(inputs, {{"matmul", R"({"self":{"tensor":0},"other":{"tensor":1}})", {64, 64}, dtype},
                              {"matmul", R"({"self":{"tensor":3},"other":{"tensor":2}})", {64, 64}, dtype}});
    request.task.kind = "cuda";
    for (TaskArgument& argument : request.task.arguments)
      argument.cpp_type = (argument.role == "output" ? "" : "const ") +
                          std::string(dtype == "float32" ? "float*" : "__half*");
    return request;
  };
  constexpr const char* kSays = "kept in fp32 since then";
  Request request = request_of("float16");
  const std::string first = ReplyTo(request);
  CHECK((!Has(first, kSays) && Has(first, "the next text tries 16 bits")));
  AddAttempt(request.task, SourceOf(first), "measured", 1.1);
  const std::string second = ReplyTo(request);
  CHECK((!Has(second, kSays) && !Has(second, "everything is kept in fp32")));
  AddAttempt(request.task, SourceOf(second), "wrong", 0);
  const std::string third = ReplyTo(request);
  CHECK(Has(third, kSays));
  CHECK(SourceOf(third) != SourceOf(first));
  AddAttempt(request.task, SourceOf(third), "measured", 0.5);
  const std::string fourth = ReplyTo(request);
  CHECK((Has(fourth, kSays) && SourceOf(fourth) != SourceOf(third)));
  Request fresh = request_of("float16");
  AddAttempt(fresh.task, SourceOf(first), "wrong", 0);
  const std::string next = ReplyTo(fresh);  // it had kept fp32: other settings
  CHECK((!Has(next, kSays) && Has(next, "incorrect even so") && SourceOf(next) != SourceOf(first)));
  Request full = request_of("float32");  // nothing to keep: the reason is another one
  AddAttempt(full.task, Next(full), "wrong", 0);
  CHECK_FALSE(Has(ReplyTo(full), kSays));
}

TEST_CASE("a reply says what the stages are, why this setting, and what changed") {
  Request request = ProductRequest("cpp");
  const std::string first = ReplyTo(request);
  CHECK(Has(first, "matmul"));
  CHECK(Has(first, " %)"));
  CHECK(Has(first, "No setting was measured yet"));
  AddAttempt(request.task, SourceOf(first), "measured", 1.25);
  const std::string second = ReplyTo(request);
  CHECK(Has(second, "the fastest setting so far (1.250x)"));
  CHECK(Has(second, "Why this knob: "));
  CHECK(Has(second, "instead of"));
}

TEST_CASE("a kernel to start from is named, not edited") {
  Request request = ReluRequest();
  request.task.start_source = "extern \"C\" void launch(const float* x, float* out) {}";
  AddAttempt(request.task, request.task.start_source, "measured", 1.3);
  const std::string reply = ReplyTo(request);
  CHECK(Has(reply, "is not edited"));
  CHECK(SourceOf(reply) == Next(ReluRequest()));
}

TEST_CASE("a refusal names the operation and what would do") {
  for (const char* kind : kKinds) {
    Request request = GraphRequest({{"x", {4, 8}}}, {{"relu", R"({"self":{"tensor":0}})", {4, 8}},
                                                     {"bessel_j1", R"({"self":{"tensor":1}})", {4, 8}}});
    request.task.kind = kind;
    const std::string why = WhyNot(request);
    CHECK(Has(why.substr(0, why.find('\n')), "`bessel_j1`"));
    CHECK(Has(why, "language model"));
    CHECK(Has(why, "replay:"));
    try {
      ReplyTo(request);
      FAIL("there is no such operation");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadRequest);
      CHECK(Has(error.what(), "`bessel_j1`"));
      CHECK(Has(error.next_step(), "language model"));
    }
  }
}

TEST_CASE("what is no task for it is refused: another kind, a missing or invalid graph, no elements") {
  CHECK(Has(WhyNot(ReluRequest("ptx")), "not ptx"));
  CHECK_THROWS_AS(ReplyTo(ReluRequest("ptx")), Error);
  Request request = ReluRequest();
  request.task.shape_graphs.clear();
  CHECK(Has(WhyNot(request), "there is no graph of the reference"));
  request.task.shape_graphs = {{{}, "", "a tensor decides a branch"}};
  CHECK(Has(WhyNot(request), "a tensor decides a branch"));
  request.task.shape_graphs = {{{}, "{", ""}};
  CHECK_THROWS_AS(ReplyTo(request), Error);
  const Request empty = GraphRequest({{"x", {0, 8}}}, ReluSteps({0, 8}));
  CHECK(Has(WhyNot(empty), "has no elements"));
  Request renamed = ReluRequest();
  renamed.task.arguments[0].name = "y";
  CHECK(Has(WhyNot(renamed), "the input x"));
}

TEST_CASE("the text is of its kind") {
  const std::string cpp = Next(ReluRequest("cpp"));
  CHECK(Has(cpp, "extern \"C\" void launch(const float* "));
  CHECK_FALSE(Has(cpp, "__global__"));
  CHECK(Has(ReplyTo(ReluRequest("cuda")), "```cuda\n// search: "));
  const std::string cuda = Next(ReluRequest("cuda"));
  CHECK(Has(cuda, "__global__"));
  CHECK(Has(cuda, "\nvoid launch(const float* "));
  CHECK(Has(cuda, "<<<"));
  CHECK_FALSE(Has(cuda, "extern \"C\""));
  CHECK_FALSE(Has(cuda, "__builtin"));
}

TEST_CASE("several shapes are one text with a namespace a shape") {
  for (const char* kind : kKinds) {
    Request request = ProductRequest(kind, 256);
    const TaskShape large{{{"M", 256}, {"K", 512}}, request.task.shape_graphs[0].graph, ""};
    const TaskShape odd{{{"M", 33}, {"K", 512}}, ProductRequest(kind, 33).task.shape_graphs[0].graph, ""};
    request.task.shapes = 2;
    request.task.shape_graphs = {large, odd};
    request.task.symbols = large.symbols;
    CHECK(WhyNot(request).empty());
    const std::string text = Next(request);
    CHECK(Count(text, "namespace shape_1 {") == 1);
    CHECK(Count(text, "namespace shape_2 {") == 1);
    CHECK_FALSE(Has(text, "namespace shape_3"));
    CHECK(Has(text, "if (M == 256) {"));
    CHECK_FALSE(Has(text, "K == 512"));
    CHECK(Count(text, "extern \"C\" void launch(") == (std::string(kind) == "cpp" ? 1 : 0));
    CHECK(text == Next(request));
    const std::vector<std::string> texts = TextsOf(request, 3, kResults);
    CHECK(std::set<std::string>(texts.begin(), texts.end()).size() == texts.size());
    request.task.shape_graphs[1].graph.clear();
    request.task.shape_graphs[1].no_graph = "the second shape fails";
    CHECK(Has(WhyNot(request), "the second shape fails"));
  }
}
