#pragma once
// The shared control page: how the trusted side, which owns the clock, starts the calls of a timed process
// (the candidate's runner or the reference process). Both timed processes use this code, so that its cost is
// the same.
//
// One batch: the trusted side fills `calls` and `slot`, increments `go` and continues the process, which is
// stopped between batches (env/cpu/batch_process.h); the process makes the calls in that order, counts them in
// `returned`, and sets `done` to the value of `go`. A hostile candidate can write
// to this page: the trusted side takes its values only as a signal to check.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <utility>

namespace kevin {

inline constexpr int kMaxSlots = 256;  // calls of a batch
inline constexpr int kMaxArguments = 64;
inline constexpr int kMaxOutputs = 8;

inline constexpr int kMaxDims = 8;  // of an output of a Python worker
inline constexpr size_t kMessageBytes = 4096;

// The last three: what a Python worker (env/python/worker.py) says of a call; `message` has the text.
enum class PageState : uint32_t {
  kStarting = 0,
  kReady = 1,
  kLoadFailed = 2,
  kRaised = 3,
  kWrongOutput = 4,
  kRefused = 5
};
// kPublish: reference process only. kEmpty: a batch of calls that compute nothing, of a reference worker. kExamine: calls whose
// kernels are recorded, of a candidate's worker on a GPU (env/python/gpu_first_calls.py).
enum class PageCommand : uint32_t { kRun = 0, kPublish = 1, kEmpty = 2, kExamine = 3 };

struct SharedControlPage {
  alignas(64) std::atomic<uint32_t> go;
  alignas(64) std::atomic<uint32_t> done;
  alignas(64) std::atomic<uint32_t> returned;
  alignas(64) std::atomic<uint32_t> state;
  std::atomic<uint64_t> fault_address;  // of a crash, written by the runner's signal handler
  PageCommand command;
  uint32_t calls;
  uint16_t slot[kMaxSlots];
  // Reference process and Python workers: the outputs of each call, in the arena of the process.
  uint64_t published_offset[kMaxSlots][kMaxOutputs];
  char message[kMessageBytes];  // the reason of kLoadFailed and of the states after it
  // Python workers: whether an output is not contiguous, and then its strides in elements.
  uint32_t is_strided[kMaxSlots][kMaxOutputs];
  int64_t published_stride[kMaxSlots][kMaxOutputs][kMaxDims];
};

inline void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Waits until *word differs from `seen`. False after `timeout_s`; a negative timeout_s waits without limit.
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

using LaunchFunction = void (*)();

namespace invoke_internal {

template <size_t... I>
void Call(LaunchFunction function, void* const* arguments, std::index_sequence<I...>) {
  using Typed = void (*)(decltype(static_cast<void*>(arguments[I]))...);
  reinterpret_cast<Typed>(function)(arguments[I]...);
}

template <size_t N>
void CallN(LaunchFunction function, void* const* arguments) {
  Call(function, arguments, std::make_index_sequence<N>{});
}

template <size_t... N>
constexpr auto Table(std::index_sequence<N...>) {
  return std::array<void (*)(LaunchFunction, void* const*), sizeof...(N)>{&CallN<N>...};
}

}  // namespace invoke_internal

// Calls a C function that takes `count` pointers, 0 <= count <= kMaxArguments.
inline void Invoke(LaunchFunction function, void* const* arguments, size_t count) {
  static constexpr auto kTable = invoke_internal::Table(std::make_index_sequence<kMaxArguments + 1>{});
  kTable[count](function, arguments);
}

}  // namespace kevin
