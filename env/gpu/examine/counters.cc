#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "env/gpu/examine/examiner.h"

namespace kevin {
namespace {

constexpr const char* kTime = "gpu__time_duration.sum";
constexpr const char* kDram = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr const char* kL2Hit = "lts__t_sector_hit_rate.pct";
constexpr const char* kCompute = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr const char* kResident = "sm__warps_active.avg.pct_of_peak_sustained_active";
constexpr const char* kTensor = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
constexpr size_t kMostKernels = 3;

struct Stall {
  const char* name;
  const char* text;
};
constexpr std::array<Stall, 14> kStalls = {
    {{"long_scoreboard", "data from global memory or L2"},
     {"short_scoreboard", "shared memory or special functions"},
     {"barrier", "__syncthreads()"},
     {"mio_throttle", "the queue of shared-memory and special instructions"},
     {"lg_throttle", "the queue of loads and stores"},
     {"math_pipe_throttle", "a busy arithmetic unit"},
     {"wait", "the fixed latency of the instruction before"},
     {"not_selected", "their turn: others are ready too"},
     {"no_instruction", "instructions to be fetched"},
     {"drain", "stores to leave before the end"},
     {"membar", "a memory fence"},
     {"branch_resolving", "branches"},
     {"imc_miss", "constant memory"},
     {"gmma", "tensor cores to finish"}}};

std::string StallMetric(const char* name) {
  return fmt::format("smsp__average_warps_issue_stalled_{}_per_issue_active.ratio", name);
}

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

std::optional<double> Number(std::string text) {
  std::erase(text, ',');
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? std::nullopt : std::optional(value);
}

// All launches of one kernel: time added up, the rest weighted by it.
struct Kernel {
  std::string name;
  int launches = 0;
  double time_us = 0;
  std::map<std::string, double> weighted;

  std::optional<double> Mean(const std::string& metric) const {
    const auto found = weighted.find(metric);
    return found == weighted.end() || time_us <= 0 ? std::nullopt : std::optional(found->second / time_us);
  }
};

double Microseconds(double value, const std::string& unit) {
  if (unit == "ns" || unit == "nsecond") return value / 1e3;
  if (unit == "ms" || unit == "msecond") return value * 1e3;
  if (unit == "s" || unit == "second") return value * 1e6;
  return value;  // us, usecond
}

std::vector<Kernel> Read(const std::string& csv) {
  std::vector<Kernel> kernels;
  std::vector<std::string> header, units;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() != '"') continue;
    std::vector<std::string> cells = Cells(line);
    if (header.empty()) {
      header = std::move(cells);
      continue;
    }
    if (cells.size() != header.size()) continue;
    if (units.empty()) {
      units = std::move(cells);
      continue;
    }
    std::map<std::string, double> values;
    std::string name;
    double time_us = 0;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (header[i] == "Kernel Name") name = cells[i].substr(0, cells[i].find('('));
      const auto value = Number(cells[i]);
      if (!value) continue;
      if (header[i] == kTime) time_us = Microseconds(*value, units[i]);
      values[header[i]] = *value;
    }
    if (name.empty() || time_us <= 0) continue;
    auto kernel =
        std::find_if(kernels.begin(), kernels.end(), [&](const Kernel& k) { return k.name == name; });
    if (kernel == kernels.end()) kernel = kernels.insert(kernels.end(), Kernel{name, 0, 0, {}});
    ++kernel->launches;
    kernel->time_us += time_us;
    for (const auto& [metric, value] : values) kernel->weighted[metric] += value * time_us;
  }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Kernel& a, const Kernel& b) { return a.time_us > b.time_us; });
  return kernels;
}

std::string WhatWarpsWaitFor(const Kernel& kernel) {
  std::vector<std::pair<double, const char*>> stalls;
  for (const Stall& stall : kStalls) {
    const auto warps = kernel.Mean(StallMetric(stall.name));
    if (warps && *warps >= 0.1) stalls.emplace_back(*warps, stall.text);
  }
  if (stalls.empty()) return "";
  std::sort(stalls.rbegin(), stalls.rend());
  std::string text = fmt::format(" Warps wait most for {} ({:.1f} warp cycles an instruction)",
                                 stalls[0].second, stalls[0].first);
  if (stalls.size() > 1) text += fmt::format(", then for {} ({:.1f})", stalls[1].second, stalls[1].first);
  return text + ".";
}

std::string Describe(const Kernel& kernel) {
  std::string text = fmt::format("`{}` ({:.1f} us under the profiler{}):", kernel.name, kernel.time_us,
                                 kernel.launches > 1 ? fmt::format(", {} launches", kernel.launches) : "");
  const auto share = [&](const char* metric, std::string_view words) {
    if (const auto value = kernel.Mean(metric)) text += fmt::format(" {} {:.0f} %,", words, *value);
  };
  share(kDram, "memory busy");
  share(kCompute, "multiprocessors busy");
  share(kL2Hit, "L2 hit rate");
  share(kResident, "warps resident");
  share(kTensor, "tensor cores busy");
  if (text.back() == ',') text.back() = '.';
  return text + WhatWarpsWaitFor(kernel);
}

}  // namespace

std::string CounterNames() {
  std::string names;
  for (const char* name : {kTime, kDram, kL2Hit, kCompute, kResident, kTensor})
    names += std::string(name) + ",";
  for (const Stall& stall : kStalls) names += StallMetric(stall.name) + ",";
  names.pop_back();
  return names;
}

std::string CounterSentences(const std::string& csv) {
  const std::vector<Kernel> kernels = Read(csv);
  std::string text;
  for (size_t i = 0; i < std::min(kernels.size(), kMostKernels); ++i)
    text += (i > 0 ? "\n" : "") + Describe(kernels[i]);
  if (kernels.size() > kMostKernels)
    text += fmt::format("\n{} shorter kernels are left out.", kernels.size() - kMostKernels);
  return text;
}

}  // namespace kevin
