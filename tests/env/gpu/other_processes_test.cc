// Who else is on a GPU, through a stand-in for the driver's management library (fake_nvml.cc).

#include "env/gpu/other_processes.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

using Names = std::vector<std::string>;

const std::string kAway = "a process of another container or user";

// A process of this machine, by the name of its program.
class Running {
 public:
  explicit Running(const char* name) : id_(fork()) {
    if (id_ == 0) {
      prctl(PR_SET_NAME, name);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char ready = 1;
      (void)!write(pipe_[1], &ready, 1);
      for (;;) pause();
    }
    char ready = 0;
    REQUIRE(read(pipe_[0], &ready, 1) == 1);
  }
  ~Running() {
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  int id() const { return id_; }
  std::string Text() const { return std::to_string(id_); }

 private:
  static std::vector<int> Pipe() {
    std::vector<int> ends(2);
    REQUIRE(pipe(ends.data()) == 0);
    return ends;
  }
  std::vector<int> pipe_ = Pipe();
  pid_t id_;
};

struct Gpu {
  OtherProcesses others{"0000:40:00.0"};
  std::vector<int> ours{getpid()};
  std::string self = std::to_string(getpid());

  Names Present(const std::string& processes) const {
    setenv("FAKE_NVML_PROCESSES", processes.c_str(), 1);
    return others.Present(ours);
  }
  Names Computed(const std::string& processes, const std::string& samples) const {
    setenv("FAKE_NVML_PROCESSES", processes.c_str(), 1);
    setenv("FAKE_NVML_COMPUTED", samples.c_str(), 1);
    return others.Computed(ours, OtherProcesses::NowUs());
  }
};

}  // namespace

TEST_CASE("Kevin's own processes are nobody, those of other programs have a name") {
  const Gpu gpu;
  const Running other("train.py"), runner("kevin-gpu-runne");
  const std::string name = "train.py (process " + other.Text() + ")";
  CHECK(gpu.Present("").empty());
  CHECK(gpu.Present(gpu.self).empty());
  CHECK(gpu.Present(gpu.self + " " + runner.Text()).empty());
  CHECK(gpu.Present(gpu.self + " " + other.Text()) == Names{name});
  std::string many = gpu.self;
  for (int i = 0; i < 100; ++i) many += " " + runner.Text();
  CHECK(gpu.Present(many + " " + other.Text()) == Names{name});
}

TEST_CASE("a process of another container has the id 0, or one that does not exist here") {
  const Gpu gpu;
  CHECK(gpu.Present(gpu.self + " 0") == Names{kAway});
  CHECK(gpu.Present(gpu.self + " 2147483646 0") == Names{kAway});
}

TEST_CASE("ids of another namespace: more processes than our own are others") {
  Gpu gpu;
  gpu.ours = {getpid(), 2147483640};
  CHECK(gpu.Present("2147483601 2147483602").empty());
  CHECK(gpu.Present("2147483601 2147483602 2147483603") == Names{kAway});
  CHECK(gpu.Computed("2147483601 2147483602 2147483603", "2147483601:9 2147483602:9").empty());
  CHECK(gpu.Computed("2147483601 2147483602 2147483603", "2147483601:9 2147483602:9 2147483603:9") ==
        Names{kAway});
}

TEST_CASE("ids of another namespace: evaluators of the same Kevin and their runners are own ones") {
  const TemporaryFolder folder;
  const std::filesystem::path runner = folder.path() / "kevin-gpu-runner";
  std::filesystem::copy_file("/bin/sleep", runner);
  const std::string starts_runner = "trap 'kill $!' TERM; " + runner.string() + " 60 & wait";
  const pid_t sibling = fork();
  if (sibling == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    execl("/bin/sh", "sh", "-c", starts_runner.c_str(), "serve-gpu", "0", nullptr);
    _exit(1);
  }
  const pid_t evaluator = fork();
  if (evaluator == 0) {
    Gpu gpu;
    gpu.ours = {2147483640};
    for (int tries = 0; tries < 100; ++tries) {
      const bool has_none = gpu.Present("2147483601 2147483602 2147483603").empty();
      if (has_none && gpu.Present("2147483601 2147483602 2147483603 2147483604") == Names{kAway}) _exit(0);
      usleep(50'000);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(evaluator, &status, 0);
  CHECK(status == 0);
  kill(sibling, SIGTERM);
  waitpid(sibling, nullptr, 0);
  Gpu alone;
  alone.ours = {2147483640};
  CHECK(alone.Present("2147483601 2147483602 2147483603") == Names{kAway});
}

TEST_CASE("a process that is there but does not compute disturbs nothing") {
  const Gpu gpu;
  const Running other("a\x1b[31mb");
  const std::string both = gpu.self + " " + other.Text(), name = "a?[31mb (process " + other.Text() + ")";
  CHECK(gpu.Computed(both, gpu.self + ":80").empty());
  CHECK(gpu.Computed(both, gpu.self + ":80 " + other.Text() + ":0").empty());
  CHECK(gpu.Computed(both, gpu.self + ":80 " + other.Text() + ":3") == Names{name});
  CHECK(gpu.Computed(gpu.self + " 0", gpu.self + ":80 0:3") == Names{kAway});
  CHECK(gpu.Computed(gpu.self, "0:3").empty());
}

TEST_CASE("where the driver has no samples, a process that is there counts") {
  const Gpu gpu;
  for (const char* samples : {"unsupported", "none"}) {
    CHECK(gpu.Computed(gpu.self + " 0", samples) == Names{kAway});
    CHECK(gpu.Computed(gpu.self, samples).empty());
  }
}

TEST_CASE("a library that does not start, and a GPU that it does not know, tell of nobody") {
  setenv("FAKE_NVML_PROCESSES", "0", 1);
  CHECK(OtherProcesses("0000:99:00.0").Present({getpid()}).empty());
  setenv("FAKE_NVML_INIT", "9", 1);
  CHECK(OtherProcesses("0000:40:00.0").Present({getpid()}).empty());
  unsetenv("FAKE_NVML_INIT");
}

}  // namespace kevin
