#include "policies/search/search_policy.h"

#include <fmt/format.h>

#include "env/error.h"
#include "policies/search/lower.h"
#include "policies/search/write.h"

namespace kevin {
namespace {

using search::Unsupported;

search::Program ProgramOf(const Task& task) {
  if (task.kind != "cpp" && task.kind != "cuda")
    throw Unsupported("it writes candidates of kind cpp and cuda, not " + task.kind);
  for (const TaskShape& shape : task.shape_graphs) {
    if (shape.graph.empty()) throw Unsupported(shape.no_graph);
  }
  if (task.shape_graphs.empty()) throw Unsupported("there is no graph of the reference");
  search::Program program = search::Lower(search::ParseGraph(task.shape_graphs[0].graph), task);
  search::Fuse(program);
  search::PlaceWorkspaces(program);
  return program;
}

std::string TextOf(const Task& task) {
  const search::Program program = ProgramOf(task);
  const bool is_cuda = task.kind == "cuda";
  search::Setting setting;
  for (const search::Knob& knob : is_cuda ? CudaKnobs(program, task) : CppKnobs(program, task))
    setting[knob.name] = knob.values.at(0);
  return is_cuda ? WriteCuda(program, task, setting) : WriteCpp(program, task, setting);
}

class SearchPolicy : public Policy {
 public:
  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    Completion completion;
    completion.model = "search-2";
    if (cancel != nullptr && cancel->load()) {
      completion.stop_reason = "cancelled";
      return completion;
    }
    completion.text = "```" + request.task.kind + "\n" + TextOf(request.task) + "```\n";
    completion.stop_reason = "stop";
    if (on_text) on_text(completion.text);
    return completion;
  }

  std::string Name() const override { return "search"; }
  bool LoadsProcessor() const override { return true; }
  bool ReadsGraphs() const override { return true; }

  std::string WhyNot(const Task& task) const override {
    try {
      TextOf(task);
      return "";
    } catch (const Unsupported& unsupported) {
      return fmt::format("the search policy cannot write this problem: {}", unsupported.what());
    }
  }
};

}  // namespace

std::unique_ptr<Policy> MakeSearchPolicy() { return std::make_unique<SearchPolicy>(); }

}  // namespace kevin
