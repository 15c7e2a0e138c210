#include "policies/search/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "policies/search/lowering.h"

namespace kevin::search {

Type TypeOf(const std::string& dtype) {
  if (dtype == "bool") return Type::kBool;
  if (dtype == "int64" || dtype == "int32") return Type::kInt;
  if (dtype.starts_with("float") || dtype == "bfloat16") return Type::kFloat;
  throw Unsupported("tensors of " + dtype + " cannot be written");
}

bool IsFloating(const std::string& dtype) { return TypeOf(dtype) == Type::kFloat; }

int64_t Count(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

Lowering::Lowering(const Graph& graph, const Task& task, bool finds_attention)
    : graph_(graph), task_(task), stages_(&program_.stages), finds_attention_(finds_attention) {}

// --- Values ---

ValuePtr Lowering::Constant(double value, const std::string& dtype) {
  auto made = std::make_shared<Value>();
  made->dtype = dtype;
  const ExprPtr constant = ToType(Float(value), TypeOf(dtype));
  made->at = [constant](const Index&) { return constant; };
  return made;
}

ValuePtr Lowering::Lazy(const std::string& dtype, const Shape& shape, std::function<ExprPtr(const Index&)> at,
                        int cost) {
  auto value = std::make_shared<Value>();
  value->dtype = dtype;
  value->shape = shape;
  value->cost = cost;
  // Equal questions come often: a value that is read twice in one expression doubles it at each level.
  auto memory = std::make_shared<std::map<std::string, ExprPtr>>();
  value->at = [at = std::move(at), memory](const Index& index) {
    std::string key;
    for (const ExprPtr& one : index) key += one->key;
    ExprPtr& known = (*memory)[key];
    if (!known) known = at(index);
    return known;
  };
  return value;
}

ValuePtr Lowering::Stored(const ValuePtr& value) {
  if (value->buffer >= 0) return value;
  const int buffer = NewWorkspace(name_, value->dtype, Count(value->shape));
  StoreTo(value, buffer, name_);
  const Shape shape = value->shape;
  const Type type = TypeOf(value->dtype);
  // The same object: later readers of the value read the buffer too.
  value->buffer = buffer;
  value->cost = 0;
  value->parts.clear();
  value->at = [buffer, type, shape](const Index& index) {
    return Load(buffer, type, OffsetOf(index, shape));
  };
  return value;
}

namespace {

bool IsPlainRead(const ExprPtr& e) {
  if (e->op == "load") return e->args[0]->size < 64;
  if (e->op == "guard") return IsPlainRead(e->args[1]) && e->args[2]->op == "constant";
  return e->op == "constant";
}

}  // namespace

ValuePtr Lowering::Plain(const ValuePtr& value) {
  if (value->buffer >= 0) return value;
  if (value->cost == 0 && value->parts.empty() && IsPlainRead(value->at(Vars(NewLoops(value->shape)))))
    return value;
  return Stored(value);
}

ValuePtr Lowering::Cheap(const ValuePtr& value, int limit) {
  return value->cost <= limit && value->parts.size() < 3 ? value : Stored(value);
}

ExprPtr Lowering::AtBroadcast(const ValuePtr& value, const Index& index) {
  Index own(value->shape.size());
  const size_t skipped = index.size() - own.size();
  for (size_t i = 0; i < own.size(); ++i) own[i] = value->shape[i] == 1 ? Int(0) : index[skipped + i];
  return value->at(own);
}

Shape Lowering::BroadcastShape(const std::vector<ValuePtr>& values) {
  Shape shape;
  for (const ValuePtr& value : values) {
    const Shape& other = value->shape;
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
    for (size_t i = 0; i < other.size(); ++i) {
      int64_t& size = shape[shape.size() - other.size() + i];
      if (other[i] != 1) size = other[i];
    }
  }
  return shape;
}

ValuePtr Lowering::Map(const std::vector<ValuePtr>& values, const std::string& dtype, Type type,
                       const ElementFunction& f) {
  int cost = 0;
  std::vector<ExprPtr> placeholders;
  for (size_t i = 0; i < values.size(); ++i) {
    cost += values[i]->cost;
    placeholders.push_back(ToType(Result(static_cast<int>(i), TypeOf(values[i]->dtype)), type));
  }
  cost += CostOf(f(placeholders));
  const Type result = TypeOf(dtype);
  ValuePtr value = Lazy(
      dtype, BroadcastShape(values),
      [values, type, result, f](const Index& index) {
        std::vector<ExprPtr> args;
        for (const ValuePtr& one : values) args.push_back(ToType(AtBroadcast(one, index), type));
        return ToType(f(args), result);
      },
      cost);
  return value;
}

ValuePtr Lowering::MapFloat(const std::vector<ValuePtr>& values, const ElementFunction& f) {
  return Map(values, values[0]->dtype, Type::kFloat, f);
}

// --- Stages ---

Loop Lowering::NewLoop(int64_t extent) { return {variables_++, extent}; }

std::vector<Loop> Lowering::NewLoops(const Shape& shape) {
  std::vector<Loop> loops;
  for (const int64_t size : shape) loops.push_back(NewLoop(size));
  return loops;
}

Index Lowering::Vars(const std::vector<Loop>& loops) {
  Index index;
  for (const Loop& loop : loops) index.push_back(Var(loop));
  return index;
}

int Lowering::NewWorkspace(const std::string& name, const std::string& dtype, int64_t elements) {
  Buffer buffer;
  buffer.name = name;
  buffer.dtype = dtype == "float64" ? "float32" : dtype;
  buffer.elements = elements;
  program_.buffers.push_back(buffer);
  return static_cast<int>(program_.buffers.size()) - 1;
}

ValuePtr Lowering::NewStored(const std::string& name, const std::string& dtype, const Shape& shape) {
  const int buffer = NewWorkspace(name, dtype, Count(shape));
  const Type type = TypeOf(dtype);
  ValuePtr value = Lazy(dtype, shape, [buffer, type, shape](const Index& index) {
    return Load(buffer, type, OffsetOf(index, shape));
  });
  value->buffer = buffer;
  return value;
}

void Lowering::Add(const std::string& name, decltype(Stage::work) work, double flops) {
  Stage stage;
  stage.name = name;
  stage.work = std::move(work);
  stage.flops = flops;
  MergeLoops(stage);
  stages_->push_back(std::move(stage));
}

void Lowering::StoreTo(const ValuePtr& value, int buffer, const std::string& name) {
  if (!value->parts.empty()) {
    int64_t start = 0;
    for (const ValuePtr& part : value->parts) {
      const std::vector<Loop> loops = NewLoops(part->shape);
      Index index = Vars(loops);
      const ExprPtr element = part->at(index);
      index[value->part_dim] = AddInt(index[value->part_dim], Int(start));
      Add(name, Pointwise{loops,
                          {{buffer, OffsetOf(index, value->shape), ToType(element, TypeOf(value->dtype)),
                            nullptr}}});
      start += part->shape[value->part_dim];
    }
    return;
  }
  const std::vector<Loop> loops = NewLoops(value->shape);
  const Index index = Vars(loops);
  Add(name, Pointwise{loops, {{buffer, OffsetOf(index, value->shape), value->at(index), nullptr}}});
}

// --- The walk ---

void Lowering::AddArguments() {
  std::map<std::string, int> position;
  int block = -1;
  for (size_t i = 0; i < task_.arguments.size(); ++i) {
    position[task_.arguments[i].name] = static_cast<int>(i);
    if (task_.arguments[i].role == "params") block = static_cast<int>(i);
  }
  for (const GraphInput& input : graph_.inputs) {
    const GraphValue& tensor = graph_.values.at(input.value);
    Buffer buffer;
    buffer.name = input.name;
    buffer.dtype = tensor.dtype;
    buffer.elements = Count(tensor.shape);
    if (buffer.elements == 0) throw Unsupported("the input " + input.name + " has no elements");
    if (const auto found = position.find(input.name); found != position.end()) {
      buffer.argument = found->second;
    } else {
      const auto offset = task_.symbols.find(input.name + "_offset");
      if (block < 0 || offset == task_.symbols.end())
        throw Unsupported("the graph has the input " + input.name + ", which `launch` does not");
      buffer.argument = block;
      buffer.base_symbol = offset->first;
      buffer.base = offset->second;
    }
    const bool is_inout = buffer.argument != block && task_.arguments[buffer.argument].role == "inout";
    buffer.is_output = buffer.is_inout = is_inout;
    program_.buffers.push_back(buffer);
    const int number = static_cast<int>(program_.buffers.size()) - 1;
    if (is_inout) current_[number] = input.value;
    const Shape shape = tensor.shape;
    const Type type = TypeOf(tensor.dtype);
    ValuePtr value = Lazy(tensor.dtype, shape, [number, type, shape](const Index& index) {
      return Load(number, type, OffsetOf(index, shape));
    });
    value->buffer = number;
    values_[input.value] = value;
  }
}

namespace {

// Whether the node takes nothing but the shape (or the dtype) of the argument.
bool ReadsShapeOnly(const GraphNode& node, const std::string& name) {
  if (name == "self") return node.op.ends_with("_like") || node.op.starts_with("new_");
  return name == "other" && (node.op.ends_with("_as"));
}

}  // namespace

void Lowering::CountUses(const std::vector<GraphNode>& nodes) {
  const std::function<void(const nlohmann::json&)> count = [&](const nlohmann::json& arg) {
    if (arg.is_object() && arg.contains("tensor")) ++uses_[arg["tensor"].get<int>()];
    if (arg.is_object() && arg.contains("tensors")) {
      for (const auto& one : arg["tensors"])
        if (one.is_number_integer()) ++uses_[one.get<int>()];
    }
  };
  for (size_t i = nodes.size(); i-- > 0;) {
    const GraphNode& node = nodes[i];
    const bool is_live =
        std::any_of(node.results.begin(), node.results.end(), [&](int result) { return uses_[result] > 0; });
    if (!is_live) continue;
    for (const auto& [name, arg] : node.args.items()) {
      const bool is_overwritten = name == "self" && CompleteWrite(node) >= 0;
      if (!is_overwritten && !ReadsShapeOnly(node, name)) count(arg);
    }
    if (node.op != "loop") continue;
    for (const auto& [init, param, next, result] : node.carried) ++uses_[init], ++uses_[next];
    for (const auto& [next, result] : node.stacked) ++uses_[next];
    CountUses(node.body);
  }
}

namespace {

constexpr const char* kCopySuffix = "_copy";

// Operations that read tensors without elements: these have no element there.
bool ReadsEmpty(const std::string& op) {
  static const std::set<std::string> kNames = {"cat",    "concat", "concatenate", "slice_scatter", "slice",
                                               "narrow", "hstack", "vstack",      "view",          "reshape"};
  return kNames.count(op) > 0;
}

}  // namespace

// A tensor without elements may only be left out of a concatenation.
void Lowering::RefuseEmpty(const GraphNode& node) const {
  const auto is_empty = [&](int value) { return value >= 0 && Count(graph_.values.at(value).shape) == 0; };
  for (const int result : node.results) {
    const auto used = uses_.find(result);
    const bool is_used = used != uses_.end() && used->second > 0;
    if (is_used && is_empty(result) && !ReadsEmpty(node.op))
      throw Unsupported("`" + node.op + "` makes a tensor without elements");
  }
  if (ReadsEmpty(node.op)) return;
  for (const auto& [name, arg] : node.args.items()) {
    if (arg.is_object() && arg.contains("tensor") && is_empty(arg["tensor"].get<int>()))
      throw Unsupported("`" + node.op + "` reads a tensor without elements");
  }
}

void Lowering::Lower1(const GraphNode& given) {
  const GraphNode* node = &given;
  if (given.op.ends_with(kCopySuffix) && given.op != "index_copy") {
    copies_.push_back(given);
    copies_.back().op = given.op == "_to_copy" ? "to" : given.op.substr(0, given.op.size() - 5);
    node = &copies_.back();
  }
  name_ = node->op;
  RefuseEmpty(*node);
  using Group = bool (Lowering::*)(const GraphNode&);
  static constexpr Group kGroups[] = {&Lowering::Attended,   &Lowering::Loop_,      &Lowering::Elementwise,
                                      &Lowering::View,       &Lowering::Indexing,   &Lowering::Creation,
                                      &Lowering::Reduced,    &Lowering::Normalised, &Lowering::Windowed,
                                      &Lowering::Contracted, &Lowering::Recurrent,  &Lowering::Loss,
                                      &Lowering::Composed};
  try {
    for (const Group group : kGroups) {
      if ((this->*group)(*node)) return;
    }
  } catch (const Unsupported& unsupported) {
    const std::string reason = unsupported.what();
    if (reason.find('`') != std::string::npos) throw;  // it names the operation
    throw Unsupported("`" + node->op + "`: " + reason);
  }
  throw Unsupported("`" + node->op + "` has no stage");
}

// What several operations read is stored once it costs more than reading it. In deep networks sooner: residuals would
// pile up, so that no two layers are alike. Two of them, those of a block, are stored.
bool Lowering::IsDearToRepeat(const ValuePtr& value) {
  constexpr size_t kDeep = 150;
  constexpr int kTwoSums = 2;
  if (graph_.nodes.size() <= kDeep) return value->cost > 12;
  if (value->cost != kTwoSums) return value->cost > kTwoSums;
  std::set<int> read;
  for (const Expr* node : Nodes(value->at(Vars(NewLoops(value->shape))))) {
    if (node->op == "load") read.insert(node->id);
  }
  return read.size() > 1;
}

void Lowering::Walk(const std::vector<GraphNode>& nodes) {
  for (const GraphNode& node : nodes) {
    if (std::none_of(node.results.begin(), node.results.end(), [&](int result) { return uses_[result] > 0; }))
      continue;
    Lower1(node);
    for (const int result : node.results) {
      const auto found = values_.find(result);
      if (found == values_.end() || !found->second || found->second->buffer >= 0) continue;
      const ValuePtr& value = found->second;
      if (value->cost > 200 || (uses_[result] > 1 && IsDearToRepeat(value))) Stored(value);
    }
  }
}

void Lowering::StoreOutputs() {
  size_t at = 0;
  for (size_t i = 0; i < task_.arguments.size(); ++i) {
    if (task_.arguments[i].role != "output") continue;
    if (at >= graph_.outputs.size()) throw Unsupported("the graph has fewer outputs than the problem");
    const ValuePtr value = values_.at(graph_.outputs[at++]);
    if (Count(value->shape) == 0)
      throw Unsupported("the output " + task_.arguments[i].name + " has no elements");
    Buffer buffer;
    buffer.name = task_.arguments[i].name;
    buffer.dtype = value->dtype;
    buffer.elements = Count(value->shape);
    buffer.argument = static_cast<int>(i);
    buffer.is_output = true;
    program_.buffers.push_back(buffer);
    StoreTo(value, static_cast<int>(program_.buffers.size()) - 1, "output");
  }
  StoreInOuts();
}

Program Lowering::Run() {
  AddArguments();
  for (const int output : graph_.outputs) ++uses_[output];
  CountUses(graph_.nodes);
  uses_.erase(-1);
  for (const GraphNode& node : graph_.nodes) {
    if (const int source = CompleteWrite(node); source >= 0) same_as_[node.results[0]] = source;
  }
  if (finds_attention_) FindAttention();
  Walk(graph_.nodes);
  StoreOutputs();
  return std::move(program_);
}

Program Lower(const Graph& graph, const Task& task) {
  try {
    return Lowering(graph, task).Run();
  } catch (const PatternMismatch&) {
    return Lowering(graph, task, false).Run();
  }
}

}  // namespace kevin::search
