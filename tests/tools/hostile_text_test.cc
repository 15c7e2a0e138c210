// Records, problems and messages full of terminal escapes, markup and marks that nobody sees, through the
// commands that print them, to a pipe and to a terminal.

#include <pty.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <regex>
#include <set>
#include <thread>

#include "agent/machine.h"
#include "agent/terminal.h"
#include "env/printable.h"
#include "env/problem/problem.h"
#include "tests/catch.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"
#include "tools/commands.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// Clears the screen, renames the window, fills the clipboard, C1, overrides the direction, tags, breaks UTF-8,
// begins a page's script and ends an attribute.
const std::string kAttack =
    "<script>alert(1)</script>\" onload='x' \x1b[2J\x1b]0;owned\x07\x1b]52;c;eA==\x1b\\\xc2\x9b"
    "1m\x9b\r\b\x7f\xe2\x80\xae\xe2\x81\xa6\xf3\xa0\x81\x81\xff\xc3";

bool IsSafe(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Character c = Utf8At(text, at);
    if (!c.is_valid || (IsHidden(c.code) && c.code != '\n' && c.code != '\t')) return false;
    at += c.bytes;
  }
  return true;
}

// What `work` prints on standard output and on standard error, each a terminal.
std::string OnTerminal(const std::function<void()>& work) {
  int keeper = -1, terminal = -1;
  REQUIRE(openpty(&keeper, &terminal, nullptr, nullptr, nullptr) == 0);
  std::string text;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t count = 0; (count = read(keeper, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(count));
  });
  std::fflush(stdout);
  const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
  dup2(terminal, STDOUT_FILENO);
  dup2(terminal, STDERR_FILENO);
  work();
  std::fflush(stdout);
  std::fflush(stderr);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const int fd : {out, err, terminal}) close(fd);
  reader.join();
  close(keeper);
  std::erase(text, '\r');  // the terminal's own
  return text;
}

const std::vector<AddCommand> kCommands = {&AddShowCommand, &AddExportCommand, &AddReportCommand,
                                           &AddProblemsCommand, &AddDbCommand};

Result Run(std::vector<std::string> arguments) { return RunCommand(kCommands, std::move(arguments)); }

// A database in which every text that anyone but this program chooses is an attack.
struct Fixture {
  TemporaryFolder folder;
  std::string database = (folder / "kevin.db").string();
  std::string episode, source = "kernel " + kAttack + "\n";

  explicit Fixture(const std::string& attack = kAttack) {
    Store store = Store::Open(database, OpenMode::kCreate);
    ProblemRecord problem = SampleProblem();
    problem.name = attack, problem.families = {attack}, problem.text = attack;
    problem.content_hash = ContentHash(problem.text);
    RunRecord run = SampleRun();
    run.command = attack;
    EpisodeRecord e = SampleEpisode(store.BeginRun(run));
    e.problem_hash = problem.content_hash;
    e.policy = e.device = e.note = e.isolation = attack;
    e.workload.size = e.workload.inputs = attack;
    episode = store.BeginEpisode(e, problem);
    for (const int number : {1, 2}) {
      TurnRecord t = SampleTurn(number, 1.5 + number);
      t.messages = {{attack, attack}};
      t.reply = t.reasoning = t.summary = t.feedback = t.stop_reason = t.source_path = attack;
      t.model = {attack, attack, attack, attack};
      EvaluationRecord& v = t.evaluation;
      v.source = number == 1 ? source : attack, v.candidate_hash = ContentHash(v.source);
      v.log = v.reason = v.profile = v.isolation = v.device = v.verdict = attack;
      v.workload.size = v.workload.inputs = attack;
      v.samples[0].side = attack, v.samples[0].phase = attack;
      if (number == 2) v.outcome = "wrong", v.correct = false, v.speedup.reset();
      store.AppendTurn(episode, t);
    }
    store.FinishEpisode(episode, {EpisodeState::kDone, attack, 1, 2.5, 2.4, 2.6, attack, 12.5});
  }
  std::vector<std::string> With(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--db", database});
    return arguments;
  }
};

// Run as the command itself on a terminal, not captured first.
std::string CommandOnTerminal(const std::vector<std::string>& arguments) {
  return OnTerminal([&] {
    CLI::App app{"kevin"};
    Action action;
    for (const AddCommand add : kCommands) add(app, &action);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
    action();
  });
}

TEST_CASE("hostile records: show, report and their JSON reach a terminal as text") {
  const Fixture kevin;
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"show"},
                                             {"show", "--json"},
                                             {"show", kevin.episode},
                                             {"show", kevin.episode, "--json"},
                                             {"show", kevin.episode, "1"},
                                             {"show", kevin.episode, "2"},
                                             {"show", kevin.episode, "1", "--json"},
                                             {"report"},
                                             {"report", "--by", "policy"},
                                             {"report", "--json"},
                                             {"db", "check"},
                                             {"export", "--format", "jsonl", "-o", "-"}}) {
    const Result piped = Run(kevin.With(command));
    INFO(command[0] << " " << command.back() << " " << piped.error << "\n" << Printable(piped.output));
    CHECK(piped.code == 0);
    CHECK(IsSafe(piped.output));
    CHECK(!piped.output.empty());
    CHECK(IsSafe(CommandOnTerminal(kevin.With(command))));
  }
  const std::string turn = Run(kevin.With({"show", kevin.episode, "1"})).output;
  for (const char* part : {"\\x1b[2J", "\\u009b1m", "\\x9b", "\\u202e", "\\U000e0041", "\\xff", "\\x0d\\x08"})
    CHECK(Contains(turn, part));
  const Json line = Lines(Run(kevin.With({"show", kevin.episode, "1", "--json"})).output).at(0);
  CHECK(line["reply"].get<std::string>().starts_with(kAttack.substr(0, kAttack.find('\x9b'))));
}

TEST_CASE("a reply writes no section of its own into kevin show") {
  const Fixture kevin("kind words\n--- evaluation\noutcome    measured, fast\n--- feedback\n9x");
  const std::string page = Run(kevin.With({"show", kevin.episode, "1"})).output;
  CHECK(Contains(page, "--- reply\nkind words\n --- evaluation\n"));
  size_t titles = 0;
  for (size_t at = 0; (at = page.find("\n--- evaluation", at)) != std::string::npos; ++at) ++titles;
  CHECK(titles == 1);
  CHECK(Contains(page, "--- sent: kind words --- evaluation outcome"));
}

TEST_CASE("a source is exact in a pipe and printable on a terminal") {
  const Fixture kevin;
  CHECK(Run(kevin.With({"show", kevin.episode, "1", "--source"})).output == kevin.source);
  CHECK(Run(kevin.With({"export", kevin.episode, "--turn", "1", "-o", "-"})).output.ends_with(kevin.source));
  for (const auto& arguments : {kevin.With({"show", kevin.episode, "1", "--source"}),
                                kevin.With({"export", kevin.episode, "--turn", "1", "-o", "-"})}) {
    const std::string shown = CommandOnTerminal(arguments);
    INFO(Printable(shown));
    CHECK(IsSafe(shown));
    CHECK(Contains(shown, "kernel <script>"));
  }
  const std::string page = CommandOnTerminal(kevin.With({"show", kevin.episode, "1"}));
  CHECK((IsSafe(page) && Contains(page, "--- reply\n<script>")));
}

// The tags of a page, without their texts.
std::set<std::string> TagsOf(const std::string& html) {
  const std::regex tag("<[/!]?[a-zA-Z][a-zA-Z0-9]*");
  std::set<std::string> tags;
  for (std::sregex_iterator at(html.begin(), html.end(), tag), end; at != end; ++at) tags.insert(at->str());
  return tags;
}

TEST_CASE("hostile records: a report's page has no element that the same page has without them") {
  const auto page_of = [](const Fixture& kevin) {
    const std::string file = (kevin.folder / "page.html").string();
    CHECK(Run(kevin.With({"report", "--by", "policy", "--html", file})).code == 0);
    return Bytes(file);
  };
  const Fixture plain("text");
  const std::string harmless = page_of(plain);
  {
    const Fixture kevin;
    const std::string page = page_of(kevin);
    CHECK(TagsOf(page) == TagsOf(harmless));
    CHECK(IsSafe(page));
    CHECK_FALSE(Contains(page, "<script"));
    CHECK_FALSE(Contains(page, "\" onload"));
    CHECK(Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&#39;x&#39;"));
  }
  // Ids too: those of another database are anyone's.
  const Fixture kevin;
  {
    Database database = Look(kevin.database);
    database.Execute("PRAGMA foreign_keys = OFF");
    for (const char* table : {"turns", "evaluations"}) {
      database.Execute(("UPDATE " + std::string(table) + " SET episode = '<XMP>' || episode").c_str());
    }
    database.Execute("UPDATE episodes SET id = '<XMP>' || id");
  }
  const std::string page = page_of(kevin);
  CHECK(TagsOf(page) == TagsOf(harmless));
  CHECK_FALSE(Contains(page, "<XMP"));
}

TEST_CASE("commands to copy: an id is one word of a shell") {
  CHECK(ShellWord("01K9J4") == "01K9J4");
  CHECK(ShellWord("a; touch canary") == "'a; touch canary'");
  CHECK(ShellWord("a'b") == "'a'\\''b'");
  CHECK(ShellWord("") == "''");
  const Fixture kevin;
  {
    Database database = Look(kevin.database);
    database.Execute("PRAGMA foreign_keys = OFF");
    database.Execute("UPDATE turns SET episode = 'X$(TASK)'");
    database.Execute("UPDATE evaluations SET episode = 'X$(TASK)'");
    database.Execute("UPDATE episodes SET id = 'X$(TASK)', kind = 'cpp; touch canary'");
  }
  const std::string shown = Run(kevin.With({"show", "X"})).output;
  INFO(Printable(shown));
  CHECK(Contains(shown, "kevin show 'X$(TASK)' 2 shows"));
  CHECK(Contains(shown, "kevin export 'X$(TASK)' --best -o kernel.cpp__touch_canary takes"));
}

TEST_CASE("hostile problem files: kevin problems prints their texts") {
  TemporaryFolder folder;
  const std::string bad = "\\u001b[2J \\u009b1m \\u202e \\u0007";
  std::string text = Bytes(ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19").path);
  const std::string changed = "level1/19";
  text.replace(text.find(changed), changed.size(), "mine/1");
  const size_t at = text.find("reference = '''") + 15;
  text.insert(at,
              "\n# \xc2\x9b"
              "2J \xe2\x80\xae");  // TOML allows these as they are
  text = "source = \"" + bad + "\"\n" + text;
  fs::create_directories(folder / "mine");
  std::ofstream(folder / "mine/1.toml", std::ios::binary) << text;
  setenv("KEVIN_PROBLEMS", folder.path().c_str(), 1);
  const Result listed = Run({"problems"}), shown = Run({"problems", "mine/1"}),
               json = Run({"problems", "mine/1", "--json"});
  unsetenv("KEVIN_PROBLEMS");
  INFO(listed.error << shown.error << json.error);
  CHECK((listed.code == 0 && shown.code == 0 && json.code == 0));
  CHECK((IsSafe(listed.output) && IsSafe(shown.output) && IsSafe(json.output)));
  CHECK(Contains(shown.output, "\\u009b2J \\u202e"));
}

TEST_CASE("the live line and its log: one line stays one, and nothing in it acts") {
  const std::string shown = OnTerminal([] {
    Progress progress(stderr);
    progress.Phase("waiting for " + kAttack + "\nsecond");
    progress.Status(kAttack);
    progress.Line("policy " + kAttack + "\nturn 9: 99x");
  });
  // The live line's own escape, and no other.
  std::string rest = shown;
  const std::string erase = "\x1b[K";
  for (size_t at; (at = rest.find(erase)) != std::string::npos;) rest.erase(at, erase.size());
  INFO(Printable(rest));
  CHECK(IsSafe(rest));
  CHECK(Contains(rest, "waiting for <script>"));
  CHECK(Contains(rest, "\n    turn 9: 99x\n"));
}

}  // namespace
}  // namespace kevin
