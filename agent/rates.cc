#include "agent/rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/problem_text.h"
#include "agent/text.h"
#include "env/verdict/words.h"

namespace kevin {
namespace {

constexpr double kBeyond = 1.05;     // share of a ceiling above which something else explains it
constexpr double kSameBytes = 1.05;  // times the least

std::string Flops(double gflop_per_s) {
  return gflop_per_s >= 1000 ? fmt::format("{:.3g} TFLOP/s", gflop_per_s / 1000)
                             : fmt::format("{:.3g} GFLOP/s", gflop_per_s);
}

bool IsMeasuredOnGpu(const Evaluation& e) { return e.device.starts_with("cuda"); }

std::string BandwidthText(const Measured& m, const Evaluation& e, const Roofline& roofline) {
  const std::string text = SignificantText(m.gb_per_s, 3) + " GB/s";
  if (roofline.memory <= 0) return text;
  return text + fmt::format(" ({} of the {} GB/s of {} memory{})", PercentText(roofline.memory),
                            SignificantText(e.peak_gb_per_s, 3), IsMeasuredOnGpu(e) ? "device" : "main",
                            roofline.memory > kBeyond ? ", so that part of the data stays in caches" : "");
}

std::string ArithmeticText(const Measured& m, const Evaluation& e, const Roofline& roofline) {
  const std::string text = Flops(m.gflop_per_s);
  if (roofline.arithmetic <= 0) return text;
  const char* beyond = IsMeasuredOnGpu(e)
                           ? ", so the kernel does fewer operations than that count, or other units do them"
                           : ", so the kernel does fewer operations than that count";
  return text + fmt::format(" ({} of the {} of {}{})", PercentText(roofline.arithmetic),
                            Flops(e.peak_gflop_per_s), UnitFor(e.workload, IsMeasuredOnGpu(e)),
                            roofline.arithmetic > kBeyond ? beyond : "");
}

// Of products that may run on tensor cores with split inputs: float32 without TF32, on a GPU where that is faster.
SplitCeiling SplitCeilingFor(const Evaluation& e, const SizedProblem* problem) {
  const bool is_allowed = IsMeasuredOnGpu(e) && UnitFor(e.workload, true) == std::string(kFp32Unit);
  if (!is_allowed || problem == nullptr || !HasProducts(*problem->problem)) return {};
  return SplitCeilingOf(e.unit_gflop_per_s);
}

}  // namespace

std::string SplitText(const SplitCeiling& split) {
  const bool scales = split.unit == std::string_view(kFp16Unit);
  return fmt::format("{}split into {} such parts",
                     scales ? "scaled by a power of two a row or column, to the range of fp16, and " : "",
                     split.parts);
}

std::string PercentText(double share) {
  return share >= 0.095 ? fmt::format("{:.0f} %", 100 * share) : fmt::format("{:.2g} %", 100 * share);
}

Roofline RooflineOf(const Measured& m, const Evaluation& e) {
  Roofline roofline;
  if (e.peak_gb_per_s > 0) roofline.memory = m.gb_per_s / e.peak_gb_per_s;
  if (e.peak_gflop_per_s > 0) roofline.arithmetic = m.gflop_per_s / e.peak_gflop_per_s;
  if (roofline.memory > 0 || roofline.arithmetic > 0) {
    roofline.nearer = roofline.memory >= roofline.arithmetic ? Ceiling::kMemory : Ceiling::kArithmetic;
  }
  return roofline;
}

std::string RateText(const Measured& m, const Evaluation& e) {
  std::string text = fmt::format("One call takes {} us, the reference {} us (medians of the same pairs).",
                                 SignificantText(m.candidate_us, 4), SignificantText(m.reference_us, 4));
  if (const std::string note = TimesNote(m.speedup, m.candidate_us, m.reference_us); !note.empty())
    text += " " + note;
  if (m.gb_per_s <= 0 && m.gflop_per_s <= 0) return text;
  const Roofline roofline = RooflineOf(m, e);
  const bool has_ceilings = roofline.nearer != Ceiling::kUnknown;
  text += " By the usual counts of bytes and operations that is ";
  if (m.gb_per_s > 0) text += BandwidthText(m, e, roofline);
  if (m.gflop_per_s > 0) text += (m.gb_per_s > 0 ? " and " : "") + ArithmeticText(m, e, roofline);
  if (!has_ceilings) return text + ".";
  return text + fmt::format("; the ceilings are measured on this {}.",
                            IsMeasuredOnGpu(e) ? "GPU" : "machine, with these threads and cold caches");
}

std::string CeilingAdvice(const Measured& m, const Evaluation& e, const SizedProblem* problem) {
  const SplitCeiling split = SplitCeilingFor(e, problem);
  Evaluation limits = e;
  if (split.products > 0) limits.peak_gflop_per_s = split.gflop_per_s;
  const Roofline roofline = RooflineOf(m, limits);
  if (roofline.share() < kNearCeiling) {
    if (split.products == 0 || RooflineOf(m, e).arithmetic < kNearCeiling) return "";
    return fmt::format(
        "The rate of fp32 FMA does not limit this kernel's products on this GPU: {} reach {}. With float32 inputs {} "
        "({} products in place of one, added up in float32, at full precision) products can reach {}, {:.2g} times this rate.",
        split.unit, Flops(split.unit_gflop_per_s), SplitText(split), split.products, Flops(split.gflop_per_s),
        split.gflop_per_s / m.gflop_per_s);
  }
  if (roofline.nearer == Ceiling::kArithmetic) {
    // Other units, or fewer operations: nothing follows from this ceiling.
    if (IsMeasuredOnGpu(e) && roofline.arithmetic > kBeyond) return "";
    const std::string limit = split.products == 0
                                  ? "arithmetic"
                                  : fmt::format("float32 products on {} ({} with inputs split into {} parts)",
                                                split.unit, Flops(split.gflop_per_s), split.parts);
    return fmt::format(
        "By the usual count this is near the measured limit of {}: a kernel that does all of these operations can at best be "
        "{:.2f} times as fast. An exact formulation with fewer operations can be faster, and so can one that already has fewer.",
        limit, std::max(1.0, 1 / roofline.arithmetic));
  }
  if (roofline.memory > kBeyond)
    return "";  // part of the data stays in caches: nothing follows from this ceiling
  const double factor = std::max(1.0, 1 / roofline.memory);
  if (problem != nullptr && problem->min_bytes > 0 && problem->bytes <= kSameBytes * problem->min_bytes) {
    constexpr double kEqual = 1.005;
    if (factor < kEqual)
      return "It runs at the measured memory bandwidth, and no correct kernel moves fewer bytes.";
    return fmt::format(
        "No correct kernel moves fewer bytes: at the measured memory bandwidth it would be {:.2f} times as fast, and no "
        "more is left to gain.",
        factor);
  }
  return fmt::format(
      "With the same bytes it can at best be {:.2f} times as fast, at the measured memory bandwidth. Fewer bytes make it faster: "
      "fewer passes over the data, and no intermediate results in memory.",
      factor);
}

}  // namespace kevin
