#pragma once
// The forms of computation that families recognise, for any kind of candidate. Each Find returns nullopt for
// a computation of another form, and throws Unsupported for one of its form that no family can write. Pure;
// any thread.

#include <optional>
#include <string>
#include <vector>

#include "policies/search/family.h"
#include "policies/search/term.h"

namespace kevin::search {

// out[i] = f(inputs). Within rows of dims [split, rank) each operand is contiguous or constant.
struct ElementwiseForm {
  TermPtr root;
  size_t split = 0;
};
std::optional<ElementwiseForm> FindElementwise(const Computation& computation);
// The operand's first element in row `row`, as C++ over that variable.
std::string RowOffset(const Term& leaf, const std::vector<Dim>& shape, size_t split);

// out = g(reduce(f(inputs))), one reduction. A leaf of f has full size, one element, or is one row that all
// rows share (the vector of a matrix-vector product).
struct ReducedForm {
  TermPtr root, reduction;
  ReducedLayout layout;
};
std::optional<ReducedForm> FindReduction(const Computation& computation);
bool IsOneRow(const Term& leaf, const std::vector<Dim>& shape, const ReducedLayout& layout);

// out = the index of an extreme of a full-size input.
struct ExtremeForm {
  TermPtr root;
  ReducedLayout layout;
  bool is_max = false;
};
std::optional<ExtremeForm> FindExtreme(const Computation& computation);

// out[i] = f(inputs, reductions of the inputs), all over the same dims.
struct NormalisedForm {
  TermPtr root;
  std::vector<Dim> shape;  // of the whole tensor
  ReducedLayout layout;
  std::vector<std::vector<TermPtr>> stages;  // reductions that need only earlier stages
  TermPtr kept;                              // computed by the last stage and needed again; may be null
};
std::optional<NormalisedForm> FindNormalised(const TermPtr& root);
// The largest parts of `term` that have one value per row (made of reductions and constants), except plain
// constants; added to `found` once.
void FindRowConstants(const TermPtr& term, std::vector<TermPtr>& found);

// A cumulative sum or product of a full-size input.
struct ScanForm {
  ReducedLayout layout;
  bool is_sum = true;
};
std::optional<ScanForm> FindScan(const Computation& computation);

// A product of matrices. Steps are in elements, as C++; "0" where the operand has no batch.
struct ProductForm {
  Dim batch, m, n, k;
  std::string left_row, left_term, left_batch = "0", right_term, right_column, right_batch = "0";
  int left = 0, right = 1;  // the arguments
};
std::optional<ProductForm> FindProduct(const Computation& computation);

}  // namespace kevin::search
