#include "env/gpu/launch/launch_list.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "env/error.h"

namespace kevin {
namespace {

using nlohmann::json;

json ToJson(const Dim3& d) { return {d.x, d.y, d.z}; }
json ToJson(const BufferAddress& a) { return {{"buffer", a.buffer}, {"offset", a.offset_bytes}}; }

json ToJson(const TensorMap& m) {
  return {{"dtype", m.dtype},
          {"base", ToJson(m.base)},
          {"sizes", m.sizes},
          {"strides", m.stride_bytes},
          {"box", m.box},
          {"element_strides", m.element_strides},
          {"interleave", m.interleave},
          {"swizzle", m.swizzle},
          {"l2_promotion", m.l2_promotion},
          {"out_of_bounds_nan", m.out_of_bounds_nan}};
}

struct ArgumentToJson {
  json operator()(int64_t value) const { return {{"int", value}}; }
  json operator()(bool value) const { return {{"bool", value}}; }
  json operator()(double value) const {
    if (std::isfinite(value)) return {{"double", value}};
    // JSON has no words for these.
    return {{"double", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
  }
  json operator()(const BufferAddress& address) const { return {{"address", ToJson(address)}}; }
  json operator()(const NullPointer&) const { return {{"null", true}}; }
  json operator()(const TensorMap& map) const { return {{"tensor_map", ToJson(map)}}; }
};

struct OperationToJson {
  json operator()(const KernelLaunch& l) const {
    json arguments = json::array();
    for (const LaunchArgument& argument : l.arguments)
      arguments.push_back(std::visit(ArgumentToJson(), argument));
    return {{"launch", l.kernel},
            {"grid", ToJson(l.grid)},
            {"block", ToJson(l.block)},
            {"shared", l.shared_bytes},
            {"cluster", l.cluster ? ToJson(*l.cluster) : json()},
            {"cooperative", l.cooperative},
            {"programmatic", l.programmatic},
            {"arguments", arguments},
            {"line", l.line}};
  }
  json operator()(const MemorySet& s) const {
    return {{"set", ToJson(s.place)}, {"value", s.value}, {"bytes", s.bytes}};
  }
  json operator()(const MemoryCopy& c) const {
    return {{"copy_to", ToJson(c.to)}, {"from", ToJson(c.from)}, {"bytes", c.bytes}};
  }
};

std::string ToHex(const std::vector<uint8_t>& bytes) {
  std::string hex;
  for (const uint8_t byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

// What is wrong with the text; becomes an Error.
struct Mistake {
  std::string what;
};

// nlohmann converts between numbers silently; a stored list must hold exactly what is read.
template <typename T>
T Whole(const json& j) {
  if (j.is_number_unsigned()) {
    const auto value = j.get<uint64_t>();
    if (value <= static_cast<uint64_t>(std::numeric_limits<T>::max())) return static_cast<T>(value);
  } else if (j.is_number_integer()) {
    const auto value = j.get<int64_t>();
    if (std::is_signed_v<T> && value >= static_cast<int64_t>(std::numeric_limits<T>::min())) {
      return static_cast<T>(value);
    }
  }
  throw Mistake{"a number is out of range"};
}

template <typename T>
std::vector<T> Wholes(const json& j) {
  if (!j.is_array()) throw Mistake{"a list is missing"};
  std::vector<T> values;
  for (const json& element : j) values.push_back(Whole<T>(element));
  return values;
}

Dim3 Dim3FromJson(const json& j) {
  const auto values = Wholes<uint32_t>(j);
  if (values.size() != 3) throw Mistake{"an extent does not have three numbers"};
  return {values[0], values[1], values[2]};
}

int64_t Bytes(const json& j) {
  const auto bytes = Whole<int64_t>(j);
  if (bytes < 0) throw Mistake{"a size is negative"};
  return bytes;
}

BufferAddress AddressFromJson(const json& j) {
  const BufferAddress address{Whole<int>(j.at("buffer")), Bytes(j.at("offset"))};
  if (address.buffer < 0) throw Mistake{"a buffer's number is negative"};
  return address;
}

TensorMap MapFromJson(const json& j) {
  TensorMap map;
  map.dtype = j.at("dtype").get<std::string>();
  map.base = AddressFromJson(j.at("base"));
  map.sizes = Wholes<uint64_t>(j.at("sizes"));
  map.stride_bytes = Wholes<uint64_t>(j.at("strides"));
  map.box = Wholes<uint32_t>(j.at("box"));
  map.element_strides = Wholes<uint32_t>(j.at("element_strides"));
  map.interleave = Whole<int>(j.at("interleave"));
  map.swizzle = Whole<int>(j.at("swizzle"));
  map.l2_promotion = Whole<int>(j.at("l2_promotion"));
  map.out_of_bounds_nan = Whole<int>(j.at("out_of_bounds_nan"));
  return map;
}

double DoubleFromJson(const json& j) {
  if (j.is_number_float()) return j.get<double>();
  const auto word = j.get<std::string>();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word != "inf" && word != "-inf") throw Mistake{"`" + word + "` is not a number"};
  return word == "inf" ? HUGE_VAL : -HUGE_VAL;
}

LaunchArgument ArgumentFromJson(const json& j) {
  if (!j.is_object() || j.size() != 1) throw Mistake{"an argument has no type"};
  const std::string type = j.begin().key();
  const json& value = j.begin().value();
  if (type == "int") return Whole<int64_t>(value);
  if (type == "bool") return value.get<bool>();
  if (type == "double") return DoubleFromJson(value);
  if (type == "address") return AddressFromJson(value);
  if (type == "null") return NullPointer{};
  if (type == "tensor_map") return MapFromJson(value);
  throw Mistake{"an argument has the unknown type `" + type + "`"};
}

LaunchOperation OperationFromJson(const json& j) {
  if (j.contains("set")) {
    return MemorySet{AddressFromJson(j.at("set")), Whole<uint8_t>(j.at("value")), Bytes(j.at("bytes"))};
  }
  if (j.contains("copy_to")) {
    return MemoryCopy{AddressFromJson(j.at("copy_to")), AddressFromJson(j.at("from")), Bytes(j.at("bytes"))};
  }
  KernelLaunch launch;
  launch.kernel = j.at("launch").get<std::string>();
  launch.grid = Dim3FromJson(j.at("grid"));
  launch.block = Dim3FromJson(j.at("block"));
  launch.shared_bytes = Bytes(j.at("shared"));
  if (!j.at("cluster").is_null()) launch.cluster = Dim3FromJson(j.at("cluster"));
  launch.cooperative = j.at("cooperative").get<bool>();
  launch.programmatic = j.at("programmatic").get<bool>();
  for (const json& argument : j.at("arguments")) launch.arguments.push_back(ArgumentFromJson(argument));
  launch.line = Whole<int>(j.at("line"));
  return launch;
}

std::vector<uint8_t> FromHex(const std::string& hex) {
  if (hex.size() % 2 != 0 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw Mistake{"a constant's bytes are not hexadecimal"};
  }
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace

std::string LaunchListToText(const LaunchList& list) {
  json workspaces = json::array(), operations = json::array(), constants = json::array();
  for (const Workspace& w : list.workspaces) workspaces.push_back({{"bytes", w.bytes}, {"zeroed", w.zeroed}});
  for (const LaunchOperation& operation : list.operations)
    operations.push_back(std::visit(OperationToJson(), operation));
  for (const ConstantValue& c : list.constants) {
    constants.push_back({{"symbol", c.symbol}, {"offset", c.offset_bytes}, {"bytes", ToHex(c.bytes)}});
  }
  const json all = {{"workspaces", workspaces}, {"operations", operations}, {"constants", constants}};
  // A name from a candidate may hold bytes that are no UTF-8.
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

LaunchList LaunchListFromText(const std::string& text) {
  std::string what;
  try {
    const json j = json::parse(text);
    LaunchList list;
    for (const json& w : j.at("workspaces")) {
      list.workspaces.push_back({Bytes(w.at("bytes")), w.at("zeroed").get<bool>()});
    }
    for (const json& operation : j.at("operations")) list.operations.push_back(OperationFromJson(operation));
    for (const json& c : j.at("constants")) {
      list.constants.push_back({c.at("symbol").get<std::string>(), Bytes(c.at("offset")),
                                FromHex(c.at("bytes").get<std::string>())});
    }
    return list;
  } catch (const json::exception& e) {
    what = e.what();
  } catch (const Mistake& mistake) {
    what = mistake.what;
  }
  throw Error(ExitCode::kBroken, "the stored launch list cannot be read: " + what,
              "evaluate the candidate again to store a new one");
}

}  // namespace kevin
