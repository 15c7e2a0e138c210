#pragma once
// What tells one set of weights from another: SHA-256 over their contents, so that a record says which model
// answered whatever its folder is called.
//
// The hash of a model is that of its tensors' lines in the order of their names:
//
//   NAME TYPE [SHAPE] SHA-256-OF-ITS-BYTES\n        "model.norm.weight F32 [16] 9f86..."
//
// so that shards, metadata and file names make no difference. All bytes are read: a core does 1 to 2 GB a
// second where the processor knows SHA (most do), a quarter of that elsewhere; several cores share the work.

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
// Stops early, with "", once `*cancel` is true.
std::string HashOfTensors(const std::vector<TensorBytes>& tensors, const std::atomic<bool>& cancel);

// The hash of a model's folder, worked out beside everything else.
class FolderHash {
 public:
  explicit FolderHash(std::filesystem::path model_folder);
  ~FolderHash();  // soon, whether it is known or not
  FolderHash(const FolderHash&) = delete;
  FolderHash& operator=(const FolderHash&) = delete;

  // "" where the weights could not be read.
  std::shared_future<std::string> Hash() const { return hash_; }

 private:
  std::atomic<bool> cancel_{false};
  std::promise<std::string> promise_;
  std::shared_future<std::string> hash_ = promise_.get_future().share();
  std::thread thread_;
};

// SHA-256's inner loop by the processor's own instructions, where it has them.

bool HasShaInstructions();
// `state`: eight words, as FIPS 180-4 has them; `blocks`: of 64 bytes each. Only where HasShaInstructions().
void Sha256Blocks(uint32_t state[8], const uint8_t* data, size_t blocks);

}  // namespace kevin::local
