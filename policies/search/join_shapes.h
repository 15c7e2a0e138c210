#pragma once
// One text for a size set of several shapes: each shape has its stages in a namespace of its own, and `launch` takes
// those of the shape that it is compiled for.

#include <string>
#include <vector>

#include "policies/policy.h"

namespace kevin::search {

// `texts`: of each of task.shape_graphs, in their order, with a function `launch` each.
std::string JoinShapes(const Task& task, const std::vector<std::string>& texts);

}  // namespace kevin::search
