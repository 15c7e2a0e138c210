#include <fmt/format.h>

#include <set>

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

namespace {

constexpr const char* kOnDevice =
    "tensors are in device memory: launch cannot read or write their elements; do it in a kernel";

// The fields of CUDA's host structs that launch knows, in their order.
const std::vector<std::pair<std::string, std::string>>& FieldsOf(const std::string& record) {
  using Fields = std::vector<std::pair<std::string, std::string>>;
  static const std::map<std::string, Fields> kFields = {
      {"cudaLaunchConfig_t",
       {{"gridDim", "dim3"},
        {"blockDim", "dim3"},
        {"dynamicSmemBytes", "size_t"},
        {"stream", "cudaStream_t"},
        {"attrs", "auto"},
        {"numAttrs", "unsigned"}}},
      {"cudaLaunchAttribute", {{"id", "int"}, {"val", "cudaLaunchAttributeValue"}}},
      {"cudaLaunchAttributeValue",
       {{"clusterDim", "dim3"}, {"programmaticStreamSerializationAllowed", "int"}, {"cooperative", "int"}}},
  };
  return kFields.at(record);
}

}  // namespace

std::optional<Interpreter::Place> Interpreter::FindPlace(const Expr& expr) {
  const Depth depth(this, expr.at);
  if (expr.kind == ExprKind::kName && !expr.has_template_arguments) {
    Cell* cell = FindVariable(expr.text);
    return cell ? std::optional<Place>({cell, -1}) : std::nullopt;
  }
  if (expr.kind == ExprKind::kIndex || (expr.kind == ExprKind::kUnary && expr.text == "*")) {
    const bool index = expr.kind == ExprKind::kIndex;
    const Value base = Evaluate(*expr.children[0]);
    const Value at = index ? Evaluate(*expr.children[1]) : MakeInteger("int", 0);
    if (const auto* array = std::get_if<ArrayPointer>(&base.data))
      return Place{ElementOf(expr.at, *array, at), -1};
    const auto* cell = std::get_if<Cell*>(&base.data);
    if (cell && at.type.IsInteger() && IntegerOf(at) == 0) return Place{*cell, -1};
    if (std::holds_alternative<DevicePointer>(base.data)) source_.Fail(expr.at, kOnDevice);
    source_.Fail(expr.at, fmt::format("{} has no elements; write an array", KindOf(base)));
  }
  if (expr.kind != ExprKind::kMember) return std::nullopt;
  std::optional<Place> base;
  if (expr.integer) {  // ->
    const Value pointer = Evaluate(*expr.children[0]);
    if (const auto* cell = std::get_if<Cell*>(&pointer.data)) base = Place{*cell, -1};
    if (const auto* array = std::get_if<ArrayPointer>(&pointer.data)) {
      base = Place{ElementOf(expr.at, *array, MakeInteger("int", 0)), -1};
    }
    if (std::holds_alternative<DevicePointer>(pointer.data)) source_.Fail(expr.at, kOnDevice);
  } else {
    base = FindPlace(*expr.children[0]);
  }
  if (!base || base->extent >= 0) return std::nullopt;
  Value& value = base->cell->value;
  if (auto* record = std::get_if<Record*>(&value.data)) {
    return Place{FieldOf(expr.at, *record, value.type, expr.text), -1};
  }
  if (std::holds_alternative<Extents>(value.data) && expr.text.size() == 1) {
    const size_t axis = std::string("xyz").find(expr.text);
    if (axis != std::string::npos) return Place{base->cell, static_cast<int>(axis)};
  }
  return std::nullopt;
}

Interpreter::Place Interpreter::RequirePlace(const Expr& expr) {
  const auto place = FindPlace(expr);
  if (!place && expr.kind == ExprKind::kName) Evaluate(expr);  // throws with the reason
  if (!place) source_.Fail(expr.at, "this is not a variable; write a variable's name");
  return *place;
}

Value Interpreter::Read(const Place& place) const {
  if (place.extent < 0) return place.cell->value;
  return MakeInteger("unsigned",
                     std::get<Extents>(place.cell->value.data)[static_cast<size_t>(place.extent)]);
}

void Interpreter::Write(size_t at, const Place& place, const Value& value) {
  if (place.cell->is_const)
    source_.Fail(at, "this variable is const; leave out `const` where it is declared");
  if (place.extent >= 0) {
    std::get<Extents>(place.cell->value.data)[static_cast<size_t>(place.extent)] =
        WholeNumber(source_, at, value, "a dim3's member");
    return;
  }
  place.cell->value = Converted(at, value, place.cell->value.type);
}

Cell* Interpreter::ElementOf(size_t at, const ArrayPointer& array, const Value& index) {
  if (!index.type.IsInteger()) {
    source_.Fail(at, fmt::format("an index is {}; write an integer", KindOf(index)));
  }
  const Integer element = array.index + IntegerOf(index);
  const auto size = static_cast<Integer>(array.array->cells.size());
  if (element < 0 || element >= size) {
    source_.Fail(at, fmt::format("the index {} is outside the array of {} elements; check the bounds",
                                 ToText(element), ToText(size)));
  }
  return array.array->cells[static_cast<size_t>(element)];
}

Value Interpreter::NewRecord(const Type& type) {
  Record& record = records_.emplace_back();
  for (const auto& [name, type_name] : FieldsOf(type.info->name)) {
    const Type field = TypeNamed(type_name);
    Value value = MakeNull();
    if (field.Is(TypeKind::kRecord)) {
      value = NewRecord(field);
    } else if (!field.Is(TypeKind::kAuto)) {
      value = ConvertValue(source_, 0, MakeInteger("int", field.Is(TypeKind::kDim3) ? 1 : 0), field, false);
    }
    if (field.Is(TypeKind::kAuto)) value.type = field;
    record.fields[name] = NewCell(std::move(value), false);
  }
  return {type, &record};
}

Cell* Interpreter::FieldOf(size_t at, Record* record, const Type& type, const std::string& name) {
  const auto field = record->fields.find(name);
  if (field == record->fields.end()) {
    source_.Fail(at,
                 fmt::format("{} has no member `{}` here; write k<<<grid, block, shared, cluster(2)>>>(...)",
                             type.info->name, name));
  }
  return field->second;
}

Value Interpreter::Converted(size_t at, const Value& value, const Type& to) {
  const bool uninitialised = std::holds_alternative<std::monostate>(value.data);
  if (uninitialised && !to.Is(TypeKind::kVoid) && !to.Is(TypeKind::kAuto)) {
    source_.Fail(at, "this has no value; write one first");
  }
  const auto* list = std::get_if<std::shared_ptr<const ListValue>>(&value.data);
  auto* record = std::get_if<Record*>(&value.data);
  if (to.Is(TypeKind::kRecord) && (list || (record && value.type == to))) {
    Value made = NewRecord(to);
    Record* target = std::get<Record*>(made.data);
    const auto& fields = FieldsOf(to.info->name);
    const size_t count = list ? (*list)->values.size() : fields.size();
    if (count > fields.size())
      source_.Fail(at, fmt::format("{} has {} members", to.info->name, fields.size()));
    for (size_t i = 0; i < count; ++i) {
      const bool named = list && !(*list)->names[i].empty();
      Cell* cell = FieldOf(at, target, to, named ? (*list)->names[i] : fields[i].first);
      const Value& from = list ? (*list)->values[i] : (*record)->fields.at(fields[i].first)->value;
      cell->value = Converted(at, from, cell->value.type);
    }
    return made;
  }
  if (list && !to.Is(TypeKind::kDim3) && !to.Is(TypeKind::kAuto)) {
    if ((*list)->values.empty()) return ConvertValue(source_, at, MakeInteger("int", 0), to, false);
    if ((*list)->values.size() == 1) return Converted(at, (*list)->values[0], to);
  }
  // An address of an array or variable keeps its own type under `auto` and void*.
  return ConvertValue(source_, at, value, to, false);
}

}  // namespace kevin::launch
