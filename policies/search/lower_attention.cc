// Attention as one streaming stage: scaled_dot_product_attention, and products around a softmax that the graph spells
// out. For these, the nodes between the two products stay expressions over result 0 of the stage to come: the first
// product and the softmax note at which index they are read, and the second product puts the stage together. Where
// an index is not that of the rows and columns, the lowering starts again without this (PatternMismatch).

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "policies/search/attention_parts.h"

namespace kevin::search {
namespace {

// On a GPU wide heads leave a block registers for few queries: two products around stored scores are faster. In 16 bits
// the tensor cores take wider ones.
constexpr int64_t kWidestStreamed = 128, kWidestStreamedHalf = 256;
bool IsStreamed(const Task& task, int64_t depth, int64_t width, const std::string& dtype) {
  const bool is_half = (dtype == "float16" || dtype == "bfloat16") && depth % 8 == 0 && width % 8 == 0;
  return task.kind != "cuda" || std::max(depth, width) <= (is_half ? kWidestStreamedHalf : kWidestStreamed);
}

bool IsProductNode(const GraphNode& node) { return node.op == "matmul" || node.op == "bmm"; }
bool IsSoftmaxNode(const GraphNode& node) { return node.op == "softmax" || node.op == "_softmax"; }

// Operations that only read their operands at an index, and do not store them.
bool KeepsExpressions(const std::string& op) {
  static const std::set<std::string> kViews = {"view",  "reshape", "_unsafe_view", "unsqueeze", "squeeze",
                                               "clone", "to",      "_to_copy",     "expand",    "flatten"};
  static const std::set<std::string> kElementwise = {"add",         "sub",       "mul",  "div",
                                                     "masked_fill", "where",     "relu", "tanh",
                                                     "clamp",       "clamp_min", "neg",  "sigmoid"};
  return kViews.count(op) || kElementwise.count(op);
}

// Takes constant factors off: the score gets them.
ExprPtr WithoutFactor(const ExprPtr& expr, double& factor) {
  const bool is_mul = expr->op == "mul", is_div = expr->op == "div_float";
  if (is_mul && expr->args[0]->op == "constant") {
    factor *= expr->args[0]->number;
    return WithoutFactor(expr->args[1], factor);
  }
  if ((is_mul || is_div) && expr->args[1]->op == "constant") {
    factor = is_mul ? factor * expr->args[1]->number : factor / expr->args[1]->number;
    return WithoutFactor(expr->args[0], factor);
  }
  return expr;
}

bool IsContiguousRead(const ExprPtr& expr, const Loop& along) {
  if (expr->op == "guard") return expr->args[2]->op == "constant" && IsContiguousRead(expr->args[1], along);
  return expr->op == "load" && (along.extent == 1 || StrideOf(expr->args[0], along.variable) == 1);
}

// x at the index, contiguous along the loop: stored first where it is not.
ExprPtr Operand(Lowering& at, const ValuePtr& x, const Index& index, const Loop& along, double* factor) {
  const auto batch = [&] { return ToType(Lowering::AtBroadcast(x, index), Type::kFloat); };
  double own = 1;
  const ExprPtr plain = factor ? WithoutFactor(batch(), own) : batch();
  if (IsContiguousRead(plain, along)) {
    if (factor) *factor *= own;
    return plain;
  }
  at.Stored(x);
  return batch();
}

ValuePtr SwappedLast(Lowering& at, const ValuePtr& x) {
  std::vector<int> order;
  for (size_t i = 0; i < x->shape.size(); ++i) order.push_back(static_cast<int>(i));
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return at.Permute(x, order);
}

// The condition of a choice as key - query >= `first`, for conditions of that form.
struct Side {
  bool known = false, above = false;  // above: holds where key > query; else where key <= query
};

Side SideOf(const ExprPtr& condition, const ExprPtr& query, const ExprPtr& key) {
  if (condition->op == "not") {
    Side side = SideOf(condition->args[0], query, key);
    side.above = !side.above;
    return side;
  }
  const bool less = condition->op == "less", less_equal = condition->op == "less_equal";
  if ((!less && !less_equal) || condition->args[0]->type != Type::kInt) return {};
  // 0 < distance.
  ExprPtr distance = AddInt(condition->args[1], Scaled(condition->args[0], -1));
  if (less_equal) distance = AddInt(distance, Int(1));
  const ExprPtr beyond = AddInt(key, Scaled(query, -1));
  if (distance->key == beyond->key) return {true, true};
  if (distance->key == AddInt(Int(1), Scaled(beyond, -1))->key) return {true, false};
  return {};
}

// A score that is -inf exactly above the diagonal, or there and elsewhere: the rest of it, else null.
ExprPtr BelowDiagonal(const ExprPtr& score, const ExprPtr& query, const ExprPtr& key) {
  if (score->op != "select") return nullptr;
  const Side side = SideOf(score->args[0], query, key);
  if (!side.known) return nullptr;
  const ExprPtr& masked = score->args[side.above ? 1 : 2];
  return masked->key == MinusInfinity()->key ? score->args[side.above ? 2 : 1] : nullptr;
}

}  // namespace

// `work` has its loops and the score; the operands are read at `at_query` (batch, query, depth) and so on.
struct Lowering::AttentionParts {
  Attention work;
  ValuePtr query, key, value;
  Index at_query, at_key, at_value;
};

ValuePtr Lowering::Attend(AttentionParts parts, const std::string& dtype, const Shape& shape) {
  Attention& work = parts.work;
  double factor = 1;
  work.query = Operand(*this, parts.query, parts.at_query, work.depth[0], &factor);
  work.key = Operand(*this, parts.key, parts.at_key, work.depth[0], &factor);
  work.value = Operand(*this, parts.value, parts.at_value, work.width[0], nullptr);
  const ExprPtr product = Binary("mul", Result(0), Float(factor));
  work.score = Substitute(work.score, [&](const Expr& e) { return e.op == "result" ? product : nullptr; });
  const ExprPtr query = Var(work.queries[0]), key = Var(work.keys[0]);
  if (work.softmax) {
    if (const ExprPtr rest = BelowDiagonal(work.score, query, key)) {
      work.causal = true;
      work.score = rest;
    }
  }
  // On a GPU the heads of a position lie together, as the product after them reads it: TMA then takes it as a matrix.
  const bool is_by_position = task_.kind == "cuda" && work.batch.size() >= 2;
  Index place = Vars(work.batch);
  place.insert(is_by_position ? place.end() - 1 : place.end(), query);
  place.push_back(Var(work.width[0]));
  Shape stored = shape;
  if (is_by_position) std::swap(stored[stored.size() - 3], stored[stored.size() - 2]);
  const ValuePtr result = NewStored("attention", dtype, stored);
  work.stores = {{result->buffer, OffsetOf(place, stored), Result(1), nullptr}};
  double points = static_cast<double>(work.queries[0].extent) * static_cast<double>(work.keys[0].extent);
  for (const Loop& loop : work.batch) points *= static_cast<double>(loop.extent);
  const double terms = static_cast<double>(work.depth[0].extent + work.width[0].extent);
  Add("attention", work, (work.causal ? 1 : 2) * points * terms);
  if (!is_by_position) return result;
  std::vector<int> order;
  for (size_t i = 0; i < shape.size(); ++i) order.push_back(static_cast<int>(i));
  std::swap(order[order.size() - 3], order[order.size() - 2]);
  return Permute(result, order);
}

ValuePtr Lowering::DotProductAttention(const GraphNode& node) {
  if (Number(node, "dropout_p", 0) > 0)
    throw Unsupported("`" + node.op + "` with dropout draws random numbers");
  DotProduct d;
  d.query = Tensor(node, "query"), d.key = Tensor(node, "key"), d.value = Tensor(node, "value");
  d.shape = ResultOf(node).shape;
  d.shares_heads = Flag(node, "enable_gqa", false), d.causal = Flag(node, "is_causal", false);
  const int64_t depth = d.query->shape.back();
  d.scale = Number(node, "scale", 1 / std::sqrt(static_cast<double>(depth)));
  if (const ValuePtr mask = OptionalTensor(node, "attn_mask")) {
    d.mask = Cheap(mask, 24);
    // This one adds 0 and 1.
    if (node.op == "_scaled_dot_product_attention_math" && mask->dtype == "bool")
      d.mask = Map({d.mask}, "float32", Type::kFloat, [](const auto& a) { return a[0]; });
  }
  if (!IsStreamed(task_, depth, d.shape.back(), ResultOf(node).dtype))
    return AttendInProducts(*this, d, ResultOf(node).dtype);
  AttentionParts parts;
  parts.query = d.query, parts.key = d.key, parts.value = d.value;
  Attention& work = parts.work;
  work.batch = NewLoops(Shape(d.shape.begin(), d.shape.end() - 2));
  work.queries = {NewLoop(d.query->shape[d.query->shape.size() - 2])};
  work.keys = {NewLoop(d.key->shape[d.key->shape.size() - 2])};
  work.depth = {NewLoop(depth)}, work.width = {NewLoop(d.shape.back())};
  const Index batch = Vars(work.batch);
  const ExprPtr query = Var(work.queries[0]), key = Var(work.keys[0]);
  parts.at_query = d.At(d.query, batch, query, Var(work.depth[0]));
  parts.at_key = d.At(d.key, batch, key, Var(work.depth[0]));
  parts.at_value = d.At(d.value, batch, key, Var(work.width[0]));
  Index place = batch;
  place.push_back(query);
  place.push_back(key);
  work.score = d.Score(Result(0), place);
  work.causal = d.causal, work.masked_is_zero = d.mask != nullptr;
  return Attend(std::move(parts), ResultOf(node).dtype, d.shape);
}

// --- Spelled out ---

// What the parts of one attention note as the walk passes them. Values are numbers of the graph.
struct Lowering::AttentionPattern {
  int product = -1, softmax = -1;  // softmax -1: the scores are the weights
  ValuePtr query, key, scores;     // of the first product and of the softmax
  Index product_at, softmax_at;    // where they were read
};

void Lowering::FindAttention() {
  std::map<int, const GraphNode*> producers;
  for (const GraphNode& node : graph_.nodes) {
    for (const int result : node.results) producers[result] = &node;
  }
  const auto tensors_of = [](const GraphNode& node) {
    std::vector<int> values;
    for (const auto& [name, arg] : node.args.items()) {
      if (arg.is_object() && arg.contains("tensor")) values.push_back(arg["tensor"].get<int>());
    }
    return values;
  };
  const auto producer = [&](int value) -> const GraphNode* {
    const auto found = producers.find(value);
    return found == producers.end() || uses_[value] != 1 ? nullptr : found->second;
  };
  // The product that `value` is an expression of; passes a softmax over the last dim if `softmax` is given.
  const std::function<int(int, int*)> find = [&](int value, int* softmax) -> int {
    const GraphNode* node = producer(value);
    if (!node) return -1;
    const Shape& shape = graph_.values.at(value).shape;
    if (IsProductNode(*node) && shape.size() >= 2) return value;
    if (softmax && IsSoftmaxNode(*node)) {
      const int64_t dim = Integer(*node, "dim", -1);
      if (dim != -1 && dim + 1 != static_cast<int64_t>(shape.size())) return -1;
      *softmax = value;
      return find(node->args.at("self").at("tensor").get<int>(), nullptr);
    }
    if (!KeepsExpressions(node->op)) return -1;
    for (const int operand : tensors_of(*node)) {
      const int found = find(operand, softmax);
      if (found >= 0) return found;
    }
    return -1;
  };
  for (const GraphNode& node : graph_.nodes) {
    if (!IsProductNode(node) || uses_[node.results.at(0)] == 0) continue;
    const auto pattern = std::make_shared<AttentionPattern>();
    pattern->product = find(node.args.at("self").at("tensor").get<int>(), &pattern->softmax);
    if (pattern->product < 0 || attention_.count(pattern->product)) continue;
    const Shape& out = graph_.values.at(node.results[0]).shape;
    const GraphNode& first = *producers.at(pattern->product);
    const Shape& key =
        graph_.values.at(first.args.at(first.op == "bmm" ? "mat2" : "other").at("tensor").get<int>()).shape;
    if (out.size() < 2 || key.size() < 2 ||
        !IsStreamed(task_, key[key.size() - 2], out.back(), graph_.values.at(node.results[0]).dtype))
      continue;
    // Without a softmax two products in a row are as good, unless all of the scores would be stored for short rows.
    if (pattern->softmax < 0 &&
        (out.size() < 3 || key.size() < 3 || out.back() > 256 || key[key.size() - 2] > 256))
      continue;
    attention_[node.results[0]] = pattern;
    attention_[pattern->product] = pattern;
    if (pattern->softmax >= 0) attention_[pattern->softmax] = pattern;
  }
}

// A value that notes where it is read. Reads at two indices do not fit one stage.
ValuePtr Lowering::Noted(const GraphNode& node, Index AttentionPattern::*where,
                         const std::shared_ptr<AttentionPattern>& pattern) {
  const auto value = std::make_shared<Value>();
  value->dtype = ResultOf(node).dtype;
  value->shape = ResultOf(node).shape;
  value->at = [where, pattern](const Index& index) {
    Index& known = (*pattern).*where;
    if (known.empty()) known = index;
    for (size_t i = 0; i < index.size(); ++i) {
      if (known[i]->key != index[i]->key) throw PatternMismatch();
    }
    return Result(0);
  };
  return value;
}

ValuePtr Lowering::AttendPattern(const GraphNode& node, AttentionPattern& pattern) {
  const ValuePtr weights = Tensor(node, "self");
  AttentionParts parts;
  parts.query = pattern.query, parts.key = SwappedLast(*this, pattern.key);
  parts.value = Tensor(node, node.op == "bmm" ? "mat2" : "other");
  const Shape& shape = ResultOf(node).shape;
  if (weights->shape.size() < 2 || parts.value->shape.size() < 2) throw PatternMismatch();
  Attention& work = parts.work;
  work.batch = NewLoops(Shape(shape.begin(), shape.end() - 2));
  work.queries = {NewLoop(shape[shape.size() - 2])}, work.keys = {NewLoop(weights->shape.back())};
  work.depth = {NewLoop(pattern.query->shape.back())}, work.width = {NewLoop(shape.back())};
  work.softmax = pattern.softmax >= 0;
  const Index batch = Vars(work.batch);
  const ExprPtr query = Var(work.queries[0]), key = Var(work.keys[0]);
  const auto joined = [](Index index, const ExprPtr& row, const ExprPtr& column) {
    index.push_back(row);
    index.push_back(column);
    return index;
  };
  work.score = ToType(AtBroadcast(weights, joined(batch, query, key)), Type::kFloat);
  if (work.softmax) {
    if (work.score->op != "result" || pattern.softmax_at.empty()) throw PatternMismatch();
    work.score = ToType(pattern.scores->at(pattern.softmax_at), Type::kFloat);
  }
  Index place = pattern.product_at;
  if (place.size() < 2 || place.back()->key != key->key || place[place.size() - 2]->key != query->key)
    throw PatternMismatch();
  if (work.softmax && pattern.softmax_at.back()->key != key->key) throw PatternMismatch();
  place.resize(place.size() - 2);
  for (const ExprPtr& one : place) {
    if ((query->op == "variable" && Uses(one, query->id)) || (key->op == "variable" && Uses(one, key->id)))
      throw PatternMismatch();
  }
  const auto fitting = [&](const Index& index, const ValuePtr& x) {
    return Index(index.end() - static_cast<long>(x->shape.size()), index.end());
  };
  const ExprPtr depth = Var(work.depth[0]);
  if (parts.query->shape.size() < 2 || parts.key->shape.size() < 2) throw PatternMismatch();
  parts.at_query = fitting(joined(place, query, depth), parts.query);
  parts.at_key = fitting(joined(place, key, depth), parts.key);
  parts.at_value = fitting(joined(batch, key, Var(work.width[0])), parts.value);
  return Attend(std::move(parts), ResultOf(node).dtype, shape);
}

bool Lowering::Attended(const GraphNode& node) {
  const bool is_spelled_out = node.op == "_scaled_dot_product_attention_math";
  if (is_spelled_out && IsUsed(node, 1)) throw Unsupported("the weights of `" + node.op + "` have no stage");
  if (node.op == "scaled_dot_product_attention" || is_spelled_out) {
    Set(node, DotProductAttention(node));
    return true;
  }
  if (attention_.empty() || node.results.empty()) return false;
  const auto found = attention_.find(node.results[0]);
  if (found == attention_.end()) return false;
  const std::shared_ptr<AttentionPattern> pattern = found->second;
  const int value = node.results[0];
  if (value == pattern->product) {
    pattern->query = Tensor(node, "self");
    pattern->key = Tensor(node, node.op == "bmm" ? "mat2" : "other");
    values_[value] = Noted(node, &AttentionPattern::product_at, pattern);
  } else if (value == pattern->softmax) {
    pattern->scores = Tensor(node, "self");
    values_[value] = Noted(node, &AttentionPattern::softmax_at, pattern);
  } else {
    values_[value] = AttendPattern(node, *pattern);
  }
  return true;
}

}  // namespace kevin::search
