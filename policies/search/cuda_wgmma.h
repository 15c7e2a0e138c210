#pragma once
// Internal to the CUDA writer: products in 16 bits by wgmma. Operands come by TMA: matrices as they are, others after a copy
// in rows of whole 16 bytes. Convolutions of all kinds are products of the weights with a copy of the input in which the
// channels of a position lie together: the positions of all images are one line, with zeros between rows, so that a tap is
// a shift of the whole line.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/search/cuda_contraction.h"

namespace kevin::search {

// The text: ContractTiles and its parts.
std::string CudaContractionWgmma(bool is_brain);

// The right operand as windows of a tensor: one loop of k is the channel, each other one moves along a loop of n (a
// tap), or has a dimension of its own.
struct CudaWindows {
  // Input position = stride * n + step * k + first, within [0, size), else 0. Absent loops have the variable -1.
  struct Dimension {
    Loop n{-1, 1}, k{-1, 1};
    int64_t stride = 1, step = 0, unit = 1;  // unit: elements of memory from a position to the next
    int64_t size = 1;
    ExprPtr first = Int(0);  // depends on batch
    // Positions p * stride + phase are apart: `pitch` counts p, with the zeros after them.
    int64_t pitch = 1;
  };
  std::vector<Dimension> dimensions;  // the last is the innermost of the results
  int buffer = -1;
  size_t channel = 0;                     // among the loops of k
  int64_t channel_stride = 0, start = 0;  // in elements
  int group = -1;                         // the batch loop of groups
  int64_t groups = 1, group_stride = 0;
  int64_t channels = 1;  // of a group, rounded up to a multiple of `run`
  int64_t run = 64;      // terms that lie together: 16, 32 or 64
  int64_t phases = 1;    // of all dimensions

  int64_t Row() const { return phases * groups * channels; }  // elements of a position
  int64_t Positions() const;
  std::vector<Loop> Taps(const Contraction& c) const;  // the loops of k without the channel
};
std::optional<CudaWindows> ReadCudaWindows(const Program& program, const Contraction& c,
                                           const CudaOperand& right);

// Whether the product can be written so.
bool SuitsCudaWgmma(const Program& program, const Task& task, const Contraction& work,
                    const CudaOperand& left, const CudaOperand& right);
// A matrix that TMA reads as it is.
bool IsCudaMatrix(const Program& program, const Contraction& work, const CudaOperand& operand);

// Tiles as m * 1000 + n, the most promising first, and the shares of the sum. `few`: of two forms, so that more kernels
// are equal.
struct CudaWgmmaChoice {
  std::vector<int64_t> tiles, splits;
  double cost = 0;  // of the first: multiplications of the busiest multiprocessor, or what takes as long
};
CudaWgmmaChoice ChooseCudaWgmma(const Task& task, const Contraction& work, bool few = false);

// Whether neighbours of the results in m are neighbours in memory, and those in n are not.
bool IsCudaDown(const Contraction& work);

}  // namespace kevin::search
