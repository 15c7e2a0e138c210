#include "env/knobs/knobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "env/knobs/config_lists.h"
#include "env/printable.h"
#include "env/problem/names.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

constexpr std::string_view kBlank = " \t\r\v\f";
constexpr size_t kMaxShownBytes = 40;
constexpr const char* kConfigKnob = "configs";

// One line of the text, read from its beginning.
class KnobLine {
 public:
  explicit KnobLine(std::string_view line) : line_(line) {}

  size_t column() const { return at_ + 1; }
  void SkipBlank() { at_ = std::min(line_.find_first_not_of(kBlank, at_), line_.size()); }
  bool AtEnd() const { return at_ == line_.size(); }
  bool Take(std::string_view text) {
    if (!line_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  // Up to a blank or one of `ends`.
  std::string_view TakeWord(std::string_view ends) {
    const size_t start = at_;
    while (!AtEnd() && kBlank.find(line_[at_]) == std::string_view::npos &&
           ends.find(line_[at_]) == std::string_view::npos)
      ++at_;
    return line_.substr(start, at_ - start);
  }
  std::string_view Rest() const { return line_.substr(at_); }

 private:
  std::string_view line_;
  size_t at_ = 0;
};

std::string ShownWord(std::string_view text) {
  return PrintableLine(text.size() > kMaxShownBytes ? std::string(text.substr(0, kMaxShownBytes)) + "..."
                                                    : std::string(text));
}

struct KnobError {
  size_t column = 1;
  std::string message;
};

// `// knob TILE 64 128`: somebody forgot the colon.
bool HoldsOnlyNumbers(std::string_view text) {
  return text.find_first_of("0123456789") != std::string_view::npos &&
         text.find_first_not_of(" \t\r,+-0123456789") == std::string_view::npos;
}

int64_t ReadValue(KnobLine* line, const std::string& name) {
  const size_t column = line->column();
  const std::string_view word = line->TakeWord(",");
  const char* const end = word.data() + word.size();
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  const bool is_large =
      error == std::errc::result_out_of_range || value > kMaxKnobValue || value < -kMaxKnobValue;
  if (error != std::errc::invalid_argument && stop == end && is_large) {
    throw KnobError{column, fmt::format("knob {}: {} is out of range: values lie between -{} and {}", name,
                                        ShownWord(word), kMaxKnobValue, kMaxKnobValue)};
  }
  if (error != std::errc() || stop != end)
    throw KnobError{column, fmt::format("knob {}: '{}' is not an integer; a knob's line holds its values and "
                                        "nothing else",
                                        name, ShownWord(word))};
  return value;
}

std::vector<int64_t> ReadValues(KnobLine* line, const std::string& name) {
  std::vector<int64_t> values;
  const size_t column = line->column();
  for (line->SkipBlank(); !line->AtEnd(); line->SkipBlank()) {
    const size_t start = line->column();
    const int64_t value = ReadValue(line, name);
    if (std::find(values.begin(), values.end(), value) != values.end())
      throw KnobError{start, fmt::format("knob {}: the value {} stands there twice", name, value)};
    if (values.size() == kMaxKnobValues)
      throw KnobError{start, fmt::format("knob {} has more than {} values", name, kMaxKnobValues)};
    values.push_back(value);
    line->SkipBlank();
    line->Take(",");
  }
  if (values.empty())
    throw KnobError{column, fmt::format("knob {0} has no values: write `knob {0}: 64 128`", name)};
  return values;
}

// False where the line declares nothing.
bool ReadLine(std::string_view text, const std::string& kind, DeclaredKnob* knob) {
  KnobLine line(text);
  line.SkipBlank();
  if (!line.Take(IsPython(kind) ? "#" : "//")) return false;
  line.SkipBlank();
  if (!line.Take("knob")) return false;
  const size_t after_word = line.column();
  line.SkipBlank();
  const size_t column = line.column();
  const bool has_name = column > after_word;  // else `knobs`, `knob:`
  if (!has_name && !line.Rest().starts_with(":")) return false;
  knob->name = std::string(line.TakeWord(":"));
  line.SkipBlank();
  if (!line.Take(":")) {
    if (!HoldsOnlyNumbers(line.Rest())) return false;
    throw KnobError{line.column(), fmt::format("knob {0}: a colon is missing: write `knob {0}: 64 128`",
                                               ShownWord(knob->name))};
  }
  if (const std::string why = WhyNoName(knob->name); !why.empty())
    throw KnobError{column, fmt::format("a knob needs another name: {}", why)};
  knob->values = ReadValues(&line, knob->name);
  return true;
}

// Calls `use` with every line, without its end, from line 1.
template <typename Use>
void ForEachLine(std::string_view text, const Use& use) {
  int number = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    use(++number, text.substr(start, end - start));
    start = end + 1;
  }
}

bool IsPartOfName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// From `at` on, as a whole word; npos: nowhere.
size_t FindWord(std::string_view text, std::string_view word, size_t at = 0) {
  for (at = text.find(word, at); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !IsPartOfName(text[at - 1])) && (end == text.size() || !IsPartOfName(text[end])))
      return at;
  }
  return std::string_view::npos;
}

// The number of the line that defines a macro of this name; 0: none does.
int LineOfMacro(std::string_view source, const std::string& name) {
  int number = 0, found = 0;
  ForEachLine(source, [&](int at, std::string_view text) {
    KnobLine line(text);
    number = at;
    line.SkipBlank();
    if (found > 0 || !line.Take("#")) return;
    line.SkipBlank();
    if (!line.Take("define")) return;
    line.SkipBlank();
    if (line.TakeWord("(") == name) found = number;
  });
  return found;
}

// Whether the parameters of a definition of `launch` have the name: they would hide the constant.
bool IsParameter(std::string_view source, const std::string& name) {
  for (size_t at = FindWord(source, "launch"); at != std::string_view::npos;
       at = FindWord(source, "launch", at + 1)) {
    const size_t open = source.find_first_not_of(kBlank, at + 6);
    if (open == std::string_view::npos || source[open] != '(') continue;
    const size_t close = source.find(')', open);
    if (close == std::string_view::npos) return false;
    const size_t body = source.find_first_not_of(" \t\r\n", close + 1);
    if (body == std::string_view::npos || source[body] != '{') continue;
    if (FindWord(source.substr(open, close - open), name) != std::string_view::npos) return true;
  }
  return false;
}

void RequireFreeName(const std::string& source, const std::string& kind, const DeclaredKnob& knob,
                     const std::vector<DeclaredKnob>& before, const Symbols& symbols) {
  if (symbols.contains(knob.name)) {
    throw KnobError{1,
                    fmt::format("knob {0} needs another name: {0} is a constant of the problem", knob.name)};
  }
  if (const int line = IsPython(kind) ? 0 : LineOfMacro(source, knob.name); line > 0) {
    throw KnobError{
        1, fmt::format("knob {0} needs another name: line {1} defines a macro {0}, which would take the "
                       "place of the constant",
                       knob.name, line)};
  }
  if (!IsPython(kind) && IsParameter(source, knob.name)) {
    throw KnobError{
        1, fmt::format("knob {0} needs another name: {0} is a parameter of launch, which would hide the "
                       "constant",
                       knob.name)};
  }
  for (const DeclaredKnob& other : before) {
    if (other.name == knob.name)
      throw KnobError{
          1, fmt::format("knob {} is declared twice: line {} declares it too", knob.name, other.line)};
  }
  if (before.size() == kMaxKnobs)
    throw KnobError{1, fmt::format("knob {}: a text has {} knobs at most", knob.name, kMaxKnobs)};
}

// Lists beyond the limits are left to the text's own autotuner.
void AddConfigLists(const std::string& source, std::vector<DeclaredKnob>* knobs) {
  int number = 0;
  for (const ConfigList& list : FindConfigLists(source)) {
    DeclaredKnob knob;
    knob.name = ++number == 1 ? kConfigKnob : fmt::format("{}_{}", kConfigKnob, number);
    for (size_t i = 0; i < list.entries.size(); ++i) knob.values.push_back(static_cast<int64_t>(i));
    const bool is_taken = std::any_of(knobs->begin(), knobs->end(),
                                      [&](const DeclaredKnob& other) { return other.name == knob.name; });
    if (!is_taken && knobs->size() < kMaxKnobs && knob.values.size() <= kMaxKnobValues)
      knobs->push_back(std::move(knob));
  }
}

// The text with the chosen entry of each list that is a knob.
std::string WithChosenConfigs(const std::string& source, const std::vector<DeclaredKnob>& knobs,
                              const KnobSetting& setting) {
  std::vector<ConfigList> lists;
  std::vector<size_t> entries;
  int number = 0;
  for (const ConfigList& list : FindConfigLists(source)) {
    const std::string name = ++number == 1 ? kConfigKnob : fmt::format("{}_{}", kConfigKnob, number);
    for (size_t i = 0; i < knobs.size(); ++i) {
      if (knobs[i].line != 0 || knobs[i].name != name) continue;
      lists.push_back(list);
      entries.push_back(static_cast<size_t>(setting.at(i).second));
    }
  }
  return WithEntries(source, lists, entries);
}

}  // namespace

ReadKnobsResult ReadKnobs(const std::string& source, const std::string& kind, const Symbols& symbols) {
  ReadKnobsResult result;
  if (!MayHaveKnobs(source, kind)) return result;
  int number = 0;
  try {
    ForEachLine(source, [&](int line, std::string_view text) {
      number = line;
      DeclaredKnob knob;
      knob.line = line;
      if (!ReadLine(text, kind, &knob)) return;
      RequireFreeName(source, kind, knob, result.knobs, symbols);
      result.knobs.push_back(std::move(knob));
    });
  } catch (const KnobError& error) {
    result.knobs.clear();
    result.error =
        fmt::format("candidate.{}:{}:{}: error: {}\n", FileEnding(kind), number, error.column, error.message);
  }
  if (result.error.empty() && IsPython(kind)) AddConfigLists(source, &result.knobs);
  return result;
}

bool MayHaveKnobs(const std::string& source, const std::string& kind) {
  return source.find("knob") != std::string::npos ||
         (IsPython(kind) && source.find("Config") != std::string::npos);
}

int64_t CountSettings(const std::vector<DeclaredKnob>& knobs) {
  int64_t count = 1;  // at most 32^8 = 2^40
  for (const DeclaredKnob& knob : knobs) count *= static_cast<int64_t>(knob.values.size());
  return count;
}

KnobSetting FirstSetting(const std::vector<DeclaredKnob>& knobs) {
  KnobSetting setting;
  for (const DeclaredKnob& knob : knobs) setting.emplace_back(knob.name, knob.values.front());
  return setting;
}

std::string WithSetting(const std::string& source, const std::string& kind,
                        const std::vector<DeclaredKnob>& knobs, const KnobSetting& setting) {
  const std::string pinned = IsPython(kind) ? WithChosenConfigs(source, knobs, setting) : source;
  std::string text;
  ForEachLine(pinned, [&](int line, std::string_view old) {
    const auto knob =
        std::find_if(knobs.begin(), knobs.end(), [&](const DeclaredKnob& k) { return k.line == line; });
    if (knob == knobs.end()) {
      text.append(old);
    } else {
      const int64_t value = setting.at(static_cast<size_t>(knob - knobs.begin())).second;
      text.append(old.substr(0, old.find_first_not_of(kBlank)));
      text += IsPython(kind) ? fmt::format("{} = {}", knob->name, value)
                             : fmt::format("constexpr int {} = {};", knob->name, value);
    }
    text += '\n';
  });
  if (!source.ends_with('\n') && !text.empty()) text.pop_back();
  return text;
}

}  // namespace kevin
