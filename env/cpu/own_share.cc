#include "env/cpu/own_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace kevin {
namespace {

constexpr int kMoments = 60;                                  // of one batch
constexpr int kEnough = 60, kMostSeen = 600, kLeastSeen = 6;  // samples in kernels
constexpr int kMostBatches = 1000;
constexpr int kBatchesOfMappings = 8;  // then they are read again
constexpr double kUsual_us = 800'000, kLongest_us = 5'000'000, kLeastBetweenMoments_us = 150;
constexpr double kStandardErrors = 3;  // looked at after each batch
// Of interpreted kernels: samples in numpy for each one in Triton's library. A short kernel has 3, one that computes 400 times
// between a load and a store 100.
constexpr int kMostForLoad = 50;
// Of interpreted kernels: with fewer samples numpy alone could count as one kernel between two loads.
constexpr int kLeastSeenInterpreted = kEnough;
static_assert(kLeastSeenInterpreted > kMostForLoad);

}  // namespace

std::optional<double> OwnShare::Value() const {
  if (own + library < std::max(1, least_seen)) return std::nullopt;
  return static_cast<double>(own) / (own + library);
}

std::string OwnShare::Libraries() const {
  std::vector<std::pair<int, std::string>> sorted;
  for (const auto& [name, count] : by_library) sorted.emplace_back(-count, name);
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (const auto& [less, name] : sorted) {
    const double percent = -100.0 * less / (own + library);
    if (percent >= 1) text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name, percent);
  }
  return text;
}

OwnShare CountOwnShare(const ThreadSamples& samples, KernelForm form) {
  OwnShare share;
  share.own = std::accumulate(samples.in_candidate.begin(), samples.in_candidate.end(), 0,
                              [](int sum, const auto& at) { return sum + at.second; });
  share.library = samples.library + samples.products;
  share.by_library = samples.by_library;
  share.least_seen = form == KernelForm::kInterpreted ? kLeastSeenInterpreted : kLeastSeen;
  share.all = samples.All();
  share.moments = samples.moments;
  share.unreadable = samples.unreadable;
  int computing = samples.elsewhere - samples.python;
  for (const auto& [name, count] : samples.foreign) {
    if (form == KernelForm::kInterpreted && name == kNumpy) continue;
    share.library += count;
    share.by_library[name] += count;
    computing -= count;
  }
  if (form == KernelForm::kInterpreted) {
    const int interpreted = std::min(computing, kMostForLoad * (samples.triton + 1));
    share.own += samples.python + interpreted;
    share.library += computing - interpreted;
    if (computing > interpreted) share.by_library[kNumpy] += computing - interpreted;
  }
  return share;
}

bool IsShareOpen(const OwnShare& share, double least) {
  const int seen = share.own + share.library;
  if (!share.Value()) return true;
  const double error = std::sqrt(least * (1 - least) / seen);
  return std::abs(*share.Value() - least) < kStandardErrors * error;
}

OwnShare MeasureOwnShare(Session& session, TimedProcess& process, int own_libraries_fd,
                         std::span<const uint16_t> slots, KernelForm form) {
  const auto random = [&] { return static_cast<double>(session.random()() >> 11) * 0x1p-53; };
  double batch_us = process.Run(slots, "verify"), used_us = 0;
  ThreadSampler sampler(process.process().pid(),
                        {BuiltLibraries(own_libraries_fd), FoldersOf(session.options().workers->setup())});
  OwnShare share;
  // On a busy machine most samples show threads that wait for a processor or for each other; of short kernels most show
  // Python.
  const auto is_enough = [&] {
    const int seen = share.own + share.library;
    if (seen >= kMostSeen || used_us >= kLongest_us) return true;
    if (form == KernelForm::kInterpreted && seen < kLeastSeenInterpreted) return false;
    if (!IsShareOpen(share, session.sized().problem->least_own_share))
      return seen >= kEnough || used_us >= kUsual_us;
    return false;
  };
  for (int batch = 0; batch < kMostBatches && !is_enough(); ++batch) {
    BatchPauses pauses;
    for (double at_us = batch_us * random() / 4; at_us < batch_us;) {
      pauses.moments_us.push_back(at_us);
      at_us += std::max(kLeastBetweenMoments_us, batch_us / kMoments) * (0.5 + random());
    }
    pauses.on_pause = [&](double) { sampler.Take(); };
    if (batch % kBatchesOfMappings == 0) sampler.ForgetMappings();
    const double ran_us = process.Run(slots, "verify", pauses);
    used_us += ran_us;
    batch_us = std::min(batch_us, ran_us);
    share = CountOwnShare(sampler.samples(), form);
  }
  return share;
}

}  // namespace kevin
