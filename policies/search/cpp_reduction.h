#pragma once
// Accumulators of reductions in C++, for the files write_cpp_rows.cc and write_cpp_columns.cc. Internal.

#include <string>
#include <vector>

#include "policies/search/cpp_text.h"

namespace kevin::search {

// The texts of an operation of Accumulator.
struct CppFold {
  std::string start;         // "0.0f"
  bool is_argument = false;  // argmax, argmin: a Vec and an IntVec with the positions
  bool is_truth = false;     // any, all: folded as 0.0f and 1.0f
  std::string name;          // "NanMax"; empty: an operator
  std::string sign;          // "+"
  std::string Combine(const std::string& a, const std::string& b) const;
};
CppFold CppFoldOf(const Accumulator& accumulator);
// What is folded: a float.
ExprPtr CppFolded(const Accumulator& accumulator);
int CppSteps(const Reduction& work);
// The result's value where its accumulator has ended: "acc[0]" as the type of the result.
std::string CppResultText(const CppFold& fold, const std::string& value, bool lanes);

// An accumulator whose rows lie in lanes, and the name of its registers.
struct CppColumnFold {
  const Accumulator* accumulator;
  CppFold fold;
  std::string name;
};
std::vector<CppColumnFold> CppFoldsOf(const Reduction& work, int step, CppPrinter& print);
// acc = acc combined with the value at this point; `where`: the register of the position.
void CppCombineLanes(CppPrinter& print, const CppColumnFold& one, const Reduction& work,
                     const std::string& acc, const std::string& where);

// Lanes along an inner loop: each row is folded in registers.
void CppRows(const Reduction& work, size_t lanes, CppStage& stage);
// The same for a few long rows, which the threads share.
void CppSplitRows(const Reduction& work, size_t lanes, CppStage& stage);
// Lanes along an outer loop: windows (the accumulators in registers), and columns (in the nearest cache).
void CppWindows(const Reduction& work, size_t lanes, CppStage& stage);
void CppColumns(const Reduction& work, size_t lanes, CppStage& stage);
// One number at a time: sums of integers.
void CppScalarReduction(const Reduction& work, CppStage& stage);

}  // namespace kevin::search
