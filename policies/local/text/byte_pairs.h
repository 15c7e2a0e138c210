#pragma once
// Byte-pair encoding of one word: its bytes become symbols, and the pair with the lowest rank, of equals the
// leftmost, is merged until no pair has one. n log n in the length of the word.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kevin::local {

class BytePairs {
 public:
  struct Merge {
    int32_t left = 0, right = 0;  // token ids
    int32_t merged = 0;
  };
  // `merges` in the order of their ranks; a pair that comes twice has its last rank.
  BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges);

  // Space for Encode, kept from word to word; owned by one thread.
  struct Workspace {
    struct Symbol {
      int32_t id;
      int previous, next;  // indices, -1 at the ends
      bool alive;
    };
    struct Candidate {
      int32_t rank;
      int position;
      int32_t merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };
  void Encode(std::string_view word, Workspace& workspace,
              std::vector<int32_t>& ids) const;  // appends to ids

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    int32_t rank = 0, merged = 0;
  };
  static constexpr uint64_t kEmpty = ~0ULL;
  Slot& SlotOf(uint64_t pair);
  const Slot* Find(int32_t left, int32_t right) const;
  void Offer(int position, Workspace& workspace) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, at most half full
  uint64_t mask_ = 0;
};

}  // namespace kevin::local
