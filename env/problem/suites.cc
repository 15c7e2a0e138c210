#include "env/problem/suites.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>

#include "env/error.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
constexpr int kDeepest = 8;  // lists within lists

std::string Trimmed(const std::string& text) {
  const size_t start = text.find_first_not_of(" \t\r");
  if (start == std::string::npos) return "";
  return text.substr(start, text.find_last_not_of(" \t\r") - start + 1);
}

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
      const std::string part = Trimmed(text.substr(start, end - start));
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
