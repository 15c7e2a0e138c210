// The text that all contractions of a candidate share: the product of a block of rows of one operand and a block of
// columns of the other, and what arranges operands.

#include "policies/search/cpp_contraction.h"

namespace kevin::search {

std::string CppContractionCore() {
  return R"(#ifdef __AVX512F__
enum { kTileLanes = 16, kTileRows = 8 };
#else
enum { kTileLanes = 8, kTileRows = 6 };
#endif
typedef float TileVec __attribute__((vector_size(kTileLanes * 4), aligned(4), may_alias));

// Vectors of a tile by its rows: the sums fit into the registers, and few enough of them wait for one another.
constexpr int TileVectors(int rows) {
#ifdef __AVX512F__
  return rows <= 2 ? 8 : rows <= 4 ? 6 : rows <= 6 ? 4 : 3;
#else
  return rows == 1 ? 6 : rows == 2 ? 4 : rows == 3 ? 3 : 2;
#endif
}

template <int R, int V>
static inline __attribute__((always_inline)) void AddElement(TileVec (&sum)[R][V], const float* a, long row_stride,
                                                             const float* b) {
  TileVec column[V];
  for (int v = 0; v < V; ++v) column[v] = *(const TileVec*)(b + v * kTileLanes);
  for (int r = 0; r < R; ++r) {
    const float row = a[r * row_stride];
    for (int v = 0; v < V; ++v) sum[r][v] += row * column[v];
  }
}

// c[r][j] (+)= sum over i < k of a[r * row_stride + i * step] * b[at_b[i] + j], for R rows and V vectors of columns.
template <int R, int V>
static inline __attribute__((always_inline)) void Tile(long k, const float* a, long row_stride, long step,
                                                       const float* b, const int* at_b, float* c, long pitch,
                                                       bool add) {
  // A small tile adds odd and even elements apart, so that sums do not wait for one another.
  constexpr int P = R * V >= 8 ? 1 : R * V >= 4 ? 2 : 4;
  TileVec parts[P][R][V] = {};
  long i = 0;
  for (; i + P <= k; i += P, a += P * step) {
    for (int p = 0; p < P; ++p) AddElement<R, V>(parts[p], a + p * step, row_stride, b + at_b[i + p]);
  }
  for (; i < k; ++i, a += step) AddElement<R, V>(parts[0], a, row_stride, b + at_b[i]);
  TileVec(&sum)[R][V] = parts[0];
  for (int p = 1; p < P; ++p)
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] += parts[p][r][v];
  if (add) {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] += *(const TileVec*)(c + r * pitch + v * kTileLanes);
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) *(TileVec*)(c + r * pitch + v * kTileLanes) = sum[r][v];
}

struct Block {
  long k;
  const float* a;
  long row_stride, step;
  const float* b;
  const int* at_b;
  long columns, before;  // `before`: columns that can be read to the left of b
  float* c;
  long pitch;
  bool add;
};

// One tile at column `at`. Where it would read beyond the columns, it moves to the left, and only its new columns are
// kept; where there is no room for that, b is readable up to a whole vector.
template <int R, int V>
static inline __attribute__((always_inline)) void TileAt(const Block& x, long at) {
  const long beyond = at + V * kTileLanes - x.columns;
  if (beyond <= 0 || at + x.before < beyond) {
    Tile<R, V>(x.k, x.a, x.row_stride, x.step, x.b + at, x.at_b, x.c + at, x.pitch, x.add);
    return;
  }
  float kept[R * V * kTileLanes];
  Tile<R, V>(x.k, x.a, x.row_stride, x.step, x.b + at - beyond, x.at_b, kept, V * kTileLanes, false);
  for (int r = 0; r < R; ++r) {
    float* to = x.c + r * x.pitch + at;
    const float* from = kept + r * V * kTileLanes + beyond;
    for (long j = 0; j < V * kTileLanes - beyond; ++j) to[j] = x.add ? to[j] + from[j] : from[j];
  }
}

template <int R, int V>
static inline __attribute__((always_inline)) long TilesAt(const Block& x, long at, long count) {
  for (; count > 0; --count, at += V * kTileLanes) TileAt<R, V>(x, at);
  return at;
}

// As many tiles as the widest ones need, of widths as equal as can be.
template <int R>
static __attribute__((noinline)) void MultiplyRows(const Block& x) {
  constexpr int V = TileVectors(R);
  long vectors = (x.columns + kTileLanes - 1) / kTileLanes, at = 0;
  if constexpr (V > 4) {
    const long wide = vectors / V;
    at = TilesAt<R, V>(x, 0, wide);
    vectors -= wide * V;
    if (vectors >= 4) at = TilesAt<R, 4>(x, at, 1), vectors -= 4;
    if (vectors >= 2) at = TilesAt<R, 2>(x, at, 1), vectors -= 2;
    if (vectors >= 1) TilesAt<R, 1>(x, at, vectors);
  } else {
    const long tiles = (vectors + V - 1) / V, missing = tiles * V - vectors;
    if (missing < tiles) {
      at = TilesAt<R, V>(x, 0, tiles - missing);
      TilesAt<R, V - 1>(x, at, missing);
    } else {
      if constexpr (V > 2) {
        if (missing < 2 * tiles) {
          at = TilesAt<R, V - 1>(x, 0, 2 * tiles - missing);
          TilesAt<R, V - 2>(x, at, missing - tiles);
          return;
        }
      }
      TilesAt<R, 1>(x, 0, vectors);
    }
  }
}

// `kCounts` has a bit for every number of rows that occurs.
template <unsigned kCounts, int R = 1>
static inline void Multiply(int rows, const Block& x) {
  if constexpr (R <= kTileRows) {
    if constexpr ((kCounts >> R & 1) != 0) {
      if (rows == R) return MultiplyRows<R>(x);
    }
    Multiply<kCounts, R + 1>(rows, x);
  }
}
)";
}

std::string CppTransposeCore() {
  return R"(template <int S, int... L>
static inline __attribute__((always_inline)) void Exchange(TileVec& low, TileVec& high) {
  const TileVec a = low, b = high;
  low = __builtin_shufflevector(a, b, ((L & S) ? kTileLanes + L - S : L)...);
  high = __builtin_shufflevector(a, b, ((L & S) ? kTileLanes + L : L + S)...);
}
template <int S>
static inline __attribute__((always_inline)) void ExchangeAll(TileVec* row) {
  for (int i = 0; i < kTileLanes; ++i) {
    if (i & S) continue;
#ifdef __AVX512F__
    Exchange<S, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>(row[i], row[i + S]);
#else
    Exchange<S, 0, 1, 2, 3, 4, 5, 6, 7>(row[i], row[i + S]);
#endif
  }
}
// to[i * to_pitch + j] = from[j * from_pitch + i] for a square of kTileLanes.
static inline void TransposeSquare(const float* from, long from_pitch, float* to, long to_pitch) {
  TileVec row[kTileLanes];
  for (int i = 0; i < kTileLanes; ++i) row[i] = *(const TileVec*)(from + i * from_pitch);
  ExchangeAll<1>(row);
  ExchangeAll<2>(row);
  ExchangeAll<4>(row);
#ifdef __AVX512F__
  ExchangeAll<8>(row);
#endif
  for (int i = 0; i < kTileLanes; ++i) *(TileVec*)(to + i * to_pitch) = row[i];
}
// The same for i < rows, j < columns.
static __attribute__((noinline)) void Transpose(const float* from, long from_pitch, float* to, long to_pitch, long rows,
                                                long columns) {
  long j = 0;
  for (; j + kTileLanes <= columns; j += kTileLanes) {
    long i = 0;
    for (; i + kTileLanes <= rows; i += kTileLanes)
      TransposeSquare(from + j * from_pitch + i, from_pitch, to + i * to_pitch + j, to_pitch);
    for (; i < rows; ++i)
      for (int l = 0; l < kTileLanes; ++l) to[i * to_pitch + j + l] = from[(j + l) * from_pitch + i];
  }
  for (; j < columns; ++j)
    for (long i = 0; i < rows; ++i) to[i * to_pitch + j] = from[j * from_pitch + i];
}
)";
}

std::string CppDotsCore() {
  return R"(template <int S, int... L>
static inline __attribute__((always_inline)) TileVec Turned(TileVec x) {
  return __builtin_shufflevector(x, x, ((L + S) % kTileLanes)...);
}
static inline __attribute__((always_inline)) float SumOf(TileVec x) {
#ifdef __AVX512F__
  x += Turned<8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>(x);
  x += Turned<4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>(x);
#else
  x += Turned<4, 0, 1, 2, 3, 4, 5, 6, 7>(x);
#endif
  return (x[0] + x[1]) + (x[2] + x[3]);
}
// c[r][j] (+)= sum over i < k of a[r * row_stride + i] * b[j * column_stride + i].
template <int R, int C>
static inline __attribute__((always_inline)) void DotTile(long k, const float* a, long row_stride, const float* b,
                                                          long column_stride, float* c, long pitch, bool add) {
  TileVec sum[R][C] = {};
  long i = 0;
  for (; i + kTileLanes <= k; i += kTileLanes) {
    TileVec column[C];
    for (int j = 0; j < C; ++j) column[j] = *(const TileVec*)(b + j * column_stride + i);
    for (int r = 0; r < R; ++r) {
      const TileVec row = *(const TileVec*)(a + r * row_stride + i);
      for (int j = 0; j < C; ++j) sum[r][j] += row * column[j];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < C; ++j) {
      float total = SumOf(sum[r][j]);
      for (long l = i; l < k; ++l) total += a[r * row_stride + l] * b[j * column_stride + l];
      float& to = c[r * pitch + j];
      to = add ? to + total : total;
    }
  }
}
template <int R>
static __attribute__((noinline)) void DotRows(long k, const float* a, long row_stride, const float* b,
                                              long column_stride, long columns, float* c, long pitch, bool add) {
  long j = 0;
  for (; j + 4 <= columns; j += 4)
    DotTile<R, 4>(k, a, row_stride, b + j * column_stride, column_stride, c + j, pitch, add);
  for (; j < columns; ++j) DotTile<R, 1>(k, a, row_stride, b + j * column_stride, column_stride, c + j, pitch, add);
}
static void MultiplyDots(int rows, long k, const float* a, long row_stride, const float* b, long column_stride,
                         long columns, float* c, long pitch, bool add) {
  constexpr int half = kTileRows == 8 ? 4 : 2;
  for (; rows >= half; rows -= half, a += half * row_stride, c += half * pitch)
    DotRows<half>(k, a, row_stride, b, column_stride, columns, c, pitch, add);
  for (; rows > 0; --rows, a += row_stride, c += pitch)
    DotRows<1>(k, a, row_stride, b, column_stride, columns, c, pitch, add);
}
)";
}

std::string CppFieldCore() {
  return R"(// to[i] = from[i * stride] for low <= i < high, else 0, for i < count.
static inline void CopyRow(const float* from, long stride, long low, long high, long count, float* to) {
  long i = 0;
  for (; i < low; ++i) to[i] = 0;
  if (stride == 1) {
    for (; i < high; ++i) to[i] = from[i];
  } else {
    for (; i < high; ++i) to[i] = from[i * stride];
  }
  for (; i < count; ++i) to[i] = 0;
}
)";
}

}  // namespace kevin::search
