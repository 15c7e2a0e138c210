#include "policies/local/train/train_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "policies/local/files/tensor_list.h"

namespace kevin::local {
namespace {

// Of a GPU: the driver's context, cuBLAS, NCCL, our kernels, and memory between allocations.
constexpr double kUsableShare = 0.94;
constexpr int64_t kReserved = int64_t{2} << 30;

std::string Gb(int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e9); }

NumberType TypeOf(const ModelConfig& config, const TrainOptions& options) {
  if (options.dtype == "float32") return NumberType::kF32;
  return options.dtype == "bfloat16" ? NumberType::kBF16 : config.dtype;
}

double BitsOfWeight(const ExpectedTensor& tensor, const std::string& quantization, int dense) {
  if (tensor.role != ExpectedTensor::Role::kProjection || quantization == "none") return 8.0 * dense;
  if (quantization == "int8") return 8;
  return quantization == "nf4" ? 4 + 32.0 / 64 : 4 + 8.0 / 64 + 32.0 / (64 * 256);
}

// Numbers of the adapters of a projection [out, in].
int64_t AdapterNumbers(const ExpectedTensor& tensor, const LoraOptions& lora) {
  if (tensor.role != ExpectedTensor::Role::kProjection) return 0;
  const std::vector<std::string> targets = TargetsOf(lora);
  const std::string name = tensor.name.substr(0, tensor.name.rfind('.'));
  const bool is_target =
      targets.empty() || std::any_of(targets.begin(), targets.end(),
                                     [&](const std::string& target) { return name.ends_with("." + target); });
  return is_target ? lora.rank * (tensor.shape[0] + tensor.shape[1]) : 0;
}

struct Widths {
  int64_t attention = 0, ffn = 0;  // numbers that a token's layer keeps for its backward pass
};

Widths WidthsOf(const ModelConfig& c) {
  const int64_t h = c.hidden, q = static_cast<int64_t>(c.heads) * c.head_dim,
                kv = static_cast<int64_t>(c.kv_heads) * c.head_dim;
  Widths widths;
  // The layer's input and its norm; the projection, rotated heads, attention's output; the sum after it.
  widths.attention = 2 * h + 2 * (q + 2 * kv) + q + 2 * h;
  // The second norm; gate and up, their product; of experts those of one token, with its copies.
  widths.ffn = h + 3 * static_cast<int64_t>(c.ffn);
  if (c.experts > 0) widths.ffn = h + c.experts_per_token * (3 * static_cast<int64_t>(c.expert_ffn) + 3 * h);
  return widths;
}

class Planner {
 public:
  Planner(const ModelConfig& config, const TrainOptions& options, const TrainPlanRequest& request)
      : config_(config), options_(options), request_(request), bytes_(BytesOf(TypeOf(config, options))) {}

  TrainPlan Make() {
    Count();
    const int64_t layer = (WidthsOf(config_).attention + WidthsOf(config_).ffn) * bytes_;
    const int64_t inputs = static_cast<int64_t>(config_.layers) * config_.hidden * bytes_;
    const int64_t ends = 4 * config_.hidden * bytes_;  // embedding, last norm, and what flows back
    whole_token_ = config_.layers * layer + ends + layer / 2,
    recomputed_token_ = inputs + ends + layer + layer / 2;
    plan_.recompute = options_.recompute || options_.shard;
    plan_.recomputed = options_.micro_tokens * recomputed_token_;
    plan_.logits =
        std::min(options_.logits_tokens, options_.micro_tokens) * config_.vocabulary * (2 * bytes_ + 4);
    Decide();
    Describe();
    return plan_;
  }

 private:
  void Count() {
    double bits = 0;
    int64_t largest = 0;
    for (const ExpectedTensor& tensor : ExpectedTensors(config_)) {
      plan_.parameters += tensor.Count();
      bits += BitsOfWeight(tensor, options_.quantization, bytes_) * static_cast<double>(tensor.Count());
      const int64_t trained = options_.lora.rank > 0 ? AdapterNumbers(tensor, options_.lora) : tensor.Count();
      plan_.trained += trained;
      largest = std::max(largest, trained);
    }
    plan_.weights = static_cast<int64_t>(bits / 8);
    if (request_.has_reference) plan_.reference = plan_.weights;
    const bool adapters = options_.lora.rank > 0;
    if (adapters) plan_.weights += 4 * plan_.trained;
    const int64_t sums = options_.adam.on_cpu ? 0 : 4 * plan_.trained;
    plan_.gradients = plan_.trained * (adapters ? 4 : bytes_) + sums;
    plan_.optimizer = options_.adam.on_cpu ? 0 : 12 * plan_.trained / request_.ranks;
    if (request_.ranks > 1 && !options_.adam.on_cpu)
      plan_.gathering = 4 * std::max(largest, std::min<int64_t>(plan_.trained, int64_t{64} << 20));
    plan_.whole_weights = plan_.weights;
    if (options_.shard) Shard();
    const int64_t token = int64_t{2} * config_.layers * config_.kv_heads * config_.head_dim * bytes_;
    plan_.cache = token * (request_.cache_tokens > 0 ? request_.cache_tokens : request_.context_tokens);
    if (options_.shard && WhyNotSplit(config_, options_.quantization, request_.ranks).reason.empty()) Split();
  }

  // A slice has the norms whole.
  void Split() {
    for (const ExpectedTensor& tensor : ExpectedTensors(config_)) {
      if (!tensor.name.starts_with("model.layers.")) continue;
      const bool is_whole = tensor.role == ExpectedTensor::Role::kNorm;
      plan_.slice += bytes_ * tensor.Count() / (is_whole ? 1 : request_.ranks);
    }
    if (request_.context_tokens == 0) return;
    // The slices are filled before the cache is made, from two layers at a time.
    const int64_t cache = plan_.cache / request_.ranks + request_.judge_bytes;
    plan_.split_sampling = bytes_ * ends_ + plan_.slice + plan_.optimizer + SumsOfEnds() +
                           std::max(cache, 2 * bytes_ * layer_) + plan_.reference;
  }

  int64_t SumsOfEnds() const { return options_.adam.on_cpu ? 0 : 4 * ends_; }

  void Shard() {
    int64_t layers = 0;
    for (const ExpectedTensor& tensor : ExpectedTensors(config_)) {
      if (tensor.name.starts_with("model.layers.")) layers += tensor.Count();
    }
    const int64_t ends = plan_.parameters - layers, layer = layers / config_.layers, ranks = request_.ranks;
    ends_ = ends, layer_ = layer;
    const bool on_cpu = options_.adam.on_cpu;
    plan_.weights = bytes_ * (ends + 2 * layer);
    plan_.gradients =
        ends * (bytes_ + (on_cpu ? 0 : 4)) + layer * (bytes_ + 4) + (on_cpu ? 0 : 4 * layers / ranks);
    whole_ = plan_.whole_weights + plan_.optimizer + SumsOfEnds();
    plan_.gathering = ranks > 1 && !on_cpu ? 4 * std::max<int64_t>(ends / 2, 1) : 0;
  }

  int64_t Sampling() const { return plan_.split ? plan_.split_sampling : plan_.sampling; }
  // Each layer is freed as soon as it is shared out.
  int64_t Loading() const {
    return std::max(plan_.whole_weights + bytes_ * layer_, bytes_ * ends_ + plan_.optimizer) +
           plan_.reference;
  }
  int64_t Fixed() const { return plan_.weights + plan_.reference + plan_.gradients + plan_.optimizer; }

  void Decide() {
    const int64_t usable =
        static_cast<int64_t>(static_cast<double>(request_.device_bytes) * kUsableShare) - kReserved;
    const auto learning = [&](int64_t token) {
      return Fixed() + std::max(options_.micro_tokens * token + plan_.logits, plan_.gathering);
    };
    const bool known = request_.device_bytes > 0;
    if (known && !plan_.recompute && options_.choose_recompute)
      plan_.recompute = learning(whole_token_) > usable;
    const int64_t token = plan_.recompute ? recomputed_token_ : whole_token_;
    plan_.activations = options_.micro_tokens * token;
    plan_.learning = learning(token);
    plan_.sampling = whole_ > 0 || request_.context_tokens > 0
                         ? (whole_ > 0 ? whole_ : Fixed()) + plan_.cache + request_.judge_bytes
                         : 0;
    const bool is_too_large = known && plan_.sampling > usable;
    plan_.split = options_.split_sampler || (options_.choose_split_sampler && is_too_large &&
                                             plan_.split_sampling > 0 && plan_.split_sampling <= usable);
    if (plan_.split) plan_.loading = Loading();
    plan_.fits = !known || std::max({plan_.learning, Sampling(), plan_.loading}) <= usable;
    plan_.tokens_that_fit = known ? std::max<int64_t>(0, (usable - Fixed() - plan_.logits) / token) : 0;
    if (!plan_.fits) Advise(usable);
  }

  // Changes that would make it fit, the mildest first.
  void Advise(int64_t usable) {
    std::vector<std::string> ways;
    if (plan_.learning > usable && plan_.tokens_that_fit >= 1024)
      ways.push_back(fmt::format("--micro-tokens {}", plan_.tokens_that_fit / 1024 * 1024));
    if (!plan_.recompute) ways.push_back("--recompute");
    if (Sampling() > usable && request_.context_tokens > 0) {
      if (request_.judge_bytes > 0) {
        ways.push_back("smaller problems (--size small)");
        ways.push_back("a GPU of its own for judging (--place)");
      }
      ways.push_back("a shorter --context");
      ways.push_back("a GPU of its own for sampling (--place)");
    }
    if (!options_.adam.on_cpu && plan_.learning - plan_.optimizer - 4 * plan_.trained <= usable)
      ways.push_back("--optimizer-on-cpu");
    if (options_.lora.rank == 0) ways.push_back("--lora 32");
    if (options_.lora.rank > 0 && options_.quantization == "none") ways.push_back("--quantization nf4");
    if (options_.lora.rank == 0 && !options_.shard && request_.ranks > 1) ways.push_back("--shard");
    ways.push_back("more ranks, one a GPU: the optimiser's part of each is smaller");
    plan_.next = fmt::format("try {}", fmt::join(ways, ", or "));
  }

  void Describe() {
    plan_.text = fmt::format("memory plan of each of {} rank{}: weights {} GB", request_.ranks,
                             request_.ranks == 1 ? "" : "s", Gb(plan_.weights));
    if (options_.shard)
      plan_.text += fmt::format(" (two layers at a time; {} whole)", Gb(plan_.whole_weights));
    if (plan_.reference > 0) plan_.text += fmt::format(", reference {}", Gb(plan_.reference));
    plan_.text += fmt::format(", gradients {}, optimiser {}{}, activations {} ({} tokens{}), logits {}",
                              Gb(plan_.gradients), Gb(plan_.optimizer),
                              options_.adam.on_cpu ? " (in main memory)" : "", Gb(plan_.activations),
                              options_.micro_tokens, plan_.recompute ? ", recomputed" : "", Gb(plan_.logits));
    plan_.text += fmt::format(": {} while learning", Gb(plan_.learning));
    if (request_.context_tokens > 0)
      plan_.text += fmt::format(
          "; with keys and values of {} tokens ({}){} {} while sampling",
          request_.cache_tokens > 0 ? request_.cache_tokens : request_.context_tokens, Gb(plan_.cache),
          request_.judge_bytes > 0 ? fmt::format(" and the judge ({})", Gb(request_.judge_bytes)) : "",
          Gb(plan_.sampling));
    if (plan_.split_sampling > 0) {
      plan_.text += fmt::format(", or {} with the sampler split over the ranks (a slice of {}, cache {})",
                                Gb(plan_.split_sampling), Gb(plan_.slice), Gb(plan_.cache / request_.ranks));
      if (plan_.split) plan_.text += ", as it is sampled here";
    }
    if (options_.shard && request_.context_tokens == 0)
      plan_.text += fmt::format("; {} while saving", Gb(plan_.sampling));
    if (request_.device_bytes == 0) return;
    plan_.text += fmt::format("; {} GB are available: {}", Gb(request_.device_bytes),
                              plan_.fits ? "it fits" : "it does not fit");
  }

  const ModelConfig& config_;
  const TrainOptions& options_;
  const TrainPlanRequest& request_;
  const int bytes_;
  int64_t whole_ = 0;             // sharded, while all weights are there
  int64_t ends_ = 0, layer_ = 0;  // numbers; sharded
  int64_t whole_token_ = 0, recomputed_token_ = 0;
  TrainPlan plan_;
};

}  // namespace

CannotSplit WhyNotSplit(const ModelConfig& config, const std::string& quantization, int ranks) {
  if (ranks < 2)
    return {"a sampler is split over several ranks, and there is one", "start several ranks (torchrun)"};
  if (quantization != "none")
    return {"quantised weights are not split over the ranks that sample: their blocks run across heads",
            "leave out --quantization or --split-sampler"};
  if (config.experts > 0)
    return {"a mixture of experts is not split over the ranks that sample", "leave out --split-sampler"};
  if (config.kv_heads % ranks == 0 && config.ffn % ranks == 0) return {};
  std::vector<int> possible;
  for (int n = 2; n <= config.kv_heads; ++n) {
    if (config.kv_heads % n == 0 && config.ffn % n == 0) possible.push_back(n);
  }
  const bool heads = config.kv_heads % ranks != 0;
  return {fmt::format("a sampler split over {} ranks: the model's {} are {}, which {} does not divide", ranks,
                      heads ? "heads of keys and values" : "columns of feed-forward layers",
                      heads ? config.kv_heads : config.ffn, ranks),
          possible.empty()
              ? "leave out --split-sampler"
              : fmt::format("start {} ranks, or leave out --split-sampler", fmt::join(possible, " or "))};
}

TrainPlan PlanTraining(const ModelConfig& config, const TrainOptions& options,
                       const TrainPlanRequest& request) {
  return Planner(config, options, request).Make();
}

}  // namespace kevin::local
