#include "policies/local/train/train_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "policies/local/files/tensor_list.h"
#include "policies/local/train/plan_counts.h"
#include "policies/local/train/sampling_options.h"

namespace kevin::local {
namespace {

// Of a GPU: the driver's context, cuBLAS, NCCL, our kernels, and memory between allocations.
constexpr double kUsableShare = 0.94;
constexpr int64_t kReserved = int64_t{2} << 30;

std::string Gb(int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e9); }

// Bytes of activations a token: those that all layers keep, and those of one layer in its backward pass, when the
// logits are freed.
struct OfToken {
  int64_t all_layers = 0, one_layer = 0;
  int64_t Total() const { return all_layers + one_layer; }
};

class Planner {
 public:
  Planner(const ModelConfig& config, const TrainOptions& options, const TrainPlanRequest& request)
      : config_(config), options_(options), request_(request), bytes_(BytesOf(TypeOf(config, options))) {}

  TrainPlan Make() {
    Count();
    const int64_t layer = (WidthsOf(config_).attention + WidthsOf(config_).ffn) * bytes_;
    const int64_t inputs = static_cast<int64_t>(config_.layers) * config_.hidden * bytes_;
    const int64_t ends = 4 * config_.hidden * bytes_;  // embedding, last norm, and what flows back
    kept_ = {config_.layers * layer + ends, layer / 2};
    recomputed_ = {inputs + ends, layer + layer / 2};
    plan_.recompute = options_.recompute || options_.shard;
    plan_.recomputed = pass_ * recomputed_.Total();
    plan_.logits = std::min(options_.logits_tokens, pass_) * config_.vocabulary * (2 * bytes_ + 4);
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
    sums_ = 4 * plan_.trained;
    plan_.gradients = plan_.trained * (adapters ? 4 : bytes_) + Here(sums_);
    plan_.optimizer = 12 * plan_.trained / request_.ranks;
    if (request_.ranks > 1)
      gathering_ = 4 * std::max(largest, std::min<int64_t>(plan_.trained, int64_t{64} << 20));
    plan_.whole_weights = plan_.weights;
    if (options_.shard) Shard();
    plan_.gathering = Here(gathering_);
    if (options_.from_base) plan_.base = plan_.optimizer;
    plan_.main_memory = request_.trains_on_cpu ? 0 : plan_.base;
    if (moves_) plan_.main_memory += plan_.optimizer + sums_ + gathering_;
    const int64_t token = int64_t{2} * config_.layers * config_.kv_heads * config_.head_dim * bytes_;
    plan_.cache = token * (request_.cache_tokens > 0 ? request_.cache_tokens : request_.context_tokens);
    plan_.copy_cache = token * CopyTokens();
    plan_.there = copies_.there * Copy() + (copies_.there > 0 ? copies_.judge_bytes : 0);
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
    plan_.split_sampling = bytes_ * ends_ + plan_.slice + Here(plan_.optimizer + 4 * ends_) +
                           std::max(cache, 2 * bytes_ * layer_) + plan_.reference;
  }

  int64_t CopyTokens() const {
    return copies_.cache_tokens > 0 ? copies_.cache_tokens : copies_.context_tokens;
  }
  int64_t Copy() const { return plan_.whole_weights + plan_.copy_cache; }
  // The part on the device that trains, of bytes that optimizer_on_cpu moves.
  int64_t Here(int64_t bytes) const { return moves_ ? 0 : bytes; }

  void Shard() {
    int64_t layers = 0;
    for (const ExpectedTensor& tensor : ExpectedTensors(config_)) {
      if (tensor.name.starts_with("model.layers.")) layers += tensor.Count();
    }
    const int64_t ends = plan_.parameters - layers, layer = layers / config_.layers, ranks = request_.ranks;
    ends_ = ends, layer_ = layer;
    plan_.weights = bytes_ * (ends + 2 * layer);
    sums_ = 4 * ends + 4 * layers / ranks;
    // Of one layer: autograd's, and those on the way in float32, with this rank's part of their sum.
    plan_.gradients = ends * bytes_ + layer * (bytes_ + 4) + 4 * layer / ranks + Here(sums_);
    between_ = Here(plan_.optimizer + 4 * ends) + plan_.reference + Base();
    between_ += IsWhole() ? plan_.whole_weights : bytes_ * ends;
    gathering_ = ranks > 1 ? 4 * std::max<int64_t>(ends / 2, 1) : 0;
  }

  const OfToken& Token() const { return plan_.recompute ? recomputed_ : kept_; }
  int64_t Sampling() const { return plan_.split ? plan_.split_sampling : plan_.sampling; }
  // Each layer is freed as soon as it is shared out.
  int64_t Loading() const {
    return std::max(plan_.whole_weights + bytes_ * layer_, bytes_ * ends_ + Here(plan_.optimizer)) +
           plan_.reference;
  }
  int64_t Fixed() const {
    return plan_.weights + plan_.reference + plan_.gradients + Here(plan_.optimizer) + Base();
  }
  int64_t Base() const { return request_.trains_on_cpu ? plan_.base : 0; }  // on the device that trains
  int64_t JudgedMeanwhile() const { return request_.judges_meanwhile ? request_.judge_bytes : 0; }
  bool IsSampledHere() const { return request_.context_tokens > 0 || copies_.here > 0; }
  // Sharded weights are whole while they are sampled or copied.
  bool IsWhole() const { return options_.shard && (IsSampledHere() || copies_.there > 0); }
  const char* BetweenSteps() const {
    return IsSampledHere() ? "while sampling" : request_.judge_bytes > 0 ? "while judging" : "between steps";
  }

  static int64_t Usable(int64_t bytes) {
    return static_cast<int64_t>(static_cast<double>(bytes) * kUsableShare) - kReserved;
  }

  void Decide() {
    const int64_t usable = Usable(request_.device_bytes), copies = copies_.here * Copy();
    const int64_t others = copies + JudgedMeanwhile();  // beside what learns
    const auto learning = [&](const OfToken& token) {
      const int64_t pass = pass_ * token.all_layers + std::max(pass_ * token.one_layer, plan_.logits);
      return Fixed() + others + std::max(pass, plan_.gathering);
    };
    const bool known = request_.device_bytes > 0;
    if (known && !plan_.recompute && options_.choose_recompute) plan_.recompute = learning(kept_) > usable;
    const OfToken& token = Token();
    plan_.activations = pass_ * token.Total();
    plan_.learning = learning(token);
    plan_.transient = plan_.learning - others - Fixed() + plan_.gradients - Here(sums_);
    plan_.sampling = IsWhole() || IsSampledHere() || request_.judge_bytes > 0
                         ? (options_.shard ? between_ : Fixed()) + copies + plan_.cache + request_.judge_bytes
                         : 0;
    const bool is_too_large = known && plan_.sampling > usable;
    plan_.split = options_.split_sampler || (options_.choose_split_sampler && is_too_large &&
                                             plan_.split_sampling > 0 && plan_.split_sampling <= usable);
    if (options_.shard) plan_.loading = Loading();
    plan_.needed = std::max({plan_.learning, Sampling(), plan_.loading});
    fits_device_ = !known || plan_.needed <= usable;
    if (!fits_device_)
      plan_.misfit = Misfit(plan_.needed,
                            plan_.needed == plan_.learning  ? "while learning"
                            : plan_.needed == plan_.loading ? "while loading"
                                                            : BetweenSteps(),
                            request_.device_bytes);
    DecideMainMemory();
    plan_.fits_here = fits_device_ && fits_main_;
    plan_.may_be_tried = (!known || plan_.needed <= request_.device_bytes) &&
                         (request_.main_bytes == 0 || plan_.main_needed <= request_.main_bytes);
    fits_there_ = copies_.there_bytes == 0 || plan_.there <= Usable(copies_.there_bytes);
    plan_.fits = plan_.fits_here && fits_there_;
    const int64_t room = usable - Fixed() - others;
    const int64_t fit = std::min(room / token.Total(), (room - plan_.logits) / token.all_layers);
    plan_.tokens_that_fit = known ? std::max<int64_t>(0, fit) : 0;
    std::vector<std::string> ways;
    if (!fits_there_) AdviseThere(&ways);
    if (!fits_device_) Advise(usable, &ways);
    if (!fits_main_) AdviseMainMemory(usable, &ways);
    if (!plan_.fits) plan_.next = fmt::format("try {}", fmt::join(ways, ", or "));
  }

  void DecideMainMemory() {
    if (options_.shard && (plan_.split || !IsWhole()) && !request_.trains_on_cpu)
      saved_ = plan_.whole_weights;
    if (plan_.main_memory + saved_ > 0)
      plan_.main_needed =
          request_.ranks_here * plan_.main_memory + saved_ + (copies_.device == "cpu" ? plan_.there : 0);
    fits_main_ = plan_.main_needed == 0 || FitsMain(plan_.main_needed);
    if (fits_device_ && !fits_main_)
      plan_.misfit = Misfit(plan_.main_needed, "in main memory", request_.main_bytes);
  }

  static std::string Misfit(int64_t needed, const char* when, int64_t available) {
    return fmt::format("{} GB {}, and of {} GB available {} may be used", Gb(needed), when, Gb(available),
                       Gb(std::max<int64_t>(Usable(available), 0)));
  }

  // Changes that would make it fit, the mildest first.
  void AdviseThere(std::vector<std::string>* ways) const {
    if (copies_.judge_bytes > 0) AdviseJudge(ways);
    ways->push_back(copies_.cache_tokens > 0 ? "fewer --sampler-tokens" : "a shorter --context");
    if (copies_.there > 1) ways->push_back("more GPUs for samplers (--place)");
    if (options_.lora.rank > 0 && options_.quantization == "none") ways->push_back("--quantization nf4");
    ways->push_back(
        fmt::format("no second copy on {}: the weights in training are then sampled", copies_.device));
  }

  static void AdviseJudge(std::vector<std::string>* ways) {
    ways->push_back("smaller problems (--size small)");
    ways->push_back("a GPU of its own for judging (--place)");
  }

  void Advise(int64_t usable, std::vector<std::string>* all) const {
    std::vector<std::string>& ways = *all;
    if (plan_.learning > usable) AdviseShorter(&ways);
    if (!plan_.recompute) ways.push_back("--recompute");
    if (copies_.here > 0)
      ways.push_back("no second copy on the device that trains (--place, --sampler-device)");
    const bool judged_beside = JudgedMeanwhile() > 0 && plan_.learning > usable;
    if (judged_beside) ways.push_back("--staleness 0");
    if (judged_beside || (request_.judge_bytes > 0 && Sampling() > usable)) AdviseJudge(&ways);
    if (Sampling() > usable && request_.context_tokens > 0) {
      ways.push_back("a shorter --context");
      ways.push_back("a GPU of its own for sampling (--place)");
    }
    if (!moves_ && !request_.trains_on_cpu && plan_.learning - Moved() <= usable &&
        FitsMain(request_.ranks_here * Moved()))
      ways.push_back("--optimizer-on-cpu");
    if (options_.lora.rank == 0) ways.push_back("--lora 32");
    if (options_.lora.rank > 0 && options_.quantization == "none") ways.push_back("--quantization nf4");
    if (options_.lora.rank == 0 && !options_.shard && request_.ranks > 1) ways.push_back("--shard");
    ways.push_back("more ranks, one a GPU: the optimiser's part of each is smaller");
  }

  void AdviseMainMemory(int64_t usable, std::vector<std::string>* ways) const {
    if (moves_ && (request_.device_bytes == 0 || plan_.learning + Moved() <= usable))
      ways->push_back("the optimiser on the GPU (without --optimizer-on-cpu)");
    if (plan_.base > 0) ways->push_back("going on from the last step's weights (without --from-base)");
    if (copies_.device == "cpu") ways->push_back("no second copy in main memory (--sampler-device)");
    if (options_.lora.rank == 0 && !options_.shard && request_.ranks > 1) ways->push_back("--shard");
    ways->push_back(options_.lora.rank > 0 ? "a smaller --lora" : "--lora 32");
    ways->push_back("more machines, or one with more memory");
  }

  // What optimizer_on_cpu moves, but for `gathering`.
  int64_t Moved() const { return plan_.optimizer + sums_; }
  bool FitsMain(int64_t bytes) const {
    return request_.main_bytes == 0 || bytes <= Usable(request_.main_bytes);
  }

  // "--micro-tokens 8192 with --max-sample-tokens 8192"
  void AdviseShorter(std::vector<std::string>* ways) const {
    const int64_t fit = plan_.tokens_that_fit / 1024 * 1024;
    if (fit == 0 || pass_ <= fit) return;
    std::vector<std::string> both;
    if (options_.micro_tokens > fit) both.push_back(fmt::format("--micro-tokens {}", fit));
    if (options_.data.longest_tokens > fit)
      both.push_back(fmt::format("--max-sample-tokens {}", fit / (LearnsPairs() ? 2 : 1)));
    ways->push_back(fmt::format("{}", fmt::join(both, " with ")));
  }

  bool LearnsPairs() const { return options_.loss.surrogate == Surrogate::kPreference; }
  std::string PassText() const {
    return fmt::format("{} tokens by {}", pass_,
                       pass_ == options_.micro_tokens ? "--micro-tokens"
                       : LearnsPairs()                ? "the longest pair"
                                                      : "the longest sample");
  }

  // "2 second copies of the weights, each 15.2 with keys and values of 32768 tokens (1.9)"
  std::string CopiesText(int count) const {
    return fmt::format("{} of the weights{}{} {} with keys and values of {} tokens ({})",
                       count == 1 ? "a second copy" : fmt::format("{} second copies", count),
                       options_.lora.rank > 0 ? " and adapters" : "", count == 1 ? "" : ", each",
                       Gb(plan_.whole_weights), CopyTokens(), Gb(plan_.copy_cache));
  }

  void Describe() {
    plan_.text = fmt::format("memory plan of each of {} rank{}: weights {} GB", request_.ranks,
                             request_.ranks == 1 ? "" : "s", Gb(plan_.weights));
    if (options_.shard)
      plan_.text += fmt::format(" (two layers at a time; {} whole)", Gb(plan_.whole_weights));
    if (plan_.reference > 0) plan_.text += fmt::format(", reference {}", Gb(plan_.reference));
    plan_.text +=
        fmt::format(", gradients {}, optimiser {}, activations {} ({}{}), logits {}", Gb(plan_.gradients),
                    moves_ ? "in main memory" : Gb(plan_.optimizer), Gb(plan_.activations), PassText(),
                    plan_.recompute ? ", recomputed" : "", Gb(plan_.logits));
    plan_.text += fmt::format(" (in the place of {} of the activations)", Gb(pass_ * Token().one_layer));
    if (copies_.here > 0) plan_.text += ", " + CopiesText(copies_.here);
    plan_.text += fmt::format(": {}{} while learning", Gb(plan_.learning), JudgeText(JudgedMeanwhile()));
    if (plan_.sampling > 0 && request_.context_tokens == 0)
      plan_.text +=
          fmt::format("; {}{} {}", Gb(plan_.sampling), JudgeText(request_.judge_bytes), BetweenSteps());
    if (request_.context_tokens > 0)
      plan_.text += fmt::format("; with keys and values of {} tokens ({}){} {} while sampling",
                                request_.cache_tokens > 0 ? request_.cache_tokens : request_.context_tokens,
                                Gb(plan_.cache), JudgeText(request_.judge_bytes), Gb(plan_.sampling));
    if (plan_.split_sampling > 0) {
      plan_.text += fmt::format(", or {} with the sampler split over the ranks (a slice of {}, cache {})",
                                Gb(plan_.split_sampling), Gb(plan_.slice), Gb(plan_.cache / request_.ranks));
      if (plan_.split) plan_.text += ", as it is sampled here";
    }
    if (plan_.loading == plan_.needed) plan_.text += fmt::format("; {} while loading", Gb(plan_.loading));
    DescribeRoom(request_.device_bytes, fits_device_);
    if (plan_.main_needed > 0) DescribeMainMemory();
    if (copies_.there == 0) return;
    plan_.text += fmt::format("; on {}: {}{}: {} GB", copies_.device, CopiesText(copies_.there),
                              JudgeText(copies_.judge_bytes), Gb(plan_.there));
    DescribeRoom(copies_.there_bytes, fits_there_);
  }

  void DescribeMainMemory() {
    std::vector<std::string> parts;
    if (moves_) parts = {"optimiser " + Gb(plan_.optimizer), "summed gradients " + Gb(sums_)};
    if (moves_ && gathering_ > 0) parts.push_back("new weights on their way " + Gb(gathering_));
    if (plan_.base > 0) parts.push_back("the base with its optimiser " + Gb(plan_.base));
    if (!parts.empty())
      plan_.text += fmt::format("; in main memory: {}: {} GB", fmt::join(parts, ", "), Gb(plan_.main_memory));
    if (!parts.empty() && request_.ranks_here > 1)
      plan_.text += fmt::format(", {} of the {} ranks here", Gb(request_.ranks_here * plan_.main_memory),
                                request_.ranks_here);
    if (copies_.device == "cpu")
      plan_.text += fmt::format(", {} with the sampler", Gb(plan_.main_needed - saved_));
    if (saved_ > 0)
      plan_.text += fmt::format("; {} GB of main memory while the model is saved", Gb(plan_.main_needed));
    DescribeRoom(request_.main_bytes, fits_main_);
  }

  static std::string JudgeText(int64_t bytes) {
    return bytes > 0 ? fmt::format(" and the judge ({})", Gb(bytes)) : "";
  }

  void DescribeRoom(int64_t available, bool fits) {
    if (available == 0) return;
    plan_.text +=
        fmt::format("; {} GB are available: {}", Gb(available), fits ? "it fits" : "it does not fit");
  }

  const ModelConfig& config_;
  const TrainOptions& options_;
  const TrainPlanRequest& request_;
  const SecondCopies& copies_ = request_.copies;
  const int bytes_;
  // Tokens of the largest forward pass.
  const int64_t pass_ = std::max(options_.micro_tokens, options_.data.longest_tokens);
  const bool moves_ = options_.adam.on_cpu && !request_.trains_on_cpu;  // the optimiser to main memory
  int64_t sums_ = 0;                                                    // of gradients over a step
  int64_t gathering_ = 0;                                               // wherever the optimiser is
  int64_t saved_ = 0;             // sharded: in main memory of the rank that saves
  int64_t between_ = 0;           // sharded, between steps, but for cache and judge
  int64_t ends_ = 0, layer_ = 0;  // numbers; sharded
  OfToken kept_, recomputed_;
  bool fits_device_ = false, fits_main_ = false, fits_there_ = false;
  TrainPlan plan_;
};

}  // namespace

void ShareMainMemory(TrainPlanRequest* request) {
  request->trains_on_cpu = true;
  // What is left to others is left once.
  if (request->device_bytes > 0)
    request->device_bytes = (request->device_bytes - kReserved) / request->ranks_here + kReserved;
  request->copies.here = (request->copies.here + request->ranks_here - 1) / request->ranks_here;
}

TrainPlan PlanTraining(const ModelConfig& config, const TrainOptions& options,
                       const TrainPlanRequest& request) {
  return Planner(config, options, request).Make();
}

}  // namespace kevin::local
