#include "agent/train/trained_policy.h"

#include <fmt/format.h>

#include <optional>

#include "agent/policy_options.h"
#include "agent/train/model_version.h"
#include "env/error.h"
#include "env/gpu/find_gpus.h"
#include "env/process/machine.h"
#include "policies/local/serve/local_policy.h"

namespace kevin {
namespace {

PolicyOptions OptionsFrom(const OnlineSettings& settings, int64_t context) {
  PolicyOptions options;
  options.temperature = settings.temperature;
  // The whole distribution, whatever the model's folder advises: what is never drawn cannot be learnt, and
  // the trainer knows no filters.
  options.top_p = 1, options.top_k = 0, options.request_json = R"({"min_p": 0})";
  if (settings.max_tokens > 0) options.max_tokens = settings.max_tokens;
  options.context = context;
  options.timeout_s = 86400, options.stall_s = 3600;  // answers stand still while the model learns
  return options;
}

std::string LockOf(const std::string& device, const std::string& judge) {
  if (device == "cpu" || !judge.starts_with(device + ":")) return "";
  std::string none;
  for (const GpuFound& gpu : FindGpus(&none)) {
    if (device == fmt::format("cuda:{}", gpu.index)) return DeviceLock::NameOfGpu(gpu.pci_bus);
  }
  return "";
}

}  // namespace

TrainedPolicy::TrainedPolicy(std::string name, TrainerProcess& trainer, const TrainerProcess::Opened& opened,
                             const OnlineSettings& settings, std::string device, const std::string& judge)
    : name_(std::move(name)),
      model_(opened.model),
      device_(std::move(device)),
      trainer_(trainer),
      shared_gpu_(LockOf(device_, judge)) {
  const PolicyOptions options = OptionsFrom(settings, opened.context);
  client_ = MakeRemotePolicy(local::LocalClientOptions(
      opened.model, opened.url, RemoteOptionsFor("openai:" + opened.model + "@" + opened.url, options)));
  const WindowShare share = ShareWindow(options, opened.context, std::nullopt);
  settings_ = {SamplingFor(options, share.max_tokens), share.prompt_tokens};
}

Completion TrainedPolicy::Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) {
  std::optional<DeviceLock> quiet;
  if (!shared_gpu_.empty()) quiet.emplace(shared_gpu_, LockMode::kShared, nullptr);
  Completion completion;
  try {
    completion = client_->Complete(request, cancel, on_text);
  } catch (const PromptTooLong&) {
    throw;
  } catch (const Error&) {
    if (const auto death = trainer_.Death())
      throw PolicyUnavailable(death->code(), death->what(), death->next_step());
    throw;
  }
  completion.model = VersionedModel(model_, completion.identity.weights_version.value_or(0));
  return completion;
}

}  // namespace kevin
