#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cfloat>
#include <climits>
#include <cmath>

#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {
namespace {

// CUDA's and C's constants that launch functions mention.
std::map<std::string, Value> KnownConstants() {
  std::map<std::string, Value> known;
  const std::map<std::string, int64_t> kIntegers = {{"cudaSuccess", 0},
                                                    {"CUDA_SUCCESS", 0},
                                                    {"cudaMemcpyHostToHost", 0},
                                                    {"cudaMemcpyHostToDevice", 1},
                                                    {"cudaMemcpyDeviceToHost", 2},
                                                    {"cudaMemcpyDeviceToDevice", 3},
                                                    {"cudaMemcpyDefault", 4},
                                                    {"cudaLaunchAttributeCooperative", 2},
                                                    {"cudaLaunchAttributeClusterDimension", 4},
                                                    {"cudaLaunchAttributeProgrammaticStreamSerialization", 6},
                                                    {"INT_MAX", INT_MAX},
                                                    {"INT_MIN", INT_MIN},
                                                    {"INT32_MAX", INT_MAX},
                                                    {"warpSize", 32},
                                                    {"CU_TENSOR_MAP_SWIZZLE_NONE", 0},
                                                    {"CU_TENSOR_MAP_SWIZZLE_32B", 1},
                                                    {"CU_TENSOR_MAP_SWIZZLE_64B", 2},
                                                    {"CU_TENSOR_MAP_SWIZZLE_128B", 3},
                                                    {"CU_TENSOR_MAP_L2_PROMOTION_NONE", 0},
                                                    {"CU_TENSOR_MAP_L2_PROMOTION_L2_64B", 1},
                                                    {"CU_TENSOR_MAP_L2_PROMOTION_L2_128B", 2},
                                                    {"CU_TENSOR_MAP_L2_PROMOTION_L2_256B", 3},
                                                    {"CU_TENSOR_MAP_INTERLEAVE_NONE", 0},
                                                    {"CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE", 0},
                                                    {"CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA", 1}};
  for (const auto& [name, value] : kIntegers) known[name] = MakeInteger("int", value);
  for (const char* name : {"LONG_MAX", "LLONG_MAX", "INT64_MAX"})
    known[name] = MakeInteger("long", INT64_MAX);
  known["UINT_MAX"] = known["UINT32_MAX"] = MakeInteger("unsigned", UINT_MAX);
  known["SIZE_MAX"] = known["UINT64_MAX"] = known["ULONG_MAX"] = MakeInteger("size_t", UINT64_MAX);
  known["INFINITY"] = known["HUGE_VALF"] = MakeFloating("float", HUGE_VAL);
  known["NAN"] = MakeFloating("float", NAN);
  known["FLT_MAX"] = MakeFloating("float", FLT_MAX);
  known["FLT_MIN"] = MakeFloating("float", FLT_MIN);
  known["FLT_EPSILON"] = MakeFloating("float", FLT_EPSILON);
  known["DBL_MAX"] = MakeFloating("double", DBL_MAX);
  known["M_PI"] = MakeFloating("double", M_PI);
  known["M_SQRT1_2"] = MakeFloating("double", M_SQRT1_2);
  known["zeroed"] = MakeBool(true);
  for (const char* name : {"cudaStreamPerThread", "cudaStreamLegacy"}) {
    known[name] = {TypeNamed("cudaStream_t"), DevicePointer{}};
  }
  return known;
}

std::string WithoutLeadingColons(const std::string& name) {
  return name.starts_with("::") ? name.substr(2) : name;
}

}  // namespace

Interpreter::Interpreter(const SourceText& source, const Outline& outline, const Symbols& symbols, bool ptx,
                         const LaunchFunctionLimits& limits, ListBuilder* list)
    : source_(source), outline_(outline), ptx_(ptx), limits_(limits), list_(list) {
  static const std::map<std::string, Value> kKnown = KnownConstants();
  for (const auto& [name, value] : kKnown) symbols_[name] = NewCell(value, true);
  for (const auto& [name, value] : symbols) symbols_[name] = NewCell(MakeInteger("long", value), true);
  for (const Function& function : outline.functions) {
    if (function.defined || function.global) functions_[function.scope + function.name].push_back(&function);
  }
  for (const Alias& alias : outline.aliases) aliases_[alias.scope + alias.name] = &alias;
  DeclareConstants();
}

void Interpreter::DeclareConstants() {
  constant_states_.resize(outline_.constants.size());
  constant_syntax_.resize(outline_.constants.size());
  for (size_t c = 0; c < outline_.constants.size(); ++c) {
    const Constants& constants = outline_.constants[c];
    if (constants.is_enum && !constants.enum_name.empty()) {
      TypeInfo info = *FindTypeInfo("int");
      info.name = constants.scope + constants.enum_name;
      info.is_enum = true;
      const TypeInfo& kept = enum_types_.emplace_back(std::move(info));
      enums_[kept.name] = &kept;
    }
    for (size_t i = constants.range.begin; i < constants.range.end; ++i) {
      const Token& token = outline_.tokens[i];
      const size_t close = outline_.partner[i];
      if (token.IsName()) constant_names_[token.text].push_back(c);
      if (close != std::string::npos && close > i) i = close;
      // What follows a `=` uses names and declares none.
      if (!token.Is("=")) continue;
      while (i + 1 < constants.range.end && !outline_.tokens[i + 1].Is(",") &&
             !outline_.tokens[i + 1].Is(";")) {
        ++i;
        const size_t partner = outline_.partner[i];
        if (partner != std::string::npos && partner > i) i = partner;
      }
    }
  }
}

void Interpreter::Step(size_t at) {
  if (++steps_ > limits_.steps) {
    source_.Fail(at,
                 fmt::format("launch takes more than {} steps; write loops that end, and leave the work to "
                             "kernels",
                             limits_.steps));
  }
}

Cell* Interpreter::NewCell(Value value, bool is_const) {
  cells_.push_back({std::move(value), is_const});
  return &cells_.back();
}

std::vector<std::string> Interpreter::Qualified(const std::string& written) const {
  if (written.starts_with("::")) return {WithoutLeadingColons(written)};
  std::vector<std::string> names;
  std::string scope = frame_ ? frame_->scope : "";
  while (!scope.empty()) {
    names.push_back(scope + written);
    const size_t colon = scope.size() > 2 ? scope.rfind("::", scope.size() - 3) : std::string::npos;
    scope = colon == std::string::npos ? "" : scope.substr(0, colon + 2);
  }
  names.push_back(written);
  for (const std::string& used : outline_.used_namespaces) names.push_back(used + written);
  return names;
}

Cell* Interpreter::FindVariable(const std::string& name) {
  for (auto block = frame_->blocks.rbegin(); block != frame_->blocks.rend(); ++block) {
    if (const auto found = block->find(name); found != block->end()) return found->second;
  }
  if (Cell* constant = FindConstant(name)) return constant;
  const auto symbol = symbols_.find(WithoutLeadingColons(name));
  return symbol == symbols_.end() ? nullptr : symbol->second;
}

Cell* Interpreter::FindConstant(const std::string& name) {
  const size_t colon = name.rfind("::");
  const auto declared = constant_names_.find(colon == std::string::npos ? name : name.substr(colon + 2));
  if (declared == constant_names_.end()) return nullptr;
  for (const std::string& qualified : Qualified(name)) {
    const auto known = constants_.find(qualified);
    if (known != constants_.end()) return known->second;
    std::vector<size_t>& open = declared->second;
    for (size_t i = 0; i < open.size(); ++i) {
      const size_t index = open[i];
      if (!qualified.starts_with(outline_.constants[index].scope)) continue;
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
      if (constant_states_[index] == 0) EvaluateConstants(index);
      const auto found = constants_.find(qualified);
      if (found != constants_.end()) return found->second;
      i = static_cast<size_t>(-1);  // evaluation may have changed the list
    }
  }
  return nullptr;
}

void Interpreter::EvaluateConstants(size_t index) {
  const Constants& constants = outline_.constants[index];
  constant_states_[index] = 1;
  Frame* const caller = frame_;
  Frame callee;
  callee.scope = constants.scope;
  callee.blocks.emplace_back();
  frame_ = &callee;
  struct Back {
    Interpreter* interpreter;
    Frame* caller;
    ~Back() { interpreter->frame_ = caller; }
  } const back{this, caller};
  const Depth depth(this, outline_.tokens[constants.range.begin].begin);
  if (constants.is_enum) {
    EvaluateEnum(constants);
  } else {
    constant_syntax_[index] = Parser::ReadConstants(source_, outline_, constants.range);
    Execute(*constant_syntax_[index]);
    for (const auto& [name, cell] : callee.blocks.back()) constants_[constants.scope + name] = cell;
  }
  constant_states_[index] = 2;
}

void Interpreter::EvaluateEnum(const Constants& constants) {
  const auto info = enums_.find(constants.scope + constants.enum_name);
  const Type type = info == enums_.end() ? TypeNamed("int") : Type{info->second, 0};
  Integer next = 0;
  for (const Parser::Enumerator& enumerator : Parser::ReadEnumerators(source_, outline_, constants.range)) {
    if (enumerator.value) {
      next = WholeNumber(source_, enumerator.at, Evaluate(*enumerator.value), "an enumerator");
    }
    Cell* cell = NewCell({type, next}, true);
    frame_->blocks.back()[enumerator.name] = cell;
    if (!constants.scoped) constants_[constants.scope + enumerator.name] = cell;
    if (!constants.enum_name.empty()) {
      constants_[constants.scope + constants.enum_name + "::" + enumerator.name] = cell;
    }
    ++next;
  }
}

const std::vector<const Function*>& Interpreter::FindFunctions(const std::string& name) const {
  static const std::vector<const Function*> kNone;
  for (const std::string& qualified : Qualified(name)) {
    const auto found = functions_.find(qualified);
    if (found != functions_.end()) return found->second;
  }
  return kNone;
}

const Alias* Interpreter::FindAlias(const std::string& name) const {
  for (const std::string& qualified : Qualified(name)) {
    const auto found = aliases_.find(qualified);
    if (found != aliases_.end()) return found->second;
  }
  return nullptr;
}

const FunctionSyntax& Interpreter::Syntax(const Function& function) {
  std::unique_ptr<FunctionSyntax>& syntax = syntax_[&function];
  if (!syntax) syntax = std::make_unique<FunctionSyntax>(Parser::ReadFunction(source_, outline_, function));
  return *syntax;
}

Type Interpreter::Resolve(const TypeSyntax& syntax) {
  const Depth depth(this, syntax.at);
  if (syntax.name == "auto" || syntax.name.empty()) return TypeNamed("auto");
  Type type;
  const Alias* alias = nullptr;
  if (frame_ && frame_->bindings.types.contains(syntax.name)) {
    type = frame_->bindings.types.at(syntax.name);
  } else if ((alias = FindAlias(syntax.name))) {
    type = Resolve(Parser::ReadType(source_, outline_, alias->type));
  } else if (const TypeInfo* info = FindTypeInfo(syntax.name); info && !syntax.has_arguments) {
    type = {info, 0};
  } else {
    for (const std::string& qualified : Qualified(syntax.name)) {
      if (const auto found = enums_.find(qualified); found != enums_.end()) type = {found->second, 0};
    }
  }
  if (!type.info) {
    const std::string advice = AdviceFor(PlainName(syntax.name));
    source_.Fail(syntax.at, fmt::format("the type `{}` is not known in launch; {}", syntax.name,
                                        advice.empty() ? "write a number, a pointer or dim3" : advice));
  }
  type.pointers += syntax.pointers;
  return type;
}

std::string Interpreter::TypeArgumentText(const TypeSyntax& type) {
  const auto bound = frame_->bindings.type_texts.find(type.name);
  if (bound == frame_->bindings.type_texts.end() && !type.has_arguments) return type.text;
  std::string text = bound == frame_->bindings.type_texts.end() ? type.name : bound->second;
  if (type.has_arguments) {
    std::vector<std::string> inner;
    for (const TemplateArgument& part : type.arguments) inner.push_back(TemplateArgumentText(part));
    text += fmt::format("<{}>", fmt::join(inner, ", "));
  }
  return (type.is_const ? "const " : "") + text + std::string(static_cast<size_t>(type.pointers), '*');
}

// Values become numbers, since launch's variables do not exist on the device; other names stay as written.
std::string Interpreter::TemplateArgumentText(const TemplateArgument& argument) {
  if (argument.type) return TypeArgumentText(*argument.type);
  const Expr& expr = *argument.value;
  if (expr.kind == ExprKind::kName && !FindVariable(expr.text)) {
    const auto bound = frame_->bindings.type_texts.find(expr.text);
    if (bound != frame_->bindings.type_texts.end() && !expr.has_template_arguments) return bound->second;
    if (!expr.has_template_arguments) return expr.text;
    std::vector<std::string> inner;
    for (const TemplateArgument& part : expr.template_arguments) inner.push_back(TemplateArgumentText(part));
    return fmt::format("{}<{}>", expr.text, fmt::join(inner, ", "));
  }
  const Value value = Evaluate(expr);
  if (!value.type.IsInteger()) {
    source_.Fail(argument.at,
                 fmt::format("a template argument is {}; write an integer, a bool or a type", KindOf(value)));
  }
  if (value.type.info->is_enum) return fmt::format("({}){}", value.type.info->name, ToText(IntegerOf(value)));
  if (value.type.info->kind == TypeKind::kBool) return IntegerOf(value) ? "true" : "false";
  return ToText(IntegerOf(value));
}

Value Interpreter::KernelNamed(const Expr& expr, const Function* kernel, const std::string& name) {
  if (ptx_ && expr.has_template_arguments) {
    source_.Fail(expr.at, fmt::format("kernels in PTX have no template arguments; write `{}`", name));
  }
  auto reference = std::make_shared<KernelReference>();
  reference->name = name;
  reference->function = kernel;
  reference->has_arguments = expr.has_template_arguments;
  const FunctionSyntax* syntax = kernel && kernel->is_template ? &Syntax(*kernel) : nullptr;
  if (kernel && !syntax && expr.has_template_arguments) {
    source_.Fail(expr.at,
                 fmt::format("the kernel `{}` is not a template; remove the template arguments", name));
  }
  for (size_t i = 0; i < expr.template_arguments.size(); ++i) {
    const TemplateArgument& argument = expr.template_arguments[i];
    reference->arguments.push_back(TemplateArgumentText(argument));
    if (!syntax || i >= syntax->template_parameters.size()) continue;
    const TemplateParameter& parameter = syntax->template_parameters[i];
    if (!parameter.is_type || !argument.type) continue;
    const TypeSyntax& type = *argument.type;
    const bool known = frame_->bindings.types.contains(type.name) || FindTypeInfo(type.name);
    if (known && !type.has_arguments) reference->types[parameter.name] = Resolve(type);
  }
  return MakeOpaque<std::shared_ptr<const KernelReference>>(std::move(reference));
}

std::string Interpreter::KernelList() const {
  std::vector<std::string> names;
  for (const Function& function : outline_.functions) {
    if (function.global && names.size() < 8) names.push_back("`" + function.scope + function.name + "`");
  }
  if (names.empty()) return "; the text has no __global__ kernel";
  return fmt::format("; the text has the kernel{} {}", names.size() == 1 ? "" : "s", fmt::join(names, ", "));
}

}  // namespace kevin::launch
