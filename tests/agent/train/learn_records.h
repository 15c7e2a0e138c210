#pragma once
// Records as a training run reads them, told by their speed-ups; the units and the first batch that come of them.

#include <algorithm>
#include <string>
#include <vector>

#include "agent/train/batches.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {

// A turn as told by its speed-up; 0: wrong. Tokens say where it came from: {episode mark, turn}.
struct Told {
  double speedup = 0;
  std::string stop = "stop";
  bool tokens = true;
  int rules_version = kRulesVersion;
  SamplingRecord sampling = WholeSampling();
  std::string model = "search 1";
};

// An episode that is not of the usual kind.
struct Episode {
  EpisodeState state = EpisodeState::kDone;
  std::string policy = "p", kind = "cpp", device = "cpu: test", size = "small", rules = "kevin";
};

inline EpisodeEnd EndAs(EpisodeState state) {
  EpisodeEnd end;
  end.state = state;
  return end;
}

class Records {
 public:
  Records()
      : store_(Store::Open(folder_ / "kevin.db", OpenMode::kCreate)), run_(store_.BeginRun(SampleRun())) {}

  std::string Add(const std::string& problem, const std::vector<Told>& turns, const Episode& of = {}) {
    ProblemRecord record = SampleProblem();
    record.id = problem, record.text = "id = " + problem, record.content_hash = ContentHash(record.text);
    EpisodeRecord episode = SampleEpisode(run_);
    episode.problem = problem, episode.problem_hash = record.content_hash, episode.policy = of.policy;
    episode.kind = of.kind, episode.device = of.device, episode.workload.size = of.size;
    episode.workload.rules = of.rules;
    episode.start_source.clear();
    const std::string id = store_.BeginEpisode(episode, record);
    ++mark_;
    for (size_t i = 0; i < turns.size(); ++i) store_.AppendTurn(id, Make(static_cast<int>(i) + 1, turns[i]));
    if (of.state != EpisodeState::kRunning) store_.FinishEpisode(id, EndAs(of.state));
    return id;
  }

  LearnRequest Request(const std::string& scheme = "kevin") const {
    LearnRequest request;
    request.sources = {{(folder_ / "kevin.db").string(), {}}};
    request.scheme = *FindScheme(scheme);
    return request;
  }

 private:
  TurnRecord Make(int number, const Told& told) {
    TurnRecord t = SampleTurn(number, told.speedup);
    const std::string source = std::to_string(mark_) + "/" + std::to_string(number);
    t.evaluation = SampleEvaluation(source, told.speedup);
    t.evaluation.speedup->log_se = 0.001;
    t.evaluation.rules_version = told.rules_version;
    if (told.speedup == 0) {
      t.evaluation.outcome = "wrong", t.evaluation.correct = false, t.evaluation.score = 0;
      t.evaluation.speedup.reset(), t.evaluation.verdict.clear();
    }
    t.reward = t.evaluation.score;
    t.stop_reason = told.stop;
    t.sampling = told.sampling, t.model.name = told.model;
    t.reply = "reply " + source;
    t.prompt_token_ids.clear(), t.token_ids.clear(), t.logprobs.clear();
    if (told.tokens) {
      t.prompt_token_ids = {mark_, number, 9};
      t.token_ids = {mark_, number}, t.logprobs = {-0.5f, -0.25f};
    }
    return t;
  }

  TemporaryFolder folder_;
  Store store_;
  std::string run_;
  int mark_ = 0;
};

inline std::vector<int> Turns(const LearnTurns& turns, const Units& units) {
  std::vector<int> numbers;
  for (const Unit& unit : units.units) {
    for (const size_t i : unit.turns) numbers.push_back(turns.turns()[i].turn);
  }
  return numbers;
}

inline LearnBatch FirstBatch(const Records& records, const Algorithm& algorithm, const ModelText& text = {},
                             const BatchOptions& options = {}) {
  LearnRequest request = records.Request();
  request.scheme = algorithm.scheme;
  const LearnTurns turns(request);
  const Units units = MakeUnits(algorithm, turns, {});
  return BatchMaker(turns, units, algorithm, text, options).Make(1);
}

inline const local::Sample& SampleOf(const LearnBatch& batch, int mark, int turn) {
  const auto found = std::find_if(batch.batch.samples.begin(), batch.batch.samples.end(), [&](const auto& s) {
    return s.completion[0] == mark && s.completion[1] == turn;
  });
  REQUIRE(found != batch.batch.samples.end());
  return *found;
}

}  // namespace kevin
