#pragma once
// How long the stages take that the text of a candidate in Python marks (env/diagnosis/stages.h), for a diagnosis: a process of
// its own makes single calls with cold caches, and waits for the device at each border of a stage. Its numbers are words of a
// process that runs the candidate, and enter no verdict and no time. One thread.

#include <string>

#include "env/diagnosis/diagnosis_run.h"
#include "env/gpu/judge/python_session.h"

namespace kevin {

struct StagesRequest {
  std::string key;     // of the bundle, as in its judgement
  int bundle_fd = -1;  // for the first calls, where they are not known any more
  int marked_fd = -1;  // the same bundle, with names of stages
  double call_timeout_s = 20;
  double examine_timeout_s = 60;  // of the first calls
};

// The log, with lines that ReadStageTimes reads, or a failure. Takes 0.3 s, or three calls. Throws Error for what the
// candidate did not cause.
DiagnosisRun TimeStages(GpuPythonSession& session, const StagesRequest& request);

}  // namespace kevin
