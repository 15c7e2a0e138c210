#include "env/cpu/diagnose.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <optional>

#include "env/cpu/hardware_counters.h"
#include "env/cpu/peak.h"
#include "env/cpu/thread_samples.h"
#include "env/process/machine.h"
#include "env/verdict/estimate.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kColdBatch_us = 3000, kWarmBatch_us = 6000;
constexpr size_t kColdBatches = 3;
constexpr int kSamples = 150, kLeastSamples = 40,
              kMostSampledBatches = 100;  // moments: each shows all threads
constexpr double kSamplingCpu_s = 0.1;
constexpr double kLeastBetween_us = 150;  // between two samples

// Of this process.
double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Page faults of a process since it started, as the kernel counts them.
std::optional<double> PageFaults(pid_t pid) {
  constexpr size_t kMinor = 7, kMajor = 9;
  const std::vector<std::string> stat = ProcessStat(pid);
  if (stat.size() <= kMajor) return std::nullopt;
  return std::atof(stat[kMinor].c_str()) + std::atof(stat[kMajor].c_str());
}

class DiagnosisOfLibrary {
 public:
  DiagnosisOfLibrary(Session& session, int library_fd) : session_(session), library_fd_(library_fd) {}

  DiagnosisRun Run() {
    const DeviceLock lock("cpu", LockMode::kExclusive, nullptr);
    start_ = Clock::now();
    cpu_before_s_ = CpuSeconds();
    try {
      run_.found.threads = session_.options().threads;
      if (session_.is_python()) {
        StagesAlone();
      } else {
        WithAllThreads();
        if (run_.found.threads > 1) WithOneThread();
      }
    } catch (const Ended& ended) {
      run_.failure = OutcomeReason(ended.outcome);
    }
    return std::move(run_);
  }

 private:
  // Whether work of so much wall time, with all threads, stays within the budget.
  bool Fits(double us) const {
    const double used_s =
        CpuSeconds() - cpu_before_s_ + (running_ ? running_->process().CpuSeconds() : 0) + ended_s_;
    const double more_s = us * 1e-6 * session_.options().threads;
    return used_s + more_s < kDiagnosisCpu_s && SecondsSince(start_) + us * 1e-6 < kDiagnosisWall_s;
  }

  std::vector<uint16_t> DrawnSlots(double call_us, double batch_us) {
    const double calls =
        std::clamp(std::ceil(batch_us / std::max(call_us, 1.0)), 1.0, 1.0 * session_.slots());
    std::vector<uint16_t> slots = session_.DrawSlots(static_cast<int>(calls));
    session_.FillInputs(slots);
    session_.RestoreInOuts(session_.CandidateOutputs(), slots);
    return slots;
  }

  double ColdUs(TimedProcess& process, std::span<const uint16_t> slots) {
    FlushCaches(session_.options().threads);
    return process.Run(slots, "diagnosis") / static_cast<double>(slots.size());
  }

  // The median of up to three batches.
  double ColdMedianUs(TimedProcess& process, std::span<const uint16_t> slots) {
    std::vector<double> times_us{ColdUs(process, slots)};
    while (times_us.size() < kColdBatches && Fits(times_us[0] * static_cast<double>(slots.size())))
      times_us.push_back(ColdUs(process, slots));
    return Median(times_us);
  }

  void WithAllThreads() {
    OutputMemory& outputs = session_.CandidateOutputs();
    TimedProcess process(session_, "candidate", library_fd_, outputs);
    running_ = &process;
    const std::vector<uint16_t> first = DrawnSlots(session_.reference_us(), kColdBatch_us);
    const double call_us = process.Run(first, "diagnosis") / static_cast<double>(first.size());
    const std::vector<uint16_t> slots = DrawnSlots(call_us, kColdBatch_us);
    const auto faults = PageFaults(process.process().pid());
    HardwareCounting counting(process.process().pid());
    cold_us_ = ColdUs(process, slots);
    run_.found.counters = counting.Read(static_cast<double>(slots.size()));
    if (const auto after = PageFaults(process.process().pid()); faults && after)
      run_.found.page_faults = (*after - *faults) / static_cast<double>(slots.size());
    run_.found.cold_us = cold_us_ = ColdMedianUs(process, slots);
    run_.log = process.Log();
    Sample(process, slots);
    Warm(process, slots[0]);
    ended_s_ = process.process().CpuSeconds();
    running_ = nullptr;
  }

  // Of a Python worker: the log with the times of its stages.
  void StagesAlone() {
    TimedProcess process(session_, "candidate", library_fd_, session_.CandidateOutputs());
    running_ = &process;
    const std::vector<uint16_t> first = DrawnSlots(session_.reference_us(), kColdBatch_us);
    const double call_us = process.Run(first, "diagnosis") / static_cast<double>(first.size());
    ColdMedianUs(process, DrawnSlots(call_us, kColdBatch_us));
    run_.log = process.Log();
    running_ = nullptr;
  }

  // How long a batch takes is known from the least of its times: other work on the machine stretches them, and what is
  // planned for the end of a stretched batch does not happen. What sampling costs is CPU time of the process.
  void Sample(TimedProcess& process, std::span<const uint16_t> slots) {
    ThreadSampler sampler(process.process().pid());
    double batch_us = cold_us_ * static_cast<double>(slots.size());
    const double before_s = process.process().CpuSeconds();
    const auto is_enough = [&](int moments) {
      return moments >= kSamples ||
             (moments >= kLeastSamples && process.process().CpuSeconds() - before_s >= kSamplingCpu_s);
    };
    int moments = 0;
    for (int batch = 0; batch < kMostSampledBatches && !is_enough(moments) && Fits(batch_us); ++batch) {
      BatchPauses pauses;
      const double between_us = std::max(kLeastBetween_us, batch_us / kSamples);
      double at_us = between_us * Random();
      for (int left = kSamples - moments; at_us < batch_us && left > 0; --left) {
        pauses.moments_us.push_back(at_us);
        at_us += between_us * (0.5 + Random());
      }
      double ran_us = batch_us;
      pauses.on_pause = [&](double) { sampler.Take(), ++moments; };
      pauses.ran_us = &ran_us;
      FlushCaches(session_.options().threads);
      process.Run(slots, "diagnosis", pauses);
      batch_us = std::min(batch_us, ran_us);
    }
    TakeSamples(sampler.samples());
  }

  double Random() { return static_cast<double>(session_.random()() >> 11) * 0x1p-53; }

  void TakeSamples(const ThreadSamples& samples) {
    const int all = samples.All();
    if (all == 0) return;
    ThreadShares& where = run_.found.where;
    const auto share = [all](int count) { return static_cast<double>(count) / all; };
    where.samples = all;
    where.waiting = share(samples.waiting);
    where.math = share(samples.math);
    where.system = share(samples.system);
    where.kernel = share(all - samples.waiting - samples.math - samples.library - samples.binding -
                         samples.products - samples.system - samples.elsewhere);
    run_.addresses = samples.in_candidate;
  }

  // The same slot again and again.
  void Warm(TimedProcess& process, uint16_t slot) {
    const double calls = std::clamp(std::ceil(kWarmBatch_us / std::max(cold_us_, 1.0)), 2.0, 64.0);
    if (!Fits(2 * calls * cold_us_)) return;
    const std::vector<uint16_t> slots(static_cast<size_t>(calls), slot);
    double best_us = 0;
    for (int i = 0; i < 2; ++i) {
      const double us = process.Run(slots, "diagnosis") / calls;
      best_us = i == 0 ? us : std::min(best_us, us);
    }
    run_.found.warm_us = best_us;
  }

  void WithOneThread() {
    constexpr double kStart_us = 60'000;
    const double batch_us = std::max(kColdBatch_us, cold_us_);
    if (!Fits(kStart_us + 2 * batch_us * run_.found.threads)) return;
    TimedProcess process(session_, "candidate", library_fd_, session_.CandidateOutputs(), 1);
    running_ = &process;
    const std::vector<uint16_t> slots = DrawnSlots(cold_us_, kColdBatch_us);
    process.Run(slots, "diagnosis");
    run_.found.one_thread_us = ColdMedianUs(process, slots);
    running_ = nullptr;
  }

  Session& session_;
  int library_fd_;
  Clock::time_point start_;
  double cpu_before_s_ = 0, ended_s_ = 0;  // of this process; of candidates that have ended
  TimedProcess* running_ = nullptr;
  double cold_us_ = 0;
  DiagnosisRun run_;
};

}  // namespace

DiagnosisRun DiagnoseLibrary(Session& session, int library_fd) {
  return DiagnosisOfLibrary(session, library_fd).Run();
}

}  // namespace kevin
