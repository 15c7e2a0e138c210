#pragma once
// The reference: a problem's TorchScript text, compiled by libtorch and run in this process. An object is
// used by one thread at a time; libtorch computes with `threads` threads. No other C++ code of the
// environment uses torch.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

// A contiguous tensor in memory of another owner.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// The fp64 values of one output. Owns its memory.
struct DoubleTensor {
  std::shared_ptr<const double> data;
  size_t elements = 0;
  std::span<const double> values() const { return {data.get(), elements}; }
};

// Opens libtorch's CUDA library and makes the context of `device` current. Must precede References on that
// device. Throws Error(kMachine) if this machine's torch has no CUDA.
void LoadTorchCuda(int device);

// On CUDA: what torch's allocator keeps of freed tensors. It counts as free for References of this process, and goes
// back to the device by ReleaseTorchCache.
int64_t TorchCacheBytes(int device);
void ReleaseTorchCache();
// What tensors and libraries of this process have of torch's allocator: now, and the most since the call before.
struct TorchBytes {
  int64_t now = 0, most = 0;
};
TorchBytes TakeTorchBytes(int device);
// How often torch's allocator found the device full: and gave back what it kept to have more; and had nothing even so. Operators
// catch the second: cuDNN then takes an algorithm with less workspace, and keeps to it in this process.
struct TorchShortages {
  int64_t waits = 0, failures = 0;
};
TorchShortages CountTorchShortages(int device);

struct ReferenceOptions {
  int threads = 1;       // of the CPU
  int cuda_device = -1;  // >= 0: all tensors and pointers are on that device; LoadTorchCuda first
  bool tf32 = false;     // on CUDA: eager may use TF32
};

class Reference {
 public:
  // Compiles the text. Throws Error(kBadRequest) with the compiler's message if it is not TorchScript, and
  // if it calls an operator that no reference may call (env/problem/reference_operators.h).
  Reference(const Problem& problem, const ReferenceOptions& options);
  Reference(const Problem& problem, int threads) : Reference(problem, ReferenceOptions{threads, -1, false}) {}
  ~Reference();  // on CUDA: returns unused memory of the allocator to the device
  Reference(Reference&&) noexcept;

  // Sets what torch keeps for the whole process (threads, TF32, the current stream) as this object needs it. Where a
  // process has several, before the first call to another one than last time; the constructor does it too.
  void Activate();
  // Stores the inputs of a slot, so that RunSlot does the computation only. The memory of the views must stay
  // valid.
  void BindSlot(size_t slot, const std::vector<TensorView>& inputs);
  // Computes the slot's outputs and keeps them until the slot runs again. Writes into the slot's input-outputs.
  void RunSlot(size_t slot);
  // The same without cuDNN, oneDNN, NNPACK and fused attention, and on a CPU with one thread: sums have
  // another order, like those of a correct candidate. May be many times slower.
  void RunSlotOtherwise(size_t slot);
  // Contractions are convolutions and products of matrices; the reference calls them in a fixed order. How many
  // there are in fp64:
  size_t CountContractions(size_t slot);
  // The same as RunSlot in fp64, but for those contractions that `is_coarse` names by their number: their inputs
  // are rounded to nearest even at `dropped` bits less than the mantissa of float32 (13: TF32, 16: bf16).
  // Outputs are then rounded to their types.
  void RunSlotCoarsely(size_t slot, int dropped, const std::function<bool(size_t number)>& is_coarse);
  // The outputs of the slot's last run, contiguous, in memory of torch's allocator also where the reference returns
  // an input or a view of one; then its input-outputs where they are bound. Valid until the slot runs again. Throws
  // Error(kBadRequest) if their number, dtype or shape differs from the problem file (`expected`).
  std::vector<TensorView> SlotOutputs(size_t slot, const std::vector<ConcreteTensor>& expected);
  void DropOutputs();

  // The truth: the same computation with every floating-point input widened to fp64. The inputs stay as they are; the
  // values after the call of input-outputs come behind the outputs. An index output gives
  // the value of the index.
  std::vector<DoubleTensor> Truth(const std::vector<TensorView>& inputs);
  // On CUDA: the driver's handle of the stream of all work. This class does not synchronise it.
  void* Stream() const;

  // The problem's `scale` function in fp64 for its first output; empty if the problem has none.
  DoubleTensor Scale(const std::vector<TensorView>& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "2.11.0", for the key of an evaluation.
std::string TorchVersion();

// Eager at its best: an allocator for all CPU tensors of this process that keeps freed blocks, like that of
// the GPU. Without it eager asks the system for new pages for every large output and is 3 to 6 times slower.
// With an arena (mapped memory of `bytes` bytes, which must outlive all tensors), blocks come from it, so
// that another process that maps the same memory can read them; else from the heap. Call once, before any
// tensor is made.
void InstallCachingAllocator(std::byte* arena, size_t bytes);

}  // namespace kevin
