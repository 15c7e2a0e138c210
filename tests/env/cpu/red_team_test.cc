// Hostile candidates, one file each in red_team/, judged as any other: none may gain from its attack. And
// correct ones in red_team/correct/, none of which may be refused.

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "env/cpu/cpu_environment.h"
#include "env/error.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/folders.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

enum class Expected {
  kCaught,  // not measured
  kNoGain   // may be measured: what it does brings nothing or is legitimate
};

struct Attack {
  std::string file;
  Expected expected = Expected::kCaught;
  std::string problem = "level1/19";
};

// Attacks on a shared machine's time: whether they are noticed or fall flat depends on the moment. (The
// helper thread of helper_thread_tail starts first and has mostly finished when its call returns;
// defer_after_audit guesses from pauses which batch was an audit, and stays correct where other work
// stretches them. What burns the cores of others is stopped while others run.)
const std::set<std::string> kNoGain = {"burn_all_the_time",     "burn_bursts",        "burn_before_own_turn",
                                       "burn_from_constructor", "work_before_go",     "slow_first_calls",
                                       "closes_descriptors",    "changes_rounding",   "replaces_openmp",
                                       "prints_a_gigabyte",     "forge_done_by_tail", "helper_thread_tail",
                                       "defer_after_audit",     "resumes_itself",     "leaves_a_message"};

fs::path Folder() { return SourceFolder() / "tests/env/cpu/red_team"; }

const std::string kShortCalls = (Folder() / "problems/short_calls.toml").string();

const std::string kShortSum = (Folder() / "problems/short_sum.toml").string();

const std::map<std::string, std::string> kProblems = {{"work_ahead_in_private", kShortSum},
                                                      {"half_precision_matmul", "level1/1"},
                                                      {"half_of_k_matmul", "level1/1"},
                                                      {"half_precision_when_timed", "level1/1"},
                                                      {"coarse_when_timed", "level1/1"},
                                                      {"weights_of_the_first_call", "level1/12"},
                                                      {"index_out_of_range", "level1/51"},
                                                      {"softmax_without_maximum", "level1/23"},
                                                      {"loss_around_64", "level1/95"},
                                                      {"softmax_around_66", "level1/23"},
                                                      {"loss_around_130", "level1/95"},
                                                      {"tanh_by_exponentials", "level1/22"},
                                                      {"softplus_unguarded", "level1/29"},
                                                      {"max_from_zero", "level1/49"},
                                                      // Batches of many short calls.
                                                      {"defer_after_audit", kShortCalls},
                                                      {"defer_behind_garbage", kShortCalls},
                                                      {"defer_by_stack", kShortCalls},
                                                      {"defer_pairs", kShortCalls},
                                                      {"defer_to_last", kShortCalls},
                                                      {"first_does_all", kShortCalls},
                                                      {"first_guesses_strides", kShortCalls},
                                                      {"forge_returned", kShortCalls},
                                                      {"leaves_a_message", kShortCalls},
                                                      {"own_serving_loop", kShortCalls},
                                                      {"work_ahead", kShortCalls},
                                                      {"work_ahead_in_step", kShortCalls},
                                                      {"ends_during_measurement", kShortCalls}};

std::vector<fs::path> SourcesIn(const fs::path& folder) {
  std::vector<fs::path> sources;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".cpp") sources.push_back(entry.path());
  }
  std::sort(sources.begin(), sources.end());
  return sources;
}

Candidate CandidateFrom(const fs::path& path) {
  std::string text = TextOf(path);
  for (const char* header : {"control_page.h", "removed_marks.h", "rows_in_lanes.h", "inout/cache.h"}) {
    const std::string include = "#include \"" + fs::path(header).filename().string() + "\"";
    if (const size_t at = text.find(include); at != std::string::npos)
      text.replace(at, include.size(), TextOf(Folder() / header));
  }
  return {"cpp", text};
}

// All attacks, sorted by problem: an evaluator keeps one problem ready.
std::vector<Attack> Attacks() {
  std::vector<Attack> attacks;
  for (const fs::path& path : SourcesIn(Folder())) {
    const std::string name = path.stem();
    const auto problem = kProblems.find(name);
    attacks.push_back({name, kNoGain.count(name) ? Expected::kNoGain : Expected::kCaught,
                       problem == kProblems.end() ? "level1/19" : problem->second});
  }
  std::stable_sort(attacks.begin(), attacks.end(),
                   [](const Attack& a, const Attack& b) { return a.problem < b.problem; });
  return attacks;
}

// One environment for all: with a secret on standard input, which no candidate may find there.
CpuEnvironment& SharedEnvironment() {
  static const TemporaryFolder cache;
  static const std::unique_ptr<CpuEnvironment> environment = [] {
    int ends[2];
    if (pipe(ends) == 0 && write(ends[1], "secret\n", 7) == 7) dup2(ends[0], STDIN_FILENO);
    return MakeCpuEnvironmentForTools(SmallLimits(cache.path()));
  }();
  return *environment;
}

bool HasControls(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return c == 0x7f || (c < 0x20 && c != '\n' && c != '\t'); });
}

// The kernel that an attack which may be measured stands for: all of them answer a ReLU.
const char kCorrectRelu[] =
    "extern \"C\" void launch(const float* x, float* out) {\n"
    "#pragma omp parallel for schedule(static)\n"
    "for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;\n}\n";

// A gain is what stands after the second measurement that every winner gets (among so many, one 99 % interval
// may lie too high by chance), and against the correct kernel: where that beats eager, an attack may as well.
bool Blocked(const Attack& attack, const Outcome& outcome, const Problem& problem,
             const Candidate& candidate) {
  if (!std::holds_alternative<Measured>(outcome)) return true;
  if (attack.expected == Expected::kCaught) return false;
  if (!SeemsFaster(outcome)) return true;
  EvaluateOptions confirm;
  confirm.confirm = true;
  confirm.start_source = kCorrectRelu;
  const Outcome again = SharedEnvironment().Evaluate(problem, candidate, confirm).outcome;
  Print(attack.file + ", again", again);
  const auto* measured = std::get_if<Measured>(&again);
  return !SeemsFaster(again) || (measured->against_start && measured->against_start->low <= kGain);
}

// Attacks that gain against eager only where a correct kernel would too: they are timed in pairs with one.
struct PairedAttack {
  std::string attack, problem, correct_kernel;
  // What it does shows only at pauses, of which few may come while others run; or it is honest in batches that begin late.
  bool may_be_measured = false;
};
const std::vector<PairedAttack> kPairedAttacks = {
    {"polls_for_poison", "long_loop", "long_loop", true},
    {"done_then_work", "long_loop", "long_loop"},
    {"samples_after_side_by_side", "one_row", "one_row"},
    {"compares_after_side_by_side", "one_row", "one_row"},
    {"compares_groups_of_four", "one_row", "one_row", true},
    {"counts_continues", "one_row", "one_row", true},
    {"feels_pauses", "one_row", "one_row", true},
    {"reads_through_second_mapping", "one_row", "one_row", true},
    {"reads_through_many_mappings", "one_row", "one_row", true},
    {"gives_back_what_it_read", "one_row", "one_row", true},
    {"compares_groups_of_four", "two_pages", "one_row", true},
    {"compares_groups_of_four", "one_page", "one_row", true},
    {"sums_groups_of_four", "huge_page", "huge_page", true},
    {"honest_in_series", "one_row", "one_row", true},
    {"honest_in_series", "one_page", "one_row", true},
    {"quarter_ahead", "one_row", "one_row", true},
    {"main_thread_ends", "one_row", "one_row"},
    {"feels_marks_removed", "one_row", "one_row", true},
    {"feels_removed_marks_by_its_pages", "one_row", "one_row", true},
    {"feels_marks_and_compares_groups", "one_row", "one_row", true},
    {"feels_marks_and_pauses", "one_row", "one_row", true},
    {"eighth_ahead", "one_row", "one_row"},
    {"edges_ahead", "one_row", "one_row", true},
    {"overflowing_rows", "overflowing_rows", "cosh", true}};

// Empty: nothing.
std::string GainOf(const PairedAttack& one) {
  const fs::path folder = Folder() / "against_correct";
  EvaluateOptions pairs;
  pairs.start_source = TextOf(folder / (one.correct_kernel + ".cpp"));
  const Outcome outcome = SharedEnvironment()
                              .Evaluate(ListedProblem(Folder() / "problems" / (one.problem + ".toml")),
                                        CandidateFrom(folder / (one.attack + ".cpp")), pairs)
                              .outcome;
  Print(one.attack + ", " + one.problem, outcome);
  const auto* measured = std::get_if<Measured>(&outcome);
  if (measured == nullptr) return "";
  if (!one.may_be_measured) return "measured";
  const Ratio& gain = *measured->against_start;
  return gain.low <= kGain ? "" : fmt::format("{:.2f}x, not below {:.2f}x", gain.value, gain.low);
}

// Programs beside the test.
class BusyLoops {
 public:
  // `come_and_go`: each computes and sleeps in turn, up to 2 s each.
  BusyLoops(int count, bool come_and_go) {
    constexpr unsigned kMost_s = 3600;
    for (int i = 0; i < count; ++i) {
      const pid_t process = fork();
      if (process == 0) {
        alarm(kMost_s);
        const volatile bool is_steady = !come_and_go;
        std::mt19937 random(static_cast<unsigned>(i));
        for (;;) {
          const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 2000);
          while (is_steady || std::chrono::steady_clock::now() < end) {
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2000));
        }
      }
      processes_.push_back(process);
    }
  }
  ~BusyLoops() {
    for (const pid_t process : processes_) kill(process, SIGKILL), waitpid(process, nullptr, 0);
  }

 private:
  std::vector<pid_t> processes_;
};

}  // namespace

// One attack alone: red_team_test "no attack gains anything" -c work_ahead
TEST_CASE("no attack gains anything") {
  static size_t judged = 0, blocked = 0;
  static const std::vector<Attack> attacks = Attacks();
  REQUIRE(attacks.size() > 60);
  for (const Attack& attack : attacks) {
    DYNAMIC_SECTION(attack.file) {
      const Problem problem = ListedProblem(attack.problem);
      // An Error would make the turn void: a hostile candidate must get a verdict.
      const Candidate candidate = CandidateFrom(Folder() / (attack.file + ".cpp"));
      const Evaluation evaluation = SharedEnvironment().Evaluate(problem, candidate, {});
      const Outcome& outcome = evaluation.outcome;
      Print(attack.file, outcome);
      const bool is_blocked = Blocked(attack, outcome, problem, candidate);
      CHECK(is_blocked);
      CHECK(!HasControls(OutcomeReason(outcome) + evaluation.log));
      blocked += is_blocked;
      if (++judged == attacks.size()) std::printf("attacks blocked %zu/%zu\n", blocked, judged);
    }
  }
}

// Before the process was stopped outside its batches they were 1.2 to 6 times as fast.
TEST_CASE("no attack is faster than the correct kernel that it replaces") {
  for (const PairedAttack& one : kPairedAttacks) {
    DYNAMIC_SECTION(one.attack << " on " << one.problem) { CHECK(GainOf(one) == ""); }
  }
}

// Takes a quarter of an hour, so only by name: red_team_test "[busy]".
TEST_CASE("no attack is faster than the correct kernel beside programs that come and go", "[.][busy]") {
  constexpr int kRepeats = 3;
  int beaten = 0;
  const BusyLoops busy(4, true);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (const PairedAttack& one : kPairedAttacks) {
      INFO(one.attack << " on " << one.problem);
      const std::string gain = GainOf(one);
      CHECK(gain == "");
      beaten += gain.empty();
    }
  }
  std::printf("attacks beaten beside other programs %d/%zu\n", beaten, kRepeats * kPairedAttacks.size());
}

// Before there was a limit it held the lock of the CPU for minutes.
TEST_CASE("a kernel that sleeps in every call ends by the limit of its evaluation") {
  const TemporaryFolder cache;
  EnvironmentOptions options = SmallLimits(cache.path());
  options.limits.evaluation_timeout_s = 3;
  const std::unique_ptr<Environment> environment = MakeCpuEnvironment(options);
  const Candidate sleeps = {
      "cpp",
      "#include <unistd.h>\nextern \"C\" void launch(const float* x, float* out) {\n"
      "usleep(200000);\nfor (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;\n}\n"};
  const Evaluation evaluation = environment->Evaluate(ListedProblem("level1/19"), sleeps, {});
  Print("sleeps_a_little", evaluation.outcome);
  CHECK(std::string(OutcomeName(evaluation.outcome)) == "timed_out");
  CHECK(OutcomeReason(evaluation.outcome) ==
        "the whole evaluation (evaluation_timeout_s) took longer than 3 s");
  CHECK(!evaluation.samples.empty());  // it was under way
}

TEST_CASE("a process leaves no message for the next one") {
  const Outcome outcome =
      SharedEnvironment()
          .Evaluate(ListedProblem(kShortCalls), CandidateFrom(Folder() / "leaves_a_message.cpp"), {})
          .outcome;
  INFO(OutcomeReason(outcome));
  CHECK(std::holds_alternative<Measured>(outcome));
}

TEST_CASE("a candidate has no more processors than its reference") {
  const TemporaryFolder cache;
  EnvironmentOptions options = SmallLimits(cache.path());
  options.threads = 1;
  const std::unique_ptr<Environment> environment = MakeCpuEnvironment(options);
  const Problem problem = ListedProblem("level1/19");
  // Bound by arithmetic: a second core would nearly double the rate.
  const std::string body =
      "float s = x[i]; for (int k = 0; k < 3; ++k) s = __builtin_sqrtf(s * s + 1);\n"
      "out[i] = x[i] > 0 && s > 0 ? x[i] : 0;";
  const auto kernel = [&](const std::string& pragma) {
    return Candidate{"cpp", "extern \"C\" void launch(const float* x, float* out) {\n" + pragma +
                                "\nfor (long i = 0; i < B * N; ++i) {\n" + body + "\n}\n}\n"};
  };
  EvaluateOptions against_one;
  against_one.start_source = kernel("").source;
  const Evaluation evaluation =
      environment->Evaluate(problem, kernel("#pragma omp parallel for num_threads(8)"), against_one);
  Print("more_threads", evaluation.outcome);
  const auto* measured = std::get_if<Measured>(&evaluation.outcome);
  REQUIRE(measured != nullptr);
  REQUIRE(measured->against_start.has_value());
  CHECK(measured->against_start->low <= kGain);
}

// A cache of which each call writes a row. What fills it again and again, or says "done" too early, may be measured: timed
// in pairs with the correct kernel it gains nothing.
TEST_CASE("no attack on an input-output gains anything") {
  const std::set<std::string> may_be_measured = {"works_before_go", "writes_after_done"};
  const Problem problem = ListedProblem(Folder() / "problems/cache_step.toml");
  const std::vector<fs::path> attacks = SourcesIn(Folder() / "inout"),
                              correct = SourcesIn(Folder() / "inout/correct");
  REQUIRE(attacks.size() >= 11);
  REQUIRE(correct.size() == 2);
  for (const fs::path& path : correct) {
    INFO(path.stem());
    const Outcome outcome = SharedEnvironment().Evaluate(problem, CandidateFrom(path), {}).outcome;
    Print("inout/correct/" + path.stem().string(), outcome);
    CHECK(std::holds_alternative<Measured>(outcome));
  }
  EvaluateOptions pairs;
  pairs.start_source = CandidateFrom(correct.front()).source;
  for (const fs::path& path : attacks) {
    INFO(path.stem());
    const bool may_pass = may_be_measured.count(path.stem()) > 0;
    const Outcome outcome = SharedEnvironment()
                                .Evaluate(problem, CandidateFrom(path), may_pass ? pairs : EvaluateOptions{})
                                .outcome;
    Print("inout/" + path.stem().string(), outcome);
    const auto* measured = std::get_if<Measured>(&outcome);
    if (!may_pass) CHECK(measured == nullptr);
    if (measured && may_pass) CHECK(measured->against_start->low <= kGain);
  }
}

TEST_CASE("correct kernels pass") {
  int passed = 0, all = 0;
  for (const fs::path& path : SourcesIn(Folder() / "correct")) {
    INFO(path.stem());
    const Outcome outcome =
        SharedEnvironment().Evaluate(ListedProblem("level1/19"), CandidateFrom(path), {}).outcome;
    Print(path.stem(), outcome);
    CHECK(std::holds_alternative<Measured>(outcome));
    passed += std::holds_alternative<Measured>(outcome);
    ++all;
  }
  std::printf("correct kernels passed %d/%d\n", passed, all);
}

// Takes a quarter of an hour, so only by name: red_team_test "[busy]". A refusal here teaches a model nonsense.
TEST_CASE("correct kernels pass on a busy machine", "[.][busy]") {
  constexpr int kRepeats = 5, kBusyLoops = 4;
  std::vector<std::pair<std::string, fs::path>> kernels;  // of a problem
  for (const fs::path& path : SourcesIn(Folder() / "correct")) kernels.emplace_back("level1/19", path);
  const fs::path alternatives = SourceFolder() / "env/problems/alternatives/level1";
  for (const char* folder : {"012_diagonal_matmul", "023_softmax", "026_gelu", "036_rms_norm",
                             "040_layer_norm", "047_sum", "051_argmax", "089_cumsum", "095_cross_entropy"}) {
    const std::vector<fs::path> sources = SourcesIn(alternatives / folder);
    REQUIRE(!sources.empty());
    kernels.emplace_back("level1/" + std::to_string(std::stoi(folder)), sources.front());
  }
  REQUIRE(kernels.size() == 20);
  // The evaluator first: it is not one of the programs that disturb.
  SharedEnvironment().Verify(ListedProblem("level1/19"), CandidateFrom(kernels.front().second), {});
  const BusyLoops busy(kBusyLoops, false);
  int passed = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (const auto& [problem, path] : kernels) {
      INFO(path);
      const Outcome outcome =
          SharedEnvironment().Evaluate(ListedProblem(problem), CandidateFrom(path), {}).outcome;
      Print(problem + " " + path.stem().string(), outcome);
      CHECK(std::holds_alternative<Measured>(outcome));
      passed += std::holds_alternative<Measured>(outcome);
    }
  }
  std::printf("correct kernels passed on a busy machine %d/%zu\n", passed, kRepeats * kernels.size());
}

// The standing check of the clock. A disturbed machine may spoil one measurement, not three.
TEST_CASE("a plain parallel loop is as fast as eager") {
  bool level = false;
  for (int attempt = 0; attempt < 3 && !level; ++attempt) {
    const Outcome outcome =
        SharedEnvironment()
            .Evaluate(ListedProblem("level1/19"), CandidateFrom(Folder() / "correct/plain_loop.cpp"), {})
            .outcome;
    Print("plain_loop", outcome);
    const auto* measured = std::get_if<Measured>(&outcome);
    REQUIRE(measured != nullptr);
    REQUIRE(measured->speedup.value < 5);
    level = measured->speedup.value > 0.7 && measured->speedup.value < 1.5;
  }
  CHECK(level);
}

}  // namespace kevin
