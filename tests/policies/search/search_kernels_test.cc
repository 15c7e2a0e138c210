// What the search writes in C++, compiled and compared with plain loops in double precision: every family,
// several schedules each, sizes that are odd, one, or no whole number of vectors.

#include <cmath>
#include <limits>

#include "policies/search/search_policy.h"
#include "tests/catch.h"
#include "tests/policies/search/kernel_cases.h"
#include "tests/policies/search/kernel_library.h"
#include "tests/support/reply.h"

using namespace kevin;
using namespace kevin::test;

namespace {

// `count` different schedules for the case, as an episode would meet them.
std::vector<std::string> Schedules(const Case& one, int count) {
  const auto policy = MakeSearchPolicy();
  Request request = MakeRequest(one.reference, one.inputs, one.output, one.index_output);
  request.sampling.seed = 11;
  INFO(one.reference << policy->WhyNot(request.task));
  REQUIRE(policy->WhyNot(request.task).empty());
  std::vector<std::string> sources;
  for (int turn = 0; turn < count; ++turn) {
    sources.push_back(SourceOf(policy->Complete(request, nullptr, nullptr).text));
    AddAttempt(request.task, sources.back(), "measured", 1.0 + turn);  // move on from each
  }
  return sources;
}

}  // namespace

TEST_CASE("generated kernels agree with plain loops in double precision") {
  std::vector<std::string> sources;
  std::vector<const Case*> owners;
  const std::vector<Case> cases = EveryCase();
  for (const Case& one : cases) {
    for (std::string& source : Schedules(one, one.schedules)) {
      sources.push_back(std::move(source));
      owners.push_back(&one);
    }
  }
  const KernelLibrary library(sources, "-O1");
  for (size_t i = 0; i < sources.size(); ++i) {
    INFO(owners[i]->reference << SettingOf(sources[i]));
    Check(*owners[i], library, i);
  }
}

TEST_CASE("the first schedules agree on processors without AVX-512, and without AVX") {
  const std::vector<Case> cases = EveryCase();
  std::vector<std::string> sources;
  for (const Case& one : cases) sources.push_back(Schedules(one, 1)[0]);
  for (const char* flags : {"-O1 -mno-avx512f", "-O1 -mno-avx512f -mno-avx -mno-fma"}) {
    const KernelLibrary library(sources, flags);
    for (size_t i = 0; i < cases.size(); ++i) {
      INFO(cases[i].reference << flags);
      Check(cases[i], library, i);
    }
  }
}

TEST_CASE("NaN and infinity come through as in the reference") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  struct Special {
    std::string expression;
    std::vector<float> in, out;
    bool reduces = false;
  };
  const std::vector<Special> specials = {
      {"torch.relu(x)", {nan, -inf, inf, -1}, {nan, 0, inf, 0}},
      {"torch.clamp(x, min=-1.0, max=1.0)", {nan, -inf, inf, 0.5}, {nan, -1, 1, 0.5}},
      {"torch.sigmoid(x)", {nan, -inf, inf, 0}, {nan, 0, 1, 0.5}},
      {"torch.tanh(x)", {nan, -inf, inf, 0}, {nan, -1, 1, 0}},
      {"torch.exp(x)", {nan, -inf, inf, 100}, {nan, 0, inf, inf}},
      {"torch.log(x)", {nan, 0, inf, -1}, {nan, -inf, inf, nan}},
      {"torch.gelu(x)", {nan, -inf, inf, 0}, {nan, nan, inf, 0}},
      {"torch.elu(x, 1.0)", {nan, -inf, inf, 0}, {nan, -1, inf, 0}},
      {"torch.softplus(x)", {nan, -inf, inf, 30}, {nan, 0, inf, 30}},
      {"torch.amax(x, [1])", {1, nan, 3, inf}, {nan}, true},
      {"torch.amin(x, [1])", {1, 2, -inf, 4}, {-inf}, true},
      {"torch.softmax(x, 1)", {1, nan, 3, 4}, {nan, nan, nan, nan}},
      {"torch.softmax(x, 1)", {-inf, 0, -inf, 0}, {0, 0.5, 0, 0.5}},
      {"torch.cumsum(x, 1)", {1, inf, -inf, 1}, {1, inf, nan, nan}}};
  std::vector<std::string> sources;
  for (const Special& s : specials) {
    const std::vector<int64_t> out = s.reduces ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 4};
    sources.push_back(Schedules({Forward(s.expression), {{"x", {1, 4}}}, out, {}}, 1)[0]);
  }
  const KernelLibrary library(sources, "-O1");
  for (size_t i = 0; i < specials.size(); ++i) {
    auto in = Allocate<float>(64), out = Allocate<float>(64);
    for (size_t j = 0; j < 4; ++j) in[j] = specials[i].in[j];
    library.Launch(i, {in.get(), out.get()});
    for (size_t j = 0; j < specials[i].out.size(); ++j) {
      INFO(specials[i].expression << " of " << in[j] << " is " << out[j]);
      CHECK((std::isnan(specials[i].out[j]) ? std::isnan(out[j]) : out[j] == Approx(specials[i].out[j])));
    }
  }
}

TEST_CASE("index reductions point at the first NaN, else at the first extreme") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const KernelLibrary library(
      Schedules({Forward("torch.argmax(x, 1)"), {{"x", {3, 40}}}, {3}, {}, 1, 1, true}, 1), "-O1");
  auto in = Allocate<float>(120);
  auto out = Allocate<long>(3);
  for (int i = 0; i < 120; ++i) in[i] = static_cast<float>(i % 40);
  in[17] = nan;
  in[33] = nan;
  in[40 + 20] = in[40 + 30] = 100;
  library.Launch(0, {in.get(), out.get()});
  CHECK(out[0] == 17);
  CHECK(out[1] == 20);
  CHECK(out[2] == 39);
}

TEST_CASE("kernels compile as an episode compiles them and for processors without AVX-512 or AVX") {
  const std::vector<Case> cases = EveryCase();
  for (const size_t which : {size_t{0}, size_t{5}, cases.size() - 9}) {
    const std::string source = Schedules(cases[which], 1)[0];
    INFO(cases[which].reference);
    CHECK(Compiles(source, "-O3 -march=native"));
    CHECK(Compiles(source, "-O1 -march=haswell"));
    CHECK(Compiles(source, "-O1 -march=x86-64"));
  }
}
