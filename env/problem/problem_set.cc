#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <tuple>

#include "env/error.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxOffers = 4;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Runs of digits compare as numbers, so that level1/9 comes before level1/19.
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

// KernelBench's levels, then all else.
bool IdLess(const std::string& a, const std::string& b) {
  return IsOfLevel(a) != IsOfLevel(b) ? IsOfLevel(a) : NaturalLess(a, b);
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// The number an id ends in ("level1/19", "19"); 0 without one.
long NumberOf(const std::string& id) {
  const size_t begin = id.find_last_not_of("0123456789") + 1;
  return begin < id.size() && id.size() - begin < 10 ? std::stol(id.substr(begin)) : 0;
}

// Smaller is nearer; a word found whole inside a longer name counts as one edit.
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
                    ? "`kevin problems` lists all; a file of your own is given by its path (my.toml)"
                    : fmt::format("did you mean {}? `kevin problems` lists all", fmt::join(offers, ", ")));
  }
  Problem problem = LoadProblemFile(found->second);
  if (problem.id != id) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: id: '{}' does not agree with the file's place, which says '{}'",
                            found->second.string(), problem.id, id),
                "change the id or move the file");
  }
  return problem;
}

std::vector<Alternative> AlternativesFor(const Problem& problem) {
  // The problem's folder is as far above the file as its id is deep. A user's file has an id of its own choice.
  fs::path folder = problem.path.parent_path();
  for (const char c : problem.id) {
    if (c == '/') folder = folder.parent_path();
  }
  const fs::path relative = problem.path.lexically_relative(folder);
  if (problem.path.empty() || ProblemIdOf(relative) != problem.id) return {};
  std::vector<fs::path> files;
  std::error_code none;
  const fs::path place = folder / "alternatives" / relative.parent_path() / relative.stem();
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
  // Distance, how far among equals, levels first, what to print.
  std::vector<std::tuple<size_t, long, bool, std::string>> ranked;
  for (const std::string& known : order_) {
    std::string name;
    try {
      name = LoadProblemFile(files_.at(known)).name;
    } catch (const Error&) {  // a broken file still has its id
    }
    // The nearest number, or without one the shortest name.
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

}  // namespace kevin
