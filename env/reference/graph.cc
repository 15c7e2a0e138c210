#include "env/reference/graph.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/script.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "env/error.h"
#include "env/reference/compile_reference.h"
#include "env/reference/graph_loops.h"
#include "env/reference/graph_recorder.h"
#include "env/reference/meta_kernels.h"

namespace kevin {
namespace {

namespace jit = torch::jit;
using nlohmann::ordered_json;

constexpr size_t kMaxSteps = 2'000'000;

void CollectTensors(const c10::IValue& value, std::vector<at::Tensor>* tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors->push_back(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) CollectTensors(element, tensors);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) CollectTensors(element, tensors);
  }
}

std::vector<at::Tensor> TensorsIn(at::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) CollectTensors(value, &tensors);
  return tensors;
}

bool IsTensorLike(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (const auto list = type->cast<c10::ListType>())
    return list->getElementType()->kind() == c10::TypeKind::TensorType;
  return false;
}

bool GivesTensors(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) { return IsTensorLike(result.type()); });
}

// The argument that an operator changes; -1: none.
int WrittenArgument(const c10::FunctionSchema& schema) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.alias_info() && argument.alias_info()->isWrite() && IsTensorLike(argument.type()))
      return static_cast<int>(i);
  }
  return -1;
}

std::string OperatorName(const jit::Node* node) {
  const std::string kind = node->kind().toQualString();
  const size_t colons = kind.find("::");
  return colons == std::string::npos ? kind : kind.substr(colons + 2);
}

// lstm, gru and rnn_* at a number of time steps: torch would run them step by step.
bool RunRecurrence(const std::string& op, const c10::FunctionSchema& schema, jit::Stack* stack) {
  if (op != "lstm" && op != "gru" && op != "rnn_tanh" && op != "rnn_relu") return false;
  if (schema.overload_name() != "input") return false;
  const jit::Stack inputs = *stack;
  const at::Tensor input = inputs[0].toTensor();
  const std::vector<at::Tensor> states = TensorsIn(at::ArrayRef<c10::IValue>(inputs[1]));
  const int64_t directions = inputs[7].toBool() ? 2 : 1;
  std::vector<int64_t> shape = input.sizes().vec();
  if (shape.size() < 2 || states.empty() || states[0].dim() < 2)
    throw Error(ExitCode::kBadRequest, "the reference calls " + op + " on a tensor of too few dimensions");
  shape.back() = states[0].size(-1) * directions;
  stack->clear();
  stack->emplace_back(at::empty(shape, input.options()));
  for (const at::Tensor& state : states) stack->emplace_back(at::empty_like(state));
  return true;
}

// Runs a graph on tensors of torch's device "meta" and records what it does with them.
class Interpreter {
 public:
  explicit Interpreter(GraphRecorder* recorder) : recorder_(recorder) {}

  void Set(const jit::Value* value, c10::IValue to) { values_[value] = std::move(to); }
  const c10::IValue& Get(const jit::Value* value) const { return values_.at(value); }

  void Run(const jit::Block* block) {
    for (const jit::Node* node : block->nodes()) {
      CountStep();
      Step(node);
    }
  }

 private:
  void CountStep() {
    if (++steps_ > kMaxSteps) throw Error(ExitCode::kBadRequest, "the reference takes too many steps");
  }

  void Step(const jit::Node* node) {
    switch (node->kind()) {
      case c10::prim::Constant:
        // A function whose calls were inlined is a constant without a value.
        return Set(node->output(), jit::toIValue(node->output()).value_or(c10::IValue()));
      case c10::prim::Uninitialized:
        return Set(node->output(), c10::IValue());
      case c10::prim::If:
        return RunIf(node);
      case c10::prim::Loop:
        return RunLoop(node);
      case c10::prim::RaiseException:
        throw Error(ExitCode::kBadRequest,
                    "the reference raises an exception: " + (Get(node->input(0)).isString()
                                                                 ? Get(node->input(0)).toStringRef()
                                                                 : std::string("unknown")));
      default:
        break;
    }
    jit::Stack stack;
    for (const jit::Value* input : node->inputs()) stack.push_back(Get(input));
    if (!RunOfLanguage(node, &stack)) RunOperator(node, &stack);
    if (stack.size() != node->outputs().size())
      throw Error(ExitCode::kBadRequest, "the reference calls " + std::string(node->kind().toQualString()) +
                                             ", for which the graph has no form");
    for (size_t i = 0; i < stack.size(); ++i) Set(node->outputs()[i], std::move(stack[i]));
  }

  void RunIf(const jit::Node* node) {
    const jit::Block* taken = node->blocks()[Get(node->input(0)).toBool() ? 0 : 1];
    Run(taken);
    for (size_t i = 0; i < node->outputs().size(); ++i) Set(node->outputs()[i], Get(taken->outputs()[i]));
  }

  void RunLoop(const jit::Node* node) {
    const int64_t trip = Get(node->input(0)).toInt();
    bool goes_on = Get(node->input(1)).toBool();
    const jit::Block* body = node->blocks()[0];
    const size_t carried = node->outputs().size();
    std::vector<c10::IValue> now;
    for (size_t i = 0; i < carried; ++i) now.push_back(Get(node->input(i + 2)));
    RecordedLoop loop;
    for (int64_t i = 0; i < trip && goes_on; ++i) {
      CountStep();  // a body may be empty
      loop.starts.push_back(recorder_->graph.nodes.size());
      Set(body->inputs()[0], i);
      for (size_t j = 0; j < carried; ++j) Set(body->inputs()[j + 1], now[j]);
      Run(body);
      goes_on = Get(body->outputs()[0]).toBool();
      for (size_t j = 0; j < carried; ++j) now[j] = Get(body->outputs()[j + 1]);
    }
    loop.starts.push_back(recorder_->graph.nodes.size());
    recorder_->graph.loops.push_back(std::move(loop));
    for (size_t j = 0; j < carried; ++j) Set(node->outputs()[j], now[j]);
  }

  // What torch's own interpreter has instructions for.
  bool RunOfLanguage(const jit::Node* node, jit::Stack* stack) {
    switch (node->kind()) {
      case c10::prim::ListConstruct:
        *stack = {MakeList(node->output()->type()->expectRef<c10::ListType>(), *stack)};
        return true;
      case c10::prim::DictConstruct:
        *stack = {MakeDict(node->output()->type()->expectRef<c10::DictType>(), *stack)};
        return true;
      case c10::prim::TupleConstruct:
        *stack = {c10::ivalue::Tuple::create(std::vector<c10::IValue>(*stack))};
        return true;
      case c10::prim::ListUnpack:
        *stack = stack->at(0).toListRef().vec();
        return true;
      case c10::prim::TupleUnpack: {
        const std::vector<c10::IValue> elements = TupleElements(stack->at(0));
        *stack = elements;
        return true;
      }
      case c10::prim::TupleSlice: {
        const std::vector<c10::IValue> elements = TupleElements(stack->at(0));
        const int64_t begin = node->i(c10::attr::beg), end = node->i(c10::attr::end);
        *stack = {c10::ivalue::Tuple::create(
            std::vector<c10::IValue>(elements.begin() + begin, elements.begin() + end))};
        return true;
      }
      case c10::prim::isinstance: {
        const c10::TypePtr type = stack->at(0).type();
        const std::vector<c10::TypePtr>& types = node->tys(c10::attr::types);
        *stack = {std::any_of(types.begin(), types.end(),
                              [&](const c10::TypePtr& one) { return type->isSubtypeOf(*one); })};
        return true;
      }
      case c10::prim::unchecked_cast:
        return true;
      case c10::aten::format:  // texts are for messages of exceptions
        *stack = {stack->at(0)};
        return true;
      default:
        return false;
    }
  }

  static std::vector<c10::IValue> TupleElements(const c10::IValue& tuple) {
    const auto elements = tuple.toTupleRef().elements();
    return std::vector<c10::IValue>(elements.begin(), elements.end());
  }

  static c10::IValue MakeList(const c10::ListType& type, const jit::Stack& elements) {
    c10::impl::GenericList list(type.getElementType());
    for (const c10::IValue& element : elements) list.push_back(element);
    return list;
  }

  static c10::IValue MakeDict(const c10::DictType& type, const jit::Stack& elements) {
    c10::impl::GenericDict dict(type.getKeyType(), type.getValueType());
    for (size_t i = 0; i + 1 < elements.size(); i += 2) dict.insert_or_assign(elements[i], elements[i + 1]);
    return dict;
  }

  void RunOperator(const jit::Node* node, jit::Stack* stack) {
    const std::string op = OperatorName(node);
    const c10::FunctionSchema* schema = node->maybeSchema();
    if (schema == nullptr || !GivesTensors(*schema)) return Execute(node, op, stack);
    const std::vector<at::Tensor> inputs = TensorsIn(*stack);
    StayOnMeta(*schema, stack);
    const int written = WrittenArgument(*schema);
    if (written >= 0) return RunInPlace(node, *schema, op, static_cast<size_t>(written), stack);
    ordered_json args = recorder_->Arguments(*schema, *stack);
    if (node->kind() == c10::prim::NumToTensor) {
      *stack = {
          at::scalar_tensor((*stack)[0].toScalar(), at::TensorOptions((*stack)[0].isInt()    ? at::kLong
                                                                      : (*stack)[0].isBool() ? at::kBool
                                                                                             : at::kDouble)
                                                        .device(at::kMeta))};
      return recorder_->Record("scalar_tensor", {{"s", args.front()}}, inputs, TensorsIn(*stack));
    }
    if (!RunRecurrence(op, *schema, stack)) Execute(node, op, stack);
    recorder_->Record(op, std::move(args), inputs, TensorsIn(*stack));
  }

  void RunInPlace(const jit::Node* node, const c10::FunctionSchema& schema, const std::string& op,
                  size_t written, jit::Stack* stack) {
    if (written != 0 || op.empty() || op.back() != '_') {
      throw Error(ExitCode::kBadRequest,
                  "the reference calls " + op + ", which writes to its argument `" +
                      schema.arguments()[written].name() + "`",
                  "make a new tensor");
    }
    const at::Tensor self = (*stack)[0].toTensor();
    const std::vector<int64_t> shape = self.sizes().vec();
    const c10::IValue source = stack->size() > 1 ? (*stack)[1] : c10::IValue();
    if (op == "copy_" && source.isTensor()) {
      Execute(node, op, stack);
      return recorder_->RecordCopy(self, source.toTensor());
    }
    ordered_json args = recorder_->Arguments(schema, *stack);
    Execute(node, op, stack);
    if (self.sizes().vec() != shape)
      throw Error(ExitCode::kBadRequest, "the reference changes the shape of a tensor in place by " + op,
                  "use the form without underscore");
    recorder_->RecordWrite(PureForm(op), std::move(args), self);
  }

  // "relu_" is relu, "__iand__" is __and__.
  static std::string PureForm(const std::string& op) {
    return op.starts_with("__i") ? "__" + op.substr(3) : op.substr(0, op.size() - 1);
  }

  // No operator may make a tensor with data.
  static void StayOnMeta(const c10::FunctionSchema& schema, jit::Stack* stack) {
    for (size_t i = 0; i < stack->size() && i < schema.arguments().size(); ++i) {
      if (schema.arguments()[i].name() != "device") continue;
      const bool takes_tensors = !TensorsIn(*stack).empty();
      if (!(*stack)[i].isNone() || !takes_tensors) (*stack)[i] = c10::Device(at::kMeta);
    }
  }

  // Of an operator that failed: whether it gives no tensor, but a number of one.
  static void ThrowIfReads(const jit::Node* node, const std::string& op, bool takes_tensors) {
    const c10::FunctionSchema* schema = node->maybeSchema();
    if (!takes_tensors || (schema != nullptr && GivesTensors(*schema))) return;
    throw Error(ExitCode::kBadRequest,
                "the reference reads the value of a tensor (" + op + "), so its graph depends on its inputs",
                "compute with tensors: torch.where instead of a branch");
  }

  void Execute(const jit::Node* node, const std::string& op, jit::Stack* stack) {
    auto found = operations_.find(node);
    if (found == operations_.end()) found = operations_.emplace(node, node->getOperation()).first;
    const bool takes_tensors = !TensorsIn(*stack).empty();
    try {
      found->second(*stack);
    } catch (const Error&) {
      throw;
    } catch (const c10::NotImplementedError&) {
      ThrowIfReads(node, op, takes_tensors);
      throw Error(ExitCode::kBadRequest,
                  "the reference calls `" + op +
                      "`, for which the graph has no form: its result depends on values, "
                      "or torch does not compute its shape without them",
                  "write that part with other operators");
    } catch (const c10::Error& error) {
      const std::string what = error.what_without_backtrace();
      ThrowIfReads(node, op, takes_tensors);
      throw Error(ExitCode::kBadRequest,
                  "torch cannot run " + op + " without data: " + what.substr(0, what.find('\n')));
    } catch (const std::exception& error) {
      throw Error(ExitCode::kBadRequest,
                  "the reference fails in " + op + ": " + std::string(error.what()).substr(0, 500));
    }
  }

  GraphRecorder* recorder_;
  std::unordered_map<const jit::Value*, c10::IValue> values_;
  std::unordered_map<const jit::Node*, jit::Operation> operations_;
  size_t steps_ = 0;
};

// The inputs of `forward`: all tensors, or the inputs and a Dict of the parameters.
std::vector<c10::IValue> MetaInputs(const Problem& problem, const SizedProblem& sized,
                                    GraphRecorder* recorder) {
  std::vector<c10::IValue> inputs;
  c10::Dict<std::string, at::Tensor> params;
  for (const ConcreteTensor& input : sized.inputs) {
    const at::Tensor tensor =
        at::empty(input.shape, at::TensorOptions(TorchType(input.spec.dtype)).device(at::kMeta));
    recorder->AddInput(tensor);
    if (problem.has_param_dict && input.spec.is_param) {
      params.insert(input.spec.name, tensor);
    } else {
      inputs.emplace_back(tensor);
    }
  }
  if (problem.has_param_dict) inputs.emplace_back(params);
  return inputs;
}

// `now`, `before`: the values of the inputs.
void CheckWrites(const Problem& problem, const std::vector<int>& now, const std::vector<int>& before) {
  for (size_t i = 0; i < now.size(); ++i) {
    if ((now[i] != before[i]) == problem.inputs[i].is_inout) continue;
    const std::string& name = problem.inputs[i].name;
    if (problem.inputs[i].is_inout)
      throw Error(ExitCode::kBadRequest, "the reference leaves its input-output `" + name + "` as it is",
                  "write into it in `forward`, or remove role = \"inout\"");
    throw Error(ExitCode::kBadRequest, "the reference writes into its input `" + name + "`",
                "give it role = \"inout\", or write into a new tensor");
  }
}

RecordedGraph RecordReference(const Problem& problem, const SizedProblem& sized) {
  const std::shared_ptr<jit::CompilationUnit> unit = CompiledReference(problem);
  const std::shared_ptr<jit::Graph> graph =
      jit::toGraphFunction(unit->get_function("forward")).graph()->copy();
  jit::Inline(*graph);
  const c10::InferenceMode inference;
  GraphRecorder recorder;
  Interpreter interpreter(&recorder);
  const std::vector<c10::IValue> inputs = MetaInputs(problem, sized, &recorder);
  if (inputs.size() != graph->inputs().size())
    throw Error(ExitCode::kBadRequest, "`forward` takes " + std::to_string(graph->inputs().size()) +
                                           " arguments, the problem file has " +
                                           std::to_string(inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) interpreter.Set(graph->inputs()[i], inputs[i]);
  interpreter.Run(graph->block());
  for (const jit::Value* output : graph->outputs()) {
    for (const at::Tensor& tensor : TensorsIn({interpreter.Get(output)}))
      recorder.graph.outputs.push_back(recorder.ValueOf(tensor));
  }
  CheckWrites(problem, recorder.InputsNow(), recorder.graph.inputs);
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    if (problem.inputs[i].is_inout) recorder.graph.outputs.push_back(recorder.InputsNow()[i]);
  }
  return std::move(recorder.graph);
}

std::string ToText(const RecordedGraph& graph, const Problem& problem) {
  ordered_json json = {{"version", kGraphFormat},
                       {"inputs", ordered_json::array()},
                       {"values", ordered_json::array()},
                       {"nodes", ordered_json::array()},
                       {"outputs", graph.outputs}};
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    json["inputs"].push_back({{"name", problem.inputs[i].name}, {"value", graph.inputs[i]}});
  for (const RecordedValue& value : graph.values)
    json["values"].push_back({{"dtype", value.dtype}, {"shape", value.shape}});
  for (const RecordedNode& node : graph.nodes) json["nodes"].push_back(NodeToJson(node));
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

std::string ReferenceGraph(const Problem& problem, const std::string& size) {
  LinkMetaKernels();
  const SizedProblem sized = AtSize(problem, size);
  try {
    RecordedGraph graph = RecordReference(problem, sized);
    FoldLoops(&graph);
    Compact(&graph);
    return ToText(graph, problem);
  } catch (const Error& error) {
    throw Error(error.code(), problem.id + ": " + error.what(), error.next_step());
  }
}

}  // namespace kevin
