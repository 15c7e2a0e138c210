#include "policies/local/train/forward.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace kevin::local {
namespace {

at::Tensor Integers(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::kLong).to(device);
}
at::Tensor Floats(const std::vector<float>& values, at::Device device) {
  return at::tensor(values, at::kFloat).to(device);
}

struct Lists {
  std::vector<int64_t> ids, positions, rows, targets, sequence;
  std::vector<float> temperatures, advantage, sampler;
};

void Append(const Sample& sample, int64_t number, Lists* l) {
  const auto start = static_cast<int64_t>(l->ids.size());
  const int64_t first = start + static_cast<int64_t>(sample.prompt.size()) - 1;
  l->ids.insert(l->ids.end(), sample.prompt.begin(), sample.prompt.end());
  l->ids.insert(l->ids.end(), sample.completion.begin(), sample.completion.end() - 1);
  for (int64_t i = start; i < static_cast<int64_t>(l->ids.size()); ++i) l->positions.push_back(i - start);
  const size_t n = sample.completion.size();
  for (size_t i = 0; i < n; ++i) l->rows.push_back(first + static_cast<int64_t>(i));
  l->targets.insert(l->targets.end(), sample.completion.begin(), sample.completion.end());
  l->sequence.insert(l->sequence.end(), n, number);
  l->temperatures.insert(l->temperatures.end(), n, sample.temperature);
  l->advantage.insert(l->advantage.end(), n, sample.advantage);
  l->sampler.insert(l->sampler.end(), sample.sampler_logprobs.begin(), sample.sampler_logprobs.end());
}

}  // namespace

Packed PackSamples(std::span<const Sample* const> samples, at::Device device) {
  Packed packed;
  packed.tokens.starts = {0};
  Lists lists;
  for (const Sample* sample : samples) {
    Append(*sample, packed.sequences++, &lists);
    packed.tokens.starts.push_back(static_cast<int64_t>(lists.ids.size()));
  }
  packed.tokens.ids = Integers(lists.ids, device),
  packed.tokens.positions = Integers(lists.positions, device);
  packed.rows = Integers(lists.rows, device), packed.targets = Integers(lists.targets, device);
  packed.sequence = Integers(lists.sequence, device);
  packed.temperatures = Floats(lists.temperatures, device),
  packed.advantage = Floats(lists.advantage, device);
  const bool all_known = std::all_of(samples.begin(), samples.end(), [](const Sample* s) {
    return s->sampler_logprobs.size() == s->completion.size();
  });
  if (all_known) packed.sampler = Floats(lists.sampler, device);
  return packed;
}

TokenLogprobs CompletionLogprobs(LanguageModel& model, const Packed& packed, int64_t logits_rows,
                                 bool with_entropy) {
  const at::Tensor hidden = model.Hidden(packed.tokens).index_select(0, packed.rows);
  return LogprobsOf(
      hidden, [&model](const at::Tensor& rows) { return model.Logits(rows); }, packed.targets,
      packed.temperatures, logits_rows, with_entropy);
}

}  // namespace kevin::local
