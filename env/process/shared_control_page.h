#pragma once
// The shared control page: how the trusted side, which owns the clock, asks a process for a batch of calls. The runner of a
// candidate and the reference process use exactly this code, so that both pay the same.
//
// One batch: the trusted side fills `calls` and `slot`, then increments `go`. The process makes the calls in that order,
// counts `returned`, and sets `done` to the value of `go`. A hostile candidate can write all of it: nothing read from it is
// believed beyond "look now".

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

namespace kevin {

inline constexpr int kMaxSlots = 256;  // calls in one batch at most
inline constexpr int kMaxArguments = 64;
inline constexpr int kMaxOutputs = 4;

enum class PageState : uint32_t { kStarting = 0, kReady = 1, kLoadFailed = 2 };
enum class PageCommand : uint32_t { kRun = 0, kPublish = 1 };  // kPublish: the reference process only

struct SharedControlPage {
  alignas(64) std::atomic<uint32_t> go;
  alignas(64) std::atomic<uint32_t> done;
  alignas(64) std::atomic<uint32_t> returned;
  alignas(64) std::atomic<uint32_t> state;
  std::atomic<uint64_t> fault_address;  // of a crash, noted by the handler of the runner
  PageCommand command;
  uint32_t calls;
  uint16_t slot[kMaxSlots];
  uint64_t published_offset[kMaxSlots][kMaxOutputs];  // reference process: places of each call's outputs
  char message[1024];                                 // why loading failed
};

inline void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Waits until *word differs from `seen`. False when `timeout_s` (>= 0) ran out; negative: waits without limit.
inline bool FutexWaitWhile(std::atomic<uint32_t>* word, uint32_t seen, double timeout_s) {
  timespec deadline{};
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  const auto nanoseconds = static_cast<int64_t>((timeout_s < 0 ? 0 : timeout_s) * 1e9) + deadline.tv_nsec;
  deadline.tv_sec += nanoseconds / 1'000'000'000;
  deadline.tv_nsec = nanoseconds % 1'000'000'000;
  while (word->load(std::memory_order_acquire) == seen) {
    // FUTEX_WAIT_BITSET takes an absolute time.
    const long result = syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_BITSET, seen,
                                timeout_s < 0 ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
    if (result != 0 && errno == ETIMEDOUT) return word->load(std::memory_order_acquire) != seen;
  }
  return true;
}

}  // namespace kevin
