#include "env/verdict/admission.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/catch.h"

namespace kevin {
namespace {

// The numbers of the contractions that a decoy rounds, of `count`.
std::set<size_t> RoundedBy(const CoarseDecoy& decoy, size_t count) {
  std::set<size_t> numbers;
  for (size_t i = 0; i < count; ++i) {
    if (decoy.is_coarse(i)) numbers.insert(i);
  }
  return numbers;
}

}  // namespace

TEST_CASE("decoys of coarse layers: which types, which layers") {
  const Problem problem;
  const auto decoys = CoarseDecoys(problem, 5, false);
  REQUIRE(decoys.size() == 8);
  CHECK(decoys[0].name == "TF32 in the first contraction");
  CHECK(decoys[0].dropped == 13);
  CHECK(RoundedBy(decoys[0], 5) == std::set<size_t>{0});
  CHECK(RoundedBy(decoys[1], 5) == std::set<size_t>{4});
  CHECK(RoundedBy(decoys[2], 5) == std::set<size_t>{1, 3});
  CHECK(RoundedBy(decoys[3], 5).size() == 5);
  CHECK(decoys[7].name == "bf16 in all contractions");
  CHECK(decoys[7].dropped == 16);
  CHECK(CoarseDecoys(problem, 2, false).size() == 6);  // of two, every other is the last
  CHECK(CoarseDecoys(problem, 1, false).empty());
  // Where the reference may use TF32 itself, it is correct.
  for (const CoarseDecoy& decoy : CoarseDecoys(problem, 5, true)) CHECK(decoy.dropped == 16);
}

TEST_CASE("the flag marks the decoys that it names, and no others") {
  Problem problem;
  CHECK_FALSE(IsMarked(problem, "TF32 in the last contraction"));
  problem.flags["coarse-layers"] = "TF32 in the last contraction: the norms amplify as much.";
  CHECK(IsMarked(problem, "TF32 in the last contraction"));
  CHECK_FALSE(IsMarked(problem, "TF32 in the first contraction"));
  CHECK_FALSE(IsMarked(problem, "bf16 in the last contraction"));
}

TEST_CASE("results of decoys survive the way to the caller") {
  const std::vector<DecoyResult> decoys =
      DecoysFromJson(DecoysToJson({{"zeros", false, false, "off", true, false},
                                   {"TF32 in all contractions", false, true, "near", true, true}}));
  REQUIRE(decoys.size() == 2);
  CHECK((!decoys[0].is_marked && decoys[0].reason == "off"));
  CHECK((decoys[1].is_marked && decoys[1].passed && decoys[1].distinguishable));
}

}  // namespace kevin
