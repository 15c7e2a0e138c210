#pragma once
// A database with tokens, a tiny model, and `kevin train` over them as a user runs it.

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "policies/local/files/model_config.h"
#include "tests/folders.h"
#include "tests/policies/local/formula_model.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVocabulary = 32;

inline std::string ReadAll(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline void MakeModel(const fs::path& folder) {
  local::ModelConfig config;
  config.family = local::ModelFamily::kQwen2;
  config.hidden = 16, config.layers = 2, config.heads = 2, config.kv_heads = 1, config.head_dim = 8;
  config.ffn = 32, config.vocabulary = kVocabulary, config.context = 128, config.qkv_bias = true;
  config.dtype = local::NumberType::kF32;
  local::WriteFormulaModel(folder, config, 0.6f);
}

// Two problems, four episodes each, three turns each; speed-ups and tokens by a formula. `first_logprob`: of each reply.
inline void MakeRecords(const fs::path& database, bool with_tokens, float first_logprob = -3.4f) {
  Store store = Store::Open(database, OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun());
  for (int e = 0; e < 8; ++e) {
    ProblemRecord problem = SampleProblem();
    problem.id = e % 2 == 0 ? "level1/19" : "level1/20";
    problem.text = problem.id, problem.content_hash = ContentHash(problem.text);
    EpisodeRecord episode = SampleEpisode(run);
    episode.problem = problem.id, episode.problem_hash = problem.content_hash;
    const std::string id = store.BeginEpisode(episode, problem);
    for (int t = 1; t <= 3; ++t) {
      TurnRecord turn = SampleTurn(t, 1 + 0.3 * ((e * 3 + t * 5) % 7));
      turn.evaluation = SampleEvaluation(id + std::to_string(t), turn.evaluation.speedup->value);
      turn.evaluation.speedup->log_se = 0.001, turn.reward = turn.evaluation.score;
      turn.model.tokenizer_hash.clear(), turn.reasoning = "Okay, so";
      turn.sampling = WholeSampling();
      turn.prompt_token_ids.clear(), turn.token_ids.clear(), turn.logprobs.clear();
      for (int i = 0; with_tokens && i < 6 + t; ++i)
        turn.prompt_token_ids.push_back((e + i * t) % kVocabulary);
      for (int i = 0; with_tokens && i < 4 + e; ++i)
        turn.token_ids.push_back((e * 7 + i * i + t) % kVocabulary);
      turn.logprobs.assign(turn.token_ids.size(), -3.4f);
      if (with_tokens) turn.logprobs[0] = first_logprob;
      store.AppendTurn(id, turn);
    }
    store.FinishEpisode(id, {});
  }
}

struct TrainResult {
  int code = -1;
  std::string errors;
  std::vector<json> events;
};

class World {
 public:
  World() {
    MakeModel(folder_ / "model");
    MakeRecords(folder_ / "kevin.db", true);
  }

  TrainResult Train(const std::string& arguments, const std::string& environment = "",
                    const std::string& device = "cpu") const {
    const std::string command = "cd " + folder_.path().string() + " && " + environment + " " +
                                BinaryFolder().string() + "/bin/kevin train --json --device " + device +
                                " --dtype float32 " + arguments + " >out.jsonl 2>errors.txt </dev/null";
    TrainResult ran;
    const int status = std::system(command.c_str());
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ran.errors = ReadAll(folder_ / "errors.txt");
    std::ifstream lines(folder_ / "out.jsonl");
    for (std::string line; std::getline(lines, line);) ran.events.push_back(json::parse(line));
    return ran;
  }

  fs::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
};

inline const std::string kGrpo = "--model model --steps 4 --learning-rate 1e-3 ";

}  // namespace kevin
