// Forms of a ModelNew on a CPU: where its weights come from, sizes, stages, Triton in its interpreter, errors of its extensions,
// KernelBench's verdict on it, and the Python that runs it (KEVIN_PYTHON).

#include <fstream>
#include <set>

#include "env/error.h"
#include "env/problem/python_model.h"
#include "env/process/find_program.h"
#include "env/process/spawn.h"
#include "env/python/kernelbench_judge.h"
#include "env/python/python_kind.h"
#include "tests/env/python/modelnew_fixture.h"

namespace kevin {

namespace fs = std::filesystem;

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

TEST_CASE("a ModelNew that prints more than the log holds is judged all the same") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "prints.py";
  std::ofstream(file)
      << "import sys\nimport torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n"
         "    def forward(self, x):\n        print('relu of', tuple(x.shape), '.' * 70000, flush=True)\n"
         "        sys.stderr.write(f'{sys.stdout.fileno()} {sys.stderr.fileno()}')\n"
         "        return torch.relu(x)\n";
  const Outcome outcome = Judged(file, kLongCalls, true);
  INFO(OutcomeReason(outcome));
  CHECK(std::holds_alternative<Measured>(outcome));
}

TEST_CASE("a ModelNew of several outputs returns them all, each as a tensor of its own") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "both.toml";
  std::ofstream(file)
      << "id = \"test/1\"\nname = \"Both\"\nfamilies = [\"elementwise\"]\nreference = '''\n"
         "def forward(x):\n    return torch.relu(x), torch.relu(-x)\n'''\n[sizes.small]\nN = 65536\n"
         "[[inputs]]\nname = \"x\"\nshape = [\"N\"]\n[[outputs]]\nname = \"up\"\nshape = [\"N\"]\n"
         "[[outputs]]\nname = \"down\"\nshape = [\"N\"]\n[cost]\nflops = \"2*N\"\nbytes = \"12*N\"\n"
         "min_flops = 0\nmin_bytes = \"12*N\"\n";
  const Problem problem = LoadProblemFile(file);
  const auto judged = [&](const std::string& result) {
    const Outcome outcome = PythonEnvironment().Verify(
        problem,
        {"modelnew",
         "import torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
         "        up, down = torch.relu(x), torch.relu(-x)\n        return " +
             result + "\n"},
        {});
    return std::string(OutcomeName(outcome)) + ": " + OutcomeReason(outcome);
  };
  CHECK(judged("up, down").starts_with("measured"));
  CHECK(judged("[up, down]").starts_with("measured"));
  CHECK(judged("down, up").starts_with("wrong: "));
  CHECK(judged("up").find("wrong: forward returned a Tensor where 2 tensors are due") == 0);
  CHECK(judged("up, down, up").find("wrong: forward returned a tuple where 2 tensors are due") == 0);
  CHECK(judged("up, 3").find("wrong: forward returned a int where a tensor is due") == 0);
  CHECK(judged("up, up").starts_with("refused: an output aliases"));
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

TEST_CASE(
    "of the kernels for admission the correct one passes, the others are wrong, and incorrect facts show") {
  Problem problem = ListedProblem("level2/1");
  EvaluateOptions options;
  options.workload.rules = "open";
  const auto outcomes = [&] {
    std::vector<std::string> names;
    for (const PythonAnswer& answer : PythonAnswers(AtSize(problem, "small")))
      names.push_back(OutcomeName(PythonEnvironment().Verify(problem, {"modelnew", answer.source}, options)));
    return names;
  };
  CHECK(outcomes() == std::vector<std::string>{"measured", "wrong", "wrong"});
  REQUIRE(problem.model.has_value());
  std::swap(problem.model->init[0], problem.model->init[1]);  // the channels
  CHECK(outcomes()[0] != "measured");
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
  // Configurations that the text computes: there is nothing to measure here.
  std::string tuned = TextOf(Folder() / "triton/modelnew.py");
  const auto put = [&](const std::string& from, const std::string& to) {
    REQUIRE(tuned.find(from) != std::string::npos);
    tuned.replace(tuned.find(from), from.size(), to);
  };
  put("@triton.jit",
      "@triton.autotune([triton.Config({'BLOCK': 2 ** i}) for i in (16, 15)], key=['n'])\n@triton.jit");
  put("(triton.cdiv(x.numel(), 65536),)", "lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)");
  put(", BLOCK=65536)", ")");
  INFO(tuned);
  EvaluateOptions open;
  open.workload.rules = "open";
  const Evaluation computed =
      PythonEnvironment().Evaluate(ListedProblem(kShortCalls), {"modelnew", tuned}, open);
  INFO(OutcomeReason(computed.outcome));
  CHECK(std::holds_alternative<Measured>(computed.outcome));
  CHECK(computed.log.find("autotuned relu_kernel: BLOCK: 65536, ") != std::string::npos);
  std::string wrong = TextOf(Folder() / "triton/triton.py");
  wrong.replace(wrong.find("tl.maximum(value, 0.0)"), 22, "tl.maximum(value, 0.1)");
  CHECK(std::holds_alternative<Wrong>(
      PythonEnvironment().Verify(ListedProblem(kShortCalls), {"triton", wrong}, {})));
}

TEST_CASE("no attack of kind triton gains anything") {
  // Correct, and no faster: places are new in each call, an output may lie anywhere, and the interpreter's time on one
  // element is that of a kernel of its own.
  const std::set<std::string> no_gain = {"keeps_what_it_answered", "moves_its_output", "calls_torch"};
  const std::vector<fs::path> attacks = CandidatesIn(Folder() / "triton/attacks");
  REQUIRE(attacks.size() == 8);
  // Each file has what it changes of the correct text, whose `launch` it calls as `run`.
  const std::string correct = TextOf(Folder() / "triton/triton.py");
  EvaluateOptions own;
  own.workload.rules = "kevin";
  int blocked = 0;
  for (const fs::path& file : attacks) {
    const Candidate attack{"triton", correct + "\n\nrun = launch\n\n\n" + TextOf(file)};
    const Outcome outcome = PythonEnvironment().Evaluate(ListedProblem(kShortCalls), attack, own).outcome;
    std::printf("%-28s %-14s %s\n", file.stem().c_str(), OutcomeName(outcome), Described(outcome).c_str());
    const bool is_blocked = !std::holds_alternative<Measured>(outcome) ||
                            (no_gain.count(file.stem()) > 0 && !SeemsFaster(outcome));
    INFO(file);
    CHECK(is_blocked);
    blocked += is_blocked;
  }
  std::printf("attacks of kind triton blocked %d/%zu\n", blocked, attacks.size());
}

TEST_CASE("without namespaces no candidate in Python is judged, unless its user says so by name") {
  const TemporaryFolder cache;
  EnvironmentOptions options = SmallLimits(cache.path());
  options.reduced_isolation = true;
  const auto isolation = [&] {
    return RequirePythonIsolation(options, RequireProgram(options.program_directory, "kevin-runner"), false);
  };
  try {
    isolation();
    FAIL_CHECK("--isolation reduced alone suffices");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMachine);
    CHECK(error.next_step().find("--unsafe-python") != std::string::npos);
  }
  options.unsafe_python = true;
  CHECK(isolation().starts_with("reduced ("));
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
  options.compiler = PythonEnvironment().Facts().compiler;
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
  const fs::path here = fs::current_path();
  const std::string relative = (".." / here.filename() / python.lexically_relative(here)).string();
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
