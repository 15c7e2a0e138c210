#include "env/knobs/knobs.h"

#include "env/gpu/launch/launch_function.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

const Symbols kSymbols = {{"B", 4}, {"N", 8}};

ReadKnobsResult Read(const std::string& source, const std::string& kind = "cpp") {
  return ReadKnobs(source, kind, kSymbols);
}

// What is wrong in a text of this one line, which is its second.
std::string ErrorIn(const std::string& line, const std::string& kind = "cpp") {
  const ReadKnobsResult read = Read("int a;\n" + line + "\n", kind);
  CHECK(read.knobs.empty());
  return read.error;
}

bool Declares(const std::string& line, const std::string& name, const std::vector<int64_t>& values,
              const std::string& kind = "cpp") {
  const ReadKnobsResult read = Read(line, kind);
  INFO(read.error);
  return read.error.empty() && read.knobs.size() == 1 && read.knobs[0].name == name &&
         read.knobs[0].values == values;
}

std::string Numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += " " + std::to_string(i);
  return text;
}

}  // namespace

TEST_CASE("a knob is a comment line with a name and values") {
  CHECK(Declares("// knob TILE: 64 128 256\n", "TILE", {64, 128, 256}));
  CHECK(Declares("//knob TILE:64", "TILE", {64}));
  CHECK(Declares("  \t//  knob  tile_2 : 64,128, 256 \r\n", "tile_2", {64, 128, 256}));
  CHECK(Declares("// knob A: -1 +2", "A", {-1, 2}) == false);  // C++ has no use for the sign
  CHECK(Declares("// knob A: -1 0 2147483647 -2147483647", "A", {-1, 0, 2147483647, -2147483647}));
  CHECK(Declares("// knob TILE: 64", "TILE", {64}, "cuda"));
  CHECK(Declares("// knob TILE: 64", "TILE", {64}, "ptx"));
  CHECK(Declares("# knob TILE: 64 128", "TILE", {64, 128}, "triton"));
  CHECK(Declares("    # knob TILE: 64 128", "TILE", {64, 128}, "modelnew"));
  const ReadKnobsResult two = Read("// knob A: 1 2\nint x;\n// knob B2: 3\n");
  REQUIRE(two.knobs.size() == 2);
  CHECK((two.knobs[0].line == 1 && two.knobs[1].line == 3 && two.knobs[1].name == "B2"));
  CHECK(CountSettings(two.knobs) == 2);
  CHECK(FirstSetting(two.knobs) == KnobSetting{{"A", 1}, {"B2", 3}});
}

TEST_CASE("a list of triton.Config is a knob of a text in Python, and the chosen entry stays alone") {
  const std::string source =
      "import triton\n"
      "# knob WIDE: 4 8\n"
      "@triton.autotune(\n"
      "    configs=[\n"
      "        triton.Config({'BLOCK': 64, 'TEXT': '], [('}, num_warps=4),  # small (8 is no good)\n"
      "        # the next one, [wide]\n"
      "        triton.Config({\"BLOCK\": 128},\n"
      "                      num_warps=8),\n"
      "    ],\n"
      "    key=['n'])\n"
      "def f(): pass\n"
      "tiles = [Config(1), Config(2), Config(3)]\n";
  const ReadKnobsResult read = Read(source, "triton");
  INFO(read.error);
  REQUIRE(read.knobs.size() == 3);
  CHECK(
      (read.knobs[0].name == "WIDE" && read.knobs[1].name == "configs" && read.knobs[2].name == "configs_2"));
  CHECK(read.knobs[1].values == std::vector<int64_t>{0, 1});
  CHECK(read.knobs[2].values == std::vector<int64_t>{0, 1, 2});
  CHECK(WithSetting(source, "triton", read.knobs, {{"WIDE", 8}, {"configs", 1}, {"configs_2", 2}}) ==
        "import triton\n"
        "WIDE = 8\n"
        "@triton.autotune(\n"
        "    configs=[triton.Config({\"BLOCK\": 128},\n"
        "                      num_warps=8)\n\n\n\n],\n"
        "    key=['n'])\n"
        "def f(): pass\n"
        "tiles = [Config(3)]\n");
  CHECK(WithSetting(source, "triton", read.knobs, FirstSetting(read.knobs))
            .find("'TEXT': '], [('}, num_warps=4)\n") != std::string::npos);
  CHECK(Read(source).knobs.empty());  // C++
  for (const std::string none :
       {"configs = [triton.Config({'A': a}) for a in (1, 2)]\n", "configs = [triton.Config({'A': 1})]\n",
        "x = '[Config(1), Config(2)]'\n", "# [Config(1), Config(2)]\n", "a = [Config(1), other]\n",
        "a = [Config(1), NoConfig(2)]\n", "a = [Config(1), Config(2) + Config(3)]\n",
        "a = [Config(1), Config(2\n", "a = [Config(1)[0], Config(2)]\n",
        "\"\"\"\n[Config(1), Config(2)]\n\"\"\"\n"}) {
    INFO(none);
    CHECK(Read(none, "modelnew").knobs.empty());
  }
  // Time that grows with the length.
  std::string hostile;
  for (int i = 0; i < 200'000; ++i) hostile += "[#\n[Config(";
  CHECK(Read(hostile, "modelnew").knobs.empty());
}

TEST_CASE("what looks like a knob and is none") {
  for (const std::string line :
       {"int x;  // knob A: 1 2", "// knobs A: 1 2", "// the knob A: 1 2", "// knob", "// knob of the door",
        "# knob A: 1 2", "// knob turning left 3 times is wrong", "/* knob A: 1 2 */", "// Knob A: 1",
        "//// knob A: 1"}) {
    INFO(line);
    CHECK(Read(line).knobs.empty());
    CHECK(Read(line).error.empty());
  }
  CHECK(Read("// knob A: 1 2", "triton").knobs.empty());
  CHECK(Read("").error.empty());
}

TEST_CASE("each bad declaration is a message with its place") {
  CHECK(ErrorIn("// knob TILE:") ==
        "candidate.cpp:2:14: error: knob TILE has no values: write `knob TILE: 64 128`\n");
  CHECK(ErrorIn("// knob TILE 64 128") ==
        "candidate.cpp:2:14: error: knob TILE: a colon is missing: write `knob TILE: 64 128`\n");
  CHECK(ErrorIn("// knob : 64") ==
        "candidate.cpp:2:9: error: a knob needs another name: '' is not a name (letters, "
        "digits and _)\n");
  CHECK(ErrorIn("// knob: 64").find("needs another name") != std::string::npos);
  CHECK(ErrorIn("// knob 2D: 64").find("'2D' is not a name") != std::string::npos);
  CHECK(ErrorIn("// knob A-B: 64").find("'A-B' is not a name") != std::string::npos);
  CHECK(ErrorIn("// knob int: 64").find("'int' is a reserved word") != std::string::npos);
  CHECK(ErrorIn("// knob launch: 64").find("reserved word") != std::string::npos);
  CHECK(ErrorIn("// knob __A: 64").find("begins with __") != std::string::npos);
  CHECK(ErrorIn("// knob N: 64") ==
        "candidate.cpp:2:1: error: knob N needs another name: N is a constant of the problem\n");
  CHECK(ErrorIn("// knob A: 64 many") ==
        "candidate.cpp:2:15: error: knob A: 'many' is not an integer; a knob's line "
        "holds its values and nothing else\n");
  for (const std::string value : {"1.5", "0x40", "1e3", "64u", "1<<4", "N", "\"1\"", "\xc3\xa4"}) {
    INFO(value);
    CHECK(ErrorIn("// knob A: " + value).find("is not an integer") != std::string::npos);
  }
  for (const std::string value : {"2147483648", "-2147483648", "99999999999999999999"}) {
    INFO(value);
    CHECK(ErrorIn("// knob A: 1 " + value).find(value + " is out of range") != std::string::npos);
  }
  CHECK(ErrorIn("// knob A: 64 128 64") ==
        "candidate.cpp:2:19: error: knob A: the value 64 stands there twice\n");
  CHECK(ErrorIn("// knob A: 1 2\n// knob A: 3 4") ==
        "candidate.cpp:3:1: error: knob A is declared twice: line 2 declares it too\n");
  CHECK(ErrorIn("# knob A: x", "triton").starts_with("candidate.py:2:11: error: knob A: 'x'"));
}

TEST_CASE(
    "a name that a macro or a parameter of launch has would not be read: it is refused with the place") {
  const std::string launch = "extern \"C\" void launch(const float* x,\n    float* out) {}\n";
  CHECK(
      Read("// knob TILE: 2 4\n#ifndef TILE\n  # define TILE 64\n#endif\n" + launch).error ==
      "candidate.cpp:1:1: error: knob TILE needs another name: line 3 defines a macro TILE, which would take the "
      "place of the constant\n");
  CHECK(Read("#define F(TILE) TILE\n// knob F: 2 4\n").error.find("line 1 defines a macro F,") !=
        std::string::npos);
  CHECK(
      Read("int a;\n// knob out: 2 4\n" + launch).error ==
      "candidate.cpp:2:1: error: knob out needs another name: out is a parameter of launch, which would hide the "
      "constant\n");
  CHECK(Read("void launch (const float* x, float* out)\n{ launch(TILE); }\n// knob x: 1 2\n", "cuda")
            .error.find("x is a parameter of launch") != std::string::npos);
  // Other macros, other functions, parts of names, calls and Python have no such rule.
  for (const std::string text : {"#define TILES 3\n#define A TILE\n#undef TILE\n",
                                 "void relaunch(int TILE) {}\n", "void launch(int TILE2) {}\n",
                                 "int f() { launch(TILE); }\n", "// launch(TILE\n", "launch(", "launch"}) {
    INFO(text);
    CHECK(Read("// knob TILE: 2 4\n" + text).error.empty());
  }
  CHECK(Read("# knob TILE: 2 4\n#define TILE 3\n", "triton").error.empty());
}

TEST_CASE("more knobs or values than there may be") {
  CHECK(Declares("// knob A:" + Numbers(kMaxKnobValues), "A",
                 Read("// knob A:" + Numbers(32)).knobs.at(0).values));
  CHECK(ErrorIn("// knob A:" + Numbers(kMaxKnobValues + 1)).find("knob A has more than 32 values") !=
        std::string::npos);
  CHECK(ErrorIn("// knob A:" + Numbers(1'000'000)).size() < 200);
  std::string text;
  for (size_t i = 0; i < kMaxKnobs; ++i) text += "// knob K" + std::to_string(i) + ":" + Numbers(32) + "\n";
  const ReadKnobsResult most = Read(text);
  CHECK(most.knobs.size() == kMaxKnobs);
  CHECK(CountSettings(most.knobs) == int64_t{1} << 40);
  CHECK(Read(text + "// knob K8: 1\n").error ==
        "candidate.cpp:9:1: error: knob K8: a text has 8 knobs at most\n");
}

TEST_CASE("a setting takes the place of the lines, and nothing else changes") {
  const std::string source =
      "#include <omp.h>\n  // knob TILE: 64 128\nint a = TILE;\r\n// knob U: 1 2\nint b;";
  const std::vector<DeclaredKnob> knobs = Read(source).knobs;
  CHECK(WithSetting(source, "cpp", knobs, {{"TILE", 128}, {"U", -1}}) ==
        "#include <omp.h>\n  constexpr int TILE = 128;\nint a = TILE;\r\nconstexpr int U = -1;\nint b;");
  CHECK(WithSetting("# knob A: 1 2\nx = A\n", "triton", Read("# knob A: 1 2\nx = A\n", "triton").knobs,
                    {{"A", 2}}) == "A = 2\nx = A\n");
  CHECK(WithSetting("no knobs\n", "cpp", {}, {}) == "no knobs\n");
}

TEST_CASE("the constant is in scope in device code and in launch") {
  const std::string source =
      "// knob BLOCK: 128 256\n"
      "__global__ void relu(const float* x, float* out) { __shared__ float s[BLOCK]; }\n"
      "template <int K> __global__ void other(float* out) { out[0] = K; }\n"
      "void launch(const float* x, float* out) {\n"
      "  relu<<<ceil_div(B * N, BLOCK), BLOCK>>>(x, out);\n"
      "  other<BLOCK / 2><<<1, 32>>>(out);\n"
      "}\n";
  const Problem problem = testing::ReluProblem();
  const SizedProblem sized = AtSize(problem, "small");
  const std::vector<DeclaredKnob> knobs = ReadKnobs(source, "cuda", sized.symbols).knobs;
  const InterpretedLaunch launch =
      InterpretLaunch(sized, "cuda", WithSetting(source, "cuda", knobs, {{"BLOCK", 256}}));
  REQUIRE(launch.list.operations.size() == 2);
  CHECK(std::get<KernelLaunch>(launch.list.operations[0]).block.x == 256);
  CHECK(launch.kernels.contains("other<128>"));
  CHECK(launch.split.device_text.find("constexpr int BLOCK = 256;") != std::string::npos);
}

TEST_CASE("a setting as JSON") {
  const KnobSetting setting = {{"Z", 1}, {"A", -2}};
  CHECK(SettingToText(setting) == R"({"Z":1,"A":-2})");
  CHECK(SettingFromText(SettingToText(setting)) == setting);
  CHECK(SettingToText({}).empty());
  for (const char* text : {"", "[]", "{\"A\":1.5}", "{\"A\":", "null"}) CHECK(SettingFromText(text).empty());
}

}  // namespace kevin
