#include <fmt/format.h>

#include "policies/local/text/jinja/filters.h"
#include "policies/local/text/jinja/operators.h"
#include "policies/local/text/jinja/python_text.h"
#include "policies/local/text/jinja/text_methods.h"
#include "policies/local/text/utf8.h"

namespace kevin::local::jinja {
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
