#include "env/gpu/launch/signature.h"

#include <fmt/format.h>

namespace kevin::launch {
namespace {

bool Holds(const Type& type, DType dtype) {
  if (type.pointers != 1) return false;
  const std::string& name = type.info->name;
  if (dtype == DType::kI64) return name == "long" || name == "long long";
  if (dtype == DType::kBool) return name == "bool" || name == "unsigned char";
  return name == DTypeInKind(dtype, "cuda");
}

}  // namespace

std::vector<Value> LaunchArguments(const SourceText& source, const SizedProblem& problem,
                                   const Function& launch, size_t name_at, Interpreter* interpreter,
                                   ListBuilder* list) {
  const std::vector<Parameter>& parameters = interpreter->Syntax(launch).parameters;
  const std::string advice = fmt::format("; write `{}`", LaunchSignature(*problem.problem, "cuda"));
  const auto is_stream = [](const Parameter& parameter) {
    const TypeInfo* info = FindTypeInfo(parameter.type.name);
    return info && info->kind == TypeKind::kHandle && parameter.type.pointers == 0;
  };
  size_t tensors = parameters.size();
  const bool has_stream = tensors > 0 && is_stream(parameters.back());
  if (has_stream) list->AddNote(parameters.back().at, "launch needs no stream: everything runs in one");
  tensors -= has_stream;
  const size_t wanted = problem.arguments.size(), inputs = wanted - problem.outputs.size();
  if (tensors != wanted) {
    source.Fail(name_at, fmt::format("launch takes {} tensors and the problem {} {}{}", tensors,
                                     HasParamBlock(*problem.problem) ? "gives" : "has", wanted, advice));
  }
  std::vector<Value> arguments;
  for (size_t i = 0; i < wanted; ++i) {
    const bool input = i < inputs;
    const ConcreteTensor& tensor = problem.arguments[i];
    const Parameter& parameter = parameters[i];
    const Type type = interpreter->Resolve(parameter.type);
    if (!Holds(type, tensor.spec.dtype) || parameter.type.is_reference) {
      source.Fail(parameter.at,
                  fmt::format("parameter {} is {}, and `{}` holds {}{}", i + 1, parameter.type.text,
                              tensor.spec.name, DTypeName(tensor.spec.dtype), advice));
    }
    if (!input && parameter.type.is_const) {
      source.Fail(parameter.at, fmt::format("parameter {} is the output `{}` and must not be const{}", i + 1,
                                            tensor.spec.name, advice));
    }
    list->AddTensor(parameter.name.empty() ? tensor.spec.name : parameter.name, tensor.bytes, !input);
    arguments.push_back({type, DevicePointer{static_cast<int>(i), 0}});
  }
  if (has_stream) arguments.push_back({TypeNamed("cudaStream_t"), DevicePointer{}});
  return arguments;
}

}  // namespace kevin::launch
