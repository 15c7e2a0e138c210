#pragma once
// Internal to write_cuda_contraction.cc and cuda_contraction_*.cc: how an operand of a contraction is read, and the
// texts that all contractions share.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/search/cuda_text.h"

namespace kevin::search {

// Device code shared by contractions; each part after the first needs the first.
extern const char* const kCudaContractionFeed;
extern const char* const kCudaContractionFma;
extern const char* const kCudaContractionTf32;
extern const char* const kCudaContractionHalf;
extern const char* const kCudaContractionRows;  // alone

// 0 <= line + term < range, as one unsigned comparison; range 0: line + term >= 0 alone.
struct CudaOperandCondition {
  ExprPtr line, term;
  int64_t range = 0;
};

// An operand as a load whose offset and conditions are sums of a part by batch, one by line (m or n) and one by term
// (k). `is_split` false: another expression; only the loads' types hold.
struct CudaOperand {
  bool is_split = false;
  int buffer = -1;
  ExprPtr batch, line, term;
  std::vector<CudaOperandCondition> conditions;
  std::optional<int64_t> line_stride, term_stride;  // where the part is a multiple of the flat index
  bool terms_together = false;                      // neighbours in memory are terms
  int copy = 1;                                     // elements that can move together (aligned)
  bool wide = false;                                // offsets above 2^31
  // A copy in a workspace of the launch in place of the buffer (cuda_contraction_pack.cc): its argument, and the
  // elements of a batch.
  std::string packed;
  int64_t packed_batch = 0;
};

// `limited`: the extents of k depend on the batch, so that terms have no flat stride.
CudaOperand ReadCudaOperand(const Program& program, const ExprPtr& operand, const std::vector<Loop>& lines,
                            const std::vector<Loop>& terms, bool limited);

// The texts of the numbers of a kernel: literals, or expressions of knobs.
struct CudaTiling {
  std::string tile_m, tile_n, depth, stages, threads;
  // Shares of the sum: in launches, and in bodies, where equal kernels may differ in it. Splits: it may be above 1.
  std::string split, split_body;
  bool splits = false, split_is_knob = false;
  std::string residents;  // blocks to a multiprocessor; 0 counts as 1
  std::string math;       // the type of the arithmetic in the text, of kTileM and kTileN
  const char* prelude = nullptr;
  std::string shares = "1";  // warps with the same results, which divide the terms of a slice
  bool wgmma = false;        // in place of all of the above
};
// Products in 16 bits that are too small to be held up by anything but the latency of memory: small tiles, one to a
// multiprocessor where possible, whose warps divide the terms; no second launch adds shares. Empty where wgmma or larger
// tiles are expected to be faster. Tiles as m * 1000 + n; the first of each is the best guess; all of them fit the shared
// memory in every combination. `members`: products of this form in one launch (cuda_product_group.h).
struct CudaSmallChoice {
  std::vector<int64_t> tiles, depths, stages;
};
CudaSmallChoice ChooseCudaSmall(const Program& program, const Task& task, const Contraction& c,
                                int64_t members = 1);

CudaTiling CudaTilingOf(const CudaText& text, const Contraction& contraction, int64_t members = 1);

// "float16" or "bfloat16" where all loads of both operands have that type, else "float32".
std::string CudaProductType(const Program& program, const Contraction& contraction);

// The stride of the flat index of `loops`, if `part` is a multiple of it.
std::optional<int64_t> CudaFlatStride(const ExprPtr& part, const std::vector<Loop>& loops);

// Whether one side has so few lines that rows of the other are read once each (cuda_contraction_rows.cc).
bool SuitsCudaRows(const Program& program, const Contraction& work, const CudaOperand& left,
                   const CudaOperand& right);

// Whether a copy of the operand in rows of whole 16 bytes, made once, saves more than it costs.
bool PaysCudaPack(const Program& program, const CudaOperand& operand, const ExprPtr& value,
                  const Contraction& work, bool is_left);

// Constants v<i> from the flat index `flat` of the loops; extents are texts.
std::string CudaDecoded(const std::vector<Loop>& loops, const std::string& flat,
                        const std::vector<std::string>& extents);

// Integers in CUDA; variable i is `v<i>`. 64 bits where `wide`. Throws Unsupported for loads and the like.
std::string CudaInteger(const CudaText& text, const ExprPtr& expr, bool wide);

}  // namespace kevin::search
