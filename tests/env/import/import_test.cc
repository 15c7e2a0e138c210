// `kevin import` with a stand-in for Python (fake_python.sh): names, the text of problem files, what becomes
// of files that end Python, what is written where.

#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/support/fakes.h"
#include "tools/importer.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

const std::string kFolder = SourceFolder() / "tests/env/import";

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

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

nlohmann::json Answer() { return nlohmann::json::parse(ReadAll(kFolder + "/answer.json")); }

Problem Parsed(const nlohmann::json& found, const ImportedProblem& problem) {
  return ParseProblem(ImportedProblemText(found, problem), "imported.toml");
}

ImportedProblem Named(Hardness hardness = Hardness::kAsGiven) {
  return {"mine/relu", "ReLU \"quoted\"", "relu.py", "A remark.", "", "", hardness};
}

const ImportSandbox kTrusted{true, {}};

struct Fixture {
  testing::TempFolder folder;
  Setting data{"XDG_DATA_HOME", folder.path().string()};
  Setting python{"KEVIN_PYTHON", kFolder + "/fake_python.sh"};

  static ImportJob Job(const std::string& file) {
    ImportJob job;
    job.file = file;
    return job;
  }
  fs::path Problems() const { return folder.path() / "kevin/problems"; }
};

void Touch(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "\n";
}

TEST_CASE("what Python found becomes a problem file that says the same") {
  const Problem problem = Parsed(Answer(), Named());
  CHECK(problem.id == "mine/relu");
  CHECK(problem.name == "ReLU \"quoted\"");
  CHECK(problem.reference == Answer()["reference"].get<std::string>());
  CHECK(problem.source == Answer()["source"].get<std::string>());
  CHECK(problem.sizes.at("small") == Symbols{{"rows", 4096}});
  REQUIRE(problem.inputs.size() == 3);
  CHECK(problem.inputs[0].distribution == Distribution::kUniform01);
  REQUIRE(problem.inputs[1].stored != nullptr);
  CHECK(reinterpret_cast<const float*>(problem.inputs[1].stored->data())[7] == 4.0F);
  CHECK(problem.inputs[2].is_param);
  CHECK(problem.inputs[2].scale == 0.5);
  CHECK(problem.inputs[2].offset == 1.0);
  const SizedProblem small = AtSize(problem, "small");
  CHECK(small.bytes == 64 * 4096 + 64);
  CHECK(small.min_bytes == 32 * 4096);
  CHECK(small.reduction == 1);
}

TEST_CASE("what Python found of the class becomes facts for modelnew") {
  nlohmann::json found = Answer();
  CHECK_FALSE(Parsed(found, Named()).model);
  found["model"] = {
      {"init", {64, 0.5, 1e-6, 2.0, true, -3, {{"tuple", {1, 2}}}, {{"list", {3, {{"tuple", {4}}}}}}}},
      {"arguments", {"a", "b", "c", "d", "e", "f", "g", "h"}},
      {"forward", {{{"input", "x"}}, 3, false}},
      {"parameters", {{"bias", "layers.0.bias"}}},
      {"sizes", {"full"}},
      {"unused", {"other.weight"}}};
  const Problem problem = Parsed(found, Named());
  REQUIRE(problem.model);
  CHECK(PythonInit(*problem.model, problem.sizes.at("full")) ==
        "[64, 0.5, 1e-06, 2.0, True, -3, (1, 2), [3, (4,)]]");
  CHECK(problem.model->arguments.size() == 8);
  REQUIRE(problem.model->forward.size() == 3);
  CHECK(problem.model->forward[0].text == "x");
  CHECK(PythonText(problem.model->forward[1], {}) == "3");
  CHECK(problem.model->parameters.at("bias") == "layers.0.bias");
  CHECK(problem.model->unused == std::vector<std::string>{"other.weight"});
  CHECK((ModelFitsSize(problem, "full") && !ModelFitsSize(problem, "small")));
  // A stored tensor is the class's own, which each candidate makes for itself.
  CHECK(problem.model->drawn == std::vector<std::string>{"table"});
  // The facts change no stored verdict of other kinds.
  CHECK(problem.content_hash == Parsed(Answer(), Named()).content_hash);
  found["model"]["sizes"] = nullptr;
  CHECK(ModelFitsSize(Parsed(found, Named()), "small"));
}

TEST_CASE("sources of all kinds survive in a problem file") {
  nlohmann::json found = Answer();
  for (const std::string source :
       {"x = 'plain'\n", "'''doc'''\n", "\"\"\"doc\"\"\" + '''other'''\n", "path = \"C:\\\\new\"  # '''\n",
        "bell = '\x07'\n", "tab\there '\x1b'\n", "del \x7f \xc2\x9b \xe2\x80\xae \xf3\xa0\x81\x81\n",
        "ends in a quote '\n", "\xc3\xa4\xe2\x82\xac\n"}) {
    found["source"] = source;
    CHECK(Parsed(found, Named()).source == source);
  }
  found["source"] = "dos\r\nlines\r\n";
  CHECK(Parsed(found, Named()).source == "dos\nlines\n");
  found["source"] = "";
  CHECK(Parsed(found, Named()).source.empty());
}

TEST_CASE("what a kernel needs to take the module's place stays in the problem file") {
  nlohmann::json found = Answer();
  CHECK_FALSE(Parsed(found, Named()).module);
  const nlohmann::json details = {{"arguments", {{{"name", "x"}, {"tensor", true}}}},
                                  {"note", "''' \"\"\" \\"}};
  found["module"] = {{"class", "Block"}, {"import", ""}, {"details", details}};
  const auto module = Parsed(found, Named()).module;
  REQUIRE(module);
  CHECK((module->class_name == "Block" && module->import.empty()));
  CHECK(nlohmann::json::parse(module->details) == details);
  found["module"]["import"] = "layers.norm";
  CHECK(Parsed(found, Named()).module->import == "layers.norm");
  found["module"] = nullptr;
  CHECK_FALSE(Parsed(found, Named()).module);
}

TEST_CASE("harder inputs and a stricter check change what they say and nothing else") {
  nlohmann::json found = Answer();
  found["check"]["reduction"] = "rows";
  REQUIRE(CanBeHarder(found));
  const Problem mixture = Parsed(found, Named(Hardness::kMixture));
  CHECK(mixture.inputs[0].distribution == Distribution::kMixture);
  CHECK(mixture.inputs[1].stored != nullptr);
  CHECK(mixture.inputs[2].distribution == Distribution::kNormal);
  CHECK(AtSize(mixture, "small").reduction == 4096);
  CHECK(AtSize(Parsed(found, Named(Hardness::kMixtureStrict)), "small").reduction == 4096 / 64 + 1);
  const Problem shifted = Parsed(found, Named(Hardness::kShiftedStrict));
  CHECK(shifted.inputs[0].distribution == Parsed(found, Named()).inputs[0].distribution);
  CHECK(shifted.inputs[0].offset == Parsed(found, Named()).inputs[0].offset + 64);
  CHECK(shifted.inputs[2].offset == Parsed(found, Named()).inputs[2].offset);
  CHECK(AtSize(shifted, "small").reduction == 4096 / 64 + 1);
  found["inputs"][0]["distribution"] = "mixture";
  CHECK_FALSE(CanBeHarder(found));
}

TEST_CASE("an imported problem carries why it is inadmissible or harder than given") {
  ImportedProblem named = Named();
  CHECK(Parsed(Answer(), named).flags.empty());
  named.hardened = "On its own inputs a copy passed.";
  named.rejection = "zeros passed";
  const auto flags = Parsed(Answer(), named).flags;
  CHECK(flags.at("degenerate-upstream") == named.hardened);
  CHECK(flags.at("inadmissible") == "zeros passed");
}

TEST_CASE("names and places of what is imported") {
  const Fixture fixture;
  const ImportTarget numbered = MakeImportTarget("kb", "level1", "19_ReLU");
  CHECK(numbered.id == "kb/level1/19");
  CHECK(numbered.name == "ReLU");
  CHECK(numbered.to == fixture.Problems() / "kb/level1/019_relu.toml");
  CHECK(MakeImportTarget("kb", "level1", "100_HingeLoss").to.filename() == "100_hingeloss.toml");
  const ImportTarget plain = MakeImportTarget("mine", "", "My Conv_");
  CHECK(plain.id == "mine/my_conv_");
  CHECK(plain.name == "My Conv");
  CHECK(MakeImportTarget("mine", "", "2dconv").id == "mine/2dconv");
  CHECK_NOTHROW(CheckSuiteName("kb-2_x"));
  for (const char* bad : {"", "a/b", "..", "level1", "level9", "core", "suites", "-x", "a b"})
    CHECK_THROWS_AS(CheckSuiteName(bad), Error);
}

TEST_CASE("a tree is taken level by level in the order of its numbers") {
  const Fixture fixture;
  const fs::path tree = fixture.folder.path() / "checkout";
  for (const char* file :
       {"KernelBench/level1/19_ReLU.py", "KernelBench/level1/2_Matmul.py", "KernelBench/level2/1_Conv.py",
        "KernelBench/level1/__init__.py", "KernelBench/level1/notes.txt", "level7/1_Elsewhere.py"})
    Touch(tree / file);
  const auto ids = [&](int level) {
    std::vector<std::string> found;
    for (const ImportTarget& target : TargetsOfTree(tree, "kb", level)) found.push_back(target.id);
    return found;
  };
  CHECK(ids(0) == std::vector<std::string>{"kb/level1/2", "kb/level1/19", "kb/level2/1"});
  CHECK(ids(2) == std::vector<std::string>{"kb/level2/1"});
  CHECK_THROWS_AS(ids(3), Error);
  Touch(fixture.folder.path() / "flat/b.py");
  CHECK(TargetsOfTree(fixture.folder.path() / "flat", "kb", 0).at(0).id == "kb/b");
  CHECK_THROWS_AS(TargetsOfTree(fixture.folder.path() / "nothing", "kb", 0), Error);
}

TEST_CASE("what is imported is found under its id, and importing again replaces it") {
  const Fixture fixture;
  PythonImporter python({}, nullptr, kTrusted);
  Importer importer(&python, nullptr, "not here");
  const ImportTarget target = MakeImportTarget("kb", "level1", "19_ReLU");
  const ImportResult result = importer.Import(target, Fixture::Job("/x/19_ReLU.py"), 30);
  REQUIRE(result.imported());
  CHECK_FALSE(result.admitted());
  CHECK(result.not_tried == "not here");
  CHECK(result.notes == std::vector<std::string>{"a note"});
  CHECK(ProblemSet().Find("kb/level1/19").name == "ReLU");
  CHECK(ReadAll(target.to).starts_with("# Made by `kevin import` from /x/19_ReLU.py, with torch 2.11.0.\n"));
  const ImportTarget renamed = MakeImportTarget("kb", "level1", "19_Rectified");
  REQUIRE(importer.Import(renamed, Fixture::Job("/x/19_Rectified.py"), 30).imported());
  CHECK(ProblemSet().Find("kb/level1/19").name == "Rectified");
  CHECK_FALSE(fs::exists(target.to));
}

TEST_CASE("the job says what was asked for") {
  const Fixture fixture;
  const fs::path log = fixture.folder.path() / "log";
  const Setting logged("FAKE_PYTHON_LOG", log.string());
  PythonImporter python({}, nullptr, kTrusted);
  ImportJob job = Fixture::Job("/x/relu.py");
  job.eval = true;
  job.distribution = "normal";
  job.small = {{"rows", 8}};
  job.shapes = {{"mine", {{"rows", 7}}, 2.5}};
  CHECK(python.Describe(job, 30).refusal.empty());
  const auto said = nlohmann::json::parse(ReadAll(log));
  CHECK(said == nlohmann::json::parse(
                    R"({"file":"/x/relu.py","eval":true,"distribution":"normal","small":{"rows":8},)"
                    R"("shapes":[{"set":"mine","symbols":{"rows":7},"weight":2.5}]})"));
}

TEST_CASE("shapes that were asked for become a size set") {
  nlohmann::json found = Answer();
  found["shapes"] = {{{"set", "mine"}, {"symbols", {{"rows", 7}}}, {"weight", 2.5}},
                     {{"set", "mine"}, {"symbols", {{"rows", 9}}}, {"weight", 1.0}}};
  const Problem problem = Parsed(found, Named(Hardness::kAsGiven));
  const std::vector<WeightedShape> shapes = ShapesOf(problem, "mine");
  REQUIRE(shapes.size() == 2);
  CHECK(shapes[0].weight == 2.5);
  CHECK(problem.sizes.at("mine/2") == Symbols{{"rows", 9}});
}

TEST_CASE("one bad file does not stop the next") {
  const Fixture fixture;
  std::vector<std::string> phases;
  PythonImporter python([&](const std::string& phase) { phases.push_back(phase); }, nullptr, kTrusted);
  Importer importer(&python, nullptr, "not here");
  const auto import = [&](const std::string& stem, double limit_s = 30) {
    return importer.Import(MakeImportTarget("mine", "", stem), Fixture::Job("/x/" + stem + ".py"), limit_s);
  };
  const ImportResult refused = import("refused");
  CHECK(refused.refusal == "input `xs` is a list");
  CHECK(refused.next_step == "give every tensor an argument");
  CHECK(import("crash").refusal.find("last words, in phase: trace") != std::string::npos);
  CHECK(import("hang", 0.5).refusal.find("it is not finished after 0.5 s") != std::string::npos);
  CHECK(import("unnamed").refusal.find("'launch' is a reserved word") != std::string::npos);
  CHECK(import("relu").imported());
  CHECK(phases.front() == "import torch");
  CHECK(phases.back() == "trace");
  CHECK(ProblemSet(fixture.Problems()).Ids() == std::vector<std::string>{"mine/relu"});
}

// What fake_python.sh can do with the file that a job names.
std::string Tried(const std::string& act, const fs::path& file, ImportSandbox sandbox) {
  PythonImporter python({}, nullptr, std::move(sandbox));
  ImportJob job = Fixture::Job(file.string());
  job.class_name = act, job.any_class = true;
  const ImportAnswer answer = python.Describe(job, 30);
  return answer.refusal;
}

TEST_CASE("a file is run in a sandbox: it reads its own folder and what is allowed, and has no network") {
  const Fixture fixture;
  const fs::path own = fixture.folder.path() / "own/net.py",
                 other = fixture.folder.path() / "other/weights.bin";
  for (const fs::path& path : {own, other}) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "content\n";
  }
  const Setting act("FAKE_PYTHON", "");
  const Setting secret("EXAMPLE_API_KEY", "secret"), path("PYTHON_FAKE_OTHER", other.string());
  CHECK(Tried("read-own", own, {}) == "yes");
  CHECK(Tried("read-other", own, {}) == "no");
  CHECK(Tried("read-other", own, {false, {other}}) == "yes");
  CHECK(Tried("read-other", own, {false, {other.parent_path()}}) == "yes");
  CHECK(Tried("read-other", own, kTrusted) == "yes");
  CHECK(Tried("write-own", own, {}) == "no");
  CHECK(Tried("write-other", own, {false, {other}}) == "no");
  CHECK(Tried("write-own", own, kTrusted) == "yes");
  CHECK(Tried("write-temporary", own, {}) == "yes");
  CHECK(Tried("connect", own, {}) == "no");
  CHECK(Tried("see-key", own, {}) == "no");
  CHECK(Tried("see-key", own, kTrusted) == "yes");
  CHECK_THROWS_AS(PythonImporter({}, nullptr, {false, {"/no/such/file"}}), Error);
  {
    const Setting home("HOME",
                       own.parent_path().string());  // its files are hidden, but for the one that is given
    std::ofstream(own.parent_path() / "key") << "content\n";
    const Setting key("PYTHON_FAKE_OTHER", (own.parent_path() / "key").string());
    CHECK(Tried("read-own", own, {}) == "yes");
    CHECK(Tried("read-other", own, {}) == "no");
  }
}

TEST_CASE("faults of Python itself end an import") {
  const Fixture fixture;
  const auto code_of = [](const auto& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kDone;
  };
  const auto importing = [&](const std::string& stem) {
    PythonImporter python({}, nullptr, kTrusted);
    Importer(&python, nullptr, "").Import(MakeImportTarget("mine", "", stem), Fixture::Job(stem), 30);
  };
  CHECK(code_of([&] { importing("nonsense"); }) == ExitCode::kBroken);
  CHECK(code_of([&] { importing("half"); }) == ExitCode::kBroken);
  const std::atomic<bool> stop{true};
  CHECK(code_of([&] { PythonImporter({}, &stop, kTrusted).Describe(Fixture::Job("hang"), 30); }) ==
        ExitCode::kInterrupted);
  {
    const Setting broken("FAKE_PYTHON", "broken-torch");
    CHECK(code_of([&] { importing("relu"); }) == ExitCode::kMachine);
  }
  const Setting without("FAKE_PYTHON", "no-torch");
  CHECK(code_of([&] { importing("relu"); }) == ExitCode::kMachine);
  const Setting none("KEVIN_PYTHON", "no-such-python");
  CHECK(code_of([&] { importing("relu"); }) == ExitCode::kMachine);
}

}  // namespace
}  // namespace kevin
