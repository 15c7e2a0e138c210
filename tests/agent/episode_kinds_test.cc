// Episodes of the kinds for a GPU and in Python.

#include <fmt/format.h>

#include "agent/episode.h"
#include "env/error.h"
#include "tests/agent/episode_fixture.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using testing::EpisodeFixture;
using testing::FakeReply;
using testing::FakeSource;

std::string CudaReply(const std::string& comment) {
  return fmt::format("```cuda\n{}```\n", FakeSource(comment));
}

}  // namespace

TEST_CASE("an episode on a GPU writes the environment's first kind at its default size") {
  EpisodeFixture f;
  f.environment.facts = testing::GpuFacts();
  f.environment.facts.gpu = {89, 142, 99 << 10};
  f.options.workload.tf32 = true;
  const EpisodeRecord episode = f.Run({CudaReply("wrong"), CudaReply("measured 1.5"), "no code"});
  CHECK((episode.kind == "cuda" && episode.device == "cuda:0: fake" && episode.workload.size == "full"));
  CHECK(episode.workload.tf32);
  CHECK(f.Output(episode, "1.cu") == FakeSource("wrong"));
  CHECK(f.Output(episode, "best.cu") == FakeSource("measured 1.5"));
  CHECK(episode.best_path == (f.options.output / episode.id / "best.cu").string());
  CHECK_FALSE(std::filesystem::exists(f.options.output / episode.id / "best.cpp"));

  REQUIRE(f.requests.size() == 3);
  CHECK((f.requests[0].task.kind == "cuda" && f.requests[0].task.tf32));
  CHECK((f.requests[0].task.device.capability == 89 && f.requests[0].task.device.multiprocessors == 142));
  CHECK(f.requests[0].task.signature == "void launch(const float* x, float* out)");
  const std::string prompt = f.requests[2].messages[1].content;
  CHECK(prompt.find("The machine: Fake GPU, 132 multiprocessors, sm_90a.") != std::string::npos);
  CHECK(prompt.find("occupancy 75 % (limited by registers)") != std::string::npos);
  CHECK(prompt.find("75 % of the 4 GB/s of device memory") != std::string::npos);

  const auto turns = f.store.LoadTurns(episode.id);
  CHECK((turns[1].evaluation.kind == "cuda" && turns[1].evaluation.workload.tf32));
  CHECK(turns[1].evaluation.kernels.find("\"registers\":40") != std::string::npos);
  CHECK((turns[1].evaluation.peak_gb_per_s == 4 && turns[1].evaluation.device_s == 0.25));
  CHECK((turns[2].evaluation.outcome == "parse_failed" && turns[2].evaluation.workload.tf32));
  CHECK(turns[2].feedback.find("marked `cuda`") != std::string::npos);

  SECTION("a verdict that is known is repeated with its kernels, but not under another rule for TF32") {
    f.environment.calls.clear();
    f.options.turns = 2;
    const EpisodeRecord again = f.Run({CudaReply("wrong"), CudaReply("measured 1.5")});
    CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.5 (confirm)"});
    const auto repeated = f.store.LoadTurn(again.id, 2);
    CHECK(repeated->evaluation.kernels == turns[1].evaluation.kernels);
    CHECK_FALSE(repeated->evaluation.device_s);  // this time the device was not held
    f.options.workload.tf32 = false;
    f.environment.calls.clear();
    f.Run({CudaReply("wrong"), CudaReply("measured 1.5")});
    CHECK(f.environment.calls.size() == 3);
  }
  SECTION("it goes on as it was begun, on a GPU only") {
    const EpisodeOptions more = OptionsToContinue(episode, 1);
    CHECK((more.workload.tf32 && more.workload.size == "full"));
    f.options.continue_episode = more.continue_episode;
    f.environment.facts = testing::FakeEnvironment().facts;
    f.options.workload.size = "full";
    CHECK_THROWS_AS(f.Run({FakeReply("wrong")}), Error);
    CHECK(f.store.FindEpisode(episode.id).turns == 3);
  }
}

TEST_CASE("an episode of Python modules: files in .py, rules as asked, and continued as it was begun") {
  EpisodeFixture f;
  f.environment.facts.kinds = {"cpp", "modelnew", "triton"};
  f.options.kind = "modelnew";
  const auto source = [](const std::string& comment) {
    return "// " + comment + "\nimport torch\nclass ModelNew(torch.nn.Module):\n    pass\n";
  };
  const auto reply = [&](const std::string& comment) {
    return "```python\n" + source(comment) + "```\nChanged it.\n";
  };
  f.options.turns = 2;
  const EpisodeRecord episode = f.Run({reply("refused"), reply("measured 1.5")});
  CHECK((episode.kind == "modelnew" && episode.best_turn == 2));
  CHECK(f.Output(episode, "1.py") == source("refused"));
  CHECK(f.Output(episode, "best.py") == source("measured 1.5"));
  CHECK(f.requests[1].messages[1].content.find("at least 90 % of the time of `forward`") !=
        std::string::npos);
  CHECK(f.requests[1].messages[1].content.find("```python\n// refused") != std::string::npos);
  CHECK(f.requests[1].messages[1].content.find("| 1 | refused |") ==
        std::string::npos);  // a table of one is none
  const EpisodeOptions more = OptionsToContinue(episode, 1);
  CHECK(more.kind == "modelnew");
  f.options.workload.rules = "open";
  f.options.turns = 1;
  f.Run({reply("measured 1.2")});
  CHECK(f.requests[0].messages[1].content.find("at least 90 %") == std::string::npos);
  // Of a deep network the class has other widths than the problem at size small.
  f.problem.model = ModelFacts{};
  f.problem.model->sizes = {"full"};
  f.options.workload.size = "small";
  try {
    f.Run({reply("measured 1.5")});
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(error.next_step() == "use --size full, or a kind other than modelnew");
  }
}

TEST_CASE("the kernel of --from must be of the episode's kind") {
  EpisodeFixture f;
  f.options.start_source = FakeSource("measured 1.1");
  f.options.start_kind = "cuda";
  try {
    f.Run({FakeReply("wrong")});
    FAIL("no Error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(error.what() ==
          std::string("the kernel to start from is of kind cuda; this episode's are of kind cpp"));
  }
  CHECK(f.store.ListEpisodes(10).empty());
  f.environment.facts = testing::GpuFacts();
  const EpisodeRecord episode = f.Run({CudaReply("measured 1.5")});
  CHECK(f.Output(episode, "0.cu") == FakeSource("measured 1.1"));
}

TEST_CASE("an episode of CUDA kernels may start from PTX") {
  EpisodeFixture f;
  f.environment.facts = testing::GpuFacts();
  f.options.start_source = FakeSource("measured 1.1");
  f.options.start_kind = "ptx";
  const EpisodeRecord episode = f.Run({CudaReply("measured 1.5")});
  CHECK(f.Output(episode, "0.ptx") == FakeSource("measured 1.1"));
  const auto turns = f.store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 2);
  CHECK((turns[0].evaluation.kind == "ptx" && turns[1].evaluation.kind == "cuda"));
  CHECK(turns[1].evaluation.against_start.has_value());
}

}  // namespace kevin
