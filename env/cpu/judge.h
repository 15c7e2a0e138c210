#pragma once
// START HERE for the CPU. What the evaluator decides: the verdict on one compiled candidate, and the admission of a
// problem.
//
// A candidate is verified on fresh seeds, then timed against eager in pairs, by the rules of env/verdict/README.md.
// The order of events is in JudgeLibrary(); the rules it shares with the GPU: env/verdict/judgement.h.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "env/cpu/own_share.h"
#include "env/cpu/session.h"
#include "env/verdict/judgement.h"

namespace kevin {

// How many pairs are timed. More processes narrow an interval more than more pairs of one do; each costs its start.
// tests/bench/bench_judge shows what other plans cost and give.
struct PairsPlan {
  double sequential_budget_s = 1.1;  // half as much again with a third side
  int processes = 3;                 // of the fixed pairs
  double fixed_budget_s = 0.6;
  int least_rounds = 4, most_rounds = 6;  // per process
};

struct JudgeRequest : JudgeOptions {
  int library_fd = -1;  // the candidate's .so
  int own_libraries_fd =
      -1;  // of a candidate in Python: the bundle of what counts as its own code; -1: nothing does
  int start_library_fd = -1;    // the kernel to pair against as well (--from, or bench A B); -1: none
  std::string rules = "kevin";  // Workload::rules, of a candidate in Python
  // kInterpreted: the times say nothing, and a call takes seconds. No sequential test is made.
  KernelForm kernel_form = KernelForm::kCompiled;
  PairsPlan plan;
  std::function<void(const std::string& phase)> on_phase;
};

// Throws Error for what the candidate did not cause; the evaluation is then void.
JudgeResult JudgeLibrary(Session& session, const JudgeRequest& request);

// Puts each decoy and correct answer of env/verdict/admission.h through the check of the problem, on every
// member of its input mixture. A decoy that passes, unless it is indistinguishable from the correct answer,
// makes the problem inadmissible until its inputs are made harder. Decoys "from rounded inputs" or "from
// other values" are computed in fp64. DecoyResults as JSON.
nlohmann::json AdmitProblem(Session& session);

}  // namespace kevin
