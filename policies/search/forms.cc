#include "policies/search/forms.h"

#include <fmt/format.h>

#include <algorithm>

namespace kevin::search {

std::optional<ElementwiseForm> FindElementwise(const Computation& computation) {
  const TermPtr root = computation.one_pass;
  if (!IsElementwise(*root) || Contains(root, [](const Term& t) {
        return !IsElementwise(t) && t.op != "leaf" && t.op != "constant";
      })) {
    return std::nullopt;
  }
  for (size_t split = 0; split <= root->shape.size(); ++split) {
    bool fits = true;
    for (const TermPtr& leaf : Leaves(root)) {
      fits &= MotionOver(*leaf, root->shape, split, root->shape.size()) != Motion::kOther;
    }
    if (fits) return ElementwiseForm{root, split};
  }
  throw Unsupported("an operand is transposed or broadcast in the middle of a row");
}

std::string RowOffset(const Term& leaf, const std::vector<Dim>& shape, size_t split) {
  const size_t missing = shape.size() - leaf.shape.size();
  std::string text;
  for (size_t i = missing; i < split; ++i) {
    const size_t own = i - missing;
    if (leaf.shape[own].size == 1) continue;
    std::string stride;
    for (size_t j = 0; j < leaf.shape.size(); ++j) {  // the dims that this one steps over, as symbols
      if (leaf.strides[j] != 0 && leaf.strides[j] < leaf.strides[own]) stride += " * " + leaf.shape[j].text;
    }
    text += (text.empty() ? "" : " + ") +
            fmt::format("row / ({}) % {}{}", CountText(shape, i + 1, split), shape[i].text, stride);
  }
  return text.empty() ? "0" : text;
}

bool IsOneRow(const Term& leaf, const std::vector<Dim>& shape, const ReducedLayout& layout) {
  return layout.inner == 1 && MotionOver(leaf, shape, 0, layout.begin) == Motion::kConstant &&
         MotionOver(leaf, shape, layout.begin, layout.end) == Motion::kInStep;
}

std::optional<ReducedForm> FindReduction(const Computation& computation) {
  const TermPtr root = computation.two_pass;
  const std::vector<TermPtr> reductions = Reductions(root);
  if (reductions.size() != 1 || Count(root->shape) != Count(reductions[0]->shape)) return std::nullopt;
  const TermPtr& reduction = reductions[0];
  if (reduction->op.rfind("arg", 0) == 0) return std::nullopt;
  const TermPtr operand = reduction->args[0];
  const ReducedLayout layout = LayoutOf(operand->shape, reduction->dims);
  for (const TermPtr& leaf : Leaves(operand)) {
    if (!IsFull(*leaf, operand->shape) && Count(leaf->shape) != 1 &&
        !IsOneRow(*leaf, operand->shape, layout)) {
      throw Unsupported("a reduction over a broadcast or transposed operand");
    }
  }
  if (Leaves(root).size() != Leaves(operand).size())
    throw Unsupported("an operand is used after a reduction");
  return ReducedForm{root, reduction, layout};
}

std::optional<ExtremeForm> FindExtreme(const Computation& computation) {
  const TermPtr root = computation.two_pass;
  if (root->op != "argmax" && root->op != "argmin") return std::nullopt;
  const TermPtr operand = root->args[0];
  if (operand->op != "leaf" || !IsFull(*operand, operand->shape)) {
    throw Unsupported("an index reduction of a computed tensor");
  }
  const ReducedLayout layout = LayoutOf(operand->shape, root->dims);
  if (layout.terms > 2147483647) throw Unsupported("an index reduction over more than 2^31 terms");
  return ExtremeForm{root, layout, root->op == "argmax"};
}

std::optional<ScanForm> FindScan(const Computation& computation) {
  const TermPtr root = computation.one_pass;
  if (root->op != "cumsum" && root->op != "cumprod") return std::nullopt;
  if (root->args[0]->op != "leaf" || !IsFull(*root->args[0], root->shape)) {
    throw Unsupported("a scan of a computed tensor");
  }
  return ScanForm{LayoutOf(root->shape, root->dims), root->op == "cumsum"};
}

namespace {

size_t Depth(const TermPtr& term) {
  size_t depth = 0;
  for (const TermPtr& arg : term->args) depth = std::max(depth, Depth(arg));
  return depth + (IsReduction(*term) ? 1 : 0);
}

bool IsTerms(const Term& leaf, const NormalisedForm& n) {
  const size_t rank = n.shape.size();
  return MotionOver(leaf, n.shape, 0, n.layout.begin) == Motion::kConstant &&
         MotionOver(leaf, n.shape, n.layout.begin, n.layout.end) == Motion::kInStep &&
         MotionOver(leaf, n.shape, n.layout.end, rank) == Motion::kConstant;
}

// Same value for all terms of a row: made of reductions and constants only.
bool IsRowConstant(const TermPtr& term) {
  if (IsReduction(*term)) return true;
  if (term->op == "leaf") return Count(term->shape) == 1;
  return std::all_of(term->args.begin(), term->args.end(), &IsRowConstant);
}

}  // namespace

void FindRowConstants(const TermPtr& term, std::vector<TermPtr>& found) {
  if (term->op == "constant" || term->op == "leaf") return;
  if (!IsRowConstant(term)) {
    for (const TermPtr& arg : term->args) FindRowConstants(arg, found);
  } else if (std::none_of(found.begin(), found.end(),
                          [&](const TermPtr& t) { return t->key == term->key; })) {
    found.push_back(term);
  }
}

std::optional<NormalisedForm> FindNormalised(const TermPtr& root) {
  const std::vector<TermPtr> reductions = Reductions(root);
  if (!IsElementwise(*root) || reductions.empty()) return std::nullopt;
  NormalisedForm n;
  n.root = root;
  n.shape = reductions[0]->args[0]->shape;
  if (Count(n.shape) != Count(root->shape) || n.shape.size() != root->shape.size()) return std::nullopt;
  n.layout = LayoutOf(n.shape, reductions[0]->dims);
  for (const TermPtr& reduction : reductions) {
    if (reduction->dims != reductions[0]->dims || Count(reduction->args[0]->shape) != Count(n.shape)) {
      throw Unsupported("reductions over different dimensions");
    }
    const bool lines_up = reduction->keep_dims || n.layout.begin == 0;
    if (!lines_up || reduction->op.rfind("arg", 0) == 0)
      throw Unsupported("a reduction without keepdim inside");
    const size_t stage = Depth(reduction) - 1;
    if (n.stages.size() <= stage) n.stages.resize(stage + 1);
    n.stages[stage].push_back(reduction);
  }
  for (const TermPtr& leaf : Leaves(root)) {
    if (!IsFull(*leaf, n.shape) && !IsTerms(*leaf, n) && Count(leaf->shape) != 1) {
      throw Unsupported("an operand that is neither of full size nor one value per reduced element");
    }
  }
  const TermPtr last = n.stages.back()[0]->args[0];
  const bool is_used_again =
      IsElementwise(*last) && Contains(root, [&](const Term& t) {
        return IsElementwise(t) && std::any_of(t.args.begin(), t.args.end(), [&](const TermPtr& a) {
                 return a->key == last->key && !IsRowConstant(std::make_shared<const Term>(t));
               });
      });
  if (n.stages.back().size() == 1 && is_used_again) n.kept = last;
  return n;
}

namespace {

// The step along `dim`, as C++ over the operand's own sizes.
std::string Step(const Term& leaf, size_t dim) {
  if (leaf.shape[dim].size == 1) return "1";
  std::string text;
  for (size_t i = 0; i < leaf.shape.size(); ++i) {
    const bool is_inside = leaf.shape[i].size != 1 && leaf.strides[i] < leaf.strides[dim];
    if (is_inside) text += (text.empty() ? "" : " * ") + leaf.shape[i].text;
  }
  return text.empty() ? "1" : text;
}

std::optional<ProductForm> Analyse(const Term& root) {
  const Term &left = *root.args[0], &right = *root.args[1];
  const size_t rank = left.shape.size();
  ProductForm p;
  p.left = left.input;
  p.right = right.input;
  const bool flat = right.shape.size() == 2 && rank > 2;  // leading dims of the left operand are rows too
  if (right.shape.size() > 3 || right.shape.size() < 2) return std::nullopt;
  if (right.shape.size() == 3 && (rank != 3 || left.shape[0].size != right.shape[0].size))
    return std::nullopt;
  if (flat && !IsFull(left, left.shape)) return std::nullopt;
  p.m = flat ? Dim{Count(left.shape) / left.shape.back().size, CountText(left.shape, 0, rank - 1)}
             : left.shape[rank - 2];
  p.k = left.shape.back();
  p.n = right.shape.back();
  p.left_row = flat ? p.k.text : Step(left, rank - 2);
  p.left_term = flat ? "1" : Step(left, rank - 1);
  p.right_term = Step(right, right.shape.size() - 2);
  p.right_column = Step(right, right.shape.size() - 1);
  if (right.shape.size() == 3) {
    p.batch = left.shape[0];
    p.left_batch = Step(left, 0);
    p.right_batch = Step(right, 0);
  }
  return p;
}

}  // namespace

std::optional<ProductForm> FindProduct(const Computation& computation) {
  const TermPtr root = computation.one_pass;
  if (root->op != "matmul") return std::nullopt;
  const std::optional<ProductForm> product = Analyse(*root);
  if (!product) throw Unsupported("a matrix product with broadcast batch dimensions");
  return product;
}

}  // namespace kevin::search
