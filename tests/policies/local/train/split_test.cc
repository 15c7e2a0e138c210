// Sampling with all ranks together: what they draw, what memory they take, what is saved, and what becomes of the others
// where one is lost.

#include <ATen/DeviceAccelerator.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <set>

#include "policies/local/model/build_weights.h"
#include "tests/policies/local/train/rank_processes.h"
#include "tests/policies/local/train/split_rank.h"

namespace kevin::local {
namespace {

// Runs `body` on each of `size` ranks with a group to train and one to sample. The errors of each.
std::vector<std::string> ErrorsOfSplitRanks(
    int size, const std::function<void(Ranks& ranks, Ranks& sums, const std::string& path)>& body) {
  const Folder folder;
  const int port = FreePort();
  return ErrorsOfRanks(size, [&](Ranks& ranks) {
    const auto sums = JoinOverGloo({ranks.Rank(), size, "127.0.0.1", port, ranks.Rank() == 0, "sums"}, 60);
    body(ranks, *sums, folder.Path() + "/socket");
  });
}

const std::vector<std::string>& NoErrors(int size) {
  static std::map<int, std::vector<std::string>> none;
  return none.try_emplace(size, static_cast<size_t>(size)).first->second;
}

TEST_CASE("ranks that sample together draw what one draws, before and after an update") {
  for (const bool qk_norm : {false, true}) {
    const ModelConfig config = SplittableConfig(qk_norm);
    const BeforeAndAfter alone = DrawnAlone(*TinyModel(1, NumberType::kF32, config));
    CHECK(Difference(alone.before, alone.after, 1e-3) != "");  // something is learnt
    for (const int size : {2, 3, 4}) {
      INFO(size << " ranks, " << (qk_norm ? "normed heads" : "biases"));
      const auto errors = ErrorsOfSplitRanks(size, [&](Ranks& ranks, Ranks& sums, const std::string& path) {
        const auto model = TinyModel(1, NumberType::kF32, config);
        SplitRank rank(*model, ranks, sums, path);
        const auto compare = [&](const Answers& expected) {
          if (!rank.leads()) return;
          const std::string difference = Difference(expected, AnswersOf(rank.engine()), 1e-5);
          if (!difference.empty()) throw std::runtime_error(difference);
        };
        compare(alone.before);
        ranks.Wait();
        rank.Learn(1);
        compare(alone.after);
        ranks.Wait();
      });
      CHECK(errors == NoErrors(size));
    }
  }
}

TEST_CASE("answers in progress go on after an update, and a rank that trains early waits for the engine") {
  std::atomic<int> begun{0};  // updates of rank 0
  std::atomic<bool> is_early{false};
  const auto errors = ErrorsOfSplitRanks(2, [&](Ranks& ranks, Ranks& sums, const std::string& path) {
    const auto model = TinyModel(1, NumberType::kF32, SplittableConfig());
    SplitRank rank(*model, ranks, sums, path);
    std::future<Answers> answers;
    if (rank.leads()) {
      answers = std::async(std::launch::async, [&] { return AnswersOf(rank.engine()); });
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    for (int step = 1; step <= 3; ++step) {
      if (rank.leads()) std::this_thread::sleep_for(std::chrono::milliseconds(50)), begun = step;
      rank.Learn(step, [&] { is_early = is_early || begun < step; });
    }
    if (rank.leads() && answers.get().size() != 5) throw std::runtime_error("not all answers");
    ranks.Wait();
  });
  CHECK(errors == NoErrors(2));
  CHECK_FALSE(is_early);
}

// A prompt, then steps that bring no token of their own.
std::vector<SampledToken> WithoutTokens(ModelRunner& runner) {
  const std::vector<int32_t> prompt = {1, 2, 3}, pages = {4, 2, 7};
  std::vector<SampledToken> drawn;
  SequenceStep step;
  step.tokens = prompt, step.pages = pages, step.sample = true, step.sequence = 9;
  for (int i = 0; i < 6; ++i) {
    runner.Submit({&step, 1});
    drawn.push_back(runner.Wait().at(0));
    step.position += static_cast<int>(std::max<size_t>(1, step.tokens.size())), step.tokens = {};
  }
  return drawn;
}

TEST_CASE("a step without tokens runs the one that was drawn, on all ranks") {
  const auto whole = TinyModel(1, NumberType::kF32, SplittableConfig());
  TorchRunner alone(*whole, FewPages());
  const std::vector<SampledToken> expected = WithoutTokens(alone);
  const auto errors = ErrorsOfSplitRanks(2, [&](Ranks& ranks, Ranks& sums, const std::string& path) {
    const auto model = TinyModel(1, NumberType::kF32, SplittableConfig());
    SplitModel slices(*model, sums);
    slices.Refresh([&](const auto& take) {
      for (int layer = 0; layer < model->Config().layers; ++layer) take(layer);
    });
    const auto link = ranks.Rank() == 0 ? std::make_shared<SplitLink>(path) : nullptr;
    ranks.Wait();
    if (!link) {
      SplitFollower follower(slices, FewPages(), ConnectToFirst(path, 1), 1, [](const Error&) {});
      ranks.Wait();
      return;
    }
    link->Accept(2, 20);
    std::vector<SampledToken> drawn;
    {
      SplitLeader leader(slices, FewPages(), link, [](const Error&) {});
      drawn = WithoutTokens(leader);
    }
    ranks.Wait();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (drawn[i].id != expected[i].id ||
          std::abs(drawn[i].model_logprob - expected[i].model_logprob) > 1e-5)
        throw std::runtime_error("token " + std::to_string(i) + " is another one");
    }
  });
  CHECK(errors == NoErrors(2));
}

int64_t LayerBytes(const LanguageModel& model) {
  int64_t all = 0;
  std::set<const void*> seen;
  for (const Layer& layer : model.GetWeights().layers) {
    for (const Linear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
      const c10::StorageImpl* storage = linear->weight.storage().unsafeGetStorageImpl();
      if (seen.insert(storage).second) all += static_cast<int64_t>(storage->nbytes());
    }
  }
  return all;
}

TEST_CASE(
    "a rank has its part of the layers to sample, nothing of it while it learns, and never all layers") {
  const auto whole = TinyModel(1, NumberType::kF32, SplittableConfig());
  const auto errors = ErrorsOfSplitRanks(3, [&](Ranks& ranks, Ranks& sums, const std::string& path) {
    const auto model = TinyModel(1, NumberType::kF32, SplittableConfig());
    SplitRank rank(*model, ranks, sums, path);
    const auto require = [](bool good, const char* what) {
      if (!good) throw std::runtime_error(what);
    };
    require(LayerBytes(rank.slice()) == LayerBytes(*whole) / 3, "another slice");
    require(LayerBytes(*model) == 0, "layers are whole at the start");
    require(rank.slice().Config().kv_heads == 4 && rank.slice().Config().heads == 8, "other heads");
    ranks.Wait();  // a follower gives its slice away as soon as rank 0 learns
    rank.Learn(1, [&] { require(LayerBytes(rank.slice()) == 0, "the slice is there while it learns"); });
    require(LayerBytes(rank.slice()) == LayerBytes(*whole) / 3, "the slice did not come back");
    require(LayerBytes(*model) == 0, "layers are whole after a step");
    int visited = 0;
    rank.trainer().VisitLayers([&](int) {
      ++visited;
      require(LayerBytes(*model) > 0, "a layer that is visited is not there");
    });
    require(visited == 2, "not each layer");
    ranks.Wait();
  });
  CHECK(errors == NoErrors(3));
}

TEST_CASE("checkpoint and trained model are whole though no rank has all weights; a run goes on from it") {
  const Folder folder;
  const ModelConfig config = SplittableConfig();
  std::filesystem::create_directories(folder.Path() + "/model");
  std::ofstream(folder.Path() + "/model/config.json") << ConfigJson(config);
  TrainOptions options = SplitOptions();
  options.output = folder.Path(), options.model = folder.Path() + "/model";
  const auto train = [&](int size, int64_t first, int64_t last) {
    return ErrorsOfRanks(size, [&](Ranks& ranks) {
      const auto model = TinyModel(first == 1 ? 1 : 5, NumberType::kF32, config);
      Trainer trainer(options, *model, nullptr, ranks);
      if (first > 1) trainer.Resume(NewestCheckpoint(folder.Path()));
      for (int64_t step = first; step <= last; ++step) trainer.Step(MakeBatch(step));
      trainer.Save();
      trainer.SaveModel(folder.Path() + "/trained");
    });
  };
  CHECK(train(2, 1, 2) == NoErrors(2));
  CHECK(train(3, 3, 4) == NoErrors(3));
  const auto expected = TinyModel(1, NumberType::kF32, config);
  const auto alone = OneRank();
  Trainer trainer(Options(), *expected, nullptr, *alone);
  for (int64_t step = 1; step <= 4; ++step) trainer.Step(MakeBatch(step));
  ModelOptions floats;
  floats.dtype = NumberType::kF32, floats.trainable = true;
  for (const std::string& saved : {NewestCheckpoint(folder.Path()) + "/model", folder.Path() + "/trained"}) {
    INFO(saved);
    CHECK(Gap(Flat(*LoadLanguageModel(saved, floats)), Flat(*expected)) < 1e-5);
  }
}

TEST_CASE("a model that so many ranks cannot divide is refused with the number that can") {
  const auto why = [](const ModelConfig& config, int ranks) -> std::string {
    try {
      SliceConfig(config, ranks);
      return "";
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadRequest);
      return std::string(error.what()) + "; " + error.next_step();
    }
  };
  CHECK(why(SplittableConfig(), 4) == "");
  CHECK(why(SplittableConfig(), 5).find("heads of keys and values are 12, which 5 does not divide") !=
        std::string::npos);
  CHECK(why(SplittableConfig(), 5).find("start 2 or 3 or 4 or 6 or 12 ranks") != std::string::npos);
  ModelConfig config = SplittableConfig();
  config.ffn = 26;
  CHECK(why(config, 4).find("columns of feed-forward layers are 26, which 4 does not divide") !=
        std::string::npos);
  config.experts = 4, config.is_sparse = {true, true};
  CHECK(why(config, 2).find("mixture of experts") != std::string::npos);
}

std::string ErrorOf(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

namespace {

// What was told within 20 s.
std::string Soon(std::future<std::string> told) {
  return told.wait_for(std::chrono::seconds(20)) == std::future_status::ready ? told.get() : "nothing";
}

}  // namespace

TEST_CASE("where another rank samples no more, the others are told, and who it is") {
  std::string at_first, at_second, of_answers, of_update;
  const auto errors = ErrorsOfSplitRanks(2, [&](Ranks& ranks, Ranks& sums, const std::string& path) {
    const auto model = TinyModel(1, NumberType::kF32, SplittableConfig());
    std::promise<std::string> failed;
    const auto tell = [&](const Error& error) { failed.set_value(error.what()); };
    {
      SplitRank rank(*model, ranks, sums, path, SplitOptions(), tell);
      ranks.Wait();
      if (!rank.leads()) rank.Stop();
      ranks.Wait();
      if (rank.leads()) {
        of_answers = ErrorOf([&] { AnswersOf(rank.engine()); });
        at_first = Soon(failed.get_future());
      }
    }
    std::promise<std::string> again;
    const auto tell_again = [&](const Error& error) { again.set_value(error.what()); };
    const auto other = TinyModel(1, NumberType::kF32, SplittableConfig());
    SplitRank rank(*other, ranks, sums, path + "2", SplitOptions(), tell_again);
    ranks.Wait();
    if (rank.leads()) rank.link().End("it has ended: no memory");
    if (rank.follower()) {
      at_second = Soon(again.get_future());
      of_update = ErrorOf([&] { rank.follower()->Update([] {}); });
    }
    ranks.Wait();
  });
  CHECK(errors == NoErrors(2));
  CHECK(at_first == "rank 0 lost rank 1: it samples no more");
  CHECK(at_second == "rank 1 lost rank 0: it has ended: no memory");
  CHECK(of_answers.find("lost rank 1") != std::string::npos);
  CHECK(of_update.find("lost rank 0") != std::string::npos);
}

TEST_CASE("a rank whose connection to rank 0 ends without a word has lost it at once") {
  std::string lost;
  const auto errors = ErrorsOfSplitRanks(2, [&](Ranks& ranks, Ranks& sums, const std::string&) {
    const auto model = TinyModel(1, NumberType::kF32, SplittableConfig());
    SplitModel slices(*model, sums);
    if (ranks.Rank() == 0) return;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("no sockets");
    std::promise<std::string> failed;
    SplitFollower follower(slices, FewPages(), Socket(ends[1]), 1,
                           [&](const Error& error) { failed.set_value(error.what()); });
    close(ends[0]);
    lost = Soon(failed.get_future());
  });
  CHECK(errors == NoErrors(2));
  CHECK(lost == "rank 1 lost rank 0: it samples no more");
}

TEST_CASE("steps are packed and unpacked; what is cut off is an error") {
  const std::vector<int32_t> tokens = {4, 5, 6}, pages = {9, 1}, one = {7};
  std::vector<SequenceStep> steps(2);
  steps[0].tokens = tokens, steps[0].position = 40, steps[0].pages = pages;
  steps[1].tokens = one, steps[1].position = 3, steps[1].pages = one;
  const std::vector<uint8_t> bytes = PackSteps(steps);
  const UnpackedSteps unpacked(bytes);
  const auto again = unpacked.Steps();
  REQUIRE(again.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(again[i].position == steps[i].position);
    CHECK(std::ranges::equal(again[i].tokens, steps[i].tokens));
    CHECK(std::ranges::equal(again[i].pages, steps[i].pages));
  }
  for (size_t size = 0; size + 4 <= bytes.size(); size += 4) {
    if (size > 0) CHECK_THROWS_AS(UnpackedSteps(std::span(bytes).first(size)), Error);
  }
}

// ---- A rank as a process of its own, which is killed while all sample ----

constexpr const char* kOneSplitRank = "one rank that samples with others as a process of its own";

TEST_CASE("one rank that samples with others as a process of its own", "[.process]") {
  AsRank([](const Rendezvous& rendezvous, const std::string& folder, const EndRank& end) {
    Rendezvous further = rendezvous;
    further.holds_store = false, further.name = "sums", further.on_lost = nullptr;
    const auto ranks = JoinOverGloo(rendezvous, 600), sums = JoinOverGloo(further, 600);
    const auto model = TinyModel(1, NumberType::kF32, SplittableConfig());
    SplitRank one(*model, *ranks, *sums, folder + "/socket", SplitOptions(), end);
    for (int round = 0;; ++round) {
      if (one.leads()) AnswersOf(one.engine());
      if (round == 1) std::ofstream(folder + "/sums-" + std::to_string(rendezvous.rank)) << "1";
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
}

TEST_CASE("a rank that is killed or hangs while all sample ends the others soon, which name it") {
  struct Case {
    int size, victim, signal;
  };
  for (const Case c : {Case{2, 1, SIGKILL}, {3, 0, SIGKILL}, {3, 2, SIGSTOP}, {2, 0, SIGSTOP}}) {
    for (const Ended& ended : EndsAfter(kOneSplitRank, c.size, c.victim, c.signal)) {
      INFO(c.size << " ranks, rank " << c.victim << (c.signal == SIGKILL ? " killed" : " stopped") << ": "
                  << ended.what << "after " << ended.seconds << " s");
      CHECK(ended.code == 4);
      CHECK(ended.what.find(" lost ") != std::string::npos);
      CHECK(ended.what.find(c.size == 2 ? " lost rank " + std::to_string(c.victim) : "rank ") !=
            std::string::npos);
      CHECK(ended.seconds < 30);
    }
  }
}

}  // namespace
}  // namespace kevin::local
