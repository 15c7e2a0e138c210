#include "agent/gpu_feedback.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "agent/json.h"
#include "agent/text.h"

namespace kevin {
namespace {

constexpr double kNearCeiling = 0.9;    // share of a peak; above it only details remain
constexpr double kFarFromBoth = 0.35;   // shares below it: latency limits, not bandwidth or arithmetic
constexpr double kNearGpuFloor = 1.15;  // times the smallest possible time
constexpr double kFewWarps = 0.3;       // occupancy below which latency may not be hidden

// 100 %, 62 %, 0.4 %
std::string Percent(double share) { return fmt::format("{:.2g} %", 100 * share); }

std::string Flops(double gflop_per_s) {
  return gflop_per_s >= 1000 ? fmt::format("{:.3g} TFLOP/s", gflop_per_s / 1000)
                             : fmt::format("{:.3g} GFLOP/s", gflop_per_s);
}

bool Spills(const KernelReport& kernel) { return kernel.spill_store_bytes + kernel.spill_load_bytes > 0; }

bool IsSame(const KernelReport& a, const KernelReport& b) { return KernelLine(a) == KernelLine(b); }

std::string Bytes(int64_t bytes) {
  return bytes >= 1024 ? fmt::format("{:.3g} KB", static_cast<double>(bytes) / 1024)
                       : fmt::format("{} B", bytes);
}

KernelReport KernelFromJson(const Json& json) {
  KernelReport kernel;
  kernel.name = json.value("name", "");
  kernel.grid = json.value("grid", "");
  kernel.block = json.value("block", "");
  kernel.registers = json.value("registers", 0);
  kernel.static_shared_bytes = json.value("static_shared_bytes", int64_t{0});
  kernel.dynamic_shared_bytes = json.value("dynamic_shared_bytes", int64_t{0});
  kernel.spill_store_bytes = json.value("spill_store_bytes", int64_t{0});
  kernel.spill_load_bytes = json.value("spill_load_bytes", int64_t{0});
  kernel.occupancy = json.value("occupancy", 0.0);
  kernel.limited_by = json.value("limited_by", "");
  return kernel;
}

}  // namespace

Roofline RooflineOf(const Measured& m, const Evaluation& e) {
  Roofline roofline;
  if (e.peak_gb_per_s > 0) roofline.memory = m.gb_per_s / e.peak_gb_per_s;
  if (e.peak_gflop_per_s > 0) roofline.arithmetic = m.gflop_per_s / e.peak_gflop_per_s;
  if (roofline.memory > 0 || roofline.arithmetic > 0) {
    roofline.nearer = roofline.memory >= roofline.arithmetic ? Ceiling::kMemory : Ceiling::kArithmetic;
  }
  return roofline;
}

std::string GpuRates(const Measured& m, const Evaluation& e) {
  const Roofline roofline = RooflineOf(m, e);
  std::string text = fmt::format("One call takes {} us, the reference {} us. That is {} GB/s",
                                 SignificantText(m.candidate_us, 4), SignificantText(m.reference_us, 4),
                                 SignificantText(m.gb_per_s, 4));
  if (roofline.memory > 0)
    text += fmt::format(" ({} of this GPU's {:.4g} GB/s)", Percent(roofline.memory), e.peak_gb_per_s);
  text += " and " + Flops(m.gflop_per_s);
  if (roofline.arithmetic > 0)
    text += fmt::format(" ({} of {})", Percent(roofline.arithmetic), Flops(e.peak_gflop_per_s));
  if (roofline.nearer != Ceiling::kUnknown) {
    text += roofline.nearer == Ceiling::kMemory ? "; memory bandwidth is the nearer limit"
                                                : "; arithmetic throughput is the nearer limit";
  }
  if (m.floor_us > 0) {
    text += fmt::format("; the smallest possible time is {} us, and this kernel takes {} times that",
                        SignificantText(m.floor_us, 4), SignificantText(m.candidate_us / m.floor_us, 3));
  }
  return text + ".";
}

std::string GpuAdvice(const Measured& m, const Evaluation& e) {
  const Roofline roofline = RooflineOf(m, e);
  const double share = std::max(roofline.memory, roofline.arithmetic);
  if (share >= kNearCeiling || (m.floor_us > 0 && m.candidate_us <= kNearGpuFloor * m.floor_us)) {
    return "It is close to the limit of this GPU. What remains are details such as the grid size, the last "
           "partial wave of blocks, and cache hints on loads and stores.";
  }
  std::string text = "It can still be made faster. ";
  const bool few_warps = std::any_of(e.kernels.begin(), e.kernels.end(), [](const KernelReport& kernel) {
    return kernel.occupancy > 0 && kernel.occupancy < kFewWarps;
  });
  if (m.verdict == Verdict::kSlow) {
    text +=
        "First make sure that there are enough blocks for all multiprocessors and that neighbouring "
        "threads access neighbouring addresses. ";
  }
  if (roofline.nearer == Ceiling::kUnknown) {
    return text +
           "Use fewer launches, move fewer bytes, and keep more independent loads in flight in each thread.";
  }
  if (share < kFarFromBoth) {
    text +=
        "Neither limit is near, so the kernel mostly waits: use fewer launches, more independent loads in "
        "flight in each thread, fewer barriers";
    return text + (few_warps ? ", more warps on each multiprocessor." : ".");
  }
  if (roofline.nearer == Ceiling::kMemory) {
    return text +
           "Move fewer bytes, more efficiently: read and write every value once, load 16 bytes per thread at "
           "a time, start several loads before the first value is used, and fuse passes.";
  }
  return text +
         "Do more arithmetic per byte loaded: use larger tiles in shared memory and registers, load the next "
         "tile while computing this one, and use tensor cores where the precision allows it.";
}

std::string KernelNotes(const Evaluation& e) {
  std::vector<KernelReport> distinct;
  for (const KernelReport& kernel : e.kernels) {
    const auto same = [&](const KernelReport& other) { return IsSame(kernel, other); };
    if (std::none_of(distinct.begin(), distinct.end(), same)) distinct.push_back(kernel);
  }
  std::string text;
  for (size_t i = 0; i < std::min(distinct.size(), kMaxKernelsShown); ++i) {
    text += fmt::format("- {}\n", KernelLine(distinct[i]));
  }
  if (distinct.size() > kMaxKernelsShown)
    text += fmt::format("- ({} more kernels)\n", distinct.size() - kMaxKernelsShown);
  if (std::any_of(distinct.begin(), distinct.end(), Spills)) {
    text +=
        "Register spills go through local memory: keep fewer values alive at once (smaller tiles, "
        "less unrolling), or allow more registers with __launch_bounds__ and smaller blocks.\n";
  }
  if (!Trim(e.profile).empty()) text += fmt::format("Profiler: {}\n", Trim(e.profile));
  return std::string(TrimRight(text));
}

Json KernelsJson(const std::vector<KernelReport>& kernels) {
  Json list = Json::array();
  for (const KernelReport& kernel : kernels) {
    list.push_back({{"name", kernel.name},
                    {"grid", kernel.grid},
                    {"block", kernel.block},
                    {"registers", kernel.registers},
                    {"static_shared_bytes", kernel.static_shared_bytes},
                    {"dynamic_shared_bytes", kernel.dynamic_shared_bytes},
                    {"spill_store_bytes", kernel.spill_store_bytes},
                    {"spill_load_bytes", kernel.spill_load_bytes},
                    {"occupancy", kernel.occupancy},
                    {"limited_by", kernel.limited_by}});
  }
  return list;
}

std::string KernelsText(const std::vector<KernelReport>& kernels) {
  if (kernels.empty()) return "";
  return KernelsJson(kernels).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<KernelReport> KernelsFromText(const std::string& text) {
  std::vector<KernelReport> kernels;
  try {
    for (const Json& kernel : Json::parse(text.empty() ? "[]" : text))
      kernels.push_back(KernelFromJson(kernel));
  } catch (const Json::exception&) {
    kernels.clear();
  }
  return kernels;
}

std::string KernelLine(const KernelReport& kernel) {
  std::string line =
      fmt::format("{} <<<{}, {}>>>: {} registers", kernel.name, kernel.grid, kernel.block, kernel.registers);
  if (kernel.spill_store_bytes + kernel.spill_load_bytes > 0) {
    line += fmt::format(", spills {} of stores and {} of loads per thread", Bytes(kernel.spill_store_bytes),
                        Bytes(kernel.spill_load_bytes));
  }
  const int64_t shared = kernel.static_shared_bytes + kernel.dynamic_shared_bytes;
  if (shared > 0) line += fmt::format(", {} shared memory", Bytes(shared));
  if (kernel.occupancy > 0) {
    line += fmt::format(", occupancy {:.0f} %", 100 * kernel.occupancy);
    if (!kernel.limited_by.empty()) line += fmt::format(" (limited by {})", kernel.limited_by);
  }
  return line;
}

}  // namespace kevin
