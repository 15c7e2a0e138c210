// Ranks over Gloo: they learn what one learns, exchange texts, and notice when one is not there.

#include "policies/local/train/ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "env/error.h"
#include "tests/policies/local/train/rank_processes.h"
#include "tests/policies/local/train/trainer_fixture.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;

TEST_CASE("two and three ranks over Gloo learn what one learns") {
  const Trained alone = Train(Options(), 4);
  for (const int size : {2, 3}) {
    std::vector<Trained> of(static_cast<size_t>(size));
    std::vector<std::unique_ptr<LanguageModel>> models;
    for (int i = 0; i < size; ++i) models.push_back(TinyModel(1));
    WithRanks(size, [&](Ranks& ranks) {
      const auto me = static_cast<size_t>(ranks.Rank());
      Trainer trainer(Options(), *models[me], nullptr, ranks);
      for (int64_t s = 1; s <= 4; ++s) of[me].figures.push_back(trainer.Step(MakeBatch(s)));
      of[me].weights = Flat(*models[me]);
    });
    for (const Trained& one : of) {
      CHECK(at::equal(one.weights, of[0].weights));
      CHECK(Gap(one.weights, alone.weights) < 5e-6);
      CHECK(one.figures[3].loss == Approx(alone.figures[3].loss).epsilon(1e-4));
      CHECK(one.figures[3].grad_norm == Approx(alone.figures[3].grad_norm).epsilon(1e-4));
      CHECK(one.figures[3].tokens == alone.figures[3].tokens);
      CHECK(one.figures[3].delta_logprob_max == Approx(alone.figures[3].delta_logprob_max));
    }
  }
}

TEST_CASE("ranks exchange texts") {
  for (const int size : {2, 3}) {
    WithRanks(size, [&](Ranks& ranks) {
      const auto all = ExchangeTexts(ranks, std::string(static_cast<size_t>(ranks.Rank()), 'x'));
      std::vector<std::string> expected;
      for (int i = 0; i < size; ++i) expected.emplace_back(static_cast<size_t>(i), 'x');
      if (all != expected) throw std::runtime_error("other texts");
    });
  }
  const auto alone = OneRank();
  CHECK(ExchangeTexts(*alone, "a") == std::vector<std::string>{"a"});
}

TEST_CASE("a rank that has ended is an error for those that wait for it, with its number") {
  std::string what;
  const int port = FreePort();
  std::thread lost([&] { JoinOverGloo({1, 2, "127.0.0.1", port, false, "test"}, 20); });
  try {
    const auto ranks = JoinOverGloo({0, 2, "127.0.0.1", port, true, "test"}, 20);
    lost.join();
    at::Tensor values = at::ones({3});
    ranks->Sum(&values);
  } catch (const Error& error) {
    what = error.what();
    CHECK(error.code() == ExitCode::kBroken);
  }
  CHECK(what == "rank 0 lost rank 1: it has ended");
}

// ---- A rank as a process of its own, which can be killed and stopped ----

constexpr const char* kOneRank = "one rank of a group as a process of its own";

// Sums for ever. Writes how it ended to FOLDER/rank-N.
TEST_CASE("one rank of a group as a process of its own", "[.process]") {
  AsRank([](const Rendezvous& rendezvous, const std::string& folder, const EndRank&) {
    const auto ranks = JoinOverGloo(rendezvous, 600);
    for (int i = 0;; ++i) {
      at::Tensor values = at::ones({3});
      ranks->Sum(&values);
      if (i == 20) std::ofstream(folder + "/sums-" + std::to_string(rendezvous.rank)) << "20";
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
}

TEST_CASE("a killed rank and one whose machine hangs are named by the others soon: of two and three ranks") {
  struct Case {
    int size, victim, signal;
  };
  for (const Case c :
       {Case{2, 1, SIGKILL}, {3, 2, SIGKILL}, {3, 0, SIGKILL}, {2, 1, SIGSTOP}, {3, 0, SIGSTOP}}) {
    for (const Ended& ended : EndsAfter(kOneRank, c.size, c.victim, c.signal)) {
      INFO(c.size << " ranks, rank " << c.victim << (c.signal == SIGKILL ? " killed" : " stopped") << ": "
                  << ended.what << "after " << ended.seconds << " s");
      CHECK(ended.code == 4);
      CHECK(ended.what.find(" lost rank " + std::to_string(c.victim)) != std::string::npos);
      CHECK(ended.seconds < 30);
    }
  }
}

TEST_CASE("a rank in a long step is waited for, though it is there for no operation") {
  std::atomic<int> lost{0};
  const int port = FreePort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Rendezvous rendezvous{rank, 2, "127.0.0.1", port, rank == 0, "test"};
      rendezvous.lost_seconds = 3, rendezvous.on_lost = [&](const Error&) { ++lost; };
      const auto ranks = JoinOverGloo(rendezvous, 60);
      if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(7));
      at::Tensor values = at::ones({3});
      ranks->Sum(&values);
      lost += values.sum().item<float>() != 6;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(lost == 0);
}

TEST_CASE("a rank that ends with an error tells why, and those that wait for it end soon after") {
  std::atomic<bool> is_told{false};
  std::string what;
  const int port = FreePort();
  const auto start = std::chrono::steady_clock::now();
  std::thread other([&] {
    const auto ranks = JoinOverGloo({1, 2, "127.0.0.1", port, false, "test"}, 60);
    ranks->Leave("no memory");
    for (int i = 0; i < 3000 && !is_told; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ranks->Wait();  // it still answers, as within NCCL
  });
  Rendezvous rendezvous{0, 2, "127.0.0.1", port, true, "test"};
  rendezvous.on_lost = [&](const Error& error) { what = error.what(), is_told = true; };
  const auto ranks = JoinOverGloo(rendezvous, 60);
  ranks->Wait();
  other.join();
  CHECK(what == "rank 0 lost rank 1: it has ended: no memory");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("ranks that do not come are named by those that did, within the limit") {
  const int port = FreePort();
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 3}) {
    threads.emplace_back([&, rank] {
      try {
        JoinOverGloo({rank, 4, "127.0.0.1", port, rank == 0, "test", 2}, 1800);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank == 3 ? 2 : rank)] = error.what();
        CHECK(error.code() == ExitCode::kBroken);
        CHECK_FALSE(error.next_step().empty());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  CHECK(errors[0].find("all of 4 ranks; there is no rank 2") != std::string::npos);
  // The others see the same, or that rank 0, which holds the store, has given up.
  for (const std::string& error : errors)
    CHECK(
        (error.find("there is no rank 2") != std::string::npos || error.find(" lost ") != std::string::npos));
}

TEST_CASE("ranks share the probes of a step; one that has none runs a pass beside the others") {
  Batch batch = MakeBatch(1);
  batch.probes = {batch.samples.begin(), batch.samples.begin() + 2};  // a pass each
  TrainOptions options = Options();
  options.loss.surrogate = Surrogate::kCrossEntropy, options.micro_tokens = 1, options.gap_limit = 100;
  const auto gap_of = [&](const Sample& probe) {
    Batch one = batch;
    one.probes = {probe};
    const auto model = TinyModel(1);
    const auto alone = OneRank();
    return Trainer(options, *model, nullptr, *alone).Step(one).delta_logprob;
  };
  const double lengths[] = {static_cast<double>(batch.probes[0].completion.size()),
                            static_cast<double>(batch.probes[1].completion.size())};
  const double expected = (gap_of(batch.probes[0]) * lengths[0] + gap_of(batch.probes[1]) * lengths[1]) /
                          (lengths[0] + lengths[1]);
  options.shard = GENERATE(false, true);
  WithRanks(3, [&](Ranks& ranks) {
    const auto model = TinyModel(1);
    const double gap = Trainer(options, *model, nullptr, ranks).Step(batch).delta_logprob;
    if (std::abs(gap - expected) > 1e-5) throw std::runtime_error("the gap is " + std::to_string(gap));
  });
}

TEST_CASE("what is not finite on one rank stops all, and the checkpoint before stays") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path(), options.micro_tokens = 12;
  options.shard = GENERATE(false, true);
  const std::string good = CheckpointOfRanks(options, 3);
  std::vector<std::unique_ptr<LanguageModel>> models;
  for (int i = 0; i < 3; ++i) models.push_back(TinyModel(5));
  const auto errors = ErrorsOfRanks(3, [&](Ranks& ranks) {
    Trainer trainer(options, *models[static_cast<size_t>(ranks.Rank())], nullptr, ranks);
    trainer.Resume(good);
    Batch poisoned = MakeBatch(3);
    poisoned.samples[5].advantage = std::numeric_limits<float>::quiet_NaN();
    trainer.Step(poisoned);
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(error.find("step 3") != std::string::npos);
    CHECK(error.find("not finite") != std::string::npos);
  }
  CHECK(NewestCheckpoint(folder.Path()) == good);
}

TEST_CASE("ranks without a common folder write no checkpoint, and say whose shares are missing") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path() + "/rank-0", options.keep = 1;
  const std::string good = CheckpointOfRanks(options, 3);
  for (const char* other : {"/rank-1", "/rank-2"})
    fs::copy(options.output, folder.Path() + other, fs::copy_options::recursive);
  std::vector<std::unique_ptr<LanguageModel>> models;
  std::vector<std::string> next(3);
  for (int i = 0; i < 3; ++i) models.push_back(TinyModel(5));
  const auto start = std::chrono::steady_clock::now();
  const auto errors = ErrorsOfRanks(3, [&](Ranks& ranks) {
    const auto rank = static_cast<size_t>(ranks.Rank());
    TrainOptions own = options;
    own.output = folder.Path() + "/rank-" + std::to_string(rank);
    Trainer trainer(own, *models[rank], nullptr, ranks);
    trainer.Resume(NewestCheckpoint(own.output));
    trainer.Step(MakeBatch(3));
    try {
      trainer.Save();
    } catch (const Error& error) {
      next[rank] = error.next_step();
      throw;
    }
  });
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
  CheckAllSay(errors, 0,
              options.output +
                  "/checkpoints/.shares-3 has no share (optimizer-N-of-3.safetensors) of rank 1, 2; older");
  CHECK(next == std::vector<std::string>(3, kShareOutput));
  CHECK(NewestCheckpoint(options.output) == good);
  for (const char* rank : {"/rank-0", "/rank-1", "/rank-2"})
    CHECK(std::distance(fs::directory_iterator(folder.Path() + rank + "/checkpoints"),
                        fs::directory_iterator()) == 1);  // no shares are left
  CHECK(TrainOnRanks(options, 3, 3, 3, good).figures.size() == 1);
}

TEST_CASE("ranks that see different newest checkpoints say so before they read one") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path() + "/shared";
  CheckpointOfRanks(options, 2);
  options.resume = true;
  const auto resume = [&](const std::string& output_of_second) {
    return ErrorsOfRanks(2, [&](Ranks& ranks) {
      TrainOptions own = options;
      if (ranks.Rank() == 1) own.output = output_of_second;
      const std::string found = CheckpointToResume(own, ranks);
      if (found != NewestCheckpoint(options.output)) throw std::runtime_error("found " + found);
    });
  };
  CHECK(resume(options.output) == std::vector<std::string>(2));
  for (const std::string& error : resume(folder.Path() + "/other"))
    CHECK_THAT(error, Catch::Contains("/checkpoints: rank 0 goes on from step-00000002, rank 1 from no"));
}

}  // namespace
}  // namespace kevin::local
