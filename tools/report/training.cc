#include "tools/report/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "env/error.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// Fields that are no figures of the model: where the run stands, and what an evaluation was told to do.
const std::set<std::string> kNoCurve = {"step",
                                        "steps",
                                        "time_left_s",
                                        "updates",
                                        "episodes",
                                        "turns",
                                        "budget",
                                        "problems",
                                        "samples",
                                        "tasks",
                                        "serial.turns",
                                        "serial.episodes",
                                        "serial.problems",
                                        "parallel.turns",
                                        "parallel.episodes",
                                        "parallel.problems"};

// What tells evaluations apart.
constexpr const char* kLabels[] = {"suite", "split", "set", "mode"};

const std::pair<const char*, CurveStyle> kStyles[] = {
    {"reward", {"reward", false, true}},
    {"return", {"return", false, true}},
    {"correct", {"turns that are right", true, true}},
    {"speedup", {"speed-up", false, true, 1}},
    {"solved_best", {"problems solved", true, true}},
    {"fast_1_best", {"problems faster than eager", true, true}},
    {"mean_avg", {"mean speed-up, failures 0", false, true, 1}},
    {"mean_best", {"best of each problem: mean speed-up, failures 0", false, true, 1}},
    {"geomean_best", {"best of each problem: geometric mean", false, true, 1}},
    {"serial.best", {"one after the other: best speed-up", false, true, 1}},
    {"parallel.best", {"side by side: best speed-up", false, true, 1}},
    {"serial.solved", {"one after the other: solved", true, true}},
    {"parallel.solved", {"side by side: solved", true, true}},
    {"value", {"what checkpoints are chosen by", false, true}},
    {"loss", {"loss"}},
    {"grad_norm", {"gradient norm", false, true}},
    {"kl", {"KL to the reference"}},
    {"policy_shift", {"policy shift"}},
    {"delta_logprob", {"|Δlogp| of sampler and trainer, mean", false, true}},
    {"delta_logprob_max", {"|Δlogp| of sampler and trainer, largest", false, true}},
    {"clip_low", {"clipped below", true, true}},
    {"clip_high", {"clipped above", true, true}},
    {"correction_mean", {"importance correction, mean", false, true, 1}},
    {"correction_dropped", {"importance correction, left out", true, true}},
    {"entropy", {"entropy", false, true}},
    {"preference_accuracy", {"preferred as told", true, true}},
    {"preference_margin", {"preference margin"}},
    {"reply_tokens", {"tokens of a reply", false, true}},
    {"longest_reply", {"tokens of the longest reply", false, true}},
    {"cut_off", {"replies cut off", true, true}},
    {"not_okay", {"replies that open otherwise (Not-Okay)", true, true}},
    {"repetition", {"repetition", true, true}},
    {"tokens_per_s", {"tokens/s", false, true}},
    {"mfu", {"model FLOPs utilisation", true, true}},
    {"tflops", {"TFLOP/s", false, true}},
    {"learning_rate", {"learning rate", false, true}},
};

std::string LabelOf(const Json& event) {
  std::string label;
  for (const char* name : kLabels) {
    const auto field = event.find(name);
    if (field != event.end() && field->is_string())
      label += (label.empty() ? "" : ", ") + field->get<std::string>();
  }
  return label;
}

class GroupReader {
 public:
  explicit GroupReader(CurveGroup* group) : group_(group) {}

  void Add(const Json& event) {
    const auto step = event.at("step").get<int64_t>();
    for (const auto& [name, value] : event.items()) AddField(step, name, value);
  }

 private:
  // {value, low, high} is a figure with its interval, and so is {best, best_low, best_high} beside others.
  // The parts of `metrics` stand for themselves.
  void AddField(int64_t step, const std::string& name, const Json& field) {
    if (kNoCurve.count(name) > 0) return;
    if (field.is_number()) return AddValue(name, {step, field.get<double>()});
    if (!field.is_object()) return;
    const auto number = [&](const char* part) {
      const auto found = field.find(part);
      return found != field.end() && found->is_number() ? found->get<double>() : std::nan("");
    };
    if (field.contains("value"))
      return AddValue(name, {step, number("value"), number("low"), number("high")});
    for (const auto& [part, inner] : field.items()) {
      if (part == "best") {
        AddValue(name + ".best", {step, number("best"), number("best_low"), number("best_high")});
      } else if (part != "best_low" && part != "best_high") {
        AddField(step, name == "metrics" ? part : name + "." + part, inner);
      }
    }
  }

  void AddValue(const std::string& name, CurveValue value) {
    if (std::isnan(value.value)) return;
    if (std::isnan(value.low) || std::isnan(value.high)) value.low = value.high = value.value;
    const auto [at, is_new] = index_.emplace(name, group_->curves.size());
    if (is_new) group_->curves.push_back({name, {}});
    std::vector<CurveValue>& values = group_->curves[at->second].values;
    // A run that went on from a checkpoint did some steps again.
    while (!values.empty() && values.back().step >= value.step) values.pop_back();
    values.push_back(value);
  }

  CurveGroup* group_;
  std::map<std::string, size_t> index_;
};

bool IsEvent(const Json& line) {
  return line.is_object() && line.contains("event") && line["event"].is_string() && line.contains("step") &&
         line["step"].is_number_integer();
}

TrainingRun ReadRun(const std::string& folder) {
  std::error_code ignored;
  const fs::path path =
      fs::is_directory(folder, ignored) ? fs::path(folder) / "metrics.jsonl" : fs::path(folder);
  std::ifstream file(path);
  if (!file) {
    throw Error(ExitCode::kBadRequest, path.string() + ": no figures of a training run there",
                "give the folder that kevin train --out made");
  }
  TrainingRun run;
  run.folder = folder;
  run.steps.event = "step";
  std::map<std::string, CurveGroup> others;
  std::map<std::string, GroupReader> readers;
  GroupReader steps(&run.steps);
  for (std::string line; std::getline(file, line);) {
    const Json event = Json::parse(line, nullptr, false);
    if (!IsEvent(event)) {
      run.unreadable += !line.empty();
      continue;
    }
    const auto kind = event["event"].get<std::string>();
    if (kind == "step") {
      steps.Add(event);
      run.steps_asked = event.value("steps", run.steps_asked);
      continue;
    }
    const std::string key = kind + "\n" + LabelOf(event);
    CurveGroup& group = others[key];
    group.event = kind, group.label = LabelOf(event);
    readers.try_emplace(key, &group).first->second.Add(event);
  }
  for (auto& [key, group] : others) {
    if (!group.curves.empty()) run.others.push_back(std::move(group));
  }
  if (run.steps.curves.empty()) {
    throw Error(ExitCode::kBadRequest, path.string() + ": has no steps yet",
                "kevin train writes a line after its first step");
  }
  run.first_step = INT64_MAX;
  for (const Curve& curve : run.steps.curves) {
    run.first_step = std::min(run.first_step, curve.values.front().step);
    run.last_step = std::max(run.last_step, curve.values.back().step);
    if (curve.name != "seconds") continue;
    for (const CurveValue& v : curve.values) run.seconds += v.value;
  }
  return run;
}

std::string LastPart(const std::string& folder) {
  const fs::path path = fs::path(folder).lexically_normal();
  const fs::path last = path.has_filename() ? path.filename() : path.parent_path().filename();
  return last == "metrics.jsonl" ? path.parent_path().filename().string() : last.string();
}

}  // namespace

const Curve* CurveGroup::Find(const std::string& name) const {
  const auto found =
      std::find_if(curves.begin(), curves.end(), [&](const Curve& curve) { return curve.name == name; });
  return found == curves.end() ? nullptr : &*found;
}

std::vector<TrainingRun> ReadTrainingRuns(const std::vector<std::string>& folders) {
  std::vector<TrainingRun> runs;
  std::map<std::string, int> names;
  for (const std::string& folder : folders) names[LastPart(folder)]++;
  for (const std::string& folder : folders) {
    runs.push_back(ReadRun(folder));
    const std::string name = LastPart(folder);
    runs.back().name = names[name] > 1 || name.empty() ? folder : name;
  }
  return runs;
}

CurveStyle StyleOf(const std::string& name) {
  for (const auto& [known, style] : kStyles) {
    if (name == known) return style;
  }
  return {name};
}

std::vector<std::string> CurveNames(const std::vector<const CurveGroup*>& groups) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& [known, style] : kStyles) {
    for (const CurveGroup* group : groups) {
      if (group->Find(known) != nullptr) add(known);
    }
  }
  for (const CurveGroup* group : groups) {
    for (const Curve& curve : group->curves) add(curve.name);
  }
  return names;
}

}  // namespace kevin
