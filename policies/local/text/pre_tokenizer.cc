#include "policies/local/text/pre_tokenizer.h"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>

#include "policies/local/text/utf8.h"

namespace kevin::local {

namespace {

constexpr size_t kJitStackBytes = 4 << 20;

std::string Reason(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// PCRE2 counts U+180E as \s; Unicode and Oniguruma no longer do.
std::string WithUnicodeSpaces(std::string_view pattern) {
  std::string result;
  int class_depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') {
        result += class_depth > 0 ? "\\t-\\r\\x{85}\\p{Z}" : "[\\t-\\r\\x{85}\\p{Z}]";
      } else if (next == 'S' && class_depth == 0) {
        result += "[^\\t-\\r\\x{85}\\p{Z}]";
      } else {
        result += c;
        result += next;
      }
      continue;
    }
    if (c == '[') class_depth = 1;
    if (c == ']') class_depth = 0;
    result += c;
  }
  return result;
}

}  // namespace

struct RegexProgram {
  pcre2_code* code = nullptr;
  ~RegexProgram() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern) {
  const std::string translated = WithUnicodeSpaces(pattern);
  int error = 0;
  PCRE2_SIZE place = 0;
  auto program = std::make_shared<RegexProgram>();
  program->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (program->code == nullptr) {
    throw std::invalid_argument(
        Reason(error) + " near \"" +
        LossyUtf8(std::string_view(translated).substr(std::min(place, translated.size()), 20)) + "\"");
  }
  pcre2_jit_compile(program->code, PCRE2_JIT_COMPLETE);  // where it cannot, matching is slower, not wrong
  program_ = std::move(program);
}

struct Regex::Search::State {
  std::string_view text;
  const pcre2_code* code;
  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
  size_t from = 0;
  std::optional<size_t> last_end;

  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

Regex::Search::Search(const Regex& regex, std::string_view text) : state_(std::make_unique<State>()) {
  state_->text = text;
  state_->code = regex.program_->code;
  state_->data = pcre2_match_data_create(1, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  state_->stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  if (state_->data == nullptr || state_->context == nullptr || state_->stack == nullptr)
    throw std::bad_alloc();
  pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
  const size_t steps = std::min<size_t>(1'000'000 + 16 * text.size(), 1U << 31);
  pcre2_set_match_limit(state_->context, static_cast<uint32_t>(steps));
}

Regex::Search::~Search() = default;

bool Regex::Search::Next(Match& match) {
  State& s = *state_;
  while (s.from <= s.text.size()) {
    const int count = pcre2_match(s.code, reinterpret_cast<PCRE2_SPTR>(s.text.data()), s.text.size(), s.from,
                                  PCRE2_NO_UTF_CHECK, s.data, s.context);
    if (count == PCRE2_ERROR_NOMATCH) return false;
    if (count < 0) throw std::runtime_error(Reason(count));
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(s.data);
    // \K inside a look-around can put the end before the beginning, or both before the last match.
    if (place[1] < place[0] || place[0] < s.from) throw std::runtime_error("it matches backwards");
    match = {place[0], place[1]};
    if (match.begin == match.end && s.last_end == match.end) {
      s.from += s.from < s.text.size() ? DecodeCharacter(s.text, s.from).length : 1;
      continue;
    }
    s.from = match.end;
    s.last_end = match.end;
    return true;
  }
  return false;
}

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

// A match joins the piece before it; in reversed order that is the piece after it.
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
    // It begins with a space now, so this happens once.
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
