#pragma once
// The part of a diagnosis (env/diagnosis/diagnosis.h) that runs the candidate: in the sandboxed runner, on inputs like
// those of a verdict, after the verdict. Its times are compared with each other only.

#include "env/cpu/session.h"
#include "env/diagnosis/diagnosis_run.h"

namespace kevin {

inline constexpr double kDiagnosisBudget_s = 0.45;  // of wall time, with all threads

// Holds the lock of the CPU exclusively. What would exceed the budget is left out. Throws Error as JudgeLibrary does.
DiagnosisRun DiagnoseLibrary(Session& session, int library_fd);

}  // namespace kevin
