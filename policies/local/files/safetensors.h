#pragma once
// Weight files: safetensors, single (model.safetensors) or in shards (model.safetensors.index.json). Read by
// mmap after full validation, so that what Checkpoint gives out is always inside the file; written so that a
// reader never sees half a file.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "policies/local/files/model_config.h"

namespace kevin::local {

struct StoredTensor {
  std::string name;
  NumberType type = NumberType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // little-endian, rows first; mapped: read when touched
  std::filesystem::path file;
  int64_t file_offset = 0;  // of the bytes in that file
};

// A folder's weights, or one file's. Immutable; any thread. Owns the mappings: `bytes` live as long as it.
// A file that somebody cuts short meanwhile kills the reader (SIGBUS), as with every mapping.
class Checkpoint {
 public:
  // A folder with model.safetensors or model.safetensors.index.json, or a .safetensors file. Throws
  // Error(kBadRequest) that names the file, the tensor and what is wrong.
  static Checkpoint Open(const std::filesystem::path& folder_or_file);

  const std::map<std::string, StoredTensor>& Tensors() const { return tensors_; }
  const StoredTensor* Find(const std::string& name) const;  // null: there is none
  const std::filesystem::path& Path() const { return path_; }

 private:
  class Mapping;
  std::filesystem::path path_;
  std::vector<std::shared_ptr<Mapping>> mappings_;
  std::map<std::string, StoredTensor> tensors_;
};

struct TensorToWrite {
  std::string name;
  NumberType type = NumberType::kF32;
  std::vector<int64_t> shape;
  // Called once, when its turn comes; what it returns is used before the next is called.
  std::function<std::span<const std::byte>()> bytes;
};

struct WriteOptions {
  int64_t shard_bytes = 5'000'000'000;  // one file up to here, else shards and an index
  std::string file_name = "model";      // of model.safetensors
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};

// Each file is written beside its place, synced and renamed; the index comes last. Throws Error(kBadRequest)
// for what cannot be written there, Error(kBroken) when the disk fails or is full.
void WriteTensors(const std::filesystem::path& folder, std::span<const TensorToWrite> tensors,
                  const WriteOptions& options = {});

}  // namespace kevin::local
