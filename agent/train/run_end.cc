#include "agent/train/run_end.h"

#include <chrono>
#include <fstream>
#include <system_error>
#include <utility>

namespace kevin {
namespace fs = std::filesystem;
namespace {

constexpr const char *kEnding = "ending", *kEndingNow = "ending-now";
constexpr std::chrono::milliseconds kCheck{100};

}  // namespace

RunEnd::RunEnd(fs::path folder, const CancelToken* asked_to_drain, const CancelToken* asked_to_stop)
    : folder_(std::move(folder)),
      asked_to_drain_(asked_to_drain),
      asked_to_stop_(asked_to_stop),
      thread_([this](const std::stop_token& end) { Watch(end); }) {}

void RunEnd::Watch(const std::stop_token& end) {
  while (!end.stop_requested()) {
    Share(asked_to_drain_, kEnding, &drain_);
    Share(asked_to_stop_, kEndingNow, &stop_);
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, end, kCheck, [] { return false; });
  }
}

void RunEnd::Share(const CancelToken* asked, const char* file, CancelToken* ours) const {
  if (*ours) return;
  const fs::path path = folder_ / file;
  std::error_code unreadable;
  const bool by_other = !folder_.empty() && fs::exists(path, unreadable);
  if (!by_other && !*asked) return;
  // Where it cannot be written, the others learn of it when the ranks meet.
  if (!by_other && !folder_.empty()) std::ofstream(path).flush();
  *ours = true;
}

void RunEnd::Forget(const fs::path& folder) {
  std::error_code ignored;
  for (const char* file : {kEnding, kEndingNow}) fs::remove(folder / file, ignored);
}

}  // namespace kevin
