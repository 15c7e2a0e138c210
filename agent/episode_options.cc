#include "agent/episode_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "agent/records.h"
#include "env/error.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "env/process/machine.h"
#include "env/verdict/begin_evaluation.h"
#include "prompts/prompts.h"

namespace kevin {

DiagnoseTurns DiagnoseTurnsNamed(const std::string& name) {
  if (name == "off") return DiagnoseTurns::kOff;
  return name == "all" ? DiagnoseTurns::kAll : DiagnoseTurns::kBest;
}

EpisodeOptions OptionsToContinue(const EpisodeRecord& episode, int more_turns) {
  EpisodeOptions options;
  options.continue_episode = episode.id;
  options.turns = more_turns;
  options.seed = episode.seed;
  options.workload = episode.workload;
  options.prompts = episode.prompt_template == kKernelBenchPrompts ? kKernelBenchPrompts : "kevin";
  options.note = episode.note;
  options.start_source = episode.start_source;
  options.kind = episode.kind;
  return options;
}

void RequirePolicyFor(const Problem& problem, const Policy& policy, const EpisodeOptions& options,
                      const std::string& kind, const GraphFunction& graph_of) {
  if (!options.start_kind.empty() &&
      (IsForGpu(options.start_kind) != IsForGpu(kind) || IsPython(options.start_kind) != IsPython(kind))) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("the kernel to start from is of kind {}; this episode's are of kind {}",
                            options.start_kind, kind),
                fmt::format("give a .{} file with --from, or another --device", FileEnding(kind)));
  }
  RequireModelFits(problem, kind, options.workload.size);
  const SizedProblem sized = AtFirstShape(problem, options.workload.size);
  ConversationContext context = ConversationContextOf(sized, options, kind);
  if (policy.ReadsGraphs()) context.shape_graphs = ShapeGraphs(problem, options.workload.size, graph_of);
  const std::string why_not = policy.WhyNot(BuildTask(context, {}));
  if (why_not.empty()) return;
  const size_t end = std::min(why_not.find('\n'), why_not.size());
  throw Error(ExitCode::kBadRequest, fmt::format("{}: {}", problem.id, why_not.substr(0, end)),
              end < why_not.size() ? why_not.substr(end + 1) : "choose another problem or policy (--policy)");
}

void RequireKindAndPrompts(const EnvironmentFacts& facts, const EpisodeOptions& options) {
  const std::string& kind = CandidateKindOf(options, facts);
  if (std::find(facts.kinds.begin(), facts.kinds.end(), kind) == facts.kinds.end())
    throw Error(ExitCode::kBadRequest,
                fmt::format("candidates of kind {} are not judged on {}", kind, facts.device),
                fmt::format("--kind: one of {}", fmt::join(facts.kinds, ", ")));
  if (options.prompts == kKernelBenchPrompts && kind != "modelnew")
    throw Error(ExitCode::kBadRequest,
                fmt::format("--prompts kernelbench asks for ModelNew, and the kind is {}", kind),
                "add --kind modelnew");
}

void RequireSameTask(const EpisodeRecord& earlier, const Problem& problem, const EnvironmentFacts& facts) {
  std::string difference;
  if (earlier.problem_hash != problem.content_hash) {
    difference = fmt::format("{} has changed since", problem.id);
  } else if (earlier.workload.precision != PrecisionName(PrecisionOf(problem))) {
    difference = fmt::format("its precision is {}", earlier.workload.precision);
  } else if (DeviceModel(earlier.device) != DeviceModel(facts.device)) {
    difference = fmt::format("it was measured on \"{}\", this is \"{}\"", earlier.device, facts.device);
  }
  if (difference.empty()) return;
  throw Error(
      ExitCode::kBadRequest,
      fmt::format("episode {}: {}; its results are not comparable", earlier.id, difference),
      fmt::format("start a new one from its best kernel: kevin run --problem {} --from FILE", problem.id));
}

const std::string& CandidateKindOf(const EpisodeOptions& options, const EnvironmentFacts& facts) {
  return options.kind.empty() ? facts.kinds.front() : options.kind;
}

EpisodeOptions CompletedBy(const EnvironmentFacts& facts, EpisodeOptions options) {
  if (options.workload.size.empty()) options.workload.size = facts.default_size;
  if (!facts.machine.empty()) options.machine = facts.machine;
  return options;
}

ConversationContext ConversationContextOf(const SizedProblem& sized, const EpisodeOptions& options,
                                          const std::string& kind, const EnvironmentFacts& facts) {
  ConversationContext context;
  context.problem = &sized;
  const auto set = sized.problem->shape_sets.find(options.workload.size);
  if (set != sized.problem->shape_sets.end()) context.shapes = set->second;
  context.kind = kind;
  context.prompts = options.prompts;
  context.on_gpu = facts.device.starts_with("cuda");
  context.own_kernels = options.workload.rules == "kevin";
  context.tf32 = options.workload.tf32;
  context.machine = options.machine;
  context.threads = options.threads;
  context.compiler = facts.compiler, context.compiler_flags = facts.compiler_flags;
  context.peak_gb_per_s = facts.peak_gb_per_s, context.peak_gflop_per_s = facts.peak_gflop_per_s;
  context.unit_gflop_per_s = facts.unit_gflop_per_s;
  context.gpu = facts.gpu;
  context.kernelbench_inputs = options.workload.inputs == "kernelbench";
  context.asks_for_diff = options.asks_for_diff;
  context.note = options.note;
  context.start_source = options.start_source;
  context.tune = options.tune;
  context.prompt_token_budget = options.prompt_token_budget;
  return context;
}

EvaluateOptions EvaluateOptionsOf(const EpisodeOptions& options) {
  EvaluateOptions evaluate;
  evaluate.workload = options.workload;
  evaluate.profile = options.profile;
  evaluate.profile_report = options.profile_report;
  return evaluate;
}

EpisodeRecord NewEpisode(const Problem& problem, const std::string& policy, const EnvironmentFacts& facts,
                         const EpisodeOptions& options) {
  EpisodeRecord record;
  record.run = options.collection.empty() ? options.run : options.collection;
  record.last_run = options.run;
  record.lease = options.lease;
  record.problem = problem.id;
  record.problem_hash = problem.content_hash;
  record.policy = policy;
  record.kind = CandidateKindOf(options, facts);
  record.device = facts.device;
  record.isolation = facts.isolation;
  record.workload = AskedOf(problem, options.workload);
  record.seed = options.seed;
  record.turns_asked = options.turns;
  record.prompt_template = options.prompts;
  record.prompt_template_hash = PromptSetHash();
  record.start_source = options.start_source;
  record.note = options.note;
  record.until = options.until;
  return record;
}

}  // namespace kevin
