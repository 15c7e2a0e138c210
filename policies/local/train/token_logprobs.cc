#include "policies/local/train/token_logprobs.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "policies/local/model/gpu_rows.h"

namespace kevin::local {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Head = std::function<at::Tensor(const at::Tensor&)>;

// Temperature applied, float32.
at::Tensor ScaledLogits(const at::Tensor& logits, const at::Tensor& temperatures) {
  return logits.to(at::kFloat).div_(temperatures.unsqueeze(1));
}

struct Forward {
  at::Tensor logprobs, entropy, normalisers;  // [n]; log of the sum of exponentials
};

Forward RunForward(const at::Tensor& hidden, const Head& head, const at::Tensor& targets,
                   const at::Tensor& temperatures, int64_t rows, bool with_entropy) {
  const c10::NoGradGuard no_gradients;
  const int64_t n = hidden.size(0);
  const at::TensorOptions options = hidden.options().dtype(at::kFloat).requires_grad(false);
  Forward out{at::empty({n}, options), at::empty({with_entropy ? n : 0}, options), at::empty({n}, options)};
  for (int64_t at = 0; at < n; at += rows) {
    const int64_t count = std::min(rows, n - at);
    const auto part = [&](const at::Tensor& whole) { return whole.narrow(0, at, count); };
    const at::Tensor raw = head(part(hidden));
    if (HasGpuRows(raw)) {
      const RowLogprobs rows_of = GpuLogprobs(raw, part(targets), part(temperatures), with_entropy);
      part(out.normalisers).copy_(rows_of.normalisers), part(out.logprobs).copy_(rows_of.logprobs);
      if (with_entropy) part(out.entropy).copy_(rows_of.entropies);
      continue;
    }
    at::Tensor logits = ScaledLogits(raw, part(temperatures));
    const at::Tensor normaliser = logits.logsumexp(1);
    part(out.normalisers).copy_(normaliser);
    part(out.logprobs).copy_(logits.gather(1, part(targets).unsqueeze(1)).squeeze(1) - normaliser);
    if (!with_entropy) continue;
    // H = log Z - sum of p z
    const at::Tensor p = (logits - normaliser.unsqueeze(1)).exp_();
    part(out.entropy).copy_(normaliser - p.mul_(logits).sum(1));
  }
  return out;
}

// d loss / d logits, perhaps in place of `logits`, which are at temperature 1. Without entropies the last two
// are empty.
at::Tensor LogitGradients(const at::Tensor& logits, const at::Tensor& temperatures,
                          const at::Tensor& normaliser, const at::Tensor& targets, const at::Tensor& g,
                          const at::Tensor& entropy, const at::Tensor& g_entropy) {
  if (HasGpuRows(logits)) {
    const bool none = entropy.numel() == 0;
    GpuLogprobsBackward(logits, targets, temperatures, {{}, normaliser, none ? at::Tensor() : entropy},
                        g.contiguous(), none ? at::Tensor() : g_entropy.contiguous());
    return logits;
  }
  at::Tensor log_p = ScaledLogits(logits, temperatures).sub_(normaliser.unsqueeze(1));
  at::Tensor p = log_p.exp();
  at::Tensor d = p * -g.unsqueeze(1);
  d.scatter_add_(1, targets.unsqueeze(1), g.unsqueeze(1));
  if (entropy.numel() > 0) {  // dH / dz_j = -p_j (log p_j + H)
    d.sub_(p.mul_(log_p.add_(entropy.unsqueeze(1))).mul_(g_entropy.unsqueeze(1)));
  }
  return d.div_(temperatures.unsqueeze(1)).to(logits.scalar_type());
}

class ChunkedLogprobs : public torch::autograd::Function<ChunkedLogprobs> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& targets,
                               const at::Tensor& temperatures, const Head* head, int64_t rows,
                               bool with_entropy) {
    Forward out = RunForward(hidden, *head, targets, temperatures, rows, with_entropy);
    context->save_for_backward({hidden, targets, temperatures, out.normalisers, out.entropy});
    context->saved_data["rows"] = rows;
    // A copy of the head, which lives as long as the graph.
    context->saved_data["head"] = c10::IValue::make_capsule(c10::make_intrusive<HeadHolder>(*head));
    return {out.logprobs, out.entropy};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &hidden = saved[0], &targets = saved[1], &temperatures = saved[2];
    const at::Tensor &normalisers = saved[3], &entropy = saved[4];
    const int64_t rows = context->saved_data["rows"].toInt(), n = hidden.size(0);
    const auto head = context->saved_data["head"].toCapsule();
    const Head& run = static_cast<const HeadHolder*>(head.get())->head;
    at::Tensor to_hidden = at::empty_like(hidden);
    const bool with_entropy = entropy.numel() > 0;
    for (int64_t at = 0; at < n; at += rows) {
      const int64_t count = std::min(rows, n - at);
      const auto part = [&](const at::Tensor& whole) { return whole.narrow(0, at, count); };
      at::Tensor input = part(hidden).detach().requires_grad_(true);
      at::Tensor logits;
      {
        const at::AutoGradMode gradients_on(true);
        logits = run(input);
      }
      const at::Tensor d = LogitGradients(
          logits.detach(), part(temperatures), part(normalisers), part(targets), part(gradients[0]),
          with_entropy ? part(entropy) : entropy, with_entropy ? part(gradients[1]) : entropy);
      torch::autograd::backward({logits}, {d});
      part(to_hidden).copy_(input.grad());
    }
    return {to_hidden, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  struct HeadHolder : torch::CustomClassHolder {
    explicit HeadHolder(Head h) : head(std::move(h)) {}
    Head head;
  };
};

}  // namespace

TokenLogprobs LogprobsOf(const at::Tensor& hidden, const Head& head, const at::Tensor& targets,
                         const at::Tensor& temperatures, int64_t rows, bool with_entropy) {
  if (!at::GradMode::is_enabled() || !hidden.requires_grad()) {
    Forward out = RunForward(hidden, head, targets, temperatures, rows, with_entropy);
    return {out.logprobs, with_entropy ? out.entropy : at::Tensor()};
  }
  variable_list out = ChunkedLogprobs::apply(hidden, targets, temperatures, &head, rows, with_entropy);
  return {out[0], with_entropy ? out[1] : at::Tensor()};
}

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
