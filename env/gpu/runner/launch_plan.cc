#include "env/gpu/runner/launch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "env/error.h"

namespace kevin {
namespace {

using nlohmann::json;

json Place(const BufferAddress& address) { return {address.buffer, address.offset_bytes}; }
BufferAddress PlaceFrom(const json& j) { return {j.at(0), j.at(1)}; }

json DimensionsText(const Dim3& d) { return {d.x, d.y, d.z}; }
Dim3 DimensionsFrom(const json& j) { return {j.at(0), j.at(1), j.at(2)}; }

json MapText(const TensorMap& map) {
  return {{"dtype", map.dtype},
          {"base", Place(map.base)},
          {"sizes", map.sizes},
          {"strides", map.stride_bytes},
          {"box", map.box},
          {"element_strides", map.element_strides},
          {"modes", {map.interleave, map.swizzle, map.l2_promotion, map.out_of_bounds_nan}}};
}

TensorMap MapFrom(const json& j) {
  TensorMap map;
  map.dtype = j.at("dtype");
  map.base = PlaceFrom(j.at("base"));
  map.sizes = j.at("sizes").get<std::vector<uint64_t>>();
  map.stride_bytes = j.at("strides").get<std::vector<uint64_t>>();
  map.box = j.at("box").get<std::vector<uint32_t>>();
  map.element_strides = j.at("element_strides").get<std::vector<uint32_t>>();
  const json& modes = j.at("modes");
  map.interleave = modes.at(0);
  map.swizzle = modes.at(1);
  map.l2_promotion = modes.at(2);
  map.out_of_bounds_nan = modes.at(3);
  return map;
}

std::string Text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

struct OperationToJson {
  json operator()(const PlannedLaunch& planned) const {
    json pointers = json::array(), maps = json::array();
    for (const auto& pointer : planned.arguments.pointers)
      pointers.push_back({pointer.at, Place(pointer.address)});
    for (const auto& map : planned.arguments.maps) maps.push_back({map.at, MapText(map.map)});
    return {{"launch", planned.lowered_name},
            {"kernel", planned.launch.kernel},
            {"line", planned.launch.line},
            {"grid", DimensionsText(planned.launch.grid)},
            {"block", DimensionsText(planned.launch.block)},
            {"shared", planned.launch.shared_bytes},
            {"cluster", planned.launch.cluster ? DimensionsText(*planned.launch.cluster) : json()},
            {"cooperative", planned.launch.cooperative},
            {"programmatic", planned.launch.programmatic},
            {"arguments", HexText(Text(planned.arguments.bytes))},
            {"offsets", planned.arguments.offsets},
            {"pointers", pointers},
            {"maps", maps}};
  }
  json operator()(const MemorySet& set) const {
    return {{"set", Place(set.place)}, {"value", set.value}, {"bytes", set.bytes}};
  }
  json operator()(const MemoryCopy& copy) const {
    return {{"copy", Place(copy.to)}, {"from", Place(copy.from)}, {"bytes", copy.bytes}};
  }
};

PlannedLaunch LaunchFrom(const json& j) {
  PlannedLaunch planned;
  planned.lowered_name = j.at("launch");
  planned.launch.kernel = j.at("kernel");
  planned.launch.line = j.at("line");
  planned.launch.grid = DimensionsFrom(j.at("grid"));
  planned.launch.block = DimensionsFrom(j.at("block"));
  planned.launch.shared_bytes = j.at("shared");
  if (!j.at("cluster").is_null()) planned.launch.cluster = DimensionsFrom(j.at("cluster"));
  planned.launch.cooperative = j.at("cooperative");
  planned.launch.programmatic = j.at("programmatic");
  planned.arguments.bytes = Bytes(BytesFromHex(j.at("arguments")));
  planned.arguments.offsets = j.at("offsets").get<std::vector<int64_t>>();
  for (const json& pointer : j.at("pointers"))
    planned.arguments.pointers.push_back({pointer.at(0), PlaceFrom(pointer.at(1))});
  for (const json& map : j.at("maps")) planned.arguments.maps.push_back({map.at(0), MapFrom(map.at(1))});
  return planned;
}

PlannedOperation OperationFrom(const json& j) {
  if (j.contains("launch")) return LaunchFrom(j);
  if (j.contains("set")) return MemorySet{PlaceFrom(j.at("set")), j.at("value"), j.at("bytes")};
  return MemoryCopy{PlaceFrom(j.at("copy")), PlaceFrom(j.at("from")), j.at("bytes")};
}

const KernelInfo* FindKernel(const GpuModule& module, const std::string& name) {
  const auto found = std::find_if(module.kernels.begin(), module.kernels.end(),
                                  [&](const KernelInfo& kernel) { return kernel.name == name; });
  return found == module.kernels.end() ? nullptr : &*found;
}

}  // namespace

LaunchPlan MakeLaunchPlan(const LaunchList& list, const GpuModule& module,
                          const std::vector<GlobalVariable>& globals,
                          const std::map<std::string, std::string>& variables, std::string* error) {
  LaunchPlan plan;
  plan.cubin = module.cubin;
  plan.workspaces = list.workspaces;
  for (const LaunchOperation& operation : list.operations) {
    if (const auto* set = std::get_if<MemorySet>(&operation)) plan.operations.emplace_back(*set);
    if (const auto* copy = std::get_if<MemoryCopy>(&operation)) plan.operations.emplace_back(*copy);
    const auto* launch = std::get_if<KernelLaunch>(&operation);
    if (!launch) continue;
    const KernelInfo* kernel = FindKernel(module, launch->kernel);
    if (!kernel) {
      *error = fmt::format("line {}: there is no kernel `{}`", launch->line, launch->kernel);
      return plan;
    }
    PlannedLaunch planned{*launch, kernel->lowered_name, EncodeArguments(*launch, *kernel, error)};
    if (!error->empty()) {
      *error = fmt::format("line {}: {}", launch->line, *error);
      return plan;
    }
    plan.operations.emplace_back(std::move(planned));
  }
  for (const ConstantValue& constant : list.constants) {
    const auto name = variables.find(constant.symbol);
    const auto found = std::find_if(globals.begin(), globals.end(), [&](const GlobalVariable& global) {
      return global.constant && name != variables.end() && global.name == name->second;
    });
    if (found == globals.end()) {
      *error = fmt::format("there is no __constant__ variable `{}` that a kernel uses", constant.symbol);
      return plan;
    }
    if (constant.offset_bytes + static_cast<int64_t>(constant.bytes.size()) > found->bytes) {
      *error = fmt::format("`{}` has {} bytes; {} are given", constant.symbol, found->bytes,
                           constant.offset_bytes + static_cast<int64_t>(constant.bytes.size()));
      return plan;
    }
    plan.constants.emplace_back(found->name, constant);
  }
  std::copy_if(globals.begin(), globals.end(), std::back_inserter(plan.globals),
               [](const GlobalVariable& global) { return !global.constant; });
  return plan;
}

std::string LaunchPlanToText(const LaunchPlan& plan) {
  json workspaces = json::array(), operations = json::array(), constants = json::array(),
       globals = json::array();
  for (const Workspace& workspace : plan.workspaces)
    workspaces.push_back({workspace.bytes, workspace.zeroed});
  for (const PlannedOperation& operation : plan.operations)
    operations.push_back(std::visit(OperationToJson{}, operation));
  for (const auto& [name, constant] : plan.constants)
    constants.push_back({name, constant.symbol, constant.offset_bytes, HexText(Text(constant.bytes))});
  for (const GlobalVariable& global : plan.globals) globals.push_back({global.name, global.bytes});
  return json{{"cubin", HexText(plan.cubin)},
              {"workspaces", workspaces},
              {"operations", operations},
              {"constants", constants},
              {"globals", globals}}
      .dump();
}

LaunchPlan LaunchPlanFromText(const std::string& text) {
  try {
    const json j = json::parse(text);
    LaunchPlan plan;
    plan.cubin = BytesFromHex(j.at("cubin"));
    for (const json& workspace : j.at("workspaces"))
      plan.workspaces.push_back({workspace.at(0), workspace.at(1)});
    for (const json& operation : j.at("operations")) plan.operations.push_back(OperationFrom(operation));
    for (const json& c : j.at("constants"))
      plan.constants.push_back({c.at(0), {c.at(1), c.at(2), Bytes(BytesFromHex(c.at(3)))}});
    for (const json& global : j.at("globals")) plan.globals.push_back({global.at(0), global.at(1), false});
    return plan;
  } catch (const json::exception& error) {
    throw Error(ExitCode::kBroken, std::string("unreadable launch plan: ") + error.what());
  }
}

std::string HexText(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string BytesFromHex(const std::string& text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (text.size() % 2 != 0) throw Error(ExitCode::kBroken, "unreadable bytes in a launch plan");
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) throw Error(ExitCode::kBroken, "unreadable bytes in a launch plan");
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

}  // namespace kevin
