#include "env/cpu/measure_ceilings.h"

#include <emmintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "env/process/shared_memory.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBudget_s = 1.5;            // for each of the three measurements
constexpr double kQuietWithoutGain_s = 0.3;  // after which nothing better is expected
constexpr double kGain = 1.005;              // that counts as better
constexpr double kQuiet = 0.985;             // of a window that each thread must have run
constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr int64_t kWindowBytes = int64_t{24} << 20;  // a thread and window

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

#define KEVIN_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

KEVIN_WIDEST float SumOf(const float* data, int64_t count) {
  float lanes[128] = {};
  for (int64_t i = 0; i + 128 <= count; i += 128) {
    for (int64_t j = 0; j < 128; ++j) lanes[j] += data[i + j];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Writes past the caches.
void Copy(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i + 16 <= count; i += 16) {
    for (int64_t j = 0; j < 16; j += 4) _mm_stream_ps(to + i + j, _mm_load_ps(from + i + j));
  }
  _mm_sfence();
}

// Twelve chains hide the latency of two units and leave registers for the constants.
template <typename Vector>
__attribute__((always_inline)) inline float Chains(int64_t rounds) {
  constexpr int kChains = 12, kLanes = sizeof(Vector) / sizeof(float);
  Vector factor, term, chain[kChains];
  for (int l = 0; l < kLanes; ++l) factor[l] = 0.999F, term[l] = 0.001F;
  for (int c = 0; c < kChains; ++c) chain[c] = term * static_cast<float>(c);
  for (int64_t i = 0; i < rounds; ++i) {
    for (int c = 0; c < kChains; ++c) chain[c] = chain[c] * factor + term;
  }
  float sum = 0;
  for (int c = 0; c < kChains; ++c) sum += chain[c][0];
  return sum;
}

typedef float Floats4 __attribute__((vector_size(16)));
typedef float Floats8 __attribute__((vector_size(32)));
typedef float Floats16 __attribute__((vector_size(64)));

__attribute__((target("arch=x86-64-v4"))) float ChainsOf16(int64_t rounds) {
  return Chains<Floats16>(rounds);
}
__attribute__((target("arch=x86-64-v3"))) float ChainsOf8(int64_t rounds) { return Chains<Floats8>(rounds); }
float ChainsOf4(int64_t rounds) { return Chains<Floats4>(rounds); }

struct MultiplyAdd {
  float (*run)(int64_t rounds) = ChainsOf4;
  double flops = 2.0 * 12 * 4;  // a round
};

MultiplyAdd WidestMultiplyAdd() {
  if (__builtin_cpu_supports("avx512f")) return {ChainsOf16, 2.0 * 12 * 16};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {ChainsOf8, 2.0 * 12 * 8};
  return {};
}

volatile float kept;

// The same work in all threads, from one start; again and again.
class Windows {
 public:
  explicit Windows(int threads) : threads_(threads), ran_s_(static_cast<size_t>(threads)) {
    for (int t = 1; t < threads; ++t)
      others_.emplace_back([this, t](const std::stop_token& stop) { Serve(t, stop); });
  }
  ~Windows() {
    for (std::jthread& other : others_) other.request_stop();
    ++window_;
  }

  struct Times {
    double seconds = 0;      // from the start to the end of the last thread
    double cpu_s = 0;        // of the thread that needed most
    double least_share = 0;  // of `seconds` that a thread had its core
  };
  Times Run(const std::function<void(int thread)>& work) {
    work_ = &work;
    arrived_ = done_ = 0;
    ++window_;
    One(0);
    while (done_.load(std::memory_order_acquire) < threads_) sched_yield();
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const auto [least, most] = std::minmax_element(ran_s_.begin(), ran_s_.end());
    return {seconds, *most, *least / seconds};
  }

 private:
  void Serve(int thread, const std::stop_token& stop) {
    for (int seen = 0;;) {
      while (window_.load(std::memory_order_acquire) == seen) {
        if (stop.stop_requested()) return;
        sched_yield();
      }
      seen = window_;
      if (stop.stop_requested()) return;
      One(thread);
    }
  }
  void One(int thread) {
    if (++arrived_ == threads_) start_ = Clock::now();
    while (arrived_.load(std::memory_order_acquire) < threads_) sched_yield();
    const double before_s = ThreadCpuSeconds();
    (*work_)(thread);
    ran_s_[static_cast<size_t>(thread)] = ThreadCpuSeconds() - before_s;
    done_.fetch_add(1, std::memory_order_release);
  }

  int threads_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<int> window_ = 0, arrived_ = 0, done_ = 0;
  Clock::time_point start_;
  std::vector<double> ran_s_;  // by thread
  std::vector<std::jthread> others_;
};

struct Best {
  double rate = 0;  // a second
  bool is_quiet = false;
};

// Arithmetic goes by the time of its thread, which another program cannot take; memory is shared by all threads.
enum class TimedBy { kWall, kThread };

// `amount`: of all threads in one window. `next` is called between windows.
Best BestRate(
    Windows& windows, double amount, TimedBy timed_by, const std::function<void(int thread)>& work,
    const std::function<void()>& next = [] {}) {
  Best quiet, any;
  double quiet_s = 0;  // since the last gain
  for (const auto start = Clock::now();
       quiet_s < kQuietWithoutGain_s &&
       std::chrono::duration<double>(Clock::now() - start).count() < kBudget_s;
       next()) {
    const Windows::Times times = windows.Run(work);
    const double rate = amount / (timed_by == TimedBy::kThread ? times.cpu_s : times.seconds);
    any.rate = std::max(any.rate, rate);
    if (times.least_share < kQuiet) continue;
    quiet_s = rate > quiet.rate * kGain ? 0 : quiet_s + times.seconds;
    quiet = {std::max(quiet.rate, rate), true};
  }
  return quiet.is_quiet ? quiet : any;
}

int64_t LastLevelBytes() {
  for (const char* index : {"3", "2"}) {
    std::ifstream size(std::string("/sys/devices/system/cpu/cpu0/cache/index") + index + "/size");
    int64_t kib = 0;
    if (size >> kib) return kib << 10;
  }
  return int64_t{32} << 20;
}

// Each window works where no window has worked for as long as a cache could keep it. Reading and copying move as many
// bytes; the better one counts.
Best MeasureBandwidth(Windows& windows, int threads) {
  constexpr int64_t kCount = kWindowBytes / 4;
  const int64_t window = kWindowBytes * threads;
  const int64_t places = std::max<int64_t>(4, std::min(4 * LastLevelBytes(), kMostBytes) / window + 1);
  const Fd fd = CreateSharedFile("kevin-bandwidth", static_cast<size_t>(places * window));
  const Mapping memory(fd.get(), static_cast<size_t>(places * window), Access::kReadWrite, true);
  auto* const floats = reinterpret_cast<float*>(memory.data());
  std::fill_n(floats, places * window / 4, 1.0F);
  int64_t turn = 0;
  const auto place = [&](int thread) { return floats + (turn * threads + thread) * kCount; };
  const auto next = [&] { turn = (turn + 1) % places; };
  const Best read = BestRate(
      windows, static_cast<double>(window), TimedBy::kWall,
      [&](int thread) { kept = SumOf(place(thread), kCount); }, next);
  const Best copy = BestRate(
      windows, static_cast<double>(window), TimedBy::kWall,
      [&](int thread) { Copy(place(thread), place(thread) + kCount / 2, kCount / 2); }, next);
  return {std::max(read.rate, copy.rate), read.is_quiet && copy.is_quiet};
}

}  // namespace

Ceilings MeasureCpuCeilings(int threads) {
  Windows windows(threads);
  constexpr int64_t kRounds = 500'000;  // about a millisecond
  const MultiplyAdd multiply_add = WidestMultiplyAdd();
  const Best arithmetic = BestRate(windows, multiply_add.flops * kRounds * threads, TimedBy::kThread,
                                   [&](int) { kept = multiply_add.run(kRounds); });
  const Best memory = MeasureBandwidth(windows, threads);
  Ceilings ceilings;
  ceilings.gb_per_s = memory.rate * 1e-9;
  ceilings.gflop_per_s[kFp32Unit] = arithmetic.rate * 1e-9;
  ceilings.is_quiet = memory.is_quiet && arithmetic.is_quiet;
  return ceilings;
}

}  // namespace kevin
