#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/fakes.h"
#include "tools/interrupt.h"
#include "tools/places.h"
#include "tools/policies.h"
#include "tools/progress.h"

namespace kevin {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK_FALSE(error.next_step().empty());
    return error.what();
  }
  return "no Error";
}

}  // namespace

TEST_CASE("a kernel's file is read whole, or said to be unusable") {
  testing::TempFolder folder;
  const auto path = folder.path() / "kernel.cpp";
  std::ofstream(path) << "void launch();\n";
  CHECK(ReadSourceFile(path) == "void launch();\n");
  std::ofstream(path) << " \n";
  CHECK(ErrorOf([&] { ReadSourceFile(path); }) == path.string() + ": is empty");
  std::ofstream(path) << std::string(600 * 1024, 'x');
  CHECK(ErrorOf([&] { ReadSourceFile(path); }) == path.string() + ": is larger than 512 KiB");
  CHECK(ErrorOf([&] { ReadSourceFile(folder.path() / "no"); }) ==
        (folder.path() / "no").string() + ": No such file or directory");
  CHECK(ErrorOf([&] { ReadSourceFile(folder.path()); }) == folder.path().string() + ": is a folder");
}

TEST_CASE("isolation and threads become the environment's options") {
  CHECK(EnvironmentOptionsFor(3, "full").threads == 3);
  CHECK_FALSE(EnvironmentOptionsFor(3, "full").reduced_isolation);
  CHECK(EnvironmentOptionsFor(0, "reduced").reduced_isolation);
  CHECK(EnvironmentOptionsFor(0, "full").program_directory == ProgramDirectory());
  CHECK(CommandLine().find("run_tools_test") != std::string::npos);
}

TEST_CASE("policies by name") {
  testing::TempFolder folder;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  const ChosenPolicy search = MakePolicy("search", store);
  CHECK(search.policy->Name() == "search");
  CHECK_FALSE(search.turns);
  CHECK(ErrorOf([&] { MakePolicy("gpt", store); }) == "policy \"gpt\": no such policy");
  CHECK(ErrorOf([&] { MakePolicy("replay:01J", store); }) != "no Error");

  const Problem problem = testing::ReluProblem();
  EpisodeRecord episode;
  episode.run = store.BeginRun({});
  episode.problem = problem.id;
  episode.problem_hash = problem.content_hash;
  const std::string id =
      store.BeginEpisode(episode, {problem.content_hash, problem.id, problem.name, problem.text, {}, {}});
  CHECK(ErrorOf([&] { MakePolicy("replay:" + id, store); }) ==
        "episode " + id + ": it has no turns to replay");
  for (int number = 0; number <= 2; ++number) {
    TurnRecord turn;
    turn.turn = number;
    turn.run = episode.run;
    turn.reply = "reply " + std::to_string(number);
    turn.evaluation.outcome = "parse_failed";
    store.AppendTurn(id, turn);
  }
  const ChosenPolicy replay = MakePolicy("replay:" + id.substr(0, 20), store);
  CHECK(replay.policy->Name() == "replay:" + id);
  CHECK(replay.turns == 2);
  Request request;
  request.task.turn = 1;
  CHECK(replay.policy->Complete(request, nullptr, {}).text == "reply 1");
}

TEST_CASE("elsewhere than on a terminal only finished lines are written") {
  testing::TempFolder folder;
  const auto path = folder.path() / "out.txt";
  std::FILE* out = std::fopen(path.c_str(), "w");
  {
    Progress progress(out);
    progress.Phase("turn 1  compile");
    progress.Line("turn 1  wrong");
    CHECK(ReadFile(path) == "turn 1  wrong\n");
    progress.Phase("turn 2  compile");
  }
  std::fclose(out);
  CHECK(ReadFile(path) == "turn 1  wrong\n");
}

TEST_CASE("the first signal sets the flag, the guard restores") {
  {
    const InterruptGuard guard;
    CHECK_FALSE(*guard.flag());
    std::raise(SIGINT);
    CHECK(*guard.flag());
  }
  const InterruptGuard again;
  CHECK_FALSE(*again.flag());
  std::raise(SIGTERM);
  CHECK(*again.flag());
}

}  // namespace kevin
