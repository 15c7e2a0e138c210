#include "env/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "env/problem/text.h"
#include "env/process/machine.h"
#include "env/verdict/shapes.h"

namespace kevin {
namespace {

bool IsMeasured(const Evaluation& evaluation) { return std::holds_alternative<Measured>(evaluation.outcome); }

// Roughly: only the order matters.
double CostOf(const SizedProblem& sized) {
  double cost = sized.flops;
  for (const ConcreteTensor& argument : sized.arguments) cost += static_cast<double>(argument.bytes);
  return cost;
}

// Positions in `shapes`.
std::vector<size_t> CheapestFirst(const Problem& problem, const std::vector<WeightedShape>& shapes) {
  std::vector<double> costs;
  for (const WeightedShape& shape : shapes) costs.push_back(CostOf(AtSize(problem, shape.size)));
  std::vector<size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return costs[a] < costs[b]; });
  return order;
}

// `place`: "2 of 3". What is known is known of all shapes together, so that one alone does not ask.
EvaluateOptions OptionsAt(const std::string& size, const std::string& place, EvaluateOptions options) {
  options.workload.size = size;
  options.known = nullptr;
  if (options.on_phase) {
    options.on_phase = [tell = std::move(options.on_phase), size, place](const std::string& phase) {
      tell(fmt::format("{} {} ({})", phase, size, place));
    };
  }
  return options;
}

Outcome NameShape(Outcome outcome, const std::string& where) {
  if (auto* o = std::get_if<CompileFailed>(&outcome)) o->where = where;
  if (auto* o = std::get_if<Refused>(&outcome)) o->reason = where + ": " + o->reason;
  if (auto* o = std::get_if<Crashed>(&outcome)) o->message = where + ": " + o->message;
  if (auto* o = std::get_if<TimedOut>(&outcome)) o->phase += " " + where;
  if (auto* o = std::get_if<Wrong>(&outcome)) o->message = where + ": " + o->message;
  return outcome;
}

// Empty if any is.
std::string CombinedKey(const std::vector<std::string>& machine_keys) {
  std::string text;
  for (const std::string& key : machine_keys) {
    if (key.empty()) return "";
    text += key + "\n";
  }
  return Sha256Hex(text);
}

// One of several shapes that was judged.
struct Judged {
  WeightedShape shape;
  Evaluation evaluation;
};

void AddTimes(const Evaluation& part, Evaluation* whole) {
  whole->compile_s += part.compile_s;
  whole->verify_s += part.verify_s;
  whole->measure_s += part.measure_s;
  whole->wait_s += part.wait_s;
  whole->device_s += part.device_s;
  whole->shared_gpu |= part.shared_gpu;
}

// Adds the samples of a shape after those of others; how many processes they came from.
int AddSamples(const std::vector<Sample>& samples, int first_process, std::vector<Sample>* all) {
  int processes = 0;
  for (Sample sample : samples) {
    processes = std::max(processes, sample.process + 1);
    sample.process += first_process;
    all->push_back(std::move(sample));
  }
  return processes;
}

double MeanPeak(const std::vector<Judged>& judged, double Evaluation::*peak) {
  std::vector<WeightedValue> values;
  for (const Judged& one : judged) values.push_back({one.evaluation.*peak, one.shape.weight});
  return WeightedGeometricMean(values);
}

// The result of all shapes together; details that only one can give (kernels, log) are those of the weakest one.
Evaluation Together(const Problem& problem, const std::vector<Judged>& judged) {
  Evaluation sums;
  int processes = 0;
  for (const auto& [shape, part] : judged) {
    AddTimes(part, &sums);
    sums.seeds.insert(sums.seeds.end(), part.seeds.begin(), part.seeds.end());
    const int more = AddSamples(part.samples, processes, &sums.samples);
    processes += more;
    const Symbols& symbols = problem.sizes.at(shape.size);
    sums.shapes.push_back({shape.size, symbols, shape.weight,
                           NameShape(part.outcome, "at " + ShapeName(shape.size, symbols)), more,
                           part.peak_gb_per_s, part.peak_gflop_per_s});
  }
  const size_t weakest = WeakestShape(sums.shapes);
  Evaluation whole = judged[weakest].evaluation;
  whole.compile_s = whole.verify_s = whole.measure_s = whole.wait_s = whole.device_s = 0;
  AddTimes(sums, &whole);
  whole.seeds = std::move(sums.seeds);
  whole.samples = std::move(sums.samples);
  whole.shapes = std::move(sums.shapes);
  if (IsMeasured(whole)) {
    whole.outcome = CombineMeasured(whole.shapes);
    whole.peak_gb_per_s = MeanPeak(judged, &Evaluation::peak_gb_per_s);
    whole.peak_gflop_per_s = MeanPeak(judged, &Evaluation::peak_gflop_per_s);
  } else {
    whole.outcome = whole.shapes[weakest].outcome;
  }
  return whole;
}

}  // namespace

std::string Environment::MachineKey(const Problem&, const Candidate&, const EvaluateOptions&) { return ""; }

std::string Environment::Graph(const Problem&, const std::string&) { return ""; }

void Environment::Expect(const Problem&, const std::string&, const Workload&) {}

std::optional<Diagnosis> Environment::Diagnose(const Problem&, const Candidate&, const EvaluateOptions&) {
  return std::nullopt;
}

Evaluation Environment::Evaluate(const Problem& problem, const Candidate& candidate,
                                 const EvaluateOptions& options) {
  const auto set = problem.shape_sets.find(options.workload.size);
  if (set == problem.shape_sets.end()) return EvaluateShape(problem, candidate, options);
  const std::vector<WeightedShape>& shapes = set->second;
  const auto name_question = [&](Evaluation* evaluation) {
    evaluation->workload.size = evaluation->key_parts["size"] = options.workload.size;
    evaluation->key = EvaluationKey(problem, candidate, options);
  };

  const auto start = std::chrono::steady_clock::now();
  std::string machine_key;
  if (options.known && !options.confirm) {
    std::vector<std::string> keys;
    for (const WeightedShape& shape : shapes) {
      keys.push_back(MachineKey(problem, candidate, OptionsAt(shape.size, "", options)));
      if (keys.back().empty()) break;
    }
    machine_key = CombinedKey(keys);
  }
  const double key_s = SecondsSince(start);
  if (!machine_key.empty()) {
    if (std::optional<Evaluation> known = options.known(machine_key)) {
      known->candidate_hash = known->key_parts["candidate"] =
          Sha256Hex(candidate.kind + "\n" + candidate.source);
      known->key_parts["kind"] = candidate.kind;
      known->machine_key = machine_key;
      known->compile_s = key_s;
      name_question(&*known);
      return std::move(*known);
    }
  }

  std::vector<std::optional<Evaluation>> evaluations(shapes.size());
  int number = 0;
  for (const size_t i : CheapestFirst(problem, shapes)) {
    const std::string place = fmt::format("{} of {}", ++number, shapes.size());
    evaluations[i] = EvaluateShape(problem, candidate, OptionsAt(shapes[i].size, place, options));
    if (!IsMeasured(*evaluations[i])) break;
  }
  std::vector<Judged> judged;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (evaluations[i]) judged.push_back({shapes[i], std::move(*evaluations[i])});
  }
  Evaluation whole = Together(problem, judged);
  whole.compile_s += key_s;
  whole.machine_key = machine_key;
  name_question(&whole);
  return whole;
}

}  // namespace kevin
