#pragma once
// The header of a safetensors file: eight bytes of length, then JSON that says where each tensor lies.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/local/files/model_config.h"

namespace kevin::local {

struct HeaderEntry {
  std::string name;
  NumberType type = NumberType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // of its bytes, from the start of the file
};

constexpr uint64_t kHeaderLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;

// Of a whole file's bytes; entries by place. Everything is checked: lengths, types, shapes against sizes,
// that the tensors cover the data exactly, in any order, with no gap, overlap or name twice. Throws
// Error(kBadRequest); `file` is the name in messages.
std::vector<HeaderEntry> ReadHeader(std::span<const std::byte> file_bytes, const std::string& file);

}  // namespace kevin::local
