// When Python workers of a CPU are forked: beside verification, and never while pairs are timed. Needs a Python with torch
// (KEVIN_PYTHON).

#include "env/cpu/spare_workers.h"

#include <map>
#include <set>

#include "env/cpu/judge.h"
#include "env/python/python_kind.h"
#include "env/sandbox/sandbox.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/env/python/bundle.h"

namespace kevin {
namespace {

SpareWorkers& Spares() {
  static PythonWorkers workers(FindPythonSetup(BuiltPrograms()), 1, NamespacesAvailable());
  static SpareWorkers spares(workers);
  return spares;
}

Session& SharedSession() {
  static const std::unique_ptr<Session> session = [] {
    SessionOptions options;
    options.problem = ListedProblem("level1/19");
    options.threads = 1;
    options.namespaces = NamespacesAvailable();
    options.evaluator_path = BuiltPrograms() / "kevin-evaluator";
    options.runner_path = BuiltPrograms() / "kevin-runner";
    options.workers = &Spares();
    return std::make_unique<Session>(std::move(options));
  }();
  return *session;
}

std::string WithForward(const std::string& result) {
  return "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return " +
         result + "\n";
}

// How many workers had been asked for when each phase began, and at the end.
std::map<std::string, int64_t> AskedUntil(const std::string& source, JudgeRequest request = {}) {
  const Fd bundle = BundleOf(source, "modelnew");
  const int64_t before = Spares().asked();
  std::map<std::string, int64_t> asked;
  request.library_fd = bundle.get();
  request.rules = "open";
  request.on_phase = [&](const std::string& phase) { asked[phase] = Spares().asked() - before; };
  const JudgeResult result = JudgeLibrary(SharedSession(), request);
  INFO(OutcomeReason(result.outcome));
  CHECK(std::holds_alternative<Measured>(result.outcome));
  asked["end"] = Spares().asked() - before;
  return asked;
}

}  // namespace

// Those that take the place of disturbed ones come later.
TEST_CASE("the workers of an evaluation are asked for together, before its pairs are timed") {
  SharedSession();
  const std::string relu = WithForward("torch.relu(x)");
  const std::map<std::string, int64_t> first = AskedUntil(relu);
  CHECK(first.at("verify") == 0);
  CHECK(first.at("measure") == 1 + PairsPlan().processes);
  // An evaluator forks them between evaluations.
  Spares().Ask(1 + static_cast<size_t>(PairsPlan().processes));
  Spares().Await();
  CHECK(AskedUntil(relu).at("measure") == 0);
  const Fd start = BundleOf(WithForward("torch.clamp(x, min=0)"), "modelnew");
  JudgeRequest pair;
  pair.start_library_fd = start.get();
  const std::map<std::string, int64_t> both = AskedUntil(relu, pair);
  CHECK(both.at("measure") == 2 * (1 + PairsPlan().processes));
}

TEST_CASE("a verification alone and a short look take one worker") {
  SharedSession();
  JudgeRequest verify, screen;
  verify.verify_only = screen.screen = true;
  CHECK(AskedUntil(WithForward("torch.relu(x) # verified"), verify).at("end") == 1);
  CHECK(AskedUntil(WithForward("torch.relu(x) # looked at"), screen).at("end") == 1);
}

TEST_CASE("spares come in the order of asking, each a process of its own") {
  std::set<pid_t> ids;
  Spares().Ask(3);
  const int64_t asked = Spares().asked();
  Spares().Ask(2);  // there are three
  CHECK(Spares().asked() == asked);
  for (int i = 0; i < 3; ++i) {
    WaitingProcess worker = Spares().Take();
    CHECK(worker.process.pid() > 0);
    ids.insert(worker.process.pid());
  }
  CHECK(ids.size() == 3);
  CHECK(Spares().asked() == asked);
  Spares().Take();
  CHECK(Spares().asked() == asked + 1);
}

}  // namespace kevin
