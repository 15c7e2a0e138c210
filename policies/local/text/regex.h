#pragma once
// A regular expression over UTF-8 by PCRE2, with the meanings that the `tokenizers` library's engine
// (Oniguruma) gives it; only characters newer than the Unicode of the installed PCRE2 (14 in 10.42) may
// differ. Never changes once compiled: any number of threads may use one.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

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

}  // namespace kevin::local
