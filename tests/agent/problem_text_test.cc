#include "agent/problem_text.h"

#include "agent/conversation.h"
#include "env/problem/precision.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/support/golden.h"

namespace kevin {
namespace {

Problem Load(const std::string& file) {
  return LoadProblemFile(SourceFolder().string() + "/env/problems/" + file);
}

std::string Values(const TensorSpec& spec) { return ValuesText(spec, false, true); }

}  // namespace

TEST_CASE("where the values of an input come from") {
  TensorSpec spec;
  CHECK(Values(spec) == "mixture");
  spec.offset = 64, spec.scale = 2;
  CHECK(Values(spec) == "mixture, times 2, plus 64");
  spec.distribution = Distribution::kUniform;
  CHECK(Values(spec) == "uniform in [62, 66]");
  spec.distribution = Distribution::kNormal;
  CHECK(Values(spec) == "bell-shaped, mean 64, standard deviation 2, in [58, 70]");
  spec.distribution = Distribution::kSigns, spec.scale = 1, spec.offset = 0;
  CHECK(Values(spec) == "-1 or 1");
  spec.distribution = Distribution::kNormal, spec.structure = Structure::kUpper;
  CHECK(Values(spec).ends_with("upper triangular: zero below the diagonal"));
  CHECK(ValuesText(spec, true, true).starts_with("uniform in [0, 1]"));
  spec.is_param = true;
  CHECK(ValuesText(spec, true, true).starts_with("bell-shaped"));
}

TEST_CASE("how rows are shifted") {
  TensorSpec spec;
  spec.shape = {"B", "N"};
  spec.row_shift = 150;
  CHECK(
      Values(spec) ==
      "mixture; if bell-shaped times 8, each row (all behind the first dimension) is shifted by -150, 0 or 150 "
      "at random");
  CHECK(ValuesText(spec, true, true) == "uniform in [0, 1]");
  spec.shape = {"N"};
  spec.distribution = Distribution::kNormal;
  CHECK(Values(spec).ends_with("; in one call of four, all of it is shifted by -150, 0 or 150 at random"));
}

TEST_CASE("indices have their range") {
  const Problem problem = Load("level1/095_cross_entropy.toml");
  const SizedProblem sized = AtSize(problem, "small");
  CHECK(ValuesText(sized.inputs[1].spec, false, true) == "integers from 0 to 1023");
  CHECK(ValuesText(problem.inputs[1], false, false) == "integers from 0 to C - 1");
  CHECK(ValuesText(sized.inputs[0].spec, false, true).starts_with("mixture, times 4, plus 64; "));
}

TEST_CASE("the tolerance with the numbers of the problem") {
  const Problem matmul = Load("level1/001_square_matmul.toml");
  const std::string text = ToleranceText(AtSize(matmul, "small"), true);
  CHECK(text.find("|y - t| <= max(4 |r - t|, ") != std::string::npos);
  CHECK(text.find(fmt::format("2^-23, {} terms", AtSize(matmul, "small").reduction)) != std::string::npos);
  CHECK(ToleranceText(AtSize(matmul, "small"), false).find("F s)") != std::string::npos);
  const Problem argmax = Load("level1/051_argmax.toml");
  CHECK(ToleranceText(AtSize(argmax, "small"), true)
            .starts_with("An index is correct if it points at a maximum"));
  const Problem half = InPrecision(matmul, Precision::kFp16);
  CHECK(ToleranceText(AtSize(half, "small"), true).find(" |t|): t is") != std::string::npos);
  // A scalar has no rows.
  const std::string scalar = ToleranceText(AtSize(Load("level1/095_cross_entropy.toml"), "small"), true);
  CHECK(scalar.find("s the magnitude of t") != std::string::npos);
  CHECK(scalar.find("dimension") == std::string::npos);
  CHECK(text.find("RMS error of a row") != std::string::npos);
}

TEST_CASE("products are told by the families") {
  CHECK(HasProducts(Load("level1/001_square_matmul.toml")));
  CHECK_FALSE(HasProducts(Load("level1/019_relu.toml")));
  Problem own;
  CHECK(HasProducts(own));  // nothing is known of it
}

// agent_test "[.figures]": the table of tests/bench/RESULTS.md.
TEST_CASE("sizes of first prompts", "[.figures]") {
  ProblemSet problems;
  for (const std::string kind : {"cpp", "cuda"}) {
    for (const std::string level : {"level1/", "level2/", "level3/"}) {
      std::vector<std::pair<size_t, std::string>> sizes;
      for (const std::string& id : problems.Ids()) {
        if (!id.starts_with(level)) continue;
        const Problem problem = problems.Find(id);
        const SizedProblem sized = AtFirstShape(problem, kind == "cpp" ? "small" : "full");
        ConversationContext context;
        context.problem = &sized;
        context.kind = kind;
        context.machine =
            "AMD EPYC 9V74, 2 cores, avx2 fma avx512f, L1d 32K, L2 1024K, L3 32768K, 24 GB memory";
        context.compiler =
            kind == "cpp" ? "g++ (Debian 12.2.0-14) 12.2.0" : "NVRTC 13.0 (88), headers 13.0, CCCL 3.0.1";
        context.tune = 8;
        context.peak_gb_per_s = 24.4, context.peak_gflop_per_s = 108;
        size_t bytes = 0;
        for (const Message& message : BuildMessages(context, {})) bytes += message.content.size();
        sizes.emplace_back(bytes, id);
      }
      std::sort(sizes.begin(), sizes.end());
      if (sizes.empty()) continue;
      const auto tokens = [](size_t bytes) { return static_cast<int>(static_cast<double>(bytes) / 3.5); };
      const auto& [most, longest] = sizes.back();
      const auto over =
          std::count_if(sizes.begin(), sizes.end(), [&](const auto& s) { return tokens(s.first) > 3000; });
      fmt::print("{:5} {} {} problems: {} to {} tokens, median {}; most: {}; above 3000: {}\n", kind, level,
                 sizes.size(), tokens(sizes.front().first), tokens(most),
                 tokens(sizes[sizes.size() / 2].first), longest, over);
    }
  }
}

TEST_CASE("the first prompt of every level-1 problem has at most 3,000 tokens on a CPU") {
  ProblemSet problems;
  for (const std::string& id : problems.Ids()) {
    if (!id.starts_with("level1/")) continue;
    const Problem problem = problems.Find(id);
    const SizedProblem sized = AtFirstShape(problem, "small");
    ConversationContext context;
    context.problem = &sized;
    context.tune = 8;
    size_t bytes = 0;
    for (const Message& message : BuildMessages(context, {})) bytes += message.content.size();
    INFO(id);
    CHECK(bytes <= 10500);  // at 3.5 bytes a token
  }
}

}  // namespace kevin
