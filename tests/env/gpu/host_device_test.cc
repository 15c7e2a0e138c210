// Judging candidates in Python on a GPU, where a host's memory stands for the device's (fake_device.cc): the pool and its
// import by a worker, spares, slots, places of outputs, the whole flow of a judgement. What only a GPU shows is in
// gpu_python_test.cc. Needs a Python with torch (KEVIN_PYTHON).

#include "env/diagnosis/stages.h"
#include "env/gpu/judge/time_stages.h"
#include "tests/env/gpu/host_device_fixture.h"

namespace kevin {

namespace fs = std::filesystem;

TEST_CASE("a worker's tensors lie in the pool of the evaluator") {
  const JudgeResult result = Judged(WithForward("return torch.relu(x)"));
  INFO(OutcomeReason(result.outcome));
  REQUIRE(std::holds_alternative<Measured>(result.outcome));
  CHECK(result.samples.size() > 20);
  CHECK_FALSE(result.own_share.has_value());
  CHECK_FALSE(result.device_us.has_value());
}

TEST_CASE("outputs of a GPU worker are read with their strides") {
  const JudgeResult strided =
      Judged(WithForward("return torch.relu(x.t().contiguous()).t()"), {.verify_only = true});
  INFO(OutcomeReason(strided.outcome));
  CHECK(std::holds_alternative<Measured>(strided.outcome));
}

TEST_CASE("a kernel in Python can be paired with another one, and screened") {
  const std::string relu = WithForward("return torch.relu(x)");
  const JudgeResult pair = Judged(relu + "# again\n", {.start = relu});
  INFO(OutcomeReason(pair.outcome));
  REQUIRE(std::holds_alternative<Measured>(pair.outcome));
  CHECK(std::get<Measured>(pair.outcome).against_start.has_value());
  const JudgeResult screened = Judged(relu, {.screen = true});
  REQUIRE(std::holds_alternative<Measured>(screened.outcome));
  CHECK(std::get<Measured>(screened.outcome).candidate_us > 0);
}

TEST_CASE("kind triton gets outputs of the problem's shapes on the device") {
  const std::string source = "import torch\n\n\ndef launch(x, out):\n    out.copy_(torch.relu(x))\n";
  const JudgeResult result = Judged(source, {.kind = "triton", .verify_only = true});
  INFO(OutcomeReason(result.outcome));
  CHECK(std::holds_alternative<Measured>(result.outcome));
}

TEST_CASE("an unknown share of own kernels does not pass as own on a GPU") {
  const JudgeResult result = Judged(WithForward("return torch.relu(x)"), {.rules = "kevin"});
  REQUIRE(std::holds_alternative<Refused>(result.outcome));
  CHECK(OutcomeReason(result.outcome).find("the share of its own kernels is not known") == 0);
}

TEST_CASE("what a GPU candidate in Python returns is checked by the evaluator") {
  struct Case {
    std::string forward, outcome, part;
  };
  const std::vector<Case> cases = {
      {"return torch.zeros_like(x)", "wrong", "out["},
      {"return torch.empty_like(x)", "wrong", ""},
      {"return x", "refused", "is no new tensor"},
      {"return x.view(-1).view_as(x)", "refused", "is no new tensor"},
      {"if not self.kept:\n    self.kept.append(torch.empty_like(x))\nreturn torch.clamp(x, min=0, out=self.kept[0])",
       "refused", "aliases the output of an earlier call"},
      {"return torch.relu(x)[:1]", "wrong", "shape"},
      {"return torch.relu(x).double()", "wrong", "dtype"},
      {"return None", "wrong", "NoneType"},
      {"raise ValueError('no such width')", "crashed", "ValueError: no such width"},
      {"import os\nos._exit(0)", "crashed", "exited"},
      {"x.zero_()\nreturn torch.zeros_like(x)", "crashed", ""},
      {"import ctypes\nlibc = ctypes.CDLL(None)\nat = x.data_ptr()\nlibc.mprotect(ctypes.c_void_p(at), "
       "ctypes.c_size_t(4096), 3)\nout = torch.relu(x)\nctypes.memset(at, 0, 64)\nreturn out",
       "refused", "writes to its inputs"},
      {"import subprocess\nsubprocess.run(['/bin/true'], check=True)\nreturn torch.relu(x)", "crashed",
       "rror"},
      {"import socket\nsocket.socket()\nreturn torch.relu(x)", "crashed", "rror"},
  };
  // A call that does not end is confirmed once.
  CHECK(std::holds_alternative<TimedOut>(
      Judged(WithForward("while True:\n    pass"), {.verify_only = true, .timeout_s = 2}).outcome));
  for (const Case& one : cases) {
    INFO(one.forward);
    const JudgeResult result = Judged(WithForward(one.forward), {.verify_only = true});
    CHECK(std::string(OutcomeName(result.outcome)) == one.outcome);
    CHECK(OutcomeReason(result.outcome).find(one.part) != std::string::npos);
  }
  CHECK(std::holds_alternative<Measured>(
      Judged(WithForward("return torch.relu(x)"), {.verify_only = true}).outcome));
}

TEST_CASE("calls of a GPU candidate in Python cannot share their work") {
  for (const char* attack :
       {"defers_batch", "defers_to_last", "works_ahead", "forges_done", "forges_places", "defers_to_del",
        "caches_by_pointer", "caches_by_shape", "lazy_subclass", "patches_clocks", "patches_torch",
        "walks_frames", "looks_for_reference", "reference_by_global", "subclasses_the_reference",
        "calls_kevin_library", "forges_strides"}) {
    INFO(attack);
    std::printf("%s\n", attack);
    const JudgeResult result = Judged(TextOf(RedTeam() / (std::string(attack) + ".py")));
    CHECK_FALSE(std::holds_alternative<Measured>(result.outcome));
  }
}

TEST_CASE("a Python whose workers cannot use the GPU is named with the next step") {
  const std::string before = std::getenv("LD_LIBRARY_PATH") ? std::getenv("LD_LIBRARY_PATH") : "";
  setenv("KEVIN_OUTER_LIBRARY_PATH", "/nonexistent", 1);  // so the workers find no driver
  PythonWorkers python(FindPythonSetup(BuiltPrograms()), 1, NamespacesAvailable(), GpuOfWorkers{90});
  unsetenv("KEVIN_OUTER_LIBRARY_PATH");
  const size_t ids_before = PythonSide::ProcessIds().size();
  GpuWorkers workers(python, {.on_host = true});
  try {
    workers.Take(false);
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMachine);
    CHECK(std::string(error.what()).find("no NVIDIA driver on this machine") != std::string::npos);
    CHECK(error.next_step().find("pip install torch==2.11.0") != std::string::npos);
  }
  workers.DropSpares();
  CHECK(PythonSide::ProcessIds().size() == ids_before);
}

TEST_CASE("what Triton's autotuner chose in the first calls holds in every process, and is in the log") {
  // A stand-in for a kernel, whose times are random.
  const std::string source =
      "import os\nimport random\nimport torch\nimport torch.nn as nn\nimport triton\n"
      "from triton.runtime.autotuner import Autotuner\n\n\ndef relu(x, out, BLOCK):\n    pass\n\n\nclass Kernel:\n"
      "    fn = staticmethod(relu)\n\n    def run(self, x, out, BLOCK, **options):\n        torch.clamp(x, min=0, out=out)\n"
      "\n\ndef do_bench(call, quantiles):\n    files = [os.readlink('/proc/self/fd/' + number) for number in "
      "os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + number)]\n"
      "    if not any('kevin-examined' in name for name in files):\n        raise RuntimeError('measured again')\n"
      "    call()\n    return [random.SystemRandom().random()] * 3\n\n\n"
      "tuned = Autotuner(Kernel(), ['x', 'out', 'BLOCK'], [triton.Config({'BLOCK': 2 ** i}) for i in range(6, 12)], [], "
      "None, None, do_bench=do_bench)\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
      "        out = torch.empty_like(x)\n        tuned.run(x, out)\n        return out\n";
  const JudgeResult result = Judged(source);
  INFO(OutcomeReason(result.outcome));
  CHECK(std::holds_alternative<Measured>(result.outcome));
  CHECK(result.log.find("autotuned relu: BLOCK: ") == 0);
  const JudgeResult again = Judged(source, {.rules = "kernelbench", .verify_only = true});
  CHECK(std::holds_alternative<Measured>(again.outcome));
  CHECK(again.log == result.log);
}

// Work that is queued in stage `queue` takes 20 ms; what waits for the device waits for it. Another stage follows.
std::string QueuesWork(const std::string& kind) {
  const std::string body =
      "    # stage queue\n    if __kevin_stage__:\n        queued.append(0.02)\n    # stage rest\n    y = torch.relu(x)\n";
  const std::string head =
      "import time\nimport torch\nimport torch.nn as nn\n\n\nqueued = []\n"
      "__kevin_stage__ = globals().get('__kevin_stage__')\n\n\ndef wait():\n    while queued:\n"
      "        time.sleep(queued.pop())\n    return 0\n\n\nif __kevin_stage__:\n"
      "    __kevin_stage__.__self__.synchronize.__self__.library.KevinGpuSynchronize = wait\n\n\n";
  if (kind == "triton") return head + "def launch(x, out):\n" + body + "    out.copy_(y)\n";
  return head + "def relu(x):\n" + body + "    return y\n\n\nclass ModelNew(nn.Module):\n" +
         "    def forward(self, x):\n        return relu(x)\n";
}

TEST_CASE(
    "stages that a candidate marks are timed on a device that works behind the calls, and are comments in a verdict") {
  for (const char* kind : {"modelnew", "triton"}) {
    const std::string source = QueuesWork(kind);
    const JudgeResult judged = Judged(source, {.kind = kind});
    INFO(OutcomeReason(judged.outcome));
    REQUIRE(std::holds_alternative<Measured>(judged.outcome));
    CHECK(judged.log.find("kevin-stage-times") == std::string::npos);
    const std::vector<std::string> names = StageNamesInPython(source);
    const Fd bundle = BundleOf(source, kind), marked = BundleOf(source, kind, names);
    const StagesRequest request = {.key = source, .bundle_fd = bundle.get(), .marked_fd = marked.get()};
    const DiagnosisRun run = TimeStages(ShortCalls(), request);
    INFO(run.failure << run.log);
    CHECK(run.failure.empty());
    const std::vector<StageShare> stages = ReadStageTimes(run.log, names);
    REQUIRE(stages.size() >= 2);
    const StageShare &queue = stages[stages.size() - 2], &rest = stages.back();
    CHECK((queue.name == "queue" && rest.name == "rest"));
    CHECK((queue.share > rest.share && rest.share > 0));
  }
  const std::string fails = WithForward("# stage once\nraise ValueError('no such width')");
  const Fd bundle = BundleOf(fails, "modelnew", {"once"});
  const DiagnosisRun failed =
      TimeStages(ShortCalls(), {.key = fails, .bundle_fd = bundle.get(), .marked_fd = bundle.get()});
  CHECK(failed.failure.find("ValueError: no such width") != std::string::npos);
}

TEST_CASE("a Triton kernel that does not compile for a GPU is told with the compiler's words and lines") {
  // As a launch on sm_90 compiles it: there is no GPU to launch it on.
  const auto with_block = [](const std::string& block) {
    return "import torch\nimport triton\nimport triton.language as tl\nfrom triton.backends.compiler import GPUTarget\n"
           "from triton.compiler import ASTSource\n\n\n@triton.jit\ndef relu(x, out, BLOCK: tl.constexpr):\n"
           "    at = tl.arange(0, BLOCK)\n    tl.store(out + at, tl.maximum(tl.load(x + at), 0))\n\n\n"
           "def launch(x, out):\n    source = ASTSource(relu, {'x': '*fp32', 'out': '*fp32', 'BLOCK': 'constexpr'}, "
           "{'BLOCK': " +
           block +
           "})\n    triton.compile(source, target=GPUTarget('cuda', 90, 32))\n"
           "    out.copy_(torch.relu(x))\n";
  };
  const JudgeResult fails = Judged(with_block("100"), {.kind = "triton", .verify_only = true});
  REQUIRE(std::holds_alternative<Crashed>(fails.outcome));
  const std::string reason = std::get<Crashed>(fails.outcome).message;
  INFO(reason);
  CHECK(reason.find("line 16 (launch): CompilationError: at 2:9:") == 0);
  CHECK(reason.find("    at = tl.arange(0, BLOCK)\n         ^\narange's range must be a power of 2") !=
        std::string::npos);
  const JudgeResult compiles = Judged(with_block("128"), {.kind = "triton", .verify_only = true});
  INFO(OutcomeReason(compiles.outcome));
  CHECK(std::holds_alternative<Measured>(compiles.outcome));
}

TEST_CASE("workers that have ended are no processes of Kevin's any more") {
  GpuPythonSession& session = ShortCalls();
  const auto processes = [&] {
    session.workers().Refill();
    return PythonSide::ProcessIds().size();
  };
  const std::string source = WithForward("return torch.relu(x) # counted");
  Judged(source, {.verify_only = true}, session);
  const size_t before = processes();
  Judged(source + "\n# and again", {.verify_only = true}, session);
  CHECK(processes() == before);
}

TEST_CASE("an evaluation takes warm workers, and what is missing is started together when few are left") {
  constexpr size_t kKept = 6;
  GpuPythonSession& session = ShortCalls();
  GpuWorkers& workers = session.workers();
  workers.KeepSpares(kKept);
  workers.Take(true);
  workers.Refill();
  workers.Settle();
  CHECK((workers.spares(false) == kKept && workers.spares(true) == kKept));
  int64_t before = workers.started();
  const auto started = [&] {
    const int64_t last = std::exchange(before, workers.started());
    return before - last;
  };
  const std::string relu = WithForward("return torch.relu(x)");
  const auto text = [&](int i) { return relu + "# number " + std::to_string(i) + "\n"; };
  // Each takes one of each kind, for its first calls and for its batches.
  for (int i = 0; i < 4; ++i) Judged(text(i), {.verify_only = true}, session);
  CHECK(started() == 0);
  CHECK_FALSE(workers.Settle());
  // Its first calls leave one of the six.
  Judged(text(4), {.verify_only = true}, session);
  CHECK(started() == 5 + 4);
  CHECK((workers.spares(false) == kKept - 1 && workers.spares(true) == kKept));
  // Examined before: a candidate and the kernel to pair against take two that are timed.
  for (int i = 0; i < 2; ++i) Judged(text(i), {.start = text(4)}, session);
  CHECK(started() == 0);
  CHECK((workers.spares(false) == 1 && workers.spares(true) == kKept));
  Judged(text(2), {.start = text(4)}, session);
  CHECK(started() == 5);
  CHECK((workers.spares(false) == kKept - 2 && workers.spares(true) == kKept));
  // Where none is left, an evaluation starts what is missing of both kinds.
  workers.DropSpares();
  Judged(relu + "# number 5\n", {.verify_only = true}, session);
  CHECK(started() == 2 * static_cast<int64_t>(kKept));
  // Between evaluations, sooner: where fewer than two thirds are left.
  workers.Take(true);
  workers.RefillIfFew(2);
  CHECK(started() == 0);
  workers.Take(true);
  workers.RefillIfFew(1);
  CHECK(started() == 0);
  workers.RefillIfFew(2);
  CHECK(started() == 3 + 1);
  workers.KeepSpares(kLeastSpares);
  CHECK((workers.spares(false) == kLeastSpares && workers.spares(true) == kLeastSpares));
}

TEST_CASE("a candidate that compiles nothing has one process, which tells what its calls run") {
  GpuPythonSession& session = ShortCalls();
  GpuWorkers& workers = session.workers();
  workers.Take(true);
  workers.Refill();
  const auto taken_to_compile = [&, before = workers.spares(true)] { return before - workers.spares(true); };
  // What a recorder tells of it: there is no GPU here.
  const std::string tells =
      "import sys\nsys.modules['gpu_first_calls'].profiled = lambda device, calls, slots: (calls.run(slots), "
      "{'kernels': [['mine', float(len(slots))], ['sgemm', 5.0]], 'device_us': 1000.5, 'least_us': None})[1]\n";
  const std::string source = tells + WithForward("return torch.relu(x)");
  const JudgeResult result = Judged(source, {.first_calls_apart = false});
  INFO(OutcomeReason(result.outcome));
  REQUIRE(std::holds_alternative<Measured>(result.outcome));
  CHECK(taken_to_compile() == 0);
  CHECK(result.device_us == 1000.5);
  CHECK(result.log.find("kernels of libraries: mine 50 %, sgemm 50 %") != std::string::npos);
  // Known from then on.
  const JudgeResult refused = Judged(source, {.rules = "kevin", .first_calls_apart = false});
  REQUIRE(std::holds_alternative<Refused>(refused.outcome));
  CHECK(OutcomeReason(refused.outcome).find("kernels of its own do 0 %") != std::string::npos);
  // To verify or to screen needs no such calls.
  const std::string ends =
      "import os\nimport sys\nsys.modules['gpu_first_calls'].profiled = lambda *all: os._exit(0)\n" +
      WithForward("return torch.relu(x)");
  CHECK(std::holds_alternative<Measured>(
      Judged(ends, {.verify_only = true, .first_calls_apart = false}).outcome));
  CHECK(std::holds_alternative<Measured>(Judged(ends, {.screen = true, .first_calls_apart = false}).outcome));
  CHECK(taken_to_compile() == 0);
  // A process that ends in them is replaced, after calls in one of their own.
  CHECK(std::holds_alternative<Measured>(Judged(ends, {.first_calls_apart = false}).outcome));
  CHECK(taken_to_compile() == 1);
}

TEST_CASE("a candidate that runs a program where none was foreseen gets a process that may") {
  const std::string source =
      "import os\nimport subprocess\nif not os.path.exists('/tmp/triton/made'):\n"
      "    subprocess.run(['/bin/mkdir', '-p', '/tmp/triton'], check=True)\n"
      "    open('/tmp/triton/made', 'w').close()\n" +
      WithForward("return torch.relu(x)");
  const JudgeResult result = Judged(source, {.first_calls_apart = false});
  INFO(OutcomeReason(result.outcome));
  CHECK(std::holds_alternative<Measured>(result.outcome));
  const std::string fails =
      "import subprocess\n" + WithForward("subprocess.run(['/bin/false'], check=True)\nreturn torch.relu(x)");
  const JudgeResult failed = Judged(fails, {.verify_only = true, .first_calls_apart = false});
  REQUIRE(std::holds_alternative<Crashed>(failed.outcome));
  CHECK(OutcomeReason(failed.outcome).find("with compilers, its first calls: line") != std::string::npos);
}

}  // namespace kevin
