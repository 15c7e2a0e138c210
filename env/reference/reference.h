#pragma once
// The reference: a problem's TorchScript text, compiled by libtorch and run in this process. The only torch
// code of the environment. One object, one thread at a time; libtorch uses `threads` threads inside.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

// A contiguous tensor in memory that somebody else owns.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// fp64 values of one output. Keeps its memory alive by itself.
struct DoubleTensor {
  std::shared_ptr<const double> data;
  size_t elements = 0;
  std::span<const double> values() const { return {data.get(), elements}; }
};

// Opens libtorch's CUDA part and makes its context on `device` current: afterwards References may be on that
// device. Throws Error(kMachine) when this machine's torch has no CUDA.
void LoadTorchCuda(int device);

struct ReferenceOptions {
  int threads = 1;  // of the CPU
  int cuda_device =
      -1;  // >= 0: tensors are on that device (all pointers are device pointers); LoadTorchCuda first
  bool tf32 = false;  // on CUDA: eager may use TF32
};

class Reference {
 public:
  // Compiles the text. Throws Error(kBadRequest) with the compiler's message when it is not TorchScript.
  Reference(const Problem& problem, const ReferenceOptions& options);
  Reference(const Problem& problem, int threads) : Reference(problem, ReferenceOptions{threads, -1, false}) {}
  ~Reference();  // on CUDA: gives what its allocator holds unused back to the device
  Reference(Reference&&) noexcept;

  // Eager: remembers the inputs of a slot, so that RunSlot does nothing but the computation. The memory
  // behind the views must stay.
  void BindSlot(size_t slot, const std::vector<TensorView>& inputs);
  // Computes the slot's outputs and keeps them until the slot runs again.
  void RunSlot(size_t slot);
  // The same without cuDNN, oneDNN, NNPACK and fused attention, and on a CPU by one thread: sums are added up
  // in another order, as an honest candidate's are. May be many times slower.
  void RunSlotOtherwise(size_t slot);
  // The outputs of the slot's last run, made contiguous if they were not. Valid until it runs again. Throws
  // Error(kBadRequest) when number, dtype or shape is not what the problem file says (`expected`).
  std::vector<TensorView> SlotOutputs(size_t slot, const std::vector<ConcreteTensor>& expected);
  void DropOutputs();

  // The same computation with every floating-point input widened to fp64: the truth. Index outputs come as
  // the index's value.
  std::vector<DoubleTensor> Truth(const std::vector<TensorView>& inputs);
  // On CUDA: the driver's handle of the stream that everything is put on; nothing waits for it here.
  void* Stream() const;

  // The problem's `scale` function in fp64 for its first output; empty when the problem has none.
  DoubleTensor Scale(const std::vector<TensorView>& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "2.11.0", for the key of an evaluation.
std::string TorchVersion();

}  // namespace kevin
