// How the search reads references and chooses: no kernel is compiled here.

#include <set>

#include "env/error.h"
#include "env/problem/problem.h"
#include "policies/search/family.h"
#include "policies/search/search_policy.h"
#include "tests/catch.h"
#include "tests/support/reply.h"

using namespace kevin;
using namespace kevin::test;

namespace {

Request Relu() {
  return MakeRequest("def forward(x):\n    return torch.relu(x)\n", {{"x", {64, 128}}}, {64, 128});
}

std::string Next(const Request& request) {
  return SourceOf(MakeSearchPolicy()->Complete(request, nullptr, nullptr).text);
}

std::string WhyNot(const std::string& reference, std::vector<TensorShape> inputs,
                   std::vector<int64_t> output) {
  return MakeSearchPolicy()->WhyNot(MakeRequest(reference, inputs, output).task);
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

search::Kernel SmallKernel() {
  search::Kernel kernel;
  kernel.family = "toy";
  kernel.knobs = {{"a", {"1", "2", "3"}}, {"b", {"x", "y"}}};
  return kernel;
}

std::string Attempt(const search::Kernel& kernel, const std::string& a, const std::string& b) {
  return search::SettingLine(kernel, {{"a", a}, {"b", b}});
}

}  // namespace

TEST_CASE("the same seed gives the same schedules, another seed others") {
  const auto sequence = [](uint64_t seed) {
    Request request = Relu();
    request.sampling.seed = seed;
    std::vector<std::string> settings;
    const double speedups[] = {1.10, 1.05, 1.20, 0.90, 1.00, 1.15};
    for (const double speedup : speedups) {
      const std::string source = Next(request);
      settings.push_back(SettingOf(source));
      AddAttempt(request.task, source, "measured", speedup);
    }
    return settings;
  };
  const auto written = [](const std::string& store, const std::string& prefetch, const std::string& unroll) {
    return "family=elementwise store=" + store + " prefetch=" + prefetch + " unroll=" + unroll +
           " chunk=share lanes=full";
  };
  const std::vector<std::string> golden = {written("stream", "0", "4"),   written("plain", "0", "4"),
                                           written("stream", "512", "4"), written("stream", "1024", "4"),
                                           written("stream", "512", "1"), written("stream", "512", "2")};
  CHECK(sequence(1) == golden);
  CHECK(sequence(1) == sequence(1));
  CHECK(sequence(1) != sequence(2));
  CHECK(sequence(1)[0] == sequence(2)[0]);
}

TEST_CASE("no schedule comes twice until all were tried") {
  const search::Kernel kernel = SmallKernel();
  std::vector<TaskAttempt> attempts;
  std::set<search::Setting> seen;
  for (int turn = 0; turn < 6; ++turn) {
    const search::Choice choice = search::ChooseNext(kernel, attempts, 3);
    CHECK(seen.insert(choice.setting).second);
    TaskAttempt attempt;
    attempt.source = search::SettingLine(kernel, choice.setting);
    attempt.outcome = "measured";
    attempt.speedup = 1.0 + 0.1 * turn;
    attempts.push_back(attempt);
  }
  const search::Choice again = search::ChooseNext(kernel, attempts, 3);
  CHECK(search::SettingLine(kernel, again.setting) == attempts.back().source);
}

TEST_CASE("the search steps away from the fastest schedule") {
  const search::Kernel kernel = SmallKernel();
  Task task;
  AddAttempt(task, Attempt(kernel, "1", "x"), "measured", 1.0);
  AddAttempt(task, Attempt(kernel, "3", "y"), "measured", 2.0);
  int steps = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const search::Setting next = search::ChooseNext(kernel, task.attempts, seed).setting;
    steps += (next.at("a") != "3") + (next.at("b") != "y") == 1;
  }
  CHECK(steps >= 30);
}

TEST_CASE("values seen only in failures come last") {
  const search::Kernel kernel = SmallKernel();
  Task task;
  AddAttempt(task, Attempt(kernel, "1", "x"), "measured", 1.0);
  AddAttempt(task, Attempt(kernel, "2", "x"), "wrong", 0);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CHECK(search::ChooseNext(kernel, task.attempts, seed).setting.at("a") != "2");
  }
}

TEST_CASE("settings are read back from a kernel's first line, and only for the same knobs") {
  const search::Kernel kernel = SmallKernel();
  const search::Setting setting = {{"a", "2"}, {"b", "y"}};
  const std::string line = search::SettingLine(kernel, setting);
  CHECK(line == "// search: family=toy a=2 b=y\n");
  CHECK(search::ReadSetting(kernel, "#pragma once\n" + line + "int x;") == setting);
  CHECK_FALSE(search::ReadSetting(kernel, "// search: family=toy a=2\n"));
  CHECK_FALSE(search::ReadSetting(kernel, "// search: family=toy a=9 b=y\n"));
  CHECK_FALSE(search::ReadSetting(kernel, "// search: family=other a=2 b=y\n"));
  CHECK_FALSE(search::ReadSetting(kernel, "int x;"));
}

TEST_CASE("a kernel to start from is named, not edited") {
  Request request = Relu();
  request.task.start_source = "extern \"C\" void launch(const float* x, float* out) {}";
  AddAttempt(request.task, request.task.start_source, "measured", 1.3);
  const std::string reply = MakeSearchPolicy()->Complete(request, nullptr, nullptr).text;
  CHECK(Has(reply, "is not edited"));
  CHECK(Has(SourceOf(reply), "// search: family=elementwise"));
}

TEST_CASE("WhyNot names the reason, the families and what would do") {
  const std::string conv = WhyNot("def forward(x, w):\n    return torch.conv2d(x, w)\n",
                                  {{"x", {1, 3, 8, 8}}, {"w", {4, 3, 3, 3}}}, {1, 4, 6, 6});
  CHECK(Has(conv, "`conv2d`"));
  for (const char* family : {"elementwise", "reduction", "softmax", "scan", "matmul"})
    CHECK(Has(conv, family));
  CHECK(Has(conv, "language model"));
  CHECK(Has(conv, "replay"));
  CHECK(Has(WhyNot("def forward(x):\n    if True:\n        x = x + 1\n    return x\n", {{"x", {4}}}, {4}),
            "control flow"));
  CHECK(Has(WhyNot("def forward(x):\n    return torch.max(x, 1)\n", {{"x", {4, 4}}}, {4}), "together"));
  CHECK(Has(WhyNot("nonsense", {{"x", {4}}}, {4}), "outside a function"));
  Request ptx = Relu();
  ptx.task.kind = "ptx";
  CHECK(Has(MakeSearchPolicy()->WhyNot(ptx.task), "not ptx"));
  CHECK_THROWS_AS(MakeSearchPolicy()->Complete(ptx, nullptr, nullptr), Error);
}

TEST_CASE("references are recognised however they are spelled") {
  const auto family = [](const std::string& reference) {
    const Request request = MakeRequest(reference, {{"x", {6, 40}}, {"y", {6, 40}}, {"w", {40}}}, {6, 40});
    const std::string setting = SettingOf(Next(request));
    return setting.substr(0, setting.find(' '));
  };
  CHECK(family("def forward(x, y, w):\n    return x.relu()\n") == "family=elementwise");
  CHECK(family(
            "def forward(a: Tensor, b: Tensor, c: Tensor) -> Tensor:\n  t = a + b\n  t *= 2\n  return t\n") ==
        "family=elementwise");
  CHECK(family("def gate(v, k: float = 2.0):\n    return v * torch.sigmoid(k * v)\n"
               "def forward(x, y, w):\n    # a comment\n    return gate(\n        x, k=1.5)\n") ==
        "family=elementwise");
  CHECK(family("def forward(x, y, w):\n    return x * w[None, :]\n") == "family=broadcast");
  CHECK(family("def forward(x, y, w):\n    e = torch.exp(x - torch.max(x, dim=1, keepdim=True)[0])\n"
               "    return e / torch.sum(e, dim=1, keepdim=True)\n") == "family=softmax");
  CHECK(family("def forward(x, y, w):\n    return x / torch.norm(x, 2, 1, True)\n") == "family=norm");
  CHECK(family("def forward(x, y, w):\n    return torch.layer_norm(x, x.shape[1:], w)\n") == "family=norm");
  CHECK(family("def forward(x, y, w):\n    return x.cumsum(-1)\n") == "family=scan");
}

TEST_CASE("sizes are written with the problem's symbols") {
  Request request = Relu();
  request.task.arguments[0].shape_symbols = {"B", "2*N"};
  request.task.symbols = {{"B", 64}, {"N", 64}};
  CHECK(Has(Next(request), "kCount = (B) * (2*N);"));
}

TEST_CASE("for kind cuda the reply is device code and a launch function") {
  Request request = Relu();
  request.task.kind = "cuda";
  CHECK(MakeSearchPolicy()->WhyNot(request.task).empty());
  const std::string reply = MakeSearchPolicy()->Complete(request, nullptr, nullptr).text;
  CHECK(
      Has(reply,
          "```cuda\n// search: family=elementwise each=4 threads=256 cache=stream math=precise walk=once\n"));
  const std::string source = SourceOf(reply);
  CHECK(Has(source, "__global__"));
  CHECK(Has(source, "\nvoid launch(const float* in0, float* out0) {"));
  CHECK(Has(source, "<<<"));
  CHECK_FALSE(Has(source, "extern \"C\""));
  CHECK_FALSE(Has(source, "#include"));
  CHECK_FALSE(Has(source, "__builtin"));
}

TEST_CASE("CUDA schedules depend on the seed and on what was measured only") {
  const auto sequence = [](uint64_t seed) {
    Request request = Relu();
    request.task.kind = "cuda";
    request.sampling.seed = seed;
    std::vector<std::string> sources;
    for (const double speedup : {1.10, 1.05, 1.20, 0.90, 1.00}) {
      sources.push_back(Next(request));
      AddAttempt(request.task, sources.back(), "measured", speedup);
    }
    return sources;
  };
  const std::vector<std::string> once = sequence(1), other = sequence(2);
  CHECK(once == sequence(1));
  CHECK(once != other);
  CHECK(once[0] == other[0]);
  CHECK(std::set<std::string>(once.begin(), once.end()).size() == once.size());
}

TEST_CASE("each family writes CUDA, and the schedule that suits the sizes comes first") {
  const auto setting = [](const std::string& reference, const std::vector<TensorShape>& inputs,
                          const std::vector<int64_t>& output, bool is_index = false) {
    Request request = MakeRequest(reference, inputs, output, is_index);
    request.task.kind = "cuda";
    return SettingOf(Next(request));
  };
  const auto of_x = [&](const std::string& expression, std::vector<int64_t> shape,
                        std::vector<int64_t> output, bool is_index = false) {
    return setting("def forward(x):\n    return " + expression + "\n", {{"x", std::move(shape)}}, output,
                   is_index);
  };
  // Short rows stay in registers, long ones in a cluster's shared memory, few huge ones are split.
  CHECK(Has(of_x("torch.softmax(x, 1)", {4096, 1024}, {4096, 1024}), "family=softmax row=registers"));
  CHECK(Has(of_x("torch.softmax(x, 1)", {4096, 393216}, {4096, 393216}), "family=softmax row=cluster8"));
  CHECK(Has(of_x("torch.softmax(x, 1)", {4, 39321600}, {4, 39321600}), "family=softmax row=split"));
  CHECK(Has(of_x("torch.sum(x)", {4096, 4096}, {}), "family=reduction row=split"));
  CHECK(Has(of_x("torch.sum(x, 1)", {4096, 4096}, {4096}), "family=reduction row=block"));
  CHECK(Has(of_x("torch.amax(x, [1])", {8, 512, 64}, {8, 64}), "family=reduction batch="));
  CHECK(Has(of_x("torch.argmin(x, 1)", {8, 512, 64}, {8, 64}, true), "family=extreme batch="));
  CHECK(Has(of_x("torch.cumsum(x, 1)", {4096, 4096}, {4096, 4096}), "family=scan each="));
  const auto product = [&](std::vector<int64_t> a, std::vector<int64_t> b, const std::vector<int64_t>& out) {
    return setting("def forward(a, b):\n    return torch.matmul(a, b)\n",
                   {{"a", std::move(a)}, {"b", std::move(b)}}, out);
  };
  CHECK(Has(product({4096, 4096}, {4096, 4096}, {4096, 4096}),
            "family=matmul via=tf32x3 tile=128x128 shares=1 "));
  CHECK(Has(product({256, 524288}, {524288, 256}, {256, 256}), "shares=66 "));  // two blocks a multiprocessor
  CHECK(Has(product({2048, 65536}, {65536, 1}, {2048, 1}), "family=matvec rows=4"));
}

TEST_CASE("the device decides how work is divided") {
  Request request = MakeRequest("def forward(x):\n    return torch.sum(x)\n", {{"x", {4096, 4096}}}, {});
  request.task.kind = "cuda";
  CHECK(Has(Next(request), "kParts = 1056,"));
  request.task.device.multiprocessors = 10;
  CHECK(Has(Next(request), "kParts = 80,"));
}

TEST_CASE("CUDA texts use the problem's symbols, in device code and in launch") {
  Request request = Relu();
  request.task.kind = "cuda";
  request.task.arguments[0].shape_symbols = {"B", "2*N"};
  request.task.symbols = {{"B", 64}, {"N", 64}};
  CHECK(Has(Next(request), "kCount = 1L * (B) * (2*N);"));
  CHECK(Has(Next(request), "ceil_div((B) * (2*N), 4 * 4 * 256)"));
}

TEST_CASE("every problem is written, in C++ and in CUDA and at every size, or is answered with a reason") {
  const ProblemSet problems(KEVIN_SOURCE_DIR "/env/problems");
  std::set<std::string> written;  // at some size
  for (const std::string& id : problems.Ids()) {
    const Problem problem = problems.Find(id);
    for (const auto& [size, symbols] : problem.sizes) {
      const SizedProblem sized = AtSize(problem, size);
      Request request;
      request.task.reference = problem.reference;
      request.task.symbols = symbols;
      const auto add = [&](const ConcreteTensor& tensor, const char* role, const std::string& qualifier) {
        request.task.arguments.push_back({tensor.spec.name, role,
                                          qualifier + DTypeCpp(tensor.spec.dtype) + "*", tensor.shape,
                                          tensor.spec.shape});
      };
      for (const ConcreteTensor& tensor : sized.inputs) add(tensor, "input", "const ");
      for (const ConcreteTensor& tensor : sized.outputs) add(tensor, "output", "");
      INFO(id << " " << size);
      const auto policy = MakeSearchPolicy();
      request.task.kind = "cpp";
      const std::string why_not = policy->WhyNot(request.task);
      const bool is_written = why_not.empty();
      if (!is_written) CHECK_THROWS_AS(Next(request), Error);
      request.task.kind = "cuda";
      CHECK(policy->WhyNot(request.task).empty() == is_written);
      if (!is_written) continue;
      written.insert(id);
      CHECK(Has(Next(request), "__global__"));
    }
  }
  std::string all;
  for (const std::string& id : written) all += id + " ";
  INFO(all);
  CHECK(written.size() >= 41);
}
