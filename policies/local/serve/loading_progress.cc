#include "policies/local/serve/loading_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

namespace kevin::local {
namespace {

constexpr std::chrono::seconds kPause{2};

}  // namespace

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kilobytes = 0; file >> name >> kilobytes;) {
    if (name == "MemAvailable:") return kilobytes * 1024;
    std::getline(file, unit);
  }
  return 0;
}

LoadingProgress::LoadingProgress(int64_t bytes, std::function<void(const std::string&)> say)
    : bytes_(std::max<int64_t>(1, bytes)),
      before_(ResidentBytes()),
      say_(std::move(say)),
      thread_([this] { Tick(); }) {}

LoadingProgress::~LoadingProgress() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void LoadingProgress::Tick() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kPause, [this] { return over_; })) {
    const double share = static_cast<double>(ResidentBytes() - before_) / static_cast<double>(bytes_);
    say_(fmt::format("loading: about {:.0f} %", 100 * std::clamp(share, 0.0, 0.99)));
  }
}

}  // namespace kevin::local
