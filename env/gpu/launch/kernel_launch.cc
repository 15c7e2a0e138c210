#include <fmt/format.h>
#include <fmt/ranges.h>

#include "env/gpu/launch/interpreter_scopes.h"

namespace kevin::launch {

const KernelReference& Interpreter::RequireKernel(size_t at, const Value& value) {
  const auto* kernel = std::get_if<std::shared_ptr<const KernelReference>>(&value.data);
  if (!kernel)
    source_.Fail(at, fmt::format("{} is no kernel; write the name of a __global__ function", KindOf(value)));
  return **kernel;
}

Extents Interpreter::ExtentsOf(size_t at, const Value& value, const char* what) {
  const bool suits = value.type.IsNumber() || std::holds_alternative<Extents>(value.data) ||
                     std::holds_alternative<std::shared_ptr<const ListValue>>(value.data);
  if (!suits) source_.Fail(at, fmt::format("the {} is {}; write an integer or a dim3", what, KindOf(value)));
  return std::get<Extents>(ConvertValue(source_, at, value, TypeNamed("dim3"), false).data);
}

Value Interpreter::EvaluateLaunch(const Expr& expr) {
  const Expr& callee = *expr.children[0];
  if (callee.kind == ExprKind::kName && !FindVariable(callee.text)) {
    const auto functions = FindFunctions(callee.text);
    if (!functions.empty() && !functions.front()->global) {
      source_.Fail(callee.at,
                   fmt::format("`{}` is not __global__; write __global__ before it, or call it without "
                               "<<<...>>>",
                               callee.text));
    }
  }
  const Value kernel = Evaluate(callee);
  RequireKernel(callee.at, kernel);
  if (expr.configuration < 2)
    source_.Fail(expr.at, "a launch needs a grid and a block; write <<<grid, block>>>");
  LaunchConfiguration configuration;
  configuration.grid = ExtentsOf(expr.children[1]->at, Evaluate(*expr.children[1]), "grid");
  configuration.block = ExtentsOf(expr.children[2]->at, Evaluate(*expr.children[2]), "block");
  for (size_t i = 3; i <= expr.configuration; ++i) {
    const size_t at = expr.children[i]->at;
    const Value item = Evaluate(*expr.children[i]);
    if (const auto* extra = std::get_if<LaunchExtra>(&item.data)) {
      configuration.extras.push_back(*extra);
    } else if (i == 3) {
      configuration.shared_bytes = WholeNumber(source_, at, item, "the dynamic shared memory");
    } else if (i == 4 && (item.type.Is(TypeKind::kHandle) || IsNull(item) ||
                          (item.type.IsInteger() && IntegerOf(item) == 0))) {
      list_->AddNote(at, "the stream is ignored: everything runs in one");
    } else {
      source_.Fail(at, "this is no launch option; write cluster(x, y, z), cooperative() or programmatic()");
    }
  }
  std::vector<size_t> places;
  for (size_t i = expr.configuration + 1; i < expr.children.size(); ++i)
    places.push_back(expr.children[i]->at);
  Launch(callee.at, RequireKernel(callee.at, kernel), configuration,
         EvaluateArguments(expr, expr.configuration + 1), places);
  return MakeVoid();
}

void Interpreter::Launch(size_t at, KernelReference kernel, const LaunchConfiguration& configuration,
                         const std::vector<Value>& arguments, const std::vector<size_t>& places) {
  DeduceKernel(at, arguments, &kernel);
  CheckArguments(at, kernel, arguments, places);
  std::vector<LaunchArgument> converted;
  for (size_t i = 0; i < arguments.size(); ++i) converted.push_back(ArgumentOf(places[i], arguments[i]));
  std::string name = kernel.name;
  const bool is_template = kernel.has_arguments || (kernel.function && kernel.function->is_template);
  if (is_template) name += fmt::format("<{}>", fmt::join(kernel.arguments, ", "));
  list_->AddLaunch(at, name, configuration, std::move(converted));
}

LaunchArgument Interpreter::ArgumentOf(size_t at, const Value& value) {
  if (value.type.IsPointer() && std::holds_alternative<DevicePointer>(value.data))
    return list_->Address(at, value);
  if (value.type.Is(TypeKind::kBool)) return IntegerOf(value) != 0;
  if (value.type.IsInteger()) return WholeNumber(source_, at, value, "the argument");
  if (value.type.Is(TypeKind::kFloating)) return DoubleOf(value);
  if (const auto* map = std::get_if<std::shared_ptr<const TensorMap>>(&value.data)) return **map;
  source_.Fail(at,
               fmt::format("a kernel cannot take {}; pass numbers, tensors and workspaces", KindOf(value)));
}

// Type parameters that were not written, from arguments that are `T` or `T*`.
void Interpreter::DeduceKernel(size_t at, const std::vector<Value>& arguments, KernelReference* kernel) {
  if (!kernel->function || !kernel->function->is_template) return;
  const FunctionSyntax& syntax = Syntax(*kernel->function);
  const auto& wanted_parameters = syntax.template_parameters;
  const bool pack = !wanted_parameters.empty() && wanted_parameters.back().is_pack;
  if (kernel->arguments.size() > wanted_parameters.size() && !pack) {
    source_.Fail(at, fmt::format("`{}` has {} template parameters, not {}; leave out the rest", kernel->name,
                                 syntax.template_parameters.size(), kernel->arguments.size()));
  }
  for (size_t t = kernel->arguments.size(); t < syntax.template_parameters.size(); ++t) {
    const TemplateParameter& wanted = syntax.template_parameters[t];
    if (wanted.is_pack) return DeducePack(at, arguments, syntax, kernel);
    for (size_t i = 0; i < arguments.size() && i < syntax.parameters.size() && wanted.is_type; ++i) {
      const TypeSyntax& type = syntax.parameters[i].type;
      const Type& given = arguments[i].type;
      const bool fits = type.name == wanted.name && given.pointers >= type.pointers &&
                        given.info->kind != TypeKind::kAuto && !IsNull(arguments[i]);
      if (fits) kernel->types.emplace(wanted.name, Type{given.info, given.pointers - type.pointers});
    }
    const auto deduced = kernel->types.find(wanted.name);
    if (deduced != kernel->types.end() && wanted.is_type) {
      kernel->arguments.push_back(TypeText(deduced->second));
    } else if (wanted.otherwise) {
      return;  // the device compiler knows the defaults
    } else {
      source_.Fail(at, fmt::format("the template parameter `{}` of `{}` has no value; write {}<...><<<grid, "
                                   "block>>>(...)",
                                   wanted.name, kernel->name, kernel->name));
    }
  }
}

// `template <typename... T> __global__ void k(T... values)`
void Interpreter::DeducePack(size_t at, const std::vector<Value>& arguments, const FunctionSyntax& syntax,
                             KernelReference* kernel) {
  for (size_t i = syntax.parameters.empty() ? arguments.size() : syntax.parameters.size() - 1;
       i < arguments.size(); ++i) {
    if (arguments[i].type.info->kind == TypeKind::kAuto) {
      source_.Fail(at, fmt::format("a kernel cannot take {}; pass numbers, tensors and workspaces",
                                   KindOf(arguments[i])));
    }
    kernel->arguments.push_back(TypeText(arguments[i].type));
  }
}

void Interpreter::CheckArguments(size_t at, const KernelReference& kernel,
                                 const std::vector<Value>& arguments, const std::vector<size_t>& places) {
  if (!kernel.function || ptx_) return;
  const std::vector<Parameter>& parameters = Syntax(*kernel.function).parameters;
  if (!parameters.empty() && parameters.back().is_pack) return;
  if (arguments.size() != parameters.size()) {
    source_.Fail(at, fmt::format("kernel `{}` takes {} arguments and gets {}; pass one for each parameter",
                                 kernel.name, parameters.size(), arguments.size()));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const TypeSyntax& syntax = parameters[i].type;
    const auto bound = kernel.types.find(syntax.name);
    const TypeInfo* info = bound != kernel.types.end() ? bound->second.info : FindTypeInfo(syntax.name);
    if (!info || syntax.has_arguments || info->kind == TypeKind::kAuto) continue;
    const Type wanted = {info, syntax.pointers + (bound != kernel.types.end() ? bound->second.pointers : 0)};
    const Value& given = arguments[i];
    if (wanted.Is(TypeKind::kElement) && info->name == "__nv_bfloat16" && kernel.function->extern_c) {
      source_.Fail(places[i],
                   fmt::format("`{}` is extern \"C\" and takes a __nv_bfloat16 by value; let it take a "
                               "float",
                               kernel.name));
    }
    const bool both_pointers = wanted.IsPointer() && given.type.IsPointer();
    const bool same = !both_pointers || IsNull(given) || wanted == given.type ||
                      (wanted.pointers == 1 && (info->kind == TypeKind::kVoid));
    if (same && wanted.IsPointer() == (given.type.IsPointer() || IsNull(given))) continue;
    const std::string advice = both_pointers ? fmt::format("write reinterpret_cast<{}>(...)", syntax.text)
                                             : "pass what the kernel declares";
    source_.Fail(places[i], fmt::format("argument {} of `{}` is {}, and the kernel takes {}; {}", i + 1,
                                        kernel.name, KindOf(given), syntax.text, advice));
  }
}

}  // namespace kevin::launch
