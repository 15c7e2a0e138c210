#pragma once
// A task as programs: one for each of its shapes, with the knobs and the text of the task's kind. Pure; any thread.

#include <string>
#include <vector>

#include "policies/search/write.h"

namespace kevin::search {

// The task at one of its shapes: `task.symbols` are those of the shape.
struct TaskProgram {
  Task task;
  Program program;  // fused, with workspaces in place
  // Keeps intermediates of 16 bits in fp32, because an attempt was incorrect without that.
  bool is_widened_late = false;
  bool is_widened_first = false;  // the same in the first text, and in all others where that was incorrect
  size_t attempts_of_others = 0;  // so many of the task's first attempts are of other programs
};

// One for each of Task::shape_graphs, in their order. Throws Unsupported with the reason where a shape cannot be
// written: no graph, an unknown operation, a kind that the policy does not write.
std::vector<TaskProgram> ProgramsOf(const Task& task);

std::vector<Knob> KnobsOf(const TaskProgram& at);
// The text without knob lines (WriteCpp, WriteCuda).
std::string TextOf(const TaskProgram& at, const Setting& setting);

// The share of the time that each stage takes by its counts of work, in the order of LeafStages; the sum is 1.
std::vector<double> SharesByCounts(const TaskProgram& at);

}  // namespace kevin::search
