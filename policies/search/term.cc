#include "policies/search/term.h"

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/emit.h"

namespace kevin::search {
TermPtr FinishTerm(Term term) {
  std::string key = term.op;
  if (term.op == "constant") key += fmt::format(" {:.17g}", term.value);
  if (term.op == "leaf") {
    key += fmt::format(" {}", term.input);
    for (size_t i = 0; i < term.shape.size(); ++i)
      key += fmt::format(" {}:{}", term.shape[i].size, term.strides[i]);
  }
  for (const int dim : term.dims) key += fmt::format(" {}", dim);
  if (term.keep_dims) key += " keep";
  for (const TermPtr& arg : term.args) key += " (" + arg->key + ")";
  term.key = std::move(key);
  return std::make_shared<const Term>(std::move(term));
}

namespace {

std::vector<Dim> BroadcastShapes(const std::vector<TermPtr>& args) {
  std::vector<Dim> shape;
  for (const TermPtr& arg : args) {
    const std::vector<Dim>& other = arg->shape;
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), Dim{});
    for (size_t i = 0; i < other.size(); ++i) {
      Dim& dim = shape[shape.size() - other.size() + i];
      if (other[i].size == 1) continue;
      if (dim.size != 1 && dim.size != other[i].size) {
        throw Unsupported(fmt::format("sizes {} and {} do not broadcast", dim.size, other[i].size));
      }
      dim = other[i];
    }
  }
  return shape;
}

}  // namespace

bool IsReduction(const Term& term) {
  static const char* const kNames[] = {"sum", "mean", "max", "min", "argmax", "argmin", "head"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](const char* name) { return term.op == name; });
}

bool IsElementwise(const Term& term) { return CppDialect().forms.count(term.op) > 0; }

int64_t Count(const std::vector<Dim>& shape) {
  int64_t count = 1;
  for (const Dim& dim : shape) count *= dim.size;
  return count;
}

std::string CountText(const std::vector<Dim>& shape, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    if (shape[i].size == 1) continue;
    text += (text.empty() ? "" : " * ") + shape[i].text;
  }
  return text.empty() ? "1" : text;
}

TermPtr MakeConstant(double value) {
  Term term;
  term.op = "constant";
  term.value = value;
  return FinishTerm(std::move(term));
}

TermPtr MakeTerm(const std::string& op, std::vector<TermPtr> args) {
  const bool folds =
      std::all_of(args.begin(), args.end(), [](const TermPtr& a) { return a->op == "constant"; });
  if (folds && !args.empty()) {
    const std::optional<double> value =
        FoldElement(op, args[0]->value, args.size() > 1 ? args[1]->value : 0.0);
    if (value) return MakeConstant(*value);
  }
  Term term;
  term.op = op;
  term.shape = BroadcastShapes(args);
  term.args = std::move(args);
  return FinishTerm(std::move(term));
}

TermPtr MakeReduction(const std::string& op, const TermPtr& arg, std::vector<int> dims, bool keep_dims) {
  std::sort(dims.begin(), dims.end());
  Term term;
  term.op = op;
  term.dims = std::move(dims);
  term.keep_dims = keep_dims;
  for (size_t i = 0; i < arg->shape.size(); ++i) {
    const bool reduced = std::count(term.dims.begin(), term.dims.end(), static_cast<int>(i)) > 0;
    if (!reduced) term.shape.push_back(arg->shape[i]);
    if (reduced && keep_dims) term.shape.push_back(Dim{});
  }
  term.args = {arg};
  return FinishTerm(std::move(term));
}

}  // namespace kevin::search
