// CUDA text shared by all tiled contractions: slices of both operands come to shared memory several slices ahead, a
// block multiplies them, and the tile of results passes through shared memory to the epilogue.

#include "policies/search/cuda_contraction.h"

namespace kevin::search {

// Names begin with Contract, so that they meet nothing else in a text. Functions that the emulation of the tests
// replaces are `INLINE void Contract...(` at the start of a line or after a template head.
const char* const kCudaContractionFeed = R"(
// --- Products: copies to shared memory ---
template <int kBytes> INLINE void ContractCopy(void* to, const void* from, bool is_there) {   // zeros where not
  const unsigned at = (unsigned)__cvta_generic_to_shared(to);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(is_there ? 16 : 0));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(at), "l"(from), "r"(is_there ? kBytes : 0), "n"(kBytes));
  }
}
INLINE void ContractCommit() { asm volatile("cp.async.commit_group;"); }
template <int kNewer> INLINE void ContractWait() { asm volatile("cp.async.wait_group %0;" ::"n"(kNewer) : "memory"); }

// What belongs to a line (a row of the left operand, a column of the right one), and to a term of the sum: their parts
// of the offset, and up to three numbers for conditions or indices.
template <class Index> struct ContractLine { Index offset; int a, b, c; };
struct alignas(16) ContractTerm { int offset, a, b, c; };

// An operand. `kTerms`: neighbours in memory are terms, else lines; they stay neighbours in a slice. `kCopy` of them
// move together. `kTable`: parts of terms come from a table in shared memory. `kDirect`: `value` gives elements, else
// it gives whether the element is there. `kGuarded`: `value` is false for lines and terms with a far negative `a`.
template <class E, bool kTermsOf, int kCopyOf, bool kTableOf, bool kDirectOf, bool kGuardedOf, class Line, class Term, class Value>
struct ContractSource {
  typedef E Element;
  static constexpr bool kTerms = kTermsOf, kTable = kTableOf, kDirect = kDirectOf, kGuarded = kGuardedOf;
  static constexpr int kCopy = kCopyOf;
  const E* from;
  int lines;
  Line line;
  Term term;
  Value value;
};
template <class E, bool kTerms, int kCopy, bool kTable, bool kDirect, bool kGuarded, class Line, class Term, class Value>
INLINE ContractSource<E, kTerms, kCopy, kTable, kDirect, kGuarded, Line, Term, Value> ContractOperand(const E* from, int lines, Line line, Term term, Value value) {
  return {from, lines, line, term, value};
}

// Brings kLines x kDepth elements of an operand to shared memory.
template <class Source, int kLines, int kDepth, int kThreads> struct ContractFeed {
  typedef typename Source::Element Element;
  static constexpr int kPad = Source::kTerms ? 16 / sizeof(Element) : 8;   // without bank conflicts
  static constexpr int kPitch = (Source::kTerms ? kDepth : kLines) + kPad;
  static constexpr int kSize = (Source::kTerms ? kLines : kDepth) * kPitch;
  static constexpr int kRun = (Source::kTerms ? kDepth : kLines) / Source::kCopy;   // copies of a row of the slice
  static constexpr int kAll = kLines * kDepth / Source::kCopy, kMine = (kAll + kThreads - 1) / kThreads;
  static constexpr int kWraps = kRun > kThreads ? kRun / kThreads : 1;   // copies of a thread in a row
  static constexpr int kParts = Source::kTerms ? kMine : kWraps;
  static constexpr int kHeld = Source::kDirect ? kMine : 1;
  static_assert(kThreads % kRun == 0 || kRun % kThreads == 0, "a thread keeps its places in the rows of a slice");
  typedef decltype(((Source*)nullptr)->line(0)) Part;

  const Source& source;
  Part part[kParts];
  bool is_line[kParts];
  Element held[kHeld];

  INLINE ContractFeed(const Source& of, int first) : source(of) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int copy = i * kThreads + threadIdx.x;
      const int line = first + (Source::kTerms ? copy / kRun : copy % kRun * Source::kCopy);
      is_line[i] = line < source.lines;
      part[i] = source.line(is_line[i] ? line : 0);
      if (Source::kGuarded && !is_line[i]) part[i].a = -(1 << 30);
    }
  }
  INLINE void MakeTable(ContractTerm* table, int term, int end) const {
    if constexpr (Source::kTable) {
      for (int t = threadIdx.x % 32; t < kDepth; t += 32) {
        ContractTerm at = source.term(term + t);
        if (Source::kGuarded && term + t >= end) at.a = -(1 << 30);
        table[t] = at;
      }
    }
  }
  // Starts to bring terms [term, term + kDepth), zeros from `end`.
  INLINE void Bring(Element* to, int term, int end, const ContractTerm* table) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int copy = i * kThreads + threadIdx.x, row = copy / kRun, within = copy % kRun * Source::kCopy;
      if (kAll % kThreads == 0 || copy < kAll) {
        const int t = Source::kTerms ? within : row;
        ContractTerm at;
        if constexpr (Source::kTable) at = table[t]; else at = source.term(term + t);
        const Part& p = part[i % kParts];
        const bool is_there = Source::kGuarded || (is_line[i % kParts] && term + t < end);
        if constexpr (Source::kDirect) {
          held[i] = Narrow<Element>(0.0f);
          if (is_there) held[i] = source.value(p, at);
        } else {
          ContractCopy<Source::kCopy * (int)sizeof(Element)>(to + row * kPitch + within, source.from + (p.offset + at.offset), is_there && source.value(p, at));
        }
      }
    }
  }
  // Elements that passed through registers.
  INLINE void Put(Element* to) const {
    if constexpr (Source::kDirect) {
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const int copy = i * kThreads + threadIdx.x;
        if (kAll % kThreads == 0 || copy < kAll) to[copy / kRun * kPitch + copy % kRun] = held[i];
      }
    }
  }
};

// result(m, n) of one tile: the sum of terms [begin, end), then store(m, n, result). `kDown`: neighbouring threads
// store neighbours in m. `kPaired`: store also gets the result half a tile further in n.
template <class Math, int kStages, bool kDown, bool kPaired, class Left, class Right, class Store>
INLINE void Contract(const Left& left, const Right& right, int m0, int n0, int begin, int end, const Store& store) {
  extern __shared__ float4 contract_pool[];
  constexpr int kTileM = Math::kTileM, kTileN = Math::kTileN, kDepth = Math::kDepth, kThreads = Math::kThreads;
  typedef ContractFeed<Left, kTileM, kDepth, kThreads> LeftFeed;
  typedef ContractFeed<Right, kTileN, kDepth, kThreads> RightFeed;
  typedef typename Left::Element Element;
  constexpr int kStage = LeftFeed::kSize + RightFeed::kSize;
  constexpr bool kTables = Left::kTable || Right::kTable;
  Element* stages = (Element*)contract_pool;
  ContractTerm* tables = (ContractTerm*)(stages + kStages * kStage);   // left and right, of two slices
  LeftFeed lefts(left, m0);
  RightFeed rights(right, n0);
  const int slices = (end - begin + kDepth - 1) / kDepth;
  const auto make_tables = [&](int s) {
    if (kTables && threadIdx.x / 32 == s % (kThreads / 32) && s < slices) {
      lefts.MakeTable(tables + s % 2 * (2 * kDepth), begin + s * kDepth, end);
      rights.MakeTable(tables + s % 2 * (2 * kDepth) + kDepth, begin + s * kDepth, end);
    }
  };
  const auto bring = [&](int s) {
    if (s < slices) {
      Element* stage = stages + s % kStages * kStage;
      lefts.Bring(stage, begin + s * kDepth, end, tables + s % 2 * (2 * kDepth));
      rights.Bring(stage + LeftFeed::kSize, begin + s * kDepth, end, tables + s % 2 * (2 * kDepth) + kDepth);
    }
    ContractCommit();   // an empty group where there was nothing left, so that the count stays right
  };
  const auto put = [&](int s) {
    if (s < slices) {
      lefts.Put(stages + s % kStages * kStage);
      rights.Put(stages + s % kStages * kStage + LeftFeed::kSize);
    }
  };
  Math math;
  math.Clear();
  make_tables(0);
  // The first turns only fill the stages: one text for both keeps the code short, and the compiler quick.
#pragma unroll 1
  for (int s = 1 - kStages; s < slices; ++s) {
    const int next = s + kStages - 1;
    if (s >= 0) ContractWait<kStages - 2>();
    if (kTables || s >= 0) __syncthreads();   // everybody's elements and tables are there, and the oldest stage is free
    make_tables(next + 1);
    bring(next);
    if (s >= 0) {
      const Element* stage = stages + s % kStages * kStage;
      math.template Step<LeftFeed, RightFeed, Left::kTerms, Right::kTerms>(stage, stage + LeftFeed::kSize);
    }
    put(next);
  }
  ContractWait<0>();
  __syncthreads();
  float* tile = (float*)contract_pool;
  constexpr int kPitch = kTileN + 8;
  math.template Spill<Left::kTerms, Right::kTerms>(tile, kPitch);
  __syncthreads();
  constexpr int kColumns = kPaired ? kTileN / 2 : kTileN, kLong = kDown ? kTileM : kColumns, kShort = kDown ? kColumns : kTileM;
  constexpr int kAcross = kThreads < kLong ? kThreads : kLong;
  for (int c = threadIdx.x % kAcross; c < kLong; c += kAcross) {
    if ((kDown ? m0 : n0) + c < (kDown ? left.lines : right.lines)) {
#pragma unroll 4
      for (int r = threadIdx.x / kAcross; r < kShort; r += kThreads / kAcross) {
        const int m = kDown ? c : r, n = kDown ? r : c;
        if ((kDown ? n0 : m0) + r < (kDown ? right.lines : left.lines)) {
          float sums[kPaired ? 2 : 1];
#pragma unroll
          for (int p = 0; p < (kPaired ? 2 : 1); ++p) {
            sums[p] = tile[m * kPitch + n + p * kColumns];
#pragma unroll
            for (int s = 1; s < Math::kShares; ++s) sums[p] += tile[(s * kTileM + m) * kPitch + n + p * kColumns];
          }
          if constexpr (kPaired) store(m0 + m, n0 + n, sums[0], sums[1]); else store(m0 + m, n0 + n, sums[0]);
        }
      }
    }
  }
}
)";

}  // namespace kevin::search
