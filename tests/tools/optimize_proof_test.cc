// `kevin optimize`: what the proof of an exported file decides.

#include "tools/optimize_proof.h"

#include "tests/catch.h"

namespace kevin {
namespace {

TEST_CASE("a drop-in gains only where the whole interval of calls in Python does") {
  Proof proof;
  CHECK_FALSE(IsFasterInPython(proof));
  proof.speedup = {1.20, 0.99, 1.40};
  CHECK_FALSE(IsFasterInPython(proof));
  proof.speedup = {1.20, 1.00, 1.40};
  CHECK_FALSE(IsFasterInPython(proof));
  proof.speedup = {1.20, 1.01, 1.40};
  CHECK(IsFasterInPython(proof));
}

}  // namespace
}  // namespace kevin
