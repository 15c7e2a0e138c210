#include "tools/kernelbench_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "agent/text.h"
#include "env/error.h"
#include "env/process/files.h"

namespace kevin {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLinesName = "kevin_results.jsonl";

std::string Dump(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Whether all entries have metadata.kevin.
bool IsOurs(const Json& results) {
  if (!results.is_object()) return false;
  for (const auto& [problem, entries] : results.items()) {
    if (!entries.is_array()) return false;
    for (const Json& entry : entries) {
      if (!entry.is_object() || !entry.contains("metadata") || !entry["metadata"].is_object() ||
          !entry["metadata"].contains("kevin"))
        return false;
    }
  }
  return true;
}

// The first eval_results*.json of another program. Empty: there is none.
std::filesystem::path ResultsOfOthers(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with("eval_results") || !name.ends_with(".json")) continue;
    if (!IsOurs(Json::parse(ReadAll(it->path()), nullptr, false))) return it->path();
  }
  return {};
}

// Milliseconds of a call: mean, deviation, extremes. Empty: nothing was timed.
Json TimesOf(const Evaluation& evaluation, const std::string& side) {
  std::vector<double> times;
  for (const Sample& sample : evaluation.samples) {
    if (sample.side == side && sample.phase != "sequential" && sample.calls > 0)
      times.push_back(sample.total_us / sample.calls / 1000);
  }
  if (times.empty()) return Json::object();
  double sum = 0, squares = 0;
  for (const double time : times) sum += time;
  const double mean = sum / static_cast<double>(times.size());
  for (const double time : times) squares += (time - mean) * (time - mean);
  return {{"mean", mean},
          {"std", std::sqrt(squares / static_cast<double>(times.size()))},
          {"min", *std::min_element(times.begin(), times.end())},
          {"max", *std::max_element(times.begin(), times.end())},
          {"num_trials", times.size()}};
}

}  // namespace

bool HasResultsOfOthers(const std::filesystem::path& folder) { return !ResultsOfOthers(folder).empty(); }

Json EvalResultOf(const PublishedCandidate& candidate, const Evaluation& evaluation) {
  const OutcomeFields fields = FieldsOf(evaluation.outcome);
  const bool measured = fields.correct;
  Json metadata = {{"hardware", DeviceModel(evaluation.device)}, {"device", evaluation.device}};
  // KernelBench's names of what went wrong.
  if (!fields.compiled) {
    metadata["compilation_error"] = fields.reason;
  } else if (fields.outcome == "wrong") {
    metadata["correctness_issue"] = fields.reason;
  } else if (!measured) {
    metadata["runtime_error"] = fields.reason;
  }
  Json kevin = {{"name", candidate.name},
                {"outcome", fields.outcome},
                {"reason", fields.reason.empty() ? Json(nullptr) : Json(fields.reason)},
                {"size", evaluation.workload.size},
                {"rules", evaluation.workload.rules},
                {"key", evaluation.key},
                {"speedup", nullptr},
                {"speedup_low", nullptr},
                {"speedup_high", nullptr},
                {"verdict", fields.verdict.empty() ? Json(nullptr) : Json(fields.verdict)}};
  if (fields.speedup) {
    kevin["speedup"] = fields.speedup->value;
    kevin["speedup_low"] = fields.speedup->low;
    kevin["speedup_high"] = fields.speedup->high;
  }
  metadata["kevin"] = kevin;
  Json stats = measured ? TimesOf(evaluation, "candidate") : Json::object();
  Json reference = measured ? TimesOf(evaluation, "reference") : Json::object();
  Json result = {{"sample_id", candidate.sample},
                 {"compiled", fields.compiled},
                 {"correctness", measured},
                 {"metadata", metadata},
                 {"runtime", stats.empty() ? Json(-1.0) : stats["mean"]},
                 {"runtime_stats", stats},
                 {"ref_runtime", reference.empty() ? Json(-1.0) : reference["mean"]},
                 {"ref_runtime_stats", reference}};
  return result;
}

KernelBenchResults::KernelBenchResults(const std::filesystem::path& folder) : folder_(folder) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (!std::filesystem::is_directory(folder_) || access(folder_.c_str(), W_OK) != 0)
    throw Error(ExitCode::kBadRequest, fmt::format("{}: cannot be written", folder_.string()),
                "name another folder with --results");
  const std::filesystem::path foreign = ResultsOfOthers(folder_);
  if (!foreign.empty())
    throw Error(ExitCode::kBadRequest, fmt::format("{}: another program wrote it", foreign.string()),
                "name another folder for the results with --results");
  Load();
}

void KernelBenchResults::Load() {
  const std::filesystem::path path = folder_ / kLinesName;
  const std::string text = ReadAll(path);
  // What follows the last line end was cut off.
  const size_t complete = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  size_t number = 0;
  for (const std::string_view line : SplitLines(std::string_view(text).substr(0, complete))) {
    ++number;
    if (Trim(line).empty()) continue;
    Json row = Json::parse(line, nullptr, false);
    const bool is_row = row.is_object() && row.contains("name") && row.contains("key") &&
                        row.contains("level") && row.contains("number") && row.contains("result") &&
                        row["name"].is_string() && row["key"].is_string() &&
                        row["level"].is_number_integer() && row["number"].is_number_integer();
    if (!is_row)
      throw Error(ExitCode::kBadRequest, fmt::format("{}:{}: no stored result", path.string(), number),
                  "remove this line, or name another folder with --results");
    at_[{row["name"], row["key"]}] = lines_.size();
    lines_.push_back(std::move(row));
  }
  if (complete < text.size()) {
    std::error_code error;
    std::filesystem::resize_file(path, complete, error);
  }
  std::set<int> levels;
  for (const Json& row : lines_) levels.insert(row["level"].get<int>());
  only_level_ = levels.size() == 1 ? *levels.begin() : 0;
}

const Json* KernelBenchResults::Find(const std::string& name, const std::string& key) const {
  const auto found = at_.find({name, key});
  return found == at_.end() ? nullptr : &lines_[found->second];
}

void KernelBenchResults::Add(const PublishedCandidate& candidate, const std::string& key,
                             const Evaluation& evaluation, const Json& event) {
  Json row = {{"name", candidate.name},     {"problem", candidate.problem},
              {"level", candidate.level},   {"number", candidate.number},
              {"sample", candidate.sample}, {"key", key},
              {"evaluation", event},        {"result", EvalResultOf(candidate, evaluation)}};
  const std::string path = folder_ / kLinesName;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0)
    throw Error(ExitCode::kBadRequest, fmt::format("{}: {}", path, std::strerror(errno)),
                "check its permissions");
  try {
    WriteAll(file, Dump(row) + "\n", path);
  } catch (...) {
    close(file);
    throw;
  }
  fsync(file);
  close(file);
  const bool first_of_others = !lines_.empty() && only_level_ != candidate.level;
  only_level_ = lines_.empty() || only_level_ == candidate.level ? candidate.level : 0;
  at_[{candidate.name, key}] = lines_.size();
  lines_.push_back(std::move(row));
  if (first_of_others) {
    // From now on a file a level.
    std::error_code error;
    std::filesystem::remove(folder_ / "eval_results.json", error);
    std::set<int> levels;
    for (const Json& line : lines_) levels.insert(line["level"].get<int>());
    for (const int level : levels) WriteEvalResults(level);
  } else {
    WriteEvalResults(candidate.level);
  }
}

std::filesystem::path KernelBenchResults::EvalResultsPath(int level) const {
  return folder_ /
         (only_level_ == level ? "eval_results.json" : fmt::format("eval_results_level_{}.json", level));
}

void KernelBenchResults::WriteEvalResults(int level) const {
  std::map<int, std::map<std::string, const Json*>> latest;  // by problem, then by name
  for (const Json& row : lines_) {
    if (row["level"] == level)
      latest[row["number"].get<int>()][row["name"].get<std::string>()] = &row["result"];
  }
  Json results = Json::object();
  for (const auto& [number, by_name] : latest) {
    std::vector<const Json*> entries;
    for (const auto& [name, result] : by_name) entries.push_back(result);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Json* a, const Json* b) { return (*a)["sample_id"] < (*b)["sample_id"]; });
    Json& list = results[std::to_string(number)] = Json::array();
    for (const Json* entry : entries) list.push_back(*entry);
  }
  WriteFile(EvalResultsPath(level), Dump(results, 4) + "\n", true);
}

}  // namespace kevin
