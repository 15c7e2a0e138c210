#pragma once
// What a reference computes, with shapes: a small graph over the arguments. Made from torchscript.h's
// expression; composed operations (softmax, layer norm, GELU, ...) are already taken apart into the
// operations below.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "policies/search/torchscript.h"

namespace kevin::search {

struct Dim {
  int64_t size = 1;
  std::string text = "1";  // C++ over the size symbols, "(B)" or "4096"
};

struct Term;
using TermPtr = std::shared_ptr<const Term>;

// `op` is one of
//   leaf      argument `input`, seen through `strides` (elements; 0 where it is broadcast)
//   constant  `value`
//   an element-wise operation of emit.h's table ("add", "exp", "where", ...)
//   sum, mean, max, min, argmax, argmin, head   reductions over `dims` (sorted); head is the mean of the
//   first
//             kHeadTerms terms, a cheap estimate of the mean to shift by
//   cumsum, cumprod   scans along dims[0]
//   matmul    the last two dims are rows and columns, batch dims in front
struct Term {
  std::string op;
  double value = 0;
  int input = -1;
  std::vector<Dim> shape;
  std::vector<int64_t> strides;
  std::vector<TermPtr> args;
  std::vector<int> dims;
  bool keep_dims = false;
  std::string key;  // equal for equal terms
};

inline constexpr int kHeadTerms = 256;

bool IsReduction(const Term& term);
bool IsElementwise(const Term& term);  // an operation on elements; not a leaf, not a constant

int64_t Count(const std::vector<Dim>& shape);
std::string CountText(const std::vector<Dim>& shape, size_t begin, size_t end);  // "1" for an empty range
inline std::string CountText(const std::vector<Dim>& shape) { return CountText(shape, 0, shape.size()); }

TermPtr MakeConstant(double value);
TermPtr MakeTerm(const std::string& op, std::vector<TermPtr> args);  // element-wise; shapes are broadcast
TermPtr MakeReduction(const std::string& op, const TermPtr& arg, std::vector<int> dims, bool keep_dims);

// For leaves and operations that MakeTerm does not make: fills `key`.
TermPtr FinishTerm(Term term);

}  // namespace kevin::search
