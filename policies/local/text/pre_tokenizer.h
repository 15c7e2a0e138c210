#pragma once
// A regular expression over UTF-8 by PCRE2, with the meanings that the `tokenizers` library's engine
// (Oniguruma) gives it; only characters newer than the Unicode of the installed PCRE2 (14 in 10.42) may
// differ. Never changes once compiled: any number of threads may use one.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kevin::local {

struct RegexProgram;  // PCRE2's

class Regex {
 public:
  // Throws std::invalid_argument with the reason and the place in the pattern.
  explicit Regex(const std::string& pattern);

  struct Match {
    size_t begin = 0, end = 0;  // bytes
    friend bool operator==(const Match&, const Match&) = default;
  };

  // The matches of one text, from left to right. Owned by one thread.
  class Search {
   public:
    // The text is valid UTF-8 and, like the expression, lives as long as the search.
    Search(const Regex& regex, std::string_view text);
    ~Search();
    // False: no more. An empty match may not directly follow another match. Throws std::runtime_error when
    // the expression takes more steps than any sensible one.
    bool Next(Match& match);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  std::shared_ptr<const RegexProgram> program_;
};

// Cuts a text into the words that byte-pair encoding never joins: the `pre_tokenizer` of tokenizer.json.

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
