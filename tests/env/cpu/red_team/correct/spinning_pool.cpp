// A pool of its own whose thread spins for 10 us after each call before it sleeps.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
static std::atomic<int> wanted{0}, finished{0};
static const float* from = nullptr;
static float* to = nullptr;
static double NowUs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
static void Wait(std::atomic<int>& word, int old) {
  const double start_us = NowUs();
  while (word.load(std::memory_order_acquire) == old) {
    if (NowUs() < start_us + 10) continue;
    syscall(SYS_futex, reinterpret_cast<int*>(&word), FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
  }
}
static void Set(std::atomic<int>& word, int value) {
  word.store(value, std::memory_order_seq_cst);
  syscall(SYS_futex, reinterpret_cast<int*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
static void Part(long begin, long end) {
  for (long i = begin; i < end; ++i) to[i] = from[i] > 0 ? from[i] : 0;
}
extern "C" void launch(const float* x, float* out) {
  static int call = 0;
  static std::thread worker([] {
    for (int seen = 0;; ++seen) {
      Wait(wanted, seen);
      Part(0, B * N / 2);
      Set(finished, seen + 1);
    }
  });
  from = x;
  to = out;
  Set(wanted, ++call);
  Part(B * N / 2, B * N);
  Wait(finished, call - 1);
}
