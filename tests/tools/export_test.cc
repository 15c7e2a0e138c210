// `kevin export`: many turns in the formats of trainers.

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/tools/export_fixture.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

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
TEST_CASE("schemas of other trainers as lines: verl's prompts, and trajectories of ids and advantages") {
  const ExportFixture kevin;
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
  CHECK((first["rules"] == "open" && prompts[0]["extra_info"]["rules"] == "open"));
  CHECK((first["backend"] == "triton" && first["own_share"] == 0.75));

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
  const ExportFixture kevin;
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
  CHECK((first["rules"] == "open" && first["backend"] == "triton" && first["own_share"] == 0.75));
  CHECK((lines[1]["backend"].is_null() && lines[1]["own_share"].is_null()));
  CHECK((lines[1]["token_ids"].is_null() && lines[1]["speedup"].is_null() && lines[1]["reward"] == 0));
  CHECK(lines[4]["advantage"].get<double>() > first["advantage"].get<double>());
  const auto own = Lines(kevin({"export", "--format", "jsonl", "--scheme", "trloo", "-o", "-"}).output);
  CHECK(own[0]["reward"] == Approx(2.5));
}

TEST_CASE("sft: the best kernel of each problem, or every correct one") {
  const ExportFixture kevin;
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

TEST_CASE("the best kernel is one of each rules; --rules keeps those of one") {
  const ExportFixture kevin;
  Look(kevin.database)
      .Execute(("UPDATE episodes SET rules = 'kevin' WHERE id = '" + kevin.episodes[0] + "'").c_str());
  const auto exported = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"export", "-o", "-", "--format"});
    return Lines(kevin(more).output);
  };
  const auto best = exported({"sft"});
  REQUIRE(best.size() == 2);
  CHECK((best[0]["rules"] == "kevin" && best[0]["speedup"] == 1.5 && best[0]["backend"] == "triton"));
  CHECK((best[1]["rules"] == "open" && best[1]["speedup"] == 2.5 && best[1]["own_share"] == 0.75));
  CHECK(exported({"sft", "--rules", "kevin"}).at(0) == best[0]);
  CHECK(exported({"jsonl", "--rules", "kevin"}).size() == 2);
  CHECK(exported({"jsonl", "--rules", "kernelbench"}).empty());
  const Json pair = exported({"preference"}).at(0);
  CHECK((pair["chosen_from"]["rules"] == "open" && pair["rejected_from"]["episode"] == kevin.episodes[1]));
}

TEST_CASE("preference: answers to the same prompt that differ beyond the measurement error") {
  const ExportFixture kevin;
  const auto pairs = Lines(kevin({"export", "--format", "preference", "--pairs", "3", "-o", "-"}).output);
  REQUIRE(pairs.size() == 1);  // turn 2 failed everywhere; 1.5 and 1.52 are the same
  CHECK((pairs[0]["chosen_from"]["episode"] == kevin.episodes[2] && pairs[0]["prompt"].size() == 2));
  CHECK((pairs[0]["chosen_reward"] == Approx(2.8) && pairs[0]["rejected_reward"] == Approx(1.8)));
}

TEST_CASE("kernelbench: its folder of a run") {
  const ExportFixture kevin;
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
  const ExportFixture kevin;
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
  const ExportFixture kevin;
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

}  // namespace
}  // namespace kevin
