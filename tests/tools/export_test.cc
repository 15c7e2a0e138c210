// `kevin export`: kernels in all their forms, compiled where there is a compiler, and many turns.

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

#include "env/error.h"
#include "env/problem/precision.h"
#include "tests/catch.h"
#include "tests/support/search_text.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"
#include "tools/export/kernel_forms.h"
#include "tools/export/launch_code.h"
#include "tools/export/model_new.h"
#include "tools/export/torch_package.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

Result Run(std::vector<std::string> arguments) {
  return RunCommand({&AddExportCommand}, std::move(arguments));
}

int Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// What `work` prints on standard error.
std::string Said(const std::function<void()>& work) {
  std::FILE* const capture = std::tmpfile();
  std::fflush(stderr);
  const int saved = dup(STDERR_FILENO);
  dup2(fileno(capture), STDERR_FILENO);
  work();
  std::fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::string text(4096, '\0');
  std::rewind(capture);
  text.resize(std::fread(text.data(), 1, text.size(), capture));
  std::fclose(capture);
  return text;
}

// The problem with other sizes at "small", in its text too, which the graph is made from.
Problem Small(const std::string& id, const std::map<std::string, int64_t>& sizes) {
  const Problem listed = ProblemSet(ProblemSet::DefaultDirectory()).Find(id);
  std::string text = listed.text;
  const size_t start = text.find("[sizes.small]");
  for (const auto& [name, value] : sizes) {
    const size_t line = text.find("\n" + name + " = ", start) + 1;
    text.replace(line, text.find('\n', line) - line, name + " = " + std::to_string(value));
  }
  return ParseProblem(text, listed.path);
}

// Three episodes at ReLU whose first turns answer the same prompt.
struct Fixture {
  TemporaryFolder folder;
  std::string database = (folder / "kevin.db").string();
  Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  std::vector<std::string> episodes;

  Fixture() {
    Store store = Store::Open(database, OpenMode::kCreate);
    const std::string run = store.BeginRun(SampleRun());
    const std::string kernel = testing::SearchText(problem, "small", "cpp");
    for (const double speedup : {1.5, 1.52, 2.5}) {
      ProblemRecord record = SampleProblem();
      record.text = problem.text, record.content_hash = problem.content_hash;
      EpisodeRecord episode = SampleEpisode(run);
      episode.problem_hash = problem.content_hash;
      episodes.push_back(store.BeginEpisode(episode, record));
      TurnRecord turn = SampleTurn(1, speedup);
      turn.evaluation.source = kernel + "// " + std::to_string(speedup) + "\n";
      turn.evaluation.candidate_hash = ContentHash(turn.evaluation.source);
      turn.evaluation.speedup->log_se = 0.02;
      store.AppendTurn(episodes.back(), turn);
      TurnRecord failed = SampleTurn(2, 1);
      failed.evaluation = {}, failed.evaluation.outcome = "parse_failed", failed.reward = 0;
      failed.token_ids.clear(), failed.logprobs.clear(), failed.prompt_token_ids.clear();
      store.AppendTurn(episodes.back(), failed);
      store.FinishEpisode(episodes.back(), {EpisodeState::kDone, "", 1, speedup, 1, 3, "best.cpp", 12.5});
    }
  }
  Result operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--db", database});
    return Run(arguments);
  }
};

TEST_CASE("schemas of other trainers as lines: verl's prompts, and trajectories of ids and advantages") {
  const Fixture kevin;
  const auto rows = [&](const std::string& schema) {
    return Lines(kevin({"export", "--format", "jsonl", "--schema", schema, "-o", "-"}).output);
  };
  const auto prompts = rows("prompts");
  REQUIRE(prompts.size() == 1);  // the three episodes had the same
  CHECK((prompts[0]["data_source"] == "kevin" && prompts[0]["prompt"][1]["role"] == "user"));
  CHECK(
      (prompts[0]["reward_model"]["ground_truth"] == "level1/19" && prompts[0]["extra_info"]["index"] == 0));
  CHECK(rows("sft").size() == 1);
  CHECK(rows("preference")[0]["chosen"].size() == 1);

  const auto trajectories = rows("trajectory");
  REQUIRE(trajectories.size() == 3);  // second turns have no ids
  const Json& first = trajectories[0];
  CHECK((first["prompt_ids"] == SampleTurn(1, 1).prompt_token_ids &&
         first["completion_ids"] == SampleTurn(1, 1).token_ids));
  CHECK(
      (first["completion_mask"] == Json({1, 1, 1}) && first["logprobs"] == Json(SampleTurn(1, 1).logprobs)));
  CHECK(
      (first["temperature"] == 0.9 && first["top_k"] == 20 && first["min_p"] == 0.05 && first["turns"] == 8));
  const auto lines = Lines(kevin({"export", "--format", "jsonl", "-o", "-"}).output);
  CHECK((first["advantage"] == lines[0]["advantage"] && first["return"] == lines[0]["return"]));
  CHECK(first["task"] == trajectories[2]["task"]);

  Look(kevin.database)
      .Execute(("UPDATE episodes SET state = 'running' WHERE id = '" + kevin.episodes[0] + "'").c_str());
  Look(kevin.database)
      .Execute(("UPDATE turns SET top_k = NULL WHERE episode = '" + kevin.episodes[1] + "'").c_str());
  Look(kevin.database)
      .Execute(
          ("UPDATE turns SET stop_reason = 'length' WHERE episode = '" + kevin.episodes[2] + "'").c_str());
  std::vector<Json> left;
  const std::string said = Said([&] {
    left = Lines(kevin({"export", "--format", "jsonl", "--schema", "trajectory", "-o", "-"}).output);
  });
  REQUIRE(left.size() == 1);
  CHECK(left[0]["completion_mask"] == Json({0, 0, 0}));
  CHECK(Contains(said, "1 from an unknown distribution"));
  CHECK(Contains(said, "1 of unfinished episodes"));
  CHECK(Contains(said, "3 without token ids"));
  const auto unfinished = Lines(kevin({"export", "--format", "jsonl", "-o", "-"}).output);
  REQUIRE(unfinished.size() == 6);
  CHECK((unfinished[0]["return"].is_null() && unfinished[0]["advantage"].is_null()));
  CHECK((unfinished[0]["reward"] == Approx(1.8) && unfinished[2]["return"].is_number()));

  CHECK(Contains(kevin({"export", "--format", "sft", "--schema", "prompts", "-o", "-"}).error,
                 "--schema is for"));
  CHECK(Contains(kevin({"export", "--format", "parquet", "-o", "x.parquet"}).error,
                 "--schema sft, preference"));
  CHECK(Contains(kevin({"export", "--format", "parquet", "--schema", "sft", "-o", "-"}).error,
                 "standard output"));
}

TEST_CASE("jsonl: a line a turn, with all that training needs") {
  const Fixture kevin;
  const auto lines = Lines(kevin({"export", "--format", "jsonl", "-o", "-"}).output);
  REQUIRE(lines.size() == 6);
  const Json& first = lines[0];
  CHECK((first["problem"] == "level1/19" && first["turn"] == 1 && first["episode"] == kevin.episodes[0]));
  CHECK((first["messages"].size() == 2 && first["completion"] == SampleTurn(1, 1).reply));
  CHECK((first["token_ids"] == SampleTurn(1, 1).token_ids && first["prompt_token_ids"].size() == 3));
  CHECK(first["logprobs"] == Json(SampleTurn(1, 1).logprobs));
  CHECK((first["sampling"]["seed"] == "9223372036854775808" && first["sampling"]["temperature"] == 0.9));
  CHECK((first["outcome"] == "measured" && first["speedup"] == 1.5 && first["reward"] == Approx(1.8)));
  CHECK(first["return"] == Approx(1.8));  // turn 2 earned nothing
  CHECK(first["reward_se"] == Approx(0.03));
  CHECK((lines[1]["token_ids"].is_null() && lines[1]["speedup"].is_null() && lines[1]["reward"] == 0));
  CHECK(lines[4]["advantage"].get<double>() > first["advantage"].get<double>());
  const auto own = Lines(kevin({"export", "--format", "jsonl", "--scheme", "trloo", "-o", "-"}).output);
  CHECK(own[0]["reward"] == Approx(2.5));
}

TEST_CASE("sft: the best kernel of each problem, or every correct one") {
  const Fixture kevin;
  const auto best = Lines(kevin({"export", "--format", "sft", "-o", "-"}).output);
  REQUIRE(best.size() == 1);
  CHECK((best[0]["episode"] == kevin.episodes[2] && best[0]["speedup"] == 2.5));
  REQUIRE(best[0]["messages"].size() == 3);
  CHECK((best[0]["messages"][2]["role"] == "assistant" &&
         best[0]["messages"][2]["content"] == SampleTurn(1, 1).reply));
  CHECK(Lines(kevin({"export", "--format", "sft", "--select", "correct", "-o", "-"}).output).size() == 3);
  CHECK(Lines(kevin({"export", "--format", "sft", "--select", "correct", "--min-speedup", "1.51", "-o", "-"})
                  .output)
            .size() == 2);
}

TEST_CASE("preference: answers to the same prompt that differ beyond the measurement error") {
  const Fixture kevin;
  const auto pairs = Lines(kevin({"export", "--format", "preference", "--pairs", "3", "-o", "-"}).output);
  REQUIRE(pairs.size() == 1);  // turn 2 failed everywhere; 1.5 and 1.52 are the same
  CHECK((pairs[0]["chosen_from"]["episode"] == kevin.episodes[2] && pairs[0]["prompt"].size() == 2));
  CHECK((pairs[0]["chosen_reward"] == Approx(2.8) && pairs[0]["rejected_reward"] == Approx(1.8)));
}

TEST_CASE("kernelbench: its folder of a run") {
  const Fixture kevin;
  const fs::path folder = kevin.folder / "run";
  REQUIRE(kevin({"export", "--format", "kernelbench", "-o", folder.string()}).code == 0);
  const Json results = Json::parse(Bytes(folder / "eval_results.json"));
  REQUIRE(results["19"].size() == 3);
  CHECK((results["19"][2]["sample_id"] == 2 && results["19"][2]["compiled"] == true));
  CHECK((results["19"][2]["correctness"] == true && results["19"][2]["runtime"] == Approx(0.0105)));
  // Under KernelBench's own names, and for the whole level, or its script divides by fewer problems.
  const Json baselines = Json::parse(Bytes(folder / "baseline_eager.json"))["level1"];
  CHECK(baselines.size() == 100);
  CHECK(baselines["19_ReLU.py"]["mean"] == Approx(0.021));
  CHECK(baselines["1_Square_matrix_multiplication_.py"]["mean"] == -1.0);
  const std::string kernel = Bytes(folder / "level_1_problem_19_sample_0_kernel.py");
  CHECK(Contains(kernel, "class ModelNew(torch.nn.Module):"));
  CHECK(Contains(kernel, "def forward(self, x):\n        return _built.run(x)"));
  CHECK(kevin({"export", "--format", "kernelbench", "-o", folder.string()}).code == 2);  // not empty
  if (Shell("command -v python3 >/dev/null") == 0) {
    CHECK(Shell("python3 -m py_compile '" + (folder / "level_1_problem_19_sample_0_kernel.py").string() +
                "'") == 0);
  }
}

TEST_CASE("kernelbench: several levels get a folder each, and the message names them") {
  const Fixture kevin;
  {
    Store store = Store::Open(kevin.database, OpenMode::kWrite);
    ProblemRecord record = SampleProblem();
    record.id = "level2/1", record.text = "id = \"level2/1\"\n",
    record.content_hash = ContentHash(record.text);
    EpisodeRecord episode = SampleEpisode(store.BeginRun(SampleRun()));
    episode.problem = record.id, episode.problem_hash = record.content_hash;
    store.AppendTurn(store.BeginEpisode(episode, record), SampleTurn(1, 1.5));
  }
  const std::string folder = (kevin.folder / "runs").string();
  const std::string said = Said([&] {
    CHECK(kevin({"export", "--format", "kernelbench", "-o", folder}).code == 0);
  });
  CHECK(Contains(said, "written to " + folder + "_level1, " + folder + "_level2"));
  for (const char* level : {"_level1", "_level2"})
    CHECK(fs::exists(fs::path(folder + level) / "eval_results.json"));
}

TEST_CASE("export says what is wrong with a request") {
  const Fixture kevin;
  CHECK(Contains(kevin({"export"}).error, "neither an episode nor --format"));
  CHECK(Contains(kevin({"export", kevin.episodes[0], "--format", "sft", "-o", "-"}).error,
                 "an episode and --format"));
  CHECK(Contains(kevin({"export", "--format", "sft"}).error, "--format needs a place to write to"));
  CHECK(kevin({"export", "--format", "csv", "-o", "-"}).code == 2);
  CHECK(Contains(kevin({"export", kevin.episodes[0], "--best", "--as", "cu"}).error,
                 "a kernel of kind cpp cannot be written as CUDA C++"));
  const Result removed = kevin({"export", kevin.episodes[0], "--best", "--as", "cpp"});
  CHECK(removed.code == 2);
  CHECK(Contains(removed.error, "--as cpp was removed | leave it out"));
}

TEST_CASE("an exported C++ kernel compiles alone, and is a candidate as before") {
  const Fixture kevin;
  const fs::path file = kevin.folder / "relu.cpp";
  REQUIRE(kevin({"export", kevin.episodes[0], "--best", "-o", file.string()}).code == 0);
  const std::string text = Bytes(file);
  CHECK(Contains(text, "constexpr long "));
  const std::string compile = "g++ -std=c++20 -march=native -fopenmp -c -o /dev/null ";
  CHECK(Shell(compile + file.string()) == 0);
  // Kevin includes a candidate after the constants of its own.
  std::string wrapper;
  for (const auto& [name, value] : AtSize(kevin.problem, "small").symbols)
    wrapper += "constexpr long " + name + " = " + std::to_string(value) + ";\n";
  Write(kevin.folder / "wrapper.cpp", wrapper + "#include \"relu.cpp\"\n");
  CHECK(Shell(compile + (kevin.folder / "wrapper.cpp").string()) == 0);
}

TEST_CASE("kernels in Python are exported as files of Python, and to KernelBench's folder as they are") {
  const Fixture kevin;
  const std::string model = "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n";
  const std::string launch = "def launch(x, out):\n    out.fill_(B * N)\n";
  {
    Store store = Store::Open(kevin.database, OpenMode::kWrite);
    int number = 3;
    for (const auto& [kind, source] :
         std::map<std::string, std::string>{{"modelnew", model}, {"triton", launch}}) {
      TurnRecord turn = SampleTurn(number++, 9);
      turn.evaluation.kind = kind, turn.evaluation.source = source;
      turn.evaluation.candidate_hash = ContentHash(kind + source);
      store.AppendTurn(kevin.episodes[0], turn);
    }
  }
  const fs::path file = kevin.folder / "relu.py", other = kevin.folder / "launch.py";
  REQUIRE(kevin({"export", kevin.episodes[0], "--turn", "3", "-o", file.string()}).code == 0);
  CHECK(Bytes(file).starts_with("# Problem:  level1/19"));
  CHECK(Bytes(file).ends_with("\n" + model));
  REQUIRE(kevin({"export", kevin.episodes[0], "--turn", "4", "-o", other.string()}).code == 0);
  // The constants in scope, unless somebody has set them.
  CHECK(Contains(Bytes(other), "globals().setdefault(\"B\", "));
  if (Shell("command -v python3 >/dev/null") == 0) {
    CHECK(Shell("python3 -c \"import ast; ast.parse(open('" + file.string() + "').read())\"") == 0);
    CHECK(Shell("cd '" + kevin.folder.path().string() +
                "' && python3 -c \"import launch; assert launch.B > 0\"") == 0);
  }
  for (const char* form : {"cu", "torch-package"}) {
    const Result refused = kevin({"export", kevin.episodes[0], "--turn", "3", "--as", form, "-o", "relu"});
    CHECK(refused.code == 2);
    CHECK(Contains(refused.error, "a kernel of kind modelnew cannot be"));
  }
}

TEST_CASE("in bf16 an exported C++ kernel brings the type along") {
  const Problem problem = InPrecision(Small("level1/19", {}), Precision::kBf16);
  const std::string source =
      "extern \"C\" void launch(const bf16* x, bf16* out) {\n  for (long i = 0; i < B * N; ++i) out[i] = x[i];\n}\n";
  TemporaryFolder folder;
  Write(folder / "k.cpp", StandaloneCpp(AtSize(problem, "small"), {"heading"}, source));
  CHECK(Shell("g++ -std=c++20 -c -o /dev/null " + (folder / "k.cpp").string()) == 0);
}

TEST_CASE("a kernel that was not correct is exported only with --any") {
  const Fixture kevin;
  {
    Store store = Store::Open(kevin.database, OpenMode::kWrite);
    TurnRecord wrong = SampleTurn(3, 1);
    wrong.evaluation.outcome = "wrong", wrong.evaluation.correct = false, wrong.evaluation.speedup.reset();
    wrong.evaluation.reason = "element 7 differs";
    store.AppendTurn(kevin.episodes[0], wrong);
  }
  const fs::path file = kevin.folder / "wrong.cpp";
  const Result refused = kevin({"export", kevin.episodes[0], "--turn", "3", "-o", file.string()});
  CHECK(refused.code == 2);
  CHECK(Contains(refused.error, "is not correct (wrong: element 7 differs)"));
  CHECK(Contains(refused.error, "--any"));
  CHECK_FALSE(fs::exists(file));
  CHECK(kevin({"export", kevin.episodes[0], "--turn", "3", "--any", "-o", file.string()}).code == 0);
  CHECK(fs::exists(file));
}

std::string Nvcc() { return Shell("command -v nvcc >/dev/null") == 0 ? "nvcc" : ""; }

TEST_CASE("the CUDA text of every problem can be written, and a few of them compile") {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  const std::set<std::string> compiled = {"level1/23", "level1/1"};
  for (const std::string& id : problems.Ids()) {
    INFO(id);
    const Problem problem = problems.Find(id);
    const SizedProblem sized = AtSize(problem, "full");
    std::string why;
    const std::string source = testing::SearchText(problem, "full", "cuda", &why);
    if (!why.empty()) continue;
    const LaunchCode one = WriteLaunchCode(sized, "cuda", source);
    CHECK(Contains(one.text, "static cudaError_t Run(char* const* buffers"));
    if (!compiled.count(id)) continue;
    if (Nvcc().empty()) {
      WARN("no nvcc on this machine: " << id << " was written but not compiled");
      continue;
    }
    TemporaryFolder folder;
    Write(folder / "k.cu", one.text);
    const std::string at = folder.path().string();
    CHECK(Shell("nvcc -std=c++20 -arch=sm_90 --expt-relaxed-constexpr -w -c -o /dev/null " + at + "/k.cu") ==
          0);
  }
}

TEST_CASE("launch lists become host code: clusters, cooperative launches, copies, constants, workspaces") {
  const Problem problem = Small("level1/19", {{"B", 4}, {"N", 256}});
  const std::string source = R"(
__constant__ float table[2];
template <int kBlock>
__global__ void relu(const float* x, float* scratch, float* out, int n, float low, bool is_on) {
  extern __shared__ float tile[];
  const int i = blockIdx.x * kBlock + threadIdx.x;
  if (i < n) out[i] = fmaxf(x[i], low + table[0]);
  if (is_on && scratch) tile[0] = scratch[0];
}
void launch(const float* x, float* out) {
  float* scratch = workspace<float>(100, zeroed);
  constant(table, {0.0f, 1.0f});
  relu<128><<<ceil_div(B * N, 128), 128, 65536, cluster(2)>>>(x, scratch + 4, out, B * N, 0.0, true);
  relu<64><<<ceil_div(B * N, 64), 64, 0, cooperative()>>>(x, nullptr, out, B * N, 0.0, false);
  cudaMemcpyAsync(scratch, x, 16, cudaMemcpyDeviceToDevice);
}
)";
  const LaunchCode code = WriteLaunchCode(AtSize(problem, "small"), "cuda", source);
  CHECK(code.workspace_bytes == std::vector<int64_t>{400});
  for (const char* part :
       {"cudaFuncSetAttribute(relu<128>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536)",
        "clusterDim = {2u, 1u, 1u}", "cooperative = 1", "cudaMemsetAsync(buffers[2], 0, 400L",
        "cudaMemcpyAsync(buffers[2], buffers[0], 16L", "kevin_launch::Address{buffers[2] + 16L}", "nullptr",
        "cudaMemcpyToSymbolAsync(table", "cudaFuncGetAttributes(&attributes, relu<64>)"}) {
    INFO(part << "\n" << code.text);
    CHECK(Contains(code.text, part));
  }
  CHECK_THROWS_AS(WriteLaunchCode(AtSize(problem, "small"), "ptx", source), Error);
  CHECK_THROWS_AS(WriteLaunchCode(AtSize(problem, "small"), "cuda", "int main() {}"), Error);
  if (Nvcc().empty()) {
    WARN("no nvcc on this machine: the code was written but not compiled");
    return;
  }
  TemporaryFolder folder;
  Write(folder / "k.cu", code.text);
  CHECK(Shell("nvcc -std=c++20 -arch=sm_90 --expt-relaxed-constexpr -w -c -o /dev/null " +
              (folder / "k.cu").string()) == 0);
}

// --- PyTorch packages; tests/tools/package_test.py uses built ones ---

std::string CudaText(const Problem& problem, const std::string& size) {
  return testing::SearchText(problem, size, "cuda");
}

TEST_CASE("a package is one importable file with its sources beside it, or a folder for pip") {
  const Fixture kevin;
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
  const Fixture kevin;
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
  const fs::path torch = fs::path(KEVIN_SOURCE_DIR) / ".torch/torch/include";
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
