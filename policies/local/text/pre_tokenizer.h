#pragma once
// Splits a text into words before byte-pair encoding: the `pre_tokenizer` of tokenizer.json, and its regular
// expressions.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kevin::local {

struct RegexProgram;  // PCRE2's

// A regular expression over UTF-8, by PCRE2, with the semantics of Oniguruma, the engine of the `tokenizers`
// library. Characters newer than the Unicode version of the installed PCRE2 (14 in 10.42) may differ.
// Immutable; any thread.
class Regex {
 public:
  // Throws std::invalid_argument with the reason and the place in the pattern.
  explicit Regex(const std::string& pattern);

  struct Match {
    size_t begin = 0, end = 0;  // bytes
    friend bool operator==(const Match&, const Match&) = default;
  };

  // Iterates over the matches in one text, from left to right. Owned by one thread.
  class Search {
   public:
    // The text must be valid UTF-8. Text and expression must outlive the search.
    Search(const Regex& regex, std::string_view text);
    ~Search();
    // False: no further match. An empty match never directly follows another match. Throws std::runtime_error
    // when the expression exceeds PCRE2's step limit on this text.
    bool Next(Match& match);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  std::shared_ptr<const RegexProgram> program_;
};

// The treatment of the matches of an expression and of the text between them.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  Regex expression;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the text between the matches is treated as the matches
};

// Immutable; any thread.
class PreTokenizer {
 public:
  // `prefix_space`: a word that does not begin with a space gets one, before the last `splits_after_prefix`
  // steps.
  PreTokenizer(std::vector<SplitStep> steps, bool prefix_space, size_t splits_after_prefix)
      : steps_(std::move(steps)), prefix_space_(prefix_space), splits_after_prefix_(splits_after_prefix) {}

  // Calls `word` with each word. Words are not empty; they are valid until the callback returns, or as long
  // as the text if Stable().
  void Split(std::string_view valid_text, const std::function<void(std::string_view)>& word) const;
  // Whether all words are views of the text itself.
  bool Stable() const { return !prefix_space_; }

 private:
  void SplitFrom(size_t step, std::string_view text, const std::function<void(std::string_view)>& word) const;

  std::vector<SplitStep> steps_;
  bool prefix_space_;
  size_t splits_after_prefix_;
};

}  // namespace kevin::local
