// `kevin show` and `kevin export` on a database made here.

#include <fstream>
#include <sstream>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"
#include "tools/commands.h"
#include "tools/episode_text.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

Result Run(std::vector<std::string> arguments) {
  return RunCommand({&AddShowCommand, &AddExportCommand}, std::move(arguments));
}

struct Fixture {
  TemporaryFolder folder;
  std::string database = (folder / "kevin.db").string();
  std::string episode;

  // Turn 1 measured 1.5x, turn 2 without a source, turn 3 measured 1.8x.
  explicit Fixture(bool finished = true) {
    Store store = Store::Open(database, OpenMode::kCreate);
    episode = BeginSample(store);
    store.AppendTurn(episode, SampleTurn(1, 1.5));
    TurnRecord failed = SampleTurn(2, 1);
    failed.evaluation = {};
    failed.evaluation.outcome = "parse_failed";
    failed.evaluation.reason = "no code\nin the reply";
    store.AppendTurn(episode, failed);
    store.AppendTurn(episode, SampleTurn(3, 1.8));
    EvaluationRecord confirm = SampleEvaluation("kernel 1", 1.4);
    confirm.purpose = "confirm";
    store.AppendEvaluation(episode, 1, confirm);
    if (finished)
      store.FinishEpisode(episode, {EpisodeState::kDone, "", 1, 1.4, 1.3, 1.5, "out/best.cpp", 12.5});
  }
  Result operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--db", database});
    return Run(arguments);
  }
};

TEST_CASE("columns line up by characters, not bytes") {
  CHECK(AlignedTable({{"a", "b"}, {"µs", "x\ny"}, {"long", ""}}) == "a     b\nµs    x y\nlong\n");
}

TEST_CASE("show lists the latest episodes") {
  const Fixture kevin;
  const Result table = kevin({"show"});
  CHECK(table.code == 0);
  CHECK(Contains(table.output, kevin.episode));
  CHECK(Contains(table.output, "level1/19  search  3/8    2        1.4x (1.3x to 1.5x)  done"));

  const auto lines = Lines(kevin({"show", "--json"}).output);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["event"] == "episode");
  CHECK((lines[0]["episode"] == kevin.episode && lines[0]["best_speedup_low"] == 1.3));
  CHECK((lines[0]["turns"] == 3 && lines[0]["correct_turns"] == 2 && lines[0]["database"] == kevin.database));
}

TEST_CASE("show marks verdicts of older rules") {
  const TemporaryFolder folder;
  const std::string database = (folder / "kevin.db").string();
  std::string episode;
  {
    Store store = Store::Open(database, OpenMode::kCreate);
    episode = BeginSample(store);
    TurnRecord old = SampleTurn(1, 1.5);
    old.evaluation.rules_version = kSecurityRulesVersion - 1;
    store.AppendTurn(episode, old);
    store.AppendTurn(episode, SampleTurn(2, 1.7));
  }
  const Result table = Run({"show", episode, "--db", database});
  INFO(table.output);
  CHECK(Contains(table.output, "1     measured (old rules)  1.5x"));
  CHECK(Contains(table.output, "2     measured              1.7x"));
  const Result old = Run({"show", episode, "1", "--db", database}),
               current = Run({"show", episode, "2", "--db", database});
  INFO(old.output);
  CHECK(Contains(old.output, "older than the last security fix"));
  CHECK(Contains(old.output, "kevin db rejudge"));
  CHECK_FALSE(Contains(current.output, "older than"));
  CHECK(Contains(current.output, "rules version"));
}

TEST_CASE("show tells an episode turn by turn") {
  const Fixture kevin;
  const Result page = kevin({"show", kevin.episode.substr(0, 12)});
  CHECK(page.code == 0);
  INFO(page.output);
  CHECK(Contains(page.output, "turn 1, confirmed 1.4x (1.3x to 1.5x)"));
  CHECK(Contains(
      page.output,
      "1     measured      1.5x (1.35x to 1.65x)  1.05x faster      12    1e-07                 wider vectors"));
  CHECK(Contains(
      page.output,
      "2     parse_failed  -                      -                 -     no code in the reply  wider vectors"));
  CHECK(Contains(page.output, "kevin export " + kevin.episode + " --best"));

  const auto lines = Lines(kevin({"show", kevin.episode, "--json"}).output);
  REQUIRE(lines.size() == 4);
  CHECK((lines[0]["event"] == "turn" && lines[0]["turn"] == 1 && lines[0]["speedup"] == 1.5));
  CHECK((lines[1]["outcome"] == "parse_failed" && lines[1]["speedup"].is_null() && lines[1]["score"] == 0));
  CHECK(lines[3]["event"] == "episode");
}

TEST_CASE("show tells all of one turn") {
  const Fixture kevin;
  const Result page = kevin({"show", kevin.episode, "1"});
  for (const std::string& part : std::vector<std::string>{
           "--- sent: system\nYou write kernels.", "--- sent: user\nTurn 1",
           "--- reply\n```cpp\nkernel 1\n```", "--- reasoning\nbecause", "\nkernel 1\n", "--- evaluation\n",
           "--- evaluation: confirm\n", "turn 1: 1.05x (1.02x to 1.08x), faster", "diff",
           "--- feedback\n1.20x faster", "measured, faster", "warning: unused", "--- knobs\nsetting",
           "TILE = 64, A = 1   measured  10.0  1.00              chosen",
           "TILE = 32, A = -1  wrong     -     -                 out[0] is 1", "tune 0.75"}) {
    INFO(part);
    CHECK(Contains(page.output, part));
  }
  // The words are those of the interval, which the confirmation has too.
  CHECK(page.output.find("measured, faster") != page.output.rfind("measured, faster"));
  const auto lines = Lines(kevin({"show", kevin.episode, "1", "--json"}).output);
  REQUIRE(lines.size() == 1);
  CHECK((lines[0]["messages"][0]["content"] == "You write kernels." && lines[0]["source"] == "kernel 1"));
  CHECK((lines[0]["evaluations"].size() == 2 && lines[0]["evaluations"][1]["purpose"] == "confirm"));
  CHECK(lines[0]["evaluations"][1]["speedup"] == 1.4);
  CHECK((lines[0]["trials"].size() == 3 && lines[0]["trials"][2]["chosen"] == true));
  CHECK((lines[0]["knobs"]["TILE"] == 64 && lines[0]["tune_s"] == 0.75));
}

// An episode of one CUDA kernel.
std::string GpuEpisode(const std::string& database) {
  Store store = Store::Open(database, OpenMode::kCreate);
  EpisodeRecord episode = SampleEpisode(store.BeginRun(SampleRun()));
  episode.kind = "cuda", episode.device = "cuda:0: fake", episode.workload.size = "full";
  const std::string id = store.BeginEpisode(episode, SampleProblem());
  TurnRecord turn = SampleTurn(1, 1.5);
  turn.evaluation.kind = "cuda";
  turn.evaluation.device = episode.device;
  store.AppendTurn(id, turn);
  store.FinishEpisode(id, {EpisodeState::kDone, "", 1, 1.4, 1.3, 1.5, "out/best.cu", 12.5});
  return id;
}

TEST_CASE("show tells of a GPU's turn what its kernels are made of") {
  TemporaryFolder folder;
  const std::string database = (folder / "kevin.db").string();
  const std::string id = GpuEpisode(database);
  const std::string page = Run({"show", id, "1", "--db", database}).output;
  for (const char* part :
       {"kernel             relu<4> <<<132 x 1 x 1, 256 x 1 x 1>>>: 40 registers, occupancy 75 %",
        "4000 GB/s (0.3 % reached), 60000 GFLOP/s (0.005 % reached)", "The memory is busy 93 % of the time.",
        "0.25 s", "allowed on both sides"}) {
    INFO(part << "\n" << page);
    CHECK(Contains(page, part));
  }
  const Json line = Lines(Run({"show", id, "1", "--db", database, "--json"}).output).at(0);
  CHECK((line["kernels"][0]["registers"] == 40 && line["device_s"] == 0.25 && line["kind"] == "cuda"));
  CHECK(line["evaluations"][0]["peak_gb_per_s"] == 4000);
  CHECK(Contains(Run({"show", id, "--db", database}).output, "--best -o kernel.cu takes"));
}

TEST_CASE("show tells what came of each shape of a size set") {
  EvaluationRecord evaluation = SampleEvaluation("kernel 1", 1.5);
  evaluation.workload.size = "mine";
  evaluation.shapes = ShapesFromText(
      R"([{"size":"mine/1","symbols":{"N":8},"weight":2.5,"outcome":"measured","speedup":1.7,)"
      R"("speedup_low":1.6,"speedup_high":1.8,"candidate_us":10,"reference_us":17},)"
      R"({"size":"mine/2","symbols":{"N":7},"weight":1,"outcome":"wrong","reason":"out[6] is 0"}])");
  TurnRecord turn = SampleTurn(1, 1.5);
  const std::string text = TurnDetails(turn, {evaluation});
  CHECK(Contains(text, "mine/1 (N = 8), weight 2.5: 1.7x (1.6x to 1.8x), 10 us against 17 us\n"));
  CHECK(Contains(text, "mine/2 (N = 7), weight 1: wrong\n"));
}

TEST_CASE("export names the file by episode, turn and kind unless told otherwise") {
  TemporaryFolder folder;
  const std::string database = (folder / "kevin.db").string();
  const std::string id = GpuEpisode(database);
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const Result result = Run({"export", id, "--best", "--db", database});
  std::filesystem::current_path(before);
  CHECK(result.code == 0);
  CHECK(Bytes(folder / (id + "-1.cu")).ends_with("// Device:   cuda:0: fake\n\nkernel 1\n"));
}

TEST_CASE("show follows an overridden verdict") {
  const Fixture kevin;
  {
    Store store = Store::Open(kevin.database, OpenMode::kWrite);
    EvaluationRecord wrong = SampleTurn(3, 1.8).evaluation;
    wrong.purpose = "audit", wrong.outcome = "wrong", wrong.reason = "not the same twice",
    wrong.correct = false;
    wrong.speedup.reset();
    store.Supersede({store.LoadTurn(kevin.episode, 3)->evaluation.id},
                    store.AppendEvaluation(kevin.episode, 3, wrong));
  }
  CHECK(Contains(kevin({"show", kevin.episode}).output, "3     wrong         -"));
  CHECK(Lines(kevin({"show", kevin.episode, "3", "--json"}).output)[0]["outcome"] == "wrong");
}

TEST_CASE("show says what is wrong with a request") {
  const Fixture kevin;
  CHECK(kevin({"show", "ZZ"}).code == 2);
  CHECK(Contains(kevin({"show", "ZZ"}).error, "nearest: " + kevin.episode));
  CHECK(Contains(kevin({"show", kevin.episode, "9"}).error, "has no turn 9 | it has turns 1 to 3"));
  CHECK(Contains(kevin({"show", kevin.episode, "x"}).error, "x is not a turn number: 0, 1, 2, ..."));
  CHECK(Contains(kevin({"show", "--limit", "x"}).error, "x is not a whole number: 0, 1, 2, ..."));
  CHECK(Contains(Run({"show", "--db", (kevin.folder / "none.db").string()}).error, "no such database"));
}

TEST_CASE("export writes the kernel under a heading and overwrites nothing") {
  const Fixture kevin;
  const std::string file = (kevin.folder / "kernel.cpp").string();
  CHECK(kevin({"export", kevin.episode, "--best", "-o", file}).code == 0);
  const std::string text = Bytes(file);
  for (const std::string& part : {std::string("level1/19 (ReLU), size small"), kevin.episode + ", turn 1",
                                  std::string("1.4x (1.3x to 1.5x)"), std::string("cpu: test")}) {
    INFO(part);
    CHECK(Contains(text, part));
  }
  CHECK(text.ends_with("\n\nkernel 1\n"));
  std::istringstream lines(text.substr(0, text.find("\n\n")));
  for (std::string line; std::getline(lines, line);) CHECK(line.starts_with("// "));

  const Result again = kevin({"export", kevin.episode, "--turn", "3", "-o", file});
  CHECK(again.code == 2);
  CHECK(Contains(again.error, "--force"));
  CHECK(Bytes(file) == text);
  CHECK(kevin({"export", kevin.episode, "--turn", "3", "-o", file, "--force"}).code == 0);
  CHECK(Contains(Bytes(file), "1.8x (1.62x to 1.98x)"));
  CHECK_FALSE(std::filesystem::exists(file + ".part"));
  CHECK(kevin({"export", kevin.episode, "--turn", "3", "-o", "-"}).output == Bytes(file));
}

TEST_CASE("export says what is wrong with a request") {
  const Fixture kevin;
  const std::string file = (kevin.folder / "kernel.cpp").string();
  CHECK(kevin({"export", kevin.episode, "-o", file}).code == 2);
  CHECK(Contains(kevin({"export", kevin.episode, "--best", "--turn", "1", "-o", file}).error,
                 "both --best and --turn were given"));
  CHECK(Contains(kevin({"export", kevin.episode, "--turn", "2", "-o", file}).error,
                 "no source (parse_failed)"));
  CHECK(Contains(kevin({"export", kevin.episode, "--turn", "7", "-o", file}).error, "has no turn 7"));
  const Result missing =
      kevin({"export", kevin.episode, "--best", "-o", (kevin.folder / "no/k.cpp").string()});
  CHECK(missing.code == 2);
  CHECK(Contains(missing.error, "No such file or directory"));
  CHECK(kevin({"export", kevin.episode, "--best", "-o", "/dev/full", "--force"}).code == 4);
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("an episode that never ended exports its fastest correct turn") {
  const Fixture kevin(/*finished=*/false);
  const Result best = kevin({"export", kevin.episode, "--best", "-o", "-"});
  CHECK(best.code == 0);
  CHECK(Contains(best.output, "turn 3"));
  CHECK(best.output.ends_with("kernel 3\n"));
}

TEST_CASE("nothing in a device's name ends the heading's comment") {
  TemporaryFolder folder;
  const std::string database = (folder / "kevin.db").string();
  std::string episode;
  {
    Store store = Store::Open(database, OpenMode::kCreate);
    episode = BeginSample(store);
    TurnRecord turn = SampleTurn(1, 1.5);
    turn.evaluation.device = "cpu\n#include \"/etc/passwd\"\\";
    store.AppendTurn(episode, turn);
  }
  const std::string text = Run({"export", episode, "--turn", "1", "-o", "-", "--db", database}).output;
  CHECK(Contains(text, "// Device:   cpu #include \"/etc/passwd\"\n\nkernel 1"));
}

}  // namespace
}  // namespace kevin
