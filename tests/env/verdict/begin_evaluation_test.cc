// Keys of evaluations. Stored verdicts are found by them, so a key must never change by itself.

#include "env/verdict/begin_evaluation.h"

#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/problem/text.h"
#include "tests/catch.h"

namespace kevin {
namespace {

// Of an evaluation that a program of format 3 stored.
const std::map<std::string, std::string> kParts = {
    {"baseline_version", "eager libtorch 2.11.0"},
    {"candidate", "52f91691082afcb5165de11787ab1c59f2fde0669cdffda3ca1be8135d343fe9"},
    {"device_model",
     "AMD EPYC (fma sse4_2 avx avx2 avx512f avx512dq avx512bw avx512vl avx512_bf16 avx512_vnni)"},
    {"driver", "Linux 6.18.44-fc-v669"},
    {"environment_version", "1"},
    {"include_hashes", ""},
    {"inputs", "default"},
    {"isolation", "full"},
    {"kind", "cpp"},
    {"precision", "fp32"},
    {"problem_hash", "1a5e91588136d23ca0fe5ef378b79ed7f4a7268b0a3c14d324320a4005757887"},
    {"size", "small"},
    {"tf32", "off"},
    {"threads", "2"},
    {"tolerance_version", "1"},
    {"toolchain_version", "g++ (Debian 12.2.0-14+deb12u1) 12.2.0"}};
constexpr char kKey[] = "ecbd9ec6755b1947aad09a8d1926a78d9d37e9373918ce00055d04f514db8f52";

}  // namespace

TEST_CASE("the key of a stored evaluation stays as it is; rules enter it only when they are not kevin's") {
  CHECK(KeyOf(kParts) == kKey);
  CHECK(KeyOf(WithRules(kParts, Workload{.size = "small"})) == kKey);
  CHECK(BeginEvaluation(WithRules(kParts, {.size = "small"}), {}, {}).key == kKey);
  CHECK_THROWS_AS(WithRules(kParts, Workload{.rules = "other"}), Error);
}

TEST_CASE("key parts: what all environments have in common, and each one's own, which wins") {
  Problem problem;
  problem.content_hash = "p";
  problem.inputs = {TensorSpec{}};
  const Workload workload{.size = "full", .inputs = "kernelbench", .tf32 = true};
  const std::map<std::string, std::string> parts =
      KeyPartsOf(problem, {"cuda", "x"}, workload, {{"driver", "580"}, {"isolation", "full"}});
  CHECK(parts == std::map<std::string, std::string>{{"candidate", Sha256Hex("cuda\nx")},
                                                    {"driver", "580"},
                                                    {"inputs", "kernelbench"},
                                                    {"isolation", "full"},
                                                    {"kind", "cuda"},
                                                    {"precision", "fp32"},
                                                    {"problem_hash", "p"},
                                                    {"rules_version", std::to_string(kRulesVersion)},
                                                    {"size", "full"},
                                                    {"tf32", "reference"},
                                                    {"tolerance_version", "1"}});
  CHECK(KeyPartsOf(problem, {"cpp", "x"}, workload, {{"tf32", "off"}}).at("tf32") == "off");
}

TEST_CASE("a verdict under older rules never answers for the rules of today") {
  // Of a program whose rules had no version yet: the same question, and another key.
  Problem problem;
  problem.content_hash = "p", problem.inputs = {TensorSpec{}};
  std::map<std::string, std::string> parts = KeyPartsOf(problem, {"cpp", "x"}, {}, {});
  const std::string today = KeyOf(parts);
  REQUIRE(parts.erase("rules_version") == 1);
  CHECK(KeyOf(parts) != today);
  for (int older = 0; older < kRulesVersion; ++older) {
    parts["rules_version"] = std::to_string(older);
    CHECK(KeyOf(parts) != today);
  }
  CHECK(BeginEvaluation(kParts, {}, {}).rules_version == kRulesVersion);
  CHECK(kSecurityRulesVersion <= kRulesVersion);
}

TEST_CASE("an evaluation begins with the workload in the problem's own precision") {
  EvaluateOptions options;
  options.workload = {.size = "full", .inputs = "kernelbench", .precision = "bf16", .tf32 = true};
  const Evaluation evaluation = BeginEvaluation(kParts, options, {});
  CHECK(evaluation.workload == Workload{"full", "kernelbench", "fp32", true});
  CHECK(evaluation.candidate_hash == kParts.at("candidate"));
}

TEST_CASE("a workload is applied to a problem, and survives JSON") {
  Problem problem;
  problem.inputs = {TensorSpec{}};
  CHECK(PrecisionOf(Workload{.precision = "bf16"}.Apply(problem)) == Precision::kBf16);
  CHECK(PrecisionOf(Workload{}.Apply(problem)) == Precision::kFp32);
  CHECK_THROWS_AS(Workload{.precision = "fp8"}.Apply(problem), Error);
  CHECK_THROWS_AS(Workload{.rules = "other"}.Apply(problem), Error);

  const Workload asked{"mine/2", "kernelbench", "fp16", true, "other"};
  CHECK(WorkloadFromJson(WorkloadToJson(asked)) == asked);
  CHECK(WorkloadFromJson(nlohmann::json::object()) == Workload{});
  CHECK(WorkloadToJson(Workload{.size = "small"}).dump() ==
        R"({"inputs":"default","precision":"fp32","size":"small","tf32":false})");
}

}  // namespace kevin
