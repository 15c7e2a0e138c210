#pragma once
// Reads what compute-sanitizer prints. Pure.

#include <string>

#include "env/gpu/examine/examiner.h"

namespace kevin {

// `source_name` is the file name that the machine code's line table has for the candidate's text.
CheckReport ReadCheckReport(const std::string& tool, const std::string& output,
                            const std::string& source_name);

}  // namespace kevin
