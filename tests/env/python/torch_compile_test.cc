// torch.compile's baseline with a stand-in for Python (fake_python.sh): the conversation, its ends, the
// store.

#include "env/python/torch_compile.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "env/error.h"
#include "env/process/machine.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// Set for as long as it lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

const std::string kPython = SourceFolder() / "tests/env/python/fake_python.sh";

struct Fixture {
  testing::TempFolder folder;
  fs::path log_path = folder.path() / "log";
  Setting python{"KEVIN_PYTHON", kPython};
  Setting log{"FAKE_PYTHON_LOG", log_path.string()};
  Setting bus{"FAKE_BUS", "test-" + std::to_string(getpid())};
  Problem problem = testing::ReluProblem();

  TorchCompileRequest Request() const {
    TorchCompileRequest request;
    request.gpu.index = 3;
    request.gpu.name = "Fake GPU";
    request.gpu.driver_version = 13000;
    request.gpu.pci_bus = "test:" + std::to_string(getpid());
    request.python = {kPython, "2.11.0+cu130", {}};
    request.sandboxed = false;  // the stand-in writes a log
    return request;
  }
  fs::path LockPath() const { return DeviceLock::PathFor(DeviceLock::NameOfGpu(Request().gpu.pci_bus)); }
  Baseline Measure(const char* behaviour, const TorchCompileRequest& request) const {
    const Setting how("PYTHON_FAKE", behaviour);
    return MeasureTorchCompile(problem, request);
  }
  std::vector<std::string> Log() const {
    std::ifstream file(log_path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  ~Fixture() { fs::remove(LockPath()); }
};

// An ended process that nobody has waited for yet is a zombie: Z.
bool Runs(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  return !stat.empty() && stat.find(") Z ") == std::string::npos;
}

// The code and the text of the Error.
std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
  return "no Error";
}

}  // namespace

TEST_CASE("the script gets the problem and returns times") {
  const Fixture fixture;
  TorchCompileRequest request = fixture.Request();
  request.tf32 = true;
  request.mode = "max-autotune";
  std::vector<std::string> phases;
  request.on_phase = [&](const std::string& phase) { phases.push_back(phase); };
  const Baseline baseline = fixture.Measure("", request);
  CHECK((baseline.failure.empty() && baseline.eager_us == 12.5 && baseline.compiled_us == 10));
  CHECK((baseline.compile_s == 21.5 && baseline.pairs == 40 && baseline.max_error == 1e-6));
  CHECK(baseline.CompileOverEager() == 1.25);
  CHECK((baseline.problem == "level1/19" && baseline.torch_version == "2.11.0+cu130"));
  CHECK((baseline.key.problem_hash == fixture.problem.content_hash && baseline.key.size == "full"));
  CHECK((baseline.key.device_model == "Fake GPU" && baseline.key.driver == "13000" && baseline.key.tf32));
  CHECK(baseline.key.mode == "max-autotune");
  CHECK((baseline.measured_at.size() == 20 && baseline.measured_at.starts_with("20")));
  CHECK(phases == std::vector<std::string>{"compile", "measure"});

  const std::vector<std::string> log = fixture.Log();
  REQUIRE(log.size() == 3);
  const auto job = nlohmann::json::parse(log[1]);
  CHECK((job["problem"] == "level1/19" && job["reference"] == fixture.problem.reference));
  CHECK(job["mode"] == "max-autotune");
  CHECK((job["tf32"] == true && job["device"] == 3 && job["seconds"] == 2));
  REQUIRE(job["inputs"].size() == 1);
  CHECK(job["inputs"][0]["shape"] == std::vector<int>{64, 8});
  CHECK((job["inputs"][0]["dtype"] == "float32" && job["inputs"][0]["distribution"] == "mixture"));
  CHECK((job["inputs"][0]["role"] == "input" && job["inputs"][0]["scale"] == 1));
  CHECK(log[2] == "go, lock held: 1");  // nobody else may even share it while times are taken
}

TEST_CASE("an error of the problem is a result, an error of the machine is an Error") {
  const Fixture fixture;
  CHECK(fixture.Measure("failure", fixture.Request()).failure == "torch.compile fails: Unsupported: it");
  CHECK(fixture.Measure("zero", fixture.Request()).failure == "its times are not positive");
  const auto error = [&](const char* behaviour) {
    return ErrorOf([&] { fixture.Measure(behaviour, fixture.Request()); });
  };
  CHECK(error("no-gpu") == "3: " + kPython + ": Python's torch cannot use a GPU");
  CHECK(error("crash") ==
        "4: " + kPython + " killed by signal 11 (Segmentation fault): last words, in phase: compile");
  CHECK(error("half").starts_with("4: the answer of torch_compile.py is incomplete: "));
  CHECK(fixture.Measure("loud", fixture.Request()).failure.empty());  // a full pipe stops nobody
}

TEST_CASE("a script that does not end is ended, with what it started") {
  const Fixture fixture;
  TorchCompileRequest request = fixture.Request();
  request.limit_s = 0.5;
  const auto start = std::chrono::steady_clock::now();
  CHECK(fixture.Measure("hang", request).failure == "not finished after 0.5 s, in phase: compile");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  REQUIRE(fixture.Log().size() == 3);
  bool ends = false;
  for (int i = 0; i < 100 && !ends; ++i) {
    ends = !Runs(fixture.Log()[2]);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(ends);
}

TEST_CASE("an interrupt ends it") {
  const Fixture fixture;
  TorchCompileRequest request = fixture.Request();
  std::atomic<bool> stop = false;
  request.stop = &stop;
  request.on_phase = [&](const std::string&) { stop = true; };
  CHECK(ErrorOf([&] { fixture.Measure("hang", request); }).starts_with("130: "));
}

TEST_CASE("waiting for another's measurement is not the script's time") {
  const Fixture fixture;
  TorchCompileRequest request = fixture.Request();
  request.limit_s = 5;
  std::optional<DeviceLock> other;
  std::jthread release;
  request.on_phase = [&](const std::string& phase) {
    if (phase != "measure") return;
    double wait_s = 0;
    other.emplace(DeviceLock::NameOfGpu(request.gpu.pci_bus), LockMode::kShared, &wait_s);
    release = std::jthread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      other.reset();
    });
  };
  const auto start = std::chrono::steady_clock::now();
  CHECK(fixture.Measure("", request).failure.empty());
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(300));
  CHECK(fixture.Log().back() == "go, lock held: 1");
}

TEST_CASE("a reference in Python runs in a sandbox") {
  const Fixture fixture;
  const fs::path secret = fixture.folder.path() / "secret", python = fixture.folder.path() / "bin/python";
  const auto measured = [&](const std::string& acts) {
    fs::create_directories(python.parent_path());
    std::ofstream(python) << "#!/bin/bash\nread -r job\nsecret=" << secret.string() << "\n" << acts;
    fs::permissions(python, fs::perms::owner_all);
    TorchCompileRequest request = fixture.Request();
    request.sandboxed = true;
    request.python = {python, "2.11.0+cu130", {python.parent_path().string()}};
    return MeasureTorchCompile(fixture.problem, request).failure;
  };
  std::ofstream(secret) << "content\n";
  const Setting key("EXAMPLE_API_KEY", "secret");
  const std::string answer = "echo \"{\\\"error\\\": \\\"$done\\\"}\"\n";
  const auto tried = [&](const std::string& act) {
    return measured("{ " + act + "; } >/dev/null 2>&1 && done=yes || done=no\n" + answer);
  };
  CHECK(tried("true") == "yes");
  CHECK(tried("cat $secret") == "no");
  tried("echo >>$secret");  // into a folder of its own, whatever it is called there
  CHECK(fs::file_size(secret) == 8);
  CHECK(tried("echo >>$0") == "no");
  CHECK(tried("exec 9<>/dev/udp/127.0.0.1/9") == "no");
  CHECK(tried("[ -n \"${EXAMPLE_API_KEY-}\" ]") == "no");
  CHECK(tried("echo >$TRITON_CACHE_DIR/kernel && [ -s $HOME/kernel ]") == "yes");
  CHECK(ErrorOf([&] {
          measured("for i in {1..3000}; do sleep 60 & done 2>/dev/null; sleep 60\n");
        }).find(geteuid() == 0 ? "threads and processes at a time" : "Resource temporarily unavailable") !=
        std::string::npos);
}

TEST_CASE("Python gets this environment, without a bundle's libraries") {
  const Fixture fixture;
  {
    const Setting libraries("LD_LIBRARY_PATH", "/ours:/theirs");
    FindPythonTorch();
    const Setting outer("KEVIN_OUTER_LIBRARY_PATH", "/theirs");
    FindPythonTorch();
    const Setting none("KEVIN_OUTER_LIBRARY_PATH", "");
    FindPythonTorch();
  }
  CHECK(fixture.Log() == std::vector<std::string>{"called --version PCI_BUS_ID /ours:/theirs",
                                                  "called --version PCI_BUS_ID /theirs",
                                                  "called --version PCI_BUS_ID none"});
}

TEST_CASE("a Python is found, or it is said what is missing") {
  const Fixture fixture;
  const auto found = [&](const char* behaviour) {
    const Setting how("PYTHON_FAKE", behaviour);
    return ErrorOf([] { FindPythonTorch(); });
  };
  CHECK(FindPythonTorch().torch_version == "2.11.0+cu130");
  CHECK(FindPythonTorch().python == kPython);
  CHECK(found("no-torch") == "3: " + kPython + ": this Python has no torch");
  CHECK(found("cpu-torch") == "3: " + kPython + ": its torch 2.11.0+cpu was built without CUDA");
  CHECK(found("no-python") == "3: " + kPython + ": exited with status 2: no such option");
  CHECK(found("nonsense").starts_with("4: the answer of Python is not a JSON object: Python 2.7"));
  {
    const Setting python("KEVIN_PYTHON", "no-such-python");
    CHECK(found("") == "3: torch.compile needs Python, and there is no no-such-python");
  }
  // Without KEVIN_PYTHON it is python3 on the PATH.
  fs::create_symlink(kPython, fixture.folder.path() / "python3");
  const Setting python("KEVIN_PYTHON", "");
  const Setting path("PATH", "/nowhere:" + fixture.folder.path().string() + ":" + getenv("PATH"));
  CHECK(FindPythonTorch().python == fixture.folder.path() / "python3");
}

TEST_CASE("the script is beside the problems, or in the source tree") {
  CHECK(fs::exists(TorchCompileScript()));
  CHECK(TorchCompileScript().filename() == "torch_compile.py");
}

TEST_CASE("baselines are stored by what they depend on") {
  const testing::TempFolder folder;
  const BaselineStore store(folder.path());
  Baseline first;
  first.key = {std::string(64, 'a'), "full", false, "Fake GPU", "13000"};
  first.problem = "level1/19";
  first.torch_version = "2.11.0";
  first.measured_at = "2026-11-21T10:00:00Z";
  first.eager_us = 12.5;
  first.compiled_us = 10;
  first.compile_s = 3;
  first.max_error = 1e-6;
  first.pairs = 20;
  CHECK_FALSE(store.Find(first.key));
  CHECK(store.OfProblem(first.key.problem_hash).empty());
  store.Store(first);
  const auto found = store.Find(first.key, "2.11.0");
  REQUIRE(found);
  CHECK((found->eager_us == 12.5 && found->compiled_us == 10 && found->compile_s == 3));
  CHECK((found->max_error == 1e-6 && found->pairs == 20 && found->problem == "level1/19"));
  CHECK((found->measured_at == first.measured_at && found->failure.empty()));
  CHECK_FALSE(store.Find(first.key, "2.12.0"));

  for (const BaselineKey& other :
       {BaselineKey{std::string(64, 'b'), "full", false, "Fake GPU", "13000"},
        BaselineKey{first.key.problem_hash, "small", false, "Fake GPU", "13000"},
        BaselineKey{first.key.problem_hash, "full", true, "Fake GPU", "13000"},
        BaselineKey{first.key.problem_hash, "full", false, "Other GPU", "13000"},
        BaselineKey{first.key.problem_hash, "full", false, "Fake GPU", "13010"},
        BaselineKey{first.key.problem_hash, "full", false, "Fake GPU", "13000", "bf16"},
        BaselineKey{first.key.problem_hash, "full", false, "Fake GPU", "13000", "fp32", "max-autotune"}})
    CHECK_FALSE(store.Find(other));

  Baseline later = first;
  later.torch_version = "2.12.0";
  later.measured_at = "2026-11-22T10:00:00Z";
  later.failure = "it does not compile";
  store.Store(later);
  CHECK(store.Find(first.key)->failure == "it does not compile");  // the latest
  CHECK(store.Find(first.key)->CompileOverEager() == 0);
  CHECK(store.Find(first.key, "2.11.0")->failure.empty());
  CHECK(store.OfProblem(first.key.problem_hash).size() == 2);
  later.failure.clear();
  store.Store(later);
  CHECK(store.OfProblem(first.key.problem_hash).size() == 2);  // replaced
}

TEST_CASE("a stored file that cannot be read counts as absent, a folder that cannot be written is an Error") {
  const testing::TempFolder folder;
  const BaselineStore store(folder.path());
  Baseline baseline;
  baseline.key = {std::string(64, 'a'), "full", false, "Fake GPU", "13000"};
  baseline.failure = "for a reason";
  store.Store(baseline);
  REQUIRE(store.Find(baseline.key));
  for (const auto& entry : fs::directory_iterator(folder.path() / "baselines"))
    std::ofstream(entry.path()) << R"({"problem": "level1/19")";
  CHECK_FALSE(store.Find(baseline.key));
  std::ofstream(folder.path() / "file") << "no folder";
  CHECK(ErrorOf([&] { BaselineStore(folder.path() / "file").Store(baseline); }).starts_with("4: "));
}

}  // namespace kevin
