// One test per error in a problem file: the exact place and message.

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "env/error.h"
#include "env/problem/problem.h"
#include "tests/catch.h"

namespace kevin {
namespace {

const char* const kGood = R"(id = "mine/1"
name = "Scaled add"
families = ["elementwise"]
reference = '''
def forward(x, w):
    return x * 2 + w
'''
[sizes.small]
B = 4
N = 8
[sizes.full]
B = 40
N = 80

[[inputs]]
name = "x"
shape = ["B", "2*N"]

[[inputs]]
name = "w"
shape = ["2*N", 1]
role = "param"
distribution = "normal"
scale = 0.5
offset = -1

[[outputs]]
name = "out"
shape = ["B", "2*N"]

[cost]
flops = "2*B*N"
bytes = 100
min_flops = 0
min_bytes = "8*B*N"

[check]
reduction = "N"
)";

// kGood with the first `from` replaced.
std::string With(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string Message(const std::string& text) {
  try {
    ParseProblem(text, "my.toml");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK_FALSE(error.next_step().empty());
    return error.what();
  }
  return "";
}

TEST_CASE("a good problem file gives every field") {
  const Problem problem = ParseProblem(kGood, "my.toml");
  CHECK(problem.id == "mine/1");
  CHECK(problem.name == "Scaled add");
  CHECK(problem.families == std::vector<std::string>{"elementwise"});
  CHECK(problem.flags.empty());
  CHECK(problem.reference == "def forward(x, w):\n    return x * 2 + w\n");
  REQUIRE(problem.inputs.size() == 2);
  CHECK(problem.inputs[0].distribution == Distribution::kMixture);
  CHECK_FALSE(problem.inputs[0].is_param);
  CHECK(problem.inputs[1].is_param);
  CHECK(problem.inputs[1].distribution == Distribution::kNormal);
  CHECK(problem.inputs[1].scale == 0.5);
  CHECK(problem.inputs[1].offset == -1.0);
  CHECK(problem.inputs[1].shape == std::vector<std::string>{"2*N", "1"});
  CHECK(problem.text == kGood);
  CHECK(problem.content_hash.size() == 64);
  CHECK(problem.content_hash != ParseProblem(With("= 100", "= 101"), "my.toml").content_hash);

  const SizedProblem sized = AtSize(problem, "full");
  CHECK(sized.symbols == Symbols{{"B", 40}, {"N", 80}});
  CHECK(sized.inputs[0].shape == std::vector<int64_t>{40, 160});
  CHECK(sized.inputs[0].elements == 6400);
  CHECK(sized.inputs[0].bytes == 25600);
  CHECK(sized.reduction == 80);
  CHECK(sized.flops == 6400);
  CHECK(sized.bytes == 100);
  CHECK(sized.min_flops == 0);
  CHECK(sized.min_bytes == 25600);
  CHECK(LaunchSignature(problem) == "extern \"C\" void launch(const float* x, const float* w, float* out)");
}

TEST_CASE("forward's arguments may carry types and span lines") {
  CHECK(Message(With("(x, w)", "(x: Tensor, w: Dict[str, Tensor])")).empty());
  CHECK(Message(With("(x, w)", "(\n    x,\n    w,\n)")).empty());
  CHECK(Message(With("def forward", "def twice(x):\n    return x + x\n\ndef forward")).empty());
}

TEST_CASE("parameters may come as a dictionary") {
  CHECK_FALSE(ParseProblem(kGood, "my.toml").has_param_dict);
  CHECK(ParseProblem(With("(x, w)", "(x, p: Dict[str, Tensor])"), "my.toml").has_param_dict);
  CHECK(Message(With("(x, w)", "(x, w, p: Dict[str, Tensor])")) ==
        "my.toml:4: reference: `def forward(x, w, p)` does not take the inputs in order");
  CHECK(Message(With("(x, w)", "(p: Dict[str, Tensor], x)")) ==
        "my.toml:4: reference: `def forward(p, x)` does not take the inputs in order");
}

TEST_CASE("flags carry their reasons") {
  const std::string flags = "[flags]\nredundant-ops = \"The sum is 0.\"\n[sizes.small]";
  CHECK(ParseProblem(With("[sizes.small]", flags), "my.toml").flags ==
        std::map<std::string, std::string>{{"redundant-ops", "The sum is 0."}});
  CHECK(Message(With("[sizes.small]", "[flags]\nredundant = \"x\"\n[sizes.small]")) ==
        "my.toml:9: flags.redundant: unknown key");
  CHECK(Message(With("[sizes.small]", "[flags]\nredundant-ops = 1\n[sizes.small]")) ==
        "my.toml:9: flags.redundant-ops: must be a string, not an integer");
}

TEST_CASE("a scale may depend on the size") {
  const Problem problem = ParseProblem(With("scale = 0.5", "scale = \"1/sqrt(2*N)\""), "my.toml");
  CHECK(problem.inputs[1].scale_text == "1/sqrt(2*N)");
  CHECK(AtSize(problem, "small").inputs[1].spec.scale == 0.25);
  CHECK(AtSize(ParseProblem(With("scale = 0.5", "scale = \"N\""), "my.toml"), "full").inputs[1].spec.scale ==
        80);
  CHECK(Message(With("scale = 0.5", "scale = \"1/sqrt(M)\"")) ==
        "my.toml:24: inputs[1].scale: unknown symbol 'M' (sizes define B, N) (size full)");
  CHECK(Message(With("scale = 0.5", "scale = \"N - 80\"")) ==
        "my.toml:24: inputs[1].scale: 'N - 80' must be positive, not 0 (size full)");
}

TEST_CASE("rows may be shifted") {
  const auto shifted = [](const std::string& more) {
    return With("offset = -1", "row_shift = 150.0\n" + more);
  };
  const Problem problem = ParseProblem(shifted(""), "my.toml");
  CHECK(problem.inputs[0].row_shift == 0);
  CHECK(problem.inputs[1].row_shift == 150);
  CHECK(ParseProblem(With("offset = -1", "row_shift = 0"), "my.toml").inputs[1].row_shift == 0);
  // A row is everything behind the first dimension, or the whole of a tensor of one dimension.
  const SizedProblem sized = AtSize(problem, "full");
  CHECK(sized.inputs[0].spec.row_elements == 160);
  CHECK(sized.inputs[1].spec.row_elements == 1);
  const std::string cube = With("[\"2*N\", 1]", "[3, \"N\", 5]"), line = With("[\"2*N\", 1]", "[\"2*N\"]");
  CHECK(AtSize(ParseProblem(cube, "my.toml"), "full").inputs[1].spec.row_elements == 400);
  CHECK(AtSize(ParseProblem(line, "my.toml"), "full").inputs[1].spec.row_elements == 160);

  CHECK(Message(With("offset = -1", "row_shift = -1")) ==
        "my.toml:25: inputs[1].row_shift: must be from 0 to 1000, not -1");
  CHECK(Message(With("offset = -1", "row_shift = 1e4")) ==
        "my.toml:25: inputs[1].row_shift: must be from 0 to 1000, not 10000");
  CHECK(Message(With("offset = -1", "row_shift = nan")) == "my.toml:25: inputs[1].row_shift: must be finite");
  CHECK(Message(With("offset = -1", "row_shift = \"N\"")) ==
        "my.toml:25: inputs[1].row_shift: must be a number, not a string");
  CHECK(Message(shifted("dtype = \"int64\"")) ==
        "my.toml:25: inputs[1].row_shift: is for inputs of a floating type with rows");
  CHECK(Message(With("distribution = \"normal\"\nscale = 0.5\noffset = -1",
                     "distribution = \"uniform\"\nscale = 0.5\nrow_shift = 1")) ==
        "my.toml:25: inputs[1].row_shift: has no effect on 'uniform'");
  CHECK(Message(With("shape = [\"B\", \"2*N\"]\n\n[[inputs]]",
                     "shape = [\"N\", \"N\"]\nstructure = \"upper\"\nrow_shift = 1\n[[inputs]]")) ==
        "my.toml:19: inputs[0].row_shift: is not for a matrix with a structure");
}

TEST_CASE("structures are for square matrices") {
  CHECK(Message(With("offset = -1", "structure = \"upper\"")) ==
        "my.toml:25: inputs[1].structure: is for square matrices of float32");
  CHECK(Message(With("shape = [\"B\", \"2*N\"]\n\n[[inputs]]",
                     "shape = [\"N\", \"N\"]\nstructure = \"symmetric\"\n[[inputs]]"))
            .empty());
  CHECK(Message(With("offset = -1", "structure = \"diagonal\"")) ==
        "my.toml:25: inputs[1].structure: unknown structure 'diagonal'");
}

TEST_CASE("fixed values are stored in the file") {
  // 1, 2, 3, 4 as float32.
  const std::string values = "values = \"eNpjYGiwZ2BgcAAiIG5wAAAQgwJA\"\n";
  const auto stored = [&](const std::string& shape, const std::string& more) {
    std::string text =
        With("shape = [\"2*N\", 1]\nrole = \"param\"\ndistribution = \"normal\"\nscale = 0.5\noffset = -1",
             "shape = " + shape + "\n" + more);
    return text;
  };
  const Problem problem = ParseProblem(stored("[4, 1]", "distribution = \"stored\"\n" + values), "my.toml");
  REQUIRE(problem.inputs[1].stored != nullptr);
  REQUIRE(problem.inputs[1].stored->size() == 16);
  CHECK(reinterpret_cast<const float*>(problem.inputs[1].stored->data())[3] == 4.0F);
  CHECK(problem.inputs[0].stored == nullptr);
  CHECK(Message(stored("[5]", "distribution = \"stored\"\n" + values)) ==
        "my.toml:23: inputs[1].values: are not 20 bytes in base64 of a zlib stream");
  CHECK(Message(stored("[3]", "distribution = \"stored\"\n" + values)) ==
        "my.toml:23: inputs[1].values: are not 12 bytes in base64 of a zlib stream");
  CHECK(Message(stored("[4]", "distribution = \"stored\"\nvalues = \"?\"")) ==
        "my.toml:23: inputs[1].values: are not 16 bytes in base64 of a zlib stream");
  CHECK(Message(stored("[\"N\"]", "distribution = \"stored\"\n" + values)) ==
        "my.toml:21: inputs[1].shape: stored values have one shape at all sizes");
  CHECK(Message(stored("[4]", "distribution = \"stored\"")) ==
        "my.toml:22: inputs[1].distribution: 'stored' needs `values`");
  CHECK(Message(stored("[4]", "distribution = \"normal\"\n" + values)) ==
        "my.toml:22: inputs[1].distribution: `values` are not used");
}

TEST_CASE("problem files: malformed text and keys") {
  CHECK(Message(With("B = 4\n", "B = \n")).substr(0, 21) == "my.toml:9: not TOML: ");
  CHECK(Message(With("name = \"S", "nmae = \"S")) == "my.toml:2: nmae: unknown key");
  CHECK(Message(With("role", "rolle")) == "my.toml:22: inputs[1].rolle: unknown key");
  CHECK(Message(With("min_bytes", "min_byte")) == "my.toml:35: cost.min_byte: unknown key");
  CHECK(Message(With("reduction", "k")) == "my.toml:38: check.k: unknown key");
  CHECK(Message(With("shape = [\"B\", \"2*N\"]\n\n[cost]",
                     "dtype = \"float32\"\nshape = [4]\nscale = 2\n[cost]")) ==
        "my.toml:31: outputs[0].scale: unknown key");
  CHECK(Message(With("id = \"mine/1\"\n", "")) == "my.toml:1: id: missing key");
  CHECK(Message(With("shape = [\"2*N\", 1]\n", "")) == "my.toml:19: inputs[1].shape: missing key");
  CHECK(Message(With("min_flops = 0\n", "")) == "my.toml:31: cost.min_flops: missing key");
}

TEST_CASE("problem files: wrong types and values") {
  CHECK(Message(With("\"Scaled add\"", "3")) == "my.toml:2: name: must be a string, not an integer");
  CHECK(Message(With("\"Scaled add\"", "\" \"")) == "my.toml:2: name: must not be empty");
  CHECK(Message(With("[\"elementwise\"]", "\"elementwise\"")) ==
        "my.toml:3: families: must be an array, not a string");
  CHECK(Message(With("[\"elementwise\"]", "[1]")) ==
        "my.toml:3: families: must be an array of strings, not an integer");
  CHECK(Message(With("[\"2*N\", 1]", "[\"2*N\", 1.5]")) ==
        "my.toml:21: inputs[1].shape: must be an integer or an expression in quotes, not a float");
  CHECK(Message(With("scale = 0.5", "scale = true")) ==
        "my.toml:24: inputs[1].scale: must be a number, not a boolean");
  CHECK(Message(With("scale = 0.5", "scale = 0")) == "my.toml:24: inputs[1].scale: must not be 0");
  CHECK(Message(With("offset = -1", "offset = inf")) == "my.toml:25: inputs[1].offset: must be finite");
  CHECK(Message(With("\"param\"", "\"weight\"")) == "my.toml:22: inputs[1].role: unknown role 'weight'");
  CHECK(Message(With("\"normal\"", "\"gauss\"")) ==
        "my.toml:23: inputs[1].distribution: unknown distribution 'gauss'");
  CHECK(Message(With("role =", "dtype = \"fp8\"\nrole =")) ==
        "my.toml:22: inputs[1].dtype: unknown dtype 'fp8'");
}

TEST_CASE("problem files: a size set with several weighted shapes") {
  const auto with_shapes = [](const std::string& tables) {
    return With("[sizes.full]\nB = 40\nN = 80\n", tables);
  };
  const std::string two = "[[sizes.mine]]\nB = 40\nN = 80\nweight = 2.5\n[[sizes.mine]]\nB = 3\nN = 7\n";
  const Problem problem = ParseProblem(with_shapes(two), "my.toml");
  const std::vector<WeightedShape> shapes = ShapesOf(problem, "mine");
  REQUIRE(shapes.size() == 2);
  CHECK(shapes[0].size == "mine/1");
  CHECK(shapes[0].weight == 2.5);
  CHECK(shapes[1].size == "mine/2");
  CHECK(shapes[1].weight == 1);
  CHECK(AtSize(problem, "mine/2").inputs[0].shape == std::vector<int64_t>{3, 14});
  CHECK(AtFirstShape(problem, "mine").size == "mine/1");
  CHECK(AtSize(problem, "mine/1").symbols == Symbols{{"B", 40}, {"N", 80}});  // the weight is none
  CHECK(ShapeName("mine/2", problem.sizes.at("mine/2")) == "mine/2 (B = 3, N = 7)");
  REQUIRE(ShapesOf(problem, "small").size() == 1);
  CHECK(ShapesOf(problem, "small")[0].size == "small");
  CHECK(ShapesOf(problem, "mine/2").size() == 1);
  const Problem heavier = ParseProblem(
      with_shapes("[[sizes.mine]]\nB = 40\nN = 80\nweight = 3\n[[sizes.mine]]\nB = 3\nN = 7\n"), "my.toml");
  CHECK(heavier.content_hash != problem.content_hash);
  try {
    AtSize(problem, "mine");
    FAIL("a set is no shape");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "size 'mine' of mine/1 has 2 shapes, and one is needed here");
    CHECK(error.next_step() == "choose one: mine/1, mine/2");
  }
  try {
    ShapesOf(problem, "large");
    FAIL("there is no such size");
  } catch (const Error& error) {
    CHECK(error.next_step() == "its sizes: mine, mine/1, mine/2, small");
  }

  // One shape alone is a size as any other.
  const Problem one = ParseProblem(with_shapes("[[sizes.mine]]\nB = 40\nN = 80\nweight = 2\n"), "my.toml");
  CHECK(one.shape_sets.empty());
  CHECK(AtSize(one, "mine").symbols.size() == 2);
}

TEST_CASE("problem files: mistakes in a shape name the shape") {
  const auto message = [](const std::string& second_shape) {
    return Message(With("[sizes.full]\nB = 40\nN = 80\n",
                        "[[sizes.mine]]\nB = 40\nN = 80\n[[sizes.mine]]\n" + second_shape));
  };
  CHECK(message("B = 4\n") == "my.toml:14: sizes.mine/2: 'N' is missing (sizes.mine/1 has it)");
  CHECK(message("B = 4\nN = 8\nM = 8\n") == "my.toml:14: sizes.mine/2: 'M' is not in sizes.mine/1");
  CHECK(message("B = 4\nN = 0\n") == "my.toml:16: sizes.mine/2.N: must be positive, not 0");
  CHECK(message("B = 40\nN = 80\nweight = 2\n") == "my.toml:14: sizes.mine/2: is the same shape as mine/1");
  CHECK(message("B = 4\nN = 8\nweight = 0\n") == "my.toml:17: sizes.mine/2.weight: must be above 0, not 0");
  CHECK(message("B = 4\nN = 8\nweight = -1.5\n") ==
        "my.toml:17: sizes.mine/2.weight: must be above 0, not -1.5");
  CHECK(message("B = 4\nN = 8\nweight = inf\n") == "my.toml:17: sizes.mine/2.weight: must be finite");
  CHECK(message("B = 4\nN = 8\nweight = nan\n") == "my.toml:17: sizes.mine/2.weight: must be finite");
  CHECK(message("B = 4\nN = 8\nweight = \"2\"\n") ==
        "my.toml:17: sizes.mine/2.weight: must be a number, not a string");
  CHECK(message("B = 4\nN = 8\n[sizes.\"mine/2\"]\nB = 5\nN = 8\n") ==
        "my.toml:17: sizes.mine/2: the name is used by a shape of a size set");
  CHECK(Message(With("[sizes.full]\nB = 40\nN = 80\n", "[sizes]\nmine = []\n")) ==
        "my.toml:12: sizes.mine: must not be empty");
  CHECK(Message(With("[sizes.full]\nB = 40\nN = 80\n", "[sizes]\nmine = [{B = 4, N = 8}, 3]\n")) ==
        "my.toml:12: sizes.mine[1]: must be a table, not an integer");
  std::string many;
  for (size_t i = 0; i <= kMaxShapes; ++i)
    many += "[[sizes.mine]]\nB = 1\nN = " + std::to_string(i + 1) + "\n";
  CHECK(Message(With("[sizes.full]\nB = 40\nN = 80\n", many)) ==
        "my.toml:11: sizes.mine: has 65 shapes, more than 64");
  // What a symbol of that name would be cannot be said in a shape.
  CHECK(Message(With("N = 8\n[sizes.full]\nB = 40\nN = 80\n",
                     "N = 8\nweight = 3\n[[sizes.a]]\nB = 4\nN = 8\n[[sizes.a]]\nB = 5\nN = 8\n")) ==
        "my.toml:8: sizes.small: 'weight' is not in sizes.a/1");
  CHECK(Message(With("N = 8\n[sizes.full]\nB = 40\nN = 80\n",
                     "N = 8\nweight = 3\n[[sizes.z]]\nB = 4\nN = 8\nweight = 2\n")) ==
        "my.toml:15: sizes.z.weight: is the weight of the shape here, and a symbol in sizes.small");
  // Every expression holds at every shape.
  CHECK(message("B = 4611686018427387904\nN = 8\n") ==
        "my.toml:20: inputs[0].shape: its bytes overflow a 64-bit integer at size mine/2");
}

TEST_CASE("problem files: sizes") {
  CHECK(Message(With("B = 4\n", "B = 0\n")) == "my.toml:9: sizes.small.B: must be positive, not 0");
  CHECK(Message(With("B = 4\n", "B = 4.0\n")) == "my.toml:9: sizes.small.B: must be an integer, not a float");
  CHECK(Message(With("N = 8\n", "M = 8\n")) == "my.toml:8: sizes.small: 'N' is missing (sizes.full has it)");
  CHECK(Message(With("N = 8\n", "N = 8\nM = 8\n")) == "my.toml:8: sizes.small: 'M' is not in sizes.full");
  CHECK(Message(With("N = 8\n", "N = 8\nint = 8\n")) ==
        "my.toml:11: sizes.small.int: 'int' is a reserved word");
  CHECK(Message(With("N = 8\n", "N = 8\n\"2d\" = 8\n")) ==
        "my.toml:11: sizes.small.2d: '2d' is not a name (letters, digits and _)");
}

TEST_CASE("problem files: expressions") {
  CHECK(Message(With("\"B\", \"2*N\"", "\"B\", \"2*M\"")) ==
        "my.toml:17: inputs[0].shape: unknown symbol 'M' (sizes define B, N)");
  CHECK(Message(With("\"B\", \"2*N\"", "\"B - 4\", \"2*N\"")) ==
        "my.toml:17: inputs[0].shape: 'B - 4' is 0 at size small, must be at least 1");
  CHECK(Message(With("\"B\", \"2*N\"", "\"B\",\n \"N*\"")) ==
        "my.toml:18: inputs[0].shape: 'N*' ends where a number, a symbol or '(' is expected");
  CHECK(Message(With("B = 40\n", "B = 4000000000\n")).empty());
  CHECK(Message(With("N = 80\n", "N = 4000000000000000000\n")) ==
        "my.toml:17: inputs[0].shape: its bytes overflow a 64-bit integer at size full");
  CHECK(Message(With("\"2*B*N\"", "\"B*9223372036854775807\"")) ==
        "my.toml:32: cost.flops: 'B*9223372036854775807' overflows a 64-bit integer");
  CHECK(Message(With("\"2*B*N\"", "-1")) ==
        "my.toml:32: cost.flops: '-1' is -1 at size full, must be at least 0");
  CHECK(Message(With("reduction = \"N\"", "reduction = 0")) ==
        "my.toml:38: check.reduction: '0' is 0 at size full, must be at least 1");
}

TEST_CASE("problem files: bounds that cannot bound") {
  CHECK(Message(With("min_flops = 0", "min_flops = \"3*B*N\"")) ==
        "my.toml:34: cost.min_flops: 9600 at size full exceeds cost.flops (6400)");
  CHECK(Message(With("\"8*B*N\"", "\"32*B*N\"")) ==
        "my.toml:35: cost.min_bytes: 102400 at size full exceeds the bytes of all tensors (51840)");
}

TEST_CASE("problem files: names and arguments") {
  CHECK(Message(With("name = \"w\"", "name = \"x\"")) == "my.toml:20: inputs[1].name: 'x' is used twice");
  CHECK(Message(With("name = \"out\"", "name = \"w\"")) == "my.toml:28: outputs[0].name: 'w' is used twice");
  CHECK(Message(With("name = \"w\"", "name = \"N\"")) ==
        "my.toml:20: inputs[1].name: 'N' is also a size symbol");
  CHECK(Message(With("name = \"w\"", "name = \"a-b\"")) ==
        "my.toml:20: inputs[1].name: 'a-b' is not a name (letters, digits and _)");
  CHECK(Message(With("name = \"out\"", "name = \"return\"")) ==
        "my.toml:28: outputs[0].name: 'return' is a reserved word");
  CHECK(Message(With("(x, w)", "(w, x)")) ==
        "my.toml:4: reference: `def forward(w, x)` does not take the inputs in order");
  CHECK(Message(With("(x, w)", "(x)")) ==
        "my.toml:4: reference: `def forward(x)` does not take the inputs in order");
  CHECK(Message(With("def forward", "def fwd")) == "my.toml:4: reference: has no `def forward(x, w):`");
  CHECK(Message(With("(x, w):\n    return x * 2 + w", "(x, w")) ==
        "my.toml:4: reference: has no `def forward(x, w):`");
}

TEST_CASE("problem files: parameters come last") {
  std::string text = With("role = \"param\"\n", "");
  text.replace(text.find("name = \"x\""), 0, "role = \"param\"\n");
  CHECK(Message(text) == "my.toml:21: inputs[1].name: 'w' follows a parameter");
}

TEST_CASE("problem files: the check") {
  CHECK(Message(With("[check]", "[check]\nscale = \"def scale(x): return x\"")) ==
        "my.toml:38: check.scale: `def scale(x)` does not take the inputs in order");
  CHECK(Message(With("[check]", "[check]\nextreme_dim = 2")) ==
        "my.toml:38: check.extreme_dim: 2 is not a dimension of x");
  CHECK(Message(With("[check]", "[check]\nextreme_dim = 1")) ==
        "my.toml:38: check.extreme_dim: out does not hold one index along it");
  CHECK(Message(With("[check]", "[check]\nextreme_is_max = true")) ==
        "my.toml:38: check.extreme_is_max: has no effect without extreme_dim");
  for (const char* spread : {"-1", "17"}) {
    CHECK(Message(With("[check]", fmt::format("[check]\nerror_spread = {}", spread))) ==
          fmt::format("my.toml:38: check.error_spread: must be from 0 to 16, not {}", spread));
  }
  CHECK(ParseProblem(With("[check]", "[check]\nerror_spread = 8"), "my.toml").error_spread == 8);
  CHECK(ParseProblem(With("[check]", "[check]"), "my.toml").error_spread == 0);
  for (const char* share : {"-0.1", "1.01"}) {
    CHECK(Message(With("[check]", fmt::format("[check]\nleast_own_share = {}", share))) ==
          fmt::format("my.toml:38: check.least_own_share: must be from 0 to 1, not {}", share));
  }
  CHECK(Message(With("[check]", "[check]\nleast_own_share = nan")) ==
        "my.toml:38: check.least_own_share: must be finite");
  CHECK(Message(With("[check]", "[check]\nleast_own_share = \"all\""))
            .find("my.toml:38: check.least_own_share: must be a number") == 0);
}

TEST_CASE(
    "the share of own kernels that a problem asks for is 90 % unless it says otherwise, and part of its hash") {
  const auto share = [](const std::string& line) {
    return ParseProblem(With("[check]", "[check]\n" + line), "my.toml").least_own_share;
  };
  CHECK(share("") == kLeastOwnShare);
  CHECK(share("least_own_share = 0.25") == 0.25);
  CHECK((share("least_own_share = 0") == 0 && share("least_own_share = 1") == 1));
  const auto hash = [](const std::string& text) { return ParseProblem(text, "my.toml").content_hash; };
  CHECK(hash(With("[check]", "[check]\nleast_own_share = 0.25")) !=
        hash(With("[check]", "[check]\nleast_own_share = 0.75")));
}

TEST_CASE("files that cannot be read are named") {
  CHECK_THROWS_AS(LoadProblemFile("/nonexistent/my.toml"), Error);
  CHECK_THROWS_AS(LoadProblemFile("/tmp"), Error);
  try {
    LoadProblemFile("/nonexistent/my.toml");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "/nonexistent/my.toml: No such file or directory");
  }
}

}  // namespace
}  // namespace kevin
