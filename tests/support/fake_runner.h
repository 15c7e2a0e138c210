#pragma once
// A ModelRunner without a model, for tests and benchmarks. Its logits are a hash of the tokens so far, which
// it stores in pages and reads back through the page tables of each step: an incorrect page table, or a page
// that another sequence wrote to, gives other tokens than TrueAnswer(). Throws std::logic_error when a caller
// breaks the contract of model_runner.h. One thread.

#include <deque>
#include <map>
#include <vector>

#include "policies/local/generate/engine.h"

namespace kevin::local {

class FakeRunner : public ModelRunner {
 public:
  struct Options {
    Shape shape;
    double spread = 2;            // logits are in [-spread, spread]
    bool reads_history = true;    // false: logits of the last token alone, for speed (benchmarks)
    double step_seconds = 0;      // duration of a step, in the background as on a device
    int fail_at_step = -1;        // Submit throws Error(kBroken)
    int not_finite_at_step = -1;  // all logits of that step are NaN
  };
  struct Counts {
    int copies = 0;
  };
  // `counts` may be null; it is written by the thread that uses the runner.
  explicit FakeRunner(Options options, Counts* counts = nullptr);

  const Shape& GetShape() const override { return options_.shape; }
  void Submit(std::span<const SequenceStep> steps) override;
  std::vector<SampledToken> Wait() override;
  void CopyPage(int from, int to) override;

  // The tokens that a runner with these options draws after `prompt`, computed without pages, steps or an
  // engine.
  static std::vector<SampledToken> TrueAnswer(const Options& options, std::vector<int32_t> prompt,
                                              const TokenSampling& sampling, int tokens,
                                              const AnswerProcessor& processor = {});

 private:
  struct Cell {
    int position = -1;
    uint64_t history = 0;  // of this token and all before it, as they were read when it was written
  };
  struct Step {
    std::vector<SampledToken> drawn;
    double ready_s = 0;
  };
  void Check(std::span<const SequenceStep> steps) const;
  std::vector<int32_t> TokensOf(const SequenceStep& step) const;
  SampledToken Run(const SequenceStep& step, std::map<size_t, Cell>* writes);
  size_t SlotOf(const SequenceStep& step, int position) const;

  const Options options_;
  Counts* const counts_;
  std::vector<Cell> cells_;
  std::deque<Step> in_flight_;
  std::map<int64_t, int32_t> drawn_before_;  // in the previous step, by sequence
  int steps_ = 0;
  double free_at_s_ = 0;  // end of the latest step
};

}  // namespace kevin::local
