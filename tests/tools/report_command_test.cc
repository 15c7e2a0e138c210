// `kevin report`, `attribute`, `import-records` and `db` on databases made here.

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"
#include "tools/report/charts.h"
#include "tools/report/format.h"
#include "tools/report/html.h"
#include "tools/report/training.h"

namespace kevin {
namespace {

Result Run(std::vector<std::string> arguments) {
  return RunCommand({&AddReportCommand, &AddAttributeCommand, &AddDbCommand, &AddImportRecordsCommand},
                    std::move(arguments));
}

// Two runs; in each an episode whose turns measured so, confirmed at the last one's speed-up.
struct Fixture {
  TemporaryFolder folder;
  std::string database = (folder / "kevin.db").string();
  std::vector<std::string> runs, episodes;

  Fixture() {
    Store store = Store::Open(database, OpenMode::kCreate);
    for (const double speedup : {1.5, 2.5}) {
      runs.push_back(store.BeginRun(SampleRun()));
      episodes.push_back(store.BeginEpisode(SampleEpisode(runs.back()), SampleProblem()));
      TurnRecord wrong = SampleTurn(1, 1);
      wrong.evaluation.outcome = "wrong", wrong.evaluation.correct = false, wrong.evaluation.speedup.reset();
      wrong.evaluation.reason = "element <7> is \"bad\" & wrong\xff";
      wrong.reply = "<script>alert(1)</script>";
      wrong.reward = 0;
      store.AppendTurn(episodes.back(), wrong);
      store.AppendTurn(episodes.back(), SampleTurn(2, speedup));
      EvaluationRecord confirm = SampleEvaluation("kernel 2", speedup - 0.1);
      confirm.purpose = "confirm";
      store.AppendEvaluation(episodes.back(), 2, confirm);
      store.FinishEpisode(episodes.back(),
                          {EpisodeState::kDone, "", 2, speedup - 0.1, 1, 3, "best.cpp", 12.5});
    }
  }
  Result operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--db", database});
    return Run(arguments);
  }
};

TEST_CASE("report says what a database holds") {
  const Fixture kevin;
  const Result result = kevin({"report"});
  CHECK(result.code == 0);
  for (const char* part : {"1 problem, 2 episodes, 4 turns", "turns that are correct", "50.0 %", "fast_1.2",
                           "best@2", "pass@2", "levels and families", "elementwise", "turn by turn",
                           "kernels", "turns ended as 2 measured, 2 wrong", "95 %"}) {
    INFO(part);
    CHECK(Contains(result.output, part));
  }
  CHECK(Contains(result.output, "best of each problem: mean, failures 0             2.4x"));
  CHECK_FALSE(Contains(result.output, "US dollars"));  // no request was stored
  CHECK(result.output.starts_with("--- best kernels"));
  CHECK(Contains(result.output, "2.4x (1x to 3x)"));
  CHECK(Contains(result.output, kevin.episodes[1]));
  CHECK(Contains(kevin({"report", "--price", "3", "15"}).output, "US dollars per solved problem"));
}

TEST_CASE(
    "verdicts under older rules are left out of reports, attributions and exports, unless they are accepted") {
  const Fixture kevin;
  Look(kevin.database)
      .Execute(
          ("UPDATE evaluations SET rules_version = 1 WHERE episode = '" + kevin.episodes[1] + "'").c_str());
  CHECK(Contains(kevin({"report"}).output, "1 problem, 1 episode, 2 turns"));
  CHECK(Contains(kevin({"report"}).output, "mean, failures 0             1.4x"));  // not 2.4x
  CHECK(Contains(kevin({"report", "--accept-old-verdicts"}).output, "1 problem, 2 episodes, 4 turns"));
  CHECK(Lines(kevin({"attribute", "--json"}).output)[0]["turns"] == 2);
  CHECK(Lines(kevin({"attribute", "--json", "--accept-old-verdicts"}).output)[0]["turns"] == 4);
  const auto lines_of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"export", "--db", kevin.database, "-o", "-"});
    return Lines(RunCommand({&AddExportCommand}, more).output).size();
  };
  CHECK(lines_of({"--format", "jsonl"}) == 2);
  CHECK(lines_of({"--format", "jsonl", "--accept-old-verdicts"}) == 4);
  CHECK(lines_of({"--format", "sft", "--select", "correct"}) == 1);

  // The run without a verdict of today: nothing to report on, and the next step.
  const Result none = kevin({"report", kevin.runs[1]});
  CHECK(none.code == 2);
  CHECK(Contains(none.error, "2 verdicts were left out"));
  CHECK(Contains(none.error, "kevin db rejudge " + kevin.database));
  // And a database of an older format, which reading leaves as it is.
  const std::string old = (kevin.folder / "v4.db").string();
  std::filesystem::copy_file(SourceFolder() / "tests/trajectories/data/v4.db", old);
  const std::string before = Bytes(old);
  CHECK(Run({"report", "--db", old}).code == 2);
  CHECK(Run({"report", "--accept-old-verdicts", "--db", old}).code == 0);
  CHECK(Bytes(old) == before);
}

TEST_CASE("a best kernel whose confirmation does not count is told with its turn's own interval") {
  const Fixture kevin;
  SECTION("its rejudgement was broken off before the confirmation") {
    Look(kevin.database)
        .Execute(("UPDATE evaluations SET rules_version = 1 WHERE purpose = 'confirm' AND episode = '" +
                  kevin.episodes[1] + "'")
                     .c_str());
    const Result result = kevin({"report"});
    CHECK(Contains(result.output, "2.5x (2.25x to 2.75x), not measured again  2     " + kevin.episodes[1]));
    CHECK_FALSE(Contains(result.output, "(1x to 3x)"));
  }
  SECTION("it is no longer correct") {
    Store store = Store::Open(kevin.database, OpenMode::kWrite);
    EvaluationRecord wrong = SampleEvaluation("kernel 2", 1);
    wrong.purpose = "audit", wrong.outcome = "wrong", wrong.correct = false, wrong.speedup.reset();
    store.Supersede({store.LoadTurns(kevin.episodes[1]).at(1).evaluation.id},
                    store.AppendEvaluation(kevin.episodes[0], 1, wrong));
    CHECK(Contains(kevin({"report"}).output, "1.4x (1x to 3x)       2     " + kevin.episodes[0]));
  }
}

TEST_CASE("times beside another process on the GPU are left out likewise") {
  const Fixture kevin;
  Look(kevin.database)
      .Execute(("UPDATE evaluations SET shared_gpu = 1 WHERE episode = '" + kevin.episodes[1] + "'").c_str());
  CHECK(Contains(kevin({"report"}).output, "1 problem, 1 episode, 2 turns"));
  CHECK(Contains(kevin({"report", kevin.runs[1]}).error, "timed while another process computed on the GPU"));
  CHECK(Contains(kevin({"report", "--accept-old-verdicts"}).output, "1 problem, 1 episode, 2 turns"));
  CHECK(Contains(kevin({"report", "--accept-shared-gpu"}).output, "1 problem, 2 episodes, 4 turns"));
  CHECK(Lines(kevin({"attribute", "--json"}).output)[0]["turns"] == 2);
}

TEST_CASE("a page that cannot be written is refused before anything is computed, with its own option") {
  const Fixture kevin;
  const std::string page = (kevin.folder / "page.html").string();
  std::ofstream(page) << "x";
  const Result exists = kevin({"report", "--html", page});
  CHECK((exists.code == 2 && exists.output.empty() && Contains(exists.error, "another name with --html")));
  const Result nowhere = kevin({"report", "--html", (kevin.folder / "no/page.html").string()});
  CHECK((nowhere.code == 2 && nowhere.output.empty() && Contains(nowhere.error, "another file with --html")));
}

TEST_CASE("what a solved problem cost is what was stored with the requests, unless a price is given") {
  const Fixture kevin;
  const auto add = [&](std::optional<double> cost) {
    Store store = Store::Open(kevin.database, OpenMode::kWrite);
    RequestRecord request;
    request.provider = "openai", request.url = "http://x", request.model = "m", request.request = "{}";
    request.outcome = "sent";
    request.attempt = store.BeginRequest(kevin.episodes[0], request);
    request.outcome = "answered", request.cost_usd = cost;
    store.EndRequest(kevin.episodes[0], request);
  };
  add(0.25);
  add(0.5);
  auto side = Lines(kevin({"report", "--json"}).output)[0];
  CHECK((side["requests"] == 2 && side["unknown_costs"] == 0 && side["cost_usd"] == 0.75));
  CHECK(side["money_per_solved"] == Approx(0.75));  // one problem, solved
  CHECK(side["metrics"]["usd_per_solved"]["value"] == Approx(0.75));
  CHECK(Contains(kevin({"report"}).output, "cost $0.75"));
  // Two episodes of two turns of 100 tokens in, 200 out.
  side = Lines(kevin({"report", "--json", "--price", "3", "15"}).output)[0];
  CHECK(side["money_per_solved"] == Approx(4 * (100 * 3 + 200 * 15) / 1e6));
  add(std::nullopt);
  side = Lines(kevin({"report", "--json"}).output)[0];
  CHECK((side["money_per_solved"].is_null() && side["cost_usd"] == 0.75 && side["unknown_costs"] == 1));
  CHECK(Contains(kevin({"report"}).output, "cost $0.75 without 1 of 3 requests, whose cost is unknown"));
  const auto runs = Lines(kevin({"report", "--by", "run", "--json"}).output);
  CHECK(runs[1]["cost_usd"].is_null());  // the other run asked nobody
}

// Two runs of three steps; the first did its second step again after it was stopped, and was evaluated.
void WriteTraining(const TemporaryFolder& folder) {
  std::filesystem::create_directories(folder / "a");
  std::filesystem::create_directories(folder / "b");
  const auto step = [](int n, double reward, double loss) {
    return Json{{"event", "step"},  {"step", n},           {"steps", 4},
                {"reward", reward}, {"correct", 0.25 * n}, {"loss", loss},
                {"kl", nullptr},    {"seconds", 2.5},      {"a_new_figure", 7 + n}};
  };
  const auto evaluation = [](int n, double serial, double solved) {
    return Json{
        {"event", "evaluation_step"},
        {"step", n},
        {"suite", "core"},
        {"split", "dev"},
        {"budget", 4},
        {"serial", {{"turns", 4}, {"best", serial}, {"best_low", serial - 0.5}, {"best_high", serial + 1}}},
        {"parallel", nullptr},
        {"metrics", {{"solved_best", {{"value", solved}, {"low", 0.1}, {"high", 0.9}}}}},
        {"value", solved}};
  };
  std::ofstream a(folder / "a" / "metrics.jsonl"), b(folder / "b" / "metrics.jsonl");
  for (const Json& event : {evaluation(0, 0.75, 0.25), step(1, 0.5, 0.1), step(2, 9, 9), step(3, 9, 9),
                            step(2, 1, -0.2), step(3, 1.5, -0.3), evaluation(3, 1.25, 0.5)})
    a << event.dump() << "\n";
  a << "torn line {\n";
  for (int n = 1; n <= 3; ++n) b << step(n, 0.25, 1).dump() << "\n";
}

TEST_CASE("report --train: curves of whatever figures a run's steps and evaluations have") {
  TemporaryFolder folder;
  WriteTraining(folder);
  const std::string a = folder / "a", b = folder / "b";
  const TrainingRun run = ReadTrainingRuns({a}).front();
  CHECK((run.name == "a" && run.last_step == 3 && run.steps_asked == 4 && run.seconds == Approx(7.5)));
  const auto values = [](const Curve* curve) {
    std::vector<std::pair<int64_t, double>> pairs;
    if (curve)
      for (const CurveValue& v : curve->values) pairs.push_back({v.step, v.value});
    return pairs;
  };
  using Pairs = std::vector<std::pair<int64_t, double>>;
  CHECK(values(run.steps.Find("reward")) == Pairs{{1, 0.5}, {2, 1.0}, {3, 1.5}});
  CHECK(values(run.steps.Find("a_new_figure")).back() == std::pair<int64_t, double>{3, 10});
  CHECK((run.steps.Find("kl") == nullptr && run.steps.Find("steps") == nullptr));
  REQUIRE(run.others.size() == 1);
  const CurveGroup& evaluation = run.others[0];
  CHECK((evaluation.event == "evaluation_step" && evaluation.label == "core, dev"));
  CHECK(values(evaluation.Find("serial.best")) == Pairs{{0, 0.75}, {3, 1.25}});
  CHECK(values(evaluation.Find("solved_best")) == Pairs{{0, 0.25}, {3, 0.5}});
  CHECK(evaluation.Find("serial.turns") == nullptr);

  const std::string text = Run({"report", "--train", a, "--train", b}).output;
  for (const char* part :
       {"steps 1 to 3 of 4, 7.5 s; 1 lines are no events", "correct turns", "25.0 %  75.0 %", "▁▅█",
        "evaluation_step: core, dev", "serial turns: best speed-up"}) {
    INFO(part << "\n" << text);
    CHECK(Contains(text, part));
  }
  using Arguments = std::vector<std::string>;
  const std::string page = folder / "page.html";
  for (const Arguments& removed : std::vector<Arguments>{Arguments{"--json"}, Arguments{"--html", page}}) {
    std::vector<std::string> arguments = {"report", "--train", a};
    arguments.insert(arguments.end(), removed.begin(), removed.end());
    const Result result = Run(arguments);
    CHECK(result.code == 2);
    CHECK(Contains(result.error, "was removed | "));
    CHECK(Contains(result.error, removed[0] == "--json" ? a + "/metrics.jsonl" : a + "/tensorboard"));
  }
  CHECK(Run({"report", "--train", folder / "none"}).code == 2);
}

// One turn on a problem with these flags.
void AddFlagged(const Fixture& kevin, const std::string& id, const std::string& flag,
                const std::string& precision) {
  Store store = Store::Open(kevin.database, OpenMode::kWrite);
  ProblemRecord problem = SampleProblem();
  problem.id = id;
  problem.text = "id = \"" + id + "\"\n";
  problem.content_hash = ContentHash(problem.text);
  problem.flags = {"degenerate-upstream", flag};
  EpisodeRecord episode = SampleEpisode(kevin.runs[0]);
  episode.problem = problem.id, episode.problem_hash = problem.content_hash,
  episode.workload.precision = precision;
  const std::string episode_id = store.BeginEpisode(episode, problem);
  store.AppendTurn(episode_id, SampleTurn(1, 900));
  store.FinishEpisode(episode_id, {EpisodeState::kDone, "", 1, 900.0, 1, 3, "best.cpp", 12.5});
}

TEST_CASE("some problems do not count in 16 bits alone") {
  const Fixture kevin;
  AddFlagged(kevin, "level1/98", "inadmissible-in-16-bits", "fp32");
  CHECK(Contains(kevin({"report"}).output, "2 problems, 3 episodes, 5 turns"));
  AddFlagged(kevin, "level1/98", "inadmissible-in-16-bits", "bf16");
  CHECK(Contains(kevin({"report"}).output, "2 problems, 3 episodes, 5 turns"));
  CHECK(Contains(kevin({"report", "--inadmissible"}).output, "2 problems, 4 episodes, 6 turns"));
}

TEST_CASE("problems that do not count are left out of a report unless they are asked for") {
  const Fixture kevin;
  AddFlagged(kevin, "level2/80", "inadmissible", "fp32");
  CHECK(Contains(kevin({"report"}).output, "1 problem, 2 episodes, 4 turns"));
  CHECK(Contains(kevin({"report", "--inadmissible"}).output, "2 problems, 3 episodes, 5 turns"));
  const Result nothing = kevin({"report", "--problems", "level2/"});
  CHECK(nothing.code == 2);
  CHECK(Contains(nothing.error, "level2/80 does not count: its file says so"));
}

TEST_CASE("report --json: an event a side and a comparison, unknown is null") {
  const Fixture kevin;
  const auto one = Lines(kevin({"report", "--json"}).output);
  REQUIRE(one.size() == 1);
  CHECK((one[0]["event"] == "report" && one[0]["part"] == "side" && one[0]["turns"] == 4));
  CHECK(one[0]["metrics"]["mean_avg"]["value"] == Approx((1.4 + 2.4) / 2));
  CHECK(one[0]["metrics"]["best@2"]["value"] == Approx(2.4));
  CHECK(one[0]["outcomes"]["wrong"] == 2);
  CHECK(one[0]["levels"]["level1"]["problems"] == 1);
  CHECK(one[0]["by_turn"].size() == 2);
  CHECK(one[0]["money_per_solved"].is_null());

  const auto two = Lines(kevin({"report", "--by", "run", "--json"}).output);
  REQUIRE(two.size() == 3);
  CHECK((two[1]["side"] == "run " + kevin.runs[1] && two[1]["metrics"]["mean_avg"]["value"] == Approx(2.4)));
  CHECK((two[2]["part"] == "comparison" && two[2]["base"] == "run " + kevin.runs[0] &&
         two[2]["problems"] == 1));
  CHECK(two[2]["metrics"]["mean_avg"]["difference"] == Approx(1.0));
  CHECK(two[2]["metrics"]["mean_avg"]["significant"] == true);
  CHECK(two[2]["metrics"]["best@1"]["p_adjusted"].is_null());
  CHECK(Lines(kevin({"report", kevin.runs[1], "--json"}).output).at(0)["turns"] == 2);
  CHECK(Lines(kevin({"report", "latest", kevin.runs[0], "--json"}).output).size() == 3);
}

TEST_CASE("report says what is wrong with a request") {
  const Fixture kevin;
  CHECK(Contains(kevin({"report", "01ZZ"}).error, "run '01ZZ' is not in"));
  CHECK(Contains(kevin({"report", "0"}).error, "is ambiguous"));
  CHECK(kevin({"report", "--by", "colour"}).code == 2);
  CHECK(Contains(kevin({"report", "--problems", "level9/"}).error, "no episodes to report on"));
  CHECK(Contains(Run({"report", "--db", (kevin.folder / "none.db").string()}).error, "no such database"));
}

TEST_CASE("the page says how many episodes go on, and cuts summaries with an ellipsis") {
  const Fixture kevin;
  {
    Store store = Store::Open(kevin.database, OpenMode::kWrite);
    TurnRecord third = SampleTurn(3, 1.2);
    third.summary = std::string(300, 's');
    third.evaluation.samples.clear();
    store.AppendTurn(kevin.episodes[0], third);
  }
  const std::string file = (kevin.folder / "report.html").string();
  REQUIRE(kevin({"report", "--html", file}).code == 0);
  const std::string page = Bytes(file);
  CHECK(Contains(page, "2 episodes, 1 of them go on to turn 3"));
  CHECK(Contains(page, "sss…</span>"));
  CHECK_FALSE(Contains(page, std::string(161, 's')));
  CHECK_FALSE(Contains(page, "</summary></details>"));  // no box without content
}

TEST_CASE("the page holds every turn, safely, and nothing from elsewhere") {
  const Fixture kevin;
  const std::string file = (kevin.folder / "report.html").string();
  REQUIRE(kevin({"report", "--by", "run", "--html", file}).code == 0);
  const std::string page = Bytes(file);
  for (const std::string& part :
       {std::string("<!doctype html>"), kevin.episodes[0], kevin.episodes[1], std::string("<svg"),
        std::string("kernel 2"), std::string("You write kernels."), std::string("&lt;script&gt;alert(1)"),
        std::string("element &lt;7&gt; is &quot;bad&quot; &amp; wrong\xef\xbf\xbd"),
        std::string("timing samples"), std::string("wider vectors"), std::string("minus")}) {
    INFO(part);
    CHECK(Contains(page, part));
  }
  for (const char* part : {"<script", "http://", "https://", "@import", "url("}) {
    INFO(part);
    CHECK_FALSE(Contains(page, part));
  }
  size_t open = 0, closed = 0;
  for (size_t at = 0; (at = page.find("<details", at)) != std::string::npos; ++at) ++open;
  for (size_t at = 0; (at = page.find("</details>", at)) != std::string::npos; ++at) ++closed;
  CHECK((open > 8 && open == closed));
  CHECK(kevin({"report", "--html", file}).code == 2);  // not overwritten
  CHECK(kevin({"report", "--html", file, "--force"}).code == 0);
}

TEST_CASE("a page that would be too big leaves texts and episodes out, and says so") {
  const Fixture kevin;
  const std::string file = (kevin.folder / "report.html").string();
  const auto page_of = [&](const char* megabytes) {
    REQUIRE(kevin({"report", "--html", file, "--force", "--episodes", "1", "--megabytes", megabytes}).code ==
            0);
    return Bytes(file);
  };
  const std::string turns_alone = page_of("0.0001");
  CHECK(Contains(turns_alone, "1 of 2 episodes are left out"));
  CHECK_FALSE(Contains(turns_alone, "You write kernels."));
  const std::string some_texts = page_of("0.003");
  CHECK(Contains(some_texts, "Left out for size"));
  CHECK(Contains(some_texts, "kevin show " + kevin.episodes[1] + " 2"));  // the better one is shown
}

TEST_CASE("an unfinished episode has no returns: attribute leaves it out and says so") {
  const Fixture kevin;
  Look(kevin.database)
      .Execute(("UPDATE episodes SET state = 'interrupted' WHERE id = '" + kevin.episodes[0] + "'").c_str());
  const auto event = Lines(kevin({"attribute", "--json"}).output).at(0);
  CHECK((event["turns"] == 2 && event["unfinished"]["interrupted"] == 1));
  CHECK(Lines(kevin({"attribute", "--scheme", "milestones", "--json"}).output).at(0)["turns"] == 4);
  Look(kevin.database).Execute("UPDATE episodes SET state = 'running'");
  const Result none = kevin({"attribute"});
  CHECK((none.code == 2 && Contains(none.error, "2 unfinished episodes were left out (2 running)")));
}

TEST_CASE("attribute keeps what the scheme gives") {
  const Fixture kevin;
  const auto event = Lines(kevin({"attribute", "--scheme", "kevin", "--json"}).output).at(0);
  CHECK(
      (event["event"] == "attribution" && event["turns"] == 4 && event["runs"] == 2 && event["groups"] == 2));
  CHECK(event["parameters"]["return"]["gamma"] == Approx(0.4));
  Database database = Look(kevin.database);
  // 0 + 0.4 * 1.8, then 1.8: as far apart from their mean as each other.
  CHECK(database.QueryText("SELECT round(\"return\", 6) FROM turn_attributions WHERE turn = 1 LIMIT 1") ==
        "0.72");
  CHECK(database.QueryInteger(
            "SELECT count(*) FROM attributed_turns WHERE turn = 2 AND abs(advantage - 1) < 1e-9") == 2);
  CHECK(kevin({"attribute", "--gamma", "0", "--name", "own", "--run", kevin.runs[0]}).code == 0);
  CHECK(database.QueryInteger(
            "SELECT count(*) FROM attributed_turns WHERE scheme = 'own' AND \"return\" = score") == 2);
  CHECK(Contains(kevin({"attribute", "--scheme", "nothing"}).error, "there are: kevin, kevin-max, trloo"));
  CHECK(kevin({"attribute", "--gamma", "1.5"}).code == 2);
  // Removed names answer with a replacement.
  CHECK(Contains(kevin({"attribute", "--scheme", "first"}).error, "--scheme kevin --advantage turn"));
  CHECK(Contains(kevin({"attribute", "--return", "first"}).error, "--return sum"));
  const auto strong = kevin({"attribute", "--scheme", "milestones", "--strong", "2"});
  CHECK((strong.code == 2 && Contains(strong.error, "--weight-faster")));
}

TEST_CASE("import-records and db on the command line") {
  const Fixture kevin, other;
  const auto event = Lines(kevin({"import-records", other.database, "--json"}).output).at(0);
  CHECK((event["episodes"] == 2 && event["turns"] == 4 && event["conflicts"].empty()));
  CHECK(Lines(kevin({"report", "--json"}).output).at(0)["episodes"] == 4);
  CHECK(Contains(kevin({"import-records", "none.db"}).error, "no such database"));
  CHECK(Contains(kevin({"db", "check"}).output, "ok   file"));
  CHECK(Lines(kevin({"db", "compact", "--json"}).output).at(0)["texts"] == 0);
  CHECK(Contains(kevin({"db", "migrate"}).output, "already"));
  Look(kevin.database).Execute("UPDATE blobs SET body = 'x' WHERE codec = 'plain'");
  CHECK(kevin({"db", "check"}).code == 2);
  CHECK(kevin({"db"}).code == 2);
}

}  // namespace
}  // namespace kevin
