// Kind `modelnew` on a CPU, judged whole: attacks, correct candidates, bad input. Needs a Python with torch (KEVIN_PYTHON).

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "env/cpu/cpu_environment.h"
#include "env/error.h"
#include "env/process/find_program.h"
#include "env/python/kernelbench_judge.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

fs::path Folder() { return fs::path(KEVIN_SOURCE_DIR) / "tests/env/python/red_team"; }

std::vector<fs::path> CandidatesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".py") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::unique_ptr<CpuEnvironment> NewEnvironment(const TemporaryFolder& cache, double call_timeout_s) {
  EnvironmentOptions options = SmallLimits(cache.path());
  options.limits.call_timeout_s = call_timeout_s;
  options.limits.compile_timeout_s = 240;
  options.limits.max_memory_mb = 2048;  // addresses: 72 MB for each thread that a candidate starts
  return MakeCpuEnvironmentForTools(options);
}

CpuEnvironment& PythonEnvironment() {
  static const TemporaryFolder cache;
  static const std::unique_ptr<CpuEnvironment> environment = NewEnvironment(cache, 5);
  return *environment;
}

Outcome Judged(const fs::path& file, const std::string& problem, bool whole) {
  const Candidate candidate{"modelnew", TextOf(file)};
  EvaluateOptions options;
  options.workload.rules = "open";
  const Outcome outcome =
      whole ? PythonEnvironment().Evaluate(ListedProblem(problem), candidate, options).outcome
            : PythonEnvironment().Verify(ListedProblem(problem), candidate, options);
  std::printf("%-28s %-14s %s\n", file.stem().c_str(), OutcomeName(outcome), Described(outcome).c_str());
  std::fflush(stdout);
  return outcome;
}

constexpr const char* kLongCalls = "level1/19";
// Correct, and no faster for what they try.
const std::set<std::string> kNoGain = {"folds_weights"};
// Of many short calls, where work can be deferred or done ahead.
const std::string kShortCalls =
    (fs::path(KEVIN_SOURCE_DIR) / "tests/env/cpu/red_team/problems/short_calls.toml").string();
const std::map<std::string, std::string> kProblems = {
    {"seeds_weights", "level1/33"},        {"no_weights", "level1/33"},
    {"folds_weights", "level1/33"},        {"remembers_weights", "level1/33"},
    {"keeps_seeded_weights", "level1/33"}, {"keeps_first_drawing", "level1/33"},
    {"seeds_in_forward", "level1/33"},     {"restores_the_seed", "level1/33"},
    {"defers_batch", kShortCalls},         {"works_ahead", kShortCalls},
    {"forges_done", kShortCalls},          {"defers_to_last", kShortCalls},
    {"thread_with_a_queue", kShortCalls}};

}  // namespace

TEST_CASE("no attack of a Python candidate gains anything") {
  int blocked = 0;
  const std::vector<fs::path> attacks = CandidatesIn(Folder());
  REQUIRE(attacks.size() >= 30);
  for (const fs::path& file : attacks) {
    INFO(file);
    const auto problem = kProblems.find(file.stem());
    const Outcome outcome = Judged(file, problem == kProblems.end() ? kLongCalls : problem->second, true);
    const bool is_blocked = std::holds_alternative<Measured>(outcome)
                                ? kNoGain.count(file.stem()) > 0 && !SeemsFaster(outcome)
                                : kNoGain.count(file.stem()) == 0;
    CHECK(is_blocked);
    blocked += is_blocked;
  }
  std::printf("attacks blocked %d/%zu\n", blocked, attacks.size());
}

TEST_CASE("correct Python candidates pass") {
  int passed = 0;
  const std::vector<fs::path> files = CandidatesIn(Folder() / "correct");
  REQUIRE(files.size() >= 6);
  for (const fs::path& file : files) {
    INFO(file);
    const Outcome outcome = Judged(file, kLongCalls, true);
    const bool is_measured = std::holds_alternative<Measured>(outcome);
    INFO(OutcomeReason(outcome));
    CHECK(is_measured);
    passed += is_measured;
  }
  std::printf("correct candidates passed %d/%zu\n", passed, files.size());
}

TEST_CASE("bad input of a Python candidate is an outcome with its reason") {
  struct Case {
    std::string outcome, part_of_reason;
  };
  const std::map<std::string, Case> cases = {
      {"no_model", {"compile_failed", "there is no class ModelNew(nn.Module)"}},
      {"other_arguments",
       {"compile_failed", "missing 2 required positional arguments: 'width' and 'height'"}},
      {"syntax_error", {"compile_failed", "line 5: SyntaxError"}},
      {"missing_module", {"compile_failed", "No module named 'a_module_that_is_not_there'"}},
      {"tuple", {"wrong", "returned a tuple where a tensor is due"}},
      {"none", {"wrong", "returned a NoneType where a tensor is due"}},
      {"other_dtype", {"wrong", "dtype torch.float64, expected torch.float32"}},
      {"other_device", {"wrong", "device meta, expected cpu"}},
      {"other_shape", {"wrong", "has shape (1, "}},
      {"sparse", {"wrong", "torch.strided"}},
      {"not_a_number", {"wrong", ""}},
      {"endless_import", {"timed_out", "load"}},
      {"endless_call", {"timed_out", "verify"}},
      {"raises", {"crashed", "line 6 (forward): ValueError: no such width"}},
      {"exits", {"compile_failed", "sys.exit(3)"}},
      {"exits_as_the_build_does", {"compile_failed", "the import exited with status 70"}},
      {"exits_as_the_sandbox_does", {"compile_failed", "the import exited with status 125"}},
      {"needs_a_gpu", {"crashed", "CUDA"}},
  };
  const std::vector<fs::path> files = CandidatesIn(Folder() / "bad_input");
  REQUIRE(files.size() == cases.size());
  for (const fs::path& file : files) {
    INFO(file);
    const Outcome outcome = Judged(file, kLongCalls, false);
    const Case& expected = cases.at(file.stem());
    CHECK(std::string(OutcomeName(outcome)) == expected.outcome);
    CHECK(OutcomeReason(outcome).find(expected.part_of_reason) != std::string::npos);
  }
  // The next one is unharmed.
  CHECK(std::holds_alternative<Measured>(Judged(Folder() / "correct/relu.py", kLongCalls, false)));
}

TEST_CASE("weights of a Python candidate are the drawn ones") {
  const std::string head =
      "import torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n"
      "    def __init__(self, *sizes):\n        super().__init__()\n";
  const std::string names = head +
                            "        self.bn = nn.BatchNorm2d(16)\n    def forward(self, x):\n"
                            "        return self.bn(x)\n";
  const std::string order =
      head +
      "        self.first = nn.Parameter(torch.empty(16))\n"
      "        self.second = nn.Parameter(torch.empty(16))\n"
      "    def forward(self, x):\n"
      "        return torch.batch_norm(x, self.first, self.second, None, None, True, 0.1, 1e-5, "
      "False)\n";
  // Kept in another form than the problem's.
  const std::string packed =
      head +
      "        bn = nn.BatchNorm2d(16)\n"
      "        self.both = torch.stack([bn.weight, bn.bias]).detach()\n"
      "    def forward(self, x):\n"
      "        return torch.batch_norm(x, self.both[0], self.both[1], None, None, True, 0.1, "
      "1e-5, False)\n";
  // Registered nowhere: KernelBench gives it the weights by its seed.
  const std::string drawn =
      head +
      "        self.scale = torch.randn(16) * 0.5 + 1\n"
      "        self.shift = torch.empty(16)\n"
      "        nn.init.normal_(self.shift)\n"
      "    def forward(self, x):\n"
      "        return torch.batch_norm(x, self.scale, self.shift, None, None, True, 0.1, 1e-5, False)\n";
  // One of both.
  const std::string mixed = head +
                            "        self.bn = nn.BatchNorm2d(16, affine=False)\n"
                            "        self.weight = nn.Parameter(torch.ones(16))\n"
                            "        self.shift = torch.randn(16).view(1, 16, 1, 1).clone()\n"
                            "    def forward(self, x):\n"
                            "        return self.bn(x) * self.weight.view(1, 16, 1, 1) + self.shift\n";
  // Packed at the first call.
  const std::string lazy =
      head +
      "        self.bn = nn.BatchNorm2d(16)\n        self.packed = None\n    def forward(self, x):\n"
      "        if self.packed is None:\n"
      "            self.packed = self.bn.weight.clone(), self.bn.bias.clone()\n"
      "        return torch.batch_norm(x, *self.packed, None, None, True, 0.1, 1e-5, False)\n";
  for (const std::string& source : {names, order, packed, drawn, mixed, lazy}) {
    INFO(source);
    const Outcome outcome = PythonEnvironment().Verify(ListedProblem("level1/33"), {"modelnew", source}, {});
    INFO(OutcomeReason(outcome));
    CHECK(std::holds_alternative<Measured>(outcome));
  }
  const Outcome remembers = PythonEnvironment().Verify(
      ListedProblem("level1/19"), {"modelnew", TextOf(Folder() / "caches_by_shape.py")}, {});
  REQUIRE(std::holds_alternative<Wrong>(remembers));
  CHECK(OutcomeReason(remembers).find("keeps something of earlier calls (weights") != std::string::npos);
  const Outcome other = PythonEnvironment().Verify(ListedProblem("level1/19"),
                                                   {"modelnew", TextOf(Folder() / "half_precision.py")}, {});
  REQUIRE(std::holds_alternative<Wrong>(other));
  CHECK(OutcomeReason(other).find("earlier calls") == std::string::npos);
  const Outcome unmatched = PythonEnvironment().Verify(ListedProblem("level1/33"),
                                                       {"modelnew", TextOf(Folder() / "no_weights.py")}, {});
  REQUIRE(std::holds_alternative<Refused>(unmatched));
  CHECK(OutcomeReason(unmatched).find("weight [16], bias [16]") != std::string::npos);
  CHECK(OutcomeReason(unmatched).find("other [3]") != std::string::npos);
  CHECK(OutcomeReason(unmatched).find("its constructor draws: nothing") != std::string::npos);
}

TEST_CASE("parts that a ModelNew marks are timed in a diagnosis, and are comments in a verdict") {
  const auto with_marks = [](const std::string& above, const std::string& pack, const std::string& multiply) {
    return "import torch\nimport torch.nn as nn\n" + above +
           "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        " + pack +
           "\n        y = torch.relu(x)\n        " + multiply +
           "\n        for _ in range(64):\n            y = torch.relu(y)\n        return y\n";
  };
  const auto diagnosed = [](const std::string& kind, const std::string& source) {
    return PythonEnvironment().Diagnose(ListedProblem(kLongCalls), {kind, source}, {});
  };
  const std::string marked = with_marks("", "# stage once", "# stage again");
  EvaluateOptions open;
  open.workload.rules = "open";
  const Evaluation before =
      PythonEnvironment().Evaluate(ListedProblem(kLongCalls), {"modelnew", marked}, open);
  REQUIRE(std::holds_alternative<Measured>(before.outcome));
  CHECK(before.log.find("kevin-stage-times") == std::string::npos);
  const auto found = diagnosed("modelnew", marked);
  REQUIRE(found);
  REQUIRE(found->stages.size() >= 2);
  const StageShare &once = found->stages[found->stages.size() - 2], &again = found->stages.back();
  CHECK((once.name == "once" && again.name == "again"));
  CHECK((once.share > 0 && again.share > once.share && again.share < 1));
  CHECK((!found->cold_us && found->stage_problem.empty()));
  CHECK_FALSE(diagnosed("modelnew", with_marks("", "", "")));
  CHECK_FALSE(diagnosed("triton", marked));
  CHECK_FALSE(diagnosed("modelnew", with_marks("raise ValueError", "# stage once", "")));
  const auto silent = diagnosed(
      "modelnew", with_marks("import os\nos.dup2(os.open('/dev/null', os.O_WRONLY), 2)", "# stage once", ""));
  CHECK((!silent || silent->stages.empty()));
}

TEST_CASE("rules say what counts: kernels of its own, KernelBench's words, or anything correct") {
  const auto judged = [](const std::string& file, const std::string& rules) {
    EvaluateOptions options;
    options.workload.rules = rules;
    const Evaluation evaluation = PythonEnvironment().Evaluate(
        ListedProblem(kLongCalls), {"modelnew", TextOf(Folder() / file)}, options);
    std::printf("%-24s %-12s %-10s own %.2f %s\n", file.c_str(), rules.c_str(), evaluation.backend.c_str(),
                evaluation.own_share.value_or(-1), Described(evaluation.outcome).c_str());
    return evaluation;
  };
  const Evaluation torch = judged("correct/relu.py", "kevin");
  CHECK(torch.backend == "torch");
  REQUIRE(std::holds_alternative<Refused>(torch.outcome));
  CHECK(OutcomeReason(torch.outcome).find("kernels of its own do 0 % of the work") == 0);
  CHECK(std::holds_alternative<Measured>(judged("correct/relu.py", "kernelbench").outcome));
  CHECK(std::holds_alternative<Refused>(judged("correct/prints_and_files.py", "kernelbench").outcome));
  const Evaluation own = judged("correct/load_inline.py", "kevin");
  CHECK(own.backend == "cpp");
  CHECK(std::holds_alternative<Measured>(own.outcome));
  REQUIRE(own.own_share.has_value());
  CHECK(*own.own_share > 0.9);
}

TEST_CASE("the share of a candidate's own kernels is known, or it is refused") {
  const TemporaryFolder cache;
  const auto environment = NewEnvironment(cache, 30);  // Python's arithmetic is slow
  const auto judged = [&](const std::string& file, const std::string& problem) {
    EvaluateOptions options;
    const Evaluation evaluation =
        environment->Evaluate(ListedProblem(problem), {"modelnew", TextOf(Folder() / file)}, options);
    std::printf("%-30s own %.2f %s\n", file.c_str(), evaluation.own_share.value_or(-1),
                Described(evaluation.outcome).c_str());
    return evaluation;
  };
  const Evaluation python = judged("share/python_only.py", kShortCalls);
  REQUIRE(std::holds_alternative<Refused>(python.outcome));
  CHECK(OutcomeReason(python.outcome).find("Python itself takes the time") != std::string::npos);
  // Python executes kernels of Triton here, and they count as its own.
  const Evaluation triton = judged("triton/modelnew.py", kShortCalls);
  CHECK(std::holds_alternative<Measured>(triton.outcome));
  CHECK(triton.own_share.value_or(0) > 0.9);
  const Evaluation beside = judged("share/triton_beside_torch.py", kLongCalls);
  REQUIRE(std::holds_alternative<Refused>(beside.outcome));
  CHECK(OutcomeReason(beside.outcome).find("the rest is done by libraries") != std::string::npos);
  const Evaluation waits = judged("share/waits.py", kShortCalls);
  REQUIRE(std::holds_alternative<Refused>(waits.outcome));
  CHECK(OutcomeReason(waits.outcome).find("kernels of its own must do 90 % of the work") == 0);
  // The words of Triton, or a little of it, make nothing else a candidate's own.
  for (const char* file : {"words_of_triton", "triton_beside_numpy", "triton_beside_products"})
    CHECK(std::holds_alternative<Refused>(judged(std::string("share/") + file + ".py", kShortCalls).outcome));
}

TEST_CASE("a ModelNew is judged only at sizes where Model has the problem's parameters") {
  const Problem problem = ListedProblem("level3/5");
  REQUIRE(problem.model.has_value());
  REQUIRE_FALSE(ModelFitsSize(problem, "small"));
  EvaluateOptions options;
  options.workload.size = "small";
  try {
    PythonEnvironment().Evaluate(problem, {"modelnew", "class ModelNew: pass"}, options);
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(std::string(error.what()).find("level3/5: the class Model has other parameters") == 0);
    CHECK(error.next_step().find("--size full") != std::string::npos);
  }
  // A kernel of kind triton takes the tensors themselves.
  CHECK_NOTHROW(PythonEnvironment().EvaluationKey(problem, {"triton", "def launch(): pass"}, options));
}

TEST_CASE("Triton kernels are correct by its interpreter, as modelnew and as triton") {
  for (const std::string kind : {"modelnew", "triton"}) {
    const Candidate candidate{kind, TextOf(Folder() / "triton" / (kind + ".py"))};
    const Outcome outcome = PythonEnvironment().Verify(ListedProblem(kShortCalls), candidate, {});
    INFO(kind << ": " << OutcomeReason(outcome));
    CHECK(std::holds_alternative<Measured>(outcome));
  }
  std::string wrong = TextOf(Folder() / "triton/triton.py");
  wrong.replace(wrong.find("tl.maximum(value, 0.0)"), 22, "tl.maximum(value, 0.1)");
  CHECK(std::holds_alternative<Wrong>(
      PythonEnvironment().Verify(ListedProblem(kShortCalls), {"triton", wrong}, {})));
}

TEST_CASE("a compiler's error of an extension is told in its own lines") {
  const Outcome outcome = Judged(Folder() / "extension_errors/unknown_name.py", kLongCalls, false);
  REQUIRE(std::holds_alternative<CompileFailed>(outcome));
  const std::string log = std::get<CompileFailed>(outcome).log;
  INFO(log);
  CHECK(log.find("extension broken does not compile") == 0);
  CHECK(log.find("was not declared in this scope") != std::string::npos);
}

TEST_CASE("a compiler's error is told by the call that asks for the extension") {
  const Outcome outcome = Judged(Folder() / "extension_errors/in_constructor.py", kLongCalls, false);
  REQUIRE(std::holds_alternative<CompileFailed>(outcome));
  const std::string log = std::get<CompileFailed>(outcome).log;
  INFO(log);
  CHECK(log.find("line 8 (__init__): RuntimeError: extension broken does not compile") != std::string::npos);
  CHECK(log.find("surely_nobodys_name") != std::string::npos);
}

TEST_CASE(
    "KernelBench's verdict: other shapes are named, and how a candidate ends tells nothing about the machine") {
  const TemporaryFolder cache;
  KernelBenchJudgeOptions options;
  options.environment = SmallLimits(cache.path());
  options.timing_limit_s = 0.2;
  const Problem problem = ListedProblem(kLongCalls);
  const auto judged = [&](const std::string& source, const std::string& own_file) {
    return JudgeAsKernelBench(options, AtSize(problem, "small"), {"modelnew", source}, own_file);
  };
  const std::string own_file =
      "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def forward(self, x):\n"
      "        return torch.relu(x)\ndef get_inputs():\n    return [torch.rand(16, 8)]\n"
      "def get_init_inputs():\n    return []\n";
  const KernelBenchVerdict verdict = judged(TextOf(Folder() / "correct/relu.py"), own_file);
  INFO(verdict.reason);
  CHECK((verdict.correct && verdict.speedup > 0));
  CHECK(verdict.other_shapes == "16 x 8 in place of 32 x 131072");
  CHECK(judged(TextOf(Folder() / "correct/relu.py"), "").other_shapes.empty());
  const KernelBenchVerdict ended = judged("import os\nos._exit(125)\n", own_file);
  CHECK(ended.reason.find("exited with status 125, in phase load") != std::string::npos);
}

TEST_CASE("a Python given by a relative path with .. judges candidates") {
  const TemporaryFolder cache;
  const char* before = std::getenv("KEVIN_PYTHON");
  const std::string kept = before ? before : "";
  const fs::path python = FindProgram(kept.empty() ? "python3" : kept);
  const std::string relative = python.lexically_relative(fs::current_path()).string();
  INFO(relative);
  REQUIRE(relative.starts_with("../"));
  setenv("KEVIN_PYTHON", relative.c_str(), 1);
  EnvironmentOptions options = SmallLimits(cache.path());
  options.limits.call_timeout_s = 5;
  const auto environment = MakeCpuEnvironmentForTools(options);
  const Outcome outcome =
      environment->Verify(ListedProblem(kLongCalls), {"modelnew", TextOf(Folder() / "correct/relu.py")}, {});
  kept.empty() ? unsetenv("KEVIN_PYTHON") : setenv("KEVIN_PYTHON", kept.c_str(), 1);
  INFO(OutcomeReason(outcome));
  CHECK(std::holds_alternative<Measured>(outcome));
}

TEST_CASE("a Python without torch is named, with the command that installs it") {
  const TemporaryFolder cache;
  const char* before = std::getenv("KEVIN_PYTHON");
  const std::string kept = before ? before : "";
  setenv("KEVIN_PYTHON", "/bin/false", 1);
  const auto environment = MakeCpuEnvironment(SmallLimits(cache.path()));
  try {
    environment->Evaluate(ListedProblem("level1/19"), {"modelnew", ""}, {});
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMachine);
    CHECK(error.next_step().find("pip install torch==2.11.0") != std::string::npos);
  }
  kept.empty() ? unsetenv("KEVIN_PYTHON") : setenv("KEVIN_PYTHON", kept.c_str(), 1);
}

}  // namespace kevin
