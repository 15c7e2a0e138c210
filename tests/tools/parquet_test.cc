// `kevin export --format parquet`, and what TRL and verl do with its files.

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/agent/train/byte_tokenizer.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kEnd = 256;  // then <|pad|>

std::string ReadAll(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

json AddedToken(int id, const std::string& content) {
  return {{"id", id},        {"content", content}, {"special", true},    {"single_word", false},
          {"lstrip", false}, {"rstrip", false},    {"normalized", false}};
}

std::vector<int32_t> Bytes(const std::string& text) {
  std::vector<int32_t> ids(text.begin(), text.end());
  return ids;
}

class World {
 public:
  World() {
    std::ofstream(folder_ / "tokenizer.json")
        << ByteTokenizer({AddedToken(kEnd, "<|end|>"), AddedToken(kEnd + 1, "<|pad|>")}).dump();
    Store store = Store::Open(folder_ / "kevin.db", OpenMode::kCreate);
    const std::string run = store.BeginRun(SampleRun());
    for (int e = 0; e < 8; ++e) AddEpisode(store, run, e);
  }
  fs::path operator/(const std::string& name) const { return folder_ / name; }

  // Output and errors are in out.txt.
  int Run(const std::string& command) const {
    const int status = std::system(
        ("cd " + folder_.path().string() + " && " + command + " >out.txt 2>&1 </dev/null").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int Export(const std::string& schema, const std::string& more = "",
             const std::string& environment = "") const {
    return Run(environment + " " + BinaryFolder().string() + "/bin/kevin export --format parquet --schema " +
               schema + " -o " + schema + ".parquet " + more);
  }
  // Whether the check ran and held; a missing package is no failure outside of CI (see the script).
  bool Check(const std::string& what) const {
    const char* python = std::getenv("KEVIN_PYTHON");
    const int code =
        Run((python != nullptr ? std::string(python) : "python3") + " " + SourceFolder().string() +
            "/tests/tools/trainers_check.py . " + SourceFolder().string() + "/tools/export/training " + what);
    const std::string output = ReadAll(folder_ / "out.txt");
    if (output.find("skipped:") != std::string::npos) WARN(output);
    INFO(output);
    CHECK(code == 0);
    return output.find("ok " + what) != std::string::npos;
  }
  std::string Output() const { return ReadAll(folder_ / "out.txt"); }

 private:
  // Two problems, two turns each; what is drawn tells episode and turn.
  static void AddEpisode(Store& store, const std::string& run, int e) {
    ProblemRecord problem = SampleProblem();
    problem.id = e % 2 == 0 ? "level1/19" : "level1/20";
    problem.text = problem.id, problem.content_hash = ContentHash(problem.text);
    EpisodeRecord episode = SampleEpisode(run);
    episode.problem = problem.id, episode.problem_hash = problem.content_hash, episode.start_source.clear();
    const std::string id = store.BeginEpisode(episode, problem);
    for (int t = 1; t <= 2; ++t) {
      TurnRecord turn = SampleTurn(t, 1 + 0.3 * ((e * 3 + t * 5) % 7));
      turn.evaluation = SampleEvaluation(id + std::to_string(t), turn.evaluation.speedup->value);
      turn.evaluation.speedup->log_se = 0.001, turn.reward = turn.evaluation.score;
      turn.messages[1].content = problem.id + ", turn " + std::to_string(t) + (t > 1 ? " of " + id : "");
      turn.reply = "kernel " + std::to_string(e) + "/" + std::to_string(t);
      turn.sampling.top_p = 1, turn.sampling.top_k = 0, turn.sampling.min_p = 0;
      turn.prompt_token_ids = Bytes("user:" + turn.messages[1].content), turn.token_ids = Bytes(turn.reply);
      turn.token_ids.push_back(kEnd);
      turn.logprobs.assign(turn.token_ids.size(), -5.5f - 0.01f * static_cast<float>(e));
      if (e == 7 && t == 2) turn.stop_reason = "length";
      store.AppendTurn(id, turn);
    }
    store.FinishEpisode(id, {});
  }

  TemporaryFolder folder_;
};

TEST_CASE("four schemas as Parquet, each with its lines beside it; TRL and verl read and train from them") {
  const World world;
  for (const std::string schema : {"sft", "preference", "prompts", "trajectory"}) {
    const int code = world.Export(schema, schema == "sft" ? "--select all" : "");
    INFO(schema << ": " << world.Output());
    REQUIRE(code == 0);
    CHECK(fs::exists(world / (schema + ".jsonl")));
    CHECK(world.Output().find("1 row group") != std::string::npos);
    CHECK(world.Export(schema) == 2);  // it exists
  }
  world.Check("columns");
  world.Check("trl");
  world.Check("verl");
}

TEST_CASE("a Python without pyarrow gets it once, in a folder of its own") {
  const World world;
  const std::string fresh = "KEVIN_PYTHON=/usr/bin/python3 XDG_CACHE_HOME=" + (world / "cache").string();
  if (std::system("/usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null") != 0 ||
      std::system("/usr/bin/python3 -c 'import pyarrow' 2>/dev/null") == 0) {
    WARN("not tried: /usr/bin/python3 has no venv, or has pyarrow already");
    return;
  }
  const int code = world.Export("trajectory", "", fresh);
  INFO(world.Output());
  REQUIRE(code == 0);
  CHECK(world.Output().find("setting up pyarrow") != std::string::npos);
  REQUIRE(world.Export("trajectory", "--force", fresh) == 0);
  CHECK(world.Output().find("setting up pyarrow") == std::string::npos);
  CHECK(std::distance(fs::directory_iterator(world / "cache/kevin"), fs::directory_iterator()) == 1);
}

TEST_CASE("without a Python the lines are there, and the next step is named") {
  const World world;
  CHECK(world.Export("sft", "", "KEVIN_PYTHON=no-such-python") == 3);
  CHECK(world.Output().find("set KEVIN_PYTHON") != std::string::npos);
  CHECK(fs::exists(world / "sft.jsonl"));
  CHECK_FALSE(fs::exists(world / "sft.parquet"));
}

}  // namespace
}  // namespace kevin
