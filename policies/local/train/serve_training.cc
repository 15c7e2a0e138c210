#include "policies/local/train/serve_training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "env/error.h"
#include "env/printable.h"
#include "policies/local/files/weights_hash.h"
#include "policies/local/model/device.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/ranks.h"
#include "policies/local/train/split_sampling.h"
#include "policies/local/train/stored_shares.h"
#include "policies/local/train/train_plan.h"
#include "policies/local/train/trainer.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kRankSeconds = 1800;  // the slowest rank's longest step; a lost rank is noticed earlier

NumberType TypeFor(const TrainOptions& options) {
  if (options.dtype.empty()) return ReadModelConfig(options.model).dtype;
  if (options.dtype == "float32") return NumberType::kF32;
  if (options.dtype == "bfloat16") return NumberType::kBF16;
  throw Error(ExitCode::kBadRequest, "--dtype " + options.dtype + ": not float32 or bfloat16");
}

Quantization QuantizationFor(const TrainOptions& options) {
  for (const Quantization kind :
       {Quantization::kNone, Quantization::kInt8, Quantization::kNf4, Quantization::kNf4Double}) {
    if (options.quantization == NameOf(kind)) return kind;
  }
  throw Error(ExitCode::kBadRequest,
              "--quantization " + options.quantization + ": not none, int8, nf4 or nf4-double");
}

ModelOptions ModelOptionsFor(const TrainOptions& options) {
  ModelOptions model;
  model.dtype = TypeFor(options);
  model.device = at::Device(options.device);
  model.quantization = QuantizationFor(options);
  model.trainable = options.lora.rank == 0;
  model.checkpoint_layers = options.recompute;
  return model;
}

TrainedModel TrainedModelOf(const TrainOptions& options) {
  TrainedModel model;
  model.fingerprint = SampledFolderHash(options.model), model.dtype = NameOf(TypeFor(options));
  if (LoadsReference(options))
    model.reference = options.reference.empty() ? model.fingerprint : SampledFolderHash(options.reference);
  return model;
}

// The ranks of this machine: those that share its main memory.
int RanksHere(Ranks& ranks) {
  std::string machine;
  if (!std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), machine)) {
    machine.resize(256);
    gethostname(machine.data(), machine.size() - 1);
  }
  const std::vector<std::string> all = ExchangeTexts(ranks, machine);
  return static_cast<int>(std::count(all.begin(), all.end(), machine));
}

// Makes a GPU the current device.
int64_t FreeBytesOn(const std::string& name) {
  const at::Device device(name);
  OpenCuda(device);
  return FreeBytesOf(device);
}

class Service {
 public:
  Service(const ModelMaker& make_model, std::function<void(const Error&)> on_lost)
      : make_model_(make_model), on_lost_(std::move(on_lost)) {}

  // Tells other ranks why this one ends. Any thread.
  void Leave(const std::string& why) {
    if (split_) split_->Leave(why);
    if (texts_) texts_->Leave(why);
    if (ranks_) ranks_->Leave(why);
  }

  Json Answer(const Json& request) {
    if (request.contains("open")) {
      const TrainOptions options = TrainOptionsFromJson(request.at("open"));
      std::optional<SamplingOptions> sampling;
      if (request.contains("sample")) sampling = SamplingOptionsFromJson(request.at("sample"));
      Json opened = Open(options, sampling ? &*sampling : nullptr);
      if (sampling) Sample(trainer_->options(), *sampling, &opened);
      return {{"opened", std::move(opened)}};
    }
    if (request.contains("free")) {
      Json free = Json::array();
      for (const Json& device : request.at("free")) free.push_back(FreeBytesOn(device.get<std::string>()));
      return {{"available", std::move(free)}};
    }
    if (trainer_ == nullptr) throw Error(ExitCode::kBroken, "the trainer was not opened");
    if (request.contains("step")) return {{"figures", ToJson(Step(BatchFromJson(request.at("step"))))}};
    if (request.contains("sync")) return {{"synced", BringSamplerUp()}};
    if (request.contains("save")) return {{"saved", trainer_->Save()}};
    if (request.contains("write")) return {{"written", Written(request.at("write"))}};
    if (request.contains("finish")) return {{"saved", Finish()}};
    if (request.contains("run")) return {{"named", NameRun(request.at("run"))}};
    if (request.contains("restore")) return {{"restored", Restore(request.at("restore"))}};
    if (request.contains("exchange")) return {{"exchanged", Exchange(request.at("exchange"))}};
    throw Error(ExitCode::kBroken, "the trainer knows no such request");
  }

 private:
  Json Open(TrainOptions options, const SamplingOptions* sampling) {
    OpenCuda(at::Device(options.device));
    ranks_ = RanksFromEnvironment(
        kRankSeconds, at::Device(options.device),
        [](const std::string& line) { fmt::print(stderr, "kevin-trainer: {}\n", Printable(line)); },
        on_lost_);
    const std::string checkpoint = CheckpointToResume(options, *ranks_);
    options.trained = TrainedModelOf(options);
    if (!checkpoint.empty()) RequireSameOptions(checkpoint, options);  // before its weights are read
    Plan(&options, sampling);
    // from_base needs the weights of the base; a checkpoint's weights come with its optimiser.
    model_ = Loaded(options, options.from_base ? "" : checkpoint);
    LanguageModel* reference = nullptr;
    if (LoadsReference(options)) {
      TrainOptions frozen = options;
      frozen.model = options.reference.empty() ? options.model : options.reference;
      ModelOptions model_options = ModelOptionsFor(frozen);
      model_options.trainable = false;
      reference_ = LoadLanguageModel(frozen.model, model_options);
      reference = reference_.get();
    } else if (NeedsReference(options)) {
      reference = model_.get();
    }
    trainer_ = std::make_unique<Trainer>(options, *model_, reference, *ranks_);
    if (!checkpoint.empty()) trainer_->Resume(checkpoint);
    int64_t trained = 0;
    for (const NamedParameter& p : model_->Parameters()) trained += p.value.numel();
    return {{"steps", trainer_->StepsDone()},
            {"checkpoint", checkpoint},
            {"trained", trained},
            {"rank", ranks_->Rank()},
            {"ranks", ranks_->Size()}};
  }

  // From a checkpoint unless that is empty.
  std::unique_ptr<LanguageModel> Loaded(const TrainOptions& options, const std::string& checkpoint) const {
    try {
      return make_model_(options, checkpoint);
    } catch (const Error& error) {
      if (checkpoint.empty() || error.code() != ExitCode::kBadRequest) throw;
      throw Error(error.code(), fmt::format("checkpoint {}: {}", checkpoint, error.what()),
                  kRemoveCheckpoint);
    }
  }

  // Says what the run needs before anything is loaded, and decides whether activations are recomputed, whether the ranks
  // sample together, and what a second copy leaves to learning. `sampling`: null: the model is not sampled.
  void Plan(TrainOptions* options, const SamplingOptions* sampling) {
    const at::Device device(options->device);
    const ModelConfig config = ReadModelConfig(options->model);
    TrainPlanRequest request;
    request.ranks = ranks_->Size(), request.ranks_here = RanksHere(*ranks_);
    request.device_bytes = FreeBytesOf(device), request.main_bytes = FreeBytesOf(at::kCPU);
    request.has_reference = LoadsReference(*options);
    request.judge_bytes = options->judge_bytes, request.judges_meanwhile = options->judges_meanwhile;
    if (sampling != nullptr) {
      RequestSampling(config, options->device, *sampling, FreeBytesOn, &request);
      OpenCuda(device);  // the current one again
    }
    if (device.is_cpu()) ShareMainMemory(&request);
    ranks_->Wait();  // before the first one loads what takes memory of the others' devices
    options->split_sampler = IsSplit(config, *options, request);
    options->choose_split_sampler = false;
    const TrainPlan plan = PlanTraining(config, *options, request);
    options->recompute = plan.recompute;
    if (sampling != nullptr && sampling->trains_there) learning_bytes_ = plan.transient;
    if (ranks_->Rank() == 0) fmt::print(stderr, "kevin-trainer: {}\n", Printable(plan.text));
    if (plan.fits) return;
    // The plan is an estimate: what it misses by little is tried.
    if ((device.is_cuda() && !plan.may_be_tried) ||
        (request.copies.device.starts_with("cuda") && plan.there > request.copies.there_bytes))
      throw Error(ExitCode::kMachine, plan.text, plan.next);
    if (ranks_->Rank() == 0) fmt::print(stderr, "kevin-trainer: {}\n", Printable(plan.next));
  }

  // Where one rank has too little memory, all are split.
  bool IsSplit(const ModelConfig& config, const TrainOptions& options,
               const TrainPlanRequest& request) const {
    if (options.split_sampler) {
      const CannotSplit why = WhyNotSplit(config, options.quantization, ranks_->Size());
      if (!why.reason.empty()) throw Error(ExitCode::kBadRequest, why.reason, why.next);
      if (!options.shard || request.context_tokens == 0)
        throw Error(ExitCode::kBadRequest, "a sampler is split where sharded weights are sampled",
                    "add --shard and --online, or leave out --split-sampler");
    }
    if (!options.shard || ranks_->Size() == 1) return false;
    const bool own = PlanTraining(config, options, request).split;
    at::Tensor any = at::tensor({own ? 1.0 : 0.0}, at::kDouble);
    ranks_->Largest(&any);
    return any.item<double>() > 0;
  }

  void SampleTogether(const SamplingOptions& sampling, Json* opened) {
    const at::Device device(trainer_->options().device);
    sums_ = FurtherRanksFromEnvironment("sampling", kRankSeconds, device);
    // A rank that waits for texts of others must not hold the GPU up, on which these may be waiting for answers.
    if (device.is_cuda()) texts_ = FurtherRanksFromEnvironment("texts", kRankSeconds, at::kCPU);
    split_ = std::make_unique<SplitSampling>(SplitSampling::Parts{*model_, *trainer_, *ranks_, *sums_},
                                             sampling, [this](const Error& error) {
                                               Leave(error.what());
                                               on_lost_(error);
                                             });
    (*opened)["url"] = split_->Url(), (*opened)["model"] = split_->Name();
    (*opened)["context"] = split_->ContextTokens(), (*opened)["split"] = true;
  }

  std::vector<std::string> Exchange(const std::string& own) {
    return ExchangeTexts(texts_ ? *texts_ : *ranks_, own);
  }

  void Sample(const TrainOptions& options, const SamplingOptions& sampling, Json* opened) {
    if (options.split_sampler) return SampleTogether(sampling, opened);
    std::unique_ptr<LanguageModel> second;
    trainer_->MakeWhole();
    ranks_->Wait();  // for the memory of those that train where this one samples
    if (!sampling.device.empty()) {
      TrainOptions elsewhere = options;
      elsewhere.device = sampling.device;
      second = make_model_(elsewhere, "");
      OpenCuda(at::Device(options.device));
    }
    sampled_ = std::make_unique<SampledModel>(*model_, std::move(second), options, sampling,
                                              trainer_->StepsDone(), learning_bytes_);
    (*opened)["url"] = sampled_->Url(), (*opened)["model"] = sampled_->Name();
    (*opened)["context"] = sampled_->ContextTokens();
  }

  StepFigures Step(const Batch& batch) {
    if (sampled_ == nullptr && split_ == nullptr) return trainer_->Step(batch);
    StepFigures figures;
    const double sync_s = Update(batch.step, [&] {
      figures = trainer_->Step(batch);
      if (sampled_) trainer_->MakeWhole();
    });
    figures.sync_s = sync_s;
    return figures;
  }

  void RequireSampler() const {
    if (sampled_ == nullptr && split_ == nullptr)
      throw Error(ExitCode::kBroken, "nothing samples from this trainer");
  }

  double Update(int64_t version, const std::function<void()>& update) {
    RequireSampler();
    return split_ ? split_->Update(version, update) : sampled_->Update(version, update);
  }

  double BringSamplerUp() {
    RequireSampler();
    return split_ ? 0 : sampled_->BringUp();
  }

  std::string NameRun(const std::string& run) {
    RequireSampler();
    split_ ? split_->SetRun(run) : sampled_->SetRun(run);
    return run;
  }

  // The weights of an earlier checkpoint, for evaluation.
  int64_t Restore(const std::string& checkpoint) {
    Update(StepsOf(checkpoint), [&] { trainer_->Resume(checkpoint); });
    return trainer_->StepsDone();
  }

  std::string Finish() const {
    const TrainOptions& options = trainer_->options();
    const fs::path folder = fs::path(options.output) / (options.lora.rank > 0 ? "adapter" : "model");
    return Written(folder.string());
  }

  std::string Written(const std::string& folder) const {
    trainer_->SaveModel(folder);
    ranks_->Wait();
    return folder;
  }

  const ModelMaker& make_model_;
  const std::function<void(const Error&)> on_lost_;
  std::unique_ptr<Ranks> ranks_;
  int64_t learning_bytes_ = 0;           // on the device of a second copy
  std::unique_ptr<Ranks> sums_, texts_;  // where the ranks sample together; texts_: on GPUs
  std::unique_ptr<LanguageModel> model_, reference_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<SampledModel> sampled_;
  std::unique_ptr<SplitSampling> split_;
};

Json ErrorJson(ExitCode code, const std::string& what, const std::string& next) {
  return {{"error", {{"code", static_cast<int>(code)}, {"what", what}, {"next", next}}}};
}

}  // namespace

std::unique_ptr<LanguageModel> LoadForTraining(const TrainOptions& options, const std::string& checkpoint) {
  const ModelOptions model_options = ModelOptionsFor(options);
  if (options.lora.rank == 0) {
    return LoadLanguageModel(checkpoint.empty() ? fs::path(options.model) : fs::path(checkpoint) / "model",
                             model_options);
  }
  std::unique_ptr<LanguageModel> model = LoadLanguageModel(options.model, model_options);
  if (!checkpoint.empty()) {
    model->LoadAdapters(fs::path(checkpoint) / "adapter");
    return model;
  }
  AdapterOptions adapters;
  adapters.rank = options.lora.rank, adapters.alpha = options.lora.alpha;
  if (!options.lora.targets.empty()) adapters.targets = TargetsOf(options.lora);
  model->AttachAdapters(adapters, options.seed);
  return model;
}

void ServeTraining(int in, int out, const ModelMaker& make_model) {
  std::mutex writing;
  const auto write = [&](const nlohmann::json& answer) {
    const std::lock_guard lock(writing);
    return WriteFrame(out, answer);
  };
  // This thread may wait for the lost rank, in an operation that nothing ends.
  const auto end_at_once = [&](const Error& error) {
    const std::lock_guard lock(writing);
    WriteFrame(out, ErrorJson(error.code(), error.what(), error.next_step()));
    _exit(static_cast<int>(error.code()));
  };
  Service service(make_model, end_at_once);
  const auto fail = [&](const Error& error) {
    service.Leave(error.what());  // before the answer, upon which this process may be killed
    write(ErrorJson(error.code(), error.what(), error.next_step()));
  };
  try {
    while (const std::optional<nlohmann::json> request = ReadFrame(in)) {
      if (!write(service.Answer(*request))) break;
    }
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ExitCode::kBroken, FirstLineOf(error.what())));
  }
}

}  // namespace kevin::local
