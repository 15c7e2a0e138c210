#include "policies/search/task_program.h"

#include <algorithm>

#include "policies/search/graph.h"
#include "policies/search/lower.h"

namespace kevin::search {
namespace {

constexpr int kMostRoundings = 1;  // of values that C++ keeps in 16 bits, one after another

void AddSeconds(const std::vector<Stage>& stages, bool is_cuda, double times, std::vector<double>& seconds) {
  // Roughly what a machine does: only the ratio of both counts matters.
  const double flops_per_s = is_cuda ? 4e13 : 1e11, bytes_per_s = is_cuda ? 4e12 : 1e10;
  const double least_s = is_cuda ? 2e-6 : 5e-6;
  for (const Stage& stage : stages) {
    if (const auto* repeat = std::get_if<Repeat>(&stage.work)) {
      AddSeconds(repeat->body, is_cuda, times * static_cast<double>(repeat->times.extent), seconds);
    } else {
      seconds.push_back(times * std::max({stage.flops / flops_per_s, stage.bytes / bytes_per_s, least_s}));
    }
  }
}

// The first of the task's attempts whose result was incorrect; their number if there is none.
size_t FirstIncorrect(const Task& task) {
  const auto first = std::find_if(task.attempts.begin(), task.attempts.end(),
                                  [](const TaskAttempt& attempt) { return attempt.outcome == "wrong"; });
  return static_cast<size_t>(first - task.attempts.begin());
}

// C++ computes products in fp32 in any case. In CUDA those of 16 bits are several times as fast: what they read keeps 16 bits
// until a result is incorrect. The first text keeps fp32, so that there is a correct one; the next tries 16 bits.
void ChooseWidths(TaskProgram* one) {
  const Task& task = one->task;
  if (task.kind == "cpp") WidenChains(one->program, kMostRoundings);
  const bool begins_wide = task.kind == "cuda" && HasNarrowChain(one->program);
  const size_t incorrect = FirstIncorrect(task);
  // No attempt yet, or an incorrect first one, after which 16 bits would be incorrect too.
  if (begins_wide && incorrect == 0) {
    one->is_widened_first = WidenChains(one->program, 0);
  } else if (incorrect < task.attempts.size()) {
    one->is_widened_late = WidenChains(one->program, 0);
    if (one->is_widened_late) one->attempts_of_others = incorrect + 1;
  } else if (begins_wide) {
    one->attempts_of_others = 1;
  }
}

}  // namespace

std::vector<TaskProgram> ProgramsOf(const Task& task) {
  if (task.kind != "cpp" && task.kind != "cuda")
    throw Unsupported("it writes candidates of kind cpp and cuda, not " + task.kind);
  if (task.shape_graphs.empty()) throw Unsupported("there is no graph of the reference");
  std::vector<TaskProgram> programs;
  for (const TaskShape& shape : task.shape_graphs) {
    if (shape.graph.empty()) throw Unsupported(shape.no_graph);
    TaskProgram one{task, {}};
    one.task.symbols = shape.symbols;
    one.program = Lower(ParseGraph(shape.graph), one.task);
    Fuse(one.program);
    ChooseWidths(&one);
    if (task.kind == "cuda") KeepScoreOperands(one.program);
    PlaceWorkspaces(one.program);
    programs.push_back(std::move(one));
  }
  return programs;
}

std::vector<Knob> KnobsOf(const TaskProgram& at) {
  return at.task.kind == "cuda" ? CudaKnobs(at.program, at.task) : CppKnobs(at.program, at.task);
}

std::string TextOf(const TaskProgram& at, const Setting& setting) {
  return at.task.kind == "cuda" ? WriteCuda(at.program, at.task, setting)
                                : WriteCpp(at.program, at.task, setting);
}

std::vector<double> SharesByCounts(const TaskProgram& at) {
  std::vector<double> shares;
  AddSeconds(at.program.stages, at.task.kind == "cuda", 1, shares);
  double total = 0;
  for (const double one : shares) total += one;
  for (double& one : shares) one /= total;
  return shares;
}

}  // namespace kevin::search
