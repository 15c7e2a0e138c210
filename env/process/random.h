#pragma once
// Random numbers whose values code under test may see: inputs, the order of slots, the lengths of batches, the
// places and times of audits. Nothing else that the generator gives, earlier or later, follows from any number
// of its values: ChaCha with 8 rounds (D. J. Bernstein, "ChaCha, a variant of Salsa20", 2008; the block function
// of RFC 8439 with a counter and a nonce of 64 bits each) under keys of 256 bits from the system. The best known
// attacks reach 7 rounds and need 2^230 steps or more.
//
// The keystream depends on key, nonce and counter alone, so that any part of it can be made by any thread, and
// by a GPU (env/gpu/runner/trusted_kernels.cc). Errors: Error(kBroken) when the system has no random numbers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace kevin {

inline constexpr int kChaChaRounds = 8;

struct SecretKey {
  std::array<uint32_t, 8> words{};
  bool operator==(const SecretKey&) const = default;
};

// 256 bits from the system.
SecretKey NewSecretKey();

using ChaChaBlock = std::array<uint32_t, 16>;
ChaChaBlock MakeChaChaBlock(const SecretKey& key, uint64_t counter, uint64_t nonce,
                            int rounds = kChaChaRounds);

// The keystream in the order in which vectors of 32 lanes make it: group g is the blocks 32 g to 32 g + 31, and
// its word number 32 w + b is word w of block 32 g + b.
inline constexpr int64_t kGroupBlocks = 32, kGroupWords = kGroupBlocks * 16;
// `words` has room for kGroupWords and is aligned to 64 bytes. About 2.5 G words/s with AVX-512, 1.5 with AVX2.
void MakeKeystreamGroup(const SecretKey& key, uint64_t nonce, int64_t group, uint32_t* words);

// A generator for the distributions and algorithms of the standard library. One thread.
class SecretRandom {
 public:
  using result_type = uint64_t;
  SecretRandom() : SecretRandom(NewSecretKey()) {}
  explicit SecretRandom(const SecretKey& key) : key_(key) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() {
    if (used_ == kGroupWords) Refill();
    const uint64_t low = words_[static_cast<size_t>(used_)], high = words_[static_cast<size_t>(used_) + 1];
    used_ += 2;
    return high << 32 | low;
  }

 private:
  void Refill();

  SecretKey key_;
  int64_t groups_ = 0, used_ = kGroupWords;
  alignas(64) std::array<uint32_t, kGroupWords> words_;
};

// What values are drawn from. Element i of a tensor depends on (key, nonce, i) and on the member of the input
// mixture alone.
struct ValueStream {
  SecretKey key;
  uint64_t nonce = 0;
  int member = 0;
  // Of a call of the drawing, and of a tensor of the call: OfCall(c).OfTensor(i).
  ValueStream OfCall(size_t call) const { return {key, static_cast<uint64_t>(call) << 32, member}; }
  ValueStream OfTensor(size_t tensor) const { return {key, nonce + tensor, member}; }
};

// The keys of the drawings of one evaluation. Each drawing has a key of its own, made from a root that is new
// for each evaluation and is used for nothing else: values of a drawing give away neither the root nor another
// drawing. The root and the number of the drawing make a drawing reproducible.
class DrawingKeys {
 public:
  DrawingKeys() : root_(NewSecretKey()) {}
  explicit DrawingKeys(const SecretKey& root) : root_(root) {}
  // A new root. Returns it as records keep it: four numbers, the words 0 and 1 in the first, low word first.
  std::vector<uint64_t> Renew();
  // The next drawing. Its member is random.
  ValueStream Next();

 private:
  SecretKey root_;
  uint64_t drawings_ = 0;
};

}  // namespace kevin
