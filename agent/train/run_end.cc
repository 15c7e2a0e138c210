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
      drain_{asked_to_drain, kEnding},
      stop_{asked_to_stop, kEndingNow},
      thread_([this](const std::stop_token& end) { Watch(end); }) {}

void RunEnd::Watch(const std::stop_token& end) {
  while (!end.stop_requested()) {
    Share(&drain_);
    Share(&stop_);
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, end, kCheck, [] { return false; });
  }
}

void RunEnd::Share(Wish* wish) const {
  if (wish->is_told) return;
  const fs::path path = folder_ / wish->file;
  std::error_code unreadable;
  if (!folder_.empty()) wish->is_told = fs::exists(path, unreadable);
  if (!wish->is_told && !*wish->asked) return;
  // The folder may be made later than this rank is asked: until the file is there, it is tried again.
  if (!wish->is_told && !folder_.empty()) std::ofstream(path).flush();
  wish->token = true;
}

void RunEnd::Forget(const fs::path& folder) {
  std::error_code ignored;
  for (const char* file : {kEnding, kEndingNow}) fs::remove(folder / file, ignored);
}

}  // namespace kevin
