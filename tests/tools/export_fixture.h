#pragma once
// Records to export, and what their tests do with the files.

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "env/problem/problem.h"
#include "tests/support/search_text.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {

inline int Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline void Write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string Nvcc() { return Shell("command -v nvcc >/dev/null") == 0 ? "nvcc" : ""; }

// Three episodes at ReLU whose first turns answer the same prompt.
struct ExportFixture {
  TemporaryFolder folder;
  std::string database = (folder / "kevin.db").string();
  Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  std::vector<std::string> episodes;

  ExportFixture() {
    Store store = Store::Open(database, OpenMode::kCreate);
    const std::string run = store.BeginRun(SampleRun());
    const std::string kernel = testing::SearchText(problem, "small", "cpp");
    for (const double speedup : {1.5, 1.52, 2.5}) {
      ProblemRecord record = SampleProblem();
      record.text = problem.text, record.content_hash = problem.content_hash;
      EpisodeRecord episode = SampleEpisode(run);
      episode.problem_hash = problem.content_hash;
      episodes.push_back(store.BeginEpisode(episode, record));
      TurnRecord turn = SampleTurn(1, speedup);
      turn.evaluation.source = kernel + "// " + std::to_string(speedup) + "\n";
      turn.evaluation.candidate_hash = ContentHash(turn.evaluation.source);
      turn.evaluation.speedup->log_se = 0.02;
      store.AppendTurn(episodes.back(), turn);
      TurnRecord failed = SampleTurn(2, 1);
      failed.evaluation = {}, failed.evaluation.outcome = "parse_failed", failed.reward = 0;
      failed.token_ids.clear(), failed.logprobs.clear(), failed.prompt_token_ids.clear();
      store.AppendTurn(episodes.back(), failed);
      store.FinishEpisode(episodes.back(), {EpisodeState::kDone, "", 1, speedup, 1, 3, "best.cpp", 12.5});
    }
  }
  Result operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--db", database});
    return RunCommand({&AddExportCommand}, std::move(arguments));
  }
};

}  // namespace kevin
