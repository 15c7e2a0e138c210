#pragma once
// Episodes with a fake environment and scripted replies (tests/support/fakes.h) in a database and folder of their own.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "agent/episode.h"
#include "tests/support/fakes.h"

namespace kevin::testing {

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// One database, one output folder, one problem; episodes run in them.
struct EpisodeFixture {
  TempFolder folder;
  Problem problem = ReluProblem();
  FakeEnvironment environment;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  std::string run = store.BeginRun({});
  EpisodeOptions options;
  EpisodeHooks hooks;
  CancelToken cancel{false};
  std::vector<Request> requests;  // of the latest episode

  EpisodeFixture() {
    options.run = run;
    options.output = folder.path() / "out";
    options.machine = "Fake CPU";
    options.threads = 2;
    options.audit_rates = {0, 0};
  }

  EpisodeRecord Run(const std::vector<std::string>& replies) {
    ScriptedPolicy policy(replies);
    if (options.turns == 8) options.turns = static_cast<int>(replies.size());
    const EpisodeRecord record = RunEpisode(problem, policy, environment, store, options, hooks, &cancel);
    requests = policy.requests;
    return record;
  }
  std::string Output(const EpisodeRecord& episode, const std::string& file) const {
    return ReadFile(options.output / episode.id / file);
  }
};

}  // namespace kevin::testing
