#pragma once
// START HERE for candidates in Python on a GPU: the verdict on one. Its rules are those of env/verdict/README.md; a call is
// made and timed as python_session.h says. The sequential test and the estimate are those of all judges.
//
// What looks after the calls of a batch, which a candidate makes and could order as it likes:
//   - every batch: words of outputs at secret places are read at its end and compared later; the device must be idle before
//     the other side runs; inputs must be unchanged; all outputs are compared with the reference's;
//   - audits, unannounced: the process is stopped at two random moments. Once the launched work is done, outputs of calls that
//     have returned must be complete. Inputs of calls that have not begun are drawn anew, or one element in 256 changes (always
//     so at the second moment), and must be answered as they are then;
//   - single calls, unannounced: a call in a batch may not take less than half of a call alone, beyond twice what eager gains
//     in a batch. Work and the launching of it overlap in a batch, which saves no more than that.
//
// Whose work goes on, and whose memory lacks, is found out by ending the candidate's process: what ends with it was its own.

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "env/gpu/judge/python_session.h"
#include "env/verdict/judgement.h"

namespace kevin {

struct GpuPythonRequest : JudgeOptions {
  int bundle_fd = -1;
  std::string candidate_key;  // equal for equal bundles
  int start_bundle_fd = -1;   // < 0: no kernel to pair against
  std::string start_key;
  double call_timeout_s = 20;        // a batch may take as many times that as it has calls
  double evaluation_timeout_s = 60;  // of all batches of the candidate (Limits::evaluation_timeout_s)
  double examine_timeout_s = 60;     // of the first calls, with what they compile
  bool first_calls_apart = true;     // NeedsFirstCallsApart() of its text
  std::string rules = "kevin";
  std::set<std::string> own_kernels;  // names that its text gives its kernels (env/python/own_kernels.h)
  std::function<void(const std::string& phase)> on_phase;
};

// Throws Error for what the candidate did not cause; the evaluation is then void.
JudgeResult JudgePythonOnGpu(GpuPythonSession& session, const GpuPythonRequest& request);

}  // namespace kevin
