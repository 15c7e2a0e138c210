// `kevin bench --tune` and `kevin run --tune` with the CPU's evaluator, on a kernel whose knobs matter.

#include "tests/catch.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"
#include "trajectories/store.h"

namespace kevin {
namespace {

// REPEAT is how often the work is done, SHIFT 1 is incorrect, MODE 2 does not compile.
constexpr char kKnobs[] =
    "// knob REPEAT: 12 1 4\n"
    "// knob SHIFT: 0 1\n"
    "// knob MODE: 1 2\n";
constexpr char kKernel[] =
    "static_assert(MODE == 1, \"this mode does not compile\");\n"
    "extern \"C\" void launch(const float* x, float* out) {\n"
    "  volatile float* y = out;\n"
    "  for (int repeat = 0; repeat < REPEAT; ++repeat) {\n"
    "    for (long i = 0; i < B * N; ++i) y[i] = (x[i] > 0 ? x[i] : 0) + SHIFT;\n"
    "  }\n"
    "}\n";
constexpr char kChosen[] =
    "constexpr int REPEAT = 1;\n"
    "constexpr int SHIFT = 0;\n"
    "constexpr int MODE = 1;\n";

// y = max(x, 0) on 64 x 16384.
constexpr char kProblem[] = R"(id = "mine/relu"
name = "small ReLU"
families = ["elementwise"]
reference = '''
def forward(x):
    return torch.relu(x)
'''

[sizes.small]
B = 64
N = 16384

[[inputs]]
name = "x"
shape = ["B", "N"]

[[outputs]]
name = "out"
shape = ["B", "N"]

[cost]
flops = "B*N"
bytes = "8*B*N"
min_flops = 0
min_bytes = "8*B*N"
)";

Result Run(std::vector<std::string> arguments) {
  return RunCommand({&AddBenchCommand, &AddRunCommand, &AddShowCommand}, std::move(arguments));
}

void Write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

struct Fixture {
  TemporaryFolder folder;
  std::string kernel = (folder / "kernel.cpp").string(), problem = (folder / "relu.toml").string();

  Fixture() {
    Write(kernel, std::string(kKnobs) + kKernel);
    Write(problem, kProblem);
  }
  Result Bench(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"bench", kernel, "--problem", problem, "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
};

}  // namespace

TEST_CASE("bench finds the setting that is fastest and correct, judges it and writes it") {
  const Fixture kevin;
  const std::string tuned = (kevin.folder / "tuned.cpp").string();
  const Result page = kevin.Bench({"--tune", "6", "-o", tuned});
  INFO(page.output << page.error);
  CHECK(page.code == 0);
  CHECK(Contains(page.output, "REPEAT = 1, SHIFT = 0, MODE = 1 judged, the fastest in short timings of:"));
  CHECK(Contains(page.output, "wrong"));
  CHECK(Contains(page.output, "compile_failed"));
  CHECK(Contains(page.output, "chosen"));
  CHECK(Bytes(tuned) == std::string(kChosen) + kKernel);
  CHECK(Contains(kevin.Bench({"--tune", "6", "-o", tuned}).error, "tuned.cpp"));  // it is not overwritten

  const auto lines = Lines(kevin.Bench({"--tune", "3", "--json"}).output);
  REQUIRE(lines.size() == 4);
  for (size_t i = 0; i < 3; ++i) CHECK((lines[i]["event"] == "trial" && lines[i]["problem"].is_string()));
  CHECK((lines[0]["setting"]["REPEAT"] == 12 && lines[0]["candidate_us"] > 0 && lines[0]["chosen"] == false));
  CHECK((lines[3]["event"] == "evaluation" && lines[3]["outcome"] == "measured"));
  CHECK((lines[3]["knobs"]["REPEAT"] == 1 && lines[3]["knobs"]["SHIFT"] == 0));
}

TEST_CASE("bench takes the first values with --tune 0, and reports a bad declaration") {
  const Fixture kevin;
  const auto lines = Lines(kevin.Bench({"--tune", "0", "--json"}).output);
  REQUIRE(lines.size() == 2);
  CHECK((lines[0]["outcome"].is_null() && lines[0]["chosen"] == true && lines[1]["knobs"]["REPEAT"] == 12));
  Write(kevin.kernel, std::string("// knob N: 1 2\n") + kKernel);
  const Result bad = kevin.Bench({});
  CHECK(bad.code == 0);
  CHECK(Contains(bad.output, "compile_failed"));
  CHECK(Contains(bad.output, "knob N needs another name: N is a constant of the problem"));
  const std::pair<std::string, std::string> texts[] = {
      {"// knob TILE:\n", "knob TILE has no values: write `knob TILE: 64 128`"},
      {"// knob out: 1 2\n",
       "knob out needs another name: out is a parameter of launch, which would hide the"},
      {"#define TILE 4\n// knob TILE: 1 2\n", "knob TILE needs another name: line 1 defines a macro TILE"}};
  for (const auto& [lines_of_knob, message] : texts) {
    Write(kevin.kernel, lines_of_knob + kKernel);
    const Result refused = kevin.Bench({});
    INFO(refused.output);
    CHECK((refused.code == 0 && Contains(refused.output, "compile_failed")));
    CHECK(Contains(refused.output, message));
  }
  CHECK(kevin.Bench({"--tune", "-1"}).code == 2);
}

TEST_CASE("a run stores the trials of a reply with knobs and judges the chosen setting") {
  const Fixture kevin;
  const std::string database = (kevin.folder / "kevin.db").string();
  std::string asked;
  {
    Store store = Store::Open(database, OpenMode::kCreate);
    asked = BeginSample(store);
    TurnRecord turn = SampleTurn(1, 1.5);
    turn.reply = std::string("```cpp\n") + kKnobs + kKernel + "```\nLeft open how often.\n";
    store.AppendTurn(asked, turn);
  }
  const Result run =
      Run({"run", "--problem", kevin.problem, "--policy", "replay:" + asked, "--turns", "1", "--tune", "4",
           "--db", database, "--out", (kevin.folder / "out").string(), "--device", "cpu", "--json"});
  INFO(run.output << run.error);
  CHECK(run.code == 0);
  const auto lines = Lines(run.output);
  REQUIRE(lines.size() == 6);
  CHECK((lines[3]["event"] == "trial" && lines[4]["event"] == "turn" && lines[5]["event"] == "episode"));
  CHECK((lines[4]["knobs"]["REPEAT"] == 1 && lines[4]["outcome"] == "measured" && lines[4]["tune_s"] > 0));
  CHECK(lines[5]["best_turn"] == 1);
  CHECK(Bytes(std::filesystem::path(lines[5]["best_path"].get<std::string>())) ==
        std::string(kChosen) + kKernel);
  const std::string episode = lines[5]["episode"];
  const Result page = Run({"show", episode, "1", "--db", database});
  CHECK(Contains(page.output, "--- knobs\n"));
  CHECK(Contains(page.output, "REPEAT = 1, SHIFT = 0, MODE = 1"));
  CHECK(Contains(page.output, "Knobs: 4 settings tried, 3 correct; the kernel has the fastest"));
}

}  // namespace kevin
