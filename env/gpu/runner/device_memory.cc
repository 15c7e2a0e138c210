#include "env/gpu/runner/device_memory.h"

#include <algorithm>
#include <utility>

#include "env/problem/precision.h"

namespace kevin {
namespace {

constexpr int kPosixDescriptor = 1;
constexpr int kReadOnly = 1, kReadWrite = 3;

CuMemAllocationProp PropertiesOn(int device) {
  CuMemAllocationProp properties;
  properties.location.id = device;
  return properties;
}

size_t RoundUp(int device, size_t bytes) {
  const CuMemAllocationProp properties = PropertiesOn(device);
  size_t granularity = 0;
  KEVIN_CU(MemGetAllocationGranularity, &granularity, &properties, 0);
  return (bytes + granularity - 1) / granularity * granularity;
}

}  // namespace

SharedDeviceMemory SharedDeviceMemory::Create(int device, size_t bytes) {
  SharedDeviceMemory memory;
  memory.bytes_ = RoundUp(device, bytes);
  const CuMemAllocationProp properties = PropertiesOn(device);
  KEVIN_CU(MemCreate, &memory.allocation_, memory.bytes_, &properties, 0);
  memory.Map(device, Access::kReadWrite);
  return memory;
}

SharedDeviceMemory SharedDeviceMemory::Import(int device, int fd, size_t bytes, Access access) {
  SharedDeviceMemory memory;
  memory.bytes_ = RoundUp(device, bytes);
  KEVIN_CU(MemImportFromShareableHandle, &memory.allocation_,
           reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kPosixDescriptor);
  memory.Map(device, access);
  return memory;
}

void SharedDeviceMemory::Map(int device, Access access) {
  KEVIN_CU(MemAddressReserve, &data_, bytes_, 0, 0, 0);
  KEVIN_CU(MemMap, data_, bytes_, 0, allocation_, 0);
  CuMemAccess rights;
  rights.location.id = device;
  rights.flags = access == Access::kReadOnly ? kReadOnly : kReadWrite;
  KEVIN_CU(MemSetAccess, data_, bytes_, &rights, 1);
}

Fd SharedDeviceMemory::Export() const {
  int fd = -1;
  KEVIN_CU(MemExportToShareableHandle, &fd, allocation_, kPosixDescriptor, 0);
  return Fd(fd);
}

SharedDeviceMemory::SharedDeviceMemory(SharedDeviceMemory&& other) noexcept { *this = std::move(other); }

SharedDeviceMemory& SharedDeviceMemory::operator=(SharedDeviceMemory&& other) noexcept {
  std::swap(allocation_, other.allocation_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedDeviceMemory::~SharedDeviceMemory() {
  if (data_) {
    Cu().MemUnmap(data_, bytes_);
    Cu().MemAddressFree(data_, bytes_);
  }
  if (allocation_) Cu().MemRelease(allocation_);
}

DeviceBuffer::DeviceBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes > 0) KEVIN_CU(MemAlloc, &data_, bytes);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_) Cu().MemFree(data_);
}

Drawing DrawingOf(const ConcreteTensor& tensor, InputMode mode, int member) {
  enum { kNormal, kUniform, kUniform01, kHeavyTailed, kPositive, kSigns };
  const TensorSpec& spec = tensor.spec;
  Drawing drawing{kNormal, static_cast<float>(spec.scale), static_cast<float>(spec.offset)};
  drawing.element_bytes = static_cast<int>(DTypeBytes(spec.dtype));
  drawing.whole = !IsFloating(spec.dtype);
  drawing.brain = spec.dtype == DType::kBF16;
  drawing.structure = static_cast<int>(spec.structure);
  drawing.rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  if (mode == InputMode::kKernelBench && !spec.is_param && IsFloating(spec.dtype) &&
      spec.distribution != Distribution::kSigns) {
    drawing.distribution = kUniform01;
    drawing.scale = 1;
    drawing.offset = 0;
    return drawing;
  }
  const auto shift_rows = [&] {
    if (spec.row_shift == 0 || member != 3) return;
    drawing.row_shift = static_cast<float>(spec.row_shift);
    drawing.row_elements = spec.row_elements;
  };
  switch (spec.distribution) {
    case Distribution::kNormal:
      shift_rows();
      break;
    case Distribution::kStored:  // the caller copies them
      break;
    case Distribution::kUniform:
      drawing.distribution = kUniform;
      break;
    case Distribution::kUniform01:
      drawing.distribution = kUniform01;
      break;
    case Distribution::kHeavyTailed:
      drawing.distribution = kHeavyTailed;
      break;
    case Distribution::kPositive:
      drawing.distribution = kPositive;
      break;
    case Distribution::kSigns:
      drawing.distribution = kSigns;
      break;
    case Distribution::kMixture:
      drawing.distribution = member == 1 ? kUniform : member == 2 ? kHeavyTailed : kNormal;
      drawing.scale *= member == 1 ? 2.0F : member == 3 ? 8.0F : 1.0F;
      shift_rows();
      break;
  }
  return drawing;
}

FillKernels FillKernelsOf(CuHandle module) {
  FillKernels kernels;
  KEVIN_CU(ModuleGetFunction, &kernels.fill, module, "kevin_fill");
  KEVIN_CU(ModuleGetFunction, &kernels.fill_f16, module, "kevin_fill_f16");
  KEVIN_CU(ModuleGetFunction, &kernels.fill_bf16, module, "kevin_fill_bf16");
  KEVIN_CU(ModuleGetFunction, &kernels.impose_16, module, "kevin_impose_16");
  KEVIN_CU(ModuleGetFunction, &kernels.whole, module, "kevin_fill_whole");
  KEVIN_CU(ModuleGetFunction, &kernels.impose, module, "kevin_impose");
  return kernels;
}

void FillOnDevice(const FillKernels& kernels, CuHandle stream, CuDevicePtr data, int64_t elements,
                  const Drawing& drawing, const ValueStream& tensor) {
  static constexpr int64_t kMostBlocks = 2112, kThreads = 256, kElementsPerBlock = kThreads * 16;
  Drawing by = drawing;
  long long count = elements;
  struct {
    SecretKey key;
    uint64_t nonce;
  } keystream = {tensor.key, tensor.nonce};  // as in trusted_kernels.cc
  struct {
    long long elements;
    float shift;
  } rows = {by.row_elements, by.row_shift};  // as in trusted_kernels.cc
  void* floats_filled[] = {&data, &count, &by.distribution, &keystream, &by.scale, &by.offset, &rows};
  void* whole_filled[] = {&data,     &count,     &by.distribution, &keystream,
                          &by.scale, &by.offset, &by.element_bytes};
  CuLaunchConfig config;
  const auto blocks_for = [](int64_t values_per_block, int64_t values) {
    return static_cast<unsigned>(
        std::clamp<int64_t>((values + values_per_block - 1) / values_per_block, 1, kMostBlocks));
  };
  config.grid_x = blocks_for(kElementsPerBlock, elements);
  config.block_x = kThreads;
  config.stream = stream;
  const bool narrow = drawing.element_bytes == 2;
  const CuHandle floats = !narrow ? kernels.fill : drawing.brain ? kernels.fill_bf16 : kernels.fill_f16;
  KEVIN_CU(LaunchKernelEx, &config, drawing.whole ? kernels.whole : floats,
           drawing.whole ? whole_filled : floats_filled, nullptr);
  if (drawing.structure == 0) return;
  config.grid_x = blocks_for(4 * kThreads, elements);
  void* imposed[] = {&data, &by.rows, &by.structure};
  KEVIN_CU(LaunchKernelEx, &config, narrow ? kernels.impose_16 : kernels.impose, imposed, nullptr);
}

Poison PoisonFor(DType dtype, uint64_t seed) {
  if ((seed & 1) == 0) return {seed, PoisonKind::kNan};
  return {seed, dtype == DType::kF16    ? PoisonKind::kHalf
                : dtype == DType::kBF16 ? PoisonKind::kBrain
                : dtype == DType::kI64  ? PoisonKind::kWhole
                                        : PoisonKind::kFloat};
}

Poison PoisonForWorkspace(uint64_t seed) {
  if ((seed & 1) == 0) return {seed, PoisonKind::kNan};
  return {seed, (seed & 2) == 0 ? PoisonKind::kFloat : PoisonKind::kBits};
}

void PoisonOnDevice(CuHandle kernel, CuHandle stream, CuDevicePtr data, size_t bytes, Poison poison,
                    int64_t first_word) {
  constexpr size_t kMostBlocks = 2112, kWordsPerBlock = 1024;
  auto first = static_cast<long long>(first_word), words = static_cast<long long>(bytes / 4);
  auto kind = static_cast<int>(poison.kind);
  void* arguments[] = {&data, &first, &words, &poison.seed, &kind};
  CuLaunchConfig config;
  config.grid_x = static_cast<unsigned>(std::clamp<size_t>(bytes / 4 / kWordsPerBlock, 1, kMostBlocks));
  config.block_x = 256;
  config.stream = stream;
  KEVIN_CU(LaunchKernelEx, &config, kernel, arguments, nullptr);
}

}  // namespace kevin
