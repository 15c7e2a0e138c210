#include "policies/local/train/serve_training.h"

#include <filesystem>

#include "env/error.h"
#include "policies/local/train/checkpoint.h"
#include "policies/local/train/ranks.h"
#include "policies/local/train/trainer.h"
#include "policies/local/train/wire.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kRankSeconds = 1800;  // the slowest rank's longest step

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

class Service {
 public:
  explicit Service(const ModelMaker& make_model) : make_model_(make_model) {}

  Json Answer(const Json& request) {
    if (request.contains("open")) return {{"opened", Open(TrainOptionsFromJson(request.at("open")))}};
    if (trainer_ == nullptr) throw Error(ExitCode::kBroken, "the trainer was not opened");
    if (request.contains("step"))
      return {{"figures", ToJson(trainer_->Step(BatchFromJson(request.at("step"))))}};
    if (request.contains("save")) return {{"saved", trainer_->Save()}};
    if (request.contains("finish")) return {{"saved", Finish()}};
    throw Error(ExitCode::kBroken, "the trainer knows no such request");
  }

 private:
  Json Open(const TrainOptions& options) {
    ranks_ = RanksFromEnvironment(kRankSeconds);
    const std::string checkpoint = options.resume ? NewestCheckpoint(options.output) : "";
    model_ = make_model_(options, checkpoint);
    const bool compares =
        options.loss.surrogate == Surrogate::kPreference || options.loss.kl != KlEstimator::kNone;
    if (compares) {
      TrainOptions frozen = options;
      frozen.model = options.reference.empty() ? options.model : options.reference;
      ModelOptions model_options = ModelOptionsFor(frozen);
      model_options.trainable = false;
      reference_ = LoadLanguageModel(frozen.model, model_options);
    }
    trainer_ = std::make_unique<Trainer>(options, *model_, reference_.get(), *ranks_);
    if (!checkpoint.empty()) trainer_->Resume(checkpoint);
    int64_t trained = 0;
    for (const NamedParameter& p : model_->Parameters()) trained += p.value.numel();
    return {{"steps", trainer_->StepsDone()},
            {"trained", trained},
            {"rank", ranks_->Rank()},
            {"ranks", ranks_->Size()}};
  }

  std::string Finish() const {
    const TrainOptions& options = trainer_->options();
    const fs::path folder = fs::path(options.output) / (options.lora.rank > 0 ? "adapter" : "model");
    if (ranks_->Rank() == 0) {
      fs::remove_all(folder);  // of the same run, before it went on
      if (options.lora.rank > 0) {
        model_->SaveAdapters(folder, options.model);
      } else {
        model_->Save(folder, options.model);
      }
    }
    ranks_->Wait();
    return folder.string();
  }

  const ModelMaker& make_model_;
  std::unique_ptr<Ranks> ranks_;
  std::shared_ptr<LanguageModel> model_;
  std::unique_ptr<LanguageModel> reference_;
  std::unique_ptr<Trainer> trainer_;
};

Json ErrorJson(ExitCode code, const std::string& what, const std::string& next) {
  return {{"error", {{"code", static_cast<int>(code)}, {"what", what}, {"next", next}}}};
}

// torch appends where in its own sources it happened.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::shared_ptr<LanguageModel> LoadForTraining(const TrainOptions& options, const std::string& checkpoint) {
  const ModelOptions model_options = ModelOptionsFor(options);
  if (options.lora.rank == 0) {
    return LoadLanguageModel(checkpoint.empty() ? fs::path(options.model) : fs::path(checkpoint) / "model",
                             model_options);
  }
  std::shared_ptr<LanguageModel> model = LoadLanguageModel(options.model, model_options);
  if (!checkpoint.empty()) {
    model->LoadAdapters(fs::path(checkpoint) / "adapter");
    return model;
  }
  AdapterOptions adapters;
  adapters.rank = options.lora.rank, adapters.alpha = options.lora.alpha;
  model->AttachAdapters(adapters, options.seed);
  return model;
}

void ServeTraining(int in, int out, const ModelMaker& make_model) {
  Service service(make_model);
  try {
    while (const std::optional<Json> request = ReadFrame(in)) {
      if (!WriteFrame(out, service.Answer(*request))) return;
    }
  } catch (const Error& error) {
    WriteFrame(out, ErrorJson(error.code(), error.what(), error.next_step()));
  } catch (const std::exception& error) {
    WriteFrame(out, ErrorJson(ExitCode::kBroken, FirstLine(error.what()), ""));
  }
}

}  // namespace kevin::local
