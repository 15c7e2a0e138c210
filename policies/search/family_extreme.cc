// out = the index of the largest (smallest) term; the first of equal ones, and of NaNs if there are any.

#include "policies/search/forms.h"
#include "policies/search/prelude.h"

namespace kevin::search {
namespace {

constexpr const char* kTake = R"(
// Keeps in (best, where) the extreme so far and its index.
INLINE void Take(Vec v, IntVec index, Vec& best, IntVec& where) {
  const IntVec better = ((v {better} best) | (v != v)) & (best == best);
  best = better ? v : best;
  where = better ? index : where;
}
)";

constexpr const char* kRowwise = R"(
constexpr long kRows = {outer}, kTerms = {terms};
constexpr int kUnroll = {unroll};

{head} {
#pragma omp parallel for schedule(static)
  for (long row = 0; row < kRows; ++row) {
    Vec best[kUnroll];
    IntVec where[kUnroll], lane;
    for (int l = 0; l < kLanes; ++l) lane[l] = l;
    for (int u = 0; u < kUnroll; ++u) {
      best[u] = Splat({start});
      where[u] = IntVec{};
    }
    Walk<kUnroll>(0, kTerms, [&](auto part, long i, int u) __attribute__((always_inline)) {
      const Vec v = part.Keep(part.Load(in0 + row * kTerms + i), {start});
      Take(v, lane + int(i), best[u], where[u]);
    });
    float value = best[0][0];
    int index = where[0][0];
    for (int u = 0; u < kUnroll; ++u) {
      for (int l = 0; l < kLanes; ++l) {
        const float v = best[u][l];
        const int at = where[u][l];
        const bool both_nan = v != v && value != value, same = v == value || both_nan;
        if (same ? at < index : value == value && (v {better} value || v != v)) {
          value = v;
          index = at;
        }
      }
    }
    out0[row] = index;
  }
}
)";

constexpr const char* kColumnwise = R"(
constexpr long kOuter = {outer}, kTerms = {terms}, kInner = {inner};
constexpr long kStrip = {strip} * kLanes, kStrips = (kInner + kStrip - 1) / kStrip;
constexpr int kTogether = {together};

template <int kCount>
INLINE void AddRows(float* best, int* where, const float* from, long row, long begin, long end) {
  Walk<{unroll}>(begin, end, [&](auto part, long j, int) __attribute__((always_inline)) {
    Vec b = LoadVec(best + (j - begin));
    IntVec w = *(const IntVec*)(where + (j - begin));
#pragma GCC unroll 16
    for (int k = 0; k < kCount; ++k) Take(part.Load(from + k * kInner + j), IntVec{} + int(row + k), b, w);
    StoreVec(best + (j - begin), b);
    *(IntVec*)(where + (j - begin)) = w;
  });
}

{head} {
#pragma omp parallel for schedule(static)
  for (long job = 0; job < kOuter * kStrips; ++job) {
    const long outer = job / kStrips, begin = job % kStrips * kStrip;
    const long end = begin + kStrip < kInner ? begin + kStrip : kInner;
    alignas(64) float best[kStrip];
    alignas(64) int where[kStrip];
    for (long j = 0; j < kStrip; ++j) {
      best[j] = {start};
      where[j] = 0;
    }
    long r = 0;
    for (; r + kTogether <= kTerms; r += kTogether) {
      AddRows<kTogether>(best, where, in0 + (outer * kTerms + r) * kInner, r, begin, end);
    }
    for (; r < kTerms; ++r) AddRows<1>(best, where, in0 + (outer * kTerms + r) * kInner, r, begin, end);
    for (long j = begin; j < end; ++j) out0[outer * kInner + j] = where[j - begin];
  }
}
)";

}  // namespace

std::optional<Kernel> RecogniseExtreme(const Computation& computation) {
  const std::optional<ExtremeForm> form = FindExtreme(computation);
  if (!form) return std::nullopt;
  const ReducedLayout& layout = form->layout;
  Kernel kernel;
  kernel.family = "extreme";
  kernel.summary = "one pass that keeps the extreme and its index together";
  kernel.knobs = {{"unroll", {"2", "1", "4"}}, {"lanes", {"full", "half"}}};
  if (layout.inner > 1) {
    kernel.knobs.insert(kernel.knobs.begin(),
                        {{"together", {"4", "8", "2", "1"}}, {"strip", {"64", "256", "16"}}});
  }
  kernel.write = [layout, is_max = form->is_max, task = *computation.task](const Setting& setting) {
    std::map<std::string, std::string> fields(setting.begin(), setting.end());
    fields.insert({{"outer", layout.outer_text},
                   {"terms", layout.terms_text},
                   {"inner", layout.inner_text},
                   {"head", LaunchHead(task)},
                   {"better", is_max ? ">" : "<"},
                   {"start", is_max ? "-__builtin_inff()" : "__builtin_inff()"}});
    return WithPrelude(Fill(std::string(kTake) + (layout.inner == 1 ? kRowwise : kColumnwise), fields),
                       setting.at("lanes"));
  };
  return kernel;
}

}  // namespace kevin::search
