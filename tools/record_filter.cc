// The options of `kevin train` that choose records.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <regex>

#include "agent/text.h"
#include "env/error.h"
#include "tools/train_options.h"

namespace kevin {

void AddFilterOptions(CLI::App* command, FilterOptions* o) {
  const auto add = [&](const char* flag, auto& value, const char* help) {
    return command->add_option(flag, value, help)->group("Which records");
  };
  add("--kind", o->filter.kind, "Only episodes with candidates of this kind; --online: what the model writes")
      ->check(CLI::IsMember({"cpp", "cuda", "ptx", "modelnew", "triton"}));
  add("--rules", o->filter.rules,
      "Only episodes judged by these rules; of turns that the model makes itself: what judges them, kevin by default "
      "(kevin collect --help describes them)")
      ->check(CLI::IsMember({"kevin", "kernelbench", "open"}));
  add("--judged-on", o->filter.device, "Only episodes judged on a device whose name contains this: H200");
  add("--made-by", o->filter.model, "Only episodes all of whose turns a model made whose name contains this");
  add("--versions", o->versions, "Only turns of a model in training after so many steps: 10-40, or 40");
  add("--since", o->filter.since,
      "Only episodes that began then (UTC) or later: 2026-11-21, 2026-11-21T09:40");
  add("--until", o->filter.until, "Only episodes that began before then (UTC)");
  add("--episode-state", o->filter.states,
      "Only episodes in this state; may be repeated (default: done where returns need all turns, else any)")
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"done", "running", "interrupted", "failed"}));
  add("--problem-list", o->problem_list, "A file of problem ids, one a line: only these");
}

namespace {

std::vector<std::string> ReadProblemList(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw Error(ExitCode::kBadRequest, path + ": cannot be read", "give a file with one problem id a line");
  std::vector<std::string> ids;
  for (std::string line; std::getline(file, line);) {
    const std::string id(Trim(line.substr(0, line.find('#'))));
    if (!id.empty()) ids.push_back(id);
  }
  if (ids.empty())
    throw Error(ExitCode::kBadRequest, path + ": has no problem ids", "write one a line: level1/19");
  return ids;
}

void CheckDate(const char* flag, const std::string& date) {
  static const std::regex kDate(R"(\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?)?)");
  if (date.empty() || std::regex_match(date, kDate)) return;
  throw Error(ExitCode::kBadRequest, fmt::format("{} {}: not a date", flag, date),
              "write 2026-11-21 or 2026-11-21T09:40, in UTC");
}

}  // namespace

RecordFilter FilterFrom(const FilterOptions& o) {
  RecordFilter filter = o.filter;
  CheckDate("--since", filter.since), CheckDate("--until", filter.until);
  if (!o.versions.empty()) {
    static const std::regex kRange(R"((\d{1,12})(-(\d{1,12}))?)");
    std::smatch parts;
    if (!std::regex_match(o.versions, parts, kRange))
      throw Error(ExitCode::kBadRequest, fmt::format("--versions {}: not a range of steps", o.versions),
                  "write 10-40, or 40");
    filter.first_version = std::stoll(parts[1]);
    filter.last_version = parts[3].matched ? std::stoll(parts[3]) : filter.first_version;
    if (filter.last_version < filter.first_version)
      throw Error(ExitCode::kBadRequest, fmt::format("--versions {}: ends before it begins", o.versions));
  }
  if (!o.problem_list.empty()) filter.problem_ids = ReadProblemList(o.problem_list);
  return filter;
}

}  // namespace kevin
