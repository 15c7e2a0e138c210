// What the search writes in CUDA, run on the CPU by cuda_on_cpu.h and compared with plain loops in double
// precision: every family, every value of every knob. Sizes are odd, one, or no whole number of packs.

#include <cmath>
#include <limits>
#include <set>

#include "policies/search/family.h"
#include "policies/search/lower.h"
#include "tests/catch.h"
#include "tests/policies/search/kernel_cases.h"

using namespace kevin;
using namespace kevin::test;

namespace {

const std::string kHead = "#include \"" KEVIN_SOURCE_DIR "/tests/policies/search/cuda_on_cpu.h\"";

// The first schedule and, when `is_every`, all that differ from it in one knob.
std::vector<std::string> Schedules(const Case& one, bool is_every) {
  Request request = MakeRequest(one.reference, one.inputs, one.output, one.index_output);
  request.task.kind = "cuda";
  const search::NodePtr reference = search::ReadReference(one.reference);
  const search::Computation computation{
      search::Lower(*reference, request.task.arguments, {.one_pass_moments = true}),
      search::Lower(*reference, request.task.arguments, {.one_pass_moments = false}), &request.task};
  std::optional<search::Kernel> kernel;
  for (const search::Family& family : search::Families("cuda")) {
    if (!kernel) kernel = family.recognise(computation);
  }
  INFO(one.reference);
  REQUIRE(kernel);
  search::Setting first;
  for (const search::Knob& knob : kernel->knobs) first[knob.name] = knob.values[0];
  std::vector<search::Setting> settings = {first};
  for (const search::Knob& knob : kernel->knobs) {
    for (size_t i = 1; is_every && i < knob.values.size(); ++i) {
      settings.push_back(first);
      settings.back()[knob.name] = knob.values[i];
    }
  }
  std::vector<std::string> sources;
  for (const search::Setting& setting : settings) {
    sources.push_back(search::SettingLine(*kernel, setting) + kernel->write(setting));
  }
  return sources;
}

std::vector<std::string> InCpp(std::vector<std::string> sources) {
  for (std::string& source : sources) source = ToCpp(source);
  return sources;
}

Case Product(const std::string& expression, std::vector<int64_t> a, std::vector<int64_t> b,
             std::vector<int64_t> out, const Truth& truth, double terms) {
  return {"def forward(a, b):\n    return " + expression + "\n",
          {{"a", std::move(a)}, {"b", std::move(b)}},
          std::move(out),
          truth,
          terms};
}

// Sizes that reach what EveryCase is too small for; all schedules of each are tried.
std::vector<Case> LargerCases() {
  const auto softmax = [](const Numbers& c) { return SoftMax(c, false); };
  const auto log_softmax = [](const Numbers& c) { return SoftMax(c, true); };
  const auto centred = [](const Numbers& c) { return Normal(c, true); };
  const auto rms = [](const Numbers& c) { return Normal(c, false); };
  const auto sum = [](const Numbers& c) { return Numbers{RunningSum(c).back()}; };
  const auto last_top = [](const Numbers& c) {
    size_t best = 0;
    for (size_t i = 1; i < c.size(); ++i) best = c[i] > c[best] ? i : best;
    return Numbers{static_cast<double>(best)};
  };
  const std::string rms_norm =
      "def forward(x):\n    return x / torch.sqrt(torch.mean(torch.pow(x, 2), [1], True) + 1e-5)\n";
  std::vector<Case> cases = {
      {Forward("torch.sigmoid(x)"),
       {{"x", {45, 100}}},
       {45, 100},
       Columns(1, 4500, 1,
               [](const Numbers& c) {
                 Numbers out;
                 for (const double x : c) out.push_back(1 / (1 + std::exp(-x)));
                 return out;
               })},
      {"def forward(a, b):\n    return torch.unsqueeze(a, 1) * b\n",
       {{"a", {33}}, {"b", {33, 34}}},
       {33, 34},
       [](const std::vector<Numbers>& in) {
         Numbers out;
         for (size_t i = 0; i < 33 * 34; ++i) out.push_back(in[0][i / 34] * in[1][i]);
         return out;
       }},
      {Forward("torch.softmax(x, 1)"), {{"x", {2, 20002}}}, {2, 20002}, Columns(2, 20002, 1, softmax), 20002},
      {Forward("torch.log_softmax(x, 1)"),
       {{"x", {3, 2600}}},
       {3, 2600},
       Columns(3, 2600, 1, log_softmax),
       2600},
      {Forward("torch.layer_norm(x, [x.size(1), x.size(2)])"),
       {{"x", {2, 4, 16391}}},
       {2, 4, 16391},
       Columns(2, 65564, 1, centred),
       65564},
      {rms_norm, {{"x", {2, 19, 6, 30}}}, {2, 19, 6, 30}, Columns(2, 19, 180, rms), 19},
      {Forward("torch.softmax(x, 1)"),
       {{"x", {2, 150, 37}}},
       {2, 150, 37},
       Columns(2, 150, 37, softmax),
       150},
      {Forward("torch.sum(x, 1)"), {{"x", {2, 130, 67}}}, {2, 67}, Columns(2, 130, 67, sum), 130},
      {Forward("torch.sum(x, 1)"), {{"x", {3, 40004}}}, {3}, Columns(3, 40004, 1, sum), 40004},
      {Forward("torch.argmax(x, 1)"),
       {{"x", {2, 90, 67}}},
       {2, 67},
       Columns(2, 90, 67, last_top),
       1,
       1,
       true},
      {Forward("torch.argmax(x, 1)"), {{"x", {3, 20000}}}, {3}, Columns(3, 20000, 1, last_top), 1, 1, true},
      {Forward("torch.cumsum(x, 1)"),
       {{"x", {2, 40004}}},
       {2, 40004},
       Columns(2, 40004, 1, RunningSum),
       40004},
      {Forward("torch.cumsum(x, 1)"), {{"x", {2, 37, 70}}}, {2, 37, 70}, Columns(2, 37, 70, RunningSum), 37},
      Product("torch.matmul(a, b)", {7, 20004}, {20004, 1}, {7, 1},
              test::Product(1, 7, 1, 20004, false, false), 20004),
      Product("torch.matmul(a, b)", {150, 68}, {68, 140}, {150, 140},
              test::Product(1, 150, 140, 68, false, false), 68),
      Product("torch.matmul(torch.t(a), torch.t(b))", {72, 140}, {150, 72}, {140, 150},
              test::Product(1, 140, 150, 72, true, true), 72)};
  return cases;
}

void CheckAll(const std::vector<Case>& cases, bool is_every) {
  std::vector<std::string> sources;
  std::vector<const Case*> owners;
  for (const Case& one : cases) {
    for (std::string& source : Schedules(one, is_every)) {
      sources.push_back(std::move(source));
      owners.push_back(&one);
    }
  }
  const KernelLibrary library(InCpp(sources), "-O1", kHead);
  for (size_t i = 0; i < sources.size(); ++i) {
    INFO(owners[i]->reference << sources[i].substr(0, sources[i].find('\n')));
    Check(*owners[i], library, i);
  }
}

}  // namespace

TEST_CASE("the first CUDA schedules agree with plain loops in double precision") {
  CheckAll(EveryCase(), false);
}

TEST_CASE("every value of every CUDA knob agrees with plain loops in double precision") {
  CheckAll(LargerCases(), true);
}

TEST_CASE("NaN and infinity come through CUDA kernels as in the reference") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  struct Special {
    std::string expression;
    std::vector<float> in, out;
  };
  const std::vector<Special> specials = {
      {"torch.relu(x)", {nan, -inf, inf, -1}, {nan, 0, inf, 0}},
      {"torch.clamp(x, min=-1.0, max=1.0)", {nan, -inf, inf, 0.5}, {nan, -1, 1, 0.5}},
      {"torch.sigmoid(x)", {nan, -inf, inf, 0}, {nan, 0, 1, 0.5}},
      {"torch.tanh(x)", {nan, -inf, inf, 0}, {nan, -1, 1, 0}},
      {"torch.elu(x, 1.0)", {nan, -inf, inf, 0}, {nan, -1, inf, 0}},
      {"torch.softplus(x)", {nan, -inf, inf, 30}, {nan, 0, inf, 30}},
      {"torch.amax(x, [1])", {1, nan, 3, inf}, {nan}},
      {"torch.amin(x, [1])", {1, 2, -inf, 4}, {-inf}},
      {"torch.softmax(x, 1)", {1, nan, 3, 4}, {nan, nan, nan, nan}},
      {"torch.softmax(x, 1)", {-inf, 0, -inf, 0}, {0, 0.5, 0, 0.5}}};
  std::vector<std::string> sources;
  std::vector<const Special*> owners;
  for (const Special& special : specials) {
    const std::vector<int64_t> out =
        special.out.size() == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 4};
    const Case one{Forward(special.expression), {{"x", {1, 4}}}, out, {}};
    for (const std::string& source : Schedules(one, true)) {
      sources.push_back(source);
      owners.push_back(&special);
    }
  }
  const KernelLibrary library(InCpp(sources), "-O1", kHead);
  for (size_t i = 0; i < sources.size(); ++i) {
    auto in = Allocate<float>(64), out = Allocate<float>(64);
    for (size_t j = 0; j < 4; ++j) in[j] = owners[i]->in[j];
    library.Launch(i, {in.get(), out.get()});
    for (size_t j = 0; j < owners[i]->out.size(); ++j) {
      INFO(sources[i].substr(0, sources[i].find('\n'))
           << owners[i]->expression << " of " << in[j] << " is " << out[j]);
      const float wanted = owners[i]->out[j];
      CHECK((std::isnan(wanted) ? std::isnan(out[j]) : out[j] == Approx(wanted)));
    }
  }
}

TEST_CASE("CUDA index reductions point at the first NaN, else at the first extreme") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::string> sources;
  for (const char* op : {"max", "min"}) {
    const Case rows{
        Forward(std::string("torch.arg") + op + "(x, 1)"), {{"x", {4, 2000}}}, {4}, {}, 1, 1, true};
    for (const std::string& source : Schedules(rows, true)) sources.push_back(source);
  }
  const KernelLibrary library(InCpp(sources), "-O1", kHead);
  auto in = Allocate<float>(8000);
  auto out = Allocate<long>(4);
  for (size_t i = 0; i < sources.size(); ++i) {
    const float sign = i < sources.size() / 2 ? 1.0f : -1.0f;  // the first half is argmax
    for (int j = 0; j < 8000; ++j) in[j] = sign * static_cast<float>(j % 2000);
    in[1700] = in[1701] = nan;
    in[2000 + 20] = in[2000 + 1030] = sign * 5000;
    for (int j = 0; j < 2000; ++j) in[6000 + j] = j % 2 == 0 ? -0.0f : 0.0f;
    library.Launch(i, {in.get(), out.get()});
    INFO(sources[i].substr(0, sources[i].find('\n')));
    CHECK(out[0] == 1700);
    CHECK(out[1] == 20);
    CHECK(out[2] == 1999);
    CHECK(out[3] == 0);
  }
}
