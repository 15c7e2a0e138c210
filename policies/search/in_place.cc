// Input-outputs: what may be written where it lies.

#include <algorithm>

#include "policies/search/lowering.h"
#include "policies/search/stage_parts.h"

namespace kevin::search {
void Lowering::WriteElements(int buffer, const Overwrite& overwrite) {
  const std::vector<Loop> loops = NewLoops(overwrite.places);
  const auto [own, value] = overwrite.element(Vars(loops));
  const ExprPtr offset = OffsetOf(own, overwrite.shape);
  Add(overwrite.name, Pointwise{loops, {{buffer, offset, ToType(value, TypeOf(overwrite.dtype)), nullptr}}});
}

bool Lowering::OverwriteInPlace(const GraphNode& node, const ValuePtr& self, const Shape& places,
                                const Overwriting& element) {
  const int buffer = self->buffer, result = node.results[0];
  const auto current = current_.find(buffer);
  const auto arg = node.args.find("self");
  if (stages_ != &program_.stages || current == current_.end() || arg == node.args.end() ||
      !arg->is_object() || !arg->contains("tensor") || (*arg)["tensor"].get<int>() != current->second)
    return false;
  const bool is_read_again = uses_[current->second] > 1;
  const Overwrite overwrite{node.op, places, self->shape, self->dtype, element};
  const Type type = TypeOf(self->dtype);
  const Shape shape = self->shape;
  ValuePtr written = Lazy(self->dtype, shape, [buffer, type, shape](const Index& index) {
    return Load(buffer, type, OffsetOf(index, shape));
  });
  if (is_read_again) {
    if (!IsOnlyFinal(result, buffer)) return false;
    overwritten_at_end_[result] = overwrite;
    Set(node, written);  // nothing reads it
    return true;
  }
  WriteElements(buffer, overwrite);
  written->buffer = buffer;
  current_[buffer] = result;
  Set(node, written);
  return true;
}

// The graph's outputs end with the input-outputs, in the order of the inputs; AddArguments made a buffer for each input.
int Lowering::LastOutputOf(int inout) const {
  size_t after = 0;  // input-outputs behind this one
  for (size_t i = static_cast<size_t>(inout) + 1; i < graph_.inputs.size(); ++i)
    after += program_.buffers[i].is_inout;
  if (after >= graph_.outputs.size()) throw Unsupported("the graph has fewer outputs than the problem");
  return graph_.outputs[graph_.outputs.size() - 1 - after];
}

int Lowering::FinalValueOf(int inout) const {
  int value = LastOutputOf(inout);
  for (auto found = same_as_.find(value); found != same_as_.end(); found = same_as_.find(value))
    value = found->second;
  return value;
}

// Whether nothing else reads the value, under any of its numbers.
bool Lowering::IsOnlyFinal(int value, int inout) {
  int at = LastOutputOf(inout);
  for (; at != value; at = same_as_.at(at)) {
    if (uses_[at] != 1 || !same_as_.count(at)) return false;
  }
  return uses_[value] == 1;
}

int Lowering::CompleteWrite(const GraphNode& node) const {
  if (node.op != "slice_scatter") return -1;
  const auto tensor = [&](const char* name) {
    const auto arg = node.args.find(name);
    return arg != node.args.end() && arg->is_object() && arg->contains("tensor") ? (*arg)["tensor"].get<int>()
                                                                                 : -1;
  };
  const int self = tensor("self"), source = tensor("src");
  if (self < 0 || source < 0) return -1;
  const GraphValue &to = graph_.values.at(self), &from = graph_.values.at(source);
  return to.shape == from.shape && to.dtype == from.dtype ? source : -1;
}

void Lowering::SetCompleteWrite(const GraphNode& node) {
  const int source = CompleteWrite(node), result = node.results[0];
  const ValuePtr value = values_.at(source);
  const auto current = current_.find(value->buffer);
  if (current != current_.end() && current->second == source && uses_[source] == 1) current->second = result;
  Set(node, value);
}

namespace {

using Reads = std::function<bool(const ExprPtr&)>;

// The extents of `places` without those that the expression, made at the variables of `loops`, does not depend on.
Shape ExtentsUsed(const ExprPtr& expr, const std::vector<Loop>& loops) {
  Shape shape;
  for (const Loop& loop : loops) shape.push_back(Uses(expr, loop.variable) ? loop.extent : 1);
  return shape;
}

// The same elements, with the indices and the value for which `reads` holds computed into workspaces.
Lowering::Overwriting WithWorkspaces(Lowering& at, const Shape& places, const std::string& dtype,
                                     const Lowering::Overwriting& element, const Reads& reads) {
  const std::vector<Loop> loops = at.NewLoops(places);
  const auto [own, value] = element(Lowering::Vars(loops));
  std::vector<ValuePtr> indices(own.size());
  for (size_t dim = 0; dim < own.size(); ++dim) {
    if (!reads(own[dim])) continue;
    indices[dim] =
        at.Stored(at.Lazy("int64", ExtentsUsed(own[dim], loops),
                          [element, dim](const Index& place) { return element(place).first[dim]; }));
  }
  ValuePtr values;
  if (reads(value)) {
    values = at.Stored(at.Lazy(dtype, places, [element, type = TypeOf(dtype)](const Index& place) {
      return ToType(element(place).second, type);
    }));
  }
  return [=](const Index& place) {
    auto [index, stored] = element(place);
    for (size_t dim = 0; dim < index.size(); ++dim) {
      if (indices[dim]) index[dim] = Lowering::AtBroadcast(indices[dim], place);
    }
    return std::pair(index, values ? values->at(place) : stored);
  };
}

}  // namespace

// An input-output is overwritten when all outputs are stored. New values that read other places than their own, or other
// input-outputs that are overwritten, are stored in workspaces first; so are the places of single elements that read any.
void Lowering::StoreInOuts() {
  struct Final {
    int buffer, graph_value;
    ValuePtr value;
  };
  std::vector<Final> finals;
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const int buffer = static_cast<int>(i);
    if (!program_.buffers[i].is_inout) continue;
    const int last = FinalValueOf(buffer);
    if (values_.at(last)->buffer != buffer) finals.push_back({buffer, last, values_.at(last)});
  }
  // Whether it reads an input-output that is overwritten, except, where `own` is not null, `buffer` at this place.
  const auto reads = [&](const ExprPtr& expr, int buffer, const std::string* own) {
    const std::vector<const Expr*> nodes = Nodes(expr);
    return std::any_of(nodes.begin(), nodes.end(), [&](const Expr* node) {
      const auto hit = [&](const Final& one) { return one.buffer == node->id; };
      if (node->op != "load" || std::none_of(finals.begin(), finals.end(), hit)) return false;
      return own == nullptr || node->id != buffer || node->args[0]->key != *own;
    });
  };
  for (Final& one : finals) {
    if (overwritten_at_end_.count(one.graph_value)) continue;
    const ValuePtr value = one.value;
    const Index index = Vars(NewLoops(value->shape));
    const std::string place = OffsetOf(index, value->shape)->key;
    if (!value->parts.empty()) {
      one.value = Stored(value);
    } else if (reads(value->at(index), one.buffer, &place)) {
      one.value = Stored(Lazy(
          value->dtype, value->shape, [value](const Index& at) { return value->at(at); }, value->cost));
    }
  }
  // What is written at the end may read the places of another one: the workspaces of all are filled before any is
  // overwritten.
  std::vector<std::function<void()>> writes;
  for (const Final& one : finals) {
    const auto found = overwritten_at_end_.find(one.graph_value);
    if (found == overwritten_at_end_.end()) {
      writes.emplace_back([this, one] { StoreTo(one.value, one.buffer, "output"); });
      continue;
    }
    Overwrite overwrite = found->second;
    overwrite.element = WithWorkspaces(*this, overwrite.places, overwrite.dtype, overwrite.element,
                                       [&](const ExprPtr& expr) { return reads(expr, -1, nullptr); });
    writes.emplace_back([this, one, overwrite] { WriteElements(one.buffer, overwrite); });
  }
  for (const auto& write : writes) write();
}

}  // namespace kevin::search
