#include "env/reference/graph_recorder.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "env/error.h"
#include "env/reference/graph.h"

namespace kevin {
namespace {

using nlohmann::ordered_json;

ordered_json TensorArgument(int value) { return {{"tensor", value}}; }

const void* MemoryOf(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

ordered_json FloatArgument(double value) {
  if (std::isfinite(value)) return value;
  return {{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}

bool SaysWhereOnly(const std::string& name) {
  static const std::set<std::string> kNames = {"device",        "layout",    "pin_memory",
                                               "memory_format", "generator", "non_blocking",
                                               "copy",          "implicit",  "requires_grad"};
  return kNames.count(name) != 0;
}

bool IsDType(const std::string& name) { return name == "dtype" || name == "out_dtype"; }

ordered_json ShapeArgument(const at::Tensor& tensor) { return tensor.sizes().vec(); }

std::vector<int64_t> InversePermutation(const std::vector<int64_t>& dims) {
  const auto rank = static_cast<int64_t>(dims.size());
  std::vector<int64_t> inverse(dims.size());
  for (int64_t i = 0; i < rank; ++i) inverse[(dims[i] + rank) % rank] = i;
  return inverse;
}

}  // namespace

std::string GraphDType(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kDouble:
      return "float64";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kShort:
      return "int16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    case at::kComplexFloat:
      return "complex64";
    case at::kComplexDouble:
      return "complex128";
    default:
      throw Error(ExitCode::kBadRequest,
                  std::string("the reference has a tensor of type ") + c10::toString(type));
  }
}

GraphRecorder::Known* GraphRecorder::Find(const at::Tensor& tensor) {
  const auto found = known_.find(tensor.unsafeGetTensorImpl());
  return found == known_.end() ? nullptr : &found->second;
}

int GraphRecorder::NewValue(const at::Tensor& tensor) {
  graph.values.push_back({GraphDType(tensor.scalar_type()), tensor.sizes().vec()});
  return static_cast<int>(graph.values.size()) - 1;
}

int GraphRecorder::Add(const at::Tensor& tensor, const at::Tensor* of) {
  Known& known = known_[tensor.unsafeGetTensorImpl()];
  known.tensor = tensor;
  known.value = NewValue(tensor);
  known.version = versions_[MemoryOf(tensor)];
  known.of = of;
  return known.value;
}

int GraphRecorder::AddInput(const at::Tensor& tensor) {
  const int value = Add(tensor, nullptr);
  graph.inputs.push_back(value);
  inputs_.push_back(tensor);
  return value;
}

std::vector<int> GraphRecorder::InputsNow() {
  std::vector<int> values;
  for (const at::Tensor& input : inputs_) values.push_back(ValueOf(input));
  return values;
}

int GraphRecorder::Emit(const std::string& op, ordered_json args, const at::Tensor& like) {
  const int value = NewValue(like);
  graph.nodes.push_back({op, std::move(args), {value}, {}, {}, {}});
  if (graph.nodes.size() > kMaxGraphNodes)
    throw Error(ExitCode::kBadRequest,
                "the reference calls more than " + std::to_string(kMaxGraphNodes) + " operators");
  return value;
}

int GraphRecorder::ValueOf(const at::Tensor& tensor) {
  Known* known = Find(tensor);
  if (known == nullptr) {
    throw Error(ExitCode::kBadRequest, "the reference uses a tensor " +
                                           std::string(c10::toString(tensor.scalar_type())) +
                                           " that no operator of the graph made");
  }
  const int64_t version = versions_[MemoryOf(tensor)];
  if (known->version == version || known->of == nullptr) return known->value;
  // Another view of the same memory was written to.
  ordered_json args = known->view_args;
  for (auto& [name, arg] : args.items()) {
    if (arg.is_object() && arg.contains("tensor")) {
      arg = TensorArgument(ValueOf(*known->of));
      break;
    }
  }
  std::vector<int> results;
  for (const int old : known->results) {
    graph.values.push_back(RecordedValue(graph.values[old]));
    results.push_back(static_cast<int>(graph.values.size()) - 1);
  }
  graph.nodes.push_back({known->view, std::move(args), results, {}, {}, {}});
  known->value = results[known->result];
  known->version = version;
  return known->value;
}

ordered_json GraphRecorder::ArgumentOf(const c10::IValue& value, const std::string& name) {
  if (value.isNone()) return nullptr;
  if (value.isTensor()) {
    if (!value.toTensor().defined()) return nullptr;
    return TensorArgument(ValueOf(value.toTensor()));
  }
  if (value.isBool()) return value.toBool();
  if (value.isInt()) {
    if (IsDType(name)) return GraphDType(static_cast<at::ScalarType>(value.toInt()));
    return value.toInt();
  }
  if (value.isDouble()) return FloatArgument(value.toDouble());
  if (value.isString()) return value.toStringRef();
  if (value.isList()) {
    ordered_json list = ordered_json::array();
    bool has_tensors = value.isTensorList();
    for (const c10::IValue& element : value.toListRef()) {
      has_tensors |= element.isTensor();
      list.push_back(ArgumentOf(element, ""));
    }
    if (!has_tensors) return list;
    ordered_json numbers = ordered_json::array();
    for (const ordered_json& element : list)
      numbers.push_back(element.is_null() ? ordered_json() : element.at("tensor"));
    return {{"tensors", numbers}};
  }
  throw Error(ExitCode::kBadRequest, "the graph has no form for an argument of type " + value.tagKind());
}

ordered_json GraphRecorder::Arguments(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> inputs) {
  ordered_json args = ordered_json::object();
  for (size_t i = 0; i < inputs.size() && i < schema.arguments().size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    if (!SaysWhereOnly(name)) args[name] = ArgumentOf(inputs[i], name);
  }
  return args;
}

void GraphRecorder::Record(const std::string& op, ordered_json args, const std::vector<at::Tensor>& inputs,
                           const std::vector<at::Tensor>& results) {
  if (std::all_of(results.begin(), results.end(), [&](const at::Tensor& tensor) { return Find(tensor); }))
    return;
  if (graph.nodes.size() >= kMaxGraphNodes)
    throw Error(ExitCode::kBadRequest,
                "the reference calls more than " + std::to_string(kMaxGraphNodes) + " operators");
  std::vector<int> values;
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& tensor = results[i];
    if (Find(tensor)) {  // also a result: a value of its own all the same
      values.push_back(NewValue(tensor));
      continue;
    }
    const at::Tensor* of = nullptr;
    for (const at::Tensor& input : inputs) {
      if (of == nullptr && MemoryOf(input) == MemoryOf(tensor)) of = &Find(input)->tensor;
    }
    values.push_back(Add(tensor, of));
    if (of != nullptr) {
      Known* known = Find(tensor);
      known->view = op;
      known->view_args = args;
      known->result = i;
    }
  }
  for (const at::Tensor& tensor : results) {
    if (Known* known = Find(tensor); known->results.empty()) known->results = values;
  }
  graph.nodes.push_back({op, std::move(args), std::move(values), {}, {}, {}});
}

// The value of what `view` was taken of, after a write of `value` through it.
int GraphRecorder::Scattered(const Known& view, int value) {
  const at::Tensor& parent = *view.of;
  const std::string& op = view.view;
  const ordered_json& was = view.view_args;
  ordered_json args;
  if (op == "select" || op == "slice" || op == "diagonal") {
    args["self"] = TensorArgument(ValueOf(parent));
    args["src"] = TensorArgument(value);
    for (const auto& [name, arg] : was.items()) {
      if (name != "self") args[name] = arg;
    }
    return Emit(op + "_scatter", args, parent);
  }
  if (op == "transpose" || op == "swapaxes" || op == "t" || op == "numpy_T" || op == "mT") {
    args["self"] = TensorArgument(value);
    for (const auto& [name, arg] : was.items()) {
      if (name != "self") args[name] = arg;
    }
    return Emit(op, args, parent);
  }
  if (op == "permute") {
    args["self"] = TensorArgument(value);
    args["dims"] = InversePermutation(was.at("dims").get<std::vector<int64_t>>());
    return Emit(op, args, parent);
  }
  static const std::set<std::string> kSameOrder = {
      "view",       "reshape",    "flatten",    "unsqueeze", "squeeze", "alias",
      "unflatten",  "view_as",    "reshape_as", "detach",    "ravel",   "positive",
      "atleast_1d", "atleast_2d", "atleast_3d", "expand_as", "expand"};
  if (kSameOrder.count(op) != 0 && parent.numel() == view.tensor.numel()) {
    args["self"] = TensorArgument(value);
    args["shape"] = ShapeArgument(parent);
    return Emit("reshape", args, parent);
  }
  const size_t split_dim = was.contains("dim") && was.at("dim").is_number() ? 1 : 0;
  if (op == "unbind" && split_dim) {
    args = {{"self", TensorArgument(ValueOf(parent))},
            {"src", TensorArgument(value)},
            {"dim", was.at("dim")},
            {"index", view.result}};
    return Emit("select_scatter", args, parent);
  }
  throw Error(ExitCode::kBadRequest,
              "the reference writes through `" + op + "`, for which the graph has no form",
              "write through select or slice, or make a new tensor");
}

void GraphRecorder::Write(Known* known, int value) {
  if (known->of != nullptr) {
    Known* parent = Find(*known->of);
    Write(parent, Scattered(*known, value));
  } else {
    ++versions_[MemoryOf(known->tensor)];
  }
  known->value = value;
  known->version = versions_[MemoryOf(known->tensor)];
}

void GraphRecorder::RecordWrite(const std::string& op, ordered_json args, const at::Tensor& self) {
  Write(Find(self), Emit(op, std::move(args), self));
}

void GraphRecorder::RecordCopy(const at::Tensor& self, const at::Tensor& source) {
  int value = ValueOf(source);
  if (source.scalar_type() != self.scalar_type()) {
    graph.values.push_back({GraphDType(self.scalar_type()), source.sizes().vec()});
    const int converted = static_cast<int>(graph.values.size()) - 1;
    graph.nodes.push_back({"to",
                           {{"self", TensorArgument(value)}, {"dtype", GraphDType(self.scalar_type())}},
                           {converted},
                           {},
                           {},
                           {}});
    value = converted;
  }
  if (source.sizes() != self.sizes())
    value = Emit("expand", {{"self", TensorArgument(value)}, {"size", ShapeArgument(self)}}, self);
  Write(Find(self), value);
}

}  // namespace kevin
