#include "policies/local/train/split_sampling.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "env/error.h"

namespace kevin::local {
namespace {

constexpr double kMeetSeconds = 50;

std::string HostName() {
  char host[256] = "host";
  gethostname(host, sizeof(host) - 1);
  return host;
}

}  // namespace

SplitSampling::SplitSampling(const Parts& parts, const SamplingOptions& sampling, OnFailure on_failure)
    : parts_(parts), model_(parts.model, parts.sums) {
  Refresh();
  const TorchRunnerOptions options = AgreedOptions(sampling);
  Socket socket = Meet(sampling.socket + ".ranks");
  if (link_) {
    auto leader = std::make_unique<SplitLeader>(model_, options, link_, std::move(on_failure));
    sampled_ = std::make_unique<SampledModel>(
        std::move(leader), [this] { Refresh(); }, parts_.trainer.options(), sampling,
        parts_.trainer.StepsDone());
    url_ = sampled_->Url(), name_ = sampled_->Name(), context_ = sampled_->ContextTokens();
  } else {
    follower_ = std::make_unique<SplitFollower>(model_, options, std::move(socket), parts_.ranks.Rank(),
                                                std::move(on_failure));
  }
  const nlohmann::json own = {{"url", url_}, {"name", name_}, {"context", context_}};
  const nlohmann::json first = nlohmann::json::parse(ExchangeTexts(parts_.ranks, own.dump()).front());
  url_ = first.at("url"), name_ = first.at("name"), context_ = first.at("context");
}

SplitSampling::~SplitSampling() = default;

// From the shards, layer by layer.
void SplitSampling::Refresh() {
  model_.Refresh([this](const auto& visit) { parts_.trainer.VisitLayers(visit); });
}

// The cache has as many pages as fit on each rank.
TorchRunnerOptions SplitSampling::AgreedOptions(const SamplingOptions& sampling) {
  TorchRunnerOptions options;
  OnAllRanks(parts_.ranks, [&] { options = RunnerOptionsFor(model_.Slice(), sampling); });
  at::Tensor fewest = at::tensor({-static_cast<double>(options.pages)}, at::kDouble);
  parts_.ranks.Largest(&fewest);
  options.pages = static_cast<int>(-fewest.item<double>());
  return options;
}

// On rank 0 makes link_; on others returns the connection to it.
Socket SplitSampling::Meet(const std::string& path) {
  const int rank = parts_.ranks.Rank();
  OnAllRanks(parts_.ranks, [&] {
    if (rank == 0) link_ = std::make_shared<SplitLink>(path);
  });
  const nlohmann::json own = {{"host", HostName()}, {"path", path}};
  const std::vector<std::string> all = ExchangeTexts(parts_.ranks, own.dump());
  const nlohmann::json first = nlohmann::json::parse(all.front());
  for (size_t other = 1; other < all.size(); ++other) {
    const nlohmann::json about = nlohmann::json::parse(all[other]);
    if (about.at("host") == first.at("host")) continue;
    throw Error(ExitCode::kBadRequest,
                fmt::format("ranks that sample together are on one host: rank 0 is on {}, rank {} on {}",
                            first.at("host").get<std::string>(), other, about.at("host").get<std::string>()),
                "start all ranks on one host, or leave out --split-sampler");
  }
  Socket socket;
  OnAllRanks(parts_.ranks, [&] {
    if (rank == 0) {
      link_->Accept(parts_.ranks.Size(), kMeetSeconds);
    } else {
      socket = ConnectToFirst(first.at("path"), rank);
    }
  });
  return socket;
}

void SplitSampling::SetRun(const std::string& run) {
  if (sampled_) sampled_->SetRun(run);
}

double SplitSampling::Update(int64_t version, const std::function<void()>& update) {
  if (sampled_) return sampled_->Update(version, update);
  follower_->Update([&] {
    update();
    Refresh();
  });
  return 0;
}

void SplitSampling::Leave(const std::string& why) {
  if (link_) link_->End(fmt::format("it has ended: {}", why));
}

}  // namespace kevin::local
