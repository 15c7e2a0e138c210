// Learning curves of a tiny network with random weights on a toy set of problems, with rewards from a formula
// and GRPO in the Kevin recipe. Prints three curves that start from the same weights and differ in the credit
// of a turn:
//
//   per turn     Kevin's discounted return (gamma 0.4), compared with returns of the same turn number
//   all turns    the same, compared with returns of all turns, as in Kevin's paper: the last turn has no
//                later rewards and so starts below the mean
//   trajectory   the sum of the whole episode for each of its turns
//
//   learning_curve [--steps N] [--seeds S,S] [--learning-rate X] [--entropy X] [--out DIR] [--check]
//
// With --out each curve is a training run in a folder of its own, DIR/per-turn-S, DIR/all-turns-S and
// DIR/per-trajectory-S, for `kevin report --train`; the same command goes on where it was killed, bit for bit, from a
// checkpoint every 40 steps. Results are in tests/bench/RESULTS.md. A line every 20 steps, flushed.
//
// An episode has four turns on one problem. In turn t the policy answers with two of eight tokens. Each token
// that problem and turn expect (found only by trying) earns half a point: the maximum is one point a turn,
// chance gives 1/8. With --check the exit code is 0 if per-turn credit reached 90 % and ended ahead of
// trajectory credit with every seed.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "agent/attribution/attribution.h"
#include "env/error.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/trainer.h"
#include "tests/policies/local/train/tiny_model.h"

namespace kevin::local {
namespace {

constexpr int kProblems = 4, kTurns = 4, kReply = 2, kAnswers = 8, kEpisodes = 16;
constexpr int kVocabulary = kAnswers + kProblems + kTurns;

int Wanted(int problem, int turn, int place) {
  return static_cast<int>((static_cast<unsigned>(problem * 31 + turn * 7 + place * 3 + 5) * 2654435761u) >>
                          29);
}

struct Turn {
  int problem = 0, episode = 0, turn = 0;
  Sample sample;
  double score = 0;
};

// One 64-bit number for each token that is drawn.
constexpr uint64_t kDrawsOfStep = static_cast<uint64_t>(kProblems) * kEpisodes * kTurns * kReply;

// All turns of all episodes answer at once: a toy's turns do not see each other's outcome.
std::vector<Turn> Play(LanguageModel& model, std::mt19937_64& random) {
  std::vector<Turn> turns;
  for (int p = 0; p < kProblems; ++p) {
    for (int e = 0; e < kEpisodes; ++e) {
      for (int t = 0; t < kTurns; ++t) {
        turns.push_back({p, e, t, {}, 0});
        turns.back().sample.prompt = {kAnswers + p, kAnswers + kProblems + t};
      }
    }
  }
  const c10::NoGradGuard no_gradients;
  for (int place = 0; place < kReply; ++place) {
    std::vector<int64_t> ids, positions, last;
    PackedTokens tokens;
    tokens.starts = {0};
    for (const Turn& turn : turns) {
      std::vector<int32_t> text = turn.sample.prompt;
      text.insert(text.end(), turn.sample.completion.begin(), turn.sample.completion.end());
      for (size_t i = 0; i < text.size(); ++i)
        ids.push_back(text[i]), positions.push_back(static_cast<int64_t>(i));
      tokens.starts.push_back(static_cast<int64_t>(ids.size()));
      last.push_back(tokens.starts.back() - 1);
    }
    tokens.ids = at::tensor(ids, at::kLong), tokens.positions = at::tensor(positions, at::kLong);
    const at::Tensor rows = model.Hidden(tokens).index_select(0, at::tensor(last, at::kLong));
    const at::Tensor logprobs = at::log_softmax(model.Logits(rows), 1).contiguous();
    const float* table = logprobs.const_data_ptr<float>();
    for (size_t i = 0; i < turns.size(); ++i) {
      const float* row = table + i * kVocabulary;
      double left = std::ldexp(static_cast<double>(random() >> 11), -53);
      int token = 0;
      while (token + 1 < kVocabulary && (left -= std::exp(static_cast<double>(row[token]))) > 0) ++token;
      turns[i].sample.completion.push_back(token);
      turns[i].sample.sampler_logprobs.push_back(row[token]);
      if (token == Wanted(turns[i].problem, turns[i].turn, place)) turns[i].score += 1.0 / kReply;
    }
  }
  return turns;
}

enum class Credit { kPerTurn, kAllTurns, kTrajectory };

const char* NameOf(Credit credit) {
  return credit == Credit::kPerTurn    ? "per-turn"
         : credit == Credit::kAllTurns ? "all-turns"
                                       : "per-trajectory";
}

// Advantages by agent/attribution, problem by problem.
void AttributeTurns(std::vector<Turn>& turns, Credit credit) {
  const size_t group = static_cast<size_t>(kEpisodes) * kTurns;
  for (size_t start = 0; start < turns.size(); start += group) {
    // One list a turn number, or one for all.
    std::vector<std::vector<Scored>> returns(kTurns);
    std::vector<std::vector<size_t>> members(kTurns);
    for (size_t e = start; e < start + group; e += kTurns) {
      std::vector<Scored> scores;
      for (size_t t = e; t < e + kTurns; ++t) scores.push_back({turns[t].score, 0});
      const bool whole = credit == Credit::kTrajectory;
      const std::vector<Scored> own = Returns({ReturnRule::Kind::kSum, whole ? 1.0 : 0.4}, scores);
      for (size_t t = 0; t < kTurns; ++t) {
        const size_t list = credit == Credit::kPerTurn ? t : 0;
        returns[list].push_back(whole ? own[0] : own[t]), members[list].push_back(e + t);
      }
    }
    for (size_t list = 0; list < kTurns; ++list) {
      const GroupResult result = Advantages({AdvantageRule::Kind::kGroup, 2}, returns[list]);
      for (size_t i = 0; i < members[list].size(); ++i)
        turns[members[list][i]].sample.advantage = static_cast<float>(result.advantages[i]);
    }
  }
}

constexpr int kCheckpointSteps = 40, kPrintedSteps = 20;

struct Settings {
  int steps = 240;
  std::vector<uint64_t> seeds = {1};
  double learning_rate = 1e-3, entropy_weight = 0.1;
  std::string output;  // empty: curves are not kept
};

std::string FolderOf(Credit credit, const Settings& settings, uint64_t seed) {
  if (settings.output.empty()) return "";
  return (std::filesystem::path(settings.output) / (NameOf(credit) + ("-" + std::to_string(seed)))).string();
}

// The figures of a run's steps, as `kevin report --train` reads them.
class Metrics {
 public:
  // Keeps the steps up to `done` of an earlier start, and puts their rewards into `curve`.
  Metrics(const std::string& folder, int steps, int64_t done, std::vector<double>* curve) : steps_(steps) {
    if (folder.empty()) return;
    const std::filesystem::path path = std::filesystem::path(folder) / "metrics.jsonl";
    std::string kept;
    std::ifstream before(path);
    for (std::string line; static_cast<int64_t>(curve->size()) < done && std::getline(before, line);) {
      curve->push_back(nlohmann::json::parse(line).at("reward").get<double>());
      kept += line + "\n";
    }
    before.close();
    if (static_cast<int64_t>(curve->size()) < done)
      throw Error(ExitCode::kBadRequest, path.string() + " lacks steps of its checkpoint",
                  "remove " + folder);
    file_.exceptions(std::ios::failbit);
    file_.open(path);
    file_ << kept << std::flush;
  }

  void Add(double reward, const StepFigures& figures) {
    if (!file_.is_open()) return;
    nlohmann::json event = ToJson(figures);
    event.update({{"event", "step"}, {"steps", steps_}, {"reward", reward}});
    file_ << event << std::endl;
  }

 private:
  const int steps_;
  std::ofstream file_;
};

std::vector<double> Learn(Credit credit, const Settings& settings, uint64_t seed) {
  const int steps = settings.steps;
  const std::string folder = FolderOf(credit, settings, seed);
  if (!folder.empty()) std::filesystem::create_directories(folder);
  TrainOptions options;
  options.output = folder, options.keep = 1;
  options.loss.constant_tokens = kReply;
  options.loss.correction = Correction::kTruncate;
  options.loss.entropy_weight = settings.entropy_weight;
  options.schedule = {settings.learning_rate, Decay::kConstant, 0.03, 0};
  options.adam.max_grad_norm = 0.5;
  options.seed = seed, options.steps = steps;
  ModelOptions model_options;
  model_options.dtype = NumberType::kF32, model_options.trainable = true;
  const auto model = MakeRandomLanguageModel(TinyConfig(kVocabulary, 32), model_options, seed);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  const std::string checkpoint = folder.empty() ? "" : NewestCheckpoint(folder);
  if (!checkpoint.empty()) trainer.Resume(checkpoint);
  std::mt19937_64 random(seed);
  random.discard(static_cast<uint64_t>(trainer.StepsDone()) * kDrawsOfStep);
  std::vector<double> curve;
  Metrics metrics(folder, steps, trainer.StepsDone(), &curve);
  for (int step = static_cast<int>(trainer.StepsDone()) + 1; step <= steps; ++step) {
    std::vector<Turn> turns = Play(*model, random);
    double score = 0;
    for (const Turn& turn : turns) score += turn.score / static_cast<double>(turns.size());
    curve.push_back(score);
    AttributeTurns(turns, credit);
    Batch batch;
    batch.step = step;
    for (Turn& turn : turns) batch.samples.push_back(std::move(turn.sample));
    metrics.Add(score, trainer.Step(batch));
    if (!folder.empty() && (step % kCheckpointSteps == 0 || step == steps)) trainer.Save();
    if (step % kPrintedSteps != 0) continue;
    std::printf("seed %llu, %s, step %d/%d: %.3f\n", static_cast<unsigned long long>(seed), NameOf(credit),
                step, steps, score);
    std::fflush(stdout);
  }
  return curve;
}

int FirstAbove(const std::vector<double>& curve, double level) {
  for (size_t i = 0; i < curve.size(); ++i) {
    if (curve[i] > level) return static_cast<int>(i) + 1;
  }
  return -1;
}

std::vector<uint64_t> SeedsOf(const std::string& text) {
  std::vector<uint64_t> seeds;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    seeds.push_back(std::strtoull(text.substr(begin, end - begin).c_str(), nullptr, 10));
    begin = end + 1;
  }
  return seeds;
}

// The three curves of a seed; whether they are as --check wants them.
bool ShowSeed(const Settings& settings, uint64_t seed) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<double> turn = Learn(Credit::kPerTurn, settings, seed),
                            all = Learn(Credit::kAllTurns, settings, seed),
                            whole = Learn(Credit::kTrajectory, settings, seed);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("share of the reachable return, seed %llu\nstep  per turn  all turns  trajectory\n",
              static_cast<unsigned long long>(seed));
  const auto line = [&](int s) {
    const auto i = static_cast<size_t>(s);
    std::printf("%4d  %8.3f  %9.3f  %10.3f\n", s + 1, turn[i], all[i], whole[i]);
  };
  for (int s = 0; s + 1 < settings.steps; s += 10) line(s);
  line(settings.steps - 1);
  std::printf("above 0.9 at step %d, %d, %d (-1: never); %.0f s\n", FirstAbove(turn, 0.9),
              FirstAbove(all, 0.9), FirstAbove(whole, 0.9), seconds);
  std::fflush(stdout);
  return FirstAbove(turn, 0.9) > 0 && turn.back() > whole.back() + 0.05;
}

int Main(int argc, char** argv) {
  at::set_num_threads(1);  // with such small products threads only wait for each other
  Settings settings;
  bool check = false, good = true;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--check") check = true;
    if (i + 1 >= argc) continue;
    if (name == "--steps") settings.steps = std::atoi(argv[i + 1]);
    if (name == "--seed" || name == "--seeds") settings.seeds = SeedsOf(argv[i + 1]);
    if (name == "--learning-rate") settings.learning_rate = std::atof(argv[i + 1]);
    if (name == "--out") settings.output = argv[i + 1];
    if (name == "--entropy") settings.entropy_weight = std::atof(argv[i + 1]);
  }
  try {
    for (const uint64_t seed : settings.seeds) good &= ShowSeed(settings, seed);
  } catch (const Error& error) {
    std::fprintf(stderr, "learning_curve: %s\n  %s\n", error.what(), error.next_step().c_str());
    return static_cast<int>(error.code());
  }
  return check && !good ? 1 : 0;
}

}  // namespace
}  // namespace kevin::local

int main(int argc, char** argv) { return kevin::local::Main(argc, argv); }
