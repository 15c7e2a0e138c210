#include "tests/support/search_text.h"

#include "agent/machine.h"
#include "agent/parse.h"
#include "agent/task.h"
#include "env/error.h"
#include "env/graph_source.h"
#include "env/process/spawn.h"
#include "policies/search/search_policy.h"

namespace kevin::testing {

Task SearchTask(const Problem& problem, const std::string& size, const std::string& kind) {
  static GraphSource graphs(ProgramDirectory(), CacheDirectory());
  const SizedProblem sized = AtSize(problem, size);
  ConversationContext context;
  context.problem = &sized;
  context.kind = kind;
  context.threads = 2;
  context.shape_graphs = {{sized.symbols, "", ""}};
  try {
    context.shape_graphs[0].graph = graphs.Graph(problem, size);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadRequest) throw;
    context.shape_graphs[0].no_graph = error.what();
  }
  return BuildTask(context, {});
}

std::string SearchText(const Problem& problem, const std::string& size, const std::string& kind,
                       std::string* why) {
  const auto policy = MakeSearchPolicy();
  Request request;
  request.task = SearchTask(problem, size, kind);
  if (why != nullptr) {
    *why = policy->WhyNot(request.task);
    if (!why->empty()) return "";
  }
  const ParsedReply reply = ParseReply(policy->Complete(request, nullptr, {}).text, kind);
  if (!reply.source && why != nullptr) {
    *why = reply.failure;
    return "";
  }
  if (!reply.source) throw Error(ExitCode::kBroken, problem.id + ": search: " + reply.failure, "");
  return *reply.source;
}

}  // namespace kevin::testing
