#include "env/gpu/runner/candidate_module.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace kevin {
namespace {

int DataType(const std::string& dtype) {
  static const std::map<std::string, int> kTypes = {{"uint8", 0},   {"int32", 3},   {"int64", 5},
                                                    {"float16", 6}, {"float32", 7}, {"float64", 8},
                                                    {"bfloat16", 9}};
  const auto found = kTypes.find(dtype);
  if (found == kTypes.end()) throw DriverError(1, "tensor map: element type " + dtype + " is not known");
  return found->second;
}

CuTensorMap Encode(const TensorMap& map, CuDevicePtr base) {
  CuTensorMap encoded{};
  KEVIN_CU(TensorMapEncodeTiled, &encoded, DataType(map.dtype), static_cast<uint32_t>(map.sizes.size()),
           reinterpret_cast<void*>(base), map.sizes.data(), map.stride_bytes.data(), map.box.data(),
           map.element_strides.data(), map.interleave, map.swizzle, map.l2_promotion, map.out_of_bounds_nan);
  return encoded;
}

}  // namespace

CallKernels CallKernelsOf(CuHandle trusted_module) {
  CallKernels kernels;
  KEVIN_CU(ModuleGetFunction, &kernels.poison, trusted_module, "kevin_poison");
  KEVIN_CU(ModuleGetFunction, &kernels.nothing, trusted_module, "kevin_nothing");
  return kernels;
}

CandidateModule::CandidateModule(const LaunchPlan& plan, const SlotMemory& memory, const CallKernels& kernels,
                                 CuHandle stream)
    : memory_(memory), kernels_(kernels), stream_(stream) {
  for (const Workspace& workspace : plan.workspaces) {
    workspaces_.emplace_back(static_cast<size_t>(std::max<int64_t>(workspace.bytes, 4)));
  }
  KEVIN_CU(ModuleLoadData, &module_, plan.cubin.data());
  SetConstants(plan);
  KeepGlobals(plan);
  AllowEmpty(plan);
  for (const PlannedOperation& operation : plan.operations) {
    if (const auto* launch = std::get_if<PlannedLaunch>(&operation))
      operations_.emplace_back(Prepare(*launch));
    if (const auto* set = std::get_if<MemorySet>(&operation)) operations_.emplace_back(*set);
    if (const auto* copy = std::get_if<MemoryCopy>(&operation)) operations_.emplace_back(*copy);
  }
}

CandidateModule::~CandidateModule() {
  if (module_) Cu().ModuleUnload(module_);
}

CuDevicePtr CandidateModule::AddressOf(const BufferAddress& address, int slot) const {
  const auto tensors = static_cast<int>(memory_.places.size());
  const auto offset = static_cast<CuDevicePtr>(address.offset_bytes);
  if (address.buffer >= tensors)
    return workspaces_.at(static_cast<size_t>(address.buffer - tensors)).data() + offset;
  const ArgumentPlace& place = memory_.places.at(static_cast<size_t>(address.buffer));
  const CuDevicePtr base = place.output ? memory_.outputs : memory_.inputs;
  return base + place.offset + static_cast<uint64_t>(slot) * place.stride + offset;
}

std::vector<uint8_t> CandidateModule::ArgumentsFor(const PlannedLaunch& planned, int slot) const {
  std::vector<uint8_t> bytes = planned.arguments.bytes;
  for (const auto& pointer : planned.arguments.pointers) {
    const CuDevicePtr address = AddressOf(pointer.address, slot);
    std::memcpy(&bytes.at(static_cast<size_t>(pointer.at)), &address, sizeof(address));
  }
  for (const auto& map : planned.arguments.maps) {
    const CuTensorMap encoded = Encode(map.map, AddressOf(map.map.base, slot));
    std::memcpy(&bytes.at(static_cast<size_t>(map.at)), &encoded, sizeof(encoded));
  }
  return bytes;
}

CandidateModule::Launch CandidateModule::Prepare(const PlannedLaunch& planned) const {
  const KernelLaunch& asked = planned.launch;
  Launch launch;
  KEVIN_CU(ModuleGetFunction, &launch.function, module_, planned.lowered_name.c_str());
  if (asked.shared_bytes > 0) {
    KEVIN_CU(FuncSetAttribute, launch.function, kCuMaxDynamicSharedBytes,
             static_cast<int>(asked.shared_bytes));
  }
  launch.config = {asked.grid.x,
                   asked.grid.y,
                   asked.grid.z,
                   asked.block.x,
                   asked.block.y,
                   asked.block.z,
                   static_cast<unsigned>(asked.shared_bytes),
                   stream_,
                   nullptr,
                   0};
  if (asked.cluster) {
    if (asked.cluster->x * asked.cluster->y * asked.cluster->z > 8)
      KEVIN_CU(FuncSetAttribute, launch.function, kCuNonPortableClusterSize, 1);
    CuLaunchAttribute attribute;
    attribute.id = kCuLaunchCluster;
    attribute.cluster = {asked.cluster->x, asked.cluster->y, asked.cluster->z};
    launch.attributes.push_back(attribute);
  }
  for (const auto& [wanted, id] :
       {std::pair{asked.cooperative, kCuLaunchCooperative},
        std::pair{asked.programmatic && !operations_.empty(), kCuLaunchProgrammatic}}) {
    if (!wanted) continue;
    CuLaunchAttribute attribute;
    attribute.id = id;
    attribute.value = 1;
    launch.attributes.push_back(attribute);
  }
  launch.changes_mode = asked.cooperative || asked.cluster;
  launch.offsets = planned.arguments.offsets;
  for (int slot = 0; slot < memory_.slots; ++slot) launch.arguments.push_back(ArgumentsFor(planned, slot));
  return launch;
}

// The empty kernel takes the configurations of the launches that it stands for.
void CandidateModule::AllowEmpty(const LaunchPlan& plan) const {
  int64_t shared_bytes = 0;
  bool clusters = false;
  for (const PlannedOperation& operation : plan.operations) {
    const auto* planned = std::get_if<PlannedLaunch>(&operation);
    if (!planned || !(planned->launch.cooperative || planned->launch.cluster)) continue;
    shared_bytes = std::max(shared_bytes, planned->launch.shared_bytes);
    clusters |= planned->launch.cluster.has_value();
  }
  if (shared_bytes > 0)
    KEVIN_CU(FuncSetAttribute, kernels_.nothing, kCuMaxDynamicSharedBytes, static_cast<int>(shared_bytes));
  if (clusters) KEVIN_CU(FuncSetAttribute, kernels_.nothing, kCuNonPortableClusterSize, 1);
}

void CandidateModule::SetConstants(const LaunchPlan& plan) const {
  for (const auto& [name, constant] : plan.constants) {
    CuDevicePtr place = 0;
    size_t bytes = 0;
    KEVIN_CU(ModuleGetGlobal, &place, &bytes, module_, name.c_str());
    KEVIN_CU(MemcpyHtoD, place + static_cast<CuDevicePtr>(constant.offset_bytes), constant.bytes.data(),
             constant.bytes.size());
  }
}

void CandidateModule::KeepGlobals(const LaunchPlan& plan) {
  for (const GlobalVariable& variable : plan.globals) {
    Global global;
    // The machine code may lack one that no kernel uses.
    if (Cu().ModuleGetGlobal(&global.place, &global.bytes, module_, variable.name.c_str()) != 0) continue;
    global.pristine = DeviceBuffer(global.bytes);
    KEVIN_CU(MemcpyDtoDAsync, global.pristine.data(), global.place, global.bytes, stream_);
    globals_.push_back(std::move(global));
  }
}

void CandidateModule::Restore(uint64_t seed, bool keeps_globals) {
  for (const DeviceBuffer& workspace : workspaces_) {
    PoisonOnDevice(kernels_.poison, stream_, workspace.data(), workspace.bytes(), PoisonForWorkspace(seed));
    seed += 0x9e3779b97f4a7c15ULL;
  }
  if (keeps_globals) return;
  for (const Global& global : globals_)
    KEVIN_CU(MemcpyDtoDAsync, global.place, global.pristine.data(), global.bytes, stream_);
}

void CandidateModule::Enqueue(int slot, const std::function<void(size_t operation)>& after) {
  size_t number = 0;
  for (Operation& operation : operations_) {
    if (const auto* set = std::get_if<MemorySet>(&operation)) {
      KEVIN_CU(MemsetD8Async, AddressOf(set->place, slot), set->value, static_cast<size_t>(set->bytes),
               stream_);
    } else if (const auto* copy = std::get_if<MemoryCopy>(&operation)) {
      KEVIN_CU(MemcpyDtoDAsync, AddressOf(copy->to, slot), AddressOf(copy->from, slot),
               static_cast<size_t>(copy->bytes), stream_);
    } else {
      auto& launch = std::get<Launch>(operation);
      launch.config.attributes = launch.attributes.data();
      launch.config.attribute_count = static_cast<unsigned>(launch.attributes.size());
      std::vector<uint8_t>& bytes = launch.arguments.at(static_cast<size_t>(slot));
      launch.pointers.resize(launch.offsets.size());  // CUDA allows 4096 one-byte parameters and more
      for (size_t i = 0; i < launch.offsets.size(); ++i)
        launch.pointers[i] = bytes.data() + launch.offsets[i];
      KEVIN_CU(LaunchKernelEx, &launch.config, launch.function, launch.pointers.data(), nullptr);
    }
    if (after) after(number++);
  }
}

void CandidateModule::EnqueueEmpty() {
  for (Operation& operation : operations_) {
    auto* launch = std::get_if<Launch>(&operation);
    if (!launch || !launch->changes_mode) continue;
    launch->config.attributes = launch->attributes.data();
    launch->config.attribute_count = static_cast<unsigned>(launch->attributes.size());
    KEVIN_CU(LaunchKernelEx, &launch->config, kernels_.nothing, nullptr, nullptr);
  }
}

}  // namespace kevin
