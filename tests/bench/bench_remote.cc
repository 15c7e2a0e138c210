// bench_remote: latency that the client of remote policies adds to a request, and its concurrent streams. The
// mock server is in this process, so its processor time is in the figures.

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "policies/remote/remote_policy.h"
#include "tests/support/mock_api.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 20;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Request PromptOf(size_t bytes) {
  Request request;
  request.messages = {{"system", "You write kernels."}, {"user", std::string(bytes, 'x')}};
  return request;
}

std::unique_ptr<RemotePolicy> PolicyAt(const MockServer& server) {
  RemoteOptions options;
  options.endpoint = remote::ParseSpec("openai:mock-1", server.Url() + "/v1");
  return MakeRemotePolicy(options);
}

void PrintTimes(const char* name, const std::vector<double>& seconds) {
  fmt::print("  {:<28} p50 {:.3f} ms, p99 {:.3f} ms\n", name, Quantile(seconds, 0.5) * 1e3,
             Quantile(seconds, 0.99) * 1e3);
}

// The curl program's own times; one process and connection for all requests.
std::vector<double> CurlTimes(const MockServer& server, const std::string& body, int requests) {
  std::string pattern = (std::filesystem::temp_directory_path() / "bench-remote-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  std::ofstream(folder / "body.json") << body;
  std::ofstream config(folder / "config");
  for (int i = 0; i < requests; ++i) {
    config << (i == 0 ? "" : "next\n") << "url = \"" << server.Url() << "/v1/chat/completions\"\n"
           << "data-binary = \"@" << (folder / "body.json").string() << "\"\n"
           << "header = \"content-type: application/json\"\nheader = \"expect:\"\nno-buffer\nsilent\n"
           << "output = \"/dev/null\"\nwrite-out = \"%{time_total}\\n\"\n";
  }
  config.close();
  std::vector<double> times;
  std::FILE* const curl = ::popen(("curl -K " + (folder / "config").string()).c_str(), "r");
  double seconds = 0;
  while (curl != nullptr && std::fscanf(curl, "%lf", &seconds) == 1) times.push_back(seconds);
  if (curl != nullptr) ::pclose(curl);
  std::filesystem::remove_all(folder);
  return times;
}

void MeasureLatency(int requests, size_t prompt_bytes) {
  MockAnswer answer;
  answer.text = std::string(3000, 'k');
  MockServer server([&](const MockRequest& request) { return ReplyTo(request, answer); });
  const auto policy = PolicyAt(server);
  Request request = PromptOf(prompt_bytes);
  std::string body;
  request.on_attempt = [&](const RequestAttempt& attempt) { body = attempt.request; };
  policy->Complete(request, nullptr, nullptr);
  // In turns, so that other load of the machine affects both.
  std::vector<double> ours, raw;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < requests / kRounds; ++i) {
      const auto start = Clock::now();
      policy->Complete(request, nullptr, nullptr);
      ours.push_back(Since(start));
    }
    const std::vector<double> times = CurlTimes(server, body, requests / kRounds + 1);
    if (!times.empty()) raw.insert(raw.end(), times.begin() + 1, times.end());  // the first connects
  }
  fmt::print("{} requests, one after the other: a prompt of {} bytes, an answer of {} events\n", requests,
             prompt_bytes, EventsOf(remote::Format::kChat, answer).size());
  PrintTimes("this client", ours);
  if (raw.empty()) return fmt::print("  there is no curl program to compare with\n");
  PrintTimes("curl, connection kept", raw);
  fmt::print("  added                        p50 {:.3f} ms, p99 {:.3f} ms\n",
             (Quantile(ours, 0.5) - Quantile(raw, 0.5)) * 1e3,
             (Quantile(ours, 0.99) - Quantile(raw, 0.99)) * 1e3);
}

void MeasureStreams(int streams, int events, double interval_s) {
  MockServer server([&](const MockRequest& request) {
    MockAnswer answer;
    answer.text = std::string(static_cast<size_t>(events) * 12, 'k');
    MockReply reply = ReplyTo(request, answer);
    for (MockReply::Piece& piece : reply.pieces) piece.pause_s = interval_s;
    return reply;
  });
  const auto policy = PolicyAt(server);
  std::mutex mutex;
  std::vector<double> firsts, gaps, totals;
  std::vector<std::thread> threads;
  const double cpu = CpuSeconds();
  for (int i = 0; i < streams; ++i) {
    threads.emplace_back([&] {
      std::vector<double> mine;
      const auto start = Clock::now();
      auto last = start;
      policy->Complete(PromptOf(4000), nullptr, [&](const std::string&) {
        mine.push_back(Since(last));
        last = Clock::now();
      });
      const std::lock_guard lock(mutex);
      totals.push_back(Since(start));
      if (mine.empty()) return;
      firsts.push_back(mine.front());
      gaps.insert(gaps.end(), mine.begin() + 1, mine.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  fmt::print("{} streams at once, {} events each, one every {:g} ms\n", streams, events, interval_s * 1e3);
  fmt::print("  whole answers                {} of {}\n", totals.size(), streams);
  fmt::print("  first text, connecting       p50 {:.1f} ms, longest {:.1f} ms\n", Quantile(firsts, 0.5) * 1e3,
             Quantile(firsts, 1) * 1e3);
  fmt::print("  between two texts            p50 {:.1f} ms, p99.9 {:.1f} ms, longest {:.1f} ms\n",
             Quantile(gaps, 0.5) * 1e3, Quantile(gaps, 0.999) * 1e3, Quantile(gaps, 1) * 1e3);
  fmt::print("  a stream                     p50 {:.2f} s, longest {:.2f} s\n", Quantile(totals, 0.5),
             Quantile(totals, 1));
  fmt::print("  processor, server included   {:.2f} s\n", CpuSeconds() - cpu);
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  int requests = 500, streams = 256, events = 150;
  size_t prompt_bytes = 20000;
  double interval_s = 0.05;
  CLI::App app{"Latency and concurrency of the client of remote policies"};
  app.add_option("--requests", requests)->capture_default_str();
  app.add_option("--prompt-bytes", prompt_bytes)->capture_default_str();
  app.add_option("--streams", streams)->capture_default_str();
  app.add_option("--events", events)->capture_default_str();
  app.add_option("--interval", interval_s, "Seconds between events")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  kevin::MeasureLatency(requests, prompt_bytes);
  kevin::MeasureStreams(streams, events, interval_s);
}
