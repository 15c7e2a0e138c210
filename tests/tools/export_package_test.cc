// `kevin export --as torch-package`: what is written where; tests/tools/package_test.sh uses built packages.

#include <map>

#include "env/error.h"
#include "env/problem/precision.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/tools/export_fixture.h"
#include "tools/export/launch_code.h"
#include "tools/export/model_new.h"
#include "tools/export/torch_package.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

std::string CudaText(const Problem& problem, const std::string& size) {
  return testing::SearchText(problem, size, "cuda");
}
TEST_CASE("a package is one importable file with its sources beside it, or a folder for pip") {
  const ExportFixture kevin;
  const std::vector<std::string> ask = {"export", kevin.episodes[0], "--best", "--as", "torch-package", "-o"};
  const auto with = [&](const fs::path& output, std::vector<std::string> more = {}) {
    std::vector<std::string> all = ask;
    all.push_back(output.string());
    all.insert(all.end(), more.begin(), more.end());
    return kevin(all);
  };
  REQUIRE(with(kevin.folder / "relu.py").code == 0);
  for (const char* name :
       {"relu.py", "relu_kernel/operator.cpp", "relu_kernel/operator_data.h", "relu_kernel/kernel0.cpp"})
    CHECK(fs::exists(kevin.folder / name));
  CHECK(Contains(Bytes(kevin.folder / "relu.py"), "FOLDER = \"relu_kernel\""));
  CHECK(Shell("g++ -std=c++20 -march=native -fopenmp -fsyntax-only '" +
              (kevin.folder / "relu_kernel/kernel0.cpp").string() + "'") == 0);
  REQUIRE(with(kevin.folder / "relu").code == 0);
  for (const char* name : {"setup.py", "pyproject.toml", "README.md", "kevin_level1_19/__init__.py",
                           "kevin_level1_19/kevin_level1_19_kernel/operator.cpp"})
    CHECK(fs::exists(kevin.folder / "relu" / name));
}

TEST_CASE("a package overwrites nothing and leaves nothing half-written") {
  const ExportFixture kevin;
  const auto ask = [&](const std::string& output, bool force = false) {
    std::vector<std::string> all = {"export",
                                    kevin.episodes[0],
                                    "--best",
                                    "--as",
                                    "torch-package",
                                    "-o",
                                    (kevin.folder / output).string()};
    if (force) all.push_back("--force");
    return kevin(all);
  };
  for (const char* name : {"my-module.py", "class.py", "3x.py", "None.py"}) {
    const Result nameless = ask(name);
    CHECK((nameless.code == 2 && Contains(nameless.error, "Python cannot import a file of this name")));
    CHECK_FALSE(fs::exists(kevin.folder / name));
  }
  Write(kevin.folder / "mine.py", "precious");
  const Result refused = ask("mine.py");
  CHECK((refused.code == 2 && Contains(refused.error, "it exists and was left as it is")));
  CHECK((Bytes(kevin.folder / "mine.py") == "precious" && !fs::exists(kevin.folder / "mine_kernel")));
  Write(kevin.folder / "other_kernel/file", "precious");
  CHECK((ask("other.py").code == 2 && !fs::exists(kevin.folder / "other.py")));
  CHECK(ask("mine.py", true).code == 0);
  CHECK(Contains(Bytes(kevin.folder / "mine.py"), "NAMESPACE"));
  CHECK((ask("mine.py").code == 2 && ask("mine.py", true).code == 0));
  CHECK(ask("a-b.py").code == 2);
  fs::create_directories(kevin.folder / "folder.py");
  CHECK(ask("folder.py", true).code == 2);
  for (const auto& entry : fs::directory_iterator(kevin.folder.path()))
    CHECK_FALSE(Contains(entry.path().filename().string(), ".kevin-export-"));
  CHECK(Contains(kevin({"export", kevin.episodes[0], "--best", "--as", "torch-extension"}).error,
                 "use --as torch-package"));
  CHECK(kevin({"export", kevin.episodes[0], "--best", "--inference-only"}).code == 2);
}

TEST_CASE("a package has a kernel for each shape of a size set, with the constants of that shape") {
  const Problem listed = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  const Problem problem = ParseProblem(
      listed.text + "\n[[sizes.mine]]\nB = 4\nN = 64\n[[sizes.mine]]\nB = 3\nN = 100\n", listed.path);
  const std::string source =
      "extern \"C\" void launch(const float* x, float* out) { for (long i = 0; i < B * N; ++i) out[i] = x[i]; }\n";
  const TorchPackage package = WriteTorchPackage({&problem, "mine", "cpp", source, "", {}, false});
  CHECK(Contains(package.kernel_files.at("kernel0.cpp"), "constexpr long N = 64;"));
  CHECK(Contains(package.kernel_files.at("kernel1.cpp"), "constexpr long N = 100;"));
  CHECK(Contains(package.python, "(((4, 64),), ((4, 64),)),\n    (((3, 100),), ((3, 100),)),"));
  CHECK(Contains(package.kernel_files.at("operator_data.h"), "{{4, 64, 4, 64},\n    {3, 100, 3, 100}}"));
}

TEST_CASE("a kernel with instructions of one architecture names it for the compiler") {
  const Problem problem =
      InPrecision(ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/1"), Precision::kFp16);
  const std::string flag = "-gencode=arch=compute_90a,code=sm_90a", text = CudaText(problem, "full");
  CHECK(ArchitectureFlag(text) == flag);
  CHECK(Contains(WriteModelNew(AtSize(problem, "full"), "cuda", text, {}), '"' + flag + '"'));
  const Problem relu = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  CHECK(ArchitectureFlag(CudaText(relu, "small")).empty());
  CHECK_FALSE(
      Contains(WriteModelNew(AtSize(relu, "small"), "cuda", CudaText(relu, "small"), {}), "-gencode"));
}

TEST_CASE("a package's namespace follows its content") {
  const Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  const auto space = [&](const std::string& kernel, bool inference) {
    return WriteTorchPackage({&problem, "small", "cpp", kernel, "", {}, inference}).space;
  };
  const std::string one = "extern \"C\" void launch(const float* x, float* out) { out[0] = x[0]; }\n";
  CHECK(space(one, false) == space(one, false));
  CHECK(space(one, false) != space(one + "//\n", false));
  CHECK(space(one, false) != space(one, true));
}

// The host and device code of packages for a GPU, where there is a compiler for it.
void CompilePackage(const TorchPackage& package) {
  TemporaryFolder folder;
  for (const auto& [name, text] : package.kernel_files) Write(folder / name, text);
  const std::string at = folder.path().string();
  const std::string half =
      " -U__CUDA_NO_HALF_OPERATORS__ -U__CUDA_NO_HALF_CONVERSIONS__ -U__CUDA_NO_BFLOAT16_CONVERSIONS__ ";
  CHECK(Shell("nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -w -c" + half +
              "-o /dev/null " + at + "/kernel0.cu") == 0);
  const fs::path torch = SourceFolder() / ".torch/torch/include";
  if (!fs::exists(torch / "torch/csrc/stable/library.h")) {
    WARN("no torch headers here: the operator was written but not compiled");
    return;
  }
  CHECK(Shell("g++ -std=c++20 -Wall -Wextra -fsyntax-only -I/usr/local/cuda/include -I" + torch.string() +
              " -I" + (torch / "torch/csrc/api/include").string() + " " + at + "/operator.cpp") == 0);
}

TEST_CASE("packages for a GPU: parameter blocks, workspaces, 16 bits") {
  struct Wanted {
    const char* id;
    const char* size;
    Precision precision;
  };
  for (const auto& [id, size, precision] :
       {Wanted{"level1/23", "full", Precision::kFp32}, Wanted{"level1/40", "small", Precision::kBf16},
        Wanted{"level1/1", "small", Precision::kFp16}, Wanted{"level3/9", "small", Precision::kFp32}}) {
    INFO(id);
    const Problem problem = InPrecision(ProblemSet(ProblemSet::DefaultDirectory()).Find(id), precision);
    const TorchPackage package =
        WriteTorchPackage({&problem, size, "cuda", CudaText(problem, size), "", {"heading"}, false});
    CHECK(Contains(package.kernel_files.at("kernel0.cu"), "extern \"C\" const char* kevin_kernel("));
    CHECK(Contains(package.kernel_files.at("operator_data.h"), "#define USE_CUDA"));
    CHECK(Contains(package.kernel_files.at("operator_data.h"), "kBlockBegin = -1;") !=
          HasParamBlock(problem));
    if (Nvcc().empty()) {
      WARN("no nvcc on this machine: " << id << " was written but not compiled");
      continue;
    }
    if (std::string(id) != "level3/9") CompilePackage(package);
  }
}

}  // namespace
}  // namespace kevin
