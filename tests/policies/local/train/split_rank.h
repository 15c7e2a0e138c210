#pragma once
// One of several ranks that sample a tiny model together, as SplitSampling puts its parts together, with the engine itself
// in place of the server.

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/local/generate/engine.h"
#include "policies/local/train/split_sampler.h"
#include "policies/local/train/trainer.h"
#include "tests/policies/local/train/trainer_fixture.h"

namespace kevin::local {

// As kevin-trainer does: sockets of ranks that are gone are written to.
inline const auto kWithoutPipeSignal = signal(SIGPIPE, SIG_IGN);

// Divided by 2, 3 and 4 ranks; twice as many heads of queries as of keys.
inline ModelConfig SplittableConfig(bool qk_norm = false) {
  ModelConfig config = TinyConfig();
  config.hidden = 16, config.heads = 24, config.kv_heads = 12, config.head_dim = 4, config.ffn = 24;
  config.qk_norm = qk_norm, config.qkv_bias = !qk_norm;
  config.family = qk_norm ? ModelFamily::kQwen3 : ModelFamily::kQwen2;
  return config;
}

inline TrainOptions SplitOptions() {
  TrainOptions options = Options();
  options.shard = options.split_sampler = true;
  return options;
}

inline TorchRunnerOptions FewPages() {
  TorchRunnerOptions options;
  options.pages = 60, options.page_tokens = 4;
  return options;
}

using Answers = std::map<std::pair<int, int>, std::vector<SampledToken>>;  // by request and answer

// What comes of three requests at once: with filters, with several answers that share half a page, and with a processor
// that forbids token 4.
inline Answers AnswersOf(Engine& engine) {
  std::vector<GenerationRequest> requests(3);
  for (GenerationRequest& request : requests) request.max_tokens = 12;
  for (int i = 0; i < 22; ++i) requests[1].prompt.push_back((i * i + 3) % kVocabulary);
  requests[0].prompt = {1, 2, 3}, requests[0].sampling = {0.9f, 0, 1, 0, 5};
  requests[1].answers = 3, requests[1].sampling = {1, 0, 0.9f, 0, 7};
  requests[2].prompt = requests[1].prompt, requests[2].sampling.temperature = 0;
  requests[2].prompt.push_back(7);
  requests[2].make_processor = [](int) {
    return [](std::span<const int32_t>, std::span<float> logits) { logits[4] = -1e9f; };
  };
  struct Shared {  // with the engine's thread, which may still be in the last call
    Answers answers;
    int left = 5;
    std::string error;
    std::promise<void> done;
  };
  const auto shared = std::make_shared<Shared>();
  for (size_t r = 0; r < requests.size(); ++r) {
    engine.Submit(requests[r], [shared, r](const AnswerPiece& piece) {
      std::vector<SampledToken>& all = shared->answers[{static_cast<int>(r), piece.answer}];
      all.insert(all.end(), piece.tokens.begin(), piece.tokens.end());
      if (!piece.error.empty()) shared->error = piece.error;
      if (piece.finish && --shared->left == 0) shared->done.set_value();
    });
  }
  shared->done.get_future().wait();
  if (!shared->error.empty()) throw std::runtime_error(shared->error);
  return shared->answers;
}

// How `a` and `b` differ by more than `tolerance`; empty: not.
inline std::string Difference(const Answers& a, const Answers& b, double tolerance) {
  if (a.size() != 5 || b.size() != 5) return "not all answers";
  for (const auto& [key, tokens] : a) {
    const std::vector<SampledToken>& others = b.at(key);
    if (tokens.size() != others.size() || tokens.empty()) return "other lengths";
    for (size_t i = 0; i < tokens.size(); ++i) {
      const double gap = std::max(std::abs(tokens[i].logprob - others[i].logprob),
                                  std::abs(tokens[i].model_logprob - others[i].model_logprob));
      if (tokens[i].id != others[i].id || !(gap <= tolerance))
        return "request " + std::to_string(key.first) + ", token " + std::to_string(i) + ": " +
               std::to_string(tokens[i].id) + " and " + std::to_string(others[i].id) + ", apart " +
               std::to_string(gap);
    }
  }
  return "";
}

struct BeforeAndAfter {
  Answers before, after;
};

// Of one rank, with an update between them.
inline BeforeAndAfter DrawnAlone(LanguageModel& model) {
  const auto alone = OneRank();
  Trainer trainer(Options(), model, nullptr, *alone);
  Engine engine(std::make_unique<TorchRunner>(model, FewPages()));
  BeforeAndAfter drawn;
  drawn.before = AnswersOf(engine);
  engine.WhilePaused([&] { trainer.Step(MakeBatch(1)); });
  drawn.after = AnswersOf(engine);
  return drawn;
}

class SplitRank {
 public:
  // `ranks` train, `sums` sample; `path`: of the socket. `model` outlives this.
  SplitRank(
      LanguageModel& model, Ranks& ranks, Ranks& sums, const std::string& path,
      const TrainOptions& options = SplitOptions(), OnFailure on_failure = [](const Error&) {})
      : trainer_(options, model, nullptr, ranks), slices_(model, sums) {
    Refresh();
    if (ranks.Rank() == 0) link_ = std::make_shared<SplitLink>(path);
    ranks.Wait();
    if (link_) {
      link_->Accept(ranks.Size(), 20);
      engine_.emplace(std::make_unique<SplitLeader>(slices_, FewPages(), link_, std::move(on_failure)));
    } else {
      follower_.emplace(slices_, FewPages(), ConnectToFirst(path, ranks.Rank()), ranks.Rank(),
                        std::move(on_failure));
    }
  }

  // One update on all ranks. `within`: called while they learn.
  void Learn(
      int64_t step, const std::function<void()>& within = [] {}) {
    const auto update = [&] {
      within();
      trainer_.Step(MakeBatch(step));
    };
    if (follower_) {
      follower_->Update([&] { update(), Refresh(); });
    } else {
      engine_->WhilePaused([&] { update(), Refresh(); }, true);
    }
  }

  Trainer& trainer() { return trainer_; }
  LanguageModel& slice() { return slices_.Slice(); }
  Engine& engine() { return *engine_; }
  bool leads() const { return engine_.has_value(); }
  void Stop() { engine_.reset(), follower_.reset(); }
  std::optional<SplitFollower>& follower() { return follower_; }
  SplitLink& link() { return *link_; }

 private:
  void Refresh() {
    slices_.Refresh([this](const auto& visit) { trainer_.VisitLayers(visit); });
  }

  Trainer trainer_;
  SplitModel slices_;
  std::shared_ptr<SplitLink> link_;
  std::optional<Engine> engine_;
  std::optional<SplitFollower> follower_;
};

}  // namespace kevin::local
