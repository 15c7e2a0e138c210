#include <fmt/format.h>

#include "env/gpu/launch/interpreter_scopes.h"

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
    source_.Fail(syntax.body->at, "a `break` or `continue` stands outside a loop; take it out");
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
    source_.Fail(call.at,
                 fmt::format("`{}` is for the device alone; write `__host__ __device__` before it", name));
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
    source_.Fail(at, fmt::format("calls go deeper than {}; write a loop instead of recursion", kMaxCalls));
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

}  // namespace kevin::launch
