// Attention as two products around a softmax, whose scores and weights are stored.

#include <functional>
#include <limits>

#include "policies/search/attention_parts.h"

namespace kevin::search {

const ExprPtr& MinusInfinity() {
  static const ExprPtr kValue = Float(-std::numeric_limits<double>::infinity());
  return kValue;
}

ExprPtr DotProduct::Score(const ExprPtr& product, const Index& place) const {
  const ExprPtr score = Binary("mul", product, Float(scale));
  if (!mask) return score;
  const ExprPtr bias = Lowering::AtBroadcast(mask, place);
  return bias->type == Type::kBool ? Select(bias, score, MinusInfinity()) : Binary("add", score, bias);
}

namespace {

// A weight as the sum of two numbers of 16 bits: one alone would have an error as large as the rounding of the result, and
// of 10^8 results some would be beyond what one rounding explains.
ExprPtr Large(const ExprPtr& weight, const std::string& dtype) { return Unary(Op("as_" + dtype), weight); }
ExprPtr Small(const ExprPtr& weight, const std::string& dtype) {
  return Binary("sub", weight, Large(weight, dtype));
}

}  // namespace

ValuePtr AttendInProducts(Lowering& at, const DotProduct& d, const std::string& dtype) {
  const ValuePtr query = at.Plain(d.query), key = at.Plain(d.key), value = at.Plain(d.value);
  Shape shape = d.shape;
  Lowering::Product scores;
  scores.batch = Shape(shape.begin(), shape.end() - 2);
  scores.m = {query->shape[query->shape.size() - 2]}, scores.n = {key->shape[key->shape.size() - 2]};
  scores.k = {query->shape.back()};
  scores.lhs = [=](const Index& batch, const Index& m, const Index& k) {
    return query->at(d.At(query, batch, m[0], k[0]));
  };
  scores.rhs = [=](const Index& batch, const Index& n, const Index& k) {
    return key->at(d.At(key, batch, n[0], k[0]));
  };
  scores.index = [](const Index& batch, const Index& m, const Index& n) {
    Index index = batch;
    index.push_back(m[0]);
    index.push_back(n[0]);
    return index;
  };
  scores.after = [=](const ExprPtr& product, const Index& index) {
    const ExprPtr score = d.Score(product, index);
    if (!d.causal) return score;
    return Select(Compare("less_equal", index.back(), index[index.size() - 2]), score, MinusInfinity());
  };
  shape.back() = scores.n[0];
  const ValuePtr stored = at.Multiply("scores", "float32", shape, scores);
  const ValuePtr soft = at.Softmax(stored, static_cast<int>(shape.size()) - 1, false, d.mask != nullptr);
  const auto times_value = [&](const ValuePtr& weights, const ValuePtr& before) {
    Lowering::Product result = scores;
    result.n = {d.shape.back()}, result.k = scores.n, result.after = nullptr;
    result.lhs = [=](const Index& batch, const Index& m, const Index& k) {
      Index index = batch;
      index.push_back(m[0]);
      index.push_back(k[0]);
      return weights->at(index);
    };
    result.rhs = [=](const Index& batch, const Index& n, const Index& k) {
      return value->at(d.At(value, batch, k[0], n[0]));
    };
    if (before) {
      result.after = [=](const ExprPtr& product, const Index& index) {
        return Binary("add", product, ToType(before->at(index), Type::kFloat));
      };
    }
    return at.Multiply("attention", dtype, d.shape, result);
  };
  const auto part = [&](const std::function<ExprPtr(const ExprPtr&)>& of) {
    return at.Stored(at.Map({soft}, dtype, Type::kFloat, [of](const auto& a) { return of(a[0]); }));
  };
  if (dtype == "float32") return times_value(part([](const ExprPtr& weight) { return weight; }), nullptr);
  const ValuePtr large = part([dtype](const ExprPtr&e) { return Large(e, dtype); }),
                 small = part([dtype](const ExprPtr&e) { return Small(e, dtype); });
  return times_value(large, times_value(small, nullptr));
}

}  // namespace kevin::search
