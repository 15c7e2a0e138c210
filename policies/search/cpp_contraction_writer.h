#pragma once
// Internal to write_cpp_contraction.cc and cpp_contraction_operands.cc: the text of a contraction under construction.
//
// START HERE for the order of the parts: CppContractionWriter::Write.

#include <functional>
#include <string>
#include <vector>

#include "policies/search/cpp_contraction.h"

namespace kevin::search {

// Binds the loops to the digits of the row-major number `name`.
void CppDecode(CppPrinter& print, const CppStage& stage, const std::vector<Loop>& loops,
               const std::string& name);

class CppContractionWriter {
 public:
  CppContractionWriter(const CppContractionPlan& plan, CppStage& stage)
      : plan_(plan), work_(plan.work), stage_(stage), print_(stage) {}

  void Write();

 private:
  std::string N(int64_t value) const { return stage_.Number(value); }
  bool IsPacked() const { return plan_.right == CppRight::kPacked || plan_.right == CppRight::kTransposed; }
  bool HasTables() const { return plan_.right != CppRight::kDots; }
  bool RightHasTable() const { return plan_.right == CppRight::kDirect || plan_.right == CppRight::kField; }
  std::vector<Loop> LeftBatch() const;
  std::vector<Loop> ColumnLoops() const;
  std::vector<Loop> OuterLoops() const;
  int64_t Pitch() const { return (plan_.column_block + 15) / 16 * 16; }
  int64_t RowBlocks() const { return (plan_.m + plan_.row_block - 1) / plan_.row_block; }
  int64_t ColumnBlocks() const { return (plan_.columns + plan_.column_block - 1) / plan_.column_block; }

  // Floats of the sums of a task.
  int64_t Sums() const {
    const bool whole_block = plan_.k_block < plan_.k || plan_.splits > 1;
    return (whole_block ? plan_.row_block : 8) * (Pitch() + 16) + 64;
  }

  unsigned CountsOfRows(int64_t most) const;

  void Buffers();
  void Decode(const std::vector<Loop>& loops, const std::string& name) {
    CppDecode(print_, stage_, loops, name);
  }
  int OpenK(const std::string& counter);
  void Tables(const std::string& counter);
  int OpenJobs(int64_t count, const std::string& job, int64_t parts);
  void FillField();
  void LimitSteps(const ExprPtr& bound, int n, const std::string& low, const std::string& high);
  void PackLeft();
  void Tasks();
  void TaskOperands();
  void PackRight();
  void RowTiles();
  void SumOfSplits();
  void StoreRows(const std::string& sums, const std::string& pitch, const std::string& from,
                 const std::string& to);
  using RowText = std::function<void(const std::string& column, const std::string& x)>;
  void ForColumns(const RowText& text);

  const CppContractionPlan& plan_;
  const Contraction& work_;
  CppStage& stage_;
  CppPrinter print_;
};

}  // namespace kevin::search
