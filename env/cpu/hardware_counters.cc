#include "env/cpu/hardware_counters.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>

namespace kevin {
namespace {

Fd OpenCounter(pid_t thread, uint64_t config) {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.config = config;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  return Fd(
      static_cast<int>(syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC)));
}

double SumOfCounters(const std::vector<Fd>& counters) {
  double sum = 0;
  for (const Fd& counter : counters) {
    uint64_t value = 0;
    if (read(counter.get(), &value, sizeof(value)) == sizeof(value)) sum += static_cast<double>(value);
  }
  return sum;
}

}  // namespace

HardwareCounting::HardwareCounting(pid_t pid) {
  std::error_code ended;
  for (std::filesystem::directory_iterator task("/proc/" + std::to_string(pid) + "/task", ended), end;
       !ended && task != end; task.increment(ended)) {
    const auto thread = static_cast<pid_t>(std::atoi(task->path().filename().c_str()));
    Fd instructions = OpenCounter(thread, PERF_COUNT_HW_INSTRUCTIONS);
    if (!instructions) return;
    instructions_.push_back(std::move(instructions));
    cycles_.push_back(OpenCounter(thread, PERF_COUNT_HW_CPU_CYCLES));
    misses_.push_back(OpenCounter(thread, PERF_COUNT_HW_CACHE_MISSES));
  }
}

std::optional<HardwareCounters> HardwareCounting::Read(double calls) {
  const double cycles = SumOfCounters(cycles_);
  if (cycles <= 0) return std::nullopt;
  return HardwareCounters{SumOfCounters(instructions_) / cycles, SumOfCounters(misses_) / calls};
}

}  // namespace kevin
