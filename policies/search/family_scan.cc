// Cumulative sums and products. Over the last dimension a vector is scanned in log2(lanes) shifted additions
// and then moved by the row's running value, several rows at once to hide the latency; over another dimension
// a strip of columns carries running vectors.

#include "policies/search/forms.h"
#include "policies/search/prelude.h"

namespace kevin::search {
namespace {

constexpr const char* kRowwise = R"(
constexpr long kRows = {outer}, kTerms = {terms};
constexpr int kTogether = {together};

// Lane i becomes the fold of lanes 0 to i.
template <int kBy, int... kLane>
INLINE Vec Shifted(Vec v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, Splat({start}), (kLane < kBy ? kLanes : kLane - kBy)...);
}
template <int kBy>
INLINE Vec ScanStep(Vec v) {
  return v {op} Shifted<kBy>(v, std::make_integer_sequence<int, kLanes>{});
}
INLINE Vec ScanLanes(Vec v) {
  v = ScanStep<1>(v);
  v = ScanStep<2>(v);
  if constexpr (kLanes > 4) v = ScanStep<4>(v);
  if constexpr (kLanes > 8) v = ScanStep<8>(v);
  return v;
}

template <int kCount>
INLINE void ScanRows(const float* from, float* to) {
  float carry[kCount];
  for (int k = 0; k < kCount; ++k) carry[k] = {start};
  Walk<1>(0, kTerms, [&](auto part, long i, int) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int k = 0; k < kCount; ++k) {
      const Vec v = ScanLanes(part.Load(from + k * kTerms + i)) {op} carry[k];
      part.{store}(to + k * kTerms + i, v);
      carry[k] = v[kLanes - 1];
    }
  });
}

{head} {
#pragma omp parallel for schedule(static)
  for (long group = 0; group < (kRows + kTogether - 1) / kTogether; ++group) {
    const long row = group * kTogether;
    if (row + kTogether <= kRows) {
      ScanRows<kTogether>(in0 + row * kTerms, out0 + row * kTerms);
    } else {
      for (long r = row; r < kRows; ++r) ScanRows<1>(in0 + r * kTerms, out0 + r * kTerms);
    }
{fence}  }
}
)";

constexpr const char* kColumnwise = R"(
constexpr long kOuter = {outer}, kTerms = {terms}, kInner = {inner};
constexpr long kStrip = {strip} * kLanes, kStrips = (kInner + kStrip - 1) / kStrip;

{head} {
#pragma omp parallel for schedule(static)
  for (long job = 0; job < kOuter * kStrips; ++job) {
    const long outer = job / kStrips, begin = job % kStrips * kStrip;
    const long end = begin + kStrip < kInner ? begin + kStrip : kInner;
    alignas(64) float carry[kStrip];
    for (long j = 0; j < kStrip; ++j) carry[j] = {start};
    for (long r = 0; r < kTerms; ++r) {
      const long first = (outer * kTerms + r) * kInner;
      Walk<2>(begin, end, [&](auto part, long j, int) __attribute__((always_inline)) {
        const Vec v = part.Load(in0 + first + j) {op} LoadVec(carry + (j - begin));
        StoreVec(carry + (j - begin), v);
        part.{store}(out0 + first + j, v);
      });
    }
{fence}  }
}
)";

}  // namespace

std::optional<Kernel> RecogniseScan(const Computation& computation) {
  const std::optional<ScanForm> form = FindScan(computation);
  if (!form) return std::nullopt;
  const ReducedLayout& layout = form->layout;
  const bool is_row = layout.inner == 1;
  Kernel kernel;
  kernel.family = "scan";
  kernel.summary =
      is_row ? "vectors scanned in registers, several rows at once" : "strips of running columns";
  kernel.knobs = {is_row ? Knob{"together", {"8", "4", "16", "2", "1"}} : Knob{"strip", {"64", "256", "16"}},
                  {"lanes", {"full", "half"}},
                  {"store", {"stream", "plain"}}};
  kernel.write = [layout, is_row, is_sum = form->is_sum, task = *computation.task](const Setting& setting) {
    const bool streams = Is(setting, "store", "stream") && (is_row ? layout.terms : layout.inner) % 16 == 0;
    std::map<std::string, std::string> fields(setting.begin(), setting.end());
    fields["store"] = streams ? "Stream" : "Store";
    fields.insert({{"outer", layout.outer_text},
                   {"terms", layout.terms_text},
                   {"inner", layout.inner_text},
                   {"head", LaunchHead(task)},
                   {"start", is_sum ? "0.0f" : "1.0f"},
                   {"op", is_sum ? "+" : "*"},
                   {"fence", streams ? "    StreamFence();\n" : ""}});
    return WithPrelude(Fill(is_row ? kRowwise : kColumnwise, fields), setting.at("lanes"));
  };
  return kernel;
}

}  // namespace kevin::search
