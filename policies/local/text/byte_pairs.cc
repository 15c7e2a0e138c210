#include "policies/local/text/byte_pairs.h"

#include <algorithm>
#include <bit>

namespace kevin::local {
namespace {

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t Scatter(uint64_t pair) {  // Fibonacci hashing; the high bits are the good ones
  const uint64_t mixed = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15ULL;
  return mixed ^ mixed >> 32;
}

using Candidate = BytePairs::Workspace::Candidate;
bool Later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

BytePairs::BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges)
    : byte_ids_(byte_ids), slots_(std::bit_ceil(2 * merges.size() + 2)), mask_(slots_.size() - 1) {
  int32_t rank = 0;
  for (const Merge& merge : merges) {
    const uint64_t pair = PairOf(merge.left, merge.right);
    SlotOf(pair) = {pair, rank++, merge.merged};
  }
}

BytePairs::Slot& BytePairs::SlotOf(uint64_t pair) {
  uint64_t at = Scatter(pair) & mask_;
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & mask_;
  return slots_[at];
}

const BytePairs::Slot* BytePairs::Find(int32_t left, int32_t right) const {
  const uint64_t pair = PairOf(left, right);
  for (uint64_t at = Scatter(pair) & mask_; slots_[at].pair != kEmpty; at = (at + 1) & mask_) {
    if (slots_[at].pair == pair) return &slots_[at];
  }
  return nullptr;
}

// Puts the pair that begins at `position` on the heap, if it may be merged.
void BytePairs::Offer(int position, Workspace& workspace) const {
  const auto& symbols = workspace.symbols;
  if (position < 0 || symbols[position].next < 0) return;
  const Slot* slot = Find(symbols[position].id, symbols[symbols[position].next].id);
  if (slot == nullptr) return;
  workspace.heap.push_back({slot->rank, position, slot->merged});
  std::push_heap(workspace.heap.begin(), workspace.heap.end(), Later);
}

void BytePairs::Encode(std::string_view word, Workspace& workspace, std::vector<int32_t>& ids) const {
  auto& [symbols, heap] = workspace;
  symbols.clear();
  heap.clear();
  const int count = static_cast<int>(word.size());
  for (int i = 0; i < count; ++i) {
    symbols.push_back({byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1 < count ? i + 1 : -1, true});
  }
  for (int i = 0; i + 1 < count; ++i) Offer(i, workspace);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), Later);
    const Candidate best = heap.back();
    heap.pop_back();
    auto& left = symbols[best.position];
    if (!left.alive || left.next < 0) continue;
    auto& right = symbols[left.next];
    // Either symbol may have been merged with another since.
    const Slot* slot = Find(left.id, right.id);
    if (slot == nullptr || slot->merged != best.merged) continue;
    left.id = best.merged;
    right.alive = false;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.position;
    Offer(left.previous, workspace);
    Offer(best.position, workspace);
  }
  for (int i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace kevin::local
