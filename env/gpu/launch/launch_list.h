#pragma once
// The result of a candidate's `launch` function with known shapes: a flat list of operations on numbered
// buffers. It is all of the host side of a candidate. It is stored with the candidate and replayed for every
// call; it never runs as code. Plain values; no CUDA types.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kevin {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dim3&) const = default;
};

// A place in one of the numbered buffers: first the arguments of `launch` (SizedProblem::arguments), then the
// workspaces of the list.
struct BufferAddress {
  int buffer = 0;
  int64_t offset_bytes = 0;
  bool operator==(const BufferAddress&) const = default;
};

// A tensor map for TMA, as cuTensorMapEncodeTiled takes it. Dimensions innermost first.
struct TensorMap {
  std::string dtype;  // "float32", "float16", "bfloat16", "int32", "uint8"
  BufferAddress base;
  std::vector<uint64_t> sizes;         // elements
  std::vector<uint64_t> stride_bytes;  // of dimensions 1 and up
  std::vector<uint32_t> box, element_strides;
  int interleave = 0, swizzle = 0, l2_promotion = 0, out_of_bounds_nan = 0;  // CUDA's enumerators
  bool operator==(const TensorMap&) const = default;
};

// One argument of a kernel before the parameter types of the kernel are known (EncodeArguments applies them).
struct NullPointer {
  bool operator==(const NullPointer&) const = default;
};
using LaunchArgument = std::variant<int64_t, double, bool, BufferAddress, NullPointer, TensorMap>;

struct KernelLaunch {
  std::string kernel;  // as an NVRTC name expression: "relu", "softmax<float, 256>"
  Dim3 grid, block;
  int64_t shared_bytes = 0;     // dynamic
  std::optional<Dim3> cluster;  // thread blocks in a cluster
  bool cooperative = false;
  bool programmatic = false;  // may start before the previous launch of the same call has ended
  std::vector<LaunchArgument> arguments;
  int line = 0;  // in the candidate's text
  bool operator==(const KernelLaunch&) const = default;
};
struct MemorySet {
  BufferAddress place;
  uint8_t value = 0;
  int64_t bytes = 0;
  bool operator==(const MemorySet&) const = default;
};
struct MemoryCopy {  // within the device
  BufferAddress to, from;
  int64_t bytes = 0;
  bool operator==(const MemoryCopy&) const = default;
};
using LaunchOperation = std::variant<KernelLaunch, MemorySet, MemoryCopy>;

// Scratch memory of one call: poisoned before each call, or zeroed within the time of the call.
struct Workspace {
  int64_t bytes = 0;
  bool zeroed = false;  // `operations` has the MemorySet
  bool operator==(const Workspace&) const = default;
};

// A __constant__ variable and its initial bytes.
struct ConstantValue {
  std::string symbol;  // name expression: "coefficients"
  int64_t offset_bytes = 0;
  std::vector<uint8_t> bytes;
  bool operator==(const ConstantValue&) const = default;
};

struct LaunchList {
  std::vector<Workspace> workspaces;
  std::vector<LaunchOperation> operations;
  std::vector<ConstantValue> constants;
  bool operator==(const LaunchList&) const = default;
};

// JSON, for the store and between processes. Reading throws Error(kBroken) when the text is not a launch
// list.
std::string LaunchListToText(const LaunchList& list);
LaunchList LaunchListFromText(const std::string& text);

}  // namespace kevin
