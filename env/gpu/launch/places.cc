// What an expression names: variables, elements, fields of records; reading, writing and converting their values.

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {
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
