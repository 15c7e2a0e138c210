#pragma once
// Records with every field filled, a temporary folder, and a look at a database behind the store's back.

#include <unistd.h>

#include <filesystem>
#include <string>

#include "trajectories/blob.h"
#include "trajectories/database.h"
#include "trajectories/store.h"

namespace kevin {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kevin-store-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Database Look(const std::filesystem::path& path) {
  return Database(path, Database::Access::kReadWrite, 5000);
}

inline RunRecord SampleRun() {
  RunRecord run;
  run.command = "kevin run --problem level1/19";
  run.program_version = "0.1.0";
  run.machine = R"({"cpu":"test"})";
  return run;
}

inline ProblemRecord SampleProblem() {
  ProblemRecord problem;
  problem.text = "id = \"level1/19\"\n";
  problem.content_hash = ContentHash(problem.text);
  problem.id = "level1/19";
  problem.name = "ReLU";
  problem.families = {"elementwise"};
  problem.flags = {"easy", "two words"};
  return problem;
}

inline EpisodeRecord SampleEpisode(const std::string& run) {
  EpisodeRecord e;
  e.run = run;
  e.problem = "level1/19";
  e.problem_hash = SampleProblem().content_hash;
  e.policy = "search";
  e.device = "cpu: test";
  e.isolation = "full";
  e.workload.size = "small";
  e.workload.inputs = "default";
  e.workload.precision = "fp32";
  e.seed = 0xF000'0000'0000'0001u;  // above 2^63
  e.turns_asked = 8;
  e.prompt_template = "kevin-1";
  e.prompt_template_hash = ContentHash("template");
  e.start_source = "start kernel";
  e.note = "try harder";
  e.until = 1.5;
  e.workload.tf32 = true, e.workload.rules = "open";
  return e;
}

inline EvaluationRecord SampleEvaluation(const std::string& source, double speedup) {
  EvaluationRecord e;
  e.kind = "cpp";
  e.source = source;
  e.candidate_hash = ContentHash("cpp" + source);
  e.key = ContentHash("key" + source);
  e.key_parts = {{"candidate", e.candidate_hash},
                 {"threads", "2"},
                 {"device_model", "test"},
                 {"tolerance_version", "1"},
                 {"baseline_version", "eager 2.11"},
                 {"toolchain_version", "g++ 12"},
                 {"driver", "none"},
                 {"include_hashes", "abc"},
                 {"environment_version", "1"},
                 {"size", "small"}};
  e.problem_hash = SampleProblem().content_hash;
  e.workload.size = "small", e.workload.inputs = "default", e.workload.precision = "fp32",
  e.device = "cpu: test", e.isolation = "full";
  e.workload.tf32 = true;
  e.outcome = "measured";
  e.compiled = e.correct = true;
  e.verdict = "fast";
  e.speedup = Ratio{speedup, speedup * 0.9, speedup * 1.1, 0.01, 30, 3};
  e.against_start = Ratio{1.25, 1.2, 1.3};
  e.candidate_us = 10.5, e.reference_us = 21.0, e.gb_per_s = 12.0, e.gflop_per_s = 3.0, e.floor_us = 2.0;
  e.max_error = 1e-7, e.error_bound = 1e-6;
  e.score = 0.3 + speedup;
  e.compile_s = 0.5, e.verify_s = 0.25, e.measure_s = 1.0, e.wait_s = 0.125;
  e.seeds = {1, 0xFFFF'FFFF'FFFF'FFFFu};
  e.samples = {{0, 0, "sequential", "candidate", 7, 70.5}, {1, 0, "fixed", "reference", 7, 140.25}};
  e.log = "warning: unused";
  e.machine = R"({"load":0.5})";
  e.kernels = R"([{"name":"relu<4>","grid":"132 x 1 x 1","block":"256 x 1 x 1","registers":40,)"
              R"("spill_store_bytes":0,"occupancy":0.75}])";
  e.launch_list = R"({"operations":[]})";
  e.profile = "The memory is busy 93 % of the time.";
  e.peak_gb_per_s = 4000, e.peak_gflop_per_s = 60000, e.device_s = 0.25;
  e.against_best = Ratio{1.05, 1.02, 1.08}, e.against_best_turn = 1;
  e.workload.rules = "open", e.backend = "triton", e.own_share = 0.75, e.device_us = 9.5;
  return e;
}

// From the whole distribution of a model at a temperature: what a trainer can compute.
inline SamplingRecord WholeSampling(double temperature = 0.9) {
  SamplingRecord sampling;
  sampling.temperature = temperature, sampling.top_p = 1, sampling.top_k = 0, sampling.min_p = 0;
  sampling.max_tokens = 16384;
  return sampling;
}

inline TurnRecord SampleTurn(int turn, double speedup) {
  TurnRecord t;
  t.turn = turn;
  t.messages = {{"system", "You write kernels."}, {"user", "Turn " + std::to_string(turn)}};
  t.reply = "```cpp\nkernel " + std::to_string(turn) + "\n```";
  t.reasoning = "because";
  t.prompt_token_ids = {1, 2, 151643};
  t.token_ids = {-1, 7, 2147483647};
  t.logprobs = {-0.5f, -0.25f, -0.125f};
  t.sampling.temperature = 0.9, t.sampling.top_p = 0.95, t.sampling.max_tokens = 16384;
  t.sampling.top_k = 20, t.sampling.min_p = 0.05;
  t.sampling.seed = 0x8000'0000'0000'0000u;
  t.usage = {100, 200, 50, 25};
  t.stop_reason = "stop";
  t.model = {"search 1", "w", "t", "c"};
  t.parser_version = "1";
  t.prompt_template = "kevin-1";
  t.prompt_template_hash = ContentHash("template");
  t.summary = "wider vectors";
  t.feedback = "1.20x faster";
  t.source_path = "kevin-out/E/1.cpp";
  t.generate_s = 0.1, t.overhead_s = 0.05, t.seconds = 2.0, t.tune_s = 0.75, t.reply_form = "diff";
  t.trials = {{{{"TILE", 64}, {"A", -1}}, "measured", "", 12.5, false, false, 0.5},
              {{{"TILE", 32}, {"A", -1}}, "wrong", "out[0] is 1", std::nullopt, false, false, 0.25},
              {{{"TILE", 64}, {"A", 1}}, "measured", "", 10.0, true, true, 0.25}};
  t.evaluation = SampleEvaluation("kernel " + std::to_string(turn), speedup);
  t.reward = t.evaluation.score;
  return t;
}

// An episode that has begun in a new run; returns its id.
inline std::string BeginSample(Store& store) {
  return store.BeginEpisode(SampleEpisode(store.BeginRun(SampleRun())), SampleProblem());
}

}  // namespace kevin
