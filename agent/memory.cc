#include "agent/memory.h"

#include <algorithm>
#include <utility>

#include "env/error.h"
#include "policies/search/setting_text.h"

namespace kevin {
namespace {

constexpr double kOtherDevice = 0.5, kOtherPrecision = 0.8;  // factors of nearness

bool AskTheSame(const BestKernel& a, const BestKernel& b) {
  return a.problem_hash == b.problem_hash && a.kind == b.kind && a.device == b.device &&
         a.workload == b.workload;
}

// Of the first shape of its size set, as the search policy would be asked.
std::optional<search::TaskProgram> ProgramOf(const ProblemRecord& record, const BestKernel& kernel,
                                             const GraphFunction& graph_of) {
  try {
    const Problem problem = kernel.workload.Apply(ParseProblem(record.text, record.id));
    const SizedProblem sized = AtFirstShape(problem, kernel.workload.size);
    ConversationContext context;
    context.problem = &sized;
    context.kind = kernel.kind;
    context.tf32 = kernel.workload.tf32;
    context.shape_graphs = ShapeGraphs(problem, sized.size, graph_of);
    return std::move(search::ProgramsOf(BuildTask(context, {})).at(0));
  } catch (const Error&) {
    return std::
        nullopt;  // an operation without a stage, a text of an older program, a reference without a graph
  }
}

std::vector<TaskRelatedKnob> RelatedKnobs(const search::Program& program,
                                          const std::vector<search::Knob>& knobs) {
  const std::vector<const search::Stage*> stages = search::LeafStages(program);
  std::vector<TaskRelatedKnob> related;
  for (const search::Knob& knob : knobs) {
    const bool has_stage = knob.stage >= 0 && static_cast<size_t>(knob.stage) < stages.size();
    related.push_back(
        {knob.name, knob.what,
         has_stage ? search::StageForm(program, *stages[static_cast<size_t>(knob.stage)]) : ""});
  }
  return related;
}

std::vector<TaskRelatedResult> RelatedResults(const std::vector<search::Knob>& knobs,
                                              const std::vector<TaskAttempt>& attempts) {
  std::vector<TaskRelatedResult> results;
  for (const search::Tried& tried : search::ReadAttempts(knobs, attempts)) {
    if (!tried.speedup) continue;
    TaskRelatedResult result;
    for (const search::Knob& knob : knobs) result.values.push_back(tried.setting.at(knob.name));
    result.speedup = *tried.speedup;
    results.push_back(std::move(result));
  }
  std::stable_sort(results.begin(), results.end(),
                   [](const auto& a, const auto& b) { return a.speedup > b.speedup; });
  return results;
}

}  // namespace

Memory::Memory(Store store, const std::function<bool(const ProblemRecord&)>& leave_out)
    : store_(std::move(store)) {
  std::map<std::string, bool> is_left_out;  // by problem
  for (BestKernel& kernel : BestKernels(store_, kTextsPerProblem)) {
    if (leave_out) {
      const auto [found, is_new] = is_left_out.try_emplace(kernel.problem_hash, false);
      if (is_new) {
        const std::optional<ProblemRecord> record = store_.FindProblem(kernel.problem_hash);
        found->second = record && leave_out(*record);
        left_out_ += found->second ? 1 : 0;
      }
      if (found->second) continue;
    }
    if (questions_.empty() || !AskTheSame(questions_.back().kernels[0], kernel)) questions_.emplace_back();
    questions_.back().kernels.push_back(std::move(kernel));
  }
}

void Memory::Lower(Question& question, const GraphFunction& graph_of) {
  if (std::exchange(question.was_tried, true)) return;
  const BestKernel& fastest = question.kernels[0];
  const std::optional<ProblemRecord> record = store_.FindProblem(fastest.problem_hash);
  if (!record) return;
  question.name = record->name;
  question.program = ProgramOf(*record, fastest, graph_of);
  if (question.program)
    question.traits = search::TraitsOf(question.program->program, search::SharesByCounts(*question.program));
}

TaskRelated Memory::ResultsOf(const Question& question, double nearness) {
  const search::TaskProgram& program = *question.program;
  const BestKernel& fastest = question.kernels[0];
  TaskRelated related;
  related.problem = program.task.problem;
  related.name = question.name;
  related.symbols = program.task.symbols;
  related.precision = fastest.workload.precision;
  related.device = fastest.device;
  related.nearness = nearness;
  related.speedup = fastest.speedup;
  related.candidate_us = fastest.candidate_us;
  std::vector<TaskAttempt> attempts;
  for (const BestKernel& kernel : question.kernels) {
    const std::optional<TurnRecord> turn = store_.LoadTurn(kernel.episode, kernel.turn);
    if (!turn) continue;
    if (const KnobTrial* chosen = ChosenTrial(turn->trials); chosen != nullptr && &kernel == &fastest)
      related.chosen = chosen->setting;
    TaskAttempt attempt;
    attempt.source = turn->evaluation.source;
    attempt.outcome = "measured";
    attempt.speedup = kernel.speedup;
    attempt.candidate_us = kernel.candidate_us;
    attempt.trials = turn->trials;
    attempts.push_back(std::move(attempt));
  }
  const std::vector<search::Knob> knobs = search::KnobsOf(program);
  related.results = RelatedResults(knobs, attempts);
  if (!related.results.empty()) related.knobs = RelatedKnobs(program.program, knobs);
  return related;
}

std::unique_ptr<Memory> OpenMemory(const std::filesystem::path& path,
                                   const std::function<bool(const ProblemRecord&)>& leave_out) {
  try {
    return std::make_unique<Memory>(Store::Open(path, OpenMode::kRead), leave_out);
  } catch (const Error& error) {
    throw Error(error.code(), std::string("--memory: ") + error.what(),
                "give another database with --memory, or leave the option out; this one was not changed");
  }
}

std::vector<TaskRelated> Memory::Related(const Task& task, const Workload& workload,
                                         const std::string& device, const GraphFunction& graph_of) {
  search::ProgramTraits own;
  try {
    const search::TaskProgram program = std::move(search::ProgramsOf(task).at(0));
    own = search::TraitsOf(program.program, search::SharesByCounts(program));
  } catch (const Error&) {
    return {};
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<double, const Question*>> near;
  for (Question& question : questions_) {
    const BestKernel& kernel = question.kernels[0];
    if (kernel.kind != task.kind || kernel.workload.tf32 != workload.tf32 ||
        kernel.workload.rules != workload.rules)
      continue;
    Lower(question, graph_of);
    if (!question.program) continue;
    double nearness = search::Likeness(own, question.traits);
    if (DeviceModel(kernel.device) != DeviceModel(device)) nearness *= kOtherDevice;
    if (kernel.workload.precision != workload.precision) nearness *= kOtherPrecision;
    if (nearness >= kLeastNearness) near.emplace_back(nearness, &question);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (near.size() > kMostRelated) near.resize(kMostRelated);
  std::vector<TaskRelated> related;
  for (const auto& [nearness, question] : near) related.push_back(ResultsOf(*question, nearness));
  return related;
}

}  // namespace kevin
