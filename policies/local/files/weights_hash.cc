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

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace kevin::local {

#ifdef __x86_64__
namespace {

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// The two halves of the state in the layout of the instructions: words A B E F and C D G H, the first
// highest.
struct Halves {
  __m128i abef, cdgh;
};

__attribute__((target("sha,sse4.1"))) Halves Arrange(const uint32_t state[8]) {
  const auto* words = reinterpret_cast<const __m128i*>(state);
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1B);
  return {_mm_alignr_epi8(badc, hgfe, 8), _mm_blend_epi16(hgfe, badc, 0xF0)};
}

__attribute__((target("sha,sse4.1"))) void Store(const Halves& halves, uint32_t state[8]) {
  const __m128i feba = _mm_shuffle_epi32(halves.abef, 0x1B), dchg = _mm_shuffle_epi32(halves.cdgh, 0xB1);
  auto* words = reinterpret_cast<__m128i*>(state);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

}  // namespace

bool HasShaInstructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_sse41 = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 19 & 1) != 0;
  return has_sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 29 & 1) != 0;
}

__attribute__((target("sha,sse4.1"))) void Sha256Blocks(uint32_t state[8], const uint8_t* data,
                                                        size_t blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  Halves now = Arrange(state);
  for (; blocks > 0; --blocks, data += 64) {
    const Halves before = now;
    __m128i word[4];  // the last sixteen words of the schedule, four in each
    for (int i = 0; i < 4; ++i)
      word[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), big_endian);
    for (int group = 0; group < 16; ++group) {
      __m128i& oldest = word[group & 3];
      const __m128i current = oldest;
      const __m128i input =
          _mm_add_epi32(current, _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + group));
      now.cdgh = _mm_sha256rnds2_epu32(now.cdgh, now.abef, input);
      now.abef = _mm_sha256rnds2_epu32(now.abef, now.cdgh, _mm_shuffle_epi32(input, 0x0E));
      if (group >= 12) continue;
      const __m128i second = word[(group + 1) & 3], third = word[(group + 2) & 3],
                    latest = word[(group + 3) & 3];
      const __m128i part =
          _mm_add_epi32(_mm_sha256msg1_epu32(current, second), _mm_alignr_epi8(latest, third, 4));
      oldest = _mm_sha256msg2_epu32(part, latest);
    }
    now.abef = _mm_add_epi32(now.abef, before.abef);
    now.cdgh = _mm_add_epi32(now.cdgh, before.cdgh);
  }
  Store(now, state);
}

#else

bool HasShaInstructions() { return false; }
void Sha256Blocks(uint32_t*, const uint8_t*, size_t) {}

#endif

namespace {

constexpr size_t kHashBlock = 64;
constexpr size_t kChunk = size_t{16} << 20;  // between looks at `cancel`
constexpr unsigned kMostThreads = 8;
constexpr size_t kSampleBytes = 256, kSamples = 4;  // of a tensor

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

// In chunks, so that it can be cancelled.
std::string HashUnless(const std::atomic<bool>& cancel, std::span<const std::byte> bytes) {
  Sha256 hash;
  while (!bytes.empty() && !cancel) {
    const size_t now = std::min(bytes.size(), kChunk);
    hash.Add(bytes.first(now));
    bytes = bytes.subspan(now);
  }
  return hash.Finish();
}

std::string HashOfSamples(std::span<const std::byte> bytes) {
  if (bytes.size() <= kSamples * kSampleBytes) return Sha256OfBytes(bytes);
  Sha256 hash;
  for (size_t i = 0; i < kSamples; ++i)
    hash.Add(bytes.subspan((bytes.size() - kSampleBytes) * i / (kSamples - 1), kSampleBytes));
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

std::string SampledFolderHash(const std::filesystem::path& model_folder) {
  try {
    const Checkpoint weights = Checkpoint::Open(model_folder);
    std::string text = Sha256OfFile(model_folder / "config.json") + "\n";
    for (const auto& [name, stored] : weights.Tensors())
      text += LineOf({name, stored.type, stored.shape, stored.bytes}, HashOfSamples(stored.bytes));
    return Sha256OfBytes(std::as_bytes(std::span(text))).substr(0, 16);
  } catch (const std::exception&) {
    return "";  // loading the weights reports the error
  }
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
      // Loading the weights reports the error.
    }
    promise_.set_value(hash);
  });
}

FolderHash::~FolderHash() {
  cancel_ = true;
  thread_.join();
}

}  // namespace kevin::local
