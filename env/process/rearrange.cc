#include "env/process/rearrange.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace kevin {
namespace {

constexpr int64_t kBlocks = 4;
constexpr int64_t kBlockElements = 2048;

int64_t UpTo(int64_t last, std::mt19937_64& random) {
  return std::uniform_int_distribution<int64_t>(0, last)(random);
}

// Parts of rows within the quarter of the matrix that lies on one side of the diagonal.
void RearrangeRows(Structure structure, int64_t rows, int64_t bytes, std::mt19937_64& random,
                   std::byte* matrix) {
  const int64_t half = rows / 2, length = std::min(half, kBlockElements);
  if (length < 1) return;
  const bool is_upper = structure == Structure::kUpper;
  const int64_t first_row = is_upper ? 0 : rows - half, first_column = is_upper ? rows - half : 0;
  const auto place = [&](int64_t row, int64_t column) { return matrix + (row * rows + column) * bytes; };
  const int64_t parts = std::min(kBlocks * kBlockElements / length, half);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t from = first_row + UpTo(half - 1, random), to = first_row + UpTo(half - 1, random);
    const int64_t column = first_column + UpTo(half - length, random);
    std::memmove(place(to, column), place(from, column), static_cast<size_t>(length * bytes));
    for (int64_t i = 0; structure == Structure::kSymmetric && i < length; ++i)
      std::memcpy(place(column + i, to), place(to, column + i), static_cast<size_t>(bytes));
  }
}

}  // namespace

void Rearrange(const TensorSpec& spec, int64_t elements, std::mt19937_64& random, void* data) {
  auto* bytes_of = static_cast<std::byte*>(data);
  const int64_t bytes = DTypeBytes(spec.dtype);
  if (spec.structure != Structure::kNone) {
    const auto rows = std::llround(std::sqrt(static_cast<double>(elements)));
    return RearrangeRows(spec.structure, rows, bytes, random, bytes_of);
  }
  const int64_t length = std::min(kBlockElements, elements / (4 * kBlocks));
  for (int64_t block = 0; length > 0 && block < kBlocks; ++block) {
    std::memmove(bytes_of + UpTo(elements - length, random) * bytes,
                 bytes_of + UpTo(elements - length, random) * bytes, static_cast<size_t>(length * bytes));
  }
}

}  // namespace kevin
