#include <fmt/format.h>

#include "env/gpu/launch/interpreter_scopes.h"

namespace kevin::launch {
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
                     fmt::format("{} is no extent; write a positive number", result.back()));
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
