#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "agent/machine.h"
#include "agent/parse.h"
#include "agent/terminal.h"
#include "env/error.h"
#include "env/process/spawn.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tools/device_options.h"
#include "tools/policies.h"

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
  CHECK(CommandLine().find("commands_test") != std::string::npos);
}

namespace {

// A machine with these GPUs; counts how often it was asked.
struct FakeGpus {
  std::vector<GpuFound> gpus;
  int asked = 0;

  GpuFinder Finder() {
    return [this](std::string* why_none) {
      ++asked;
      if (gpus.empty()) *why_none = "no driver";
      return gpus;
    };
  }
};

GpuFound Gpu(int index, int compute_mode = 0) { return {index, "Fake GPU", 9, 0, compute_mode, 13000}; }

DeviceOptions OnDevice(const std::string& device) {
  DeviceOptions options;
  options.device = device;
  return options;
}

// The code and text of the Error, or the device chosen.
std::string Choice(const DeviceOptions& options, const std::string& kind, FakeGpus gpus) {
  try {
    return ChooseDevice(options, kind, gpus.Finder());
  } catch (const Error& error) {
    CHECK_FALSE(error.next_step().empty());
    return fmt::format("{}: {}", static_cast<int>(error.code()), error.what());
  }
}

}  // namespace

TEST_CASE("the rules follow from what was asked, the kernel's kind and whose the problems are") {
  const Problem listed;
  Problem own;
  own.module = ModuleOrigin{"Net", "", "{}"};
  CHECK(RulesFor("", "modelnew", {&own}) == "open");
  CHECK(RulesFor("", "triton", {&own, &own}) == "open");
  CHECK(RulesFor("", "modelnew", {&own, &listed}) == "kevin");
  CHECK(RulesFor("", "modelnew", {&listed}) == "kevin");
  CHECK(RulesFor("", "modelnew", {}) == "kevin");
  CHECK(RulesFor("", "cuda", {&own}) == "kevin");
  CHECK(RulesFor("kevin", "modelnew", {&own}) == "kevin");
  CHECK(RulesFor("kernelbench", "cpp", {&listed}) == "kernelbench");
  CHECK(RulesNote("cuda", "open") == ", rules open");
  CHECK(RulesNote("", "open").empty());
}

TEST_CASE("the device follows from what was asked, the kernel's kind and the machine") {
  const FakeGpus none, one{{Gpu(0)}}, second{{Gpu(0, 3), Gpu(1)}}, exclusive{{Gpu(0, 3)}},
      old{{{0, "Old", 9, 0, 0, 12080}}};
  const DeviceOptions automatic;
  CHECK(Choice(automatic, "", none) == "cpu");
  CHECK(Choice(automatic, "", one) == "auto");
  CHECK(Choice(automatic, "", exclusive) == "cpu");
  CHECK(Choice(automatic, "", old) == "cpu");
  CHECK(Choice(automatic, "ptx", old).find("its driver supports CUDA 12.8") != std::string::npos);
  CHECK(Choice(automatic, "cpp", one) == "cpu");
  CHECK(Choice(automatic, "cuda", one) == "cuda:0");
  CHECK(Choice(automatic, "ptx", second) == "cuda:1");
  CHECK(Choice(automatic, "cuda", none) == "3: a kernel of kind cuda needs a GPU: no driver");
  CHECK(Choice(automatic, "cuda", exclusive)
            .starts_with("3: a kernel of kind cuda needs a GPU: cuda:0 (Fake GPU) is in exclusive "));
  CHECK(Choice(OnDevice("cpu"), "", one) == "cpu");
  CHECK(Choice(OnDevice("cpu"), "cpp", one) == "cpu");
  CHECK(Choice(OnDevice("cpu"), "cuda", one) == "2: a kernel of kind cuda is not judged on device cpu");
  CHECK(Choice(OnDevice("cuda:3"), "", none) == "cuda:3");  // starting it will say why not
  CHECK(Choice(OnDevice("cuda:3"), "cuda", none) == "cuda:3");
  CHECK(Choice(OnDevice("cuda:0"), "cpp", one) == "2: a kernel of kind cpp is not judged on device cuda:0");
  for (const char* kind : {"modelnew", "triton"}) {  // on both
    CHECK(Choice(automatic, kind, one) == "cuda:0");
    CHECK(Choice(automatic, kind, second) == "cuda:1");
    CHECK(Choice(automatic, kind, none) == "cpu");
    CHECK(Choice(OnDevice("cpu"), kind, one) == "cpu");
    CHECK(Choice(OnDevice("cuda:0"), kind, one) == "cuda:0");
  }
}

TEST_CASE("GPUs are looked for only where the answer depends on it") {
  FakeGpus gpus{{Gpu(0)}};
  ChooseDevice(OnDevice("cpu"), "", gpus.Finder());
  ChooseDevice(OnDevice("cuda:0"), "cuda", gpus.Finder());
  ChooseDevice({}, "cpp", gpus.Finder());
  CHECK(gpus.asked == 0);
  ChooseDevice({}, "", gpus.Finder());
  CHECK(gpus.asked == 1);
}

TEST_CASE("what only a GPU has is not asked of the CPU") {
  const FakeGpus none, one{{Gpu(0)}};
  DeviceOptions tf32, include;
  tf32.tf32 = "reference";
  include.include = {"/"};
  for (DeviceOptions options : {tf32, include}) {
    CHECK(Choice(options, "", one) == "auto");
    CHECK(Choice(options, "cuda", one) == "cuda:0");
    CHECK(Choice(options, "", none).starts_with("2: --"));
    CHECK(Choice(options, "cpp", one).find(" is for kernels on a GPU; a C++ kernel") != std::string::npos);
    options.device = "cpu";
    CHECK(Choice(options, "", one).starts_with("2: --"));
    EnvironmentFacts cpu{"cpu: fake", "full", {"cpp"}, "small", ""};
    CHECK(ErrorOf([&] { RequireKind(cpu, options, "cpp"); }).ends_with("this is cpu: fake"));
    RequireKind(testing::GpuFacts(), options, "ptx");
  }
  CHECK(ErrorOf([] { RequireKind(testing::GpuFacts(), {}, "cpp"); }) ==
        "a kernel of kind cpp is not judged on cuda:0: fake");
  CHECK((KindOnDevice("cpu") == "cpp" && KindOnDevice("cuda:1") == "cuda" && KindOnDevice("auto").empty()));
}

TEST_CASE("device options become the environment's, folders must be there") {
  testing::TempFolder folder;
  DeviceOptions options;
  options.threads = 3;
  options.isolation = "reduced";
  options.include = {folder.path().string(), "."};
  const EnvironmentOptions environment = EnvironmentOptionsFor(options, "cuda:1");
  CHECK((environment.device == "cuda:1" && environment.threads == 3 && environment.reduced_isolation));
  REQUIRE(environment.include_directories.size() == 2);
  CHECK(environment.include_directories[0] == folder.path());
  CHECK(environment.include_directories[1].is_absolute());
  options.include.push_back((folder.path() / "no").string());
  CHECK(ErrorOf([&] { EnvironmentOptionsFor(options, "cuda:1"); }) ==
        "--include " + (folder.path() / "no").string() + ": no such folder");
}

TEST_CASE("device options on the command line") {
  const auto parse = [](std::vector<std::string> arguments) {
    CLI::App app;
    auto options = std::make_shared<DeviceOptions>();
    std::string file;
    app.add_option("FILE", file);
    AddDeviceOptions(&app, options.get());
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
    return std::pair(*options, file);
  };
  const auto refused = [&](std::vector<std::string> arguments) {
    try {
      parse(std::move(arguments));
    } catch (const CLI::ParseError&) {
      return true;
    }
    return false;
  };
  CHECK((parse({}).first.device == "auto" && parse({}).first.tf32 == "off"));
  CHECK(parse({"--device", "cuda:12"}).first.device == "cuda:12");
  for (const char* device : {"gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "CPU", ""}) {
    INFO(device);
    CHECK(refused({"--device", device}));
  }
  CHECK(refused({"--tf32", "on"}));
  CHECK(refused({"--precision", "fp8"}));
  CHECK((parse({}).first.precision == "fp32" && parse({"--precision", "bf16"}).first.precision == "bf16"));
  CHECK(refused({"--isolation", "none"}));
  CHECK(refused({"--threads", "-1"}));
  const auto [options, file] = parse({"--include", "a", "--include", "b", "k.cu"});
  CHECK((options.include == std::vector<std::string>{"a", "b"} && file == "k.cu"));
}

TEST_CASE("a machine's GPUs are found, or it is said why there are none") {
  std::string why_none = "unset";
  const std::vector<GpuFound> gpus = FindGpus(&why_none);
  CHECK(gpus.empty() == !why_none.empty());
  CHECK(why_none != "unset");
  for (const GpuFound& gpu : gpus) {
    CHECK((!gpu.name.empty() && gpu.capability_major >= 5 && gpu.driver_version >= 11000));
  }
  CHECK(FindGpus().size() == gpus.size());
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

TEST_CASE("a model by its spec, its options, and options that a policy has no use for") {
  testing::TempFolder folder;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  const auto parse = [](PolicyOptions* options, std::vector<std::string> arguments) {
    CLI::App app;
    AddPolicyOptions(&app, options);
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
  };
  unsetenv("OPENAI_API_KEY");
  CHECK(ErrorOf([&] { MakePolicy("openai:gpt-5", store); }) == "no API key for https://api.openai.com/v1");
  PolicyOptions options;
  parse(&options, {"--base-url", "http://127.0.0.1:1/v1", "--temperature", "0.7", "--context", "20000"});
  CHECK(options.first_given == "--base-url");
  const ChosenPolicy chosen = MakePolicy("openai:m", store, options);
  CHECK(chosen.policy->Name() == "openai:m@http://127.0.0.1:1/v1");
  CHECK(chosen.sampling.temperature == 0.7);
  CHECK((chosen.sampling.max_tokens == 10000 && chosen.prompt_token_budget == 10000));
  CHECK(ErrorOf([&] { MakePolicy("search", store, options); }) ==
        "--base-url is for language models; the policy is search");

  PolicyOptions wrong;
  parse(&wrong, {"--top-k", "20", "--context", "20000"});
  CHECK(ErrorOf([&] { MakePolicy("openai-responses:m@http://127.0.0.1:1/v1", store, wrong); }) ==
        "openai-responses:m@http://127.0.0.1:1/v1: Responses have no top_k");
  PolicyOptions broke;
  parse(&broke, {"--budget-usd", "1", "--context", "20000"});
  CHECK(ErrorOf([&] { MakePolicy("openai:m@http://127.0.0.1:1/v1", store, broke); }) ==
        "openai:m@http://127.0.0.1:1/v1: a budget in dollars needs the price of m");

  PolicyOptions tokens;
  parse(&tokens, {"--tokens", "5000", "--token-ids", "chat"});
  CHECK((tokens.budget_tokens == 5000 && tokens.token_ids == "chat"));
  CHECK_THROWS_WITH(parse(&tokens, {"--tokens", "chat"}), Catch::Contains("write --token-ids chat"));
}

TEST_CASE("a window is shared between prompt and answer") {
  PolicyOptions options;
  CHECK(ShareWindow(options, {}, {}).prompt_tokens == 16384);
  CHECK(ShareWindow(options, 200000, {}).max_tokens == 16384);
  CHECK(ShareWindow(options, 200000, {}).prompt_tokens == 200000 - 16384);
  CHECK(ShareWindow(options, 200000, 4096).max_tokens == 4096);
  CHECK(ShareWindow(options, 8000, {}).max_tokens == 4000);
  options.max_tokens = 7000;
  CHECK(ErrorOf([&] { ShareWindow(options, 8000, {}); }) ==
        "--max-tokens 7000 leaves no room for a prompt in a window of 8000 tokens");
  options.context = 32000;  // the option wins
  CHECK(ShareWindow(options, 8000, {}).prompt_tokens == 25000);
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
  {
    const InterruptGuard guard;
    std::raise(SIGTERM);
    CHECK(*guard.flag());
  }
  const InterruptGuard again;
  CHECK_FALSE(*again.flag());
  std::raise(SIGHUP);
  CHECK(*again.flag());
}

}  // namespace kevin
