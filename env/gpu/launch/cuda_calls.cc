#include <fmt/format.h>

#include <cstring>

#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {
namespace {

constexpr int64_t kMaxSymbolBytes = 64 << 10;

const Value kSuccess = {TypeNamed("int"), Integer{0}};

}  // namespace

Value Interpreter::MemorySetCall(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 3, 4);
  const int64_t value = WholeNumber(source_, call.children[2]->at, arguments[1], "the byte");
  const int64_t bytes = WholeNumber(source_, call.children[3]->at, arguments[2], "the size");
  list_->AddMemorySet(call.children[1]->at, arguments[0], value, bytes);
  return kSuccess;
}

Value Interpreter::MemoryCopyCall(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 4, 5);
  const int64_t kind = WholeNumber(source_, call.children[4]->at, arguments[3], "the kind of copy");
  if (kind != 3 && kind != 4) {
    source_.Fail(call.children[4]->at,
                 "launch only copies within the device; write cudaMemcpyDeviceToDevice");
  }
  const int64_t bytes = WholeNumber(source_, call.children[3]->at, arguments[2], "the size");
  list_->AddMemoryCopy(call.at, arguments[0], arguments[1], bytes);
  return kSuccess;
}

// Its arguments are not even evaluated.
Value Interpreter::Ignored(const Expr& call, const std::vector<Value>&) {
  list_->AddNote(call.at, fmt::format("`{}` is not needed", call.children[0]->text));
  return kSuccess;
}

const ConstantVariable& Interpreter::SymbolNamed(const Expr& expr) {
  for (const std::string& qualified : Qualified(expr.text)) {
    for (const ConstantVariable& variable : outline_.constant_variables) {
      if (expr.kind == ExprKind::kName && variable.scope + variable.name == qualified) return variable;
    }
  }
  source_.Fail(expr.at, "this is not a __constant__ variable; declare it: __constant__ float taps[16];");
}

void Interpreter::AppendBytes(const Value& number, std::vector<uint8_t>* bytes) {
  uint8_t raw[8] = {};
  if (number.type.IsInteger()) {
    const auto bits = static_cast<uint64_t>(IntegerOf(number));
    std::memcpy(raw, &bits, sizeof(bits));
  } else if (number.type.info->bytes == 4) {
    const auto single = static_cast<float>(DoubleOf(number));
    std::memcpy(raw, &single, sizeof(single));
  } else {
    const double full = DoubleOf(number);
    std::memcpy(raw, &full, sizeof(full));
  }
  bytes->insert(bytes->end(), raw, raw + number.type.info->bytes);
}

// constant(symbol, {1.0f, 2.0f}), or an array or a number in place of the list.
Value Interpreter::ConstantCall(const Expr& call, const std::vector<Value>&) {
  if (call.children.size() != 3)
    source_.Fail(call.at, "`constant` takes 2 arguments; write constant(symbol, {values})");
  const ConstantVariable& variable = SymbolNamed(*call.children[1]);
  const size_t at = call.children[2]->at;
  const Value value = Evaluate(*call.children[2]);
  const Type type = Resolve(Parser::ReadType(source_, outline_, variable.type));
  if (!type.IsNumber()) {
    source_.Fail(at, fmt::format("`{}` holds {}; only numbers can be set", variable.name, TypeText(type)));
  }
  std::vector<uint8_t> bytes;
  const std::vector<Value> values = value.type.IsNumber() ? std::vector<Value>{value} : ElementsOf(at, value);
  for (const Value& element : values) AppendBytes(Converted(at, element, type), &bytes);
  if (bytes.empty() || static_cast<int64_t>(bytes.size()) > kMaxSymbolBytes) {
    source_.Fail(at, fmt::format("{} bytes of constants; write 1 to {}", bytes.size(), kMaxSymbolBytes));
  }
  list_->AddConstant(at, variable.scope + variable.name, 0, std::move(bytes));
  return MakeVoid();
}

// cudaMemcpyToSymbol(symbol, array, bytes[, offset[, kind[, stream]]])
Value Interpreter::MemoryToSymbol(const Expr& call, const std::vector<Value>&) {
  if (call.children.size() < 4 || call.children.size() > 7) {
    source_.Fail(call.at,
                 "`cudaMemcpyToSymbol` takes a symbol, an array and its bytes; write constant(symbol, "
                 "{values})");
  }
  const ConstantVariable& variable = SymbolNamed(*call.children[1]);
  const size_t at = call.children[2]->at;
  const Value value = Evaluate(*call.children[2]);
  std::vector<Value> values;
  if (auto* const* cell = std::get_if<Cell*>(&value.data)) {
    values.push_back((*cell)->value);
  } else if (std::holds_alternative<ArrayPointer>(value.data)) {
    values = ElementsOf(at, value);
  } else {
    source_.Fail(at, fmt::format("{} is not on the host; write a local array of numbers", KindOf(value)));
  }
  std::vector<uint8_t> bytes;
  for (const Value& element : values) {
    RequireValue(at, element);
    if (!element.type.IsNumber()) {
      source_.Fail(at, fmt::format("the array holds {}; write numbers", KindOf(element)));
    }
    AppendBytes(element, &bytes);
  }
  const int64_t size = WholeNumber(source_, call.children[3]->at, Evaluate(*call.children[3]), "the size");
  const int64_t offset = call.children.size() < 5 ? 0
                                                  : WholeNumber(source_, call.children[4]->at,
                                                                Evaluate(*call.children[4]), "the offset");
  if (size < 1 || size > static_cast<int64_t>(bytes.size()) || size > kMaxSymbolBytes || offset < 0 ||
      offset > kMaxSymbolBytes) {
    source_.Fail(call.children[3]->at,
                 fmt::format("{} bytes of an array of {}; write sizeof(array)", size, bytes.size()));
  }
  bytes.resize(static_cast<size_t>(size));
  list_->AddConstant(at, variable.scope + variable.name, offset, std::move(bytes));
  return kSuccess;
}

void Interpreter::ReadAttributes(size_t at, Record* config, LaunchConfiguration* configuration) {
  const Value& attributes = config->fields.at("attrs")->value;
  const int64_t count = WholeNumber(source_, at, config->fields.at("numAttrs")->value, "numAttrs");
  std::vector<Value> records;
  if (count == 0) return;
  if (auto* const* cell = std::get_if<Cell*>(&attributes.data)) records = {(*cell)->value};
  if (std::holds_alternative<ArrayPointer>(attributes.data)) records = ElementsOf(at, attributes);
  if (count < 0 || count > static_cast<int64_t>(records.size())) {
    source_.Fail(at, fmt::format("numAttrs is {} and there are {} attributes; set attrs and numAttrs", count,
                                 records.size()));
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    auto* const* record = std::get_if<Record*>(&records[i].data);
    if (!record || records[i].type != TypeNamed("cudaLaunchAttribute")) {
      source_.Fail(at,
                   "attrs has another type than cudaLaunchAttribute; declare cudaLaunchAttribute attrs[1];");
    }
    const Value& val = (*record)->fields.at("val")->value;
    const auto& fields = std::get<Record*>(val.data)->fields;
    LaunchExtra extra;
    const Integer id = IntegerOf((*record)->fields.at("id")->value);
    if (id == 4) {
      extra.kind = LaunchExtra::kCluster;
      extra.cluster = std::get<Extents>(fields.at("clusterDim")->value.data);
    } else if (id == 2 || id == 6) {
      extra.kind = id == 2 ? LaunchExtra::kCooperative : LaunchExtra::kProgrammatic;
      const char* name = id == 2 ? "cooperative" : "programmaticStreamSerializationAllowed";
      if (IntegerOf(fields.at(name)->value) == 0) continue;
    } else {
      source_.Fail(
          at,
          "this launch attribute is not known; use the cluster dimension, cooperative or programmatic "
          "stream serialization");
    }
    configuration->extras.push_back(extra);
  }
}

// cudaLaunchKernelEx(&config, kernel, arguments...)
Value Interpreter::LaunchKernelEx(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 2, 1024);
  auto* const* cell = std::get_if<Cell*>(&arguments[0].data);
  auto* const* config = cell ? std::get_if<Record*>(&(*cell)->value.data) : nullptr;
  if (!config || (*cell)->value.type != TypeNamed("cudaLaunchConfig_t")) {
    source_.Fail(call.children[1]->at,
                 "this is no launch configuration; write &config with cudaLaunchConfig_t config");
  }
  LaunchConfiguration configuration;
  configuration.grid = std::get<Extents>((*config)->fields.at("gridDim")->value.data);
  configuration.block = std::get<Extents>((*config)->fields.at("blockDim")->value.data);
  configuration.shared_bytes = WholeNumber(source_, call.at, (*config)->fields.at("dynamicSmemBytes")->value,
                                           "the dynamic shared memory");
  ReadAttributes(call.at, *config, &configuration);
  std::vector<size_t> places;
  for (size_t i = 3; i < call.children.size(); ++i) places.push_back(call.children[i]->at);
  const KernelReference kernel = RequireKernel(call.children[2]->at, arguments[1]);
  Launch(call.children[2]->at, kernel, configuration, {arguments.begin() + 2, arguments.end()}, places);
  return kSuccess;
}

// cudaLaunchKernel(kernel, grid, block, void* arguments[], shared, stream), and the cooperative one.
Value Interpreter::LaunchKernelCall(const Expr& call, const std::vector<Value>& arguments) {
  Count(call, arguments, 4, 6);
  const size_t at = call.children[1]->at;
  const KernelReference kernel = RequireKernel(at, arguments[0]);
  LaunchConfiguration configuration;
  configuration.grid = ExtentsOf(call.children[2]->at, arguments[1], "grid");
  configuration.block = ExtentsOf(call.children[3]->at, arguments[2], "block");
  if (arguments.size() > 4) {
    configuration.shared_bytes =
        WholeNumber(source_, call.children[5]->at, arguments[4], "the dynamic shared memory");
  }
  if (PlainName(call.children[0]->text) == "cudaLaunchCooperativeKernel") {
    configuration.extras.push_back({LaunchExtra::kCooperative, {1, 1, 1}});
  }
  std::vector<Value> values;
  const size_t list_at = call.children[4]->at;
  if (!IsNull(arguments[3])) {
    for (const Value& element : ElementsOf(list_at, arguments[3])) {
      auto* const* cell = std::get_if<Cell*>(&element.data);
      if (!cell)
        source_.Fail(list_at, "the kernel's arguments are addresses of variables; write {&x, &out, &n}");
      RequireValue(list_at, (*cell)->value);
      values.push_back((*cell)->value);
    }
  }
  Launch(at, kernel, configuration, values, std::vector<size_t>(values.size(), list_at));
  return kSuccess;
}

namespace {

const std::map<std::string, std::string>& ElementNames() {
  static const std::map<std::string, std::string> kNames = {{"float", "float32"},
                                                            {"__half", "float16"},
                                                            {"__nv_bfloat16", "bfloat16"},
                                                            {"int", "int32"},
                                                            {"unsigned char", "uint8"}};
  return kNames;
}

// CUDA's enumerator for a swizzle given as one or in bytes; -1: neither.
int Swizzle(int64_t value) {
  if (value >= 0 && value <= 3) return static_cast<int>(value);
  return value == 32 ? 1 : value == 64 ? 2 : value == 128 ? 3 : -1;
}

// What cuTensorMapEncodeTiled demands of a map; empty when it is met.
std::string MapMistake(const TensorMap& map, int64_t element_bytes) {
  const size_t rank = map.sizes.size();
  if (rank < 1 || rank > 5) return fmt::format("a tensor map has 1 to 5 dimensions, not {}", rank);
  if (map.stride_bytes.size() != rank - 1) {
    return fmt::format("{} dimensions need {} strides (all but the innermost), not {}", rank, rank - 1,
                       map.stride_bytes.size());
  }
  if (map.box.size() != rank)
    return fmt::format("{} dimensions need a box of {}, not {}", rank, rank, map.box.size());
  for (size_t i = 0; i < rank; ++i) {
    if (map.sizes[i] < 1 || map.sizes[i] > (uint64_t{1} << 32)) {
      return fmt::format("size {} is {}; it must be 1 to 2^32", i, map.sizes[i]);
    }
    if (map.box[i] < 1 || map.box[i] > 256)
      return fmt::format("box {} is {}; it must be 1 to 256", i, map.box[i]);
  }
  for (const uint64_t stride : map.stride_bytes) {
    if (stride == 0 || stride % 16 != 0 || stride >= (uint64_t{1} << 40)) {
      return fmt::format("a stride of {} bytes; strides are multiples of 16 below 2^40", stride);
    }
  }
  const int64_t inner = static_cast<int64_t>(map.box[0]) * element_bytes;
  if (inner % 16 != 0)
    return fmt::format("the box's rows have {} bytes; they must be a multiple of 16", inner);
  const int64_t widest = map.swizzle == 0 ? INT64_MAX : int64_t{16} << map.swizzle;
  if (inner > widest)
    return fmt::format("the box's rows have {} bytes, more than the swizzle of {}", inner, widest);
  if (map.base.offset_bytes % 16 != 0) return "the base is not aligned to 16 bytes";
  return "";
}

// Bytes from the base to the end of the last element.
Integer Span(const TensorMap& map, int64_t element_bytes) {
  Integer span = Integer(map.sizes[0]) * element_bytes;
  for (size_t i = 1; i < map.sizes.size(); ++i)
    span += Integer(map.sizes[i] - 1) * Integer(map.stride_bytes[i - 1]);
  return span;
}

}  // namespace

// tensor_map<T>(base, {sizes}, {stride bytes}, {box}[, swizzle[, l2 promotion[, NaN fill]]])
Value Interpreter::TensorMapCall(const Expr& call, const std::vector<Value>& arguments) {
  const Expr& name = *call.children[0];
  Count(call, arguments, 4, 7);
  if (name.template_arguments.size() != 1 || !name.template_arguments[0].type) {
    source_.Fail(call.at, "a tensor map needs an element type; write tensor_map<float>(...)");
  }
  const Type element = Resolve(*name.template_arguments[0].type);
  const auto dtype = ElementNames().find(TypeText(element));
  if (dtype == ElementNames().end()) {
    source_.Fail(call.at,
                 fmt::format("a tensor map cannot hold {}; write float, __half, __nv_bfloat16, int or "
                             "unsigned char",
                             TypeText(element)));
  }
  const auto numbers = [&](size_t i) {
    std::vector<int64_t> result;
    for (const Value& value : ElementsOf(call.children[i + 1]->at, arguments[i])) {
      result.push_back(WholeNumber(source_, call.children[i + 1]->at, value, "a tensor map's number"));
      if (result.back() < 0 || (i == 3 && result.back() > INT32_MAX)) {
        source_.Fail(call.children[i + 1]->at,
                     fmt::format("{} is not an extent; write a positive number", result.back()));
      }
    }
    return result;
  };
  const auto option = [&](size_t i) {
    return arguments.size() > i ? WholeNumber(source_, call.children[i + 1]->at, arguments[i], "the option")
                                : 0;
  };
  auto map = std::make_shared<TensorMap>();
  map->dtype = dtype->second;
  map->base = list_->Place(call.children[1]->at, arguments[0], 0, false);
  for (const int64_t size : numbers(1)) map->sizes.push_back(static_cast<uint64_t>(size));
  for (const int64_t stride : numbers(2)) map->stride_bytes.push_back(static_cast<uint64_t>(stride));
  for (const int64_t box : numbers(3)) map->box.push_back(static_cast<uint32_t>(box));
  map->element_strides.assign(map->sizes.size(), 1);
  map->swizzle = Swizzle(option(4));
  if (map->swizzle < 0 || option(5) < 0 || option(5) > 3 || option(6) < 0 || option(6) > 1) {
    source_.Fail(call.at, "this option is not known; write a swizzle of 0, 32, 64 or 128 bytes");
  }
  map->l2_promotion = static_cast<int>(option(5));
  map->out_of_bounds_nan = static_cast<int>(option(6));
  const std::string mistake = MapMistake(*map, BytesOf(element));
  if (!mistake.empty()) source_.Fail(call.at, fmt::format("{}; see cuTensorMapEncodeTiled", mistake));
  const Integer span = Span(*map, BytesOf(element));
  const int64_t bytes = span > INT64_MAX ? INT64_MAX : static_cast<int64_t>(span);
  list_->Place(call.children[1]->at, arguments[0], bytes, false);
  return {TypeNamed("CUtensorMap"), std::shared_ptr<const TensorMap>(std::move(map))};
}

}  // namespace kevin::launch
