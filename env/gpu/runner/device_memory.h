#pragma once
// Memory on the device, and Kevin's own kernels that fill it. Everything here needs a current context. Errors
// are DriverError.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "env/gpu/runner/driver.h"
#include "env/problem/problem.h"
#include "env/process/generator.h"
#include "env/process/shared_memory.h"

namespace kevin {

// Crosses process boundaries as a file descriptor (the driver's virtual memory management). An importing
// process may get a read-only mapping; the hardware enforces it.
class SharedDeviceMemory {
 public:
  SharedDeviceMemory() = default;
  static SharedDeviceMemory Create(int device, size_t bytes);
  static SharedDeviceMemory Import(int device, int fd, size_t bytes, Access access);
  SharedDeviceMemory(SharedDeviceMemory&& other) noexcept;
  SharedDeviceMemory& operator=(SharedDeviceMemory&& other) noexcept;
  ~SharedDeviceMemory();

  CuDevicePtr data() const { return data_; }
  size_t bytes() const { return bytes_; }  // rounded up to the allocation granularity of the device
  Fd Export() const;

 private:
  void Map(int device, Access access);

  CuAllocation allocation_ = 0;
  CuDevicePtr data_ = 0;
  size_t bytes_ = 0;
};

// Private to this process.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();
  CuDevicePtr data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  CuDevicePtr data_ = 0;
  size_t bytes_ = 0;
};

// How the values of an input are drawn on the device, by the trusted kernels: the same values as those of
// env/process/generator.h.
struct Drawing {
  int distribution = 0;  // the trusted kernels' enumerators
  float scale = 1, offset = 0;
  int element_bytes = 4;
  bool whole = false;  // whole numbers, in elements of that many bytes
  int structure = 0;   // TensorSpec::structure; 0: none
  long long rows = 1;
  bool brain = false;   // elements of two bytes are bf16, not fp16
  float row_shift = 0;  // rows are shifted by -row_shift, 0 or row_shift
  long long row_elements = 1;
};

// `member` of the input mixture (0 to kMixtureMembers - 1), for inputs that are drawn from it.
Drawing DrawingOf(const ConcreteTensor& tensor, InputMode mode, int member);

// From the module of the trusted kernels. Throws DriverError.
struct FillKernels {
  CuHandle fill = nullptr, fill_f16 = nullptr, fill_bf16 = nullptr, whole = nullptr, impose = nullptr,
           impose_16 = nullptr;
};
FillKernels FillKernelsOf(CuHandle module);

// Enqueues the filling of `elements` values; `drawing` has the member already. Throws DriverError.
void FillOnDevice(const FillKernels& kernels, CuHandle stream, CuDevicePtr data, int64_t elements,
                  const Drawing& drawing, const ValueStream& tensor);

// Poison: the content of memory that a call may read before it has written it. Every word is drawn from a seed
// that is new in every call, so that no kernel can subtract it or learn it from another word. In half of the
// calls it is a NaN of every floating-point type (as an integer an index out of range), in the others an
// ordinary value of the type of the memory, so that asking for NaN finds nothing out.
enum class PoisonKind { kNan, kFloat, kHalf, kBrain, kWhole, kBits };  // the trusted kernels' enumerators
struct Poison {
  uint64_t seed = 0;
  PoisonKind kind = PoisonKind::kNan;
};
// For memory of a type. From a secret seed: its low bit decides between NaN and ordinary values.
Poison PoisonFor(DType dtype, uint64_t seed);
// For workspaces, whose type is not known: ordinary values are float32 or random bits.
Poison PoisonForWorkspace(uint64_t seed);

// Enqueues the poisoning of memory, whole words of 32 bits; `kernel` is `kevin_poison`. The words are those of
// a region from `first_word` on, a multiple of 4. Throws DriverError.
void PoisonOnDevice(CuHandle kernel, CuHandle stream, CuDevicePtr data, size_t bytes, Poison poison,
                    int64_t first_word = 0);

// The trusted kernels: drawing inputs, poison, comparison, scrubbing and probes. CUDA C++ text, compiled like
// a candidate (for the exact architecture of the device) and loaded by evaluator and runner. Kernels that
// read or write tensors exist for each floating type: kevin_fill, kevin_fill_f16, ... (trusted_kernels.cc.)
const std::string& TrustedKernelText();
const std::vector<std::string>& TrustedKernelNames();

}  // namespace kevin
