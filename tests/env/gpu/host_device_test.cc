// Judging candidates in Python on a GPU, where a host's memory stands for the device's (fake_device.cc): the pool and its
// import by a worker, spares, slots, places of outputs, the whole flow of a judgement. What only a GPU shows is in
// gpu_python_test.cc. Needs a Python with torch (KEVIN_PYTHON).

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

TEST_CASE("outputs of a GPU worker are read with their strides, and several of a module with weights") {
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
        "walks_frames", "looks_for_reference", "reference_by_global"}) {
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
  GpuWorkers workers(python, {0, true, size_t{16} << 20});
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

TEST_CASE("workers that have ended are no processes of Kevin's any more") {
  GpuPythonSession& session = ShortCalls();
  const std::string source = WithForward("return torch.relu(x) # counted");
  Judged(source, {.verify_only = true}, session);  // leaves spares
  const size_t before = PythonSide::ProcessIds().size();
  Judged(source + "\n# and again", {.verify_only = true}, session);
  CHECK(PythonSide::ProcessIds().size() == before);
}

}  // namespace kevin
