#include "agent/compile_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/text.h"

namespace kevin {
namespace {

constexpr size_t kMaxErrorsRead = 1000;
constexpr size_t kMaxLogBytes = 1500;
constexpr size_t kMaxMessageBytes = 300, kMaxSourceLineBytes = 160, kMostNameBytes = 60;
constexpr size_t kMostPlaces = 8, kMostNames = 6;

struct CompileError {
  int line = 0, column = 0;  // of the candidate; 0: not said
  std::string message;
  bool is_ptxas = false;    // its lines are those of the PTX that NVRTC wrote
  std::string header = {};  // "stl_algo.h, line 1812": the error is there; `line` is what led to it
};

constexpr std::string_view kCandidateName = "candidate.";  // candidate.cpp, candidate.cu

std::optional<int> TakeNumber(std::string_view* text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

// "ptxas application ptx input, line 12; error   : ..." and "ptxas error   : ..."
std::optional<CompileError> ParsePtxasError(std::string_view line) {
  size_t mark = line.find("error ");
  if (mark == std::string_view::npos) mark = line.find("fatal ");
  if (!line.starts_with("ptxas ") || mark == std::string_view::npos) return std::nullopt;
  const size_t colon = line.find(": ", mark);
  if (colon == std::string_view::npos) return std::nullopt;
  CompileError error{0, 0, "ptxas: " + std::string(Trim(line.substr(colon + 2))), true};
  constexpr std::string_view kLine = ", line ";
  if (const size_t at = line.find(kLine); at < mark) {
    std::string_view place = line.substr(at + kLine.size());
    error.line = TakeNumber(&place).value_or(0);
  }
  return error;
}

// "candidate.cpp:12:5: error: message" of g++ and clang++, "candidate.cu(12): error: message" of NVRTC.
std::optional<CompileError> ParseError(std::string_view line) {
  constexpr std::string_view kUndefined = "undefined reference", kMark = "error: ";
  const size_t mark = line.find(kMark);
  if (mark == std::string_view::npos) {
    if (const size_t at = line.find(kUndefined); at != std::string_view::npos)
      return CompileError{0, 0, std::string(Trim(line.substr(at)))};
    return ParsePtxasError(line);
  }
  CompileError error{0, 0, std::string(Trim(line.substr(mark + kMark.size())))};
  if (error.message.starts_with("ld returned") || error.message.starts_with("linker command"))
    return std::nullopt;
  std::string_view place = line.substr(0, mark);
  const size_t end_of_name = place.find_first_of(":(");
  if (end_of_name == std::string_view::npos) return std::nullopt;
  const std::string_view name = place.substr(0, end_of_name);
  place.remove_prefix(end_of_name + 1);
  if (const auto number = TakeNumber(&place)) error.line = *number;
  if (error.line > 0 && place.starts_with(":")) {
    place.remove_prefix(1);
    error.column = TakeNumber(&place).value_or(0);
  }
  if (error.line > 0 && !name.starts_with(kCandidateName)) {
    error.header = fmt::format("{}, line {}", name.substr(name.rfind('/') + 1), error.line);
    error.line = error.column = 0;
  }
  return error;
}

// The candidate's line that made a compiler read code of a header: of g++ the last one before the error, "candidate.cpp:5:10:
// required from here", of clang++ one behind it, "candidate.cpp:5:3: note: in instantiation of ... requested here".
int OriginIn(std::string_view line) {
  const bool is_origin = line.find("required from") != std::string_view::npos ||
                         line.find("requested here") != std::string_view::npos;
  if (!is_origin || !line.starts_with(kCandidateName)) return 0;
  std::string_view place = line.substr(std::min(line.find(':'), line.size() - 1) + 1);
  return TakeNumber(&place).value_or(0);
}

std::vector<CompileError> ErrorsOf(const std::string& log) {
  constexpr std::string_view kArguments = "argument types are: ";
  std::vector<CompileError> errors;
  int origin = 0;
  for (const std::string_view line : SplitLines(log)) {
    if (errors.size() == kMaxErrorsRead) break;
    if (auto error = ParseError(line)) {
      if (!error->header.empty()) error->line = origin;
      origin = 0;
      errors.push_back(std::move(*error));
    } else if (const int found = OriginIn(line); found > 0) {
      const bool is_behind = line.find("requested here") != std::string_view::npos && !errors.empty();
      int* wanted = is_behind ? &errors.back().line : &origin;
      if (!is_behind || (*wanted == 0 && !errors.back().header.empty())) *wanted = found;
    } else if (const std::string_view rest = Trim(line); rest.starts_with(kArguments) && !errors.empty()) {
      errors.back().message += fmt::format("; {}", rest);
    }
  }
  // The end of ptxas, which follows from the errors before it.
  if (errors.size() > 1)
    std::erase_if(errors, [](const CompileError& e) {
      return e.is_ptxas && e.message.ends_with("aborted due to errors");
    });
  return errors;
}

// A message without its quoted names, and these: `'y' was not declared` gives "' was not declared" and "y".
struct Form {
  std::string text;
  std::vector<std::string> names;
};

// Quotes of g++ in a UTF-8 locale are three bytes each.
Form FormOf(const std::string& message) {
  constexpr std::pair<std::string_view, std::string_view> kQuotes[] = {
      {"\"", "\""}, {"‘", "’"}, {"'", "'"}, {"`", "'"}};
  Form form;
  for (size_t at = 0; at < message.size();) {
    const std::string_view rest = std::string_view(message).substr(at);
    const auto quote = std::find_if(std::begin(kQuotes), std::end(kQuotes),
                                    [&](const auto& marks) { return rest.starts_with(marks.first); });
    const size_t end =
        quote == std::end(kQuotes) ? std::string_view::npos : rest.find(quote->second, quote->first.size());
    if (end == std::string_view::npos) {
      form.text += message[at++];
      continue;
    }
    form.names.emplace_back(rest.substr(quote->first.size(), end - quote->first.size()));
    form.text += '\'';
    at += end + quote->second.size();
  }
  return form;
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && !(name[0] >= '0' && name[0] <= '9') &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:") ==
             std::string_view::npos;
}

// The name that a message is about: quoted, at its beginning or behind one word. Empty: none.
std::string SubjectOf(const Form& form) {
  const size_t quote = form.text.find('\'');
  const bool is_first =
      quote != std::string::npos &&
      std::count(form.text.begin(), form.text.begin() + static_cast<std::ptrdiff_t>(quote), ' ') <= 1;
  return is_first && IsIdentifier(form.names.front()) ? form.names.front() : "";
}

// What a further error of a template has in place of the first one's names.
std::string OtherName(const Form& first, const Form& other) {
  for (size_t i = 0; i < std::min(first.names.size(), other.names.size()); ++i) {
    if (first.names[i] != other.names[i]) return other.names[i];
  }
  return "";
}

struct Cause {
  CompileError error;  // the first one
  Form form;
  std::set<int> lines;                              // of all errors of the same name; 0: not said
  int same = 0;                                     // errors beside the first that have its name
  std::vector<std::pair<std::string, int>> others;  // other names, with the line of their first error
  bool is_second = false;                           // an earlier cause has its line
};

void AddTo(const CompileError& error, const Form& form, Cause* cause) {
  const std::string other = form.text == cause->form.text ? OtherName(cause->form, form) : "";
  if (other.empty()) {
    ++cause->same;
    cause->lines.insert(error.line);
    return;
  }
  const auto known = [&](const auto& name) { return name.first == other; };
  if (std::none_of(cause->others.begin(), cause->others.end(), known))
    cause->others.emplace_back(other, error.line);
}

std::vector<Cause> CausesOf(const std::vector<CompileError>& errors) {
  std::vector<Cause> causes;
  std::set<int> lines;
  for (const CompileError& error : errors) {
    const Form form = FormOf(error.message);
    const std::string subject = SubjectOf(form);
    const auto found = std::find_if(causes.begin(), causes.end(), [&](const Cause& cause) {
      return cause.error.header.empty() == error.header.empty() &&
             (cause.form.text == form.text || (!subject.empty() && SubjectOf(cause.form) == subject));
    });
    if (found != causes.end()) {
      AddTo(error, form, &*found);
    } else {
      const bool is_second = (error.line > 0 && !error.is_ptxas && lines.contains(error.line)) ||
                             (error.line == 0 && !error.header.empty());
      causes.push_back({error, form, {error.line}, 0, {}, is_second});
    }
    lines.insert(error.line);
  }
  std::stable_partition(causes.begin(), causes.end(), [](const Cause& cause) { return !cause.is_second; });
  return causes;
}

// "  and at 3 more places: lines 12, 40, 55"
std::string PlacesText(const Cause& cause) {
  if (cause.same == 0) return "";
  std::set<int> others = cause.lines;
  others.erase(0);
  others.erase(cause.error.line);
  const std::vector<int> lines(others.begin(),
                               std::next(others.begin(), std::min(others.size(), kMostPlaces)));
  std::string text = fmt::format("  and at {}", Counted(cause.same, "more place"));
  if (!lines.empty())
    text += fmt::format(": line{} {}", lines.size() == 1 ? "" : "s", fmt::join(lines, ", "));
  return text + (others.size() > lines.size() ? ", ...\n" : "\n");
}

// "  the same of `b` (line 40), `c` (line 55)"
std::string OthersText(const Cause& cause) {
  std::vector<std::string> names;
  for (const auto& [name, line] : cause.others) {
    if (names.size() == kMostNames) break;
    const std::string quoted = fmt::format("`{}`", Clip(name, kMostNameBytes));
    names.push_back(line > 0 ? fmt::format("{} (line {})", quoted, line) : quoted);
  }
  if (names.empty()) return "";
  const size_t more = cause.others.size() - names.size();
  return fmt::format("  the same of {}{}\n", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string CauseText(const Cause& cause, const std::vector<std::string_view>& source,
                      std::set<int>* quoted) {
  const CompileError& error = cause.error;
  std::string text;
  if (error.line > 0) text += fmt::format("line {}", error.line);
  if (error.column > 0) text += fmt::format(", column {}", error.column);
  if (!error.header.empty()) text += fmt::format("{}in {}", text.empty() ? "" : ": ", error.header);
  text += fmt::format("{}{}\n", text.empty() ? "" : ": ", Clip(error.message, kMaxMessageBytes));
  const bool is_shown = error.line > 0 && !error.is_ptxas &&
                        static_cast<size_t>(error.line) <= source.size() && quoted->insert(error.line).second;
  if (is_shown) {
    const std::string_view line = source[static_cast<size_t>(error.line) - 1];
    text += fmt::format("{:>6} | {}\n", error.line, Clip(TrimRight(line), kMaxSourceLineBytes));
  }
  return text + PlacesText(cause) + OthersText(cause);
}

}  // namespace

std::string TrimmedErrors(const std::string& log, const std::string& source) {
  const std::vector<Cause> causes = CausesOf(ErrorsOf(log));
  if (causes.empty()) return Clip(Trim(log), kMaxLogBytes) + "\n";
  const std::vector<std::string_view> source_lines = SplitLines(source);
  std::string text;
  std::set<int> quoted;
  for (size_t i = 0; i < std::min(causes.size(), kMaxCauses); ++i)
    text += CauseText(causes[i], source_lines, &quoted);
  if (causes.size() > kMaxCauses)
    text += fmt::format("({} of other kinds)\n",
                        Counted(static_cast<int64_t>(causes.size() - kMaxCauses), "more error"));
  return text;
}

}  // namespace kevin
