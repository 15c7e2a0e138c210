// Losses: elementwise expressions and sums over them. Sums between stages are floats of 32 bits whatever the inputs are.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "policies/search/loss_parts.h"

namespace kevin::search {
namespace {

ExprPtr LLog1pExp(const ExprPtr& x) {
  return LPlus(LRelu(x), Unary("log1p", Unary("exp", Unary("neg", LAbs(x)))));
}

enum LossReduction { kEachLoss = 0, kMeanLoss = 1, kSumLoss = 2 };

int ReductionOf(Lowering& at, const GraphNode& node) {
  return static_cast<int>(at.Integer(node, "reduction", kMeanLoss));
}

}  // namespace

std::vector<int> AllDimsOf(const ValuePtr& value) {
  std::vector<int> dims(value->shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

Index WithInserted(Index place, size_t dim, const ExprPtr& element) {
  place.insert(place.begin() + static_cast<long>(dim), element);
  return place;
}

ValuePtr Losses(Lowering& at, const std::vector<ValuePtr>& values, const Lowering::ElementFunction& f) {
  return at.Map(values, "float32", Type::kFloat, f);
}

void SetReduced(Lowering& at, const GraphNode& node, const ValuePtr& losses) {
  const int reduction = ReductionOf(at, node);
  if (reduction == kEachLoss || losses->shape.empty()) return at.Set(node, losses);
  const double scale = reduction == kMeanLoss ? 1.0 / static_cast<double>(Count(losses->shape)) : 1;
  at.Set(node, at.Reduce("sum", losses, AllDimsOf(losses), false, "float32",
                         [scale](const ExprPtr& sum) { return LTimes(sum, Float(scale)); }));
}

namespace {

// --- Of pairs of elements ---

ExprPtr SmoothL1(const ExprPtr& difference, double beta) {
  const ExprPtr size = LAbs(difference);
  if (beta == 0) return size;
  const ExprPtr inner = LTimes(LTimes(difference, difference), Float(0.5 / beta));
  return Select(Compare("less", size, Float(beta)), inner, LMinus(size, Float(0.5 * beta)));
}

ExprPtr Huber(const ExprPtr& difference, double delta) {
  const ExprPtr size = LAbs(difference);
  const ExprPtr inner = LTimes(LTimes(difference, difference), Float(0.5));
  return Select(Compare("less_equal", size, Float(delta)), inner,
                LTimes(Float(delta), LMinus(size, Float(0.5 * delta))));
}

// t * log(t / exp(x)), 0 where t is 0.
ExprPtr KlOf(const ExprPtr& x, const ExprPtr& t, bool is_log) {
  if (is_log) return LTimes(Unary("exp", t), LMinus(t, x));
  return Select(LIs(t, 0), Float(0), LTimes(t, LMinus(Unary("log", t), x)));
}

ExprPtr PoissonOf(const ExprPtr& x, const ExprPtr& t, bool is_log, bool full, double eps) {
  ExprPtr loss = is_log ? LMinus(Unary("exp", x), LTimes(t, x))
                        : LMinus(x, LTimes(t, Unary("log", LPlus(x, Float(eps)))));
  if (!full) return loss;
  // Stirling's approximation of log(t!).
  const ExprPtr half_log = LTimes(Float(0.5), Unary("log", LTimes(Float(2 * M_PI), t)));
  const ExprPtr stirling = LPlus(LMinus(LTimes(t, Unary("log", t)), t), half_log);
  return LPlus(loss, Select(Compare("less", Float(1), t), stirling, Float(0)));
}

ExprPtr PairLoss(Lowering& at, const GraphNode& node, const ExprPtr& x, const ExprPtr& t) {
  const std::string& op = node.op;
  const ExprPtr difference = LMinus(x, t);
  if (op == "mse_loss") return LTimes(difference, difference);
  if (op == "l1_loss") return LAbs(difference);
  if (op == "smooth_l1_loss") return SmoothL1(difference, at.Number(node, "beta", 1));
  if (op == "huber_loss") return Huber(difference, at.Number(node, "delta", 1));
  if (op == "kl_div") return KlOf(x, t, at.Flag(node, "log_target", false));
  if (op == "soft_margin_loss") return LLog1pExp(Unary("neg", LTimes(t, x)));
  if (op == "poisson_nll_loss")
    return PoissonOf(x, t, at.Flag(node, "log_input", true), at.Flag(node, "full", false),
                     at.Number(node, "eps", 1e-8));
  // hinge_embedding_loss
  const double margin = at.Number(node, "margin", 1);
  return LPlus(Select(LIs(t, 1), Float(0), LRelu(LMinus(Float(margin), x))), Select(LIs(t, -1), Float(0), x));
}

void PairLosses(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, node.args.contains("self") ? "self" : "input"),
                 target = at.Tensor(node, "target");
  SetReduced(at, node,
             Losses(at, {x, target}, [&](const LossArgs& a) { return PairLoss(at, node, a[0], a[1]); }));
}

void BinaryCrossEntropy(Lowering& at, const GraphNode& node) {
  const bool logits = node.op == "binary_cross_entropy_with_logits";
  std::vector<ValuePtr> values = {at.Tensor(node, "self"), at.Tensor(node, "target")};
  const bool has_weight = at.Has(node, "weight"), has_positive = logits && at.Has(node, "pos_weight");
  if (has_weight) values.push_back(at.Tensor(node, "weight"));
  if (has_positive) values.push_back(at.Tensor(node, "pos_weight"));
  const ValuePtr losses = Losses(at, values, [=](const LossArgs& a) {
    const ExprPtr &x = a[0], &t = a[1];
    ExprPtr loss;
    if (logits) {
      // log(sigmoid(x)) = -log(1 + exp(-x)).
      const ExprPtr no = LTimes(LMinus(Float(1), t), x), soft = LLog1pExp(Unary("neg", x));
      const ExprPtr factor = has_positive ? LPlus(LTimes(LMinus(a.back(), Float(1)), t), Float(1)) : Float(1);
      loss = LPlus(no, LTimes(factor, soft));
    } else {
      const auto log_of = [](const ExprPtr& p) { return Binary("maximum", Unary("log", p), Float(-100)); };
      const ExprPtr no = Binary("maximum", Unary("log1p", Unary("neg", x)), Float(-100));
      loss = LMinus(LTimes(LMinus(t, Float(1)), no), LTimes(t, log_of(x)));
    }
    return has_weight ? LTimes(loss, a[2]) : loss;
  });
  SetReduced(at, node, losses);
}

void MarginRanking(Lowering& at, const GraphNode& node) {
  const double margin = at.Number(node, "margin", 0);
  const std::vector<ValuePtr> values = {at.Tensor(node, "input1"), at.Tensor(node, "input2"),
                                        at.Tensor(node, "target")};
  SetReduced(at, node, Losses(at, values, [margin](const LossArgs& a) {
               return LRelu(LMinus(Float(margin), LTimes(a[2], LMinus(a[0], a[1]))));
             }));
}

// --- Classes ---

// log(sum over `dim` of exp(x)) as one stage; keeps the dim with size 1.
ValuePtr LogSumExpOver(Lowering& at, const ValuePtr& x, size_t dim) {
  Shape outer_shape = x->shape;
  outer_shape[dim] = 1;
  const std::vector<Loop> outer = at.NewLoops(outer_shape), inner = at.NewLoops({x->shape[dim]});
  const Index out = Lowering::Vars(outer);
  Index place = out;
  place[dim] = Lowering::Var(inner[0]);
  const ExprPtr value = ToType(x->at(place), Type::kFloat);
  const ValuePtr result = at.NewStored("logsumexp", "float32", outer_shape);
  const ExprPtr term = Unary("exp", LMinus(value, Result(0)));
  const ExprPtr total = LPlus(Result(0), Unary("log", Result(1)));
  at.Add("logsumexp", Reduction{outer,
                                inner,
                                {{"max", value, 0, 0}, {"sum", term, 1, 1}},
                                {{result->buffer, OffsetOf(out, outer_shape), total, nullptr}},
                                {}});
  return result;
}

// The node's weight of each class; null: all are 1.
ExprPtr ClassWeight(const ValuePtr& weight, const ExprPtr& label) {
  return weight ? ToType(weight->at({label}), Type::kFloat) : Float(1);
}

// A loss by class labels: `loss(place, label)` is that of one element, by the weight of its class. The mean is over
// the weights of the labels.
void SetByLabels(Lowering& at, const GraphNode& node, const ValuePtr& target, const ValuePtr& weight,
                 const std::function<ExprPtr(const Index& place, const ExprPtr& label)>& loss, int cost) {
  const ExprPtr ignored = Int(at.Integer(node, "ignore_index", -100));
  const ValuePtr losses = at.Lazy(
      "float32", target->shape,
      [=](const Index& place) {
        const ExprPtr label = ToType(target->at(place), Type::kInt);
        return Guard(Compare("not_equal", label, ignored), loss(place, label), Float(0));
      },
      cost + 2);
  const ValuePtr weights = at.Lazy(
      "float32", target->shape,
      [=](const Index& place) {
        const ExprPtr label = ToType(target->at(place), Type::kInt);
        return Guard(Compare("not_equal", label, ignored), ClassWeight(weight, label), Float(0));
      },
      1);
  const int reduction = ReductionOf(at, node);
  if (reduction == kEachLoss) return at.Set(node, losses);
  // The sum and the sum of the weights in one stage.
  const std::vector<Loop> inner = at.NewLoops(target->shape);
  const Index place = Lowering::Vars(inner);
  const ValuePtr result = at.NewStored(node.op, "float32", {});
  std::vector<Accumulator> sums = {{"sum", losses->at(place), 0, 0}};
  if (reduction == kMeanLoss) sums.push_back({"sum", weights->at(place), 1, 0});
  const ExprPtr total = reduction == kMeanLoss ? Binary("div_float", Result(0), Result(1)) : Result(0);
  at.Add(node.op, Reduction{{}, inner, sums, {{result->buffer, Int(0), total, nullptr}}, {}});
  at.Set(node, result);
}

void NegativeLogLikelihood(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), 12), target = at.Plain(at.Tensor(node, "target"));
  const ValuePtr weight = at.OptionalTensor(node, "weight");
  const size_t dim = x->shape.size() == 1 ? 0 : 1;
  SetByLabels(
      at, node, target, weight,
      [=](const Index& place, const ExprPtr& label) {
        const ExprPtr value = ToType(x->at(WithInserted(place, dim, label)), Type::kFloat);
        return LTimes(Unary("neg", value), ClassWeight(weight, label));
      },
      x->cost + 2);
}

// The sum over classes of weight * p * (logsumexp - x), with `p` as given.
ValuePtr SoftLosses(Lowering& at, const ValuePtr& x, const ValuePtr& log_total, const ValuePtr& weight,
                    size_t dim, const std::function<ExprPtr(const Index&)>& p) {
  const ValuePtr terms = at.Lazy(
      "float32", x->shape,
      [=](const Index& place) {
        const ExprPtr loss =
            LMinus(Lowering::AtBroadcast(log_total, place), ToType(x->at(place), Type::kFloat));
        return LTimes(LTimes(ClassWeight(weight, place[dim]), p(place)), loss);
      },
      x->cost + 3);
  return at.Reduce("sum", terms, {static_cast<int>(dim)}, false, "float32");
}

void CrossEntropy(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), 12), target = at.Cheap(at.Tensor(node, "target"), 4);
  const ValuePtr weight = at.OptionalTensor(node, "weight");
  const double smoothing = at.Number(node, "label_smoothing", 0);
  const size_t dim = x->shape.size() == 1 ? 0 : 1;
  const double share = smoothing / static_cast<double>(x->shape[dim]);
  const ValuePtr log_total = LogSumExpOver(at, x, dim);
  if (IsFloating(target->dtype)) {
    const ValuePtr losses = SoftLosses(at, x, log_total, weight, dim, [=](const Index& place) {
      const ExprPtr p = LTimes(ToType(target->at(place), Type::kFloat), Float(1 - smoothing));
      return LPlus(p, Float(share));
    });
    return SetReduced(at, node, losses);
  }
  ValuePtr smooth;
  if (smoothing > 0)
    smooth = SoftLosses(at, x, log_total, weight, dim, [=](const Index&) { return Float(share); });
  SetByLabels(
      at, node, target, weight,
      [=](const Index& place, const ExprPtr& label) {
        const ExprPtr logit = ToType(x->at(WithInserted(place, dim, label)), Type::kFloat);
        const ExprPtr loss = LMinus(log_total->at(WithInserted(place, dim, Int(0))), logit);
        const ExprPtr hard = LTimes(LTimes(loss, ClassWeight(weight, label)), Float(1 - smoothing));
        return smooth ? LPlus(hard, smooth->at(place)) : hard;
      },
      x->cost + 3);
}

void MultiMargin(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), 12), target = at.Plain(at.Tensor(node, "target"));
  const ValuePtr weight = at.OptionalTensor(node, "weight");
  const double margin = at.Number(node, "margin", 1);
  const bool squares = at.Number(node, "p", 1) == 2;
  const size_t dim = x->shape.size() - 1;
  const ValuePtr terms = at.Lazy(
      "float32", x->shape,
      [=](const Index& place) {
        const ExprPtr label =
            ToType(Lowering::AtBroadcast(target, Index(place.begin(), place.end() - 1)), Type::kInt);
        Index own = place;
        own[dim] = label;
        const ExprPtr distance = LMinus(ToType(x->at(place), Type::kFloat), ToType(x->at(own), Type::kFloat));
        ExprPtr loss = LRelu(LPlus(distance, Float(margin)));
        if (squares) loss = LTimes(loss, loss);
        loss = LTimes(loss, ClassWeight(weight, label));
        return Select(Compare("equal", place[dim], label), Float(0), loss);
      },
      6);
  const double scale = 1.0 / static_cast<double>(x->shape[dim]);
  SetReduced(at, node,
             at.Reduce("sum", terms, {static_cast<int>(dim)}, false, "float32",
                       [scale](const ExprPtr& sum) { return LTimes(sum, Float(scale)); }));
}

const std::map<std::string, LossFunction>& LossTable() {
  static const std::map<std::string, LossFunction> kTable = {
      {"mse_loss", PairLosses},
      {"l1_loss", PairLosses},
      {"smooth_l1_loss", PairLosses},
      {"huber_loss", PairLosses},
      {"kl_div", PairLosses},
      {"soft_margin_loss", PairLosses},
      {"poisson_nll_loss", PairLosses},
      {"hinge_embedding_loss", PairLosses},
      {"binary_cross_entropy", BinaryCrossEntropy},
      {"binary_cross_entropy_with_logits", BinaryCrossEntropy},
      {"margin_ranking_loss", MarginRanking},
      {"nll_loss", NegativeLogLikelihood},
      {"nll_loss2d", NegativeLogLikelihood},
      {"nll_loss_nd", NegativeLogLikelihood},
      {"cross_entropy_loss", CrossEntropy},
      {"multi_margin_loss", MultiMargin}};
  return kTable;
}

}  // namespace

bool Lowering::Loss(const GraphNode& node) {
  const auto found = LossTable().find(node.op);
  const LossFunction function = found == LossTable().end() ? DistanceNamed(node.op) : found->second;
  if (!function) return false;
  function(*this, node);
  return true;
}

}  // namespace kevin::search
