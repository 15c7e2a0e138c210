#include <fmt/format.h>

#include <algorithm>

#include "policies/local/text/jinja/value.h"
#include "policies/local/text/utf8.h"

namespace kevin::local::jinja {

namespace {

size_t LastOffset(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool IsCased(char32_t code) {
  const int category = UnicodeCategory(code);
  return category >= 1 && category <= 3;
}

std::vector<Value> SplitBySpaces(Run& run, std::string_view text, int64_t most, bool from_right) {
  std::vector<Value> parts;
  std::string_view rest = Stripped(text, from_right ? Side::kRight : Side::kLeft);
  while (!rest.empty()) {
    run.Step();
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(rest);
      break;
    }
    size_t at = from_right ? rest.size() : 0;
    while (from_right ? at > 0 : at < rest.size()) {
      const size_t here = from_right ? LastOffset(rest.substr(0, at)) : at;
      const Utf8Character character = DecodeCharacter(rest, here);
      if (IsPythonSpace(character.code)) break;
      at = from_right ? here : at + character.length;
    }
    parts.emplace_back(from_right ? rest.substr(at) : rest.substr(0, at));
    rest = from_right ? Stripped(rest.substr(0, at), Side::kRight) : Stripped(rest.substr(at), Side::kLeft);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::string_view Stripped(std::string_view text, Side side, const std::string* characters) {
  const auto goes = [&](size_t at) {
    const Utf8Character character = DecodeCharacter(text, at);
    if (characters == nullptr) return IsPythonSpace(character.code);
    return characters->find(text.substr(at, character.length)) != std::string::npos;
  };
  while (side != Side::kRight && !text.empty() && goes(0))
    text.remove_prefix(DecodeCharacter(text, 0).length);
  while (side != Side::kLeft && !text.empty() && goes(LastOffset(text)))
    text = text.substr(0, LastOffset(text));
  return text;
}

std::vector<Value> SplitText(Run& run, const std::string& text, const std::string* separator, int64_t most,
                             bool from_right) {
  run.Step(text.size() / 8);
  if (separator == nullptr) return SplitBySpaces(run, text, most, from_right);
  if (separator->empty()) Fail("empty separator");
  std::vector<Value> parts;
  size_t begin = 0, end = text.size();
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    run.Step();
    if (!from_right) {
      const size_t found = text.find(*separator, begin);
      if (found == std::string::npos) break;
      parts.emplace_back(text.substr(begin, found - begin));
      begin = found + separator->size();
    } else {
      if (end < separator->size()) break;
      const size_t found = text.rfind(*separator, end - separator->size());
      if (found == std::string::npos) break;
      parts.emplace_back(text.substr(found + separator->size(), end - found - separator->size()));
      end = found;
    }
  }
  parts.emplace_back(text.substr(begin, end - begin));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> SplitLines(Run& run, const std::string& text, bool keep_ends) {
  run.Step(text.size() / 8);
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    size_t next = at + character.length;
    if (IsLineEnd(character.code)) {
      if (character.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      run.Step();
      lines.emplace_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string Replaced(Run& run, const std::string& text, const std::string& from, const std::string& to,
                     int64_t most) {
  run.Reserve(text.size());
  std::string result;
  size_t at = 0;
  for (; most != 0; --most) {
    size_t found = at;
    if (!from.empty()) found = text.find(from, at);
    if (found == std::string::npos) break;
    run.Reserve(result.size() + (found - at) + to.size() > run.limits().text_bytes
                    ? run.limits().text_bytes + 1
                    : to.size());
    run.Step();
    result.append(text, at, found - at);
    result += to;
    at = found + from.size();
    if (from.empty()) {  // between all characters, too
      if (at == text.size()) return result;
      const size_t length = DecodeCharacter(text, at).length;
      result.append(text, at, length);
      at += length;
    }
  }
  return result.append(text, at);
}

std::string Capitalized(std::string_view text) {
  const size_t first = text.empty() ? 0 : DecodeCharacter(text, 0).length;
  return ToUpper(text.substr(0, first)) + ToLower(text.substr(first));
}

std::string Titled(std::string_view text) {
  std::string result;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    const std::string_view one = text.substr(at, character.length);
    const bool cased = IsCased(character.code);
    result += !cased ? std::string(one) : in_word ? ToLower(one) : ToUpper(one);
    in_word = cased;
    at += character.length;
  }
  return result;
}

std::string Justified(Run& run, const std::string& text, int64_t width, Side where, const std::string& fill) {
  if (CountCharacters(fill) != 1) Fail("the fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(CountCharacters(text));
  if (width <= length) return text;
  const auto missing = static_cast<size_t>(width - length);
  run.Reserve(missing > run.limits().text_bytes ? missing : text.size() + missing * fill.size());
  // As CPython centres: of an odd rest the larger half is on the left where the width is odd.
  const size_t left = where == Side::kLeft    ? 0
                      : where == Side::kRight ? missing
                                              : missing / 2 + (missing & static_cast<size_t>(width) & 1);
  std::string result;
  for (size_t i = 0; i < left; ++i) result += fill;
  result += text;
  for (size_t i = left; i < missing; ++i) result += fill;
  return result;
}

std::string Joined(Run& run, const std::vector<Value>& items, const std::string& separator, bool convert) {
  std::string result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!convert && !items[i].IsText()) {
      Fail(fmt::format("sequence item {}: expected str instance, {} found", i, items[i].TypeName()));
    }
    const std::string text = Str(run, items[i]);
    const size_t size = result.size() + text.size() + separator.size();
    run.Reserve(size > run.limits().text_bytes ? size : text.size() + separator.size());
    if (i > 0) result += separator;
    result += text;
  }
  return result;
}

namespace {

template <std::string (*function)(std::string_view)>
Value MappedText(Run& run, const Value& subject, Arguments& arguments) {
  Bind("filter", arguments, {});
  const std::string text = Str(run, subject);
  run.Reserve(text.size());
  return function(text);
}

// Jinja's own: every word begins after white space or one of - ( { [ <.
std::string TitleWords(std::string_view text) {
  std::string result;
  bool fresh = true;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    const std::string_view one = text.substr(at, character.length);
    result += fresh ? ToUpper(one) : ToLower(one);
    fresh = IsPythonSpace(character.code) ||
            (one.size() == 1 && std::string_view("-({[<").find(one) != std::string_view::npos);
    at += character.length;
  }
  return result;
}

Value Trim(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("trim", arguments, {"chars"});
  const std::string text = Str(run, subject);
  const std::string* characters = given[0] == nullptr || given[0]->IsNone() ? nullptr : &TextOf(*given[0]);
  run.Reserve(text.size());
  return Stripped(text, Side::kBoth, characters);
}

Value ReplaceFilter(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("replace", arguments, {"old", "new", "count"}, 2);
  const int64_t most = given[2] == nullptr || given[2]->IsNone() ? -1 : IntegerOr(given[2], -1);
  return Replaced(run, Str(run, subject), Str(run, *given[0]), Str(run, *given[1]), most);
}

Value IndentLines(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("indent", arguments, {"width", "first", "blank"});
  std::string indent = given[0] != nullptr && given[0]->IsText() ? *given[0]->AsText() : "";
  if (given[0] == nullptr || !given[0]->IsText()) {
    const int64_t width = IntegerOr(given[0], 4);
    if (width > 1000) Fail("an indent is too wide");
    indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool first = given[1] != nullptr && given[1]->Truth(),
             blank = given[2] != nullptr && given[2]->Truth();
  const std::string text = Str(run, subject) + "\n";  // the last line has an end then
  std::string result = first ? indent : "";
  const auto lines = SplitLines(run, text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = *lines[i].AsText();
    const bool indented = i > 0 && (blank || !line.empty());
    run.Reserve(result.size() + line.size() + indent.size() > run.limits().text_bytes
                    ? run.limits().text_bytes + 1
                    : line.size() + indent.size());
    if (i > 0) result += '\n';
    if (indented) result += indent;
    result += line;
  }
  return result;
}

Value Center(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("center", arguments, {"width"});
  return Justified(run, Str(run, subject), IntegerOr(given[0], 80), Side::kBoth, " ");
}

Value FormatFilter(Run& run, const Value& subject, Arguments& arguments) {
  if (arguments.named.empty()) {
    return FormatPercent(run, Str(run, subject), MakeTuple(arguments.positional));
  }
  Dict dict;
  for (const auto& [name, value] : arguments.named) dict.Set(name, value);
  return FormatPercent(run, Str(run, subject), dict);
}

Value Escape(Run& run, const Value& subject, Arguments& arguments) {
  Bind("escape", arguments, {});
  std::string result;
  for (const char c : Str(run, subject)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&#34;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  run.Reserve(result.size());
  return result;
}

Value WordCount(Run& run, const Value& subject, Arguments& arguments) {
  Bind("wordcount", arguments, {});
  const std::string text = Str(run, subject);
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    const int category = UnicodeCategory(character.code);
    const bool part =
        character.code == '_' || (category >= 1 && category <= 5) || (category >= 9 && category <= 11);
    if (part && !in_word) ++words;
    in_word = part;
    at += character.length;
  }
  run.Step(text.size() / 4);
  return words;
}

}  // namespace

const FilterList& TextFilters() {
  static const FilterList list = {{"upper", MappedText<ToUpper>},
                                  {"lower", MappedText<ToLower>},
                                  {"capitalize", MappedText<Capitalized>},
                                  {"title", MappedText<TitleWords>},
                                  {"trim", Trim},
                                  {"replace", ReplaceFilter},
                                  {"indent", IndentLines},
                                  {"center", Center},
                                  {"format", FormatFilter},
                                  {"escape", Escape},
                                  {"e", Escape},
                                  {"wordcount", WordCount}};
  return list;
}

}  // namespace kevin::local::jinja
