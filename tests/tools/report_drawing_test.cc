// The parts of a report's page: differences, numbers, charts, tables; and the rules of its figures.

#include "tests/catch.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"
#include "tools/report/charts.h"
#include "tools/report/format.h"
#include "tools/report/html.h"

namespace kevin {
namespace {

std::string Shown(const std::vector<DiffLine>& lines) {
  std::string text;
  for (const DiffLine& line : lines)
    text += std::string(1, " +-~"[static_cast<int>(line.kind)]) + line.text + "|";
  return text;
}

TEST_CASE("a diff is as short as can be") {
  CHECK(DiffLines("a\nb\nc\n", "a\nb\nc\n").empty());
  CHECK(Shown(DiffLines("a\nb\nc\n", "a\nx\nc\n")) == " a|-b|+x| c|");
  CHECK(Shown(DiffLines("", "a\nb\n")) == "+a|+b|");
  CHECK(Shown(DiffLines("a\nb\n", "")) == "-a|-b|");
  CHECK(Shown(DiffLines("a\nb\nc\nd\n", "b\nc\nd\ne\n", 0)) == "-a|~@@ line 4 @@|+e|");
  CHECK(Shown(DiffLines("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\n5\n6\n7\n8\nx\n", 1)) ==
        "~@@ line 8 @@| 8|-9|+x|");
}

TEST_CASE("applying a diff gives the second text") {
  unsigned state = 1;
  const auto draw = [&state](unsigned n) { return (state = state * 1103515245 + 12345) / 65536 % n; };
  for (int round = 0; round < 200; ++round) {
    std::string a, b;
    for (unsigned i = draw(30); i > 0; --i) a += std::string(1, static_cast<char>('a' + draw(4))) + "\n";
    for (unsigned i = draw(30); i > 0; --i) b += std::string(1, static_cast<char>('a' + draw(4))) + "\n";
    std::string before, after;
    for (const DiffLine& line : DiffLines(a, b, 100)) {
      if (line.kind != DiffLine::Kind::kAdded) before += line.text + "\n";
      if (line.kind != DiffLine::Kind::kRemoved) after += line.text + "\n";
    }
    if (a == b) continue;
    CHECK(before == a);
    CHECK(after == b);
  }
}

TEST_CASE("numbers as people read them") {
  CHECK(ValueText(0.831, MetricUnit::kShare) == "83.1 %");
  CHECK(IntervalText({1.234, 1.1, 1.4}, MetricUnit::kRatio) == "1.23x (1.1x to 1.4x)");
  CHECK(IntervalText({kNotKnown, 0, 0}, MetricUnit::kRatio) == "-");
  CHECK(DifferenceText({0.026, 0.006, 0.045}, MetricUnit::kShare) == "+2.6 points (0.6 to 4.5)");
  CHECK((CountText(1234567) == "1,234,567" && CountText(12) == "12"));
  CHECK((SpanText(75) == "1 min 15 s" && SpanText(7260) == "2 h 1 min"));
  CHECK(Escaped("a<b>&\"\x01\xc3\xa9\xc3") == "a&lt;b&gt;&amp;&quot;\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd");
}

TEST_CASE("a cost that is all unknown is said to be unknown, not 0") {
  Side side;
  side.requests = side.unknown_costs = 28;
  CHECK(MoneyText(side) == "cost of 28 requests unknown (--price computes it from the tokens)");
}

TEST_CASE("a legend has the colours of its bars, all seven of them") {
  std::vector<BarPart> parts;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) parts.push_back({name, 1});
  const std::string html = StackedBars("T", {"row"}, {parts});
  for (const std::string color : {"var(--s0)", "var(--s5)", "var(--s6)"}) {
    INFO(color);
    CHECK(Contains(html, "fill=\"" + color + "\""));
    CHECK(Contains(html, "background:" + color + "\""));
  }
  CHECK_FALSE(Contains(html, "opacity"));
  CHECK(Contains(kPageStyle, "--s6:"));
  const std::string dashed = LineChart({"T", "x", ""}, {{"s", 1, true, {{1, 2, 2, 2}}}});
  CHECK(Contains(dashed, "repeating-linear-gradient(90deg,var(--s1)"));
}

TEST_CASE("texts that are too long end in an ellipsis") {
  const std::string name = "level2/100 " + std::string(60, 'x');
  CHECK(Contains(DotPlot("T", {{name, "p", {{0, 1.5, 1.4, 1.6, ""}}}}, {"side"}), "x…</text>"));
  CHECK(Contains(StackedBars("T", {std::string(200, 'y')}, {{{"a", 1}}}), "y…</text>"));
}

TEST_CASE("what has nothing to show is left out") {
  CHECK(StackedBars("T", {"row"}, {{{"a", 0}}}).empty());
  CHECK(DotPlot("T", {}, {"side"}).empty());
  CHECK(HtmlTable("<tr><th>a</th></tr>", "").empty());
}

TEST_CASE("charts of nothing are nothing, of one point a point") {
  CHECK(LineChart({}, {}).empty());
  CHECK(SampleStrip({}).empty());
  CHECK(Ladder({}, 0).empty());
  const std::string one =
      LineChart({"T", "x", "", false, true, false, true, true, 0}, {{"s", 0, false, {{1, 2, 2, 2}}}});
  CHECK(Contains(one, "<circle"));
  CHECK_FALSE(Contains(one, "nan"));
  LadderStep failed;
  failed.turn = 1;
  CHECK_FALSE(Contains(Ladder({failed}, 0), "nan"));
}

// An episode judged by the rules kevin and one by open, whose problem is the same.
struct MixedRules {
  TemporaryFolder folder;
  std::string database = (folder / "kevin.db").string();

  MixedRules() {
    Store store = Store::Open(database, OpenMode::kCreate);
    for (const std::string rules : {"kevin", "open"}) {
      EpisodeRecord episode = SampleEpisode(store.BeginRun(SampleRun()));
      episode.workload.rules = rules;
      const std::string id = store.BeginEpisode(episode, SampleProblem());
      store.AppendTurn(id, SampleTurn(1, rules == "open" ? 4 : 1.5));
      store.FinishEpisode(id, {EpisodeState::kDone, "", 1, rules == "open" ? 4 : 1.5, 1, 5, "best.cpp", 1});
    }
  }
  Result operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"report", "--db", database});
    return RunCommand({&AddReportCommand}, arguments);
  }
};

TEST_CASE("a report names the rules of its figures, and warns where they mix several") {
  const MixedRules kevin;
  const std::string warning =
      "the figures mix verdicts under different rules; --rules kevin reports on those of one, --by rules compares";
  const std::string page_file = (kevin.folder / "report.html").string();
  const std::string text = kevin({"--html", page_file}).output;
  CHECK(Contains(text, "2 turns; rules kevin (1 episode), open (1 episode)"));
  CHECK(Contains(text, "\nwarning: " + kevin.database + ": " + warning));
  CHECK(Contains(text.substr(0, text.find("intervals:")), "rules\nlevel1/19"));  // of the best kernel
  const std::string page = Bytes(page_file);
  CHECK(Contains(page, "2 turns; rules kevin (1 episode), open (1 episode)"));
  CHECK(Contains(page, "<b>Warning:</b> " + kevin.database + ": " + warning));
  const Json event = Lines(kevin({"--json"}).output).at(0);
  CHECK(event["rules"] == Json({{"kevin", 1}, {"open", 1}}));
  CHECK(Contains(event["warning"].get<std::string>(), warning));
}

TEST_CASE("a report keeps rules apart where it is asked to") {
  const MixedRules kevin;
  const std::string page_file = (kevin.folder / "report.html").string();
  const std::string text = kevin({"--rules", "kevin", "--html", page_file}).output;
  CHECK(Contains(text, "1 problem, 1 episode, 1 turn; rules kevin"));
  CHECK_FALSE(Contains(text, "rules kevin ("));
  CHECK_FALSE(Contains(text, "warning"));
  CHECK_FALSE(Contains(Bytes(page_file), "Warning"));
  const auto sides = Lines(kevin({"--by", "rules", "--json"}).output);
  REQUIRE(sides.size() == 3);
  CHECK((sides[0]["side"] == "rules kevin" && sides[0]["metrics"]["mean_avg"]["value"] == Approx(1.5)));
  CHECK((sides[1]["side"] == "rules open" && sides[1]["metrics"]["mean_avg"]["value"] == Approx(4)));
  CHECK((sides[0]["warning"].is_null() && sides[1]["rules"] == Json({{"open", 1}})));
  CHECK(Contains(kevin({"--rules", "kernelbench"}).error, "that were judged by --rules kernelbench"));
  CHECK(kevin({"--rules", "own"}).code == 2);
}

}  // namespace
}  // namespace kevin
