#include "agent/train/served_sampler.h"

#include <fmt/format.h>

#include "agent/policy_options.h"
#include "agent/train/model_text.h"
#include "agent/train/rollouts.h"
#include "env/error.h"
#include "policies/local/files/safetensors.h"
#include "policies/remote/weight_update.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// A folder of Hugging Face's cache has links to its files: a link to such a link would point elsewhere.
void LinkOrCopy(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path target = to / entry.path().filename();
    if (entry.is_directory()) {
      LinkOrCopy(entry.path(), target);
      continue;
    }
    std::error_code no_link;
    const fs::path file = fs::canonical(entry.path());
    fs::create_hard_link(file, target, no_link);
    if (no_link) fs::copy_file(file, target);
  }
}

// A server never reads half of it.
void Replace(const fs::path& folder, const ModelWriter& write) {
  const fs::path part = folder.string() + ".part";
  try {
    fs::remove_all(part);
    write(part);
    local::ReplaceFolder(folder, part);
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::kBroken,
                fmt::format("{}: cannot be written: {}", folder.string(), error.code().message()),
                "free disk space; --resume continues");
  }
}

}  // namespace

ModelWriter CopyOf(const fs::path& model) {
  return [model](const fs::path& folder) { LinkOrCopy(model, folder); };
}

ServedSampler::ServedSampler(std::string name, std::string run, const OnlineSettings& settings,
                             const fs::path& model, fs::path folder, bool is_first, int64_t context)
    : name_(std::move(name)), run_(std::move(run)), folder_(fs::absolute(folder).lexically_normal()) {
  if (is_first && !fs::exists(folder_)) Replace(folder_, CopyOf(model));
  const PolicyOptions options = OnlinePolicyOptions(settings, context);
  options_ = RemoteOptionsFor(settings.sampler, options);
  options_.token_ids = TokenMode::kChat;
  client_ = MakeRemotePolicy(options_);
  const WindowShare share = ShareWindow(options, context, std::nullopt);
  settings_ = {SamplingFor(options, share.max_tokens), share.prompt_tokens};
  client_->RequireSampling(settings_.sampling);
  client_->RequireLogprobsOf(settings_.sampling);
}

std::string ServedSampler::Load(const ModelWriter& write, int64_t steps) {
  Replace(folder_, write);
  const std::string called =
      remote::UpdateWeights(options_.endpoint, options_.key, options_.ca_file, folder_);
  steps_ = steps;
  return called;
}

Completion ServedSampler::Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) {
  Completion completion = client_->Complete(request, cancel, on_text);
  completion.model = VersionedModel(options_.endpoint.model, steps_);
  completion.identity.weights_version = steps_;
  completion.identity.weights_hash = VersionedModel(run_, steps_);
  return completion;
}

}  // namespace kevin
