#pragma once
// The size sets of a problem file: [sizes.NAME] with one shape, or [[sizes.NAME]] once for each of several,
// with an optional weight. Internal to the problem loader.

#include "env/problem/problem.h"
#include "env/problem/toml_section.h"

namespace kevin {

// Fills sizes and shape_sets from the table `sizes`. Throws Error(kBadRequest) with file, line and shape
// ("sizes.mine/2", counted from 1).
void ReadSizeSets(const TomlSection& sizes, Problem* problem);

}  // namespace kevin
