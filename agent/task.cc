#include "agent/task.h"

#include <algorithm>

#include "env/error.h"

namespace kevin {
namespace {

TaskArgument Argument(const SizedProblem& problem, size_t number, const std::string& kind) {
  const ConcreteTensor& tensor = problem.arguments[number];
  const std::string type = DTypeInKind(tensor.spec.dtype, kind);
  const bool is_output = IsOutputArgument(*problem.problem, number);
  return {tensor.spec.name,
          is_output                         ? "output"
          : tensor.spec.is_inout            ? "inout"
          : !tensor.spec.is_param           ? "input"
          : HasParamBlock(*problem.problem) ? "params"
                                            : "param",
          IsWrittenArgument(*problem.problem, number) ? type + "*" : "const " + type + "*", tensor.shape,
          tensor.spec.shape};
}

TaskAttempt Attempt(const TurnRecord& turn) {
  TaskAttempt attempt{turn.evaluation.source,      turn.evaluation.outcome, {}, {}, {},
                      turn.evaluation.candidate_us};
  if (const auto& speedup = turn.evaluation.speedup) {
    attempt.speedup = speedup->value;
    attempt.speedup_low = speedup->low;
    attempt.speedup_high = speedup->high;
  }
  attempt.trials = turn.trials;
  return attempt;
}

}  // namespace

std::vector<TaskShape> ShapeGraphs(const Problem& problem, const std::string& size,
                                   const GraphFunction& graph_of) {
  std::vector<TaskShape> graphs;
  for (const WeightedShape& shape : ShapesOf(problem, size)) {
    TaskShape one{AtSize(problem, shape.size).symbols, "", ""};
    try {
      one.graph = graph_of(problem, shape.size);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kBadRequest) throw;
      one.no_graph = error.what();
    }
    if (one.graph.empty() && one.no_graph.empty()) one.no_graph = "there is no graph of the reference";
    graphs.push_back(std::move(one));
  }
  return graphs;
}

Task BuildTask(const ConversationContext& context, const std::vector<TurnRecord>& turns) {
  const SizedProblem& sized = *context.problem;
  const Problem& problem = *sized.problem;
  Task task;
  task.problem = problem.id;
  task.kind = context.kind;
  task.reference = problem.reference;
  task.signature = LaunchSignature(problem, context.kind);
  task.families = problem.families;
  task.symbols = sized.symbols;
  for (size_t i = 0; i < sized.arguments.size(); ++i) {
    task.arguments.push_back(Argument(sized, i, context.kind));
  }
  task.shapes = std::max(1, static_cast<int>(context.shapes.size()));
  task.shape_graphs = context.shape_graphs;
  task.threads = context.threads;
  if (context.gpu.capability > 0) {
    task.device = {context.gpu.multiprocessors, context.gpu.block_shared_bytes, context.gpu.capability};
  }
  task.tune = context.tune;
  task.tf32 = context.tf32;
  task.related = context.related;
  task.turn = turns.empty() ? 1 : turns.back().turn + 1;
  task.start_source = context.start_source;
  for (const TurnRecord& turn : turns) {
    if (turn.turn > 0) task.attempts.push_back(Attempt(turn));
  }
  return task;
}

}  // namespace kevin
