// How a baseline is looked up, measured when asked for, and said.

#include "tools/baselines.h"

#include <stdlib.h>

#include <cmath>
#include <cstdio>

#include "env/error.h"
#include "env/process/machine.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

using Json = nlohmann::ordered_json;

// A cache folder of its own, one GPU, a stand-in for Python.
struct Fixture {
  Fixture() {
    setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
    setenv("KEVIN_PYTHON", (SourceFolder() / "tests/env/python/fake_python.sh").c_str(), 1);
    gpu.index = 1;
    gpu.name = "Fake GPU";
    gpu.driver_version = 13000;
    gpu.pci_bus = "baselines-test-" + std::to_string(getpid());
    facts.device = "cuda:1: Fake GPU";
  }
  ~Fixture() {
    std::filesystem::remove(DeviceLock::PathFor(DeviceLock::NameOfGpu(gpu.pci_bus)));
    unsetenv("PYTHON_FAKE");
  }
  std::optional<Baseline> For(const std::string& option) {
    ++asked;
    return BaselineFor({&problem, "full", false}, facts, option, {&progress, nullptr},
                       [this](std::string*) { return std::vector<GpuFound>{gpu}; });
  }

  testing::TempFolder folder;
  GpuFound gpu;
  EnvironmentFacts facts = testing::GpuFacts();
  Problem problem = testing::ReluProblem();
  Progress progress{stderr};
  int asked = 0;
};

Baseline Known(double eager_us, double compiled_us) {
  Baseline baseline;
  baseline.key = {"hash", "full", false, "Fake GPU", "13000"};
  baseline.problem = "level1/19";
  baseline.torch_version = "2.11.0+cu130";
  baseline.eager_us = eager_us;
  baseline.compiled_us = compiled_us;
  baseline.pairs = 20;
  return baseline;
}

}  // namespace

TEST_CASE("of several shapes: geometric means by weight, and nothing unless all are stored") {
  Baseline first = Known(300, 100), second = Known(20, 40);
  Baseline together = Together({{first, 3}, {second, 1}}, "mine");
  CHECK(together.key.size == "mine");
  CHECK(together.CompileOverEager() == Approx(std::pow(3.0, 0.75) * std::pow(0.5, 0.25)));
  CHECK(together.eager_us == Approx(std::pow(300.0, 0.75) * std::pow(20.0, 0.25)));
  CHECK(Together({{first, 3}}, "full").eager_us == 300);  // to the bit
  second.failure = "no Triton";
  second.key.size = "mine/2";
  together = Together({{first, 3}, {second, 1}}, "mine");
  CHECK(together.failure == "at mine/2: no Triton");
  CHECK_FALSE(together.HasCompiled());

  Fixture f;
  f.problem.sizes["mine/1"] = {{"B", 64}, {"N", 8}};
  f.problem.sizes["mine/2"] = {{"B", 2}, {"N", 7}};
  f.problem.shape_sets["mine"] = {{"mine/1", 3}, {"mine/2", 1}};
  const auto stored = [&] {
    return BaselineFor({&f.problem, "mine", false}, f.facts, "stored", {&f.progress, nullptr},
                       [&](std::string*) { return std::vector<GpuFound>{f.gpu}; });
  };
  const auto store = [&](const std::string& size, double compiled_us) {
    Baseline baseline = Known(100, compiled_us);
    baseline.key = KeyOfBaseline(f.problem, size, false, f.gpu);
    BaselineStore(f.folder.path() / "kevin").Store(baseline);
  };
  store("mine/1", 50);
  CHECK_FALSE(stored().has_value());
  store("mine/2", 200);
  REQUIRE(stored().has_value());
  CHECK(stored()->CompileOverEager() == Approx(std::sqrt(2.0)));
}

TEST_CASE("stored looks up, compile measures what is not stored, once") {
  Fixture fixture;
  CHECK_FALSE(fixture.For("stored"));
  const auto measured = fixture.For("compile");
  REQUIRE(measured);
  CHECK(measured->CompileOverEager() == 1.25);
  setenv("PYTHON_FAKE", "crash", 1);  // from here on Python would end at once
  CHECK(fixture.For("compile")->measured_at == measured->measured_at);
  CHECK(fixture.For("stored")->compiled_us == 10);
  setenv("PYTHON_FAKE", "no-python", 1);
  CHECK(fixture.For("stored")->compiled_us == 10);
  CHECK_THROWS_AS(fixture.For("compile"), Error);
  fixture.gpu.driver_version = 13010;
  CHECK_FALSE(fixture.For("stored"));
}

TEST_CASE("a failure is stored and not tried again") {
  Fixture fixture;
  setenv("PYTHON_FAKE", "failure", 1);
  CHECK(fixture.For("compile")->failure == "torch.compile fails: Unsupported: it");
  setenv("PYTHON_FAKE", "", 1);
  CHECK(fixture.For("compile")->failure == "torch.compile fails: Unsupported: it");
  CHECK(BaselineNote(fixture.For("stored"), fixture.problem, fixture.facts) ==
        "; no torch.compile 2.11: torch.compile fails: Unsupported: it");
}

TEST_CASE("on a CPU nothing is looked up and nothing is said") {
  Fixture fixture;
  fixture.For("compile");
  fixture.facts.device = "cpu: fake, 2 threads";
  CHECK_FALSE(fixture.For("compile"));
  CHECK(BaselineNote(std::nullopt, fixture.problem, fixture.facts).empty());
  fixture.facts.device = "cuda:2: Fake GPU";  // not there any more
  CHECK_FALSE(fixture.For("stored"));
}

TEST_CASE("the headline has torch.compile where it is the faster one") {
  const auto faster = std::optional(Known(12, 10)), slower = std::optional(Known(10, 12.5));
  auto failed = std::optional(Known(0, 0));
  failed->failure = "it does not compile";
  CHECK(OverBaseline(faster, 1.26) == Approx(1.05));
  CHECK(OverBaseline(slower, 1) == Approx(1.25));
  CHECK_FALSE(OverBaseline(failed, 1.26));
  CHECK_FALSE(OverBaseline(std::nullopt, 1.26));
  CHECK(OverBaselineText(faster, 1.26) == ", 1.05x over torch.compile 2.11");
  CHECK(OverBaselineText(slower, 1.26).empty());
  CHECK(OverBaselineText(failed, 1.26).empty());
  const Problem problem = testing::ReluProblem();
  EnvironmentFacts facts = testing::GpuFacts();
  CHECK(BaselineNote(faster, problem, facts) == "; torch.compile 2.11 is 1.2x over eager");
  CHECK(BaselineNote(slower, problem, facts) == "; torch.compile 2.11 is 0.8x over eager");
  CHECK(BaselineNote(std::nullopt, problem, facts) ==
        "; torch.compile not measured (kevin baseline --problem level1/19)");
}

TEST_CASE("a baseline of eager alone has its time and says nothing of torch.compile") {
  Fixture fixture;
  Baseline eager = Known(12, 0);
  eager.key.device_model = "cpu: fake, 2 threads", eager.key.driver.clear();
  eager.key.problem_hash = fixture.problem.content_hash;
  BaselineStore(fixture.folder.path() / "kevin").Store(eager);
  const auto found = BaselineStore(fixture.folder.path() / "kevin").Find(eager.key);
  REQUIRE(found);
  CHECK((found->eager_us == 12 && !found->HasCompiled() && found->CompileOverEager() == 0));
  CHECK_FALSE(OverBaseline(found, 1.26));
  CHECK(OverBaselineText(found, 1.26).empty());
  CHECK(BaselineEvent(*found)["eager_us"] == 12.0);
  CHECK(BaselineEvent(*found)["compiled_us"].is_null());
  CHECK(BaselineEvent(*found)["speedup"].is_null());
  CHECK(BaselineRow(*found).size() == kBaselineHeading.size());
  CHECK(StoredBaselinesText(fixture.problem).find("cpu: fake, 2 threads") != std::string::npos);
}

TEST_CASE("events say the baseline, null where it is unknown") {
  Json event = {{"event", "turn"}, {"speedup", 1.26}};
  AddBaselineFields(Known(12, 10), "speedup", &event);
  CHECK((event["baseline"] == "torch.compile 2.11" && event["baseline_us"] == 10.0));
  CHECK(event["speedup_over_baseline"].get<double>() == Approx(1.05));
  AddBaselineFields(std::nullopt, "speedup", &event);
  for (const char* field : {"baseline", "baseline_us", "speedup_over_baseline"})
    CHECK(event[field].is_null());
  Json wrong = {{"event", "turn"}, {"speedup", nullptr}};
  AddBaselineFields(Known(12, 10), "speedup", &wrong);
  CHECK((wrong["baseline_us"] == 10.0 && wrong["speedup_over_baseline"].is_null()));

  const Json known = BaselineEvent(Known(12, 10));
  CHECK((known["event"] == "baseline" && known["speedup"] == 1.2 && known["reason"].is_null()));
  Baseline failed = Known(0, 0);
  failed.failure = "why";
  const Json unknown = BaselineEvent(failed);
  CHECK((unknown["speedup"].is_null() && unknown["eager_us"].is_null() && unknown["reason"] == "why"));
}

TEST_CASE("what is stored for a problem is a table") {
  Fixture fixture;
  CHECK(StoredBaselinesText(fixture.problem).empty());
  fixture.For("compile");
  const std::string text = StoredBaselinesText(fixture.problem);
  INFO(text);
  CHECK(text.find("\nBaselines (kevin baseline)\n") == 0);
  CHECK(
      text.find(
          "level1/19  full  Fake GPU  2.11.0+cu130  no    fp32       default  12.5      10.0        1.25x") !=
      std::string::npos);
}

}  // namespace kevin
