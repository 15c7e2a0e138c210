#include "policies/local/text/pre_tokenizer.h"

#include <algorithm>

namespace kevin::local {
namespace {

struct Piece {
  size_t begin, end;
  bool match;
};

std::vector<Piece> Pieces(const SplitStep& step, std::string_view text) {
  std::vector<Piece> pieces;
  Regex::Search search(step.expression, text);
  Regex::Match match;
  size_t done = 0;
  while (search.Next(match)) {
    if (done != match.begin) pieces.push_back({done, match.begin, step.invert});
    pieces.push_back({match.begin, match.end, !step.invert});
    done = match.end;
  }
  if (done != text.size()) pieces.push_back({done, text.size(), step.invert});
  return pieces;
}

// A match joins the piece before it, which is the one after it when the order is reversed.
std::vector<Piece> Joined(const std::vector<Piece>& pieces, bool reversed) {
  std::vector<Piece> joined;
  bool after_match = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[reversed ? pieces.size() - 1 - i : i];
    if (piece.match && !after_match && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, piece.begin);
      joined.back().end = std::max(joined.back().end, piece.end);
    } else {
      joined.push_back(piece);
    }
    after_match = piece.match;
  }
  if (reversed) std::reverse(joined.begin(), joined.end());
  return joined;
}

std::vector<Piece> Shaped(std::vector<Piece> pieces, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kRemoved:
      std::erase_if(pieces, [](const Piece& piece) { return piece.match; });
      break;
    case SplitBehavior::kMergedWithPrevious:
      return Joined(pieces, false);
    case SplitBehavior::kMergedWithNext:
      return Joined(pieces, true);
    case SplitBehavior::kContiguous: {
      std::vector<Piece> joined;
      for (const Piece& piece : pieces) {
        if (!joined.empty() && joined.back().match == piece.match) {
          joined.back().end = piece.end;
        } else {
          joined.push_back(piece);
        }
      }
      return joined;
    }
  }
  return pieces;
}

}  // namespace

void PreTokenizer::Split(std::string_view valid_text,
                         const std::function<void(std::string_view)>& word) const {
  SplitFrom(0, valid_text, word);
}

void PreTokenizer::SplitFrom(size_t step, std::string_view text,
                             const std::function<void(std::string_view)>& word) const {
  if (text.empty()) return;
  if (prefix_space_ && step + splits_after_prefix_ == steps_.size() && text.front() != ' ') {
    // Beginning with a blank now, it does not come here a second time.
    return SplitFrom(step, " " + std::string(text), word);
  }
  if (step == steps_.size()) return word(text);
  const SplitStep& current = steps_[step];
  const bool last = step + 1 == steps_.size() && !(prefix_space_ && splits_after_prefix_ == 0);
  if (last && current.behavior == SplitBehavior::kIsolated) {  // what all these models do, without a list
    Regex::Search search(current.expression, text);
    Regex::Match match;
    size_t done = 0;
    while (search.Next(match)) {
      if (done != match.begin) word(text.substr(done, match.begin - done));
      if (match.end != match.begin) word(text.substr(match.begin, match.end - match.begin));
      done = match.end;
    }
    if (done != text.size()) word(text.substr(done));
    return;
  }
  for (const Piece& piece : Shaped(Pieces(current, text), current.behavior)) {
    SplitFrom(step + 1, text.substr(piece.begin, piece.end - piece.begin), word);
  }
}

}  // namespace kevin::local
