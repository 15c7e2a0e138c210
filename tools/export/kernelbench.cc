#include "tools/export/kernelbench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "agent/journal.h"
#include "env/error.h"
#include "env/printable.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "env/process/files.h"
#include "tools/export/model_new.h"
#include "tools/export/quote.h"
#include "tools/export/records.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

struct ProblemNumber {
  int level = 0, number = 0;
};

// "level1/19".
std::optional<ProblemNumber> NumberOf(const std::string& id) {
  ProblemNumber n;
  char rest = 0;
  if (std::sscanf(id.c_str(), "level%d/%d%c", &n.level, &n.number, &rest) != 2) return std::nullopt;
  return n;
}

// The episode's best turn; without a correct one the last that has a source.
const TurnRecord* Representative(const std::vector<TurnRecord>& turns, int best_turn) {
  const TurnRecord* chosen = nullptr;
  for (const TurnRecord& t : turns) {
    if (t.turn == 0 || t.evaluation.source.empty()) continue;
    if (t.turn == best_turn) return &t;
    const bool is_better = t.evaluation.speedup && chosen && chosen->evaluation.speedup &&
                           t.evaluation.speedup->value > chosen->evaluation.speedup->value;
    const bool is_first_correct = t.evaluation.correct && !(chosen && chosen->evaluation.correct);
    if (!chosen || is_first_correct || is_better || !chosen->evaluation.correct) chosen = &t;
  }
  return chosen;
}

// The samples of the turn's own measurement, also where a later verdict overrides it.
TurnRecord WithSamples(Store& store, const std::string& episode, TurnRecord turn) {
  if (auto full = store.LoadTurn(episode, turn.turn))
    turn.evaluation.samples = std::move(full->evaluation.samples);
  return turn;
}

Json Stats(double us, const std::vector<Sample>& samples, const std::string& side,
           const std::string& device) {
  double sum = 0, squares = 0, low = us / 1000, high = us / 1000;
  int n = 0;
  for (const Sample& s : samples) {
    if (s.side != side || s.calls == 0) continue;
    const double ms = s.total_us / s.calls / 1000;
    if (n++ == 0) low = high = ms;
    sum += ms, squares += ms * ms, low = std::min(low, ms), high = std::max(high, ms);
  }
  const double variance = n > 1 ? std::max(0.0, squares / n - sum / n * (sum / n)) : 0;
  return {{"mean", us / 1000}, {"std", std::sqrt(variance)}, {"min", low},      {"max", high},
          {"num_trials", n},   {"hardware", device},         {"device", device}};
}

Json Result(int sample, const ChosenEpisode& e, const std::optional<TurnRecord>& turn) {
  Json result = {{"sample_id", sample},        {"compiled", false}, {"correctness", false},
                 {"metadata", Json::object()}, {"runtime", -1.0},   {"runtime_stats", Json::object()}};
  Json& about = result["metadata"];
  about["hardware"] = e.figures->device, about["device"] = e.figures->device;
  about["episode"] = e.figures->id, about["policy"] = e.figures->policy,
  about["size"] = e.figures->workload.size;
  if (!turn) return result;
  const EvaluationRecord& v = turn->evaluation;
  result["compiled"] = v.compiled, result["correctness"] = v.correct;
  about["turn"] = turn->turn, about["outcome"] = v.outcome;
  if (!v.reason.empty()) about["reason"] = v.reason;
  if (v.speedup) about["speedup"] = v.speedup->value;
  if (!std::isnan(e.figures->best_speedup)) about["confirmed_speedup"] = e.figures->best_speedup;
  if (v.correct && v.candidate_us) {
    result["runtime"] = *v.candidate_us / 1000;
    result["runtime_stats"] = Stats(*v.candidate_us, v.samples, "candidate", e.figures->device);
    if (v.reference_us) result["ref_runtime"] = *v.reference_us / 1000;
  }
  return result;
}

// The Python file, or "" and the reason.
std::string NewModelText(const ChosenEpisode& e, const TurnRecord& turn, std::string* why_not) {
  const auto record = e.store->FindProblem(e.problem->hash);
  try {
    const Problem problem = ParseProblem(record->text, e.problem->id + ".toml");
    if (e.figures->workload.precision != PrecisionName(PrecisionOf(problem)))
      throw Error(ExitCode::kBadRequest, "it is for " + e.figures->workload.precision + ", not float32");
    const SizedProblem sized = AtFirstShape(problem, e.figures->workload.size);
    const std::vector<std::string> heading = {fmt::format("{} ({}), size {}: episode {}, turn {}",
                                                          e.problem->id, e.problem->name, sized.size,
                                                          e.figures->id, turn.turn)};
    if (turn.evaluation.kind == "modelnew") return PythonComments(heading) + turn.evaluation.source;
    return WriteModelNew(sized, turn.evaluation.kind, turn.evaluation.source, heading);
  } catch (const Error& error) {
    *why_not = error.what();
    return "";
  }
}

struct Level {
  Json results = Json::object();
  std::map<int, Json> baselines;  // of problems whose reference was measured
  std::map<int, int> samples;     // of each problem so far
};

// KernelBench's scripts leave out every problem that has no baseline, also from the denominator.
// Without a correct kernel the value is not read; -1 is their value for an unknown time.
Json BaselinesOf(int number, const Level& level) {
  Json baselines = Json::object();
  const std::vector<std::string> files = KernelBenchFiles(number);
  for (size_t i = 0; i < files.size(); ++i) {
    const auto measured = level.baselines.find(static_cast<int>(i) + 1);
    baselines[files[i]] =
        measured != level.baselines.end() ? measured->second : Json{{"mean", -1.0}, {"num_trials", 0}};
  }
  return {{fmt::format("level{}", number), std::move(baselines)}};
}

std::string JsonText(const Json& json) {
  return PrintableJson(json.dump(4, ' ', false, Json::error_handler_t::replace)) + "\n";
}

class FolderWriter {
 public:
  FolderWriter(const ChosenTurns& chosen, std::string folder) : folder_(std::move(folder)) {
    std::map<int, int> levels;
    for (const ChosenEpisode& e : chosen.episodes()) {
      if (const auto n = NumberOf(e.problem->id)) levels[n->level]++;
    }
    has_many_ = levels.size() > 1;
    for (const auto& [level, count] : levels) Make(FolderOf(level));
  }

  void Add(const ChosenEpisode& e, RecordsWritten* written) {
    const auto n = NumberOf(e.problem->id);
    if (!n) {
      written->skipped++;
      return;
    }
    Level& level = levels_[n->level];
    const int sample = level.samples[n->number]++;
    const std::vector<TurnRecord> turns = CurrentTurns(*e.store, e.figures->id);
    const TurnRecord* chosen = Representative(turns, e.figures->best_turn);
    std::optional<TurnRecord> best;
    if (chosen) best = WithSamples(*e.store, e.figures->id, *chosen);
    Json result = Result(sample, e, best);
    if (best) AddKernel(*n, sample, e, *best, &result);
    level.results[std::to_string(n->number)].push_back(std::move(result));
    if (best && best->evaluation.reference_us) {
      level.baselines[n->number] =
          Stats(*best->evaluation.reference_us, best->evaluation.samples, "reference", e.figures->device);
    }
    written->lines++;
  }

  std::vector<std::string> Folders() const {
    std::vector<std::string> folders;
    for (const auto& [number, level] : levels_) folders.push_back(FolderOf(number));
    return folders;
  }

  void Finish() const {
    for (const auto& [number, level] : levels_) {
      const std::string folder = FolderOf(number);
      WriteFile(folder + "/eval_results.json", JsonText(level.results), false);
      WriteFile(folder + "/baseline_eager.json", JsonText(BaselinesOf(number, level)), false);
    }
  }

 private:
  std::string FolderOf(int level) const {
    return has_many_ ? fmt::format("{}_level{}", folder_, level) : folder_;
  }

  static void Make(const std::string& folder) {
    std::error_code error;
    if (fs::exists(folder, error) && !fs::is_empty(folder, error)) {
      throw Error(ExitCode::kBadRequest, folder + ": exists and is not empty", "give another folder with -o");
    }
    fs::create_directories(folder, error);
    if (error)
      throw Error(ExitCode::kBadRequest, folder + ": cannot be created: " + error.message(),
                  "give another with -o");
  }

  void AddKernel(ProblemNumber n, int sample, const ChosenEpisode& e, const TurnRecord& turn,
                 Json* result) const {
    std::string why_not;
    const std::string text = NewModelText(e, turn, &why_not);
    if (text.empty()) {
      (*result)["metadata"]["no_kernel_file"] = why_not;
      return;
    }
    WriteFile(fmt::format("{}/level_{}_problem_{}_sample_{}_kernel.py", FolderOf(n.level), n.level, n.number,
                          sample),
              text, false);
  }

  std::string folder_;
  bool has_many_ = false;
  std::map<int, Level> levels_;
};

}  // namespace

RecordsWritten WriteKernelBench(const RecordsRequest& request, const std::string& folder) {
  RecordsRequest all = request;
  all.selection = Selection::kAll;
  const ChosenTurns chosen(all);
  RecordsWritten written = chosen.BeginWritten();
  FolderWriter writer(chosen, folder);
  for (const ChosenEpisode& e : chosen.episodes()) writer.Add(e, &written);
  writer.Finish();
  written.places = writer.Folders();
  if (written.skipped > 0)
    written.remark =
        fmt::format("{} episodes are at problems that KernelBench does not have", written.skipped);
  return written;
}

}  // namespace kevin
