#include <fmt/format.h>

#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {

Value Interpreter::Evaluate(const Expr& expr) {
  const Depth depth(this, expr.at);
  Value value = EvaluateKind(expr);
  RequireValue(expr.at, value);
  return value;
}

// Variables and elements may be uninitialised; a void function's result is what it is.
void Interpreter::RequireValue(size_t at, const Value& value) const {
  if (std::holds_alternative<std::monostate>(value.data) && !value.type.Is(TypeKind::kVoid)) {
    source_.Fail(at, "this has no value yet; write one where it is declared");
  }
}

Value Interpreter::EvaluateKind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kInteger:
      return MakeInteger(expr.text, expr.integer);
    case ExprKind::kFloating:
      return MakeFloating(expr.text, expr.floating);
    case ExprKind::kString:
      return MakeOpaque(expr.text);
    case ExprKind::kBool:
      return MakeBool(expr.integer != 0);
    case ExprKind::kNull:
      return MakeNull();
    case ExprKind::kName:
      return EvaluateName(expr);
    case ExprKind::kUnary:
      return EvaluateUnary(expr);
    case ExprKind::kPostfix:
      return EvaluateStep(expr, true);
    case ExprKind::kBinary:
      return EvaluateBinary(expr);
    case ExprKind::kAssign:
      return EvaluateAssign(expr);
    case ExprKind::kConditional: {
      const bool yes = TruthOf(source_, expr.children[0]->at, Evaluate(*expr.children[0]));
      return Evaluate(*expr.children[yes ? 1 : 2]);
    }
    case ExprKind::kComma:
      Evaluate(*expr.children[0]);
      return Evaluate(*expr.children[1]);
    case ExprKind::kCall:
      return EvaluateCall(expr);
    case ExprKind::kLaunch:
      return EvaluateLaunch(expr);
    case ExprKind::kIndex:
      return EvaluateIndex(expr);
    case ExprKind::kMember:
      return EvaluateMember(expr);
    case ExprKind::kCast: {
      const Type type = Resolve(expr.type);
      const Value value = Evaluate(*expr.children[0]);
      const bool list = std::holds_alternative<std::shared_ptr<const ListValue>>(value.data);
      return list ? Converted(expr.at, value, type) : ConvertValue(source_, expr.at, value, type, true);
    }
    case ExprKind::kConstruct:
      return EvaluateConstruct(expr);
    case ExprKind::kList:
      return EvaluateList(expr);
    case ExprKind::kSizeofType:
    case ExprKind::kSizeofValue:
      return EvaluateSizeof(expr);
    case ExprKind::kLambda:
      return EvaluateLambda(expr);
    case ExprKind::kDesignated:
    case ExprKind::kRefused:
      break;
  }
  source_.Fail(expr.at,
               expr.kind == ExprKind::kRefused ? expr.text : "a `.member = value` belongs in a list");
}

Value Interpreter::EvaluateName(const Expr& expr) {
  if (!expr.has_template_arguments) {
    if (const Cell* cell = FindVariable(expr.text)) return cell->value;
  }
  if (PlainName(expr.text) == "is_same_v" && expr.template_arguments.size() == 2) {
    const TypeSyntax* const left = expr.template_arguments[0].type.get();
    const TypeSyntax* const right = expr.template_arguments[1].type.get();
    return MakeBool(left && right && Resolve(*left) == Resolve(*right));
  }
  for (const Function* function : FindFunctions(expr.text)) {
    if (function->global) return KernelNamed(expr, function, function->scope + function->name);
  }
  const bool unknown_kernel = outline_.includes || expr.text.find("::") != std::string::npos;
  if (expr.has_template_arguments && unknown_kernel) return KernelNamed(expr, nullptr, expr.text);
  const std::string advice = AdviceFor(PlainName(expr.text));
  if (!advice.empty())
    source_.Fail(expr.at, fmt::format("`{}` is not possible in launch; {}", expr.text, advice));
  source_.Fail(expr.at, fmt::format("`{}` is not known here; launch knows its parameters, its variables, the "
                                    "text's constants and the problem's sizes{}",
                                    expr.text, KernelList()));
}

Value Interpreter::EvaluateUnary(const Expr& expr) {
  if (expr.text == "++" || expr.text == "--") return EvaluateStep(expr, false);
  if (expr.text == "&") return EvaluateAddress(*expr.children[0]);
  if (expr.text == "*") return Read(RequirePlace(expr));
  return UnaryOperation(source_, expr.at, expr.text, Evaluate(*expr.children[0]));
}

Value Interpreter::EvaluateAddress(const Expr& expr) {
  if (expr.kind == ExprKind::kIndex) {
    const Value base = Evaluate(*expr.children[0]);
    const Value index = Evaluate(*expr.children[1]);
    if (std::holds_alternative<DevicePointer>(base.data)) {
      return BinaryOperation(source_, expr.at, "+", base, index);
    }
    if (const auto* array = std::get_if<ArrayPointer>(&base.data)) {
      const int64_t moved = WholeNumber(source_, expr.at, index, "an index");
      if (moved < -INT32_MAX || moved > INT32_MAX)
        source_.Fail(expr.at, "this index is outside the array; check it");
      return {base.type, ArrayPointer{array->array, array->index + moved}};
    }
  }
  if (const auto place = FindPlace(expr)) {
    if (place->extent < 0) {
      const Type type = place->cell->value.type;
      return {{type.info, type.pointers + 1}, place->cell};
    }
  }
  const Value value = Evaluate(expr);
  if (std::holds_alternative<std::shared_ptr<const KernelReference>>(value.data)) return value;
  source_.Fail(expr.at, "this has no address; write a variable's name");
}

Value Interpreter::EvaluateIndex(const Expr& expr) { return Read(RequirePlace(expr)); }

Value Interpreter::EvaluateMember(const Expr& expr) {
  if (const auto place = FindPlace(expr)) return Read(*place);
  const Value base = Evaluate(*expr.children[0]);
  const size_t axis = std::string("xyz").find(expr.text);
  if (const auto* extents = std::get_if<Extents>(&base.data); extents && axis < 3 && expr.text.size() == 1) {
    return MakeInteger("unsigned", (*extents)[axis]);
  }
  source_.Fail(expr.at, fmt::format("{} has no member `{}`; write plain variables", KindOf(base), expr.text));
}

Value Interpreter::EvaluateBinary(const Expr& expr) {
  const Value left = Evaluate(*expr.children[0]);
  if (expr.text == "&&" || expr.text == "||") {
    const bool l = TruthOf(source_, expr.children[0]->at, left);
    if (l == (expr.text == "||")) return MakeBool(l);
    return MakeBool(TruthOf(source_, expr.children[1]->at, Evaluate(*expr.children[1])));
  }
  const Value right = Evaluate(*expr.children[1]);
  if (const auto* array = std::get_if<ArrayPointer>(&left.data); array && expr.text == "+") {
    const int64_t moved = WholeNumber(source_, expr.at, right, "an offset");
    if (moved < -INT32_MAX || moved > INT32_MAX)
      source_.Fail(expr.at, "this is outside the array; check the offset");
    return {left.type, ArrayPointer{array->array, array->index + moved}};
  }
  return BinaryOperation(source_, expr.at, expr.text, left, right);
}

Value Interpreter::EvaluateAssign(const Expr& expr) {
  const Value right = Evaluate(*expr.children[1]);
  const Place place = RequirePlace(*expr.children[0]);
  if (expr.text == "=") {
    Write(expr.at, place, right);
  } else {
    const std::string op = expr.text.substr(0, expr.text.size() - 1);
    const Value left = Read(place);
    RequireValue(expr.children[0]->at, left);
    Write(expr.at, place, BinaryOperation(source_, expr.at, op, left, right));
  }
  return Read(place);
}

Value Interpreter::EvaluateStep(const Expr& expr, bool postfix) {
  const Place place = RequirePlace(*expr.children[0]);
  const Value before = Read(place);
  RequireValue(expr.children[0]->at, before);
  const std::string op = expr.text.substr(0, 1);
  Write(expr.at, place, BinaryOperation(source_, expr.at, op, before, MakeInteger("int", 1)));
  return postfix ? before : Read(place);
}

Value Interpreter::EvaluateSizeof(const Expr& expr) {
  if (expr.kind == ExprKind::kSizeofType) {
    const Type type = Resolve(expr.type);
    const int64_t bytes = BytesOf(type);
    if (bytes == 0) source_.Fail(expr.at, fmt::format("{} has no size; write a number", TypeText(type)));
    return MakeInteger("size_t", bytes);
  }
  const Value value = Evaluate(*expr.children[0]);
  if (const auto* array = std::get_if<ArrayPointer>(&value.data)) {
    return MakeInteger("size_t", Integer(array->array->cells.size()) * BytesOf(array->array->element));
  }
  if (BytesOf(value.type) == 0)
    source_.Fail(expr.at, fmt::format("{} has no size; write a number", KindOf(value)));
  return MakeInteger("size_t", BytesOf(value.type));
}

Value Interpreter::EvaluateList(const Expr& expr) {
  auto list = std::make_shared<ListValue>();
  for (const ExprPtr& child : expr.children) {
    const bool designated = child->kind == ExprKind::kDesignated;
    list->names.push_back(designated ? child->text : "");
    list->values.push_back(Evaluate(designated ? *child->children[0] : *child));
  }
  return MakeOpaque<std::shared_ptr<const ListValue>>(std::move(list));
}

Value Interpreter::EvaluateConstruct(const Expr& expr) {
  const Type type = Resolve(expr.type);
  if (expr.children.size() == 1 && type.pointers == 0 && type.info->kind != TypeKind::kDim3) {
    return ConvertValue(source_, expr.at, Evaluate(*expr.children[0]), type, true);
  }
  return Converted(expr.at, EvaluateList(expr), type);
}

Value Interpreter::EvaluateLambda(const Expr& expr) {
  auto closure = std::make_shared<Closure>();
  closure->lambda = expr.lambda;
  closure->scope = frame_->scope;
  closure->bindings = frame_->bindings;
  for (const auto& block : frame_->blocks) {
    for (const auto& [name, cell] : block) {
      Step(expr.at);
      closure->captured[name] = expr.lambda->by_reference ? cell : NewCell(cell->value, true);
    }
  }
  return MakeOpaque<std::shared_ptr<const Closure>>(std::move(closure));
}

std::vector<Value> Interpreter::EvaluateArguments(const Expr& call, size_t from) {
  std::vector<Value> arguments;
  for (size_t i = from; i < call.children.size(); ++i) arguments.push_back(Evaluate(*call.children[i]));
  return arguments;
}

}  // namespace kevin::launch
