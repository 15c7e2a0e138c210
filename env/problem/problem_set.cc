#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "env/problem/text.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxOffers = 4;
constexpr const char* kAlternatives = "alternatives";  // a folder of kernels, without problem files

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Runs of digits compare as numbers: level1/9 comes before level1/19.
bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    size_t i_end = i, j_end = j;
    while (i_end < a.size() && IsDigit(a[i_end])) ++i_end;
    while (j_end < b.size() && IsDigit(b[j_end])) ++j_end;
    if (i_end == i || j_end == j) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const size_t i_length = i_end - i, j_length = j_end - j;
    if (i_length != j_length) return i_length < j_length;
    if (const int order = a.compare(i, i_length, b, j, j_length)) return order < 0;
    i = i_end, j = j_end;
  }
  return a.size() - i < b.size() - j;
}

bool IsOfLevel(const std::string& id) { return id.starts_with("level"); }

// Levels first, then the others.
bool IdLess(const std::string& a, const std::string& b) {
  return IsOfLevel(a) != IsOfLevel(b) ? IsOfLevel(a) : NaturalLess(a, b);
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The number at the end of an id ("level1/19", "19"); 0 without one.
long NumberOf(const std::string& id) {
  const size_t begin = id.find_last_not_of("0123456789") + 1;
  return begin < id.size() && id.size() - begin < 10 ? std::stol(id.substr(begin)) : 0;
}

// An edit distance; a whole word inside a longer name counts as one edit.
size_t Distance(const std::string& wanted, const std::string& known) {
  if (wanted == known) return 0;
  if (wanted.size() >= 3 && known.find(wanted) != std::string::npos) return 1;
  return EditDistance(wanted, known);
}

Alternative ReadAlternative(const fs::path& path) {
  constexpr std::string_view kComment = "// ";
  std::ifstream file(path, std::ios::binary);
  Alternative alternative;
  alternative.source.assign(std::istreambuf_iterator<char>(file), {});
  if (!file.is_open() || file.bad()) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: cannot be read", path.string()),
                "check its permissions");
  }
  const std::string line = alternative.source.substr(0, alternative.source.find('\n'));
  if (!line.starts_with(kComment) || line.size() == kComment.size()) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}:1: the kernel has no name", path.string()),
                "write it as a comment into the first line: // serial sum");
  }
  alternative.name = line.substr(kComment.size());
  return alternative;
}

}  // namespace

std::string ProblemIdOf(const fs::path& relative) {
  std::string stem = relative.stem().string();
  const size_t digits =
      static_cast<size_t>(std::find_if_not(stem.begin(), stem.end(), IsDigit) - stem.begin());
  if (digits > 0 && (digits == stem.size() || stem[digits] == '_')) {
    stem.resize(digits);
    stem.erase(0, std::min(stem.find_first_not_of('0'), digits - 1));
  }
  return (relative.parent_path() / stem).generic_string();
}

ProblemSet::ProblemSet() : ProblemSet(DefaultDirectory()) {
  std::error_code none;
  if (!fs::is_directory(ImportedDirectory(), none)) return;
  Add(ImportedDirectory());
  std::sort(order_.begin(), order_.end(), IdLess);
}

ProblemSet::ProblemSet(const fs::path& directory) {
  Add(directory);
  std::sort(order_.begin(), order_.end(), IdLess);
}

void ProblemSet::Add(const fs::path& directory) {
  std::error_code error;
  fs::recursive_directory_iterator entries(directory, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    const fs::path& path = entries->path();
    if (entries.depth() == 0 && path.filename() == kAlternatives) entries.disable_recursion_pending();
    if (path.extension() != ".toml") continue;
    const auto [where, is_new] = files_.emplace(ProblemIdOf(path.lexically_relative(directory)), path);
    if (!is_new) {
      throw Error(
          ExitCode::kBadRequest,
          fmt::format("{} and {} both have the id {}", where->second.string(), path.string(), where->first),
          "give one of them another number");
    }
    order_.push_back(where->first);
  }
  if (error) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: cannot read the problem folder: {}", directory.string(), error.message()),
                "set KEVIN_PROBLEMS to a folder that holds level1/019_relu.toml and so on");
  }
}

fs::path ProblemSet::ImportedDirectory() {
  if (const char* xdg = std::getenv("XDG_DATA_HOME"); xdg != nullptr && *xdg == '/')
    return fs::path(xdg) / "kevin/problems";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr && *home == '/' ? home : "/nonexistent") / ".local/share/kevin/problems";
}

fs::path ProblemSet::DefaultDirectory() {
  if (const char* chosen = std::getenv("KEVIN_PROBLEMS"); chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path installed = program.parent_path().parent_path() / "share/kevin/problems";
    if (fs::is_directory(installed, error)) return installed;
  }
  return KEVIN_SOURCE_PROBLEMS;
}

Problem ProblemSet::Find(const std::string& id) const {
  if (id.ends_with(".toml")) return LoadProblemFile(id);
  const auto found = files_.find(id);
  if (found == files_.end()) {
    const std::vector<std::string> offers = Nearest(id);
    throw Error(ExitCode::kBadRequest, fmt::format("unknown problem '{}'", id),
                offers.empty()
                    ? "`kevin problems` lists all; name a file of your own by its path (my.toml)"
                    : fmt::format("did you mean {}? `kevin problems` lists all", fmt::join(offers, ", ")));
  }
  Problem problem = LoadProblemFile(found->second);
  if (problem.id != id) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: id: '{}' does not agree with the path of the file, which gives '{}'",
                            found->second.string(), problem.id, id),
                "change the id or move the file");
  }
  return problem;
}

std::vector<Alternative> AlternativesFor(const Problem& problem) {
  // The problem's folder is as far above the file as its id is deep. A user's file has an id of its own
  // choice.
  fs::path folder = problem.path.parent_path();
  for (const char c : problem.id) {
    if (c == '/') folder = folder.parent_path();
  }
  const fs::path relative = problem.path.lexically_relative(folder);
  if (problem.path.empty() || ProblemIdOf(relative) != problem.id) return {};
  std::vector<fs::path> files;
  std::error_code none;
  const fs::path place = folder / kAlternatives / relative.parent_path() / relative.stem();
  for (const auto& entry : fs::directory_iterator(place, none)) {
    if (entry.path().extension() == ".cpp") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Alternative> alternatives;
  for (const fs::path& file : files) alternatives.push_back(ReadAlternative(file));
  return alternatives;
}

std::vector<std::string> ProblemSet::Nearest(const std::string& id) const {
  const std::string wanted = Lower(id);
  const size_t limit = wanted.size() <= 3 ? 1 : std::max<size_t>(2, wanted.size() / 3);
  // Distance, tie-break, levels first, text to print.
  std::vector<std::tuple<size_t, long, bool, std::string>> ranked;
  for (const std::string& known : order_) {
    std::string name;
    try {
      name = LoadProblemFile(files_.at(known)).name;
    } catch (const Error&) {  // an invalid file still has its id
    }
    // The nearest number; without a number the shortest name.
    const long further =
        NumberOf(wanted) > 0 ? std::abs(NumberOf(known) - NumberOf(wanted)) : static_cast<long>(name.size());
    size_t distance = std::min(Distance(wanted, Lower(known)), Distance(wanted, Lower(name)));
    distance = std::min(distance, Distance(wanted, Lower(files_.at(known).stem().string())));
    if (wanted == std::to_string(NumberOf(known))) distance = 0;
    if (distance > limit) continue;
    ranked.emplace_back(distance, further, !IsOfLevel(known),
                        name.empty() ? known : fmt::format("{} ({})", known, name));
  }
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > kMaxOffers) ranked.resize(kMaxOffers);
  std::vector<std::string> offers;
  for (auto& [distance, number_distance, is_other, text] : ranked) offers.push_back(std::move(text));
  return offers;
}

// --- Suites ---

namespace {

constexpr int kDeepest = 8;  // levels of lists within lists

std::optional<int> Number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Suite {
 public:
  Suite(const ProblemSet& problems, fs::path lists, std::vector<LeftOut>* left_out, Precision precision)
      : problems_(problems), lists_(std::move(lists)), left_out_(left_out), precision_(precision) {}

  void Add(const std::string& text, int depth) {
    size_t start = 0;
    while (start <= text.size()) {
      const size_t end = std::min(text.find(',', start), text.size());
      const std::string part(Trimmed(std::string_view(text).substr(start, end - start)));
      if (!part.empty()) AddPart(part, depth);
      start = end + 1;
    }
  }

  std::vector<std::string> Take() { return std::move(found_); }

 private:
  void AddPart(const std::string& part, int depth) {
    if (part.ends_with(".toml")) return AddOne(part);
    if (part.ends_with(".txt")) return AddList(part, depth);
    const std::vector<std::string>& known = problems_.Ids();
    if (std::find(known.begin(), known.end(), part) != known.end()) {
      const bool is_asked_for = depth == 0;
      if (is_asked_for || Counts(part)) AddOne(part);
      return;
    }
    if (AddMatching([&](const std::string& id) { return id.starts_with(part + "/"); })) return;
    if (AddRange(part)) return;
    const fs::path list = lists_ / (part + ".txt");
    if (fs::exists(list)) return AddList(list, depth);
    throw Error(
        ExitCode::kBadRequest, fmt::format("--suite {}: no such problems", part),
        fmt::format("give a level (level1), a range (level1/1-20), ids, a file, or one of the lists: {}",
                    fmt::join(ListNames(), ", ")));
  }

  bool AddRange(const std::string& part) {
    const size_t slash = part.rfind('/'), dash = part.rfind('-');
    if (slash == std::string::npos || dash == std::string::npos || dash < slash) return false;
    const auto first = Number(part.substr(slash + 1, dash - slash - 1)), last = Number(part.substr(dash + 1));
    if (!first || !last) return false;
    const std::string level = part.substr(0, slash + 1);
    return AddMatching([&](const std::string& id) {
      if (!id.starts_with(level)) return false;
      const auto number = Number(id.substr(level.size()));
      return number && *number >= *first && *number <= *last;
    });
  }

  void AddList(const fs::path& path, int depth) {
    std::ifstream file(path);
    if (!file || depth >= kDeepest) {
      throw Error(ExitCode::kBadRequest,
                  fmt::format("--suite {}: {}", path.string(), file ? "lists itself" : "cannot be read"),
                  "give a file with one problem, range or level a line");
    }
    for (std::string line; std::getline(file, line);) Add(line.substr(0, line.find('#')), depth + 1);
  }

  template <typename Matches>
  bool AddMatching(const Matches& matches) {
    bool any = false;
    for (const std::string& id : problems_.Ids()) {
      if (!matches(id)) continue;
      if (Counts(id)) AddOne(id);
      any = true;
    }
    return any;
  }

  bool Counts(const std::string& id) {
    if (left_out_ == nullptr) return true;
    const Problem problem = problems_.Find(id);
    for (const char* name : FlagsAgainst(precision_)) {
      const auto flag = problem.flags.find(name);
      if (flag == problem.flags.end()) continue;
      left_out_->push_back({id, flag->second});
      return false;
    }
    return true;
  }

  void AddOne(const std::string& id) {
    if (std::find(found_.begin(), found_.end(), id) == found_.end()) found_.push_back(id);
  }

  std::vector<std::string> ListNames() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(lists_, none)) names.push_back(entry.path().stem());
    std::sort(names.begin(), names.end());
    return names;
  }

  const ProblemSet& problems_;
  const fs::path lists_;
  std::vector<LeftOut>* const left_out_;
  const Precision precision_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> ProblemsOfSuite(const ProblemSet& problems, const fs::path& problem_folder,
                                         const std::string& suite, std::vector<LeftOut>* left_out,
                                         Precision precision) {
  Suite all(problems, problem_folder / "suites", left_out, precision);
  all.Add(suite, 0);
  std::vector<std::string> found = all.Take();
  if (found.empty()) {
    throw Error(ExitCode::kBadRequest, fmt::format("--suite {}: names no problem", suite),
                "kevin problems lists them");
  }
  return found;
}

}  // namespace kevin
