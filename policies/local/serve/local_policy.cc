#include "policies/local/serve/local_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "policies/remote/json.h"

namespace kevin::local {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "local:";
constexpr std::array<std::string_view, 5> kOptions = {"device", "dtype", "quantization", "max-context",
                                                      "seed"};
constexpr int kMostAttempts = 3;

std::vector<std::string> ArgumentsOf(const LocalSpec& spec) {
  std::vector<std::string> arguments = {spec.folder.string()};
  for (const auto& [name, value] : spec.options) arguments.push_back(fmt::format("--{}={}", name, value));
  return arguments;
}

}  // namespace

RemoteOptions LocalClientOptions(const std::string& model, const std::string& url, RemoteOptions options) {
  options.endpoint = remote::ParseSpec("openai:" + model + "@" + url, "");
  options.key.clear();
  options.token_ids = TokenMode::kChat;
  options.attempts = std::min(options.attempts, kMostAttempts);
  options.first_delay_s = 0.2;
  remote::Json extra = {{"logprobs_mode", "processed_logprobs"}};
  if (const auto given = remote::ParseJson(options.extra.empty() ? "{}" : options.extra))
    extra.merge_patch(*given);
  if (extra.is_object()) options.extra = extra.dump();
  return options;
}

std::string LocalSpec::Text() const {
  std::string text = std::string(kPrefix) + folder.string();
  char separator = '?';
  for (const auto& [name, value] : options) {
    text += fmt::format("{}{}={}", separator, name, value);
    separator = '&';
  }
  return text;
}

bool IsLocalSpec(const std::string& spec) { return spec.starts_with(kPrefix); }

LocalSpec ParseLocalSpec(const std::string& spec) {
  const std::string rest = spec.substr(kPrefix.size());
  const size_t query = rest.rfind('?');
  LocalSpec local;
  const std::string folder = rest.substr(0, query);
  std::string options = query == std::string::npos ? "" : rest.substr(query + 1);
  while (!options.empty()) {
    const size_t end = std::min(options.find('&'), options.size());
    const std::string option = options.substr(0, end);
    options.erase(0, end + 1);
    const size_t equals = option.find('=');
    const std::string name = option.substr(0, equals);
    if (equals == std::string::npos || std::find(kOptions.begin(), kOptions.end(), name) == kOptions.end()) {
      throw Error(
          ExitCode::kBadRequest, fmt::format("policy \"{}\": no such option: {}", spec, option),
          fmt::format("there are {}: local:DIR?device=cpu&max-context=4096", fmt::join(kOptions, ", ")));
    }
    local.options[name] = option.substr(equals + 1);
  }
  std::error_code error;
  if (folder.empty() || !fs::is_directory(folder, error)) {
    throw Error(ExitCode::kBadRequest, fmt::format("policy \"{}\": no such folder: {}", spec, folder),
                "give the folder of a model: config.json, tokenizer.json, *.safetensors");
  }
  local.folder = fs::canonical(folder);
  return local;
}

LocalPolicy::LocalPolicy(const LocalSpec& spec, const fs::path& program, RemoteOptions client,
                         const ModelProcess::OnLine& on_line)
    : name_(spec.Text()),
      process_(program, ArgumentsOf(spec), on_line),
      options_(LocalClientOptions(process_.model(), process_.url(), std::move(client))),
      client_(MakeRemotePolicy(options_)) {}

Completion LocalPolicy::Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) {
  try {
    return client_->Complete(request, cancel, on_text);
  } catch (const BudgetReached&) {
    throw;
  } catch (const PromptTooLong&) {
    throw;
  } catch (const Error&) {
    if (const auto failure = process_.PermanentFailure())
      throw Error(ExitCode::kBroken, fmt::format("{}: {}", name_, failure->what()), failure->next_step());
    throw;
  }
}

}  // namespace kevin::local
