#pragma once
// Says how far a model's loading is while somebody else does it.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace kevin::local {

class LoadingProgress {
 public:
  // `bytes`: that there are to read; how many have been is told by the memory that this process has in use.
  LoadingProgress(int64_t bytes, std::function<void(const std::string&)> say);
  ~LoadingProgress();
  LoadingProgress(const LoadingProgress&) = delete;
  LoadingProgress& operator=(const LoadingProgress&) = delete;

 private:
  void Tick();

  const int64_t bytes_, before_;
  const std::function<void(const std::string&)> say_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

int64_t ResidentBytes();   // of this process
int64_t AvailableBytes();  // of this machine's memory, for new programs; 0: unknown

}  // namespace kevin::local
