// bench_serve: cost of the local model's engine and server, with a fake runner whose own time is subtracted.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "env/verdict/estimate.h"
#include "policies/local/serve/http_server.h"
#include "policies/remote/remote_policy.h"
#include "tests/support/fake_runner.h"

namespace kevin::local {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Adds up the runner's own time.
class TimedRunner : public FakeRunner {
 public:
  TimedRunner(const Options& options, double* seconds) : FakeRunner(options), seconds_(seconds) {}
  void Submit(std::span<const SequenceStep> steps) override {
    const auto start = Clock::now();
    FakeRunner::Submit(steps);
    *seconds_ += Seconds(Clock::now() - start);
  }

 private:
  double* const seconds_;
};

class OneLetter : public ModelText {
 public:
  std::vector<int32_t> Encode(const std::string& text, bool) const override {
    return std::vector<int32_t>(text.size(), 1);
  }
  std::string Decode(std::span<const int32_t> ids) const override { return std::string(ids.size(), 'a'); }
  std::string Bytes(int32_t) const override { return "a"; }
  std::unique_ptr<TokenText> NewText() const override {
    struct Text : TokenText {
      std::string Add(int32_t) override { return "a"; }
      std::string Finish() override { return ""; }
    };
    return std::make_unique<Text>();
  }
  std::string RenderChat(const remote::Json& messages, bool, const remote::Json&) const override {
    return remote::TextAt(messages.back(), "content");
  }
};

FakeRunner::Options QuickRunner() {
  FakeRunner::Options options;
  options.shape = {8, 4096, 32, 1 << 14, 256, 2048, 2};
  options.reads_history = false;
  return options;
}

void Engines(int batch) {
  constexpr int kTokens = 1000;
  double runner_s = 0;
  std::mutex mutex;
  std::condition_variable wake;
  int open = batch;
  Engine engine(std::make_unique<TimedRunner>(QuickRunner(), &runner_s));
  const auto start = Clock::now();
  for (int i = 0; i < batch; ++i) {
    GenerationRequest request;
    request.prompt = {i % 8, 1, 2};
    request.max_tokens = kTokens;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.make_text = [] { return OneLetter().NewText(); };
    engine.Submit(request, [&](const AnswerPiece& piece) {
      if (!piece.finish) return;
      const std::lock_guard lock(mutex);
      if (--open == 0) wake.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  wake.wait(lock, [&] { return open == 0; });
  const double own_s = Seconds(Clock::now() - start) - runner_s;
  fmt::print("engine, batch {}: {:.2f} us a token and sequence\n", batch, 1e6 * own_s / batch / kTokens);
}

// Time of a whole chat of 1 and of 1,000 tokens, through HTTP and Kevin's client, and without HTTP.
void Latency() {
  Engine engine(std::make_unique<FakeRunner>(QuickRunner()));
  ServedModel model;
  model.name = "letters";
  model.text = std::make_shared<OneLetter>();
  ModelApi api(engine, model);
  HttpServerOptions http;
  http.port = 0;
  const HttpServer server(api, http);
  RemoteOptions options;
  options.endpoint = remote::ParseSpec("openai:letters@" + server.Url(), "");
  options.token_ids = TokenMode::kChat;
  const auto policy = MakeRemotePolicy(options);
  Request request;
  request.messages = {{"user", std::string(1000, 'x')}};
  for (const int tokens : {1, 1000}) {
    request.sampling.max_tokens = tokens;
    std::vector<double> direct, served;
    for (int i = 0; i < 200; ++i) {
      const auto start = Clock::now();
      policy->Complete(request, nullptr, {});
      served.push_back(1e3 * Seconds(Clock::now() - start));
      const std::string body =
          fmt::format(R"({{"max_tokens": {}, "messages": [{{"role": "user", "content": "{}"}}]}})", tokens,
                      std::string(1000, 'x'));
      const auto begin = Clock::now();
      const Reply reply = api.Answer("POST", "/v1/chat/completions", body);
      while (reply.in_progress->Next(1)) continue;
      direct.push_back(1e3 * Seconds(Clock::now() - begin));
    }
    fmt::print(
        "{} tokens: {:.2f} ms by HTTP, streaming with ids and log-probabilities; {:.2f} ms without HTTP\n",
        tokens, Median(served), Median(direct));
  }
}

}  // namespace
}  // namespace kevin::local

int main(int argc, char** argv) {
  CLI::App app{"Cost of the local model's engine and server"};
  CLI11_PARSE(app, argc, argv);
  for (const int batch : {1, 16, 64, 256}) kevin::local::Engines(batch);
  kevin::local::Latency();
  return 0;
}
