// The Python form of problems; python_model_test.py runs it.

#include "env/problem/python_model.h"

#include "env/problem/problem.h"
#include "env/problem/python_operators.h"
#include "tests/catch.h"

namespace kevin {
namespace {

TEST_CASE("operators get their Python names") {
  CHECK(PythonOperators("torch.linear(x, w)") == "F.linear(x, w)");
  CHECK(PythonOperators("torch.relu(torch.conv2d(x, w))") == "torch.relu(torch.conv2d(x, w))");
  CHECK(PythonOperators("torch.linalg_vector_norm(x, 2, [1], True)") ==
        "torch.linalg.vector_norm(x, 2, [1], True)");
  CHECK(PythonOperators("torch.mse_loss(f(a, b), b)") == "F.mse_loss(f(a, b), b)");
  CHECK(PythonOperators("torch.mse_loss(a, b, 1)") == "torch.ops.aten.mse_loss(a, b, 1)");
  CHECK(PythonOperators("torch.elu(x, 1.0, 1, 1)") == "torch.ops.aten.elu(x, 1.0, 1, 1)");
  CHECK(PythonOperators("torch.upsample_nearest2d(x, [4, 4])") ==
        "torch.ops.aten.upsample_nearest2d(x, [4, 4])");
  CHECK(PythonOperators("mytorch.linear(x) + a.torch.linear") == "mytorch.linear(x) + a.torch.linear");
  CHECK(PythonOperators("[n] + x.shape[2:]") == "[n] + list(x.shape[2:])");
  CHECK(PythonOperators("x.shape[2] + y.shape[:1]") == "x.shape[2] + list(y.shape[:1])");
  CHECK(PythonOperators("torch.") == "torch.");
}

TEST_CASE("a problem with layers, dropout and a tuple, as Python") {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  const Problem problem = problems.Find("level2/1");
  CHECK(PythonModel(AtSize(problem, "small")) == R"(import torch
import torch.nn as nn


def compute(x, weight, bias, shift):
    y = torch.conv2d(x, weight, bias)
    return torch.relu(y) + shift


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias_shape):
        super().__init__()
        self.add("conv.weight", (torch.rand([out_channels, in_channels, 3, 3]) * 2 - 1) * (9*in_channels) ** -0.5)
        self.add("conv.bias", (torch.rand([out_channels]) * 2 - 1) * (9*in_channels) ** -0.5)
        self.bias = nn.Parameter(torch.randn([out_channels, 1, 1]))

    def add(self, name, value):
        """Registers a parameter under a name with dots, "conv.weight"."""
        *path, last = name.split(".")
        module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module._modules[part]
        module.register_parameter(last, nn.Parameter(value))

    def forward(self, x):
        return compute(x, self.get_parameter("conv.weight"), self.get_parameter("conv.bias"), self.bias)


B = 4
C = 16
H = 32
O = 32
W = 32


def get_inputs():
    return [torch.randn([B, C, H, W])]


def get_init_inputs():
    return [C, O, 3, (O, 1, 1)]
)");
}

TEST_CASE("what the model draws itself stands in forward, constants are arguments") {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  const Problem dropout = problems.Find("level2/66");
  const std::string text = PythonModel(AtSize(dropout, "small"));
  CHECK(text.find("    def forward(self, x):\n        noise = (torch.rand([B, N])).to(x.device)\n") !=
        std::string::npos);
  const Problem scalar = problems.Find("level1/5");
  const std::string constant = PythonModel(AtSize(scalar, "small"));
  CHECK(constant.find(
            "    def forward(self, a, constant1):\n        # Always 3.14.\n        return compute(a)\n") !=
        std::string::npos);
  CHECK(constant.find("    return [torch.randn([M, N]), 3.14]\n") != std::string::npos);
}

TEST_CASE("for admission: the module itself, and mistakes that a problem of its kind can have") {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  const Problem layers = problems.Find("level2/1"), relu = problems.Find("level1/19");
  for (const Problem* problem : {&layers, &relu}) {
    const SizedProblem sized = AtSize(*problem, "small");
    const std::vector<PythonAnswer> answers = PythonAnswers(sized);
    REQUIRE(answers.size() == 3);
    CHECK(answers[0].source == PythonModel(sized) + "\n\nclass ModelNew(Model):\n    pass\n");
    for (const PythonAnswer& answer : answers) {
      CHECK(answer.must_pass == (&answer == &answers[0]));
      CHECK(answer.source.find("\nclass ModelNew(Model):\n") != std::string::npos);
    }
    CHECK(answers[2].name == (problem == &layers ? "modelnew: all weights zero" : "modelnew: zeros"));
  }
  const Problem dropout = problems.Find("level2/66");
  CHECK_THROWS_WITH(PythonAnswers(AtSize(dropout, "small")), Catch::StartsWith("Model draws `noise` itself"));
}

TEST_CASE("where the names of the constructor's arguments are unknown, it takes them all") {
  Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level2/1");
  REQUIRE(problem.model.has_value());
  problem.model->arguments.clear();
  const std::string text = PythonModel(AtSize(problem, "small"));
  CHECK(text.find("    def __init__(self, *init):\n") != std::string::npos);
  CHECK(text.find("self.bias = nn.Parameter(torch.randn([O, 1, 1]))") != std::string::npos);
}

TEST_CASE("without facts a model has parameters under the problem's names") {
  Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level2/1");
  problem.model.reset();
  const std::string text = PythonModel(AtSize(problem, "small"));
  CHECK(text.find("    def __init__(self):\n") != std::string::npos);
  CHECK(
      text.find("        self.weight = nn.Parameter((torch.rand([O, C, 3, 3]) * 2 - 1) * (9*C) ** -0.5)\n") !=
      std::string::npos);
  CHECK(text.find("    return []\n") != std::string::npos);
}

}  // namespace
}  // namespace kevin
