// Loops that the graph keeps (env/reference/graph.h): a Repeat whose body is the lowered body of the loop. A value that
// is carried from one iteration to the next has two places, used in turn.

#include <algorithm>
#include <set>
#include <utility>

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

// Whether the value can be computed before the loop.
bool Lowering::IsOutside(const ValuePtr& value) const {
  Index index;
  for (const int64_t size : value->shape)
    index.push_back(Variable(-2 - static_cast<int>(index.size()), size));
  const ExprPtr element = value->at(index);
  for (const Expr* e : Nodes(element)) {
    if (e->op == "load" && e->id >= scope_->buffers && !scope_->hoisted.count(e->id)) return false;
  }
  return true;
}

// A product that no iteration changes is computed before the loop, for all iterations at once. Null: it is not.
ValuePtr Lowering::HoistedMatMul(const ValuePtr& a, const ValuePtr& b, const std::string& name,
                                 const ValuePtr& bias) {
  if (!IsOutside(a) || !IsOutside(b) || (bias && !IsOutside(bias))) return nullptr;
  LoopScope& scope = *scope_;
  const int variable = scope.times.variable;
  const auto moves = [&](const ValuePtr& value) {
    return Uses(value->at(Vars(NewLoops(value->shape))), variable);
  };
  if (moves(b) || (bias && moves(bias))) return nullptr;
  const bool is_moving = moves(a);
  ValuePtr all = a;
  if (is_moving) {
    Shape shape = a->shape;
    shape.insert(shape.begin(), scope.times.extent);
    all = Lazy(
        a->dtype, shape,
        [a, variable](const Index& index) {
          const ExprPtr time = index[0];
          return Substitute(a->at(Index(index.begin() + 1, index.end())), [&](const Expr& e) {
            return e.op == "variable" && e.id == variable ? time : nullptr;
          });
        },
        a->cost);
  }
  std::vector<Stage>* const inside = stages_;
  stages_ = scope.outside;
  scope_ = nullptr;
  const ValuePtr made = MatMul(all, b, name, bias);
  scope_ = &scope;
  stages_ = inside;
  scope.hoisted.insert(made->buffer);
  if (!is_moving) return made;
  const ExprPtr time = Var(scope.times);
  return Lazy(made->dtype, Shape(made->shape.begin() + 1, made->shape.end()),
              [made, time](const Index& index) {
                Index own = index;
                own.insert(own.begin(), time);
                return made->at(own);
              });
}

void Lowering::LowerLoop(const GraphNode& node, const Loop& times) {
  const auto slot = [](const ExprPtr& time, const Shape& shape) {
    return Scaled(ModInt(time, 2), Count(shape));
  };
  LoopScope scope{times, static_cast<int>(program_.buffers.size()), {}, stages_};
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
    LoopScope* const around = std::exchange(scope_, &scope);
    for (const Carried& carried : all) values_[carried.param] = read(carried, time);
    Walk(node.body);
    scope_ = around;
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
