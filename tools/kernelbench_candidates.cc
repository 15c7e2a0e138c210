#include "tools/kernelbench_candidates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "agent/parse.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/printable.h"

namespace kevin {
namespace {

using PublishedRow = nlohmann::json;

constexpr int kMostNumber = 100000;

[[noreturn]] void Fail(const std::filesystem::path& path, const std::string& reason) {
  throw Error(
      ExitCode::kBadRequest, fmt::format("{}: {}", path.string(), reason),
      "give a run's folder of KernelBench (level_1_problem_19_sample_0_kernel.py), the leaderboard's folder (data.json "
      "and solutions/), or a file of rows; kevin bench --help");
}

std::string ReadFile(const std::filesystem::path& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) Fail(path, error.message());
  if (bytes > kMaxPublishedBytes) Fail(path, "is larger than 1 GiB");
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) Fail(path, "cannot be read");
  return text;
}

// Takes `prefix` and a number from the front of `text`.
std::optional<int> TakeNumber(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return std::nullopt;
  text->remove_prefix(prefix.size());
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || value < 0 || value > kMostNumber) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

class CandidateCollector {
 public:
  explicit CandidateCollector(PublishedCandidates* all) : all_(all) {}

  // `sample` below 0: counted.
  void Add(const std::string& name, int level, int number, int sample, const std::string& source) {
    const std::string shown = Printable(name);
    if (Trim(source).empty()) return LeaveOut(shown, "it has no code");
    if (source.size() > kMaxSourceBytes) return LeaveOut(shown, "its code is larger than 512 KiB");
    int& next = samples_[{level, number}];
    PublishedCandidate candidate{
        shown, fmt::format("level{}/{}", level, number), level, number, sample < 0 ? next : sample, source};
    next = std::max(next, candidate.sample) + 1;
    all_->candidates.push_back(std::move(candidate));
  }

  void LeaveOut(const std::string& name, const std::string& reason) {
    all_->left_out.push_back(Printable(name) + ": " + reason);
  }

 private:
  PublishedCandidates* all_;
  std::map<std::pair<int, int>, int> samples_;  // the next number by level and problem
};

// --- A run of KernelBench ---

constexpr int kMostFolders = 3;  // below the folder that is given

struct CandidateFile {
  int level = 0, number = 0;
  int sample = -1;  // below 0: counted
};

// "level_2", "level2", "opus_level2_20250903": 2.
std::optional<int> LevelIn(std::string_view name) {
  for (size_t at = name.find("level"); at != std::string_view::npos; at = name.find("level", at + 1)) {
    std::string_view rest = name.substr(at + 5);
    if (rest.starts_with('_')) rest.remove_prefix(1);
    if (const auto level = TakeNumber("", &rest)) return level;
  }
  return std::nullopt;
}

// level_1_problem_19_sample_0_kernel.py and _solution_0_; in a folder of one level also problem_19.py, problem_19_kernel.py
// and problem_19_sample_0_kernel.py. `folder`: the level of the folder.
std::optional<CandidateFile> CandidateFileOf(std::string_view name, std::optional<int> folder) {
  std::string_view rest = name;
  CandidateFile file;
  const bool has_level = rest.starts_with("level_");
  const auto level = has_level ? TakeNumber("level_", &rest) : folder;
  const auto number = level ? TakeNumber(has_level ? "_problem_" : "problem_", &rest) : std::nullopt;
  if (!number) return std::nullopt;
  file.level = *level;
  file.number = *number;
  for (const std::string_view word : {"_sample_", "_solution_"}) {
    if (!rest.starts_with(word)) continue;
    const auto sample = TakeNumber(word, &rest);
    if (!sample) return std::nullopt;
    file.sample = *sample;
  }
  if (has_level && file.sample < 0) return std::nullopt;
  if (rest != "_kernel.py" && (has_level || rest != ".py")) return std::nullopt;
  return file;
}

// In the order of their names, so that a repeated call gives equal numbers. False: there is no such file.
bool ReadRun(const std::filesystem::path& folder, size_t most_files, CandidateCollector* collector) {
  namespace fs = std::filesystem;
  std::map<std::string, CandidateFile> found;
  std::error_code error;
  const fs::path whole = fs::absolute(folder, error).lexically_normal();
  const fs::path own = whole.filename().empty() ? whole.parent_path().filename() : whole.filename();
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it.depth() >= kMostFolders) it.disable_recursion_pending();
    std::error_code ignored;
    if (!it->is_regular_file(ignored)) continue;
    const fs::path relative = it->path().lexically_relative(folder);
    std::optional<int> level = LevelIn(own.string());
    for (const fs::path& part : relative.parent_path()) {
      if (const auto inner = LevelIn(part.string())) level = inner;
    }
    if (const auto file = CandidateFileOf(relative.filename().string(), level))
      found[relative.string()] = *file;
    if (found.size() > most_files)
      Fail(folder, fmt::format("has more than {} candidates; give its folders one by one", most_files));
  }
  if (error) Fail(folder, error.message());
  for (const auto& [name, file] : found)
    collector->Add(name, file.level, file.number, file.sample, ReadFile(folder / name));
  return !found.empty();
}

// --- The leaderboard ---

bool IsPlainName(const std::string& name) {
  return !name.empty() && name.size() < 200 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

std::string StringOf(const PublishedRow& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<int> NumberOf(const PublishedRow& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number_integer()) return std::nullopt;
  const auto value = found->get<int64_t>();
  return value < 0 || value > kMostNumber ? std::nullopt : std::optional(static_cast<int>(value));
}

void ReadLeaderboard(const std::filesystem::path& folder, CandidateCollector* collector) {
  const std::filesystem::path path = folder / "data.json";
  const PublishedRow data = PublishedRow::parse(ReadFile(path), nullptr, false);
  if (!data.is_object()) Fail(path, "is not a JSON object of problems");
  for (const auto& [title, entries] : data.items()) {
    std::string_view rest = title;
    const auto level = TakeNumber("Level ", &rest);
    const auto number = level ? TakeNumber(": ", &rest) : std::nullopt;
    if (!number || !entries.is_array()) {
      collector->LeaveOut(title, "it is not \"Level 1: 19_NAME\" with a list");
      continue;
    }
    std::set<std::string> taken;  // several may be displayed alike
    for (const PublishedRow& entry : entries) {
      const std::string file = entry.is_object() ? StringOf(entry, "file") : "";
      std::string name =
          fmt::format("{}, {}", title, entry.is_object() ? StringOf(entry, "display_name") : "");
      if (!taken.insert(name).second) name += fmt::format(" ({})", file);
      const std::filesystem::path source = folder / "solutions" / (file + ".py");
      std::error_code error;
      if (!IsPlainName(file) || !std::filesystem::is_regular_file(source, error)) {
        collector->LeaveOut(name, "its file is not in solutions/");
        continue;
      }
      collector->Add(name, *level, *number, -1, ReadFile(source));
    }
  }
}

// --- Rows ---

void AddRow(const PublishedRow& row, const std::string& name, std::optional<int> given_level,
            CandidateCollector* collector) {
  if (!row.is_object()) return collector->LeaveOut(name, "it is not an object");
  const bool is_board = row.contains("problem_id");
  const auto level = given_level ? given_level : NumberOf(row, is_board ? "level" : "level_id");
  const auto number = NumberOf(row, is_board ? "problem_id" : "task_id");
  if (!level || !number) return collector->LeaveOut(name, "it does not say its level and problem");
  const std::string title = StringOf(row, "display_name");
  const std::string code = row.contains("custom_code") ? StringOf(row, "custom_code") : StringOf(row, "code");
  collector->Add(title.empty() ? name : name + ", " + title, *level, *number + (is_board ? 1 : 0), -1, code);
}

// {"1": [{"task_id": ...}, ...]}
void AddLevels(const std::filesystem::path& path, const PublishedRow& levels, CandidateCollector* collector) {
  for (const auto& [key, rows] : levels.items()) {
    std::string_view rest = key;
    const auto level = TakeNumber("", &rest);
    if (!level || !rest.empty() || !rows.is_array()) Fail(path, "has none of the forms");
    for (size_t i = 0; i < rows.size(); ++i)
      AddRow(rows[i], fmt::format("level {}, row {}", *level, i + 1), level, collector);
  }
}

void ReadRows(const std::filesystem::path& path, CandidateCollector* collector) {
  const std::string text = ReadFile(path);
  const PublishedRow whole = PublishedRow::parse(text, nullptr, false);
  if (whole.is_array()) {
    for (size_t i = 0; i < whole.size(); ++i) AddRow(whole[i], fmt::format("row {}", i + 1), {}, collector);
    return;
  }
  if (whole.is_object() && !whole.contains("level_id") && !whole.contains("problem_id"))
    return AddLevels(path, whole, collector);
  size_t line = 0;
  for (const std::string_view row : SplitLines(text)) {
    ++line;
    if (Trim(row).empty()) continue;
    const PublishedRow parsed = PublishedRow::parse(row, nullptr, false);
    if (parsed.is_discarded() && line == 1) Fail(path, "is no JSON");
    AddRow(parsed.is_discarded() ? PublishedRow() : parsed, fmt::format("line {}", line), {}, collector);
  }
}

}  // namespace

PublishedCandidates ReadPublishedCandidates(const std::filesystem::path& path, size_t most_files) {
  PublishedCandidates all;
  CandidateCollector collector(&all);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    if (!ReadRun(path, most_files, &collector)) {
      if (!std::filesystem::exists(path / "data.json", error)) Fail(path, "has no candidates");
      ReadLeaderboard(path, &collector);
    }
  } else {
    ReadRows(path, &collector);
  }
  if (all.candidates.empty() && all.left_out.empty()) Fail(path, "has no candidates");
  std::stable_sort(all.candidates.begin(), all.candidates.end(), [](const auto& a, const auto& b) {
    return std::tie(a.level, a.number, a.sample) < std::tie(b.level, b.number, b.sample);
  });
  return all;
}

std::string SizeOfPublished(const Problem& problem, const std::string& asked, std::string* reason) {
  const std::string size = asked == kFirstShapes ? SizeOfFirstShapes(problem) : asked;
  try {
    ShapesOf(problem, size.empty() ? asked : size);
  } catch (const Error& error) {
    *reason = fmt::format("{}; {}", error.what(), error.next_step());
    return "";
  }
  if (problem.model && !ModelFitsSize(problem, size)) {
    *reason = fmt::format("KernelBench's model has other widths at size {}; use --size {}", size,
                          fmt::join(problem.model->sizes, " or "));
    return "";
  }
  return size;
}

}  // namespace kevin
