// The examiner's sandbox, with scripts in the place of NVIDIA's tools.

#include "env/gpu/examine/examiner.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "env/error.h"
#include "env/sandbox/sandbox.h"
#include "tests/catch.h"
#include "tests/folders.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct FakeToolkit {
  fs::path folder;
  FakeToolkit() {
    std::string name = (fs::temp_directory_path() / "kevin-toolkit-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    folder = name;
    fs::create_directories(folder / "cuda/bin");
    setenv("KEVIN_CUDA", (folder / "cuda").c_str(), 1);
  }
  ~FakeToolkit() {
    unsetenv("KEVIN_CUDA");
    fs::remove_all(folder);
  }
  void Tool(const std::string& name, const std::string& script) const {
    const fs::path path = folder / "cuda/bin" / name;
    std::ofstream(path) << "#!/bin/sh\n" << script;
    fs::permissions(path, fs::perms::owner_all);
  }
  Examiner MakeExaminer(double timeout_s = 20) const {
    ExaminerOptions options;
    options.program = BinaryFolder() / "bin/kevin-gpu-examiner";
    options.work_directory = folder / "work";
    options.trusted_cubin = folder / "none";
    options.namespaces = NamespacesAvailable();
    options.timeout_s = timeout_s;
    return Examiner(options);
  }
};

}  // namespace

TEST_CASE("a tool is looked for in the toolkit first; one that is not there is said so") {
  const FakeToolkit toolkit;
  toolkit.Tool("nvdisasm", "echo code of $(wc -c < $3) bytes\n");
  CHECK(Examiner::FindTool("nvdisasm") == fs::canonical(toolkit.folder / "cuda/bin/nvdisasm"));
  CHECK(toolkit.MakeExaminer().Disassemble("12345") == "code of 5 bytes\n");
  CHECK(Examiner::FindTool("no-such-tool").empty());
}

TEST_CASE("a tool sees its own folders and nothing of the machine's") {
  if (!NamespacesAvailable()) {
    WARN("skipped: no namespaces on this machine");
    return;
  }
  const FakeToolkit toolkit;
  const fs::path secret = toolkit.folder / "secret";
  std::ofstream(secret) << "treasure";
  toolkit.Tool("nvdisasm",
               "cat " + secret.string() +
                   "; ls /root /home; mount -t tmpfs none /tmp && echo mounted; echo x > /usr/kevin && "
                   "echo written; touch here && echo works; ls /proc | grep -c '^[0-9]'; "
                   "cat /proc/net/route | wc -l\n");
  const std::string output = toolkit.MakeExaminer().Disassemble("x");
  INFO(output);
  CHECK_FALSE(Has(output, "treasure"));
  CHECK_FALSE(Has(output, "mounted"));
  CHECK_FALSE(Has(output, "written"));
  CHECK(Has(output, "works"));
  CHECK(Has(output, "/root"));  // "cannot access": it is not there
}

TEST_CASE("a tool that fails or never ends is an error of the machine") {
  const FakeToolkit toolkit;
  toolkit.Tool("nvdisasm", "echo wrong chip; exit 3\n");
  try {
    toolkit.MakeExaminer().Disassemble("x");
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMachine);
    CHECK(Has(error.what(), "wrong chip"));
  }
  toolkit.Tool("nvdisasm", "sleep 60\n");
  CHECK_THROWS_AS(toolkit.MakeExaminer(0.5).Disassemble("x"), Error);
}

TEST_CASE("without Nsight Compute's rights the message says what to change") {
  const FakeToolkit toolkit;
  toolkit.Tool("ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'\n");
  const Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  try {
    toolkit.MakeExaminer().Profile(AtSize(problem, "small"), "{}", "");
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(Has(error.next_step(), "NVreg_RestrictProfilingToAdminUsers=0"));
  }
}

TEST_CASE("counters come from the profiler's own file, which is kept where asked") {
  const FakeToolkit toolkit;
  toolkit.Tool("ncu", R"sh(if [ "$1" != --import ]; then echo saved > report.ncu-rep; exit; fi
cat << END
"Kernel Name","gpu__time_duration.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed"
"","us","%"
"relu(float *)","10.0","77"
END
)sh");
  const Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  const fs::path kept = toolkit.folder / "kept.ncu-rep";
  const std::string text = toolkit.MakeExaminer().Profile(AtSize(problem, "small"), "{}", kept);
  CHECK(Has(text, "`relu` (10.0 us under the profiler): memory busy 77 %."));
  CHECK(fs::exists(kept));
}

}  // namespace kevin
