#pragma once
// The part of a diagnosis (env/diagnosis/diagnosis.h) that runs the candidate: in the sandboxed runner, on inputs like
// those of a verdict, after the verdict. Its times are compared with each other only.

#include "env/cpu/session.h"
#include "env/diagnosis/diagnosis_run.h"

namespace kevin {

// Of the evaluator and the candidate together; a busy machine takes longer by the clock on the wall.
inline constexpr double kDiagnosisCpu_s = 0.7, kDiagnosisWall_s = 5;

// Holds the lock of the CPU exclusively. What would exceed the budget is left out. Throws Error as JudgeLibrary does.
// Of a candidate in Python only the log, with the times of its stages.
DiagnosisRun DiagnoseLibrary(Session& session, int library_fd);

}  // namespace kevin
