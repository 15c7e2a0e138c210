#include "tools/report/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "agent/json.h"
#include "env/error.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// Fields that are no figures of the model: the state of the run, and the size of an evaluation.
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

// The fields that name an evaluation.
constexpr const char* kLabels[] = {"suite", "split", "set", "mode"};

const std::pair<const char*, CurveStyle> kStyles[] = {
    {"reward", {"reward"}},
    {"return", {"return"}},
    {"correct", {"correct turns", true}},
    {"speedup", {"speed-up"}},
    {"solved_best", {"problems solved", true}},
    {"fast_1_best", {"problems faster than eager", true}},
    {"mean_avg", {"mean speed-up, failures 0"}},
    {"mean_best", {"best of each problem: mean speed-up, failures 0"}},
    {"geomean_best", {"best of each problem: geometric mean"}},
    {"serial.best", {"serial turns: best speed-up"}},
    {"parallel.best", {"parallel turns: best speed-up"}},
    {"serial.solved", {"serial turns: solved", true}},
    {"parallel.solved", {"parallel turns: solved", true}},
    {"value", {"the figure that chooses checkpoints"}},
    {"loss", {"loss"}},
    {"grad_norm", {"gradient norm"}},
    {"kl", {"KL to the reference"}},
    {"policy_shift", {"policy shift"}},
    {"delta_logprob", {"|Δlogp| of sampler and trainer, mean"}},
    {"delta_logprob_max", {"|Δlogp| of sampler and trainer, largest"}},
    {"clip_low", {"clipped below", true}},
    {"clip_high", {"clipped above", true}},
    {"correction_mean", {"importance correction, mean"}},
    {"correction_dropped", {"importance correction, left out", true}},
    {"entropy", {"entropy"}},
    {"preference_accuracy", {"pairs in the preferred order", true}},
    {"preference_margin", {"preference margin"}},
    {"reply_tokens", {"tokens of a reply"}},
    {"longest_reply", {"tokens of the longest reply"}},
    {"cut_off", {"replies cut off", true}},
    {"not_okay", {"replies that open otherwise (Not-Okay)", true}},
    {"repetition", {"repetition", true}},
    {"tokens_per_s", {"tokens/s"}},
    {"mfu", {"model FLOPs utilisation", true}},
    {"tflops", {"TFLOP/s"}},
    {"learning_rate", {"learning rate"}},
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
  // {value, low, high} is a figure with its interval, and so is {best, best_low, best_high} beside others;
  // intervals are not shown. Each part of `metrics` is a figure of its own.
  void AddField(int64_t step, const std::string& name, const Json& field) {
    if (kNoCurve.count(name) > 0) return;
    if (field.is_number()) return AddValue(name, step, field);
    if (!field.is_object()) return;
    if (field.contains("value")) return AddValue(name, step, field["value"]);
    for (const auto& [part, inner] : field.items()) {
      if (part == "best") {
        AddValue(name + ".best", step, inner);
      } else if (part != "best_low" && part != "best_high") {
        AddField(step, name == "metrics" ? part : name + "." + part, inner);
      }
    }
  }

  void AddValue(const std::string& name, int64_t step, const Json& field) {
    if (!field.is_number()) return;
    const CurveValue value{step, field.get<double>()};
    const auto [at, is_new] = index_.emplace(name, group_->curves.size());
    if (is_new) group_->curves.push_back({name, {}});
    std::vector<CurveValue>& values = group_->curves[at->second].values;
    // A run that continued from a checkpoint repeated some steps.
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

std::string CurveValueText(double value, const CurveStyle& style) {
  if (style.is_share) return fmt::format("{:.1f} %", 100 * value);
  if (std::abs(value) < 9999.5 || std::abs(value) > 1e15) return fmt::format("{:.4g}", value);
  return CountText(std::llround(value));
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

namespace {

constexpr size_t kSparkWidth = 40;

// Means of `width` stretches of the curve; fewer where it is shorter.
std::vector<double> Thinned(const Curve& curve, size_t width) {
  const size_t n = curve.values.size();
  std::vector<double> means;
  for (size_t i = 0; i < std::min(n, width); ++i) {
    const size_t begin = i * n / std::min(n, width), end = (i + 1) * n / std::min(n, width);
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += curve.values[j].value;
    means.push_back(sum / static_cast<double>(end - begin));
  }
  return means;
}

std::string Sparkline(const Curve& curve) {
  constexpr const char* kLevels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::vector<double> means = Thinned(curve, kSparkWidth);
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  std::string text;
  for (const double mean : means) {
    const double share = *high > *low ? (mean - *low) / (*high - *low) : 0;
    text += kLevels[static_cast<size_t>(std::lround(share * 7))];
  }
  return text;
}

using Rows = std::vector<std::vector<std::string>>;

struct NamedGroup {
  std::string run;
  const CurveGroup* group;
};

std::string GroupText(const std::vector<NamedGroup>& groups) {
  std::vector<const CurveGroup*> all;
  for (const NamedGroup& one : groups) all.push_back(one.group);
  const bool has_many = groups.size() > 1;
  Rows rows = {{"curve", "first", "last", "lowest", "highest", "from the first step to the last"}};
  if (has_many) rows[0].insert(rows[0].begin() + 1, "run");
  for (const std::string& name : CurveNames(all)) {
    const CurveStyle style = StyleOf(name);
    std::string label = style.label;
    for (const NamedGroup& one : groups) {
      const Curve* curve = one.group->Find(name);
      if (curve == nullptr) continue;
      const auto [low, high] =
          std::minmax_element(curve->values.begin(), curve->values.end(),
                              [](const auto& a, const auto& b) { return a.value < b.value; });
      rows.push_back({label, CurveValueText(curve->values.front().value, style),
                      CurveValueText(curve->values.back().value, style), CurveValueText(low->value, style),
                      CurveValueText(high->value, style), Sparkline(*curve)});
      if (has_many) rows.back().insert(rows.back().begin() + 1, one.run);
      label.clear();
    }
  }
  return AlignedTable(rows);
}

std::string RunFacts(const TrainingRun& run) {
  std::string text = fmt::format("{}: steps {} to {}", run.folder, run.first_step, run.last_step);
  if (run.steps_asked > 0) text += fmt::format(" of {}", run.steps_asked);
  if (run.seconds > 0) text += ", " + SpanText(run.seconds);
  if (run.unreadable > 0) text += fmt::format("; {} lines are no events and were left out", run.unreadable);
  return text + "\n";
}

}  // namespace

std::string TrainingText(const std::vector<TrainingRun>& runs) {
  std::string text;
  std::vector<NamedGroup> steps;
  std::vector<std::pair<std::string, std::vector<NamedGroup>>> others;  // by event and label
  for (const TrainingRun& run : runs) {
    text += RunFacts(run);
    steps.push_back({run.name, &run.steps});
    for (const CurveGroup& group : run.others) {
      const std::string title = group.event + (group.label.empty() ? "" : ": " + group.label);
      auto known =
          std::find_if(others.begin(), others.end(), [&](const auto& o) { return o.first == title; });
      if (known == others.end()) known = others.insert(others.end(), {title, {}});
      known->second.push_back({run.name, &group});
    }
  }
  text += "\nsteps\n" + GroupText(steps);
  for (const auto& [title, groups] : others) text += "\n" + title + "\n" + GroupText(groups);
  return text;
}

}  // namespace kevin
