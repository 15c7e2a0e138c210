#pragma once
// Internal to write_cuda_contraction.cc and cuda_product_*.cc: the kernels of one contraction.

#include <optional>
#include <string>
#include <vector>

#include "policies/search/cuda_product_group.h"
#include "policies/search/cuda_wgmma.h"

namespace kevin::search {

// "float", "__half" or "__nv_bfloat16".
std::string CudaElementOf(const std::string& dtype);

// Bodies of the kernels, and their launches.
class CudaProductWriter {
 public:
  // With a group, `c` is its first member with all stores, and `stage` has it.
  CudaProductWriter(CudaText& text, const Stage& stage, const Contraction& c, CudaTiling tiling,
                    CudaProductGroup group = {});
  void Write();

 private:
  // Copies the operand, converted, with its terms (or lines) together in rows of whole 16 bytes; zeros beyond the end.
  void Pack(CudaOperand& operand, const ExprPtr& value, const std::vector<Loop>& lines, bool is_left);
  void WriteRows();
  void WriteProduct(const std::string& partial);
  // Adds the shares of the sums, and stores.
  void WriteSum(const std::string& partial, const std::string& points);
  // Variables of the repetitions around the stage.
  std::string Outer(CudaKernel& kernel) const;
  std::string Body(CudaKernel& kernel, bool may_split);
  // The block's batch and tile.
  std::string Place() const;
  // wgmma (cuda_product_wgmma.cc).
  void WriteWgmma();
  void PackWeights();
  void PackWindows();
  std::string WgmmaPlaces() const;
  std::string Map(const CudaOperand& o, const std::vector<Loop>& lines, const std::string& box_lines) const;
  int64_t StorePack(const std::vector<Loop>& across) const;
  std::string PackedStores(CudaKernel& kernel, int64_t pack) const;
  std::string WindowsDecoded(const std::string& flat, int64_t pack) const;
  std::vector<std::string> TapExtents() const;
  std::string TapCount() const;
  std::vector<std::string> Extents(const std::vector<Loop>& loops) const;
  // The number of terms of the batch.
  std::string TermCount() const;
  // And the block's share of them.
  std::string Terms() const;
  std::string Operand(CudaKernel& kernel, const std::string& name, const std::string& limit,
                      const CudaOperand& operand, const ExprPtr& value, const std::vector<Loop>& lines);
  std::string SplitOperand(CudaKernel& kernel, const std::string& name, const std::string& limit,
                           const CudaOperand& o, const std::vector<Loop>& lines);
  // Another expression: the loop variables travel in the parts, four of each.
  std::string OtherOperand(CudaKernel& kernel, const std::string& name, const std::string& limit,
                           const ExprPtr& value, const std::vector<Loop>& lines);
  static std::string Returned(const std::vector<std::string>& fields);
  struct SourceKind {
    bool terms;
    int copy;
    bool table, direct, guarded;
  };
  std::string Source(const std::string& name, const std::string& limit, const SourceKind& kind,
                     const std::string& index, const std::string& line, const std::string& term,
                     const std::string& value, const std::string& from) const;
  // Whether neighbours in memory are terms, by the first load with a unit stride.
  bool PrefersTerms(const ExprPtr& value, const std::vector<Loop>& lines) const;
  CudaPrinter Printer(CudaKernel& kernel) const;
  // For the point (batch, m, n): the share's sum, or the stores.
  std::string Results(CudaKernel& kernel, bool may_split) const;
  std::string Stores(CudaKernel& kernel) const;
  std::string StoresOf(CudaKernel& kernel, const std::vector<Store>& stores) const;
  // Of a group (cuda_product_group.cc): lines of the right operand, and columns of the tiles, go through all members.
  std::string GroupColumns() const;
  std::string GroupLine(CudaKernel& kernel) const;
  std::string GroupStores(CudaKernel& kernel) const;
  std::string SharedBytes() const;

  CudaText& text_;
  const Stage& stage_;
  const Contraction& c_;
  CudaTiling tiling_;
  CudaProductGroup group_;
  bool limited_ = false;
  std::string type_, element_;
  CudaOperand left_, right_;
  std::vector<std::string> term_extents_;
  // Of wgmma: rows of tiles are n; the right operand is windows, and its copy.
  bool swapped_ = false;
  std::optional<CudaWindows> windows_;
  std::string right_packed_;
};

}  // namespace kevin::search
