#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "env/gpu/compile/gpu_module.h"
#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {
namespace {

constexpr Extents kMaxGrid = {INT32_MAX, 65535, 65535};
constexpr Extents kMaxBlock = {1024, 1024, 64};
constexpr Extents kMaxCluster = {8, 8, 8};
constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxSharedBytes = 227 << 10;
constexpr int64_t kMaxClusterBlocks = 8;  // more needs an opt-in that not every device grants
constexpr size_t kMaxNotes = 20;
constexpr int64_t kMaxConstantBytes = 64 << 10;

}  // namespace

void ListBuilder::AddTensor(const std::string& name, int64_t bytes, bool writable) {
  buffers_.push_back({"`" + name + "`", bytes, writable});
}

void ListBuilder::AddNote(size_t at, const std::string& note) {
  const std::string line = fmt::format("line {}: {}", source_.Line(at), note);
  const bool known = std::find(notes_.begin(), notes_.end(), line) != notes_.end();
  if (!known && notes_.size() < kMaxNotes) notes_.push_back(line);
}

void ListBuilder::AddOperation(size_t at, LaunchOperation operation) {
  if (static_cast<int64_t>(list_.operations.size()) >= limits_.operations) {
    source_.Fail(at, fmt::format("launch has more than {} operations; do more work in one kernel",
                                 limits_.operations));
  }
  list_.operations.push_back(std::move(operation));
}

Value ListBuilder::AddWorkspace(size_t at, const Type& element, int64_t count, bool zeroed) {
  const int64_t element_bytes = BytesOf(element);
  if (element_bytes == 0) {
    source_.Fail(at,
                 fmt::format("a workspace cannot hold {}; write workspace<float>(count)", TypeText(element)));
  }
  if (count <= 0) {
    source_.Fail(at, fmt::format("a workspace of {} elements; write a count of at least 1", count));
  }
  const Integer bytes = Integer{count} * element_bytes;
  if (workspace_bytes_ + bytes > limits_.workspace_bytes) {
    source_.Fail(at,
                 fmt::format("workspaces of {} bytes together are more than the {} allowed; use less scratch "
                             "memory",
                             ToText(workspace_bytes_ + bytes), limits_.workspace_bytes));
  }
  if (static_cast<int64_t>(list_.workspaces.size()) >= limits_.operations) {
    source_.Fail(at, fmt::format("launch has more than {} workspaces; allocate once, outside the loop",
                                 limits_.operations));
  }
  workspace_bytes_ += static_cast<int64_t>(bytes);
  list_.workspaces.push_back({static_cast<int64_t>(bytes), zeroed});
  const int buffer = static_cast<int>(buffers_.size());
  buffers_.push_back(
      {fmt::format("the workspace of line {}", source_.Line(at)), static_cast<int64_t>(bytes), true});
  if (zeroed) AddOperation(at, MemorySet{{buffer, 0}, 0, static_cast<int64_t>(bytes)});
  return {{element.info, element.pointers + 1}, DevicePointer{buffer, 0}};
}

std::string ListBuilder::BufferText(int buffer) const {
  const Buffer& b = buffers_[static_cast<size_t>(buffer)];
  return fmt::format("{} ({} bytes)", b.name, b.bytes);
}

LaunchArgument ListBuilder::Address(size_t at, const Value& pointer) const {
  const auto* device = std::get_if<DevicePointer>(&pointer.data);
  if (!device)
    source_.Fail(at, fmt::format("{} is not on the device; pass a tensor or workspace", KindOf(pointer)));
  if (device->buffer < 0) return NullPointer{};
  if (device->offset < 0 || device->offset > buffers_[static_cast<size_t>(device->buffer)].bytes) {
    source_.Fail(at, fmt::format("byte {} is outside {}; check the offset", device->offset,
                                 BufferText(device->buffer)));
  }
  const int align = pointer.type.pointers == 1 ? std::max(pointer.type.info->align, 1) : 8;
  if (device->offset % align != 0) {
    source_.Fail(
        at, fmt::format("byte {} of {} is not aligned for {}; use an offset that is a multiple of {} bytes",
                        device->offset, BufferText(device->buffer), TypeText(pointer.type), align));
  }
  return BufferAddress{device->buffer, device->offset};
}

BufferAddress ListBuilder::Place(size_t at, const Value& pointer, int64_t bytes, bool written) const {
  const LaunchArgument address = Address(at, pointer);
  const auto* place = std::get_if<BufferAddress>(&address);
  if (!place) source_.Fail(at, "this is a null pointer; pass a tensor or workspace");
  const Buffer& buffer = buffers_[static_cast<size_t>(place->buffer)];
  if (bytes < 0 || bytes > buffer.bytes - place->offset_bytes) {
    source_.Fail(at, fmt::format("{} bytes from byte {} on are more than {} has; check the size", bytes,
                                 place->offset_bytes, BufferText(place->buffer)));
  }
  if (written && !buffer.writable) {
    source_.Fail(at,
                 fmt::format("{} is an input, and inputs are read-only; write to an output or a workspace",
                             buffer.name));
  }
  return *place;
}

void ListBuilder::AddMemorySet(size_t at, const Value& place, int64_t value, int64_t bytes) {
  const BufferAddress address = Place(at, place, bytes, true);
  AddOperation(at, MemorySet{address, static_cast<uint8_t>(value & 0xff), bytes});
}

void ListBuilder::AddMemoryCopy(size_t at, const Value& to, const Value& from, int64_t bytes) {
  const BufferAddress target = Place(at, to, bytes, true), origin = Place(at, from, bytes, false);
  const bool overlap = target.buffer == origin.buffer && bytes > 0 &&
                       std::max(target.offset_bytes, origin.offset_bytes) <
                           std::min(target.offset_bytes, origin.offset_bytes) + bytes;
  if (overlap) source_.Fail(at, "the copy's source and target overlap; copy through a workspace");
  AddOperation(at, MemoryCopy{target, origin, bytes});
}

Dim3 ListBuilder::Checked(size_t at, const char* what, const Extents& extents, const Extents& limits) const {
  for (size_t i = 0; i < 3; ++i) {
    const char axis = "xyz"[i];
    if (extents[i] <= 0) {
      source_.Fail(at, fmt::format("{}.{} is {}; write at least 1", what, axis, extents[i]));
    }
    if (extents[i] > limits[i]) {
      source_.Fail(at, fmt::format("{}.{} is {}, and CUDA allows {}; write a smaller {}", what, axis,
                                   extents[i], limits[i], what));
    }
  }
  return {static_cast<uint32_t>(extents[0]), static_cast<uint32_t>(extents[1]),
          static_cast<uint32_t>(extents[2])};
}

void ListBuilder::ApplyExtra(size_t at, const LaunchExtra& extra, KernelLaunch* launch) {
  if (extra.kind == LaunchExtra::kCooperative) launch->cooperative = true;
  if (extra.kind == LaunchExtra::kProgrammatic) {
    const bool first = std::none_of(
        list_.operations.begin(), list_.operations.end(),
        [](const LaunchOperation& operation) { return std::holds_alternative<KernelLaunch>(operation); });
    launch->programmatic = !first;
    if (first) AddNote(at, "`programmatic` does nothing on the first launch");
  }
  if (extra.kind != LaunchExtra::kCluster) return;
  launch->cluster = Checked(at, "cluster", extra.cluster, kMaxCluster);
  const int64_t blocks = extra.cluster[0] * extra.cluster[1] * extra.cluster[2];
  if (blocks > kMaxClusterBlocks) {
    source_.Fail(
        at, fmt::format("a cluster of {} blocks, and every device allows {}; write a smaller cluster", blocks,
                        kMaxClusterBlocks));
  }
  const Dim3& grid = launch->grid;
  if (grid.x % launch->cluster->x || grid.y % launch->cluster->y || grid.z % launch->cluster->z) {
    source_.Fail(
        at, fmt::format("the grid ({}, {}, {}) is not a multiple of the cluster ({}, {}, {}); round the grid "
                        "up",
                        grid.x, grid.y, grid.z, extra.cluster[0], extra.cluster[1], extra.cluster[2]));
  }
}

void ListBuilder::AddLaunch(size_t at, const std::string& kernel, const LaunchConfiguration& configuration,
                            std::vector<LaunchArgument> arguments) {
  KernelLaunch launch;
  launch.kernel = kernel;
  launch.grid = Checked(at, "grid", configuration.grid, kMaxGrid);
  launch.block = Checked(at, "block", configuration.block, kMaxBlock);
  const int64_t threads = configuration.block[0] * configuration.block[1] * configuration.block[2];
  if (threads > kMaxThreads) {
    source_.Fail(at, fmt::format("a block of {} threads, and CUDA allows {}; write a smaller block", threads,
                                 kMaxThreads));
  }
  if (configuration.shared_bytes < 0 || configuration.shared_bytes > kMaxSharedBytes) {
    source_.Fail(at, fmt::format("{} bytes of dynamic shared memory, and a block may have {}; use less",
                                 configuration.shared_bytes, kMaxSharedBytes));
  }
  launch.shared_bytes = configuration.shared_bytes;
  launch.arguments = std::move(arguments);
  launch.line = source_.Line(at);
  for (const LaunchExtra& extra : configuration.extras) ApplyExtra(at, extra, &launch);
  kernels_.insert(kernel);
  AddOperation(at, std::move(launch));
}

void ListBuilder::AddConstant(size_t at, const std::string& symbol, int64_t offset,
                              std::vector<uint8_t> bytes) {
  constant_bytes_ += static_cast<int64_t>(bytes.size());
  if (constant_bytes_ > kMaxConstantBytes) {
    source_.Fail(at, fmt::format("more than {} bytes of constants; put larger tables into a workspace",
                                 kMaxConstantBytes));
  }
  list_.constants.push_back({symbol, offset, std::move(bytes)});
}

}  // namespace kevin::launch

namespace kevin {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

// Round to nearest even, as hardware does.
uint16_t HalfBits(double value) {
  if (std::isnan(value)) return 0x7fff;
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (magnitude >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int step = std::max(exponent - 11, -24);  // 2^step: distance of neighbouring halves
  const double units = std::nearbyint(std::ldexp(magnitude, -step));
  // With the exponent's field added, a carry out of the mantissa increments the exponent.
  const int field = step == -24 ? 0 : step + 24;
  return static_cast<uint16_t>(sign + field * 1024 + static_cast<int>(units));
}

uint16_t Bfloat16Bits(double value) {
  if (std::isnan(value)) return 0x7fff;
  // Straight from the double: rounding to float first could round twice.
  const auto single = static_cast<float>(value);
  auto bits = std::bit_cast<uint32_t>(single);
  const double error = value - static_cast<double>(single);
  const uint32_t rest = bits & 0xffff;
  const bool odd = bits >> 16 & 1;
  const bool larger = (error > 0) != std::signbit(value) && error != 0;
  const bool up = rest > 0x8000 || (rest == 0x8000 && (error == 0 ? odd : larger));
  if (!std::isinf(single) && up) bits += 0x10000;
  return static_cast<uint16_t>(bits >> 16);
}

bool IsInteger(const KernelParameter& parameter) {
  const char kind = parameter.type.empty() ? ' ' : parameter.type[0];
  const bool bits = kind == 'b' && parameter.type != "b8" && parameter.bytes > 2;
  return kind == 'u' || kind == 's' || bits || (parameter.type == "b8" && parameter.bytes == 1);
}

bool IsHalf(const KernelParameter& parameter) {
  return parameter.bytes == 2 && (parameter.type == "b8" || parameter.type == "b16" ||
                                  parameter.type == "f16" || parameter.type == "bf16");
}

class Encoder {
 public:
  Encoder(const KernelLaunch& launch, const KernelInfo& kernel) : launch_(launch), kernel_(kernel) {}

  EncodedArguments Run(std::string* error) {
    const size_t wanted = kernel_.parameters.size();
    if (launch_.arguments.size() != wanted) {
      *error = fmt::format("kernel `{}` takes {} argument{} and gets {}; pass one for each parameter",
                           launch_.kernel, wanted, wanted == 1 ? "" : "s", launch_.arguments.size());
      return {};
    }
    for (index_ = 0; index_ < wanted && error_.empty(); ++index_) {
      const KernelParameter& parameter = kernel_.parameters[index_];
      const int64_t align = std::max<int64_t>(parameter.align > 0 ? parameter.align : parameter.bytes, 1);
      at_ = (static_cast<int64_t>(result_.bytes.size()) + align - 1) / align * align;
      result_.offsets.push_back(at_);
      result_.bytes.resize(static_cast<size_t>(at_ + parameter.bytes));
      Encode(launch_.arguments[index_], parameter);
    }
    *error = error_;
    return error_.empty() ? std::move(result_) : EncodedArguments{};
  }

 private:
  void Fail(const std::string& what) {
    error_ = fmt::format("argument {} of `{}`: {}", index_ + 1, launch_.kernel, what);
  }

  void Put(uint64_t bits, int64_t bytes) {
    std::memcpy(result_.bytes.data() + at_, &bits, static_cast<size_t>(std::min<int64_t>(bytes, 8)));
  }

  void Encode(const LaunchArgument& argument, const KernelParameter& parameter) {
    std::visit(Overloaded{[&](int64_t value) { Integer(value, parameter); },
                          [&](bool value) { Integer(value ? 1 : 0, parameter); },
                          [&](double value) { Floating(value, parameter); },
                          [&](const BufferAddress& address) {
                            if (Address(parameter)) result_.pointers.push_back({at_, address});
                          },
                          [&](const NullPointer&) { Address(parameter); },
                          [&](const TensorMap& map) {
                            if (parameter.type != "b8" || parameter.bytes != 128 || parameter.align < 64) {
                              return Fail(
                                  "a tensor map fits only `const __grid_constant__ CUtensorMap`, and the "
                                  "kernel declares another type");
                            }
                            result_.maps.push_back({at_, map});
                          }},
               argument);
  }

  bool Address(const KernelParameter& parameter) {
    const bool fits = IsInteger(parameter) && parameter.bytes == 8;
    if (!fits) Fail(fmt::format("a pointer does not fit into a parameter of {} bytes", parameter.bytes));
    return fits;
  }

  void Integer(int64_t value, const KernelParameter& parameter) {
    if (!IsInteger(parameter)) return Floating(static_cast<double>(value), parameter);
    const int64_t bits = parameter.bytes * 8;
    // PTX declares signed and unsigned integers alike, so either reading will do.
    if (bits < 64 && (value < -(int64_t{1} << (bits - 1)) || value >= (int64_t{1} << bits))) {
      return Fail(
          fmt::format("{} does not fit into a {}-bit integer parameter; declare it long", value, bits));
    }
    Put(static_cast<uint64_t>(value), parameter.bytes);
  }

  void Floating(double value, const KernelParameter& parameter) {
    if (parameter.type == "f32") return Put(std::bit_cast<uint32_t>(Single(value)), 4);
    if (parameter.type == "f64") return Put(std::bit_cast<uint64_t>(value), 8);
    if (IsHalf(parameter)) return Half(value, parameter);
    if (IsInteger(parameter)) {
      const double whole = std::trunc(value);
      if (std::fabs(whole) < 9.2e18) return Integer(static_cast<int64_t>(whole), parameter);
      return Fail(fmt::format("{} does not fit into a {}-bit integer parameter; pass a smaller number", value,
                              parameter.bytes * 8));
    }
    Fail(fmt::format("a number does not fit into a struct of {} bytes; pass its members as numbers",
                     parameter.bytes));
  }

  static float Single(double value) {
    if (std::isfinite(value) && std::fabs(value) >= 3.4028235677973366e38) {
      return std::copysign(HUGE_VALF, static_cast<float>(std::copysign(1.0, value)));
    }
    return static_cast<float>(value);
  }

  // A struct of two bytes is __half or __nv_bfloat16; only the mangled name distinguishes them.
  void Half(double value, const KernelParameter& parameter) {
    const bool half = kernel_.lowered_name.find("6__half") != std::string::npos;
    const bool brain =
        kernel_.lowered_name.find("13__nv_bfloat16") != std::string::npos || parameter.type == "bf16";
    if (half && brain)
      return Fail("the kernel has __half and __nv_bfloat16 parameters; let this one be a float");
    Put(brain ? Bfloat16Bits(value) : HalfBits(value), 2);
  }

  const KernelLaunch& launch_;
  const KernelInfo& kernel_;
  EncodedArguments result_;
  std::string error_;
  size_t index_ = 0;
  int64_t at_ = 0;
};

}  // namespace

EncodedArguments EncodeArguments(const KernelLaunch& launch, const KernelInfo& kernel, std::string* error) {
  return Encoder(launch, kernel).Run(error);
}

}  // namespace kevin
