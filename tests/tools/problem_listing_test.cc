#include "tools/problem_listing.h"

#include "env/error.h"
#include "tests/catch.h"
#include "tests/folders.h"

namespace kevin {
namespace {

Problem Shipped(const std::string& id) { return ProblemSet(SourceFolder() / "env/problems").Find(id); }

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("the table has a line per problem and a column per size") {
  const std::string table = ProblemTable({Shipped("level1/40"), Shipped("level1/19")}, "");
  CHECK(table ==
        "id         name       families     dtype    small                                  full             "
        "        "
        "                  v0\n"
        "level1/40  LayerNorm  norm         float32  16x64x64x64 + 2 params -> 16x64x64x64  "
        "16x64x256x256 + 2 params -> 16x64x256x256\n"
        "level1/19  ReLU       elementwise  float32  32x131072 -> 32x131072                 4096x393216 -> "
        "4096x393216 "
        "                16x16384 -> 16x16384\n");
  CHECK(ProblemTable({Shipped("level1/19")}, "full") ==
        "id         name  families     dtype    full\n"
        "level1/19  ReLU  elementwise  float32  4096x393216 -> 4096x393216\n");
  CHECK_THROWS_AS(ProblemTable({Shipped("level1/19")}, "huge"), Error);
}

TEST_CASE("details show what a kernel writer needs") {
  const std::string page = ProblemDetails(Shipped("level1/40"), "");
  CHECK(Contains(page, "level1/40  LayerNorm\n"));
  CHECK(Contains(page, "degenerate-upstream"));
  CHECK(Contains(page, "/040_layer_norm.toml\n"));
  CHECK(Contains(page, "\ndef forward(x, weight, bias):\n"));
  CHECK(Contains(page, "size symbols B, C, H, W are constants in scope"));
  CHECK(Contains(
      page, "\n  cuda  void launch(const float* x, const float* weight, const float* bias, float* out)\n"));
  CHECK(Contains(page, "weight  param   float32  normal * 0.5 + 1  64x64x64     64x256x256\n"));
  CHECK(Contains(page, "bytes      8*(B + 1)*C*H*W  35.7 MB     570 MB\n"));
}

TEST_CASE("each shape of a size set has a column, and the set its weights") {
  Problem problem = Shipped("level1/19");
  problem = ParseProblem(problem.text +
                             "\n[[sizes.mine]]\nB = 8\nN = 16\nweight = 2.5\n"
                             "[[sizes.mine]]\nB = 3\nN = 5\n",
                         "mine.toml");
  const std::string page = ProblemDetails(problem, "");
  CHECK(Contains(page, "values   small      full         mine/1  mine/2  v0\n"));
  CHECK(Contains(
      page,
      "\nSize sets with several shapes: a candidate is correct at all of them, the speed-up is the weighted geometric "
      "mean\n  mine  mine/1 (weight 2.5), mine/2 (weight 1)\n"));
  CHECK_FALSE(Contains(ProblemDetails(Shipped("level1/19"), ""), "several shapes"));
  CHECK(ProblemTable({problem}, "mine") ==
        "id         name  families     dtype    mine/1        mine/2\n"
        "level1/19  ReLU  elementwise  float32  8x16 -> 8x16  3x5 -> 3x5\n");
  const auto event = ProblemJson(problem, "mine");
  CHECK(event["shape_sets"].dump() == R"({"mine":[{"size":"mine/1","symbols":{"B":8,"N":16},"weight":2.5},)"
                                      R"({"size":"mine/2","symbols":{"B":3,"N":5},"weight":1.0}]})");
  CHECK(event["flops"].dump() == R"({"mine/1":128,"mine/2":15})");
}

TEST_CASE("parameters in one block are explained") {
  const Problem mlp = LoadProblemFile(SourceFolder() / "tests/env/problems/mlp.toml");
  const std::string page = ProblemDetails(mlp, "");
  CHECK(Contains(page, "(size symbols B, D, H are constants in scope)"));
  CHECK(Contains(page,
                 "  cuda  void launch(const float* x, const float* params, float* out)\n"
                 "  params holds the parameters in the file's order, each from the next multiple of 64 "
                 "elements on;\n"
                 "  constants in scope say where, in elements: w1_offset, ...\n\n"));
  const auto event = ProblemJson(mlp, "small");
  REQUIRE(event["params"].size() == 18);
  CHECK(event["params"][1].dump() ==
        R"({"name":"b1","dtype":"float32","shape":{"small":[50]},"offset":{"small":3520}})");
}

TEST_CASE("the problem event has the fields that scripts read") {
  const auto event = ProblemJson(Shipped("level1/40"), "");
  CHECK(event["event"] == "problem");
  CHECK(event["id"] == "level1/40");
  CHECK(event["name"] == "LayerNorm");
  CHECK(event["families"] == nlohmann::ordered_json{"norm"});
  CHECK(event["flags"] == nlohmann::ordered_json{"degenerate-upstream"});
  CHECK(event["signature"].size() == 4);
  const std::string parameters = "(const float* x, const float* weight, const float* bias, float* out)";
  CHECK(event["signature"]["cpp"] == "extern \"C\" void launch" + parameters);
  CHECK(event["signature"]["cuda"] == "void launch" + parameters);
  CHECK(event["signature"]["triton"] == "def launch(x, weight, bias, out):");
  CHECK(event["model"]["init"].dump() == R"({"small":"[(64, 64, 64)]","full":"[(64, 256, 256)]"})");
  CHECK(event["model"]["forward"].dump() == R"(["x"])");
  CHECK(event["model"]["parameters"].dump() == R"({"bias":"ln.bias","weight":"ln.weight"})");
  CHECK(ProblemJson(Shipped("level3/5"), "")["model"]["init"].size() == 2);  // no `small`
  REQUIRE(event["inputs"].size() == 1);
  REQUIRE(event["params"].size() == 2);
  REQUIRE(event["outputs"].size() == 1);
  CHECK(event["params"][0].dump() ==
        R"({"name":"weight","dtype":"float32","shape":{"small":[64,64,64],"full":[64,256,256]}})");
  CHECK(event["bytes"].dump() == R"({"small":35651584,"full":570425344})");
  CHECK(event["flops"]["full"] == 7 * 67108864);

  const auto index = ProblemJson(Shipped("level1/51"), "small");
  CHECK(index["outputs"].dump() == R"([{"name":"out","dtype":"int64","shape":{"small":[6,1023]}}])");
  CHECK(index["params"].dump() == "[]");
}

TEST_CASE("16-bit tensors are spelled as each kind's compiler knows them") {
  Problem problem = Shipped("level1/19");
  problem.inputs[0].dtype = DType::kF16;
  problem.outputs[0].dtype = DType::kBF16;
  CHECK(LaunchSignature(problem) == "extern \"C\" void launch(const _Float16* x, bf16* out)");
  CHECK(LaunchSignature(problem, "cuda") == "void launch(const __half* x, __nv_bfloat16* out)");
  CHECK(LaunchSignature(problem, "ptx") == LaunchSignature(problem, "cuda"));
}

}  // namespace
}  // namespace kevin
