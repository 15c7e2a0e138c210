// Distances and similarities of vectors, and the losses over them.

#include <algorithm>
#include <cmath>
#include <map>

#include "policies/search/loss_parts.h"

namespace kevin::search {
namespace {

int PositiveDimOf(int64_t dim, const ValuePtr& value) {
  return static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(value->shape.size()) : dim);
}

ExprPtr PowerOfNorm(const ExprPtr& size, double p) {
  if (p == 1) return size;
  return p == 2 ? LTimes(size, size) : Binary("pow", size, Float(p));
}

ExprPtr RootOfNorm(const ExprPtr& sum, double p) {
  if (p == 1) return sum;
  return p == 2 ? Unary("sqrt", sum) : Binary("pow", sum, Float(1 / p));
}

// The p-norm of a - b + eps over the dim.
ValuePtr Distance(Lowering& at, const ValuePtr& a, const ValuePtr& b, double p, double eps, int64_t dim,
                  bool keep) {
  const bool largest = std::isinf(p);
  const ValuePtr terms = Losses(at, {a, b}, [=](const LossArgs& v) {
    const ExprPtr size = LAbs(LPlus(LMinus(v[0], v[1]), Float(eps)));
    return largest ? size : PowerOfNorm(size, p);
  });
  if (p == 0) throw Unsupported("the distance with p = 0 has no stage");
  return at.Reduce(largest ? "max" : "sum", terms, {PositiveDimOf(dim, terms)}, keep, "float32",
                   [=](const ExprPtr& sum) { return largest ? sum : RootOfNorm(sum, p); });
}

void PairwiseDistance(Lowering& at, const GraphNode& node) {
  at.Set(node, Distance(at, at.Tensor(node, "x1"), at.Tensor(node, "x2"), at.Number(node, "p", 2),
                        at.Number(node, "eps", 1e-6), -1, at.Flag(node, "keepdim", false)));
}

void TripletMargin(Lowering& at, const GraphNode& node) {
  const ValuePtr anchor = at.Tensor(node, "anchor"), positive = at.Tensor(node, "positive"),
                 negative = at.Tensor(node, "negative");
  const double p = at.Number(node, "p", 2), eps = at.Number(node, "eps", 1e-6),
               margin = at.Number(node, "margin", 1);
  const auto distance = [&](const ValuePtr& a, const ValuePtr& b) {
    return Distance(at, a, b, p, eps, -1, false);
  };
  std::vector<ValuePtr> distances = {distance(anchor, positive), distance(anchor, negative)};
  if (at.Flag(node, "swap", false)) distances.push_back(distance(positive, negative));
  SetReduced(at, node, Losses(at, distances, [margin](const LossArgs& d) {
               const ExprPtr far = d.size() == 3 ? Binary("minimum", d[1], d[2]) : d[1];
               return LRelu(LPlus(LMinus(d[0], far), Float(margin)));
             }));
}

// The sums over one dim of x * y, x * x and y * y in one stage, and a function of them.
ValuePtr Cosine(Lowering& at, const ValuePtr& x, const ValuePtr& y, size_t dim, const std::string& name,
                const std::function<ExprPtr(const ExprPtr& xy, const ExprPtr& xx, const ExprPtr& yy)>& f) {
  Shape shape = Lowering::BroadcastShape({x, y});
  const std::vector<Loop> inner = at.NewLoops({shape[dim]});
  shape.erase(shape.begin() + static_cast<long>(dim));
  const std::vector<Loop> outer = at.NewLoops(shape);
  const Index out = Lowering::Vars(outer);
  const Index place = WithInserted(out, dim, Lowering::Var(inner[0]));
  const ExprPtr a = ToType(Lowering::AtBroadcast(x, place), Type::kFloat),
                b = ToType(Lowering::AtBroadcast(y, place), Type::kFloat);
  const ValuePtr result = at.NewStored(name, "float32", shape);
  at.Add(name,
         Reduction{outer,
                   inner,
                   {{"sum", LTimes(a, b), 0, 0}, {"sum", LTimes(a, a), 1, 0}, {"sum", LTimes(b, b), 2, 0}},
                   {{result->buffer, OffsetOf(out, shape), f(Result(0), Result(1), Result(2)), nullptr}},
                   {}});
  return result;
}

void CosineSimilarity(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "x1"), y = at.Tensor(node, "x2");
  const double eps = at.Number(node, "eps", 1e-8);
  const int64_t given = at.Integer(node, "dim", 1);
  const size_t rank = Lowering::BroadcastShape({x, y}).size();
  const size_t dim = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(rank) : given);
  at.Set(node, Cosine(at, x, y, dim, node.op, [eps](const ExprPtr& xy, const ExprPtr& xx, const ExprPtr& yy) {
           const auto norm = [eps](const ExprPtr& square) {
             return Binary("maximum", Unary("sqrt", square), Float(eps));
           };
           return Binary("div_float", xy, LTimes(norm(xx), norm(yy)));
         }));
}

void CosineEmbedding(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "input1"), y = at.Tensor(node, "input2"),
                 target = at.Tensor(node, "target");
  const double margin = at.Number(node, "margin", 0);
  const size_t dim = Lowering::BroadcastShape({x, y}).size() - 1;
  const ValuePtr cosine =
      Cosine(at, x, y, dim, node.op, [](const ExprPtr& xy, const ExprPtr& xx, const ExprPtr& yy) {
        const ExprPtr eps = Float(1e-12);
        return LTimes(xy, Unary("rsqrt", LTimes(LPlus(xx, eps), LPlus(yy, eps))));
      });
  SetReduced(at, node, Losses(at, {cosine, target}, [margin](const LossArgs& a) {
               const ExprPtr far = Select(LIs(a[1], -1), LRelu(LMinus(a[0], Float(margin))), Float(0));
               return Select(LIs(a[1], 1), LMinus(Float(1), a[0]), far);
             }));
}

void Cdist(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "x1"), y = at.Tensor(node, "x2");
  const double p = at.Number(node, "p", 2);
  const int64_t mode = at.Integer(node, "compute_mode", 0);
  const int64_t rows = x->shape[x->shape.size() - 2], columns = y->shape[y->shape.size() - 2];
  // As torch does: a product of matrices where there are many rows.
  const bool by_product = p == 2 && (mode == 1 || (mode == 0 && (rows > 25 || columns > 25)));
  if (!by_product) {
    const ValuePtr a = at.Unsqueeze(at.Plain(x), x->shape.size() - 1),
                   b = at.Unsqueeze(at.Plain(y), y->shape.size() - 2);
    return at.Set(node, Distance(at, a, b, p, 0, -1, false));
  }
  const auto squares = [&](const ValuePtr& v) {
    const ValuePtr terms = Losses(at, {v}, [](const LossArgs& a) { return LTimes(a[0], a[0]); });
    return at.Reduce("sum", terms, {static_cast<int>(v->shape.size()) - 1}, false, "float32");
  };
  const ValuePtr of_x = squares(x), of_y = squares(y);
  std::vector<int> order = AllDimsOf(y);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  const ValuePtr product = at.MatMul(x, at.Permute(y, order), node.op);
  at.Set(node,
         Losses(at,
                {product, at.Unsqueeze(of_x, of_x->shape.size()), at.Unsqueeze(of_y, of_y->shape.size() - 1)},
                [](const LossArgs& a) {
                  return Unary("sqrt", LRelu(LMinus(LPlus(a[1], a[2]), LTimes(Float(2), a[0]))));
                }));
}

}  // namespace

LossFunction DistanceNamed(const std::string& op) {
  static const std::map<std::string, LossFunction> kTable = {{"pairwise_distance", PairwiseDistance},
                                                             {"triplet_margin_loss", TripletMargin},
                                                             {"cosine_similarity", CosineSimilarity},
                                                             {"cosine_embedding_loss", CosineEmbedding},
                                                             {"cdist", Cdist}};
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace kevin::search
