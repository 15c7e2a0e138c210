// bench_store: turns per second into the database, and the time to resume a large collection.
//
//   bench_store --db FILE --turns 1000000                           turns/s with group commit, time to resume
//   bench_store --db postgresql://... --leases 100000 --workers 8   leases/s, and leases given twice
//
// A turn is one of a language model: a prompt of 6 KB of which 2 KB are new, a reply of 2 KB, a kernel of 1.5
// KB, its verdict and `--samples` timed halves.

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "env/error.h"
#include "env/problem/text.h"
#include "trajectories/database.h"
#include "trajectories/engine.h"
#include "trajectories/work_queue.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string database = "bench.db";
  int64_t turns = 0, leases = 0;
  int threads = 256, workers = 8, samples = 16, turns_of_episode = 8;
};

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string Text(std::minstd_rand& random, size_t bytes) {
  std::string text(bytes, ' ');
  for (size_t i = 0; i + 4 <= bytes; i += 4) {
    const uint32_t bits = static_cast<uint32_t>(random());
    for (size_t j = 0; j < 4; ++j) text[i + j] = static_cast<char>(' ' + (bits >> (7 * j)) % 64);
  }
  return text;
}

ProblemRecord SomeProblem() {
  return {Sha256Hex("bench"), "level1/19", "ReLU", "bench", {"elementwise"}, {}};
}

TurnRecord SomeTurn(const Options& options, std::minstd_rand& random, const std::string& run, int number) {
  static const std::string kSystem(2000, 's'), kTask(2000, 't');
  TurnRecord turn;
  turn.turn = number, turn.run = run;
  turn.messages = {{"system", kSystem}, {"user", kTask}, {"user", Text(random, 2000)}};
  turn.reply = Text(random, 2000);
  turn.stop_reason = "stop";
  turn.usage = {1500, 500, std::nullopt, std::nullopt};
  turn.feedback = Text(random, 400);
  EvaluationRecord& e = turn.evaluation;
  e.kind = "cpp", e.source = Text(random, 1500), e.candidate_hash = Sha256Hex(e.source);
  e.key = Sha256Hex("key" + e.source);
  e.key_parts = {{"candidate", e.candidate_hash}, {"threads", "2"}, {"device_model", "bench"}};
  e.problem_hash = SomeProblem().content_hash;
  e.workload.size = "small", e.workload.inputs = "default", e.workload.precision = "fp32",
  e.device = "cpu: bench", e.isolation = "full";
  e.outcome = "measured", e.compiled = e.correct = true, e.verdict = "fast";
  e.speedup = Ratio{1.5, 1.4, 1.6};
  e.reference_us = 100, e.candidate_us = 66, e.score = turn.reward = 1.8, e.measure_s = 1;
  for (int i = 0; i < options.samples; ++i)
    e.samples.push_back({i / 8, i / 2, "fixed", i % 2 ? "reference" : "candidate", 10, 1000.0 + i});
  return turn;
}

EpisodeRecord SomeEpisode(const WorkQueue::Opened& opened, const Lease& lease, int turns) {
  EpisodeRecord episode;
  episode.run = opened.collection, episode.last_run = opened.worker_run, episode.lease = lease;
  episode.policy = "bench", episode.device = "cpu: bench", episode.workload.size = "small",
  episode.turns_asked = turns;
  return episode;
}

WorkQueue::Opened OpenCollection(Store& store, int64_t items) {
  std::vector<std::string> specs;
  for (int64_t i = 0; i < items; ++i) specs.push_back(fmt::format("{{\"number\":{}}}", i));
  return WorkQueue(store).Open("bench", "{}", specs, {SomeProblem()}, {}, false);
}

// As `kevin collect` writes: each thread leases an episode, appends its turns, finishes it.
void WriteEpisodes(const Options& options, Store& store, const WorkQueue::Opened& opened, unsigned seed) {
  std::minstd_rand random(seed);
  WorkQueue queue(store);
  LeaseTerms terms;
  terms.collection = opened.collection, terms.device = "bench", terms.seconds = 1e6;  // not renewed here
  while (const auto item = queue.Take(terms)) {
    const std::string episode =
        store.BeginEpisode(SomeEpisode(opened, item->lease, options.turns_of_episode), SomeProblem());
    for (int turn = 1; turn <= options.turns_of_episode; ++turn)
      store.AppendTurn(episode, SomeTurn(options, random, opened.worker_run, turn));
    store.FinishEpisode(episode, {EpisodeState::kDone, "", 1, 1.5, 1.4, 1.6, "", 8});
    queue.Finish(item->lease);
  }
}

void BenchTurns(const Options& options) {
  Store store = Store::Open(options.database, OpenMode::kCreate);
  const int64_t episodes = (options.turns + options.turns_of_episode - 1) / options.turns_of_episode;
  const auto opened = OpenCollection(store, episodes + 1);
  LeaseTerms last;
  last.collection = opened.collection, last.device = "bench";
  if (fork() == 0) {  // an item that its worker leaves unfinished
    Store other = Store::Open(options.database, OpenMode::kWrite);
    last.seconds = 1e6;
    WorkQueue(other).Take(last);
    _exit(0);
  }
  wait(nullptr);
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] { WriteEpisodes(options, store, opened, static_cast<unsigned>(i + 1)); });
  }
  std::thread watch([&] {
    int64_t before = 0;
    for (auto now = Clock::now(); WorkQueue(store).Count(opened.collection).waiting > 0; now = Clock::now()) {
      std::this_thread::sleep_for(std::chrono::seconds(10));
      const int64_t done = WorkQueue(store).Count(opened.collection).done * options.turns_of_episode;
      fmt::print("  {:8.0f} turns, {:6.0f} turns/s\n", static_cast<double>(done),
                 static_cast<double>(done - before) / Since(now));
      before = done;
    }
  });
  for (auto& thread : threads) thread.join();
  const double seconds = Since(start);
  watch.join();
  const auto turns = static_cast<double>(episodes * options.turns_of_episode);
  fmt::print("{:.0f} turns by {} threads in {:.1f} s: {:.0f} turns/s\n", turns, options.threads, seconds,
             turns / seconds);
}

// The work of `kevin collect` before its first turn, in a process that opens an existing database.
void BenchResume(const Options& options) {
  const auto start = Clock::now();
  Store store = Store::Open(options.database, OpenMode::kWrite);
  const double opened_s = Since(start);
  const auto opened = OpenCollection(store, 0);
  WorkQueue queue(store);
  queue.ReclaimFromEnded(opened.collection);
  const CollectionUsage usage = queue.Usage(opened.collection);
  queue.Results(opened.collection);
  LeaseTerms terms;
  terms.collection = opened.collection, terms.device = "bench", terms.seconds = 0;
  const bool found = queue.Take(terms).has_value();
  fmt::print("resume with {} turns in the database: {:.2f} s (open {:.2f} s; {})\n", usage.turns,
             Since(start), opened_s, found ? "an item is leased" : "no item was left");
}

// Every worker is a process. An item that is given twice shows in its fence, which grows with every lease,
// and in the number of finished items.
void BenchLeases(const Options& options) {
  auto start = Clock::now();
  std::string collection;
  {
    Store store = Store::Open(options.database, OpenMode::kCreate);
    collection = OpenCollection(store, options.leases).collection;
  }
  fmt::print("{} items queued in {:.1f} s\n", options.leases, Since(start));
  start = Clock::now();
  std::vector<pid_t> workers;
  for (int w = 0; w < options.workers; ++w) {
    const pid_t child = fork();
    if (child == 0) {
      Store store = Store::Open(options.database, OpenMode::kWrite);
      WorkQueue queue(store);
      LeaseTerms terms;
      terms.collection = collection, terms.device = "bench";
      while (const auto item = queue.Take(terms)) queue.Finish(item->lease);
      _exit(0);
    }
    workers.push_back(child);
  }
  int broken = 0;
  for (const pid_t worker : workers) {
    int status = 0;
    waitpid(worker, &status, 0);
    broken += status == 0 ? 0 : 1;
  }
  const double seconds = Since(start);
  Database look = IsPostgresAddress(options.database)
                      ? Database(options.database, OpenPostgres(options.database))
                      : Database(options.database, Database::Access::kReadOnly, 1000);
  fmt::print("{} workers, {} leases in {:.1f} s: {:.0f}/s; done {}, given twice {}, workers that broke {}\n",
             options.workers, options.leases, seconds, static_cast<double>(options.leases) / seconds,
             look.QueryInteger("SELECT count(*) FROM work_items WHERE state = 'done'"),
             look.QueryInteger("SELECT count(*) FROM work_items WHERE fence <> 1"), broken);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Speed of the database"};
  app.add_option("--db", options.database, "A new file, or the address of an empty database")
      ->capture_default_str();
  app.add_option("--turns", options.turns, "Append this many turns, then time the resumption");
  app.add_option("--leases", options.leases, "Lease and finish this many items");
  app.add_option("--threads", options.threads, "Episodes at once in one process")->capture_default_str();
  app.add_option("--workers", options.workers, "Processes, for --leases")->capture_default_str();
  app.add_option("--samples", options.samples, "Timed halves of a turn")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.turns > 0) BenchTurns(options);
  if (options.turns > 0) BenchResume(options);
  if (options.leases > 0) BenchLeases(options);
  return 0;
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    return kevin::Main(argc, argv);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_store: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
