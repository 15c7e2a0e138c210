// The memory of workers on a GPU: how large their pools are, and that of what comes before a job nothing is left. A host's
// memory stands for the device's (fake_device.cc).

#include "env/process/resident_sessions.h"
#include "tests/env/gpu/host_device_fixture.h"

namespace kevin {
namespace {

constexpr size_t kMiB = size_t{1} << 20, kGiB = size_t{1} << 30;
constexpr size_t kAnyRoom = 1000 * kGiB;

size_t FreeOnDevice() {
  size_t free_bytes = 0, total_bytes = 0;
  KEVIN_CU(MemGetInfo, &free_bytes, &total_bytes);
  return free_bytes;
}

// As long as it lives, so much is free beside what this process had before.
class FreeFromNow {
 public:
  explicit FreeFromNow(size_t bytes) {
    if (const char* before = std::getenv(kName)) before_ = before;
    constexpr size_t kMost_mib = 1 << 20;
    Set(std::to_string(kMost_mib));
    Set(std::to_string(kMost_mib - FreeOnDevice() / kMiB + bytes / kMiB));
  }
  ~FreeFromNow() { before_.empty() ? static_cast<void>(unsetenv(kName)) : Set(before_); }
  FreeFromNow(const FreeFromNow&) = delete;
  FreeFromNow& operator=(const FreeFromNow&) = delete;

 private:
  static constexpr const char* kName = "FAKE_DEVICE_MIB";
  static void Set(const std::string& value) { setenv(kName, value.c_str(), 1); }
  std::string before_;
};

Problem ReluOf(size_t tensor_bytes) {
  std::string text = TextOf(ShortCallsFile());
  const std::string usual = "N = 8192";
  text.replace(text.find(usual), usual.size(), "N = " + std::to_string(tensor_bytes / 32 / sizeof(float)));
  return ParseProblem(text, ShortCallsFile());
}

GpuPythonSession::Examined NothingExamined() {
  GpuPythonSession::Examined examined;
  examined.caches = std::make_shared<Fd>(CreateSharedFile("kevin-nothing", 1));
  return examined;
}

size_t PoolOfCandidate(GpuPythonSession& session) {
  const Fd bundle = BundleOf(WithForward("return torch.relu(x)"), "modelnew");
  return session.Start("candidate", bundle.get(), NothingExamined())->pool().bytes();
}

}  // namespace

TEST_CASE("workers of one problem share what their inputs and the truth leave") {
  // 30 GiB: three workers with 2 GiB of inputs have 10 each.
  const WorkerNeeds small = {.inputs = 2 * kGiB, .least_pool = kGiB, .truth = 0};
  CHECK(PoolBytes(small, 30 * kGiB, 3, kAnyRoom) == 8 * kGiB);
  CHECK(PoolBytes(small, 30 * kGiB, 3, 3 * kGiB) == 4 * kGiB);
  // The truth is computed beside two of them only.
  CHECK(PoolBytes({2 * kGiB, kGiB, 6 * kGiB}, 30 * kGiB, 3, kAnyRoom) == 8 * kGiB);
  CHECK(PoolBytes({2 * kGiB, kGiB, 20 * kGiB}, 30 * kGiB, 3, kAnyRoom) == 3 * kGiB);
  // Where that is too little, the least pool is asked for.
  CHECK(PoolBytes({2 * kGiB, 5 * kGiB, 40 * kGiB}, 30 * kGiB, 3, kAnyRoom) == 5 * kGiB);
  CHECK(PoolBytes({2 * kGiB, 5 * kGiB, 0}, 0, 2, kAnyRoom) == 5 * kGiB);
  // What the reference takes leaves as much for each of the others.
  for (const size_t truth : {size_t{0}, 12 * kGiB, 24 * kGiB}) {
    const WorkerNeeds large = {.inputs = 6 * kGiB, .least_pool = 6 * kGiB + 128 * kMiB, .truth = truth};
    const size_t free_bytes = 52 * kGiB, reference = PoolBytes(large, free_bytes, 3, kAnyRoom);
    const size_t left = free_bytes - reference - large.inputs;
    const size_t candidate = PoolBytes(large, left, 2, kAnyRoom);
    CHECK(reference > large.least_pool);
    CHECK(candidate >= reference);
    CHECK(candidate + large.inputs + truth <= left);
    CHECK(2 * (candidate + large.inputs) <= left);
  }
}

TEST_CASE("a machine keeps as many spares as its processors warm up and its memory holds") {
  CHECK(SparesFor(2, 80 * kGiB) == 2);
  CHECK(SparesFor(9, 80 * kGiB) == 3);
  CHECK(SparesFor(16, 80 * kGiB) == 6);
  CHECK(SparesFor(128, 140 * kGiB) == 6);
  CHECK(SparesFor(16, 40 * kGiB) == 4);
  CHECK(SparesFor(16, 8 * kGiB) == 2);
}

TEST_CASE("a pool is made for its job, and a candidate may use more than a spare could hold") {
  constexpr size_t kFree = 1536 * kMiB, kTensor = 32 * kMiB;
  GpuWorkers workers(HostPython(), {.on_host = true, .kept_bytes = 0});
  const FreeFromNow free(kFree);
  workers.Refill();
  workers.Settle();
  CHECK(FreeOnDevice() == kFree);
  const auto session = NewSession(ReluOf(kTensor), nullptr, workers);
  REQUIRE(session->slots() == 1);
  const size_t pool = PoolOfCandidate(*session);
  CHECK(pool > kFree / 4);
  CHECK(session->reference().pool().bytes() > kFree / 8);
  CHECK(session->reference().pool().bytes() < kFree / 3);
  const auto judged = [&](const std::string& forward) {
    return Judged(WithForward(forward), {.verify_only = true}, *session);
  };
  const JudgeResult large = judged("more = torch.empty(" + std::to_string(kFree / 5) +
                                   ", dtype=torch.uint8)\nreturn torch.relu(x)");
  INFO(OutcomeReason(large.outcome));
  CHECK(std::holds_alternative<Measured>(large.outcome));
  const JudgeResult larger = judged("more = torch.empty(2 ** 33, dtype=torch.uint8)\nreturn torch.relu(x)");
  REQUIRE(std::holds_alternative<Crashed>(larger.outcome));
  INFO(OutcomeReason(larger.outcome));
  CHECK(OutcomeReason(larger.outcome)
            .find("Tried to allocate 8192 MiB. Of " + std::to_string(pool / kMiB) +
                  " MiB for a candidate ") != std::string::npos);
  // Of the device it has its pool and its inputs.
  const JudgeResult maps = judged(
      "mapped = 0\nfor line in open('/proc/self/maps'):\n    if 'fake-device' in line:\n        begin, end = "
      "line.split()[0].split('-')\n        mapped += int(end, 16) - int(begin, 16)\nraise ValueError(f'{mapped} bytes')");
  const size_t mapped = pool + session->base().inputs_memory().bytes();
  INFO(OutcomeReason(maps.outcome));
  CHECK(OutcomeReason(maps.outcome).find("ValueError: " + std::to_string(mapped) + " bytes") !=
        std::string::npos);
}

TEST_CASE("sessions of several problems, a candidate and the kernel that it is compared with fit together") {
  constexpr size_t kFree = 2400 * kMiB;
  GpuWorkers workers(HostPython(), {.on_host = true, .kept_bytes = 64 * kMiB});
  const FreeFromNow free(kFree);
  const auto first = NewSession(ReluOf(8 * kMiB), nullptr, workers);
  const size_t alone = PoolOfCandidate(*first);
  {
    const auto second = NewSession(ReluOf(4 * kMiB), nullptr, workers);
    CHECK(first->PlanPools());
    CHECK(PoolOfCandidate(*first) < alone);
    const std::string relu = WithForward("return torch.relu(x)");
    CHECK(std::holds_alternative<Measured>(Judged(relu, {.verify_only = true}, *second).outcome));
    first->base().reference().Activate();
    const JudgeResult pair = Judged(relu + "# again\n", {.start = relu}, *first);
    INFO(OutcomeReason(pair.outcome));
    CHECK(std::holds_alternative<Measured>(pair.outcome));
    // What another program takes makes pools smaller than eager's: the other session has to go.
    const FreeFromNow less(first->reference().pool().bytes());
    CHECK_FALSE(first->PlanPools());
  }
  CHECK(first->PlanPools());
  CHECK(PoolOfCandidate(*first) == alone);
}

TEST_CASE("a session that is alone gives eager what its candidates leave") {
  constexpr size_t kFree = 1200 * kMiB;
  GpuWorkers workers(HostPython(), {.on_host = true, .kept_bytes = 0});
  const FreeFromNow free(kFree);
  const size_t beside = NewSession(ReluOf(8 * kMiB), nullptr, workers)->reference().pool().bytes();
  const auto session = NewSession(ReluOf(8 * kMiB), nullptr, workers, true);
  CHECK(session->is_alone());
  CHECK(session->reference().pool().bytes() > beside);
  CHECK(session->PlanPools());
  CHECK(PoolOfCandidate(*session) <= session->reference().pool().bytes() * 11 / 10);
}

TEST_CASE("memory that is too little for a pool voids the evaluation") {
  GpuWorkers workers(HostPython(), {.on_host = true, .kept_bytes = 0});
  const FreeFromNow free(1024 * kMiB);
  const auto session = NewSession(ReluOf(32 * kMiB), nullptr, workers);
  const FreeFromNow less(64 * kMiB);  // enough for the inputs
  session->PlanPools();
  try {
    Judged(WithForward("return torch.relu(x)"), {.verify_only = true}, *session);
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(IsOutOfMemory(error));  // an evaluator drops its other sessions and tries again
    CHECK(std::string(error.what()).find("cuMemCreate") != std::string::npos);
  }
}

TEST_CASE("fresh memory of a pool is not zero, and a pool of the candidate's own is not read") {
  CHECK(std::holds_alternative<Wrong>(
      Judged(TextOf(RedTeam() / "gpu/zeros_of_fresh_memory.py"), {.verify_only = true}).outcome));
  // The evaluator looks at the same places of the pool that it made.
  const std::string own_pool = WithForward(
      "if not self.kept:\n    import ctypes, os\n    path = next(line.split()[-1] for line in open('/proc/self/maps') if "
      "'kevin-python-worker' in line)\n    file = os.memfd_create('mine')\n    os.ftruncate(file, 2 ** 28)\n    "
      "take = ctypes.CDLL(path).KevinGpuTakePool\n    take.restype = ctypes.c_uint64\n    error = "
      "ctypes.create_string_buffer(200)\n    place = take(-1, file, ctypes.c_uint64(2 ** 28), error, 200)\n    if place == "
      "0:\n        raise ValueError(error.value)\n    self.kept.append(place)\nreturn torch.relu(x)");
  const JudgeResult result = Judged(own_pool, {.verify_only = true});
  INFO(OutcomeReason(result.outcome));
  CHECK_FALSE(std::holds_alternative<Measured>(result.outcome));
  CHECK(OutcomeReason(result.outcome).find("ValueError") == std::string::npos);
}

TEST_CASE("timed work that waits for its own stream costs a second in its first calls only") {
  HostPython();  // the driver
  CuHandle module = nullptr, scrub = nullptr;
  KEVIN_CU(ModuleLoadData, &module, "");
  KEVIN_CU(ModuleGetFunction, &scrub, module, "kevin_scrub");
  uint64_t calls = 0;
  const auto seconds_of = [&](Stopwatch& stopwatch, bool waits) {
    const auto start = std::chrono::steady_clock::now();
    const auto work = [&] {
      if (waits) KEVIN_CU(StreamSynchronize, nullptr);
    };
    stopwatch.TimeUs(work, {.seed = ++calls << 32});
    return SecondsSince(start);
  };
  Stopwatch stopwatch({0, nullptr, scrub, true});
  const auto seconds = [&](bool waits) { return seconds_of(stopwatch, waits); };
  CHECK(seconds(true) > 0.4);
  CHECK(seconds(false) < 0.3);  // one alone is a disturbance
  CHECK(seconds(true) > 0.4);
  CHECK(seconds(true) > 0.4);
  seconds(true);  // who opens the gate may still be waiting as before
  for (int i = 0; i < 3; ++i) CHECK(seconds(true) < 0.3);
  CHECK(seconds(false) < 0.3);  // it does not wait any more
  seconds(true);
  CHECK(seconds(true) > 0.4);
  Stopwatch of_candidates({0, nullptr, scrub});
  for (int i = 0; i < 4; ++i) CHECK(seconds_of(of_candidates, true) > 0.4);
}

}  // namespace kevin
