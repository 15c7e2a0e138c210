#pragma once
// `--suite`: which problems.
//
//   level1                     all of a level, or of an imported suite
//   level1/1-20                those of its numbers that exist
//   level1/19,level1/23        several, also mixed with ranges
//   core                       a list in the problem folder: suites/core.txt
//   mine.txt, mine.toml        a list of your own, or a single problem file
//
// A list has one of the above a line; # begins a remark.

#include <string>
#include <vector>

#include "env/problem/precision.h"
#include "env/problem/problem.h"

namespace kevin {

// One that does not count in the precision that is asked for (FlagsAgainst of env/problem/precision.h), and why.
struct LeftOut {
  std::string id, reason;
};

// Ids and paths as ProblemSet::Find takes them, each once, in the order given. With `left_out`, problems of a
// level, range or list that do not count are put there instead; what is asked for by its own id stays. Throws
// Error(kBadRequest) for what names nothing.
std::vector<std::string> ProblemsOfSuite(const ProblemSet& problems,
                                         const std::filesystem::path& problem_folder,
                                         const std::string& suite, std::vector<LeftOut>* left_out = nullptr,
                                         Precision precision = Precision::kFp32);

}  // namespace kevin
