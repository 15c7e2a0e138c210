// Places and strides of outputs as a hostile worker may name them.

#include "env/python/output_places.h"

#include <limits>

#include "tests/catch.h"

namespace kevin {
namespace {

ConcreteTensor Output(std::vector<int64_t> shape) {
  ConcreteTensor tensor;
  tensor.spec.name = "out";
  tensor.spec.dtype = DType::kF32;
  tensor.elements = 1;
  for (const int64_t dim : shape) tensor.elements *= dim;
  tensor.bytes = tensor.elements * 4;
  tensor.shape = std::move(shape);
  return tensor;
}

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

}  // namespace

TEST_CASE("the extent of an output follows from its strides, as long as they are possible") {
  const ConcreteTensor matrix = Output({3, 5});
  CHECK(ExtentOfOutput(matrix, {5, 1}) == 60);
  CHECK(ExtentOfOutput(matrix, {1, 3}) == 60);             // transposed
  CHECK(ExtentOfOutput(matrix, {0, 1}) == 20);             // expanded
  CHECK(ExtentOfOutput(matrix, {10, 2}) == 116);           // every other element
  CHECK(ExtentOfOutput(Output({1, 5}), {1000, 1}) == 20);  // a dimension of one
  for (const std::vector<int64_t>& strides :
       std::vector<std::vector<int64_t>>{{-1, 1},
                                         {5, -1},
                                         {5},
                                         {5, 1, 1},
                                         {kLargest, 1},
                                         {1, kLargest},
                                         {int64_t{1} << 40, int64_t{1} << 40}})
    CHECK(ExtentOfOutput(matrix, strides) == 0);
}

TEST_CASE("no stride makes an extent small by overflow") {
  // steps * stride is 2^64 and a little more.
  for (const int64_t steps : {(int64_t{1} << 25) + 1, int64_t{1} << 26, (int64_t{1} << 30) - 1}) {
    const auto stride =
        static_cast<int64_t>(std::numeric_limits<uint64_t>::max() / static_cast<uint64_t>(steps)) + 1;
    CHECK(ExtentOfOutput(Output({steps + 1}), {stride}) == 0);
    CHECK(ExtentOfOutput(Output({2, steps + 1}), {1, stride}) == 0);
  }
}

TEST_CASE("an output lies whole in the memory of its worker, at an address of its type") {
  const ConcreteTensor vector = Output({16});
  constexpr uint64_t kMemory = 4096, kBytes = 64;
  CHECK(RefusedPlace(vector, 0, kBytes, kMemory).empty());
  CHECK(RefusedPlace(vector, kMemory - kBytes, kBytes, kMemory).empty());
  for (const uint64_t offset :
       {kMemory - kBytes + 4, kMemory, uint64_t{2}, ~uint64_t{0}, ~uint64_t{0} - kBytes + 1})
    CHECK(RefusedPlace(vector, offset, kBytes, kMemory).find("output `out` is no new tensor") == 0);
  CHECK_FALSE(RefusedPlace(vector, 0, kMemory + 1, kMemory).empty());
  CHECK(RefusedPlace(vector, 0, 0, kMemory) == "an output has strides that reach outside its memory");
}

TEST_CASE("outputs of a batch lie apart") {
  CHECK(RefusedOverlap({}).empty());
  CHECK(RefusedOverlap({{64, 128}, {0, 64}, {128, 192}}).empty());
  CHECK(RefusedOverlap({{64, 128}, {0, 65}}).find("aliases the output of an earlier call") !=
        std::string::npos);
  CHECK_FALSE(RefusedOverlap({{0, 64}, {0, 64}}).empty());
}

}  // namespace kevin
