#pragma once
// The tokens that a model held most likely at each place of an answer, for clients that ask for them. Their
// logits then pass through the host, which slows these answers down.

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "policies/local/generate/engine.h"

namespace kevin::local {

class TopLogprobs {
 public:
  using Likely = std::vector<std::pair<int32_t, float>>;  // id, log-probability by the model; likeliest first

  explicit TopLogprobs(int count) : count_(static_cast<size_t>(count)) {}
  // Changes nothing. This object must outlive it.
  AnswerProcessor Recorder(int answer);
  // Of an answer's token, counted from 0, once it was drawn; it is forgotten here.
  Likely Take(int answer, size_t token);

 private:
  const size_t count_;
  std::mutex mutex_;
  std::map<std::pair<int, size_t>, Likely> seen_;
};

}  // namespace kevin::local
