// What the trusted side sees of a timed process: that it is stopped outside its batches, and the CPU time that it used
// there all the same.

#include "env/cpu/timed_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "env/cpu/audit.h"
#include "env/cpu/checks.h"
#include "env/cpu/compile.h"
#include "env/cpu/judge.h"
#include "env/cpu/session.h"
#include "env/cpu/thread_samples.h"
#include "env/process/machine.h"
#include "env/process/spawn.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

Session& SharedSession() {
  static const std::unique_ptr<Session> session = [] {
    SessionOptions options;
    options.problem = ListedProblem("level1/19");
    options.threads = 1;
    options.namespaces = NamespacesAvailable();
    options.evaluator_path = BuiltPrograms() / "kevin-evaluator";
    options.runner_path = BuiltPrograms() / "kevin-runner";
    return std::make_unique<Session>(std::move(options));
  }();
  return *session;
}

// Open; the folder of the library may go.
Fd Library(const std::string& source) {
  const TemporaryFolder cache;
  CompileOptions options;
  options.runner = BuiltPrograms() / "kevin-runner";
  options.cache_directory = cache.path();
  options.namespaces = NamespacesAvailable();
  const Compiled compiled =
      CompileCpp(FindCompiler(), AtSize(ListedProblem("level1/19"), "small"), source, options);
  INFO(compiled.log);
  REQUIRE(!compiled.library.empty());
  return Fd(open(compiled.library.c_str(), O_RDONLY | O_CLOEXEC));
}

const std::string kRelu = R"(extern "C" void launch(const float* x, float* out) {
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
)";

// A second thread computes for ever. The call waits for it to have begun.
const std::string kBusyThread = R"(#include <atomic>
#include <thread>
static std::atomic<bool> begun{false};
extern "C" void launch(const float* x, float* out) {
  static std::thread busy([] { for (volatile long i = 0;; ++i) begun = true; });
  while (!begun) std::this_thread::yield();
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
)";

// "T": stopped.
char StateOf(pid_t pid) {
  const std::string stat = TextOf("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? '?' : stat[name_end + 2];
}

double Batch(TimedProcess& process) {
  const std::vector<uint16_t> slots = SharedSession().DrawSlots(2);
  SharedSession().FillInputs(slots);
  SharedSession().PoisonOutputs(SharedSession().CandidateOutputs(), slots);
  return process.Run(slots, "measure");
}

void Continue(const TimedProcess& process, std::chrono::milliseconds time) {
  const pid_t pid = const_cast<TimedProcess&>(process).process().pid();
  kill(pid, SIGCONT);
  std::this_thread::sleep_for(time);
  kill(pid, SIGSTOP);
  for (int i = 0; i < 1000 && StateOf(pid) != 'T'; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(StateOf(pid) == 'T');
}

}  // namespace

TEST_CASE("a timed answer that differs from the reference's is judged by the truth") {
  Session& session = SharedSession();
  const std::vector<uint16_t> slots = session.DrawSlots(1);
  session.FillInputs(slots);
  const auto elements = static_cast<size_t>(session.sized().outputs[0].elements);
  const auto* x = static_cast<const float*>(session.Inputs(slots[0])[0].data);
  std::vector<float> right(elements), off;
  std::transform(x, x + elements, right.begin(), [](float value) { return value > 0 ? value : 0; });
  off = right;
  off[elements / 2] += 0.5F;
  const auto check = [&](const std::vector<float>& answer, const std::vector<float>& reference) {
    const auto* answer_bytes = reinterpret_cast<const std::byte*>(answer.data());
    const auto* reference_bytes = reinterpret_cast<const std::byte*>(reference.data());
    return Checker(session).AgainstReference(slots[0], {&answer_bytes, 1}, {&reference_bytes, 1}).ok;
  };
  CHECK(check(right, right));
  CHECK(check(right, off));
  CHECK_FALSE(check(off, right));
}

TEST_CASE("a timed process is stopped from its start on, before its first batch and after each") {
  const Fd library = Library(kBusyThread);
  TimedProcess process(SharedSession(), "candidate", library.get(), SharedSession().CandidateOutputs());
  CHECK(StateOf(process.process().pid()) == 'T');
  for (int i = 0; i < 3; ++i) {
    Batch(process);
    CHECK(StateOf(process.process().pid()) == 'T');
  }
}

TEST_CASE("a timed process has as many processors as its session has threads") {
  const Fd library = Library(kBusyThread);
  TimedProcess process(SharedSession(), "candidate", library.get(), SharedSession().CandidateOutputs());
  for (const pid_t pid : {process.process().pid(), SharedSession().reference_process().pid()}) {
    cpu_set_t processors;
    CPU_ZERO(&processors);
    REQUIRE(sched_getaffinity(pid, sizeof(processors), &processors) == 0);
    CHECK(CPU_COUNT(&processors) == SharedSession().options().threads);
  }
}

TEST_CASE("CPU time outside its batches is noticed, and a stopped process has none") {
  const Fd library = Library(kBusyThread);
  TimedProcess process(SharedSession(), "candidate", library.get(), SharedSession().CandidateOutputs());
  Batch(process);
  process.StartCounting();
  for (int i = 0; i < 20; ++i) process.AddOtherWindow(Batch(process));
  const double before_s = process.process().CpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(process.process().CpuSeconds() - before_s < 0.001);
  Continue(process, std::chrono::milliseconds(100));  // as a signal from elsewhere would
  CHECK(process.UsedOutside().find("of CPU outside its own timed calls") != std::string::npos);
}

TEST_CASE("outputs that are unwritten when a batch is done are refused") {
  const Fd library = Library("extern \"C\" void launch(const float*, float*) {}\n");
  TimedProcess process(SharedSession(), "candidate", library.get(), SharedSession().CandidateOutputs());
  CHECK_THROWS_AS(Batch(process), Ended);
}

TEST_CASE("an audit sees deferred work, and changes the inputs of calls that have not begun") {
  // Of four calls three only note their outputs, and the fourth does the work of all.
  const std::string defers = R"(extern "C" void launch(const float* x, float* out) {
  static const float* from[4];
  static float* to[4];
  static int calls = 0;
  from[calls] = x, to[calls++] = out;
  for (int call = 0; calls == 4 && call < 4; ++call)
    for (long i = 0; i < B * N; ++i) to[call][i] = from[call][i] > 0 ? from[call][i] : 0;
}
)";
  Session& session = SharedSession();
  REQUIRE(session.slots() >= 4);
  // Beside other programs a batch may begin late, or end before it is paused.
  int seen = 0;
  for (const bool is_deferred : {false, true, true, true, true, true}) {
    if (seen > 0) break;
    const Fd library = Library(is_deferred ? defers : kRelu);
    TimedProcess process(session, "candidate", library.get(), session.CandidateOutputs());
    const std::vector<uint16_t> slots = session.DrawSlots(4);
    session.FillInputs(slots);
    session.PoisonOutputs(session.CandidateOutputs(), slots);
    const auto values = [&] {
      const auto input = session.Inputs(slots[3])[0];
      const auto* data = static_cast<const float*>(input.data);
      return std::vector<float>(data, data + session.sized().inputs[0].elements);
    };
    const std::vector<float> before = values();
    AuditPlan plan;
    for (const double share : {0.25, 0.5, 1.0, 1.5})
      plan.moments_us.push_back(share * session.reference_us());
    Audit audit(session, process.process(), process.outputs(), slots, plan, {});
    process.Run(slots, "verify", audit.Pauses());
    audit.AfterBatch();
    if (is_deferred) {
      seen += audit.Deferred();
      continue;
    }
    REQUIRE(audit.Happened());
    CHECK_FALSE(audit.Deferred());
    CHECK(audit.WereInputsChanged(3));
    const bool are_new = values() != before;  // Catch would print all of them
    CHECK(are_new);
  }
  CHECK(seen == 1);
}

// What a process has touched counts as touched by each process that maps it, once the kernel takes over its marks: when it
// ages a page, and also when the process gives the page back, as here.
TEST_CASE("what others have touched is not read ahead, whenever the kernel takes over their marks") {
  const std::string sleeps_at_first = R"(#include <unistd.h>
extern "C" void launch(const float* x, float* out) {
  static bool is_first = true;
  if (is_first) usleep(300000);
  is_first = false;
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
)";
  const Fd library = Library(sleeps_at_first), of_start = Library(kRelu);
  Session& session = SharedSession();
  REQUIRE(session.slots() >= 4);
  enum class Toucher { kUs, kUsWhilePaused, kStart };
  for (const Toucher toucher : {Toucher::kUs, Toucher::kUsWhilePaused, Toucher::kStart}) {
    for (const bool is_forgotten : {true, false}) {
      CAPTURE(static_cast<int>(toucher), is_forgotten);
      TimedProcess process(session, "candidate", library.get(), session.CandidateOutputs());
      std::unique_ptr<TimedProcess> start;
      if (toucher == Toucher::kStart)
        start = std::make_unique<TimedProcess>(session, "start", of_start.get(), session.StartOutputs());
      const std::vector<uint16_t> slots = session.DrawSlots(4);
      session.FillInputs(slots);
      session.PoisonOutputs(session.CandidateOutputs(), slots);
      // The input of the last call once more, in this process. With no bytes mremap leaves the first mapping.
      const TensorView input = session.Inputs(slots[3])[0];
      const auto bytes = static_cast<size_t>(session.sized().inputs[0].bytes);
      void* again = mremap(input.data, 0, bytes, MREMAP_MAYMOVE);
      REQUIRE(again != MAP_FAILED);
      const auto touch = [&] {
        for (size_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(again)[at];
      };
      const auto touch_before_batch = [&] {
        if (toucher == Toucher::kUs) touch();
        if (start) start->Run(slots, "verify");
      };
      if (is_forgotten) touch_before_batch();
      AuditPlan plan;
      plan.moments_us = {20000, 40000};
      plan.changes = false;
      Audit audit(session, process.process(), process.outputs(), slots, plan,
                  {true, start ? &start->process() : nullptr});
      if (!is_forgotten) touch_before_batch();
      BatchPauses pauses = audit.Pauses();
      int paused = 0;
      const int unmapped_at = toucher == Toucher::kUsWhilePaused ? 2 : 1;
      const auto look = pauses.on_pause;
      pauses.on_pause = [&](double ran_us) {
        if (++paused == unmapped_at) munmap(again, bytes), start.reset();
        if (paused == 1 && toucher == Toucher::kUsWhilePaused && is_forgotten) touch();
        look(ran_us);
        if (paused == 1 && toucher == Toucher::kUsWhilePaused && !is_forgotten) touch();
      };
      process.Run(slots, "verify", pauses);
      audit.AfterBatch();
      REQUIRE(paused == 2);
      CHECK(audit.ReadAhead() == !is_forgotten);
    }
  }
}

TEST_CASE("what is drawn for one candidate is drawn for no other") {
  const Fd library = Library(kRelu);
  const auto judge = [&] {
    JudgeRequest request;
    request.library_fd = library.get();
    request.verify_only = true;
    return JudgeLibrary(SharedSession(), request);
  };
  const JudgeResult first = judge(), second = judge();
  CHECK(std::holds_alternative<Measured>(first.outcome));
  REQUIRE(first.seeds.size() == 4);
  CHECK(first.seeds != second.seeds);
  const std::vector<uint16_t> slot = {0};
  const auto values = [&] {
    SharedSession().FillInputs(slot, 0);
    const auto* data = static_cast<const float*>(SharedSession().Inputs(0)[0].data);
    return std::vector<float>(data, data + 64);
  };
  const std::vector<float> before = values();
  judge();
  CHECK(values() != before);
  CHECK(values() != values());
}

TEST_CASE("the memory of inputs cannot be mapped for writing, nor its seals changed") {
  const Fd file = CreateSharedFile("kevin-test", 1 << 16);
  const Mapping ours(file.get(), 1 << 16, Access::kReadWrite, true);
  SealContents(file.get());
  CHECK(mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0) == MAP_FAILED);
  CHECK(pwrite(file.get(), "x", 1, 0) < 0);
  CHECK(ftruncate(file.get(), 0) != 0);
  CHECK(fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  ours.data()[0] = std::byte{1};  // the trusted side still draws into it
  void* theirs = mmap(nullptr, 1 << 16, PROT_READ, MAP_SHARED, file.get(), 0);
  REQUIRE(theirs != MAP_FAILED);
  CHECK(mprotect(theirs, 1 << 16, PROT_READ | PROT_WRITE) != 0);
  munmap(theirs, 1 << 16);
}

TEST_CASE("poison is another one in each call, and now and then an ordinary value") {
  constexpr int kFillings = 200;
  const std::vector<uint16_t> slot = {0};
  OutputMemory& outputs = SharedSession().CandidateOutputs();
  std::set<uint32_t> words;
  int ordinary = 0;
  for (int i = 0; i < kFillings; ++i) {
    SharedSession().PoisonOutputs(outputs, slot);
    uint32_t word = 0;
    std::memcpy(&word, SharedSession().Output(outputs, 0, 0), sizeof(word));
    words.insert(word);
    ordinary += !IsPoisonWord(word);
    CHECK(SharedSession().IsUnwritten(outputs, 0, 0, 0));
  }
  CHECK(words.size() > kFillings * 9 / 10);
  CHECK((ordinary > 5 && ordinary < 60));  // one in eight: 25 of 200
}

TEST_CASE("a moment at which all threads wait is no sample, one at which one works is") {
  for (const bool expected : {false, true}) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::mutex never;
      never.lock();
      std::thread waiting([&] { never.lock(); });
      if (expected) {
        while (true) asm volatile("");
      }
      waiting.join();
    }
    ThreadSampler sampler(child);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    REQUIRE(kill(child, SIGSTOP) == 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    sampler.Take();
    CHECK(sampler.samples().All() == (expected ? 2 : 0));
    CHECK(sampler.samples().waiting == (expected ? 1 : 0));
    CHECK((sampler.samples().moments == 1 && sampler.samples().unreadable == 0));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    sampler.Take();
    CHECK((sampler.samples().moments == 1 && sampler.samples().unreadable == 1));
  }
}

TEST_CASE("a thread that has not run since its last sample is not counted again") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    while (true) asm volatile("");
  }
  ThreadSampler sampler(child);
  int status = 0;
  for (int stops = 1; stops <= 2; ++stops) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    REQUIRE(kill(child, SIGSTOP) == 0);
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    for (int looks = 0; looks < 3; ++looks) sampler.Take();
    CHECK(sampler.samples().All() == stops);
    CHECK(sampler.samples().moments == 3 * stops);
    REQUIRE(kill(child, SIGCONT) == 0);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
}

TEST_CASE("numpy is a candidate's own only beside Triton's interpreter, and products never are") {
  ThreadSamples samples;
  samples.elsewhere = 1000, samples.python = 200, samples.products = 30, samples.math = 20;
  samples.by_library = {{"OpenBLAS", 30}, {"MKL", 0}};
  samples.moments = 1050;
  const OwnShare compiled = CountOwnShare(samples, KernelForm::kCompiled);
  CHECK((compiled.own == 0 && compiled.library == 30 && compiled.all == 1050 && compiled.moments == 1050));
  samples.triton = 1;  // of 800 outside of Python
  const OwnShare beside = CountOwnShare(samples, KernelForm::kInterpreted);
  CHECK((beside.own == 300 && beside.library == 730));
  CHECK(*beside.Value() < kLeastOwnShare);
  samples.triton = 40;
  CHECK(CountOwnShare(samples, KernelForm::kCompiled).own == 0);
  const OwnShare interpreted = CountOwnShare(samples, KernelForm::kInterpreted);
  CHECK((interpreted.own == 1000 && interpreted.library == 30));
  CHECK(interpreted.Libraries() == "OpenBLAS 3 %");
  CHECK(beside.Libraries() == "numpy 68 %, OpenBLAS 3 %");
  CHECK(compiled.Libraries() == "OpenBLAS 100 %");
  // Beside compiled kernels numpy is a library; other code that no build made is one beside any. torch's binding is on neither
  // side.
  samples.foreign = {{kNumpy, 500}, {"another library", 100}}, samples.binding = 70;
  const OwnShare foreign = CountOwnShare(samples, KernelForm::kCompiled);
  CHECK((foreign.own == 0 && foreign.library == 630 && foreign.all == 1120));
  CHECK(foreign.Libraries() == "numpy 79 %, another library 16 %, OpenBLAS 5 %");
  const OwnShare beside_foreign = CountOwnShare(samples, KernelForm::kInterpreted);
  CHECK((beside_foreign.own == 900 && beside_foreign.library == 130));
  // The first samples decide nothing.
  samples = {};
  samples.elsewhere = 50;  // numpy alone, as many as count beside one load
  CHECK_FALSE(CountOwnShare(samples, KernelForm::kInterpreted).Value());
  CHECK(IsShareOpen(CountOwnShare(samples, KernelForm::kInterpreted), kLeastOwnShare));
  samples.elsewhere = 60;
  CHECK(IsShareOpen(CountOwnShare(samples, KernelForm::kInterpreted), kLeastOwnShare));
  CHECK(IsShareOpen(CountOwnShare(ThreadSamples(), KernelForm::kInterpreted), kLeastOwnShare));
  // How many decide depends on the limit: 60 of 100.
  OwnShare most;
  most.own = 60, most.library = 40;
  for (const auto& [least, is_open] :
       {std::pair(0.9, false), {0.65, true}, {0.55, true}, {0.3, false}, {1, false}})
    CHECK(IsShareOpen(most, least) == is_open);
}

}  // namespace kevin
