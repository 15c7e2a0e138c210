#include "policies/local/text/added_tokens.h"

#include <algorithm>

#include "policies/local/text/regex.h"
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

// The index of the longest token that `text` begins with, or -1.
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

}  // namespace kevin::local
