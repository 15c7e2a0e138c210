// Verdicts through the real evaluator: each outcome with a message that helps, keys, the kernel to start
// from, and an evaluator that dies.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "env/cpu/cpu_environment.h"
#include "env/error.h"
#include "env/process/machine.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/env/cpu/mlp_candidates.h"
#include "tests/folders.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

const std::string kRelu = R"(extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
)";

CpuEnvironment& SharedEnvironment() {
  static const TemporaryFolder cache;
  static const std::unique_ptr<CpuEnvironment> environment =
      MakeCpuEnvironmentForTools(SmallLimits(cache.path()));
  return *environment;
}

Outcome Verified(const std::string& source, const std::string& problem = "level1/19") {
  return SharedEnvironment().Verify(ListedProblem(problem), {"cpp", source}, {});
}

std::string Launch(const std::string& body) {
  return "#include <cmath>\n#include <unistd.h>\nextern \"C\" void launch(const float* x, float* out) {\n" +
         body + "\n}\n";
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::set<pid_t> Children() {
  std::istringstream in(TextOf("/proc/self/task/" + std::to_string(getpid()) + "/children"));
  std::set<pid_t> children;
  for (pid_t pid; in >> pid;) children.insert(pid);
  return children;
}

}  // namespace

TEST_CASE("a right kernel is right") { CHECK(std::string(OutcomeName(Verified(kRelu))) == "measured"); }

TEST_CASE("an incorrect kernel is reported with its place and both values") {
  const Outcome outcome =
      Verified(Launch("for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;\n"
                      "out[2 * N + 5] = 777;"));
  REQUIRE(std::string(OutcomeName(outcome)) == "wrong");
  const std::string reason = OutcomeReason(outcome);
  INFO(reason);
  CHECK(Contains(reason, "out[2, 5] = 777"));
  CHECK(Contains(reason, "expected"));
  CHECK(Contains(reason, "1 of "));
  const Wrong& wrong = std::get<Wrong>(outcome);
  CHECK(wrong.max_error > wrong.error_bound);
}

TEST_CASE("an incorrect call names the member of the mixture that its inputs were of") {
  for (int i = 0; i < 3; ++i) {  // the first member is drawn at random
    const Outcome outcome = Verified(
        Launch("for (long i = 0; i < B * N; ++i) out[i] = x[i] > 3.5f ? 3.5f : x[i] > 0 ? x[i] : 0;"));
    REQUIRE(std::string(OutcomeName(outcome)) == "wrong");
    const std::string reason = OutcomeReason(outcome);
    INFO(reason);
    CHECK((Contains(reason, "the inputs of this call were heavy-tailed") ||
           Contains(reason, "the inputs of this call were bell-shaped times 8")));
  }
}

TEST_CASE("an output that was never written says so") {
  const Outcome outcome = Verified(Launch("out[0] = x[0] > 0 ? x[0] : 0;"));
  REQUIRE(std::string(OutcomeName(outcome)) == "wrong");
  CHECK(Contains(OutcomeReason(outcome), "never written"));
}

TEST_CASE("writing beside the output is wrong") {
  const std::string loop = "for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;\n";
  CHECK(Contains(OutcomeReason(Verified(Launch(loop + "out[B * N] = 1;"))), "past the end of output `out`"));
  CHECK(Contains(OutcomeReason(Verified(Launch(loop + "out[B * N + 1000] = 1;"))),
                 "past the end of output `out`"));
  CHECK(Contains(OutcomeReason(Verified(Launch(loop + "out[-1] = 1;"))), "before the start of output `out`"));
}

TEST_CASE("a crash names the signal and what was printed") {
  const Outcome outcome = Verified(
      "#include <cstdio>\n" + Launch("std::fprintf(stderr, \"about to fall\\n\"); *(volatile int*)8 = 1;"));
  REQUIRE(std::string(OutcomeName(outcome)) == "crashed");
  CHECK(Contains(OutcomeReason(outcome), "signal 11"));
  CHECK(Contains(OutcomeReason(outcome), "about to fall"));
  CHECK(std::string(OutcomeName(Verified(Launch("_exit(0);")))) == "crashed");
  CHECK(Contains(OutcomeReason(Verified("#include <cstdlib>\n" + Launch("std::abort();"))), "aborted"));
}

TEST_CASE("a call past its limit is timed out") {
  const Outcome outcome = Verified(Launch("sleep(100);"));
  REQUIRE(std::string(OutcomeName(outcome)) == "timed_out");
  CHECK(std::get<TimedOut>(outcome).limit_s == 2);
  CHECK(Contains(OutcomeReason(outcome), "2 s"));
}

TEST_CASE("what does not compile or load has the compiler's words") {
  const Outcome syntax = Verified("extern \"C\" void launch(const float* x, float* out) { out[0] = x[0] }\n");
  REQUIRE(std::string(OutcomeName(syntax)) == "compile_failed");
  CHECK(Contains(std::get<CompileFailed>(syntax).log, "candidate.cpp:1:"));
  const Outcome missing = Verified("void other() {}\n");
  REQUIRE(std::string(OutcomeName(missing)) == "compile_failed");
  CHECK(Contains(std::get<CompileFailed>(missing).log, "launch"));
}

TEST_CASE("a compile past its limit is done once more, in exclusive execution") {
  const TemporaryFolder folder;
  const fs::path wrapper = folder.path() / "bin/g++";
  fs::create_directories(folder.path() / "bin");
  fs::create_directories(folder.path() / "lib");
  std::ofstream(wrapper)
      << "#!/bin/sh\ncase \"$1\" in --version|-E|-print*) exec /usr/bin/g++ \"$@\";; esac\n"
      << "while [ ! -e " << (folder.path() / "lib/ready").string()
      << " ]; do sleep 0.1; done\nexec /usr/bin/g++ \"$@\"\n";
  fs::permissions(wrapper, fs::perms::owner_all);
  const char* before = std::getenv("KEVIN_CXX");
  const std::string kept = before ? before : "";
  setenv("KEVIN_CXX", wrapper.c_str(), 1);
  EnvironmentOptions options = SmallLimits(folder.path() / "cache");
  options.limits.compile_timeout_s = 4;
  const auto environment = MakeCpuEnvironmentForTools(options);
  kept.empty() ? unsetenv("KEVIN_CXX") : setenv("KEVIN_CXX", kept.c_str(), 1);
  const auto start = std::chrono::steady_clock::now();
  // Ready in the second compile only.
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(4500));
    std::ofstream(folder.path() / "lib/ready") << "";
  });
  CHECK(std::string(OutcomeName(environment->Verify(ListedProblem("level1/19"), {"cpp", kRelu}, {}))) ==
        "measured");
  CHECK(SecondsSince(start) > 4);
  later.join();
  fs::remove(folder.path() / "lib/ready");
  const Outcome outcome = environment->Verify(ListedProblem("level1/19"), {"cpp", kRelu + "\n"}, {});
  REQUIRE(std::string(OutcomeName(outcome)) == "timed_out");
  CHECK(OutcomeReason(outcome) == "compile took longer than 4 s");
}

TEST_CASE("index outputs are right wherever they point at an extreme value") {
  const std::string argmax = R"(extern "C" void launch(const float* x, long* out) {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    for (long n = 0; n < N; ++n) {
      long best = 0;
      for (long d = 1; d < D; ++d) {
        if (x[(b * D + d) * N + n] > x[(b * D + best) * N + n]) best = d;
      }
      out[b * N + n] = best OFFSET;
    }
  }
}
)";
  const auto with = [&](const std::string& offset) {
    std::string text = argmax;
    return text.replace(text.find("OFFSET"), 6, offset);
  };
  CHECK(std::string(OutcomeName(Verified(with(""), "level1/51"))) == "measured");
  const Outcome off = Verified(with("+ (b == 2 && n == 7 ? (best > 0 ? -1 : 1) : 0)"), "level1/51");
  REQUIRE(std::string(OutcomeName(off)) == "wrong");
  INFO(OutcomeReason(off));
  CHECK((Contains(OutcomeReason(off), "out[2, 7]") || Contains(OutcomeReason(off), "out[2053]")));
  CHECK(Contains(OutcomeReason(off), "points at"));
  CHECK(std::string(OutcomeName(Verified(with("- D"), "level1/51"))) == "wrong");
}

TEST_CASE("whole numbers and bools reach a kernel") {
  CHECK(OutcomeReason(Verified(R"(#include <cmath>
extern "C" void launch(const float* x, const long* targets, float* out) {
  double loss = 0;
  for (long b = 0; b < B; ++b) {
    const float* row = x + b * C;
    float most = row[0], sum = 0;
    for (long c = 1; c < C; ++c) most = std::fmax(most, row[c]);
    for (long c = 0; c < C; ++c) sum += std::exp(row[c] - most);
    loss += std::log(sum) + (most - row[targets[b]]);
  }
  *out = loss / B;
})",
                               "level1/95"))
            .empty());
  CHECK(OutcomeReason(Verified(R"(extern "C" void launch(const float* x, const bool* mask, float* out) {
  for (long b = 0; b < B; ++b) {
    float sum = 0;
    for (long n = 0; n < N; ++n) out[b * N + n] = sum += mask[b * N + n] ? x[b * N + n] : 0;
  }
})",
                               "level1/93"))
            .empty());
}

TEST_CASE("a reference may take its parameters as a dictionary") {
  const Problem problem = ListedProblem("level3/21");
  REQUIRE(problem.has_param_dict);
  const std::string body = " { for (long i = 0; i < B * O * (H / 2) * (W / 2); ++i) out[i] = 1; }\n";
  const Outcome outcome = Verified(LaunchSignature(problem) + body, "level3/21");
  REQUIRE(std::string(OutcomeName(outcome)) == "wrong");
  CHECK(Contains(OutcomeReason(outcome), "out[0, 0, 0, 0] = 1, expected "));
}

TEST_CASE("a reference may return an input or a view of one") {
  const std::string relu = "return torch.relu(x)";
  for (const std::string same : {"return x", "return x[:x.size(0)]"}) {
    INFO(same);
    std::string text = ListedProblem("level1/19").text;
    text.replace(text.find(relu), relu.size(), same);
    EvaluateOptions options;
    options.workload.size = "small";
    const auto answers = SharedEnvironment().Admit(ParseProblem(text, "copy.toml"), options);
    CHECK(std::any_of(answers.begin(), answers.end(), [](const DecoyResult& a) { return a.must_pass; }));
    for (const DecoyResult& answer : answers) {
      INFO(answer.name);
      CHECK((!answer.must_pass || answer.passed));
    }
  }
}

TEST_CASE("an input-output is written in place and compared as a whole") {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "cache.toml").string();
  std::string text = TextOf(SourceFolder() / "tests/env/cpu/red_team/problems/cache_step.toml");
  std::ofstream(path) << text;
  const auto kernel = [](const std::string& writes, const std::string& after = "") {
    return "extern \"C\" void launch(const float* x, float* keys, const long* position, float* out) {\n" +
           writes +
           "  for (long b = 0; b < B; ++b)\n    for (long n = 0; n < N; ++n) {\n      float sum = 0;\n"
           "      for (long d = 0; d < D; ++d) sum += (n == *position ? x[b * D + d] : keys[(b * N + n) * D + d]) * "
           "x[b * D + d];\n      out[b * N + n] = sum;\n    }\n" +
           after + "}\n";
  };
  const std::string write =
      "  for (long b = 0; b < B; ++b)\n    for (long d = 0; d < D; ++d) keys[(b * N + *position) * D + d] = x[b * D + "
      "d];\n";
  const Outcome correct = Verified(kernel(write), path);
  INFO(OutcomeReason(correct));
  CHECK(std::holds_alternative<Measured>(correct));
  const Outcome left = Verified(kernel(""), path);
  CHECK(std::holds_alternative<Wrong>(left));
  CHECK(Contains(OutcomeReason(left), "input-output `keys` was left as it was before the call"));
  const Outcome beside = Verified(kernel(write, "  keys[(*position ? 0 : N - 1) * D] += 1;\n"), path);
  CHECK(std::holds_alternative<Wrong>(beside));
  CHECK(Contains(OutcomeReason(beside), "keys["));
  const Outcome past = Verified(kernel(write + "  keys[B * N * D] = 1;\n"), path);
  CHECK(Contains(OutcomeReason(past), "wrote past the end of input-output `keys`"));
  const Outcome before = Verified(kernel(write + "  keys[-1] = 1;\n"), path);
  CHECK(Contains(OutcomeReason(before), "wrote before the start of input-output `keys`"));
  const Evaluation measured = SharedEnvironment().Evaluate(ListedProblem(path), {"cpp", kernel(write)}, {});
  INFO(OutcomeReason(measured.outcome));
  CHECK(std::holds_alternative<Measured>(measured.outcome));
}

TEST_CASE("a problem may have input-outputs alone, read as they were before the call") {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "scaled.toml").string();
  const auto write = [&](const std::string& statement, const std::string& role) {
    std::ofstream(path) << "id = \"mine/scaled\"\nname = \"Scaled in place\"\nfamilies = [\"elementwise\"]\n"
                           "reference = '''\ndef forward(x):\n    "
                        << statement
                        << "\n'''\n[sizes.small]\nN = 40000\n[[inputs]]\nname = \"x\"\nshape = [\"N\"]\n"
                        << role
                        << "[cost]\nflops = \"N\"\nbytes = \"8*N\"\nmin_flops = 0\nmin_bytes = \"8*N\"\n";
  };
  const std::string inout = "role = \"inout\"\n";
  const auto kernel = [](const std::string& value) {
    return "extern \"C\" void launch(float* x) {\n  for (long i = 0; i < N; ++i) x[i] = " + value + ";\n}\n";
  };
  write("x.mul_(2).add_(1)", inout);
  CHECK(std::holds_alternative<Measured>(Verified(kernel("x[i] * 2 + 1"), path)));
  CHECK(std::holds_alternative<Wrong>(Verified(kernel("x[i] * 2"), path)));
  CHECK(std::holds_alternative<Wrong>(Verified(kernel("x[i]"), path)));
  CHECK(std::holds_alternative<Measured>(
      SharedEnvironment().Evaluate(ListedProblem(path), {"cpp", kernel("x[i] * 2 + 1")}, {}).outcome));
  const auto refusal = [&] {
    try {
      Verified(kernel("x[i]"), path);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadRequest);
      return std::string(error.what());
    }
    return std::string();
  };
  write("y = x * 2", inout);
  CHECK(Contains(refusal(), "leaves its input-output `x` as it is"));
}

TEST_CASE("plain loops over a convolution and the norm of a batch are right") {
  CHECK(OutcomeReason(Verified(R"(extern "C" void launch(const float* x, const float* weight, float* out) {
#pragma omp parallel for
  for (long o = 0; o < B * O; ++o) {
    for (long h = 0; h < H - 2; ++h) {
      for (long w = 0; w < W - 2; ++w) {
        float sum = 0;
        for (long c = 0; c < C; ++c)
          for (long k = 0; k < 9; ++k)
            sum += x[((o / O * C + c) * H + h + k / 3) * W + w + k % 3] * weight[(o % O * C + c) * 9 + k];
        out[(o * (H - 2) + h) * (W - 2) + w] = sum;
      }
    }
  }
})",
                               "level1/63"))
            .empty());
  CHECK(OutcomeReason(Verified(R"(#include <cmath>
extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  for (long c = 0; c < C; ++c) {
    float sum = 0, squares = 0;
    for (long b = 0; b < B; ++b) {
      float part = 0;
      for (long i = 0; i < H * W; ++i) part += x[(b * C + c) * H * W + i];
      sum += part;
    }
    const float mean = sum / (B * H * W);
    for (long b = 0; b < B; ++b) {
      float part = 0;
      for (long i = 0; i < H * W; ++i) {
        const float d = x[(b * C + c) * H * W + i] - mean;
        part += d * d;
      }
      squares += part;
    }
    const float scale = weight[c] / std::sqrt(squares / (B * H * W) + 1e-5f);
    for (long b = 0; b < B; ++b)
      for (long i = 0; i < H * W; ++i) {
        const long at = (b * C + c) * H * W + i;
        out[at] = (x[at] - mean) * scale + bias[c];
      }
  }
})",
                               "level1/33"))
            .empty());
}

TEST_CASE("a measured kernel comes with samples, seeds, rates and the kernel it started from") {
  EvaluateOptions options;
  std::vector<std::string> phases;
  options.on_phase = [&](const std::string& phase) { phases.push_back(phase); };
  options.start_source = Launch("for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;");
  const Evaluation evaluation =
      SharedEnvironment().Evaluate(ListedProblem("level1/19"), {"cpp", kRelu}, options);
  INFO(OutcomeReason(evaluation.outcome));
  const auto* measured = std::get_if<Measured>(&evaluation.outcome);
  REQUIRE(measured != nullptr);
  CHECK(phases == std::vector<std::string>{"compile", "verify", "measure"});
  REQUIRE(measured->against_start.has_value());
  CHECK(measured->against_start->low <= measured->against_start->value);
  CHECK(measured->speedup.processes >= 3);
  CHECK(measured->speedup.low < measured->speedup.value);
  CHECK(measured->speedup.value < measured->speedup.high);
  CHECK(measured->gb_per_s > 0);
  CHECK(measured->floor_us < measured->candidate_us);
  CHECK(std::set<uint64_t>(evaluation.seeds.begin(), evaluation.seeds.end()).size() ==
        evaluation.seeds.size());
  std::set<std::string> sides, timed_phases;
  std::set<int> processes;
  for (const Sample& sample : evaluation.samples) {
    sides.insert(sample.side);
    timed_phases.insert(sample.phase);
    if (sample.phase == "fixed") processes.insert(sample.process);
  }
  CHECK(sides == std::set<std::string>{"candidate", "reference", "start"});
  CHECK(timed_phases.count("sequential") == 1);
  CHECK(processes.size() >= 3);
}

TEST_CASE("parameters in one block are judged as any others") {
  const Problem mlp = LoadProblemFile(MlpPath());
  const Evaluation evaluation = SharedEnvironment().Evaluate(mlp, {"cpp", kMlpCpp}, {});
  INFO(OutcomeReason(evaluation.outcome));
  CHECK(std::holds_alternative<Measured>(evaluation.outcome));
  std::string text = kMlpCpp;
  text.replace(text.find("b7_offset"), 9, "b6_offset");
  CHECK(std::string(OutcomeName(SharedEnvironment().Verify(mlp, {"cpp", text}, {}))) == "wrong");
  const Outcome separate = SharedEnvironment().Verify(
      mlp,
      {"cpp", "extern \"C\" void launch(const float* x, const float* w1, const float* b1, float* out) {}"},
      {});
  REQUIRE(std::string(OutcomeName(separate)) == "compile_failed");
  INFO(std::get<CompileFailed>(separate).log);
  CHECK(Contains(std::get<CompileFailed>(separate).log, "required-signature"));
}

// level1/19 at two more shapes: 8 divides the elements of one of them.
Problem ReluAtTwoShapes() {
  const Problem relu = ListedProblem("level1/19");
  return ParseProblem(relu.text +
                          "\n[[sizes.two]]\nB = 1\nN = 1000003\nweight = 3\n"
                          "[[sizes.two]]\nB = 16\nN = 10000\n",
                      "two_shapes.toml");
}

TEST_CASE("a kernel that is right at one shape and wrong at the other is wrong, and where is said") {
  EvaluateOptions options;
  options.workload.size = "two";
  std::vector<std::string> phases;
  options.on_phase = [&](const std::string& phase) { phases.push_back(phase); };
  const std::string no_tail = Launch(R"(
  for (long i = 0; i < B * N / 8; ++i)
    for (long j = 0; j < 8; ++j) out[i * 8 + j] = x[i * 8 + j] > 0 ? x[i * 8 + j] : 0;)");
  const Problem problem = ReluAtTwoShapes();
  const Evaluation evaluation = SharedEnvironment().Evaluate(problem, {"cpp", no_tail}, options);
  const std::string reason = OutcomeReason(evaluation.outcome);
  INFO(reason);
  REQUIRE(std::string(OutcomeName(evaluation.outcome)) == "wrong");
  CHECK(Contains(reason, "at two/1 (B = 1, N = 1000003): "));
  REQUIRE(evaluation.shapes.size() == 2);
  CHECK(std::string(OutcomeName(evaluation.shapes[0].outcome)) == "wrong");
  CHECK(std::string(OutcomeName(evaluation.shapes[1].outcome)) == "measured");
  CHECK(phases.front() == "compile two/2 (1 of 2)");  // the cheaper one

  // A constant of the other shape is in scope where it is compiled for that one.
  const std::string aware = Launch(R"(
  static_assert(B == 16 || N == 1000003);
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;)");
  const Evaluation right = SharedEnvironment().Evaluate(problem, {"cpp", aware}, options);
  INFO(OutcomeReason(right.outcome));
  const auto* measured = std::get_if<Measured>(&right.outcome);
  REQUIRE(measured != nullptr);
  REQUIRE(right.shapes.size() == 2);
  const auto& one = std::get<Measured>(right.shapes[0].outcome).speedup;
  const auto& other = std::get<Measured>(right.shapes[1].outcome).speedup;
  CHECK(measured->speedup.value == Approx(std::pow(one.value, 0.75) * std::pow(other.value, 0.25)));
  CHECK(std::log(measured->speedup.high / measured->speedup.value) ==
        Approx(std::hypot(0.75 * std::log(one.high / one.value), 0.25 * std::log(other.high / other.value))));
  CHECK(measured->speedup.processes >= 6);
  std::set<int> processes;
  for (const Sample& sample : right.samples) processes.insert(sample.process);
  CHECK(static_cast<int>(processes.size()) == right.shapes[0].processes + right.shapes[1].processes);
}

TEST_CASE("beside a slow candidate eager's batches have more calls than the candidate's") {
  const Problem relu = ListedProblem("level1/19");
  const Problem problem = ParseProblem(relu.text + "\n[[sizes.little]]\nB = 16\nN = 10000\n", "little.toml");
  EvaluateOptions options;
  options.workload.size = "little";
  const std::string slow = Launch(R"(
  for (long i = 0; i < B * N; ++i) {
    volatile float value = x[i];
    for (int k = 0; k < 100; ++k) value = value * 1.0f;
    out[i] = value > 0 ? value : 0;
  })");
  const Evaluation evaluation = SharedEnvironment().Evaluate(problem, {"cpp", slow}, options);
  INFO(OutcomeReason(evaluation.outcome));
  REQUIRE(std::holds_alternative<Measured>(evaluation.outcome));
  int most_of_candidate = 0, least_of_reference = 1 << 20;
  for (const Sample& sample : evaluation.samples) {
    if (sample.side == "candidate") most_of_candidate = std::max(most_of_candidate, sample.calls);
    if (sample.side == "reference") least_of_reference = std::min(least_of_reference, sample.calls);
  }
  CHECK(most_of_candidate == 1);
  CHECK(least_of_reference > 2);
}

TEST_CASE("a kernel to start from must be usable") {
  EvaluateOptions options;
  options.start_source = "not C++";
  CHECK_THROWS_AS(SharedEnvironment().Evaluate(ListedProblem("level1/19"), {"cpp", kRelu}, options), Error);
  CHECK_THROWS_AS(SharedEnvironment().Evaluate(ListedProblem("level1/19"), {"cuda", kRelu}, {}), Error);
}

TEST_CASE("the key changes with all that the verdict depends on") {
  const TemporaryFolder cache;
  EnvironmentOptions one_thread = SmallLimits(cache.path());
  one_thread.threads = 1;
  const auto other = MakeCpuEnvironmentForTools(one_thread);
  const Problem relu = ListedProblem("level1/19"), tanh = ListedProblem("level1/22");
  EvaluateOptions full, kernelbench, confirmed;
  full.workload.size = "full";
  kernelbench.workload.inputs = "kernelbench";
  confirmed.confirm = true;
  confirmed.start_source = kRelu;
  Environment& environment = SharedEnvironment();
  const std::string key = environment.EvaluationKey(relu, {"cpp", kRelu}, {});
  CHECK(key.size() == 64);
  CHECK(key == environment.EvaluationKey(relu, {"cpp", kRelu}, confirmed));
  std::set<std::string> keys = {key,
                                environment.EvaluationKey(relu, {"cpp", kRelu + " "}, {}),
                                environment.EvaluationKey(relu, {"ptx", kRelu}, {}),
                                environment.EvaluationKey(tanh, {"cpp", kRelu}, {}),
                                environment.EvaluationKey(relu, {"cpp", kRelu}, full),
                                environment.EvaluationKey(relu, {"cpp", kRelu}, kernelbench)};
  CHECK(keys.size() == 6);
  CHECK(keys.count(other->EvaluationKey(relu, {"cpp", kRelu}, {})) ==
        (environment.Facts().device == other->Facts().device ? 1 : 0));
}

TEST_CASE("an evaluator that is killed makes the turn void, and the next one works") {
  const TemporaryFolder cache;
  const std::set<pid_t> before = Children();
  const auto environment = MakeCpuEnvironmentForTools(SmallLimits(cache.path()));
  const Problem problem = ListedProblem("level1/19");
  REQUIRE(std::string(OutcomeName(environment->Verify(problem, {"cpp", kRelu}, {}))) == "measured");
  int killed = 0;
  for (const pid_t pid : Children()) {
    if (before.count(pid) == 0) killed += kill(pid, SIGKILL) == 0;
  }
  REQUIRE(killed == 1);
  try {
    environment->Verify(problem, {"cpp", kRelu}, {});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBroken);
    CHECK(Contains(error.what(), "kevin-evaluator"));
  }
  CHECK(std::string(OutcomeName(environment->Verify(problem, {"cpp", kRelu}, {}))) == "measured");
}

}  // namespace kevin
