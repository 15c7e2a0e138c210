#pragma once
// Weight files in the safetensors format: one file (model.safetensors) or shards
// (model.safetensors.index.json), and the folders they lie in. Files are validated in full and then mapped,
// so that every tensor of a Checkpoint lies inside its file. Files and folders are written under a temporary
// name and renamed, so that a reader never sees half of one.

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
  std::span<const std::byte> bytes;  // little-endian, row-major; mapped: read from disk on access
  std::filesystem::path file;
  int64_t file_offset = 0;  // of `bytes` in the file
};

// The weights of a folder or of one file. Immutable; any thread. Owns the mappings: `bytes` are valid during
// its lifetime. Truncating a mapped file kills the reader (SIGBUS), as with every mapping.
class Checkpoint {
 public:
  // A folder with model.safetensors or model.safetensors.index.json, or a .safetensors file. Throws
  // Error(kBadRequest) that names the file, the tensor and the reason.
  static Checkpoint Open(const std::filesystem::path& folder_or_file);

  const std::map<std::string, StoredTensor>& Tensors() const { return tensors_; }
  const StoredTensor* Find(const std::string& name) const;  // null: not present
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
  // Called once, in order. The result must stay valid until the next tensor's function is called.
  std::function<std::span<const std::byte>()> bytes;
};

struct WriteOptions {
  int64_t shard_bytes = 5'000'000'000;  // a larger model is written as shards and an index
  std::string file_name = "model";      // of model.safetensors
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};

// Writes each file under a temporary name, syncs and renames it; the index comes last. Throws
// Error(kBadRequest) when `folder` cannot be written to, Error(kBroken) when the disk fails or is full.
void WriteTensors(const std::filesystem::path& folder, std::span<const TensorToWrite> tensors,
                  const WriteOptions& options = {});

// An entry of the header of a safetensors file. The file begins with eight bytes of length, then the header
// as JSON, then the data.
struct HeaderEntry {
  std::string name;
  NumberType type = NumberType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // byte range, from the start of the file
};

constexpr uint64_t kHeaderLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;

// Reads the header from the bytes of a whole file; entries in the order of their ranges. Checks lengths,
// types, sizes against shapes, and that the tensors cover the data exactly: no gap, no overlap, no duplicate
// name. Throws Error(kBadRequest); `file`: the name in messages.
std::vector<HeaderEntry> ReadHeader(std::span<const std::byte> file_bytes, const std::string& file);

// A new folder that appears complete or not at all: filled under a temporary name beside its place, then
// renamed.
class NewFolder {
 public:
  // Throws Error(kBadRequest) when `place` contains files already or its parent cannot be written to.
  explicit NewFolder(std::filesystem::path place);
  ~NewFolder();  // removes the folder unless it was committed
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& Path() const { return temporary_; }  // to write into
  void WriteText(const std::string& name, const std::string& text) const;
  // Copies the files beside the weights (tokenizer, template, configs, ...) from another model folder.
  void CopyModelFiles(const std::filesystem::path& from) const;
  void Commit();  // throws Error(kBroken)

 private:
  std::filesystem::path place_, temporary_;
  bool committed_ = false;
};

// `next` takes the place of the folder `place`, which need not exist and is there with all of its files until then: in one
// step where the file system can exchange names. Throws std::filesystem::filesystem_error.
void ReplaceFolder(const std::filesystem::path& place, const std::filesystem::path& next);

}  // namespace kevin::local
