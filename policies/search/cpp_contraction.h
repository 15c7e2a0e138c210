#pragma once
// How a contraction is computed in C++. CppPlanContraction decides, write_cpp_contraction.cc prints it, and
// cpp_contraction_core.cc has the text that all contractions share. Internal to the writer.
//
// The product is made in tiles: some rows (points of m) by some vectors of columns (points of n and the sums over k stay
// in registers). Row operands are read element by element, column operands as vectors; element k of both lies at an
// offset from a table, so that operands need not be copied where their columns lie side by side.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/search/cpp_text.h"

namespace kevin::search {

// How the columns are read.
enum class CppRight {
  kDirect,  // from the buffer: neighbouring columns lie side by side
  kField,   // the same from a copy of the buffer with the padding in it, split by the phases of the stride
  kPacked,  // a block of k x columns is copied first
  kTransposed,  // the same where elements of k lie side by side
  kDots,        // elements of k lie side by side in both operands: vectors run along k
};

// The copy of a padded operand. Its axes are the `rest` (channels, images, ...) and positions along padded dimensions.
struct CppField {
  struct Axis {
    int n = -1;                          // the variable of n whose positions these are
    int position = -1;                   // the variable of the position in `value`
    int64_t positions = 0;               // how many there are, padding included
    int64_t stride = 1;                  // of the convolution: neighbours along n are so many positions apart
    int64_t steps = 0;                   // positions / stride, rounded up
    int64_t low = 0, high = 0;           // positions outside of these are 0
    int64_t pitch = 0, phase_pitch = 0;  // in the copy, by step and by phase
  };
  std::vector<Loop> rest;
  std::vector<int64_t> rest_pitch;
  std::vector<Axis> axes;  // as in n; the last has pitch 1
  ExprPtr value;           // of one element inside, a load
  // Where taps along the last dimension belong to the rest: what must not be negative, with n instead of a position.
  std::vector<ExprPtr> bounds;
  int64_t elements = 0;
};

struct CppContractionPlan {
  Contraction work;  // operands exchanged where that is better, loops joined
  CppRight right = CppRight::kPacked;
  bool left_is_packed = false;
  bool expand = false;  // of the field
  std::optional<CppField> field;
  // Loops of n from here on make the columns; those before, like the batch, are outer loops.
  size_t first_column = 0;
  std::vector<int64_t> pitch;  // by loop of the columns: how many columns apart neighbours are
  int64_t columns = 0;         // with the gaps between rows, where a pitch is larger than it must be
  int64_t m = 0, k = 0;
  // Offsets of the operands: of an outer point (batch, outer n), of row m, of k; where they are read from a buffer.
  ExprPtr left_base, right_base, right_k;
  int64_t left_row = 0, left_step = 0, right_column = 0;  // between rows, elements of k, columns
  bool tables_by_batch = false;  // offsets by k or limits differ between points of batch
  int64_t column_block = 0, row_block = 0, k_block = 0;
  int64_t splits = 1;  // of k, summed at the end
  double cycles = 0;   // about, for the choice among plans
};

// nullopt: the simple way is as good.
std::optional<CppContractionPlan> CppPlanContraction(const Contraction& work, const CppStage& stage);

// --- cpp_contraction_field.cc ---

// Where the right operand is a guarded load of a padded position along some dimensions: the copy, and the offset of
// an element in it.
struct CppFieldPlan {
  CppField field;
  ExprPtr offset;
};
// `expand`: each tap along the last dimension has a copy of its own, so that no columns are lost between rows.
std::optional<CppFieldPlan> CppPlanField(const Contraction& work, const CppStage& stage, bool expand,
                                         int& next_variable);

// --- cpp_winograd.cc ---

// Whether it is a convolution of 3 x 3 taps at stride 1 in two dimensions, without groups, of a float32 tensor.
bool CppSuitsWinograd(const Contraction& work, const Program& program, const Task& task);
// Writes such a convolution by Winograd; false, and nothing changed, for others and where that takes more than
// `other_cycles`.
bool CppWinograd(const Contraction& work, CppStage& stage, double other_cycles);
std::string CppWinogradCore();

// --- cpp_contraction_core.cc ---

std::string CppContractionCore();
std::string CppTransposeCore();
std::string CppDotsCore();
std::string CppFieldCore();

}  // namespace kevin::search
