#include "env/gpu/launch/list_builder.h"

#include <fmt/format.h>

#include <algorithm>

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
        at, fmt::format("the grid ({}, {}, {}) is no multiple of the cluster ({}, {}, {}); round the grid "
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
