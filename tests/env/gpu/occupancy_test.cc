// How many warps stay resident, against values worked out by hand for compute capability 9.0.

#include <vector>

#include "env/gpu/compile/gpu_module.h"
#include "tests/catch.h"

namespace kevin {
namespace {

struct Row {
  int threads, registers;
  int64_t shared_bytes;
  int blocks;
  double share;
  const char* limited_by;
};

void CheckAll(const MultiprocessorLimits& limits, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    INFO(row.threads << " threads, " << row.registers << " registers, " << row.shared_bytes << " bytes");
    const Occupancy occupancy = OccupancyOf(limits, row.threads, row.registers, row.shared_bytes);
    CHECK(occupancy.blocks == row.blocks);
    CHECK(occupancy.share == row.share);
    CHECK(occupancy.limited_by == row.limited_by);
  }
}

}  // namespace

TEST_CASE("occupancy by threads and blocks") {
  CheckAll({}, {{256, 32, 0, 8, 1, "threads"},
                {1024, 32, 0, 2, 1, "threads"},
                {1024, 16, 0, 2, 1, "threads"},
                {768, 16, 0, 2, 0.75, "threads"},
                {32, 16, 0, 32, 0.5, "blocks"},
                {1, 16, 0, 32, 0.5, "blocks"},  // a warp all the same
                {33, 16, 0, 32, 1, "threads"}});
}

TEST_CASE("occupancy by registers") {
  CheckAll({},
           {{256, 64, 0, 4, 0.5, "registers"},
            {1024, 64, 0, 1, 0.5, "registers"},
            {256, 33, 0, 6, 0.75, "registers"},  // given in eights a thread: 40
            {256, 40, 0, 6, 0.75, "registers"},
            {128, 168, 0, 3, 0.1875, "registers"},
            {128, 255, 0, 2, 0.125, "registers"},
            {32, 255, 0, 8, 0.125, "registers"},
            {160, 80, 0, 4, 0.3125, "registers"},  // of 25 warps that fit, 24 lie evenly on four schedulers
            {1024, 65, 0, 0, 0, "registers"}});
}

TEST_CASE("occupancy by shared memory") {
  CheckAll({}, {{256, 32, 100 << 10, 2, 0.25, "shared memory"},
                {256, 32, 227 << 10, 1, 0.125, "shared memory"},
                {128, 32, (113 << 10), 2, 0.125, "shared memory"},
                {128, 32, (113 << 10) + 1, 1, 0.0625, "shared memory"},  // a block's own KiB counts
                {1024, 32, 300 << 10, 0, 0, "shared memory"}});
}

TEST_CASE("occupancy follows the device's limits") {
  // Compute capability 8.6: fewer threads, less shared memory.
  const MultiprocessorLimits small{1536, 65536, 16, 100 << 10, 1024};
  CheckAll(small, {{256, 32, 0, 6, 1, "threads"},
                   {1024, 32, 0, 1, 2.0 / 3, "threads"},
                   {32, 32, 0, 16, 1.0 / 3, "blocks"},
                   {256, 32, 48 << 10, 2, 1.0 / 3, "shared memory"}});
}

TEST_CASE("no threads, no occupancy") {
  const Occupancy none = OccupancyOf({}, 0, 32, 0);
  CHECK(none.blocks == 0);
  CHECK(none.share == 0);
}

}  // namespace kevin
