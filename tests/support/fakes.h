#pragma once
// Fakes for slow or random parts: an environment that judges by a comment, policies that answer from a list
// or by a rule, a problem without a file, a temporary folder.

#include <fmt/format.h>
#include <stdlib.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "env/environment.h"
#include "env/error.h"
#include "env/problem/text.h"
#include "policies/policy.h"

namespace kevin::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kevin-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// y = max(x, 0) on [B, N], 4 x 8 at "small", 64 x 8 at "full".
inline Problem ReluProblem() {
  Problem problem;
  problem.id = "level1/19";
  problem.name = "ReLU";
  problem.families = {"elementwise"};
  problem.reference = "def forward(x):\n    return torch.relu(x)\n";
  TensorSpec x;
  x.name = "x";
  x.shape = {"B", "N"};
  TensorSpec y = x;
  y.name = "out";
  problem.inputs = {x};
  problem.outputs = {y};
  problem.sizes = {{"small", {{"B", 4}, {"N", 8}}}, {"full", {{"B", 64}, {"N", 8}}}};
  problem.flops = "B*N";
  problem.bytes = "8*B*N";
  problem.min_flops = "B*N";
  problem.min_bytes = "8*B*N";
  problem.text = "id = \"level1/19\"\n";
  problem.content_hash = Sha256Hex(problem.text);
  return problem;
}

// Judges a candidate by the comment in its first line:
//   // measured 1.5                                    correct, 1.5 times as fast (interval 1 % to each side); against
//                                                      another one: by the ratio of their numbers
//   // wrong | crash | timeout | refused | compile     this outcome
//   // error                                           throws Error(kBroken)
// With `facts` = GpuFacts() a correct kernel of a GPU kind has a kernel report and the device's peaks. `then`
// holds outcomes for later evaluations of a source, each used once in place of the comment; `at_size` gives
// the outcome of every source at a size ("wrong" at "mine/2").
class FakeEnvironment : public Environment {
 public:
  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override {
    const std::lock_guard lock(mutex_);
    const std::string comment = FirstLine(candidate.source);
    const std::string machine = MachineKey(problem, candidate, options);
    if (machine_keys && options.known && !options.confirm) {
      if (std::optional<Evaluation> known = options.known(machine)) {
        known->candidate_hash = Sha256Hex(candidate.kind + "\n" + candidate.source);
        known->key = EvaluationKey(problem, candidate, options);
        known->machine_key = machine;
        return *known;
      }
    }
    calls.push_back(comment + (problem.shape_sets.empty() ? "" : " at " + options.workload.size) +
                    (options.confirm ? " (confirm)" : "") +
                    (options.start_source.empty() ? "" : " beside " + NameOf(options.start_source)));
    if (before_evaluate) before_evaluate(static_cast<int>(calls.size()));
    if (options.on_phase) options.on_phase(options.confirm ? "confirm" : "measure");
    std::string verdict = comment;
    const bool again = evaluated_[comment]++ > 0;
    if (auto later = then.find(comment); again && later != then.end() && !later->second.empty()) {
      verdict = later->second.front();
      later->second.pop_front();
    }
    if (const auto here = at_size.find(options.workload.size); here != at_size.end())
      verdict = "// " + here->second;
    if (verdict == "// error") throw Error(ExitCode::kBroken, "evaluator: ended by signal 9");
    Evaluation evaluation;
    evaluation.outcome = Judge(verdict, options);
    evaluation.candidate_hash = Sha256Hex(candidate.kind + "\n" + candidate.source);
    evaluation.key = EvaluationKey(problem, candidate, options);
    evaluation.machine_key = machine;
    evaluation.rules_version = rules_version;
    evaluation.key_parts = {{"candidate", evaluation.candidate_hash}, {"threads", "2"}};
    evaluation.workload.size = options.workload.size;
    evaluation.workload.inputs = options.workload.inputs;
    evaluation.workload.precision = "fp32";
    evaluation.device = facts.device;
    evaluation.workload.tf32 = options.workload.tf32;
    evaluation.isolation = facts.isolation;
    evaluation.seeds = {calls.size()};
    evaluation.samples = {{0, 0, options.confirm ? "confirm" : "fixed", "candidate", 10, 100.0}};
    if (candidate.kind != "cpp" && std::holds_alternative<Measured>(evaluation.outcome)) AddGpu(&evaluation);
    return evaluation;
  }

  std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                            const EvaluateOptions& options) override {
    return Sha256Hex(candidate.source + problem.content_hash + options.workload.size +
                     options.workload.inputs + (options.workload.tf32 ? "tf32" : "") +
                     (rules_version == kRulesVersion ? "" : std::to_string(rules_version)));
  }
  std::string MachineKey(const Problem&, const Candidate& candidate,
                         const EvaluateOptions& options) override {
    return machine_keys ? "machine code of " + FirstLine(candidate.source) + " at " + options.workload.size +
                              " by " + std::to_string(rules_version)
                        : "";
  }
  std::string Graph(const Problem&, const std::string& size) override { return graphs[size]; }
  void Expect(const Problem& problem, const std::string& kind, const Workload& workload) override {
    const std::lock_guard lock(mutex_);
    expected.push_back(problem.id + " " + kind + " " + workload.size);
  }
  const EnvironmentFacts& Facts() const override { return facts; }
  std::optional<Diagnosis> Diagnose(const Problem&, const Candidate& candidate,
                                    const EvaluateOptions& options) override {
    diagnosed.push_back(FirstLine(candidate.source) + " at " + options.workload.size);
    if (diagnosis_fails) throw Error(ExitCode::kBroken, "evaluator: ended by signal 9");
    return diagnosis;
  }

  std::optional<Diagnosis> diagnosis;  // of every candidate
  bool diagnosis_fails = false;
  std::vector<std::string> diagnosed;  // the comments, with the size
  std::vector<std::string> calls;      // the comments that were evaluated, in order
  std::vector<std::string> expected;   // "level1/19 cpp small"
  std::map<std::string, std::deque<std::string>> then;
  std::map<std::string, std::string> at_size;
  std::function<void(int call)> before_evaluate;  // from 1
  double pair_half_width = 0.01;                  // of a comparison with the start
  bool machine_keys = false;                      // texts with equal first lines are one kernel
  int rules_version = kRulesVersion;              // an older one: judges as an older program did
  std::map<std::string, std::string> graphs;      // by size; JSON
  EnvironmentFacts facts{"cpu: fake, 2 threads", "full", {"cpp"}, "small", ""};

 private:
  static std::string FirstLine(const std::string& source) { return source.substr(0, source.find('\n')); }
  static std::string NameOf(const std::string& source) {
    const std::string line = FirstLine(source);
    return line.starts_with("// measured ") ? line.substr(12) : line;
  }

  Outcome Judge(const std::string& verdict, const EvaluateOptions& options) const {
    if (verdict.starts_with("// measured ")) return MeasuredAt(std::stod(verdict.substr(12)), options);
    if (verdict == "// wrong") return Wrong{"out[0, 3] is 1.5, should be 0.25", 1.25, 0.001};
    if (verdict == "// crash") return Crashed{"signal 11 (segmentation fault) in the first call"};
    if (verdict == "// timeout") return TimedOut{"verify", 20};
    if (verdict == "// refused") return Refused{"deferred work"};
    return CompileFailed{"candidate.cpp:2:3: error: 'y' was not declared in this scope\n"};
  }

  static void AddGpu(Evaluation* evaluation) {
    evaluation->kernels = {
        {"relu<4>", "132 x 1 x 1", "256 x 1 x 1", 40, 1024, 16384, 0, 0, 0.75, "registers"}};
    evaluation->launch_list = R"({"operations":[]})";
    evaluation->peak_gb_per_s = 4;
    evaluation->peak_gflop_per_s = 50;
    evaluation->device_s = 0.25;
  }

  Measured MeasuredAt(double speedup, const EvaluateOptions& options) const {
    Measured m;
    m.speedup = {speedup, speedup * 0.99, speedup * 1.01, 0.004, 30, 3};
    if (const std::string other = FirstLine(options.start_source); other.starts_with("// measured ")) {
      const double ratio = speedup / std::stod(other.substr(12));
      m.against_start = {ratio, ratio * (1 - pair_half_width), ratio * (1 + pair_half_width), 0.004, 30, 3};
    }
    m.verdict = speedup > 1.01 ? Verdict::kFast : speedup < 0.99 ? Verdict::kSlow : Verdict::kSame;
    m.reference_us = 100;
    m.candidate_us = 100 / speedup;
    m.gb_per_s = 2 * speedup;
    m.gflop_per_s = 0.25 * speedup;
    m.floor_us = 20;
    m.max_error = 1e-8;
    m.error_bound = 1e-6;
    return m;
  }

  std::map<std::string, int> evaluated_;
  std::mutex mutex_;
};

inline EnvironmentFacts GpuFacts() {
  return {"cuda:0: fake", "full", {"cuda", "ptx"}, "full", "Fake GPU, 132 multiprocessors, sm_90a"};
}

// A complete source with a comment of FakeEnvironment.
inline std::string FakeSource(const std::string& comment) {
  return fmt::format("// {}\nextern \"C\" void launch(const float* x, float* out) {{ out[0] = x[0]; }}\n",
                     comment);
}

inline std::string FakeReply(const std::string& comment, const std::string& summary = "Changed it.") {
  return fmt::format("```cpp\n{}```\n{}\n", FakeSource(comment), summary);
}

// Answers any number of episodes at once. The answer depends on problem, seed and turn alone; some answers
// repeat within an episode.
class SteadyPolicy : public Policy {
 public:
  explicit SteadyPolicy(int latency_ms = 0) : latency_ms_(latency_ms) {}

  Completion Complete(const Request& request, const CancelToken*, const OnText&) override {
    if (latency_ms_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(latency_ms_));
    const uint64_t seed = request.sampling.seed;
    const auto variant = Number(fmt::format("{} {} {}", request.task.problem, seed, request.task.turn)) % 7;
    const std::vector<std::string> comments = {"measured 1.5",  "wrong",         "measured 0.9", "compile",
                                               "measured 1.75", "measured 1.25", "crash"};
    Completion completion;
    completion.text = fmt::format("```cpp\n{}// {} {} {}\n```\nVariant {}.\n", FakeSource(comments[variant]),
                                  request.task.problem, seed, variant, variant);
    completion.stop_reason = "stop";
    completion.model = "steady";
    completion.usage.prompt_tokens = 100;
    completion.usage.completion_tokens = 10;
    return completion;
  }
  std::string Name() const override { return "steady"; }

 private:
  static uint64_t Number(const std::string& text) {
    return std::stoull(Sha256Hex(text).substr(0, 12), nullptr, 16);
  }

  const int latency_ms_;
};

// Answers from a list, in order; throws Error(kBroken) after its end. Keeps the requests. One thread.
class ScriptedPolicy : public Policy {
 public:
  explicit ScriptedPolicy(std::vector<std::string> replies) : replies_(std::move(replies)) {}

  Completion Complete(const Request& request, const CancelToken*, const OnText&) override {
    requests.push_back(request);
    if (requests.size() > replies_.size()) throw Error(ExitCode::kBroken, "scripted: no more answers");
    Completion completion;
    completion.text = replies_[requests.size() - 1];
    completion.stop_reason = "stop";
    completion.model = "scripted";
    return completion;
  }
  std::string Name() const override { return "scripted"; }
  std::string WhyNot(const Task&) const override { return why_not; }

  std::vector<Request> requests;
  std::string why_not;

 private:
  std::vector<std::string> replies_;
};

}  // namespace kevin::testing
