// Loops that the graph keeps (env/reference/graph.h): a Repeat whose body is the lowered body of the loop. A value that
// is carried from one iteration to the next has two places, used in turn.

#include <algorithm>
#include <set>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

using Numbers = std::set<int>;

void AddTensors(const GraphNode& node, Numbers& read, Numbers& made) {
  for (const auto& [name, arg] : node.args.items()) {
    if (!arg.is_object()) continue;
    if (arg.contains("tensor")) read.insert(arg["tensor"].get<int>());
    if (!arg.contains("tensors")) continue;
    for (const auto& one : arg["tensors"]) {
      if (one.is_number_integer()) read.insert(one.get<int>());
    }
  }
  for (const auto& [init, param, next, result] : node.carried) read.insert(init), made.insert(param);
  made.insert(node.results.begin(), node.results.end());
  for (const GraphNode& inner : node.body) AddTensors(inner, read, made);
}

struct Carried {
  int param = -1, next = -1, result = -1;
  int buffer = -1;  // two places
};

}  // namespace

ExprPtr Lowering::MovingInteger(const GraphNode& node, const char* name, int64_t fallback) {
  if (!Has(node, name) || !node.args[name].is_object() || !iteration_)
    return Int(Integer(node, name, fallback));
  const nlohmann::json& arg = node.args[name];
  return AddInt(Int(arg.at("base").get<int64_t>()), Scaled(iteration_, arg.at("step").get<int64_t>()));
}

// select, narrow and slice where the place moves with the iteration.
bool Lowering::MovingView(const GraphNode& node) {
  const bool is_select = node.op == "select";
  if (!is_select && node.op != "narrow" && node.op != "slice") return false;
  const char* name = is_select ? "index" : "start";
  if (!Has(node, name) || !node.args[name].is_object()) return false;
  const ValuePtr x = Tensor(node, "self");
  const int64_t given = Integer(node, "dim", 0), rank = static_cast<int64_t>(x->shape.size());
  const size_t dim = static_cast<size_t>(given < 0 ? given + rank : given);
  ExprPtr start = MovingInteger(node, name, 0);
  if (start->high < 0) start = AddInt(start, Int(x->shape[dim]));
  const int64_t step = node.op == "slice" ? Integer(node, "step", 1) : 1;
  Set(node, Lazy(
                x->dtype, ResultOf(node).shape,
                [=](const Index& index) {
                  Index own = index;
                  if (is_select) {
                    own.insert(own.begin() + static_cast<long>(dim), start);
                  } else {
                    own[dim] = AddInt(Scaled(own[dim], step), start);
                  }
                  return x->at(own);
                },
                x->cost));
  return true;
}

void Lowering::LowerLoop(const GraphNode& node, const Loop& times) {
  const auto slot = [](const ExprPtr& time, const Shape& shape) {
    return Scaled(ModInt(time, 2), Count(shape));
  };
  std::vector<Carried> all;
  for (const auto& [init, param, next, result] : node.carried) {
    Carried carried = {param, next, result, -1};
    const ValuePtr first = values_.at(init);
    const GraphValue& declared = graph_.values.at(carried.param);
    carried.buffer = NewWorkspace("carried", declared.dtype, 2 * Count(declared.shape));
    StoreTo(first, carried.buffer, "carried");
    all.push_back(carried);
  }
  std::map<int, ValuePtr> stacked;  // by the value of the body
  for (const auto& [next, result] : node.stacked) {
    const GraphValue& declared = graph_.values.at(result);
    stacked[next] = values_[result] = NewStored("stacked", declared.dtype, declared.shape);
  }
  const ExprPtr time = Var(times);
  const auto read = [&](const Carried& carried, const ExprPtr& when) {
    const GraphValue& declared = graph_.values.at(carried.param);
    const Type type = TypeOf(declared.dtype);
    const Shape shape = declared.shape;
    const ExprPtr base = slot(when, shape);
    return Lazy(declared.dtype, shape, [=, buffer = carried.buffer](const Index& index) {
      return Load(buffer, type, AddInt(base, OffsetOf(index, shape)));
    });
  };
  AddRepeat("loop", times, [&] {
    for (const Carried& carried : all) values_[carried.param] = read(carried, time);
    Walk(node.body);
    Numbers stored;
    for (const Carried& carried : all) stored.insert(carried.next);
    for (const auto& [next, value] : stacked) stored.insert(next);
    for (const int next : stored) {
      const ValuePtr value = values_.at(next);
      const std::vector<Loop> loops = NewLoops(value->shape);
      const Index index = Vars(loops);
      const ExprPtr element = value->at(index), offset = OffsetOf(index, value->shape);
      std::vector<Store> stores;
      const auto store = [&](int buffer, const ExprPtr& base, const std::string& dtype) {
        stores.push_back({buffer, AddInt(base, offset), ToType(element, TypeOf(dtype)), nullptr});
      };
      for (const Carried& carried : all) {
        if (carried.next == next)
          store(carried.buffer, slot(AddInt(time, Int(1)), value->shape),
                graph_.values.at(carried.param).dtype);
      }
      if (const auto found = stacked.find(next); found != stacked.end())
        store(found->second->buffer, Scaled(time, Count(value->shape)), found->second->dtype);
      Add("carried", Pointwise{loops, stores});
    }
  });
  for (const Carried& carried : all) {
    if (carried.result >= 0) values_[carried.result] = read(carried, Int(times.extent));
  }
}

bool Lowering::Loop_(const GraphNode& node) {
  if (node.op != "loop") return iteration_ && MovingView(node);
  Numbers outside, made;
  for (const auto& [init, param, next, result] : node.carried) made.insert(param);
  for (const GraphNode& inner : node.body) AddTensors(inner, outside, made);
  // What the body reads from outside is computed once.
  for (const int value : outside) {
    const auto found = values_.find(value);
    if (!made.count(value) && found != values_.end() && found->second) Plain(found->second);
  }
  const ExprPtr around = iteration_;
  const Loop times = NewLoop(Integer(node, "trip", 1));
  iteration_ = Var(times);
  LowerLoop(node, times);
  iteration_ = around;
  return true;
}

}  // namespace kevin::search
