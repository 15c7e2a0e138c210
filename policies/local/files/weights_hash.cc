#include "policies/local/files/weights_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sha256.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <sstream>

#include "policies/local/files/safetensors.h"
#include "policies/local/files/sha256_rounds.h"

namespace kevin::local {
namespace {

constexpr size_t kHashBlock = 64;
constexpr size_t kChunk = size_t{16} << 20;  // between looks at `cancel`
constexpr unsigned kMostThreads = 8;

class Sha256 {
 public:
  Sha256() { SHA256Init(&plain_); }

  void Add(std::span<const std::byte> bytes) {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    total_ += bytes.size();
    if (!by_instructions_) return SHA256Update(&plain_, data, bytes.size());
    size_t left = bytes.size();
    if (held_ > 0) {
      const size_t taken = std::min(left, kHashBlock - held_);
      std::memcpy(block_.data() + held_, data, taken);
      held_ += taken, data += taken, left -= taken;
      if (held_ < kHashBlock) return;
      Sha256Blocks(state_.data(), block_.data(), 1);
      held_ = 0;
    }
    Sha256Blocks(state_.data(), data, left / kHashBlock);
    held_ = left % kHashBlock;
    if (held_ > 0) std::memcpy(block_.data(), data + left - held_, held_);
  }

  std::string Finish() {
    std::array<uint8_t, 32> digest{};
    if (by_instructions_) {
      Pad();
      for (size_t i = 0; i < digest.size(); ++i)
        digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
    } else {
      SHA256Final(digest.data(), &plain_);
    }
    return fmt::format("{:02x}", fmt::join(digest, ""));
  }

 private:
  void Pad() {
    const uint64_t bits = total_ * 8;
    std::array<uint8_t, 2 * kHashBlock> tail{};
    std::memcpy(tail.data(), block_.data(), held_);
    tail[held_] = 0x80;
    const size_t blocks = held_ + 9 <= kHashBlock ? 1 : 2;
    for (size_t i = 0; i < 8; ++i) tail[blocks * kHashBlock - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
    Sha256Blocks(state_.data(), tail.data(), blocks);
  }

  const bool by_instructions_ = HasShaInstructions();
  SHA256_CTX plain_{};
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kHashBlock> block_{};
  size_t held_ = 0;
  uint64_t total_ = 0;
};

// In chunks, so that it can be broken off. Half done where it was.
std::string HashUnless(const std::atomic<bool>& cancel, std::span<const std::byte> bytes) {
  Sha256 hash;
  while (!bytes.empty() && !cancel) {
    const size_t now = std::min(bytes.size(), kChunk);
    hash.Add(bytes.first(now));
    bytes = bytes.subspan(now);
  }
  return hash.Finish();
}

std::string LineOf(const TensorBytes& tensor, const std::string& hash) {
  return fmt::format("{} {} [{}] {}\n", tensor.name, NameOf(tensor.type), fmt::join(tensor.shape, ", "),
                     hash);
}

}  // namespace

std::string Sha256OfBytes(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.Finish();
}

std::string Sha256OfFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::ostringstream text;
  text << file.rdbuf();
  const std::string bytes = text.str();
  return Sha256OfBytes(std::as_bytes(std::span(bytes)));
}

std::string HashOfTensors(const std::vector<TensorBytes>& tensors, const std::atomic<bool>& cancel) {
  std::vector<std::string> hashes(tensors.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < tensors.size() && !cancel; i = next++)
      hashes[i] = HashUnless(cancel, tensors[i].bytes);
  };
  std::vector<std::thread> helpers;
  const unsigned threads = std::clamp(std::thread::hardware_concurrency() / 2, 1u, kMostThreads);
  for (unsigned i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (cancel) return "";
  std::vector<std::string> lines;
  for (size_t i = 0; i < tensors.size(); ++i) lines.push_back(LineOf(tensors[i], hashes[i]));
  std::sort(lines.begin(), lines.end());
  const std::string text = fmt::format("{}", fmt::join(lines, ""));
  return Sha256OfBytes(std::as_bytes(std::span(text)));
}

FolderHash::FolderHash(std::filesystem::path model_folder) {
  thread_ = std::thread([this, folder = std::move(model_folder)] {
    std::string hash;
    try {
      const Checkpoint weights = Checkpoint::Open(folder);
      std::vector<TensorBytes> tensors;
      for (const auto& [name, stored] : weights.Tensors())
        tensors.push_back({name, stored.type, stored.shape, stored.bytes});
      hash = HashOfTensors(tensors, cancel_);
    } catch (const std::exception&) {
      // Whoever loads the weights says what is wrong with them.
    }
    promise_.set_value(hash);
  });
}

FolderHash::~FolderHash() {
  cancel_ = true;
  thread_.join();
}

}  // namespace kevin::local
