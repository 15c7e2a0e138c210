#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "env/error.h"
#include "policies/local/files/weights_hash.h"
#include "policies/local/fused/fused_runner.h"
#include "policies/local/model/build_weights.h"
#include "policies/local/serve/http_server.h"
#include "policies/local/serve/served_model.h"
#include "policies/local/train/serve_training.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;

constexpr int kPageTokens = 32;
constexpr int kStepTokensOnCpu = 256, kStepTokensOnGpu = 2048;
constexpr int64_t kContextsOnCpu = 4;
constexpr double kShareOnGpu = 0.4;  // the rest is for the activations of training

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Reads the trained numbers and tells their hash, beside everything else. The frozen ones under adapters are
// in it by the hash of their folder.
class TrainedHash {
 public:
  TrainedHash(const LanguageModel& model, std::shared_future<std::string> frozen) {
    thread_ = std::thread([this, &model, frozen = std::move(frozen)] {
      try {
        promise_.set_value(Hash(model, frozen));
      } catch (const std::exception&) {
        promise_.set_value("");  // the device is gone; whoever uses it next says so
      }
    });
  }
  ~TrainedHash() {
    cancel_ = true;
    thread_.join();
  }
  TrainedHash(const TrainedHash&) = delete;
  TrainedHash& operator=(const TrainedHash&) = delete;
  std::shared_future<std::string> Future() const { return future_; }

 private:
  std::string Hash(const LanguageModel& model, const std::shared_future<std::string>& frozen) const {
    const c10::NoGradGuard no_gradients;
    std::vector<at::Tensor> kept;
    std::vector<TensorBytes> tensors;
    for (const NamedParameter& p : model.Parameters()) {
      if (cancel_) return "";
      kept.push_back(p.value.detach().cpu().contiguous());
      const at::Tensor& t = kept.back();
      tensors.push_back({p.name,
                         NumberTypeOf(t.scalar_type()),
                         t.sizes().vec(),
                         {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}});
    }
    std::string base;
    if (frozen.valid()) {
      base = frozen.get();
      tensors.push_back({"base", NumberType::kU8, {}, std::as_bytes(std::span(base))});
    }
    return HashOfTensors(tensors, cancel_);
  }

  std::atomic<bool> cancel_{false};
  std::promise<std::string> promise_;
  const std::shared_future<std::string> future_ = promise_.get_future().share();
  std::thread thread_;
};

int64_t CacheTokens(const LanguageModel& model, const SamplingOptions& options, int64_t context) {
  if (options.cache_tokens > 0) return options.cache_tokens;
  const at::Device device = model.Options().device;
  if (device.is_cpu()) return kContextsOnCpu * context;
  const ModelConfig& c = model.Config();
  const int64_t token = int64_t{2} * c.layers * c.kv_heads * c.head_dim * BytesOf(model.Options().dtype);
  const auto free = static_cast<double>(at::accelerator::getMemoryInfo(device.index()).first);
  const auto tokens = static_cast<int64_t>(free * kShareOnGpu) / token;
  if (tokens >= context) return tokens;
  throw Error(
      ExitCode::kMachine,
      fmt::format("{:.1f} GB are free beside weights and optimiser, and sampling up to {} tokens needs "
                  "{:.1f} GB",
                  free / 1e9, context, static_cast<double>(context * token) / 1e9 / kShareOnGpu),
      "sample shorter texts (--context), train adapters (--lora 32), keep the optimiser in main memory "
      "(--optimizer-on-cpu), or sample on another GPU (--sampler-device cuda:1)");
}

TorchRunnerOptions RunnerOptionsFor(const LanguageModel& model, const SamplingOptions& options) {
  const int64_t context = options.context_tokens > 0
                              ? std::min<int64_t>(options.context_tokens, model.Config().context)
                              : model.Config().context;
  TorchRunnerOptions runner;
  runner.page_tokens = kPageTokens;
  runner.pages = static_cast<int>((CacheTokens(model, options, context) + kPageTokens - 1) / kPageTokens);
  runner.context_tokens = static_cast<int>(context);
  runner.step_tokens = model.Options().device.is_cpu() ? kStepTokensOnCpu : kStepTokensOnGpu;
  return runner;
}

}  // namespace

class SampledModel::Impl {
 public:
  Impl(LanguageModel& model, std::unique_ptr<LanguageModel> second, const TrainOptions& training,
       const SamplingOptions& options, int64_t version)
      : model_(model),
        second_(std::move(second)),
        frozen_(training.lora.rank > 0 ? std::make_unique<FolderHash>(training.model) : nullptr),
        engine_(MakeModelRunner(Sampled(), RunnerOptionsFor(Sampled(), options))),
        api_(engine_, Served(training)),
        server_(api_, Http(options)),
        url_(server_.Url()) {
    if (second_) {
      BringUpToDate(version);
    } else {
      Say(version);
    }
  }

  LanguageModel& Sampled() { return second_ ? *second_ : model_; }

  double Learn(int64_t version, const std::function<void()>& learn) {
    double end = 0;
    if (second_) {
      learn();
      end = Now();
      engine_.WhileStill([&] { BringUpToDate(version); });
    } else {
      engine_.WhileStill([&] {
        hash_.reset();  // it reads what is about to change
        learn();
        end = Now();
        Say(version);
      });
    }
    return Now() - end;
  }

  const ModelApi& api() const { return api_; }
  const Engine& engine() const { return engine_; }
  const std::string& url() const { return url_; }
  bool is_second() const { return second_ != nullptr; }

 private:
  ServedModel Served(const TrainOptions& training) const {
    ServedModel served = ReadFolderModel(training.model);
    served.name = fs::weakly_canonical(training.model).filename().string();
    served.root = training.model;
    served.seed = training.seed;
    served.weights = weights_;
    return served;
  }

  static HttpServerOptions Http(const SamplingOptions& options) {
    HttpServerOptions http;
    http.unix_socket = options.socket;
    return http;
  }

  void BringUpToDate(int64_t version) {
    const c10::NoGradGuard no_gradients;
    hash_.reset();
    std::map<std::string, at::Tensor> trained;
    for (const NamedParameter& p : model_.Parameters()) trained[p.name] = p.value;
    for (NamedParameter& p : second_->Parameters()) p.value.copy_(trained.at(p.name));
    // The copies are under way; who asks for one number of them waits for all.
    const std::vector<NamedParameter> all = second_->Parameters();
    if (!all.empty()) all.back().value.reshape(-1)[0].item();
    Say(version);
  }

  void Say(int64_t version) {
    hash_.emplace(Sampled(), frozen_ ? frozen_->Hash() : std::shared_future<std::string>());
    weights_->Set({version, hash_->Future()});
  }

  LanguageModel& model_;
  const std::unique_ptr<LanguageModel> second_;
  const std::unique_ptr<FolderHash> frozen_;
  const std::shared_ptr<ServedWeights> weights_ = std::make_shared<ServedWeights>();
  std::optional<TrainedHash> hash_;
  Engine engine_;
  ModelApi api_;
  const HttpServer server_;
  const std::string url_;
};

SampledModel::SampledModel(LanguageModel& model, std::unique_ptr<LanguageModel> second,
                           const TrainOptions& training, const SamplingOptions& options, int64_t version)
    : impl_(std::make_unique<Impl>(model, std::move(second), training, options, version)) {}
SampledModel::~SampledModel() = default;

const std::string& SampledModel::Url() const { return impl_->url(); }
const std::string& SampledModel::Name() const { return impl_->api().model().name; }
int SampledModel::ContextTokens() const { return impl_->engine().ContextTokens(); }
bool SampledModel::IsSecond() const { return impl_->is_second(); }
double SampledModel::Learn(int64_t version, const std::function<void()>& learn) {
  return impl_->Learn(version, learn);
}

}  // namespace kevin::local
