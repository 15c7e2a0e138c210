// The number of slots that fit on a GPU, and the messages when none fits.

#include "env/error.h"
#include "env/process/runner_protocol.h"
#include "tests/catch.h"

namespace kevin {
namespace {

constexpr size_t kGib = size_t{1} << 30;

// x[N, 1024 Ki] -> out of the same shape: N * 4 MiB each.
Problem Copies() {
  Problem problem;
  problem.id = "test/copy";
  TensorSpec x, out;
  x.name = "x";
  out.name = "out";
  x.shape = out.shape = {"N", "1048576"};
  problem.inputs = {x};
  problem.outputs = {out};
  problem.sizes = {{"full", {{"N", 1024}}}, {"middle", {{"N", 64}}}, {"small", {{"N", 8}}}};
  problem.flops = problem.bytes = problem.min_flops = problem.min_bytes = "N";
  return problem;
}

int Slots(const std::string& size, size_t free_bytes) {
  const Problem problem = Copies();
  return SlotsOnGpu(AtSize(problem, size), free_bytes);
}

std::string Complaint(const std::string& size, size_t free_bytes, ExitCode code) {
  try {
    Slots(size, free_bytes);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return std::string(error.what()) + "; " + error.next_step();
  }
  return "";
}

}  // namespace

TEST_CASE("as many slots as fit, two to six at most") {
  CHECK(Slots("full", 141 * kGib) == 2);  // 8 GiB a slot
  CHECK(Slots("full", 49 * kGib) == 2);
  CHECK(Slots("full", 48 * kGib) == 1);
  CHECK(Slots("full", 41 * kGib) == 1);
  CHECK(Slots("middle", 141 * kGib) == 6);
  CHECK(Slots("middle", 5 * kGib) == 5);  // 0.5 GiB a slot and its guards; 3.5 for the reference
  CHECK(Slots("small", 90 * kGib) == 6);
}

TEST_CASE("a session with all its slots fits into the bytes that it is said to need") {
  for (const char* size : {"full", "middle", "small"}) {
    const Problem problem = Copies();
    const SizedProblem sized = AtSize(problem, size);
    const auto slots = [&](int64_t free_bytes, int64_t reference_bytes) {
      return SlotsOnGpu(sized, static_cast<size_t>(free_bytes), reference_bytes);
    };
    const int64_t bytes = SessionBytesOnGpu(sized);
    CHECK(slots(bytes, 0) == PreferredSlotsOnGpu(sized));
    CHECK(ReferenceBytesOnGpu(sized) < bytes);
    CHECK(LeastSessionBytesOnGpu(sized) < bytes);
    CHECK(slots(LeastSessionBytesOnGpu(sized), 0) == 1);
    CHECK_THROWS_AS(slots(LeastSessionBytesOnGpu(sized) * 99 / 100, 0), Error);
    // What was seen takes the place of the estimate, five slots. A slot has an input of the output's size.
    for (const int64_t seen : {SlotOutputBytes(sized), 12 * SlotOutputBytes(sized)}) {
      const int64_t needed = SessionBytesOnGpu(sized, seen);
      CHECK(slots(needed, seen) == PreferredSlotsOnGpu(sized));
      CHECK(slots(needed - needed / 100, seen) < PreferredSlotsOnGpu(sized));
      CHECK(ReferenceBytesOnGpu(sized, seen) >= seen);
      CHECK((needed < bytes) == (seen < 10 * SlotOutputBytes(sized)));
    }
  }
}

TEST_CASE("too little GPU memory: how much is needed, and the largest size that fits") {
  CHECK(Complaint("full", 39 * kGib, ExitCode::kBadRequest) ==
        "test/copy at size full needs about 40.0 GiB of GPU memory and 39.0 GiB are free; use --size middle");
  CHECK(Complaint("full", 2 * kGib, ExitCode::kBadRequest) ==
        "test/copy at size full needs about 40.0 GiB of GPU memory and 2.0 GiB are free; use --size small");
  CHECK(Complaint("small", kGib / 4, ExitCode::kMachine) ==
        "test/copy at size small needs about 0.3 GiB of GPU memory and 0.2 GiB are free; free memory on the "
        "GPU (nvidia-smi lists its users), or add a smaller size to the problem file");
  CHECK(Complaint("full", 0, ExitCode::kMachine).find("0.0 GiB are free") != std::string::npos);
}

TEST_CASE("input-outputs lie behind the outputs, fenced like them, and no input lies among them") {
  Problem problem = Copies();
  TensorSpec cache;
  cache.name = "cache";
  cache.shape = {"N"};
  cache.is_inout = true;
  problem.inputs = {cache, problem.inputs[0]};
  problem.outputs.push_back(cache);
  const SizedProblem sized = AtSize(problem, "small");
  const SlotLayout layout = LayOutSlots(sized, 3);
  REQUIRE(layout.arguments.size() == 3);  // cache, x, out
  REQUIRE(layout.tensors.size() == 4);
  CHECK(layout.arguments[0].inout);
  CHECK(layout.arguments[0].output);
  CHECK_FALSE(layout.arguments[1].output);
  CHECK_FALSE(layout.arguments[2].inout);
  CHECK(layout.tensors[3].offset == layout.arguments[0].offset);
  CHECK(layout.inouts_begin == static_cast<int64_t>(layout.arguments[2].stride) * 3);
  CHECK(static_cast<int64_t>(layout.arguments[0].offset) == layout.inouts_begin + kSlotPage);
  CHECK(layout.inouts_bytes() == 3 * 3 * kSlotPage);  // 32 bytes between guards
  CHECK(layout.inputs_bytes == 3 * sized.inputs[1].bytes);
}

}  // namespace kevin
