#pragma once
// START HERE for sampling with all ranks together, where the weights and the cache fit no single GPU (TrainOptions::
// split_sampler). Each rank has a slice of the model (split_model.h). Rank 0 has the engine, the server and the only
// SplitLeader; it tells the others each step (split_link.h), all run it on their slices, and sum over a group of ranks that
// nothing else uses. Rank 0 alone draws, so that filters, processors and seeds work as with one rank; the token drawn is
// sent with the next step.
//
// Learning and sampling take turns: rank 0's engine gives its cache up, the other ranks theirs, and then all ranks train;
// see SplitFollower::Update. Between two steps of sampling the threads that train may wait for each other as long as they
// like: sampling has its own threads, group and stream, and needs none of them.
//
// Errors are for good: a rank that fails while it samples calls `on_failure`, which is to end the process. The others
// notice by the end of the connection or of an operation, at once, or by rank_watch.h.

#include <c10/core/Stream.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "env/error.h"
#include "policies/local/model/torch_runner.h"
#include "policies/local/train/split_link.h"
#include "policies/local/train/split_model.h"

namespace kevin::local {

// Called at most once, by the thread that samples.
using OnFailure = std::function<void(const Error&)>;

// A runner over the slice of one rank, on a stream of its own: kernels of the thread that trains, which may wait for other
// ranks, do not hold it up.
class SliceRunner {
 public:
  SliceRunner(SplitModel& model, const TorchRunnerOptions& options);

  const ModelRunner::Shape& GetShape() const { return runner_.GetShape(); }
  std::vector<SampledToken> Run(std::span<const SequenceStep> steps);
  void CopyPage(int from, int to);
  // The cache and the slice give their memory up, after all kernels.
  void GiveUp();
  void WeightsChanged();

 private:
  template <typename Work>
  auto OnStream(const Work& work);

  SplitModel& model_;
  TorchRunner runner_;
  std::optional<c10::Stream> stream_;  // of a GPU
};

class SplitLeader : public ModelRunner {
 public:
  SplitLeader(SplitModel& model, const TorchRunnerOptions& options, std::shared_ptr<SplitLink> link,
              OnFailure on_failure);
  ~SplitLeader() override;

  const Shape& GetShape() const override { return runner_.GetShape(); }
  // These throw Error where this rank or another one fails, after on_failure.
  void Submit(std::span<const SequenceStep> steps) override;
  std::vector<SampledToken> Wait() override;
  void CopyPage(int from, int to) override;
  void GiveUpCache() override;
  void WeightsChanged() override;

 private:
  template <typename Work>
  void Guarded(const Work& work);

  SliceRunner runner_;
  const std::shared_ptr<SplitLink> link_;
  const OnFailure on_failure_;
  std::vector<SampledToken> drawn_;            // of the step in flight
  std::unordered_map<int64_t, int32_t> last_;  // token of each sequence in the last step
};

class SplitFollower {
 public:
  // `socket`: to rank 0. Runs its steps from now on, in a thread of its own.
  SplitFollower(SplitModel& model, const TorchRunnerOptions& options, Socket socket, int rank,
                OnFailure on_failure);
  ~SplitFollower();
  SplitFollower(const SplitFollower&) = delete;
  SplitFollower& operator=(const SplitFollower&) = delete;

  // Waits until rank 0 has paused its engine for the same update, runs `update`, and lets sampling go on. Throws
  // Error(kBroken) where rank 0 samples no more, and what `update` throws.
  void Update(const std::function<void()>& update);

 private:
  void Follow();
  void Do(const nlohmann::json& command);
  void Fail(const Error& error);

  SliceRunner runner_;
  const Socket socket_;
  const int rank_;
  const OnFailure on_failure_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool is_paused_ = false, is_ending_ = false, has_ended_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace kevin::local
