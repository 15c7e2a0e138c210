#include "tools/baselines.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "agent/json.h"
#include "agent/machine.h"
#include "env/problem/precision.h"
#include "env/verdict/shapes.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

// "torch.compile 2.11".
std::string Name(const Baseline& baseline) {
  const std::string& version = baseline.torch_version;
  const size_t minor = version.find('.');
  return "torch.compile " +
         version.substr(0, minor == std::string::npos ? minor : version.find('.', minor + 1));
}

std::string Times(double value) { return fmt::format("{:.3g}x", value); }

std::optional<Baseline> BaselineAt(const BaselineQuestion& question, const GpuFound& gpu,
                                   const std::string& option, const BaselineWork& work) {
  const BaselineKey key = KeyOfBaseline(*question.problem, question.size, question.tf32, gpu, question.mode);
  const BaselineStore store(CacheDirectory());
  if (option == "stored") return store.Find(key);
  const PythonTorch python = FindPythonTorch();
  if (auto found = store.Find(key, python.torch_version)) return found;
  return MeasureBaseline(question, gpu, python, question.problem->id, work);
}

}  // namespace

Baseline Together(const std::vector<ShapeBaseline>& of_shapes, const std::string& size) {
  Baseline together = of_shapes.front().baseline;
  if (of_shapes.size() == 1) return together;
  together.failure.clear();
  std::vector<WeightedValue> eager, compiled;
  for (const auto& [baseline, weight] : of_shapes) {
    eager.push_back({baseline.eager_us, weight});
    compiled.push_back({baseline.compiled_us, weight});
    together.max_error = std::max(together.max_error, baseline.max_error);
    if (together.failure.empty() && !baseline.failure.empty())
      together.failure = fmt::format("at {}: {}", baseline.key.size, baseline.failure);
  }
  together.key.size = size;
  together.eager_us = WeightedGeometricMean(eager);
  together.compiled_us = WeightedGeometricMean(compiled);
  return together;
}

void AddBaselineOption(CLI::App* command, std::string* option) {
  command
      ->add_option("--baseline", *option,
                   "On a GPU: compile measures torch.compile beside eager where `kevin baseline` has not "
                   "stored it yet (some 30 s)")
      ->check(CLI::IsMember({"stored", "compile"}))
      ->capture_default_str();
}

std::optional<Baseline> BaselineFor(const BaselineQuestion& question, const EnvironmentFacts& facts,
                                    const std::string& option, const BaselineWork& work,
                                    const GpuFinder& find_gpus) {
  const std::optional<GpuFound> gpu = GpuOf(facts, find_gpus);
  if (!gpu) return std::nullopt;
  std::vector<ShapeBaseline> of_shapes;
  for (const auto& [size, weight] : ShapesOf(*question.problem, question.size)) {
    BaselineQuestion at_shape = question;
    at_shape.size = size;
    const auto found = BaselineAt(at_shape, *gpu, option, work);
    if (!found) return std::nullopt;
    of_shapes.push_back({*found, weight});
  }
  return Together(of_shapes, question.size);
}

Baseline MeasureBaseline(const BaselineQuestion& question, const GpuFound& gpu, const PythonTorch& python,
                         const std::string& label, const BaselineWork& work) {
  TorchCompileRequest request;
  request.size = question.size;
  request.tf32 = question.tf32;
  request.mode = question.mode;
  request.gpu = gpu;
  request.python = python;
  request.on_phase = [&](const std::string& phase) {
    work.progress->Phase(fmt::format("{}  torch.compile: {}", label, phase));
  };
  request.stop = work.stop;
  request.on_phase("start Python");
  Baseline baseline = MeasureTorchCompile(*question.problem, request);
  work.progress->Phase("");
  BaselineStore(CacheDirectory()).Store(baseline);
  return baseline;
}

std::string BaselineNote(const std::optional<Baseline>& baseline, const Problem& problem,
                         const EnvironmentFacts& facts) {
  if (!facts.device.starts_with("cuda:")) return "";
  if (!baseline) {
    const Precision precision = PrecisionOf(problem);
    return fmt::format(
        "; torch.compile not measured (kevin baseline --problem {}{})", problem.id,
        precision == Precision::kFp32 ? "" : std::string(" --precision ") + PrecisionName(precision));
  }
  if (!baseline->failure.empty()) return fmt::format("; no {}: {}", Name(*baseline), baseline->failure);
  return fmt::format("; {} is {} over eager", Name(*baseline), Times(baseline->CompileOverEager()));
}

std::optional<double> OverBaseline(const std::optional<Baseline>& baseline, double speedup) {
  if (!baseline || !baseline->HasCompiled()) return std::nullopt;
  return speedup / baseline->CompileOverEager();
}

std::string OverBaselineText(const std::optional<Baseline>& baseline, double speedup) {
  const std::optional<double> over = OverBaseline(baseline, speedup);
  if (!over || baseline->CompileOverEager() <= 1) return "";
  return fmt::format(", {} over {}", Times(*over), Name(*baseline));
}

void AddBaselineFields(const std::optional<Baseline>& baseline, const char* speedup_field, Json* event) {
  const bool known = baseline && baseline->HasCompiled();
  const Json speedup = event->value(speedup_field, Json());
  (*event)["baseline"] = known ? Json(Name(*baseline)) : Json();
  (*event)["baseline_us"] = known ? Json(baseline->compiled_us) : Json();
  (*event)["speedup_over_baseline"] =
      known && speedup.is_number() ? Json(*OverBaseline(baseline, speedup.get<double>())) : Json();
}

const std::vector<std::string> kBaselineHeading = {
    "problem",  "size",       "device",     "torch",     "TF32",      "precision", "mode",
    "eager us", "compile us", "over eager", "compile s", "max error", "note"};

std::vector<std::string> BaselineRow(const Baseline& b) {
  std::vector<std::string> row = {
      b.problem,       b.key.size, b.key.device_model, b.torch_version, b.key.tf32 ? "yes" : "no",
      b.key.precision, b.key.mode};
  if (b.failure.empty() && !b.HasCompiled()) {
    row.insert(row.end(), {fmt::format("{:.1f}", b.eager_us), "", "", "", "", ""});
  } else if (b.failure.empty()) {
    row.insert(row.end(), {fmt::format("{:.1f}", b.eager_us), fmt::format("{:.1f}", b.compiled_us),
                           Times(b.CompileOverEager()), fmt::format("{:.1f}", b.compile_s),
                           fmt::format("{:.2g}", b.max_error), ""});
  } else {
    row.insert(row.end(), {"", "", "", "", "", b.failure});
  }
  return row;
}

std::string StoredBaselinesText(const Problem& problem) {
  std::vector<std::vector<std::string>> rows = {kBaselineHeading};
  for (const Baseline& baseline : BaselineStore(CacheDirectory()).OfProblem(problem.content_hash))
    rows.push_back(BaselineRow(baseline));
  return rows.size() == 1 ? "" : "\nBaselines (kevin baseline)\n" + AlignedTable(rows);
}

Json BaselineEvent(const Baseline& b) {
  const bool known = b.failure.empty();
  const auto times = [&](auto value) { return known ? Json(value) : Json(); };
  const auto compiled = [&](auto value) { return b.HasCompiled() ? Json(value) : Json(); };
  return {{"event", "baseline"},
          {"problem", b.problem},
          {"size", b.key.size},
          {"tf32", b.key.tf32},
          {"device", b.key.device_model},
          {"driver", b.key.driver},
          {"torch", b.torch_version},
          {"precision", b.key.precision},
          {"mode", b.key.mode},
          {"eager_us", times(b.eager_us)},
          {"compiled_us", compiled(b.compiled_us)},
          {"speedup", compiled(b.CompileOverEager())},
          {"compile_s", compiled(b.compile_s)},
          {"max_error", compiled(b.max_error)},
          {"pairs", times(b.pairs)},
          {"reason", known ? Json() : Json(b.failure)},
          {"measured_at", b.measured_at}};
}

}  // namespace kevin
