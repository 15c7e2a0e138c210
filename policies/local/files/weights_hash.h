#pragma once
// The identity of a set of weights: SHA-256 over their contents, so that a record says which model answered
// whatever its folder is called. (A model in training has another identity: train/serve_training.h.)
//
// The hash of a model is that of its tensors' lines in the order of their names:
//
//   NAME TYPE [SHAPE] SHA-256-OF-ITS-BYTES\n        "model.norm.weight F32 [16] 9f86..."
//
// so that shards, metadata and file names make no difference. All bytes are read: one core hashes 1 to 2 GB
// per second with the processor's SHA instructions, a quarter of that without; several cores share the work.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "policies/local/files/model_config.h"

namespace kevin::local {

std::string Sha256OfBytes(std::span<const std::byte> bytes);  // 64 lower-case hex digits
std::string Sha256OfFile(const std::filesystem::path& path);  // of a small file; "" where there is none

struct TensorBytes {
  std::string name;
  NumberType type = NumberType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};
// Returns "" early once `*cancel` is true.
std::string HashOfTensors(const std::vector<TensorBytes>& tensors, const std::atomic<bool>& cancel);

// The hash of a model's folder, computed by a thread of its own.
class FolderHash {
 public:
  explicit FolderHash(std::filesystem::path model_folder);
  ~FolderHash();  // cancels the computation
  FolderHash(const FolderHash&) = delete;
  FolderHash& operator=(const FolderHash&) = delete;

  // "" if the weights cannot be read.
  std::shared_future<std::string> Hash() const { return hash_; }

 private:
  std::atomic<bool> cancel_{false};
  std::promise<std::string> promise_;
  std::shared_future<std::string> hash_ = promise_.get_future().share();
  std::thread thread_;
};

// Which model a folder holds, whatever the folder is called, without reading all of it: a hash of config.json and of the lines
// above, with hashes of 1 KB of each tensor, in four places. 16 hex digits; "" if the weights cannot be read.
std::string SampledFolderHash(const std::filesystem::path& model_folder);

// The inner loop of SHA-256 in the processor's own instructions.
bool HasShaInstructions();
// `state`: the eight words of FIPS 180-4; `blocks`: of 64 bytes each. Requires HasShaInstructions().
void Sha256Blocks(uint32_t state[8], const uint8_t* data, size_t blocks);

}  // namespace kevin::local
