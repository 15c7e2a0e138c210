#include "agent/gpu_feedback.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "agent/kernels.h"
#include "agent/text.h"

namespace kevin {
namespace {

constexpr double kNearCeiling = 0.9;    // of a peak; above it only details are left
constexpr double kFarFromBoth = 0.35;   // below it in both, neither bandwidth nor arithmetic is what limits
constexpr double kNearGpuFloor = 1.15;  // times the floor
constexpr double kFewWarps = 0.3;       // occupancy below which latency may show

// 100 %, 62 %, 0.4 %
std::string Percent(double share) { return fmt::format("{:.2g} %", 100 * share); }

std::string Flops(double gflop_per_s) {
  return gflop_per_s >= 1000 ? fmt::format("{:.3g} TFLOP/s", gflop_per_s / 1000)
                             : fmt::format("{:.3g} GFLOP/s", gflop_per_s);
}

bool Spills(const KernelReport& kernel) { return kernel.spill_store_bytes + kernel.spill_load_bytes > 0; }

bool IsSame(const KernelReport& a, const KernelReport& b) { return KernelLine(a) == KernelLine(b); }

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
  std::string text = fmt::format("One call takes {:.4g} us, the reference {:.4g} us. That is {:.4g} GB/s",
                                 m.candidate_us, m.reference_us, m.gb_per_s);
  if (roofline.memory > 0)
    text += fmt::format(" ({} of this GPU's {:.4g} GB/s)", Percent(roofline.memory), e.peak_gb_per_s);
  text += " and " + Flops(m.gflop_per_s);
  if (roofline.arithmetic > 0)
    text += fmt::format(" ({} of {})", Percent(roofline.arithmetic), Flops(e.peak_gflop_per_s));
  if (roofline.nearer != Ceiling::kUnknown) {
    text += roofline.nearer == Ceiling::kMemory ? "; it is nearer the memory ceiling"
                                                : "; it is nearer the arithmetic ceiling";
  }
  if (m.floor_us > 0) {
    text += fmt::format("; no correct kernel can take less than {:.4g} us, this one takes {:.3g} times that",
                        m.floor_us, m.candidate_us / m.floor_us);
  }
  return text + ".";
}

std::string GpuAdvice(const Measured& m, const Evaluation& e) {
  const Roofline roofline = RooflineOf(m, e);
  const double share = std::max(roofline.memory, roofline.arithmetic);
  if (share >= kNearCeiling || (m.floor_us > 0 && m.candidate_us <= kNearGpuFloor * m.floor_us)) {
    return "It is close to what this GPU can do; only details are left, such as the size of the grid, the "
           "last partial wave of blocks and cache hints on loads and stores.";
  }
  std::string text = "It can still be made faster. ";
  const bool few_warps = std::any_of(e.kernels.begin(), e.kernels.end(), [](const KernelReport& kernel) {
    return kernel.occupancy > 0 && kernel.occupancy < kFewWarps;
  });
  if (m.verdict == Verdict::kSlow) {
    text +=
        "First make sure that there are enough blocks for all multiprocessors and that neighbouring "
        "threads touch neighbouring addresses. ";
  }
  if (roofline.nearer == Ceiling::kUnknown) {
    return text + "Fewer launches, fewer bytes moved, more independent loads in flight in each thread.";
  }
  if (share < kFarFromBoth) {
    text +=
        "Neither ceiling is near, so waiting is what it does most: fewer launches, more independent loads "
        "in flight in each thread, fewer barriers";
    return text + (few_warps ? ", more warps on each multiprocessor." : ".");
  }
  if (roofline.nearer == Ceiling::kMemory) {
    return text +
           "Move fewer bytes and move them better: every value read and written once, 16 bytes a "
           "thread and load, several loads in flight before the first is used, passes fused.";
  }
  return text +
         "Do more arithmetic per byte loaded: larger tiles in shared memory and registers, loads of "
         "the next tile while this one is computed, tensor cores where the precision allows them.";
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
        "Spilled registers travel through local memory: keep fewer values alive at once (smaller tiles, "
        "less unrolling), or allow more registers with __launch_bounds__ and smaller blocks.\n";
  }
  if (!Trim(e.profile).empty()) text += fmt::format("The profiler says: {}\n", Trim(e.profile));
  return std::string(TrimRight(text));
}

}  // namespace kevin
