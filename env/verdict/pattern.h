#pragma once
// Where the incorrect elements of an output lie, and what their values have in common, in words: what a reader of kernels
// looks for first. Pure arithmetic on plain memory; one pass over the mask.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace kevin {

struct IncorrectElements {
  std::string name;  // of the output
  std::span<const int64_t> shape;
  std::span<const uint8_t> mask;  // one a element; not 0: incorrect
  std::span<const float> answer;
  std::function<double(int64_t flat)> target;  // what is correct
  int threads = 1;                             // of the candidate; 0: unknown
  int64_t origin = 0;  // of a part of the output: index of its first slice along dimension 0
  bool is_part = false;
};

// "out[:, 96:128]; all are 0". The place, in the notation of NumPy where the elements form a block: a block, a tile, a
// run, one thread's share, a stride, else how scattered they are. A place counts where nearly all of it is incorrect too:
// some elements are correct by chance, as zeros behind a ReLU. Then the values, if one rule explains nearly all that were
// looked at: NaN, one value, a factor, a difference, the value of a neighbour, rows and columns exchanged. Empty: for
// fewer than two incorrect elements.
std::string PatternOf(const IncorrectElements& elements);

}  // namespace kevin
