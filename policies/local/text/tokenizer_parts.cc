#include "policies/local/text/tokenizer_parts.h"

#include <algorithm>
#include <bit>

#include "policies/local/text/pre_tokenizer.h"
#include "policies/local/text/utf8.h"

namespace kevin::local {

namespace {

bool IsWordCharacter(std::string_view character) {
  static const Regex word("^[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}]");
  Regex::Match match;
  return Regex::Search(word, character).Next(match);
}

size_t LastCharacterOffset(std::string_view text) {  // of a text that is not empty
  size_t at = text.size() - 1;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(text.substr(LastCharacterOffset(text.substr(0, begin)), begin)))
    return false;
  return end == text.size() || !IsWordCharacter(text.substr(end, DecodeCharacter(text, end).length));
}

size_t SpacesBegin(std::string_view before) {
  while (!before.empty()) {
    const size_t last = LastCharacterOffset(before);
    if (!IsUnicodeSpace(DecodeCharacter(before, last).code)) break;
    before = before.substr(0, last);
  }
  return before.size();
}

size_t SpacesEnd(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Character character = DecodeCharacter(text, at);
    if (!IsUnicodeSpace(character.code)) break;
    at += character.length;
  }
  return at;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<std::pair<std::string, AddedToken>>& tokens) {
  nodes_.emplace_back();
  for (const auto& [text, token] : tokens) {
    int node = 0;
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      auto& next = nodes_[node].next;
      const auto found =
          std::find_if(next.begin(), next.end(), [&](const auto& n) { return n.first == byte; });
      if (found != next.end()) {
        node = found->second;
        continue;
      }
      const int fresh = static_cast<int>(nodes_.size());
      next.emplace_back(byte, fresh);
      nodes_.emplace_back();
      node = fresh;
    }
    if (nodes_[node].token < 0) nodes_[node].token = static_cast<int>(tokens_.size());
    tokens_.push_back(token);
    begins_[static_cast<uint8_t>(text.front())] = true;
  }
}

// The index of the longest token that is a prefix of `text`, or -1.
int AddedTokenFinder::LongestAt(std::string_view text, size_t& length) const {
  int best = -1, node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto& next = nodes_[node].next;
    const auto found = std::find_if(next.begin(), next.end(), [&](const auto& n) { return n.first == byte; });
    if (found == next.end()) break;
    node = found->second;
    if (nodes_[node].token >= 0) {
      best = nodes_[node].token;
      length = i + 1;
    }
  }
  return best;
}

std::vector<AddedTokenFinder::Stretch> AddedTokenFinder::Split(std::string_view valid_text,
                                                               bool parse_special) const {
  std::vector<Stretch> stretches;
  size_t done = 0;
  for (size_t at = 0; at < valid_text.size();) {
    size_t length = 0;
    const int found =
        begins_[static_cast<uint8_t>(valid_text[at])] ? LongestAt(valid_text.substr(at), length) : -1;
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found];
    size_t begin = at, end = at + length;
    at = end;
    if (token.special && !parse_special) continue;
    if (token.single_word && !StandsAlone(valid_text, begin, end)) continue;
    if (token.lstrip) begin = std::max(SpacesBegin(valid_text.substr(0, begin)), done);
    if (token.rstrip) end = SpacesEnd(valid_text, end);
    if (done < begin) stretches.push_back({valid_text.substr(done, begin - done), -1});
    stretches.push_back({valid_text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < valid_text.size()) stretches.push_back({valid_text.substr(done), -1});
  return stretches;
}

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

// Pushes the pair at `position` on the heap if it has a rank.
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
    // Either symbol may have been merged since.
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
