#include "env/cpu/peak.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <thread>
#include <vector>

#include "env/process/machine.h"

namespace kevin {
namespace {

constexpr double kMargin =
    1.3;  // the best of a few passes on a shared machine may be below the peak by this factor

// Units of lower precision and matrix units do more per cycle than fp32 FMA; 4x covers what x86-64 cores
// without matrix units have (bf16 dot: 2x, int8 dot: 4x), 16x those with AMX.
double LowPrecisionFactor() { return CpuFeatures().find("amx_tile") != std::string::npos ? 16 : 4; }

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) float SumOf(const float* data,
                                                                                          int64_t count) {
  float lanes[64] = {};
  for (int64_t i = 0; i + 64 <= count; i += 64) {
    for (int64_t j = 0; j < 64; ++j) lanes[j] += data[i + j];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) float MultiplyAdd(
    int64_t rounds) {
  constexpr int kLanes = 160;  // ten wide accumulators hide the latency
  float lanes[kLanes];
  for (int j = 0; j < kLanes; ++j) lanes[j] = static_cast<float>(j);
  for (int64_t i = 0; i < rounds; ++i) {
    for (float& lane : lanes) lane = lane * 0.999F + 0.001F;
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// CPU seconds of the fastest thread for work(thread). Not wall time: with other programs on the machine the
// peak would come out too low, and times of correct kernels would count as impossible.
template <typename Work>
double SecondsOn(int threads, const Work& work) {
  std::vector<double> seconds(static_cast<size_t>(threads));
  const auto timed = [&](int t) {
    const double start_s = ThreadCpuSeconds();
    work(t);
    seconds[static_cast<size_t>(t)] = ThreadCpuSeconds() - start_s;
  };
  std::vector<std::jthread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(timed, t);
  timed(0);
  others.clear();
  return *std::min_element(seconds.begin(), seconds.end());
}

volatile float sink;

// The share of these processors, from the kernel; cpuid may report a whole socket.
int64_t LastLevelCacheBytes() {
  std::ifstream size("/sys/devices/system/cpu/cpu0/cache/index3/size");
  int64_t kib = 0;
  size >> kib;
  return std::clamp<int64_t>(kib << 10, int64_t{16} << 20, int64_t{128} << 20);
}

}  // namespace

Peak MeasurePeak(int64_t working_set_bytes, int threads) {
  const int64_t count = std::max<int64_t>(working_set_bytes / 4, 1 << 14);
  const std::vector<float> data(static_cast<size_t>(count), 1.0F);
  const int64_t passes = std::max<int64_t>(1, (int64_t{16} << 20) / count);  // long enough to time
  Peak peak;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double read_s = SecondsOn(threads, [&](int t) {
      const int64_t part = count / threads;
      for (int64_t p = 0; p < passes; ++p) sink = SumOf(data.data() + t * part, part);
    });
    peak.bytes_per_s = std::max(peak.bytes_per_s, static_cast<double>(4 * count * passes) / read_s * kMargin);
    constexpr int64_t kRounds = 20'000;
    const double compute_s = SecondsOn(threads, [](int) { sink = MultiplyAdd(kRounds); });
    const double flops = 2.0 * 160 * kRounds * threads / compute_s;
    peak.flops_per_s = std::max(peak.flops_per_s, flops * LowPrecisionFactor() * kMargin);
  }
  return peak;
}

void FlushCaches(int threads) {
  // The last level of a large server (480 MiB seen) holds a whole batch for both sides alike and takes longer
  // to flush than the batch takes to run. Only the caches near the cores must be flushed of the other side's
  // data.
  static constexpr int64_t kMostBytes = int64_t{128} << 20;
  static constexpr size_t kPage = 4096;
  // In small pages: that many of them flush translations of addresses too.
  static const std::vector<float> kFiller = [] {
    std::vector<float> filler;
    filler.reserve(static_cast<size_t>(std::min(2 * LastLevelCacheBytes(), kMostBytes) / 4));
    const auto begin = (reinterpret_cast<uintptr_t>(filler.data()) + kPage - 1) / kPage * kPage;
    madvise(reinterpret_cast<void*>(begin), filler.capacity() * 4 / kPage * kPage - kPage, MADV_NOHUGEPAGE);
    filler.resize(filler.capacity(), 1.0F);
    return filler;
  }();
  const auto part = static_cast<int64_t>(kFiller.size()) / threads;
  SecondsOn(threads, [&](int t) { sink = SumOf(kFiller.data() + t * part, part); });
}

void FlushTranslations(int threads) {
  constexpr size_t kPage = 4096, kPages = 1 << 15;
  // All of one page of zeros: neighbours that lie side by side in memory share a translation.
  static const void* const kRegion = [] {
    void* region = mmap(nullptr, kPages * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region != MAP_FAILED) madvise(region, kPages * kPage, MADV_NOHUGEPAGE);
    return region;
  }();
  if (kRegion == MAP_FAILED) return;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return;
  std::vector<std::jthread> walkers;
  for (int cpu = 0; cpu < CPU_SETSIZE && static_cast<int>(walkers.size()) < threads; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    walkers.emplace_back([cpu] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof(one), &one);
      const auto* bytes = static_cast<const volatile char*>(kRegion);
      for (size_t page = 0; page < kPages; ++page) static_cast<void>(bytes[page * kPage]);
    });
  }
}

}  // namespace kevin
