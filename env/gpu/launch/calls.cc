#include <fmt/format.h>
#include <fmt/ranges.h>

#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {

constexpr size_t kMaxOverloads = 64;

void Interpreter::Run(const Function& launch, std::vector<Value> arguments) {
  Frame frame;
  frame.scope = launch.scope;
  frame.blocks.emplace_back();
  const FunctionSyntax& syntax = Syntax(launch);
  for (size_t i = 0; i < syntax.parameters.size(); ++i) {
    frame.blocks.back()[syntax.parameters[i].name] = NewCell(std::move(arguments[i]), false);
  }
  frame_ = &frame;
  const BlockScope scope(frame_);
  const Flow flow = ExecuteBlock(syntax.body->body, 0);
  if (flow == Flow::kBreak || flow == Flow::kContinue) {
    source_.Fail(syntax.body->at, "a `break` or `continue` is outside a loop; remove it");
  }
  frame_ = nullptr;
}

Value Interpreter::EvaluateCall(const Expr& expr) {
  const Expr& callee = *expr.children[0];
  if (callee.kind != ExprKind::kName || FindVariable(callee.text)) {
    const Value value = Evaluate(callee);
    if (const auto* closure = std::get_if<std::shared_ptr<const Closure>>(&value.data)) {
      const std::shared_ptr<const Closure> kept = *closure;
      return CallClosure(expr, *kept);
    }
    const bool kernel = std::holds_alternative<std::shared_ptr<const KernelReference>>(value.data);
    source_.Fail(expr.at, fmt::format("{} cannot be called; write {}", KindOf(value),
                                      kernel ? "kernel<<<grid, block>>>(...)" : "a function's name"));
  }
  const std::vector<const Function*> functions = FindFunctions(callee.text);
  if (!functions.empty()) return CallFunction(expr, functions);
  const std::string plain = PlainName(callee.text);
  if (const Builtin builtin = FindBuiltin(plain)) {
    const bool lazy = builtin == &Interpreter::Ignored || builtin == &Interpreter::ConstantCall ||
                      builtin == &Interpreter::MemoryToSymbol || builtin == &Interpreter::Limits;
    return (this->*builtin)(expr, lazy ? std::vector<Value>() : EvaluateArguments(expr, 1));
  }
  const std::string advice = AdviceFor(plain);
  source_.Fail(
      expr.at,
      fmt::format("`{}` is not {} launch; {}", callee.text, advice.empty() ? "known in" : "possible in",
                  advice.empty() ? "define the function in the text, or write the arithmetic out" : advice));
}

Value Interpreter::CallFunction(const Expr& call, const std::vector<const Function*>& candidates) {
  const size_t given = call.children.size() - 1;
  const std::string& name = call.children[0]->text;
  if (candidates.size() > kMaxOverloads) {
    source_.Fail(call.at, fmt::format("`{}` has more than {} overloads; rename some", name, kMaxOverloads));
  }
  const Function* chosen = nullptr;
  for (const Function* candidate : candidates) {
    if (candidate->global) {
      source_.Fail(call.at, fmt::format("`{}` is a kernel; write {}<<<grid, block>>>(...)", name, name));
    }
    if (!candidate->OnHost()) continue;
    const auto& parameters = Syntax(*candidate).parameters;
    size_t needed = 0;
    for (const Parameter& parameter : parameters) needed += parameter.otherwise == nullptr;
    if (given < needed || given > parameters.size()) continue;
    if (chosen) source_.Fail(call.at, fmt::format("`{}` has several overloads that fit; rename one", name));
    chosen = candidate;
  }
  if (!chosen && !candidates.front()->OnHost()) {
    source_.Fail(call.at, fmt::format("`{}` is device-only; write `__host__ __device__` before it", name));
  }
  if (!chosen) {
    source_.Fail(call.at, fmt::format("`{}` takes {} arguments, not {}; pass as many as it declares", name,
                                      Syntax(*candidates.front()).parameters.size(), given));
  }
  const FunctionSyntax& syntax = Syntax(*chosen);
  Frame callee;
  callee.scope = chosen->scope;
  const std::vector<CallArgument> arguments = CallArguments(call);
  BindTemplate(*call.children[0], syntax, arguments, &callee);
  return RunBody(call.at, syntax.parameters, *syntax.body, std::move(callee), arguments);
}

Value Interpreter::CallClosure(const Expr& call, const Closure& closure) {
  Frame callee;
  callee.scope = closure.scope;
  callee.bindings = closure.bindings;
  callee.blocks.push_back(closure.captured);
  if (call.children.size() - 1 != closure.lambda->parameters.size()) {
    source_.Fail(call.at, fmt::format("the lambda takes {} arguments, not {}; pass as many as it declares",
                                      closure.lambda->parameters.size(), call.children.size() - 1));
  }
  return RunBody(call.at, closure.lambda->parameters, *closure.lambda->body, std::move(callee),
                 CallArguments(call));
}

std::vector<Interpreter::CallArgument> Interpreter::CallArguments(const Expr& call) {
  std::vector<CallArgument> arguments;
  for (size_t i = 1; i < call.children.size(); ++i) {
    const Expr& expr = *call.children[i];
    const auto place = FindPlace(expr);
    Cell* const cell = place && place->extent < 0 ? place->cell : nullptr;
    // A place is read, not evaluated again: that could have effects.
    arguments.push_back({place ? Read(*place) : Evaluate(expr), cell, expr.at});
  }
  return arguments;
}

Value Interpreter::RunBody(size_t at, const std::vector<Parameter>& parameters, const Stmt& body,
                           Frame callee, const std::vector<CallArgument>& arguments) {
  if (calls_ >= kMaxCalls) {
    source_.Fail(
        at, fmt::format("calls are nested deeper than {}; write a loop instead of recursion", kMaxCalls));
  }
  callee.blocks.emplace_back();
  struct Back {
    Interpreter* interpreter;
    Frame* caller;
    ~Back() {
      interpreter->frame_ = caller;
      --interpreter->calls_;
    }
  } const back{this, frame_};
  ++calls_;
  frame_ = &callee;
  for (size_t i = 0; i < parameters.size(); ++i) {
    BindParameter(parameters[i], i < arguments.size() ? &arguments[i] : nullptr);
  }
  const BlockScope scope(frame_);
  ExecuteBlock(body.body, 0);
  return callee.result;
}

void Interpreter::BindParameter(const Parameter& parameter, const CallArgument* argument) {
  std::map<std::string, Cell*>& names = frame_->blocks.back();
  if (argument && argument->cell && parameter.type.is_reference) {
    names[parameter.name] = argument->cell;
    return;
  }
  const Value value = argument ? argument->value : Evaluate(*parameter.otherwise);
  const bool array = std::holds_alternative<ArrayPointer>(value.data);
  const size_t at = argument ? argument->at : parameter.at;
  names[parameter.name] = NewCell(array ? value : Converted(at, value, Resolve(parameter.type)), false);
}

void Interpreter::BindTemplate(const Expr& name, const FunctionSyntax& syntax,
                               const std::vector<CallArgument>& arguments, Frame* callee) {
  const auto& parameters = syntax.template_parameters;
  callee->blocks.emplace_back();
  if (name.template_arguments.size() > parameters.size()) {
    source_.Fail(name.at, fmt::format("`{}` has {} template parameters; leave out the rest", name.text,
                                      parameters.size()));
  }
  for (size_t i = 0; i < name.template_arguments.size(); ++i) {
    const TemplateArgument& argument = name.template_arguments[i];
    const TemplateParameter& parameter = parameters[i];
    if (parameter.is_type) {
      callee->bindings.type_texts[parameter.name] = TemplateArgumentText(argument);
      if (argument.type) callee->bindings.types[parameter.name] = Resolve(*argument.type);
    } else {
      if (!argument.value) {
        source_.Fail(argument.at,
                     fmt::format("the template parameter `{}` is a value; write a number", parameter.name));
      }
      callee->blocks.back()[parameter.name] = NewCell(Evaluate(*argument.value), true);
    }
  }
  BindRest(name, syntax, arguments, callee);
}

// From the arguments where a parameter is `T`, `T*` and so on; else from the default.
void Interpreter::BindRest(const Expr& name, const FunctionSyntax& syntax,
                           const std::vector<CallArgument>& arguments, Frame* callee) {
  Bindings& bindings = callee->bindings;
  for (size_t t = name.template_arguments.size(); t < syntax.template_parameters.size(); ++t) {
    const TemplateParameter& wanted = syntax.template_parameters[t];
    for (size_t i = 0; i < arguments.size() && i < syntax.parameters.size() && wanted.is_type; ++i) {
      const TypeSyntax& type = syntax.parameters[i].type;
      const Type& given = arguments[i].value.type;
      if (type.name != wanted.name || given.pointers < type.pointers || given.info->kind == TypeKind::kAuto)
        continue;
      const Type deduced = {given.info, given.pointers - type.pointers};
      if (bindings.types.emplace(wanted.name, deduced).second)
        bindings.type_texts[wanted.name] = TypeText(deduced);
    }
    if (bindings.types.contains(wanted.name)) continue;
    if (!wanted.otherwise) {
      source_.Fail(name.at, fmt::format("the template parameter `{}` cannot be deduced; write {}<...>(...)",
                                        wanted.name, name.text));
    }
    if (wanted.is_type && wanted.otherwise->type) {
      bindings.types[wanted.name] = Resolve(*wanted.otherwise->type);
      bindings.type_texts[wanted.name] = wanted.otherwise->text;
    } else if (wanted.otherwise->value) {
      callee->blocks.back()[wanted.name] = NewCell(Evaluate(*wanted.otherwise->value), true);
    }
  }
}

const KernelReference& Interpreter::RequireKernel(size_t at, const Value& value) {
  const auto* kernel = std::get_if<std::shared_ptr<const KernelReference>>(&value.data);
  if (!kernel)
    source_.Fail(at,
                 fmt::format("{} is not a kernel; write the name of a __global__ function", KindOf(value)));
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
      list_->AddNote(at, "the stream is ignored: all work runs in one stream");
    } else {
      source_.Fail(at,
                   "this is not a launch option; write cluster(x, y, z), cooperative() or programmatic()");
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
