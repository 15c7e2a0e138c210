// `kevin export` of records whose names, ids and texts are attacks: what it writes is run with a canary.

#include <cstdlib>
#include <filesystem>

#include "agent/text.h"
#include "tests/catch.h"
#include "tests/tools/export_fixture.h"
#include "tests/tools/hostile_texts.h"
#include "tests/trajectories/sample_records.h"
#include "tools/export/kernel_forms.h"
#include "tools/export/model_new.h"
#include "tools/export/quote.h"
#include "tools/export/torch_package.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKernel = "extern \"C\" void launch(const float* x, float* out) { out[0] = x[0]; }\n";

bool HasPython() { return Shell("command -v python3 >/dev/null") == 0; }

// Runs a Python file where torch and setuptools do nothing. The file is read as Python reads it, with the
// encoding that it declares.
const char kRunner[] = R"(
import ast, os, sys, unittest.mock as mock
for path in open("files").read().splitlines():
    torch = mock.MagicMock()
    torch.nn.Module, torch.__version__, torch.cuda.is_available = object, "2", lambda: False
    os.environ["TORCH_EXTENSIONS_DIR"] = os.getcwd()
    import ctypes
    ctypes.CDLL = ctypes.cast = mock.MagicMock()
    modules = {name: mock.MagicMock() for name in ("setuptools", "torch.utils", "torch.utils.cpp_extension")}
    for module in ("kevin_level1_19", "kevin_module"):
        modules[module] = mock.MagicMock()
    modules["torch"] = torch
    sys.modules.update(modules)
    code = open(path, "rb").read()
    imported = {n.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import) for n in node.names}
    assert imported <= {"torch", "os", "ast", "ctypes", "fcntl", "glob", "hashlib", "math", "re", "sys",
                        "typing"}, imported
    try:
        exec(compile(code, path, "exec"), {"__name__": "exported", "__file__": path})
    except ImportError as error:
        assert "is no tensor operation" in str(error), error
    assert not os.path.exists("canary"), path
)";

// Everything in one folder: the generated Python files are run in it, so that a canary would lie there.
bool RunsWithoutCanary(const fs::path& folder, const std::vector<fs::path>& files) {
  Write(folder / "runner.py", kRunner);
  std::string list;
  for (const fs::path& file : files) list += file.string() + "\n";
  Write(folder / "files", list);
  const std::string command = "cd '" + folder.string() + "' && python3 runner.py";
  return Shell(command + " >/dev/null") == 0 && !fs::exists(folder / "canary");
}

Problem HostileProblem(const std::string& text) {
  Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  problem.name = text;
  problem.reference += "# " + text + "\n";
  Symbols symbols = problem.sizes.at("small");
  problem.sizes[text] = symbols;
  return problem;
}

TEST_CASE("hostile names: the files of a torch package do what they do without them") {
  if (!HasPython()) {
    WARN("no python3 on this machine");
    return;
  }
  TemporaryFolder folder;
  std::vector<fs::path> python;
  for (const std::string& text : HostileTexts()) {
    INFO(PythonString(text));
    const fs::path place = folder / std::to_string(python.size());
    Problem problem = HostileProblem(text);
    const SizedProblem sized = AtSize(problem, text);
    PackageRequest request{&problem, text, "cpp", kKernel, "", {text, "Problem: " + text}, false};
    const TorchPackage package = WriteTorchPackage(request);
    CHECK(package.name == "kevin_level1_19");
    CHECK(package.space.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos);
    Write(place / "package.py", package.python);
    WritePackageFiles(package, place / "folder", false, false);
    python.insert(python.end(), {place / "package.py", place / "folder/setup.py"});
    CHECK(Contains(package.kernel_files.at("kernel0.cpp"), "kevin_kernel"));
    Write(place / "kernel.cpp", package.kernel_files.at("kernel0.cpp"));
    CHECK(Shell("g++ -std=c++20 -trigraphs -w -fsyntax-only '" + (place / "kernel.cpp").string() + "'") == 0);
    Write(place / "model.py", WriteModelNew(sized, "cpp", kKernel, {text, text}));
    // A kernel's own text inside Python, as it is.
    Write(place / "text.py", WriteModelNew(sized, "cpp", text + kKernel + text, {text}));
    python.push_back(place / "model.py");
    python.push_back(place / "text.py");
  }
  CHECK(RunsWithoutCanary(folder.path(), python));
}

TEST_CASE("hostile names: a kernel's heading stays a comment for the compiler") {
  TemporaryFolder folder;
  std::string all;
  int number = 0;
  for (const std::string& text : HostileTexts()) {
    Problem problem = HostileProblem(text);
    const std::string source = "extern \"C\" void launch" + std::to_string(++number) +
                               "(const float* x, float* out) { out[0] = x[0]; }\n";
    all += StandaloneCpp(AtSize(problem, "small"), {text, text}, source);
    all += "#if 1\n" + CppComments({text}) + "#endif\n";
  }
  for (size_t at = 0; (at = all.find("constexpr long", at)) != std::string::npos;)
    all.replace(at, 14, "extern long");  // each would be defined again
  for (size_t at = 0; (at = all.find("extern long", at)) != std::string::npos; ++at)
    all.replace(all.find(" =", at), all.find(';', at) - all.find(" =", at), "");
  for (int i = 1; i <= number; ++i)
    all += "static auto* used" + std::to_string(i) + " = &launch" + std::to_string(i) + ";\n";
  Write(folder / "all.cpp", all);
  const std::string file = "'" + (folder / "all.cpp").string() + "'";
  CHECK(Shell("g++ -std=c++20 -trigraphs -w -fsyntax-only " + file) == 0);
}

// A database with one episode of a problem whose file says `name`, as an import or a join brings it.
struct Joined {
  TemporaryFolder folder;
  std::string database = (folder / "kevin.db").string();
  std::string episode;

  explicit Joined(const std::string& name, bool change_title = true) {
    Store store = Store::Open(database, OpenMode::kCreate);
    ProblemRecord record = SampleProblem();
    const Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
    record.text = problem.text;
    if (change_title) {
      const size_t at = record.text.find("name = "), end = record.text.find('\n', at);
      record.text.replace(at, end - at, "name = '" + name + "'");
    }
    record.name = name;
    record.content_hash = ContentHash(record.text);
    EpisodeRecord e = SampleEpisode(store.BeginRun(SampleRun()));
    e.problem_hash = record.content_hash;
    e.policy = name, e.device = name;
    episode = store.BeginEpisode(e, record);
    TurnRecord turn = SampleTurn(1, 1.5);
    turn.evaluation.source = kKernel;
    turn.evaluation.candidate_hash = ContentHash(kKernel);
    turn.evaluation.device = name;
    store.AppendTurn(episode, turn);
    store.FinishEpisode(episode, {EpisodeState::kDone, "", 1, 1.5, 1.4, 1.6, "best.cpp", 1.0});
  }
  Result operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--db", database});
    return RunCommand({&AddExportCommand}, std::move(arguments));
  }
};

TEST_CASE("hostile records: a problem's title closes a docstring and runs nothing") {
  if (!HasPython()) {
    WARN("no python3 on this machine");
    return;
  }
  // One line without hidden characters, as a title may be.
  const Joined kevin("\"\"\"; open(\"canary\", \"w\"); \"\"\"");
  const fs::path folder = kevin.folder / "relu";
  REQUIRE(kevin({"export", kevin.episode, "--best", "--as", "torch-package", "-o", folder.string()}).code ==
          0);
  CHECK(Contains(Bytes(folder / "kevin_level1_19/__init__.py"), "canary"));
  CHECK(RunsWithoutCanary(folder, {folder / "kevin_level1_19/__init__.py", folder / "setup.py"}));
  const fs::path bench = kevin.folder / "bench";
  REQUIRE(kevin({"export", "--format", "kernelbench", "-o", bench.string()}).code == 0);
  CHECK(RunsWithoutCanary(bench, {bench / "level_1_problem_19_sample_0_kernel.py"}));
}

TEST_CASE("hostile records: a problem's text with other names than names is not read") {
  const Joined kevin("a\x1b[2J");
  const Result result = kevin(
      {"export", kevin.episode, "--best", "--as", "torch-package", "-o", (kevin.folder / "relu").string()});
  CHECK(result.code == 2);
  CHECK_FALSE(fs::exists(kevin.folder / "relu"));
}

TEST_CASE("hostile records: the description of a module is data in the exported file") {
  Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  problem.module = ModuleOrigin{"Model\"\"\"'''; x", "", R"({"a": "\"\"\"'''\u2028"})"};
  PackageRequest request{&problem, "small", "cpp", kKernel, "", {}, false};
  const std::string text = WriteTorchPackage(request).python;
  const size_t at = text.find("ORIGIN = ");
  REQUIRE(at != std::string::npos);
  const std::string line = text.substr(at, text.find('\n', at) - at);
  CHECK(Contains(line, "\\\"a\\\""));
  CHECK(line.ends_with("}\""));
  for (const std::string details : {"", "[]", "{", "1"}) {
    problem.module->details = details;
    CHECK_THROWS_AS(WriteTorchPackage(request), Error);
  }
}

TEST_CASE("hostile records: lines of JSON and KernelBench's files are JSON, whatever was stored") {
  const Joined kevin("\xff\xfe\x1b[2J</script>\xe2\x80\xae\"\\", false);
  const Result lines = kevin({"export", "--format", "jsonl", "-o", "-"});
  REQUIRE(Lines(lines.output).size() == 1);
  for (const char c : lines.output) CHECK((static_cast<unsigned char>(c) >= ' ' || c == '\n'));
  CHECK_FALSE(Contains(lines.output, "\xe2\x80\xae"));
  const fs::path bench = kevin.folder / "bench";
  REQUIRE(kevin({"export", "--format", "kernelbench", "-o", bench.string()}).code == 0);
  CHECK(Json::parse(Bytes(bench / "eval_results.json"))["19"].size() == 1);
}

TEST_CASE("hostile records: an episode's id and kind name no file elsewhere") {
  const Joined kevin("ReLU");
  Look(kevin.database).Execute("PRAGMA foreign_keys = OFF");
  {
    Database database = Look(kevin.database);
    database.Execute("PRAGMA foreign_keys = OFF");
    database.Execute("UPDATE episodes SET id = '../../X/' || id");
    database.Execute("UPDATE turns SET episode = '../../X/' || episode");
    database.Execute("UPDATE evaluations SET kind = '/../../y', episode = '../../X/' || episode");
  }
  const fs::path work = kevin.folder / "a/b/c";
  fs::create_directories(work);
  fs::create_directories(kevin.folder / "a/X");
  const auto before = fs::current_path();
  fs::current_path(work);
  const Result result = kevin({"export", "../../X/" + kevin.episode, "--turn", "1", "--any"});
  fs::current_path(before);
  INFO(result.error);
  CHECK(result.code == 0);
  const std::string name = "_._.._X_" + kevin.episode + "-1._.._.._y";
  CHECK(fs::exists(work / name));
  CHECK(fs::is_empty(kevin.folder / "a/X"));
}

}  // namespace
}  // namespace kevin
