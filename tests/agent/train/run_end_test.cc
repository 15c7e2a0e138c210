// How the ranks of a run tell each other that it is to end, and what they wait for no longer.

#include "agent/train/run_end.h"

#include <chrono>
#include <filesystem>
#include <future>

#include "agent/train/run_folder.h"
#include "env/process/files.h"
#include "tests/agent/train/rank_processes.h"
#include "tests/catch.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kSoon{30};
constexpr std::chrono::milliseconds kAWhile{500};  // five looks

TEST_CASE("a rank that is asked to end tells the others: first to finish their work, then to stop it") {
  const WorkFolder folder(fs::temp_directory_path(), "kevin-test");
  CancelToken never{false}, drain{false}, stop{false};
  const RunEnd asked(folder.path(), &drain, &stop), other(folder.path(), &never, &never);
  std::this_thread::sleep_for(kAWhile);
  CHECK((!*asked.drain() && !*other.drain()));
  drain = true;
  CHECK(ComesTrue([&] { return *asked.drain() && *other.drain(); }, kSoon));
  std::this_thread::sleep_for(kAWhile);
  CHECK((!*asked.stop() && !*other.stop()));
  stop = true;
  CHECK(ComesTrue([&] { return *asked.stop() && *other.stop(); }, kSoon));
}

TEST_CASE("a rank that is asked to end before the run has a folder tells the others when it has") {
  const WorkFolder parent(fs::temp_directory_path(), "kevin-test");
  const fs::path folder = parent.path() / "run";
  CancelToken never{false}, drain{true};
  const RunEnd asked(folder, &drain, &never), other(folder, &never, &never);
  CHECK(ComesTrue([&] { return asked.drain()->load(); }, kSoon));
  std::this_thread::sleep_for(kAWhile);
  CHECK(!*other.drain());
  fs::create_directories(folder);
  CHECK(ComesTrue([&] { return other.drain()->load(); }, kSoon));
}

TEST_CASE("what is left of an earlier run is forgotten; a single rank looks at no folder") {
  const WorkFolder folder(fs::temp_directory_path(), "kevin-test");
  CancelToken never{false}, drain{true}, stop{true};
  {
    const RunEnd alone({}, &drain, &stop);
    CHECK(ComesTrue([&] { return *alone.drain() && *alone.stop(); }, kSoon));
  }
  CHECK(fs::is_empty(folder.path()));
  {
    const RunEnd asked(folder.path(), &drain, &stop);
    CHECK(ComesTrue([&] { return asked.stop()->load(); }, kSoon));
  }
  CHECK(!fs::is_empty(folder.path()));
  RunEnd::Forget(folder.path());
  const RunEnd next(folder.path(), &never, &never);
  std::this_thread::sleep_for(kAWhile);
  CHECK((!*next.drain() && !*next.stop()));
}

TEST_CASE("problems that rank 0 has not chosen are waited for until the run is over") {
  const WorkFolder folder(fs::temp_directory_path(), "kevin-test");
  RunFile first(folder.path(), true, {{"seed", 1}}), second(folder.path(), false, {{"seed", 1}});
  CancelToken is_over{false};
  const auto nothing = []() -> std::vector<std::string> { throw std::runtime_error("rank 0 chooses"); };
  const auto wait = [&](const std::string& name) {
    return std::async(std::launch::async,
                      [&, name] { return second.Chosen(name, nothing, [&] { return is_over.load(); }); });
  };
  auto chosen = wait("step-1");
  const std::vector<std::string> problems{"level1/19", "level2/3"};
  CHECK(first.Chosen(
            "step-1", [&] { return problems; }, [] { return true; }) == problems);
  CHECK(chosen.get() == problems);
  auto never = wait("step-2");
  CHECK(never.wait_for(kAWhile) == std::future_status::timeout);
  is_over = true;
  REQUIRE(never.wait_for(kSoon) == std::future_status::ready);
  CHECK(never.get() == std::nullopt);
}

TEST_CASE("a rank that waits for the run's file looks at what else may end the run") {
  const WorkFolder folder(fs::temp_directory_path(), "kevin-test");
  CancelToken is_lost{false};
  auto second = std::async(std::launch::async, [&] {
    const RunFile file(folder.path(), false, {{"seed", 1}}, [&] {
      if (is_lost) throw std::runtime_error("rank 0 is lost");
    });
  });
  CHECK(second.wait_for(kAWhile) == std::future_status::timeout);
  is_lost = true;
  REQUIRE(second.wait_for(kSoon) == std::future_status::ready);
  CHECK_THROWS_WITH(second.get(), "rank 0 is lost");
}

}  // namespace
}  // namespace kevin
