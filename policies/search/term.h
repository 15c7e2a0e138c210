#pragma once
// The computation of a reference with shapes: a small graph over the arguments, and its text as C++ or CUDA.
// lower.h makes it from the expression of torchscript.h; composed operations (softmax, layer norm, GELU, ...)
// are already decomposed into the operations below.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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
//   leaf                       argument `input`, read with `strides` (in elements; 0 where it is broadcast)
//   constant                   `value`
//   add, exp, where, ...       an elementwise operation of the dialects' tables (term.cc)
//   sum, mean, max, min,
//   argmax, argmin             a reduction over `dims` (sorted)
//   head                       a reduction too: the mean of the first kHeadTerms terms, a cheap estimate
//                              of the mean
//   cumsum, cumprod            a scan along dims[0]
//   matmul                     a product; the last two dims are rows and columns, the others batch
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
bool IsElementwise(const Term& term);  // false for leaves and constants

int64_t Count(const std::vector<Dim>& shape);
std::string CountText(const std::vector<Dim>& shape, size_t begin, size_t end);  // "1" for an empty range
inline std::string CountText(const std::vector<Dim>& shape) { return CountText(shape, 0, shape.size()); }

TermPtr MakeConstant(double value);
TermPtr MakeTerm(const std::string& op, std::vector<TermPtr> args);  // element-wise; shapes are broadcast
TermPtr MakeReduction(const std::string& op, const TermPtr& arg, std::vector<int> dims, bool keep_dims);

// Completes a term made otherwise (a leaf, a scan, a product): sets `key`.
TermPtr FinishTerm(Term term);

// How a kind of candidate spells terms: C++ on whole vectors, CUDA on one number per thread (prelude.h).
struct Dialect {
  std::map<std::string, const char*> forms;  // elementwise operations with $0, $1, $2 for their operands
  const char* constant = nullptr;            // with $0 for the number
};
const Dialect& CppDialect();
// `is_fast`: faster functions with an absolute error of a few units in the last place of 1.
const Dialect& CudaDialect(bool is_fast);
// `form` with $0, $1, ... replaced.
std::string Spell(const char* form, const std::vector<std::string>& operands);
// The result of an operation on constants; nullopt for an operation that references do not apply to
// constants.
std::optional<double> FoldElement(const std::string& op, double a, double b);
// "0.5f", "3.0f", "__builtin_inff()".
std::string FloatText(double value);

// Writes terms as statements: one `const auto` per operation, equal terms once. One thread.
class Emitter {
 public:
  using LeafText = std::function<std::string(const Term& leaf)>;
  // `names` is the prefix of the variables; emitters of one scope need different ones.
  Emitter(const Dialect& dialect, std::string indent, std::string names, LeafText leaf)
      : dialect_(dialect), indent_(std::move(indent)), names_(std::move(names)), leaf_(std::move(leaf)) {}

  // `term` is computed already; `text` names it.
  void Bind(const Term& term, std::string text) { known_[term.key] = std::move(text); }
  // Appends the statements that `term` needs to Lines() and returns its name. Throws Unsupported for a term
  // that is not elementwise.
  std::string Emit(const TermPtr& term);
  const std::string& Lines() const { return lines_; }

 private:
  const Dialect& dialect_;
  std::string indent_, names_;
  LeafText leaf_;
  std::map<std::string, std::string> known_;
  std::string lines_;
  int count_ = 0;
};

}  // namespace kevin::search
