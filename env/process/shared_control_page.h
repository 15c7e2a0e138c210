#pragma once
// The hand-over between the trusted side, which owns the clock, and a process that runs one side of a pair:
// the candidate's runner or its twin with the reference. Both use exactly this code, so that both pay the
// same.
//
// One batch: the trusted side fills `calls` and `slot`, then bumps `go`; the process makes the calls in that
// order, counting `returned`, and sets `done` to go's value. Everything here lies in memory that a hostile
// candidate can write: nothing read from it is believed beyond "look now".

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

enum class HandoverState : uint32_t { kStarting = 0, kReady = 1, kLoadFailed = 2 };
enum class HandoverCommand : uint32_t { kRun = 0, kPublish = 1 };  // kPublish: the reference's twin only

struct Handover {
  alignas(64) std::atomic<uint32_t> go;
  alignas(64) std::atomic<uint32_t> done;
  alignas(64) std::atomic<uint32_t> returned;
  alignas(64) std::atomic<uint32_t> state;
  std::atomic<uint64_t> fault_address;  // where a crash hit, as the runner's handler noted it
  HandoverCommand command;
  uint32_t calls;
  uint16_t slot[kMaxSlots];
  uint64_t published_offset[kMaxSlots][kMaxOutputs];  // twin: where in its arena each call's outputs lie
  char message[1024];                                 // why loading failed
};

inline void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Waits until *word differs from `seen`. False when `timeout_s` (>= 0) ran out; negative: waits for ever.
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
