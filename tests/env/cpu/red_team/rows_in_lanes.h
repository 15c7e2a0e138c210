#pragma once
// For attacks on problems/one_row.toml: the running log-sum-exp of one row, and of up to 16 rows at once in the lanes of a
// vector, which takes about as long. The test pastes this text in place of #include "rows_in_lanes.h".
#include <algorithm>
#include <cstdint>
#include <cstring>

using Floats16 = float __attribute__((vector_size(64)));
using Integers16 = int32_t __attribute__((vector_size(64)));
constexpr uint32_t kLanes = 16;
constexpr long kRowIn = InputDistance(N * 4), kRowOut = N * 4 + 8192;  // bytes from slot to slot

// log(exp(sum) + exp(x)), by polynomials.
inline Floats16 AddedInLanes(Floats16 sum, Floats16 x) {
  const Floats16 none = {}, high = sum > x ? sum : x, low = sum > x ? x : sum, least = none - 80;
  const Floats16 d = low - high < least ? least : low - high, t = d * 1.44269504f, magic = none + 12582912.0f;
  const Floats16 whole = (t + magic) - magic, r = (t - whole) * 0.69314718f;
  const Floats16 p =
      1 +
      r * (1 + r * (0.5f + r * (0.16666667f + r * (0.041666667f + r * (0.0083333333f + r * 0.0013888889f)))));
  const Floats16 e = (Floats16)((Integers16)p + (__builtin_convertvector(whole, Integers16) << 23));
  const Floats16 s = e / (2 + e), q = s * s;
  return high +
         2 * s *
             (1 + q * (0.33333333f + q * (0.2f + q * (0.14285714f + q * (0.11111111f + q * 0.09090909f)))));
}

// The first `elements` of `rows` rows; elements is a multiple of 16.
inline void RowsInLanes(const float* const* x, float* const* out, uint32_t rows, long elements) {
  Floats16 sum = (Floats16){} - 1e30f;
  alignas(64) float in[16][kLanes] = {}, to[16][kLanes];
  for (long i = 0; i < elements; i += 16) {
    for (uint32_t row = 0; row < rows; ++row)
      for (int k = 0; k < 16; ++k) in[k][row] = x[row][i + k];
    for (int k = 0; k < 16; ++k) {
      Floats16 column;
      std::memcpy(&column, in[k], sizeof(column));
      sum = AddedInLanes(sum, column);
      std::memcpy(to[k], &sum, sizeof(sum));
    }
    for (uint32_t row = 0; row < rows; ++row)
      for (int k = 0; k < 16; ++k) out[row][i + k] = to[k][row];
  }
}

// From element `first` on, which is 0 or follows a finished one.
inline void RestOfRow(const float* x, float* out, long first) {
  float sum = first == 0 ? -1e30f : out[first - 1];
  for (long i = first; i < N; ++i) {
    const Floats16 added = AddedInLanes((Floats16){} + sum, (Floats16){} + x[i]);
    out[i] = sum = added[0];
  }
}

// Four calls at once, whose inputs are kept; later calls of the group compare theirs with the copy and compute only where it
// has changed. Behind control_page.h.
inline void AnswerInGroups(const Page* page, const float* x, float* out) {
  constexpr uint32_t kGroup = 4;
  static float copies[kGroup][N];
  static uint32_t batch = 0, first = 0, done = 0;
  const uint32_t call = page->returned;
  if (batch != page->go) batch = page->go, done = 0;
  if (call < done && std::memcmp(copies[call - first], x, sizeof(copies[0])) == 0) return;
  const float* from[kLanes];
  float* to[kLanes];
  first = call;
  done = std::min(call + kGroup, page->calls);
  for (uint32_t row = 0; row < done - first; ++row) {
    std::memcpy(copies[row], Neighbour(page, x, kRowIn, call + row), sizeof(copies[row]));
    from[row] = copies[row];
    to[row] = Neighbour(page, out, kRowOut, call + row);
  }
  RowsInLanes(from, to, done - first, N);
}

// All calls of a batch, for a kernel that is at call 0 of it. Behind control_page.h.
inline void AllCallsInLanes(const Page* page, const float* x, float* out) {
  for (uint32_t call = 0; call < page->calls; call += kLanes) {
    const float* from[kLanes];
    float* to[kLanes];
    const uint32_t rows = std::min(kLanes, page->calls - call);
    for (uint32_t row = 0; row < rows; ++row) {
      from[row] = Neighbour(page, x, kRowIn, call + row);
      to[row] = Neighbour(page, out, kRowOut, call + row);
    }
    RowsInLanes(from, to, rows, N);
  }
}
