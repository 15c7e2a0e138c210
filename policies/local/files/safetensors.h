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
  size_t Files() const { return mappings_.size(); }

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

// The header of a safetensors file: eight bytes of length, then JSON that says where each tensor lies.

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

// A folder that appears whole or not at all: filled under another name beside its place, then renamed.

class NewFolder {
 public:
  // Throws Error(kBadRequest) when `place` holds files already or its parent cannot be written.
  explicit NewFolder(std::filesystem::path place);
  ~NewFolder();  // what was not committed is removed
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& Path() const { return temporary_; }  // to write into
  void WriteText(const std::string& name, const std::string& text) const;
  // The small files beside the weights (tokenizer, template, configs, ...), except weights and their index.
  void CopyModelFiles(const std::filesystem::path& from) const;
  void Commit();  // throws Error(kBroken)

 private:
  std::filesystem::path place_, temporary_;
  bool committed_ = false;
};

}  // namespace kevin::local
