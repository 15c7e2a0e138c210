#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>

#include "env/error.h"
#include "policies/local/fused/fused_runner.h"
#include "policies/local/model/device.h"
#include "policies/local/serve/http_server.h"
#include "policies/local/serve/served_model.h"
#include "policies/local/train/serve_training.h"
#include "policies/local/train/train_plan.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;

constexpr int kPageTokens = 32;
constexpr int kStepTokensOnCpu = 256, kStepTokensOnGpu = 2048;
// The cache is given up while the model learns, unless it is a second copy's; the rest is for the activations of sampling, and
// for others on the device.
constexpr double kShareOnGpu = 0.6, kShareBesideOthers = 0.9;

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// An identity that is known already.
std::shared_future<std::string> Known(const std::string& identity) {
  std::promise<std::string> promise;
  promise.set_value(identity);
  return promise.get_future().share();
}

int64_t CacheTokens(const LanguageModel& model, const SamplingOptions& options, int64_t context,
                    int64_t learning_bytes) {
  if (options.cache_tokens > 0) return options.cache_tokens;
  const at::Device device = model.Options().device;
  if (device.is_cpu()) return kContextsOnCpu * context;
  const ModelConfig& c = model.Config();
  const int64_t token = int64_t{2} * c.layers * c.kv_heads * c.head_dim * BytesOf(model.Options().dtype);
  ReturnFreeMemory(device);
  const auto free = static_cast<double>(at::accelerator::getMemoryInfo(device.index()).first);
  const auto judge = static_cast<double>(options.judge_bytes), learning = static_cast<double>(learning_bytes);
  // Second copies of other ranks may be made on this device at the same time, or later.
  const auto usable =
      static_cast<int64_t>(std::min(free * kShareOnGpu, free * kShareBesideOthers - judge - learning) /
                           std::max(options.samplers, 1));
  const int64_t tokens = usable / token;
  if (tokens >= context) return tokens;
  throw Error(
      ExitCode::kMachine,
      fmt::format("{:.1f} GB are free beside weights and optimiser{}{}, and sampling up to {} tokens needs "
                  "{:.1f} GB",
                  free / 1e9, judge > 0 ? fmt::format(", {:.1f} of them for the judge", judge / 1e9) : "",
                  learning > 0 ? fmt::format(", {:.1f} of them for learning", learning / 1e9) : "", context,
                  static_cast<double>(context * token * std::max(options.samplers, 1)) / 1e9 / kShareOnGpu),
      "sample shorter texts (--context), train adapters (--lora 32), keep the optimiser in main memory "
      "(--optimizer-on-cpu), or sample on another GPU (--sampler-device cuda:1)");
}

}  // namespace

TorchRunnerOptions RunnerOptionsFor(const LanguageModel& model, const SamplingOptions& options,
                                    int64_t learning_bytes) {
  const int64_t context = options.context_tokens > 0
                              ? std::min<int64_t>(options.context_tokens, model.Config().context)
                              : model.Config().context;
  const int64_t tokens = CacheTokens(model, options, context, learning_bytes);
  TorchRunnerOptions runner;
  runner.page_tokens = kPageTokens;
  runner.pages = static_cast<int>((tokens + kPageTokens - 1) / kPageTokens);
  runner.context_tokens = static_cast<int>(context);
  runner.step_tokens = model.Options().device.is_cpu() ? kStepTokensOnCpu : kStepTokensOnGpu;
  return runner;
}

class SampledModel::Impl {
 public:
  // `model`: of which `second` is a copy; null: there is no second copy.
  Impl(LanguageModel* model, std::unique_ptr<LanguageModel> second, std::unique_ptr<ModelRunner> runner,
       std::function<void()> refresh, const TrainOptions& training, const SamplingOptions& options,
       int64_t version)
      : model_(model),
        second_(std::move(second)),
        refresh_(std::move(refresh)),
        engine_(std::move(runner)),
        api_(engine_, Served(training)),
        server_(api_, Http(options)),
        url_(server_.Url()) {
    if (second_) {
      // Its runner has packed the adapters that it was made with.
      learnt_ = version;
      engine_.WhilePaused([&] { CopyWeights(version); });
    } else {
      Publish(version);
    }
  }

  void SetRun(const std::string& run) {
    run_ = run;
    Publish(weights_->Get().version);
  }

  double Update(int64_t version, const std::function<void()>& update) {
    double end = 0;
    if (second_) {
      update();
      learnt_ = version;
      return 0;
    } else {
      engine_.WhilePaused(
          [&] {
            update();
            end = SteadySeconds();
            if (refresh_) refresh_();
            Publish(version);
          },
          true);
    }
    return SteadySeconds() - end;
  }

  double BringUp() {
    if (!second_) return 0;
    const double start = SteadySeconds();
    engine_.WhilePaused([&] { CopyWeights(learnt_); });
    return SteadySeconds() - start;
  }

  const ModelApi& api() const { return api_; }
  const Engine& engine() const { return engine_; }
  const std::string& url() const { return url_; }

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
    http.connections = kPrivateConnections;
    return http;
  }

  void CopyWeights(int64_t version) {
    const c10::NoGradGuard no_gradients;
    std::map<std::string, at::Tensor> trained;
    for (const NamedParameter& p : model_->Parameters()) trained[p.name] = p.value;
    for (NamedParameter& p : second_->Parameters()) p.value.copy_(trained.at(p.name));
    // The copies are asynchronous; reading one number waits for all of them.
    const std::vector<NamedParameter> all = second_->Parameters();
    if (!all.empty()) all.back().value.reshape(-1)[0].item();
    Publish(version);
  }

  void Publish(int64_t version) {
    weights_->Set({version, Known(run_.empty() ? "" : fmt::format("{}@{}", run_, version))});
  }

  LanguageModel* const model_;
  const std::unique_ptr<LanguageModel> second_;
  const std::function<void()> refresh_;
  const std::shared_ptr<ServedWeights> weights_ = std::make_shared<ServedWeights>();
  std::string run_;
  int64_t learnt_ = 0;  // by the trainer; the second set may be behind
  Engine engine_;
  ModelApi api_;
  const HttpServer server_;
  const std::string url_;
};

SampledModel::SampledModel(LanguageModel& model, std::unique_ptr<LanguageModel> second,
                           const TrainOptions& training, const SamplingOptions& options, int64_t version,
                           int64_t learning_bytes) {
  LanguageModel& sampled = second ? *second : model;
  std::unique_ptr<ModelRunner> runner =
      MakeModelRunner(sampled, RunnerOptionsFor(sampled, options, learning_bytes));
  impl_ = std::make_unique<Impl>(&model, std::move(second), std::move(runner), nullptr, training, options,
                                 version);
}
SampledModel::SampledModel(std::unique_ptr<ModelRunner> runner, std::function<void()> refresh,
                           const TrainOptions& training, const SamplingOptions& options, int64_t version)
    : impl_(std::make_unique<Impl>(nullptr, nullptr, std::move(runner), std::move(refresh), training, options,
                                   version)) {}
SampledModel::~SampledModel() = default;

const std::string& SampledModel::Url() const { return impl_->url(); }
const std::string& SampledModel::Name() const { return impl_->api().model().name; }
int SampledModel::ContextTokens() const { return impl_->engine().ContextTokens(); }
void SampledModel::SetRun(const std::string& run) { impl_->SetRun(run); }
double SampledModel::Update(int64_t version, const std::function<void()>& update) {
  return impl_->Update(version, update);
}
double SampledModel::BringUp() { return impl_->BringUp(); }

}  // namespace kevin::local
