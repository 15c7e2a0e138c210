// What a candidate in Python on a GPU may do to the device and to its evaluator, where a host's memory stands for the device's
// (fake_device.cc) and a stand-in for the driver's management library (fake_nvml.cc).

#include <chrono>

#include "tests/env/gpu/host_device_fixture.h"
#include "tests/folders.h"

namespace kevin {

namespace fs = std::filesystem;

TEST_CASE("work that goes on on the GPU after a batch is refused") {
  const Setting above("FAKE_DEVICE_GAP_ABOVE", StoppedProcesses(ShortCalls()));
  const Setting gap("FAKE_DEVICE_GAP_NS", "2000000");
  const JudgeResult busy = Judged(WithForward("return torch.relu(x)"));
  REQUIRE(std::holds_alternative<Refused>(busy.outcome));
  CHECK(OutcomeReason(busy.outcome).find("after the end of a batch") != std::string::npos);
}

TEST_CASE(
    "work on the GPU that does not end with the candidate's process is another's, and voids the evaluation") {
  ShortCalls();
  const Setting gap("FAKE_DEVICE_GAP_NS", "2000000");
  try {
    Judged(WithForward("return torch.relu(x)"));
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMachine);
    CHECK(std::string(error.what()).find("another process computes on this GPU") == 0);
  }
}

TEST_CASE(
    "a process that computes excuses work on the GPU after a batch, and one that is only there does not") {
  static const OtherProcesses others("0000:40:00.0");
  const std::string self = std::to_string(getpid()), relu = WithForward("return torch.relu(x)");
  const Setting processes("FAKE_NVML_PROCESSES", self + " 0");
  GpuPythonSession& session = ShortCalls(&others);
  const Setting above("FAKE_DEVICE_GAP_ABOVE", StoppedProcesses(session));
  const Setting gap("FAKE_DEVICE_GAP_NS", "2000000");
  {
    const Setting idle("FAKE_NVML_COMPUTED", self + ":80 0:0");
    CHECK(std::holds_alternative<Refused>(Judged(relu, {.verify_only = true}, session).outcome));
  }
  const Setting computing("FAKE_NVML_COMPUTED", self + ":80 0:30");
  CHECK(std::holds_alternative<Measured>(Judged(relu, {.verify_only = true}, session).outcome));
}

TEST_CASE("work that goes on after the calls that tell what runs is refused before anything is timed") {
  const Setting above("FAKE_DEVICE_GAP_ABOVE", StoppedProcesses(ShortCalls()));
  const Setting drains("FAKE_DEVICE_DRAINS", "1000000000");  // after these calls no output is read
  const std::string tells =
      "import sys\nsys.modules['gpu_first_calls'].profiled = lambda device, calls, slots: (calls.run(slots), "
      "{'kernels': [['mine', 1.0]], 'device_us': 1.0, 'least_us': None})[1]\n";
  const JudgeResult busy = Judged(tells + WithForward("return torch.relu(x)"), {.first_calls_apart = false});
  REQUIRE(std::holds_alternative<Refused>(busy.outcome));
  CHECK(OutcomeReason(busy.outcome).find("after the end of a batch") != std::string::npos);
  CHECK(busy.samples.empty());
}

TEST_CASE("work that drains while a batch is paused is no late work") {
  ShortCalls();
  const Setting drains("FAKE_DEVICE_DRAINS", "3");
  for (int i = 0; i < 2; ++i) {
    const std::string reason = OutcomeReason(Judged(WithForward("return torch.relu(x)")).outcome);
    INFO(reason);
    CHECK(reason.find("deferred work") == std::string::npos);
  }
}

TEST_CASE(
    "a candidate that takes the GPU's memory outside its pool is refused, and the next one is measured") {
  {
    const Setting full("FAKE_DEVICE_FULL_ABOVE", StoppedProcesses(ShortCalls()));
    const JudgeResult result = Judged(WithForward("return torch.relu(x)"));
    REQUIRE(std::holds_alternative<Refused>(result.outcome));
    CHECK(OutcomeReason(result.outcome).find("takes GPU memory outside its pool") == 0);
  }
  CHECK(std::holds_alternative<Measured>(
      Judged(WithForward("return torch.relu(x)"), {.verify_only = true}).outcome));
}

TEST_CASE("memory that is short without the candidate's doing voids the evaluation") {
  ShortCalls();
  const Setting full("FAKE_DEVICE_FULL_ABOVE", "0");
  CHECK_THROWS_AS(Judged(WithForward("return torch.relu(x) + 0")), Error);
}

namespace {

// Code of a candidate that runs in its first process only: `lines` may write to `result`, the file that the evaluator
// reads.
std::string InFirstCalls(const std::string& lines, const std::string& otherwise) {
  return WithForward(
      "import os\nfor number in os.listdir('/proc/self/fd'):\n    try:\n        name = os.readlink('/proc/self/fd/' + "
      "number)\n    except OSError:\n        continue\n    if 'kevin-examined' in name:\n        result = int(number)\n" +
      lines + "        os._exit(0)\n" + otherwise);
}

}  // namespace

TEST_CASE("a forged archive of caches does not void an evaluation") {
  for (const char* content : {"b'{\"error\": \"\", \"kernels\": [], \"device_us\": null}\\n' + b'x' * 5000",
                              "b'{\"error\": \"\", \"kernels\": [], \"device_us\": null}\\n' + b'\\0' * 5000",
                              "b'x' * 3000000", "b'\\n' * 10"}) {
    INFO(content);
    const JudgeResult result = Judged(
        InFirstCalls("        os.pwrite(result, " + std::string(content) + ", 0)\n", "return torch.relu(x)"),
        {.verify_only = true});
    CHECK(std::holds_alternative<Measured>(result.outcome));
  }
}

TEST_CASE("where the device met an illegal access, it is said that inputs are read-only") {
  const auto reason_of = [](const std::string& error) {
    const JudgeResult result =
        Judged(WithForward("raise RuntimeError('" + error + "')"), {.verify_only = true});
    return OutcomeReason(result.outcome);
  };
  const std::string illegal =
      reason_of("CUDA error: an illegal memory access was encountered\\nSearch for it");
  INFO(illegal);
  CHECK(illegal.find("encountered (a kernel reads or writes beyond its tensors, or writes to an input") !=
        std::string::npos);
  CHECK(reason_of("no such width").find("read-only") == std::string::npos);
}

TEST_CASE("what a candidate's first calls leave is bounded and printable") {
  const JudgeResult result = Judged(
      InFirstCalls(
          "        import json\n        os.pwrite(result, json.dumps({'error': chr(27) + '[31m' + 'e' * "
          "100000}).encode() + bytes([10]), 0)\n",
          "raise ValueError('later')"),
      {.verify_only = true});
  REQUIRE(std::holds_alternative<Crashed>(result.outcome));
  const std::string reason = OutcomeReason(result.outcome);
  CHECK(reason.find("ValueError: later") != std::string::npos);
  CHECK(reason.find("with compilers, its first calls: ") != std::string::npos);
  CHECK(reason.size() < 6000);
  CHECK(reason.find('\x1b') == std::string::npos);
  const JudgeResult shares = Judged(
      InFirstCalls(
          "        import json\n        os.pwrite(result, json.dumps({'error': '', 'kernels': [['k', 1.0]] * 5000, "
          "'device_us': 1e300}).encode() + bytes([10]), 0)\n",
          "return torch.relu(x)"),
      {.verify_only = true});
  CHECK_FALSE(shares.own_share.has_value());
  CHECK_FALSE(shares.device_us.has_value());
}

TEST_CASE("a problem may ask for another share of own kernels on a GPU") {
  const auto judged = [](const std::string& least, const std::string& source) {
    const Problem problem = ParseProblem(
        TextOf(ShortCallsFile()) + "\n[check]\nleast_own_share = " + least + "\n", ShortCallsFile());
    const auto session = NewSession(problem);
    session->base().reference().Activate();
    return Judged(source, {.rules = "kevin"}, *session);
  };
  // As a profiler would say it.
  const std::string half = InFirstCalls(
      "        import json\n        os.pwrite(result, json.dumps({'error': '', 'kernels': [['mine', 1.0], "
      "['cublas', 1.0]], 'device_us': 2.0}).encode() + bytes([10]), 0)\n",
      "return torch.relu(x)\nsources = '__global__ void mine() {}'");
  const JudgeResult more = judged("0.6", half);
  REQUIRE(std::holds_alternative<Refused>(more.outcome));
  CHECK(
      OutcomeReason(more.outcome) ==
      "kernels of its own do 50 % of the work, and this problem asks for 60 %: the rest is done by libraries: cublas "
      "50 % (--rules open permits that)");
  const JudgeResult less = judged("0.4", half);
  INFO(OutcomeReason(less.outcome));
  CHECK(std::holds_alternative<Measured>(less.outcome));
  CHECK(less.own_share == 0.5);
  const std::string unknown = WithForward("return torch.relu(x)");
  const JudgeResult refused = judged("0.01", unknown);
  REQUIRE(std::holds_alternative<Refused>(refused.outcome));
  CHECK(OutcomeReason(refused.outcome).find("and this problem asks for 1 % (") != std::string::npos);
  CHECK(std::holds_alternative<Measured>(judged("0", unknown).outcome));
}

TEST_CASE("a call among many takes no less than one alone keeps the device busy") {
  const auto judged = [](const std::string& least_us) {
    return Judged(
        InFirstCalls(
            "        import json\n        os.pwrite(result, json.dumps({'error': '', 'kernels': [['k', "
            "1.0]], 'device_us': 2.0, 'least_us': " +
                least_us + "}).encode() + bytes([10]), 0)\n",
            "return torch.relu(x)"),
        {});
  };
  const JudgeResult result = judged("1e6");
  REQUIRE(std::holds_alternative<Refused>(result.outcome));
  CHECK(OutcomeReason(result.outcome).find("keeps the device busy for 1000000.0 us alone") !=
        std::string::npos);
  CHECK(std::holds_alternative<Measured>(judged("1.0").outcome));
}

TEST_CASE("a slow and correct candidate is timed by single calls, within a limit for all of them") {
  const std::string slow = WithForward("import time\ntime.sleep(0.2)\nreturn torch.relu(x)");
  const JudgeResult result = Judged(slow, {.timeout_s = 2});
  INFO(OutcomeReason(result.outcome));
  REQUIRE(std::holds_alternative<Measured>(result.outcome));
  CHECK(std::get<Measured>(result.outcome).candidate_us > 150'000);
  for (const Sample& sample : result.samples) CHECK((sample.calls == 1 || sample.side == "reference"));
  const JudgeResult late = Judged(slow + "# again\n", {.timeout_s = 2, .evaluation_timeout_s = 3});
  REQUIRE(std::holds_alternative<TimedOut>(late.outcome));
  CHECK(OutcomeReason(late.outcome).find("evaluation_timeout_s") != std::string::npos);
}

TEST_CASE("a load that takes too long is confirmed once, and so are the first calls") {
  StoppedProcesses(ShortCalls());  // with warm spares
  const auto now_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  constexpr double kLimit_s = 4;
  // The first process and the first load end at their limits.
  const std::string text = "import time\nwhile time.time() < " + std::to_string(now_s + 2.5 * kLimit_s) +
                           ":\n    time.sleep(0.01)\n" + WithForward("return torch.relu(x)");
  const JudgeResult result = Judged(text, {.verify_only = true, .timeout_s = kLimit_s});
  INFO(OutcomeReason(result.outcome));
  CHECK(std::holds_alternative<Measured>(result.outcome));
  const std::string endless = "while True:\n    pass\n" + text;
  CHECK(std::holds_alternative<TimedOut>(Judged(endless, {.verify_only = true, .timeout_s = 1}).outcome));
}

TEST_CASE("a problem with an input-output is refused before a Python worker sees it") {
  const std::string problem = (SourceFolder() / "tests/env/gpu/inout.toml").string();
  try {
    SessionOf(problem);
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(std::string(error.what()).find("writes into its input `cache`") != std::string::npos);
  }
}

TEST_CASE("beside a slow candidate eager's batches have more calls than the candidate's") {
  const JudgeResult result =
      Judged("import time\n" + WithForward("time.sleep(0.02)\nreturn torch.relu(x)"), {});
  INFO(OutcomeReason(result.outcome));
  REQUIRE(std::holds_alternative<Measured>(result.outcome));
  int most_of_candidate = 0, least_of_reference = 1 << 20;
  for (const Sample& sample : result.samples) {
    if (sample.phase != "fixed") continue;
    if (sample.side == "candidate") most_of_candidate = std::max(most_of_candidate, sample.calls);
    if (sample.side == "reference") least_of_reference = std::min(least_of_reference, sample.calls);
  }
  CHECK(most_of_candidate == 1);
  CHECK(least_of_reference > 2);
}

TEST_CASE("work ahead that a few samples of the inputs confirm is refused") {
  const std::string sampled = WithForward(
      "if not hasattr(self, 'at'):\n    self.at, self.ready = torch.randperm(x.numel())[:32], {}\n"
      "frame = sys._getframe(1)\nwhile frame is not None and 'slots' not in frame.f_locals:\n    frame = "
      "frame.f_back\nscope = frame.f_locals\nif scope['call'] == 0:\n    self.ready.clear()\n    for slot in "
      "scope['slots']:\n        y = scope['inputs_of'][slot][0]\n        self.ready[slot] = "
      "(y.view(-1)[self.at].clone(), torch.relu(y))\nseen, out = self.ready.pop(scope['slot'])\nreturn out if "
      "torch.equal(seen, x.view(-1)[self.at]) else torch.relu(x)");
  const JudgeResult result = Judged(sampled);
  REQUIRE(std::holds_alternative<Refused>(result.outcome));
  CHECK(OutcomeReason(result.outcome).find("worked ahead") == 0);
}

}  // namespace kevin
