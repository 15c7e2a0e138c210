#include "env/gpu/runner/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace kevin {
namespace {

constexpr unsigned kMappedHostMemory = 2;
constexpr unsigned kWaitEqual = 1;
constexpr int kScrubThreads = 1024;
// A gate that is found closed twice is opened. Some transposed convolutions wait in each call. To enqueue the deepest network
// takes some 20 ms.
constexpr std::chrono::milliseconds kGateLook{500}, kEarlyGateLook{50};
constexpr int kLateBeforeEarly = 2;

}  // namespace

Stopwatch::Stopwatch(const StopwatchOptions& options)
    : options_(options),
      flush_(2 * static_cast<size_t>(AttributeOf(options.device, kCuL2Bytes)) + (size_t{8} << 20)),
      multiprocessors_(AttributeOf(options.device, kCuMultiprocessors)),
      scrub_bytes_(AttributeOf(options.device, kCuSharedBytesPerBlockOptin)) {
  KEVIN_CU(EventCreate, &prepared_, 0);
  KEVIN_CU(EventCreate, &start_, 0);
  KEVIN_CU(EventCreate, &end_, 0);
  void* gate = nullptr;
  KEVIN_CU(MemHostAlloc, &gate, 64, kMappedHostMemory);
  gate_ = static_cast<volatile uint32_t*>(gate);
  gate_[0] = 0;
  gate_[1] = 0;
  KEVIN_CU(MemHostGetDevicePointer, &gate_on_device_, gate, 0);
  KEVIN_CU(FuncSetAttribute, options.scrub, kCuMaxDynamicSharedBytes, scrub_bytes_);
  opener_ = std::jthread([this](const std::stop_token& stop) { OpenLateGates(stop); });
}

Stopwatch::~Stopwatch() = default;

void Stopwatch::OpenLateGates(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;
  const auto look = [this] { return late_in_a_row_ < kLateBeforeEarly ? kGateLook : kEarlyGateLook; };
  for (uint32_t seen = 0; !stop.stop_requested(); wake.wait_for(lock, stop, look(), [] { return false; })) {
    const uint32_t closed = closed_.load();
    if (closed != 0 && closed == seen) {
      opened_late_ = closed;
      *gate_ = closed;
    }
    seen = closed;
  }
}

// A block with all of a multiprocessor's shared memory on each of them: nothing of what a kernel left there remains.
void Stopwatch::Scrub(uint64_t seed) const {
  CuLaunchConfig config;
  config.grid_x = 2 * static_cast<unsigned>(multiprocessors_);
  config.block_x = kScrubThreads;
  config.shared_bytes = static_cast<unsigned>(scrub_bytes_);
  config.stream = options_.stream;
  int words = scrub_bytes_ / 4;
  void* arguments[] = {&words, &seed};
  KEVIN_CU(LaunchKernelEx, &config, options_.scrub, arguments, nullptr);
}

void Stopwatch::FlushL2() {
  KEVIN_CU(MemsetD32Async, flush_.data(), ticket_, flush_.bytes() / 4, options_.stream);
}

void Stopwatch::OpenGate() {
  *gate_ = ticket_;
  closed_ = 0;
  const bool was_late = opened_late_.exchange(0) == ticket_;
  late_in_a_row_ = was_late && options_.may_wait ? late_in_a_row_ + 1 : 0;
}

double Stopwatch::TimeUs(const std::function<void()>& enqueue, const TimedWork& work) {
  // Code of an earlier call could write to the gate, but it does not know what opens this one.
  ticket_ = static_cast<uint32_t>(work.seed >> 32);
  while (ticket_ == 0 || ticket_ == *gate_) ++ticket_;
  Scrub(work.seed);
  FlushL2();
  KEVIN_CU(EventRecord, prepared_, options_.stream);
  const auto enqueue_timed = [&] {
    KEVIN_CU(EventRecord, start_, options_.stream);
    enqueue();
    KEVIN_CU(EventRecord, end_, options_.stream);
  };
  if (work.gated) {
    closed_ = ticket_;
    KEVIN_CU(StreamWaitValue32, options_.stream, gate_on_device_, ticket_, kWaitEqual);
  }
  try {
    if (work.gated) enqueue_timed();
    KEVIN_CU(EventSynchronize, prepared_);
    if (work.at_gate) work.at_gate();
  } catch (...) {
    OpenGate();  // else the stream would wait without end
    throw;
  }
  OpenGate();
  if (!work.gated) enqueue_timed();
  KEVIN_CU(StreamSynchronize, options_.stream);
  float milliseconds = 0;
  KEVIN_CU(EventElapsedTime, &milliseconds, start_, end_);
  return static_cast<double>(milliseconds) * 1e3;
}

double Stopwatch::BestUs(int repeats, const std::function<void()>& enqueue) {
  double best_us = TimeUs(enqueue, {});
  for (int i = 1; i < repeats; ++i) best_us = std::min(best_us, TimeUs(enqueue, {}));
  return best_us;
}

void Stopwatch::AwaitNumber(uint32_t number) {
  KEVIN_CU(StreamWriteValue32, options_.stream, gate_on_device_ + sizeof(uint32_t), number, 0);
  while (gate_[1] != number) __builtin_ia32_pause();
}

}  // namespace kevin
