#pragma once
// What the compiler says about the loops of a candidate: g++'s -fopt-info-vec-optimized-missed, clang's remarks of
// loop-vectorize. Only known messages about lines of the candidate's own text are read, and their reasons come out in
// Kevin's words: the rest of a message may quote the candidate. Pure; any thread.

#include <string>
#include <vector>

#include "env/diagnosis/diagnosis.h"

namespace kevin {

// The options that make a compiler write its report: g++ to the file `report` in its working folder, clang to stderr.
std::vector<std::string> VectorReportFlags(bool is_clang, const std::string& report);

// One note a line of the file `source_name` with `lines` lines, in their order: vectorised (by the widest vectors), or
// not, with the first known reason.
std::vector<VectorNote> ReadVectorReport(const std::string& report, const std::string& source_name,
                                         int lines);

}  // namespace kevin
