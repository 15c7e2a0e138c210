#pragma once
// Cuts a text into the words that byte-pair encoding never joins: the `pre_tokenizer` of tokenizer.json.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "policies/local/text/regex.h"

namespace kevin::local {

// What becomes of the matches of an expression and of what lies between them.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  Regex expression;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what lies between the matches counts as the matches
};

// Never changes once made; any thread.
class PreTokenizer {
 public:
  // `prefix_space`: a blank is put before a word that begins with none, before the last `splits_after_prefix`
  // of the steps.
  PreTokenizer(std::vector<SplitStep> steps, bool prefix_space, size_t splits_after_prefix)
      : steps_(std::move(steps)), prefix_space_(prefix_space), splits_after_prefix_(splits_after_prefix) {}

  // Calls back with each word, none of them empty, valid until the callback returns unless `Stable`.
  void Split(std::string_view valid_text, const std::function<void(std::string_view)>& word) const;
  // Whether all words are parts of the text itself.
  bool Stable() const { return !prefix_space_; }

 private:
  void SplitFrom(size_t step, std::string_view text, const std::function<void(std::string_view)>& word) const;

  std::vector<SplitStep> steps_;
  bool prefix_space_;
  size_t splits_after_prefix_;
};

}  // namespace kevin::local
