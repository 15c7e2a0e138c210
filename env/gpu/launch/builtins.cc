#include <fmt/format.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {

// Without std:: and the like, and without a numeric_limits' own argument.
std::string Interpreter::PlainName(const std::string& name) {
  if (name.find("numeric_limits<") != std::string::npos) return "numeric_limits";
  for (const char* prefix : {"::std::", "std::", "cuda::std::", "cuda::", "::"}) {
    if (name.starts_with(prefix) && name.find("::", std::string(prefix).size()) == std::string::npos) {
      return name.substr(std::string(prefix).size());
    }
  }
  return name;
}

Interpreter::Builtin Interpreter::FindBuiltin(const std::string& name) const {
  using I = Interpreter;
  static const std::map<std::string, Builtin> kBuiltins = [] {
    std::map<std::string, Builtin> table = {{"workspace", &I::Workspace},
                                            {"zeroed_workspace", &I::Workspace},
                                            {"round_up", &I::RoundUp},
                                            {"next_power_of_2", &I::PowerOfTwo},
                                            {"numeric_limits", &I::Limits},
                                            {"assert", &I::Assert},
                                            {"static_assert", &I::Assert},
                                            {"TORCH_CHECK", &I::Assert},
                                            {"cluster", &I::ClusterOption},
                                            {"cooperative", &I::LaunchOption},
                                            {"programmatic", &I::LaunchOption},
                                            {"cudaMemset", &I::MemorySetCall},
                                            {"cudaMemsetAsync", &I::MemorySetCall},
                                            {"cudaMemcpy", &I::MemoryCopyCall},
                                            {"cudaMemcpyAsync", &I::MemoryCopyCall},
                                            {"constant", &I::ConstantCall},
                                            {"cudaMemcpyToSymbol", &I::MemoryToSymbol},
                                            {"cudaMemcpyToSymbolAsync", &I::MemoryToSymbol},
                                            {"cudaLaunchKernelEx", &I::LaunchKernelEx},
                                            {"cudaLaunchKernel", &I::LaunchKernelCall},
                                            {"cudaLaunchCooperativeKernel", &I::LaunchKernelCall},
                                            {"tensor_map", &I::TensorMapCall}};
    for (const char* same :
         {"move", "forward", "__float2half", "__float2half_rn", "__float2bfloat16", "__float2bfloat16_rn"}) {
      table[same] = &I::Same;
    }
    for (const char* divide : {"ceil_div", "cdiv", "div_up"}) table[divide] = &I::CeilDiv;
    for (const char* extreme : {"min", "max", "fminf", "fmaxf", "fmin", "fmax"}) table[extreme] = &I::MinMax;
    for (const char* absolute : {"abs", "labs", "llabs", "fabs", "fabsf"}) table[absolute] = &I::Absolute;
    for (const char* floating : {"sqrt", "rsqrt", "exp", "exp2", "log", "log2", "ceil", "floor", "round",
                                 "pow", "cos", "sin", "tanh"}) {
      table[floating] = table[std::string(floating) + "f"] = &I::FloatingFunction;
    }
    for (const char* ignored :
         {"cudaFuncSetAttribute", "cudaFuncSetCacheConfig", "cudaFuncSetSharedMemConfig", "cudaGetLastError",
          "cudaPeekAtLastError", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaDeviceSetCacheConfig",
          "cudaDeviceSetSharedMemConfig", "cudaSetDevice"}) {
      table[ignored] = &I::Ignored;
    }
    return table;
  }();
  const auto found = kBuiltins.find(name);
  return found == kBuiltins.end() ? nullptr : found->second;
}

void Interpreter::Count(const Expr& call, const std::vector<Value>& arguments, size_t low,
                        size_t high) const {
  if (arguments.size() >= low && arguments.size() <= high) return;
  const std::string range = low == high ? std::to_string(low) : fmt::format("{} to {}", low, high);
  source_.Fail(call.at, fmt::format("`{}` takes {} argument{}, not {}; pass that number of arguments",
                                    call.children[0]->text, range, low == high && low == 1 ? "" : "s",
                                    arguments.size()));
}

Value Interpreter::Workspace(const Expr& call, const std::vector<Value>& arguments) {
  const Expr& name = *call.children[0];
  Count(call, arguments, 1, 2);
  if (name.template_arguments.size() != 1 || !name.template_arguments[0].type) {
    source_.Fail(call.at, "a workspace needs an element type; write workspace<float>(count)");
  }
  const bool zeroed = PlainName(name.text) == "zeroed_workspace" ||
                      (arguments.size() == 2 && TruthOf(source_, call.children[2]->at, arguments[1]));
  const int64_t count = WholeNumber(source_, call.children[1]->at, arguments[0], "the workspace's count");
  return list_->AddWorkspace(call.at, Resolve(*name.template_arguments[0].type), count, zeroed);
}

Value Interpreter::CeilDiv(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 2, 2);
  const Value quotient = BinaryOperation(source_, call.at, "/", arguments[0], arguments[1]);
  if (!quotient.type.IsInteger()) source_.Fail(call.at, "`ceil_div` divides integers; write a cast to long");
  const Value rest = BinaryOperation(source_, call.at, "%", arguments[0], arguments[1]);
  const bool up = IntegerOf(rest) > 0 && IntegerOf(arguments[1]) > 0;
  return up ? BinaryOperation(source_, call.at, "+", quotient, MakeInteger("int", 1)) : quotient;
}

Value Interpreter::RoundUp(const Expr& call, const std::vector<Value>& arguments) {
  return BinaryOperation(source_, call.at, "*", CeilDiv(call, arguments), arguments[1]);
}

Value Interpreter::PowerOfTwo(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 1, 1);
  const int64_t value = WholeNumber(source_, call.at, arguments[0], "the argument");
  Integer power = 1;
  while (power < value) power *= 2;
  const Type type =
      arguments[0].type.IsInteger() ? CommonType(arguments[0].type, arguments[0].type) : TypeNamed("long");
  return ConvertValue(source_, call.at, MakeInteger("unsigned long long", power), type, false);
}

Value Interpreter::MinMax(const Expr& call, const std::vector<Value>& arguments) {
  std::vector<Value> values = arguments;
  if (arguments.size() == 1) values = ElementsOf(call.at, arguments[0]);
  Count(call, values, 1, 1024);
  const Expr& name = *call.children[0];
  const bool smallest = PlainName(name.text).find("min") != std::string::npos;
  Value result = values[0];
  for (const Value& value : values) {
    if (!value.type.IsNumber() || !result.type.IsNumber()) {
      source_.Fail(call.at,
                   fmt::format("`{}` compares numbers, not {}; write numbers", name.text, KindOf(value)));
    }
    const Type type = CommonType(result.type, value.type);
    const Value a = ConvertValue(source_, call.at, result, type, true);
    const Value b = ConvertValue(source_, call.at, value, type, true);
    const Value less = BinaryOperation(source_, call.at, smallest ? "<" : ">", b, a);
    result = IntegerOf(less) ? b : a;
  }
  if (!name.template_arguments.empty() && name.template_arguments[0].type) {
    return ConvertValue(source_, call.at, result, Resolve(*name.template_arguments[0].type), false);
  }
  return result;
}

Value Interpreter::Absolute(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 1, 1);
  const bool negative = arguments[0].type.IsNumber() && DoubleOf(arguments[0]) < 0;
  return UnaryOperation(source_, call.at, negative ? "-" : "+", arguments[0]);
}

Value Interpreter::FloatingFunction(const Expr& call, const std::vector<Value>& arguments) {
  std::string name = PlainName(call.children[0]->text);
  Count(call, arguments, name.starts_with("pow") ? 2 : 1, name.starts_with("pow") ? 2 : 1);
  for (const Value& argument : arguments) {
    if (!argument.type.IsNumber()) {
      source_.Fail(call.at,
                   fmt::format("`{}` computes with numbers, not {}; write a number", name, KindOf(argument)));
    }
  }
  const double x = DoubleOf(arguments[0]), y = arguments.size() > 1 ? DoubleOf(arguments[1]) : 0;
  const bool single = name.ends_with("f") || arguments[0].type == TypeNamed("float");
  if (name.ends_with("f")) name.pop_back();
  using Unary = double (*)(double);
  static const std::map<std::string, Unary> kFunctions = {
      {"sqrt", std::sqrt}, {"exp", std::exp},   {"exp2", std::exp2},   {"log", std::log},
      {"log2", std::log2}, {"ceil", std::ceil}, {"floor", std::floor}, {"round", std::round},
      {"cos", std::cos},   {"sin", std::sin},   {"tanh", std::tanh}};
  const auto function = kFunctions.find(name);
  const double result = function != kFunctions.end() ? function->second(x)
                        : name == "pow"              ? std::pow(x, y)
                                                     : 1 / std::sqrt(x);
  return ConvertValue(source_, call.at, MakeFloating("double", result),
                      TypeNamed(single ? "float" : "double"), true);
}

Value Interpreter::Same(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 1, 1);
  return arguments[0];
}

Value Interpreter::Limits(const Expr& call, const std::vector<Value>&) {
  const std::string& name = call.children[0]->text;
  const size_t open = name.find('<'), close = name.rfind('>');
  const TypeInfo* info =
      close == std::string::npos ? nullptr : FindTypeInfo(name.substr(open + 1, close - open - 1));
  const std::string which = close == std::string::npos ? "" : name.substr(close + 1);
  const Type type = {info, 0};
  if (info && type.IsInteger()) {
    if (which == "::max") return {type, HighestOf(*info)};
    if (which == "::min" || which == "::lowest") return {type, LowestOf(*info)};
  } else if (info && type.Is(TypeKind::kFloating)) {
    const bool single = info->bytes == 4;
    const double largest = single ? FLT_MAX : DBL_MAX;
    if (which == "::max") return {type, largest};
    if (which == "::lowest") return {type, -largest};
    if (which == "::min") return {type, single ? double{FLT_MIN} : DBL_MIN};
    if (which == "::epsilon") return {type, single ? double{FLT_EPSILON} : DBL_EPSILON};
    if (which == "::infinity") return {type, HUGE_VAL};
    if (which == "::quiet_NaN") return {type, std::numeric_limits<double>::quiet_NaN()};
  }
  source_.Fail(call.at,
               "this limit is not known in launch; write std::numeric_limits<float>::max() or the number");
}

Value Interpreter::Assert(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 1, 64);
  if (!TruthOf(source_, call.children[1]->at, arguments[0])) {
    source_.Fail(call.at, "this assertion fails for the problem's sizes; write a kernel for them");
  }
  return MakeVoid();
}

Value Interpreter::ClusterOption(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 1, 3);
  LaunchExtra extra;
  extra.kind = LaunchExtra::kCluster;
  if (arguments.size() == 1) {
    extra.cluster = ExtentsOf(call.at, arguments[0], "cluster");
  } else {
    for (size_t i = 0; i < arguments.size(); ++i) {
      extra.cluster[i] = WholeNumber(source_, call.children[i + 1]->at, arguments[i], "the cluster's extent");
    }
  }
  return MakeOpaque(extra);
}

Value Interpreter::LaunchOption(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 0, 0);
  LaunchExtra extra;
  extra.kind = PlainName(call.children[0]->text) == "cooperative" ? LaunchExtra::kCooperative
                                                                  : LaunchExtra::kProgrammatic;
  return MakeOpaque(extra);
}

std::vector<Value> Interpreter::ElementsOf(size_t at, const Value& value) {
  std::vector<Value> values;
  if (const auto* list = std::get_if<std::shared_ptr<const ListValue>>(&value.data)) return (*list)->values;
  const auto* array = std::get_if<ArrayPointer>(&value.data);
  if (!array) source_.Fail(at, fmt::format("{} has no elements; write an array or {{a, b}}", KindOf(value)));
  const auto size = static_cast<int64_t>(array->array->cells.size());
  for (int64_t i = std::max<int64_t>(array->index, 0); i < size; ++i) {
    Step(at);
    values.push_back(array->array->cells[static_cast<size_t>(i)]->value);
    RequireValue(at, values.back());
  }
  return values;
}

}  // namespace kevin::launch
