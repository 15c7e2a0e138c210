// Other views of the same numbers, and the operations that need whole tensors: products and scans.

#include <algorithm>

#include "policies/search/lowering.h"

namespace kevin::search {

TermPtr Lowering::NewAxes(const Node& call) {
  TermPtr term = Value(*call.args[0]);
  int at = 0;
  for (size_t i = 1; i < call.args.size(); ++i, ++at) {
    const Node& item = *call.args[i];
    if (item.kind == Node::Kind::kNone) {
      term = Unsqueeze(term, at);
    } else if (item.text == "...") {
      at += static_cast<int>(term->shape.size()) - at - static_cast<int>(call.args.size() - i);
    } else if (item.text != "slice" || item.args[0]->kind != Node::Kind::kNone ||
               item.args[1]->kind != Node::Kind::kNone) {
      throw Unsupported("the reference takes a part of a tensor");
    }
  }
  return term;
}

TermPtr Lowering::View(const Node& call, const Args& args) {
  const std::string& name = call.text;
  if (name == "size") {
    const TermPtr x = Value(args.Need(0, "input"));
    return Number(static_cast<double>(
        x->shape[static_cast<size_t>(Wrap(Integers(args.Need(1, "dim")).at(0), x->shape.size()))].size));
  }
  if (name == "numel") return Number(static_cast<double>(Count(Value(args.Need(0, "input"))->shape)));
  if (name == "contiguous" || name == "float" || name == "clone") return Value(args.Need(0, "input"));
  if (name == "unsqueeze") {
    const TermPtr x = Value(args.Need(0, "input"));
    return Unsqueeze(x, Wrap(Integers(args.Need(1, "dim")).at(0), x->shape.size() + 1));
  }
  if (name == "t" || name == "T" || name == "mT") {
    const TermPtr x = Value(args.Need(0, "input"));
    if (x->shape.size() < 2) return x;
    return Swap(x, x->shape.size() - 2, x->shape.size() - 1);
  }
  if (name == "transpose") {
    const TermPtr x = Value(args.Need(0, "input"));
    const size_t rank = x->shape.size();
    return Swap(x, static_cast<size_t>(Wrap(Integers(args.Need(1, "dim0")).at(0), rank)),
                static_cast<size_t>(Wrap(Integers(args.Need(2, "dim1")).at(0), rank)));
  }
  if (name == "view" || name == "reshape" || name == "flatten") return Reshape(call);
  return nullptr;
}

TermPtr Lowering::Unsqueeze(const TermPtr& x, int at) {
  Term term = *x;
  if (x->op == "constant") return x;
  if (x->op == "leaf") {
    term.shape.insert(term.shape.begin() + at, Dim{});
    term.strides.insert(term.strides.begin() + at, 0);
    return FinishTerm(std::move(term));
  }
  if (IsReduction(*x) && !x->keep_dims && x->dims.size() == 1 && x->dims[0] == at) {
    return MakeReduction(x->op, x->args[0], x->dims, true);
  }
  if (!IsElementwise(*x)) throw Unsupported("`unsqueeze` of a computed tensor");
  for (TermPtr& arg : term.args) {
    if (!arg->shape.empty() && arg->shape.size() != x->shape.size())
      throw Unsupported("`unsqueeze` of a broadcast");
    arg = Unsqueeze(arg, at);
  }
  return MakeTerm(term.op, term.args);
}

TermPtr Lowering::Swap(const TermPtr& x, size_t a, size_t b) {
  if (x->op != "leaf") throw Unsupported("a transposed intermediate result");
  Term term = *x;
  std::swap(term.shape[a], term.shape[b]);
  std::swap(term.strides[a], term.strides[b]);
  return FinishTerm(std::move(term));
}

TermPtr Lowering::Reshape(const Node& call) {
  const TermPtr x = Value(*call.args.at(0));
  Term plain = *x;
  SetContiguous(plain);
  if (x->op != "leaf" || plain.strides != x->strides)
    throw Unsupported("`" + call.text + "` of a computed tensor");
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < call.args.size(); ++i) {
    for (const int64_t size : Integers(*call.args[i])) sizes.push_back(size);
  }
  if (call.text == "flatten") throw Unsupported("`flatten`");
  int64_t known = 1;
  for (const int64_t size : sizes) known *= size == -1 ? 1 : size;
  Term term = *x;
  term.shape.clear();
  for (const int64_t size : sizes) {
    const int64_t value = size == -1 ? Count(x->shape) / std::max<int64_t>(known, 1) : size;
    term.shape.push_back(Dim{value, std::to_string(value)});
  }
  if (Count(term.shape) != Count(x->shape))
    throw Unsupported("`" + call.text + "` to another count of elements");
  SetContiguous(term);
  return FinishTerm(std::move(term));
}

TermPtr Lowering::Product(const Node& call, const Args& args) {
  const std::string& name = call.text;
  if (name == "cumsum" || name == "cumprod") {
    const TermPtr x = Value(args.Need(0, "input"));
    Term term;
    term.op = name;
    term.shape = x->shape;
    term.args = {x};
    term.dims = {Wrap(Integers(args.Need(1, "dim")).at(0), x->shape.size())};
    return FinishTerm(std::move(term));
  }
  if (name != "matmul" && name != "mm" && name != "bmm" && name != "mv") return nullptr;
  if (call.args[0]->kind == Node::Kind::kCall && call.args[0]->text == "diag") {
    return Mul(Unsqueeze(Value(*call.args[0]->args.at(0)), 1), Value(*call.args.at(1)));
  }
  return MatMul(Value(args.Need(0, "input")), Value(args.Need(1, "other")));
}

TermPtr Lowering::MatMul(const TermPtr& a, const TermPtr& b) {
  if (a->op != "leaf" || b->op != "leaf") throw Unsupported("a matrix product of computed tensors");
  const size_t rank_a = a->shape.size(), rank_b = b->shape.size();
  if (rank_a < 2 || rank_b < 1) throw Unsupported("a dot product of vectors");
  const Dim& terms = b->shape[rank_b == 1 ? 0 : rank_b - 2];
  if (a->shape.back().size != terms.size) throw Unsupported("matrices whose sizes do not fit");
  const bool is_vector = rank_b == 1 || (rank_b == 2 && b->shape[1].size == 1);
  if (is_vector && rank_a == 2 && a->strides[1] <= 1) return MatVec(a, b);
  Term term;
  term.op = "matmul";
  term.args = {a, b};
  term.shape.assign(a->shape.begin(), a->shape.end() - 1);
  if (rank_b >= 2) term.shape.push_back(b->shape.back());
  return FinishTerm(std::move(term));
}

TermPtr Lowering::MatVec(const TermPtr& a, const TermPtr& b) {
  Term row = *b;
  row.shape = {b->shape[0]};
  row.strides = {b->strides[0]};
  return MakeReduction("sum", Mul(a, FinishTerm(std::move(row))), {1}, b->shape.size() == 2);
}

}  // namespace kevin::search
