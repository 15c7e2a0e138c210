// A launch list and a module put together, and the text that travels to the runner.

#include "env/gpu/runner/launch_plan.h"

#include <vector>

#include "env/error.h"
#include "env/gpu/compile/gpu_module.h"
#include "tests/catch.h"

namespace kevin {
namespace {

TensorMap Map() { return {"bfloat16", {1, 16}, {UINT64_MAX, 2}, {4096}, {64, 32}, {1, 2}, 1, 3, 2, 1}; }

KernelLaunch Launch() {
  KernelLaunch launch;
  launch.kernel = "scale<float>";
  launch.grid = {INT32_MAX, 65535, 3};
  launch.block = {32, 8, 2};
  launch.shared_bytes = 232448;
  launch.cluster = Dim3{3, 1, 1};
  launch.cooperative = true;
  launch.programmatic = true;
  launch.arguments = {BufferAddress{0, 0}, BufferAddress{2, 64}, int64_t{-5}, 0.5, Map()};
  launch.line = 12;
  return launch;
}

LaunchList Everything() {
  LaunchList list;
  list.workspaces = {{4096, true}, {int64_t{16} << 30, false}};
  KernelLaunch plain;
  plain.kernel = "plain";
  list.operations = {MemorySet{{2, 8}, 255, 4088}, Launch(), MemoryCopy{{1, 0}, {0, 4}, 12}, plain};
  list.constants = {{"ns::taps", 4, {0, 1, 127, 128, 255}}};
  return list;
}

GpuModule Module() {
  GpuModule module;
  module.cubin = std::string(
      "\x7f"
      "ELF\0\xff",
      6);
  KernelInfo scale;
  scale.name = "scale<float>";
  scale.lowered_name = "_Z5scaleIfEv";
  scale.parameters = {{"u64", 8, 8}, {"u64", 8, 8}, {"s32", 4, 4}, {"f32", 4, 4}, {"b8", 128, 64}};
  KernelInfo plain;
  plain.name = plain.lowered_name = "plain";
  module.kernels = {scale, plain};
  return module;
}

std::vector<GlobalVariable> Globals() {
  return {{"_ZN2ns4tapsE", 16, true}, {"counter", 4, false}, {"table", 64, true}, {"buffer", 65532, false}};
}

LaunchPlan Plan(const LaunchList& list, std::string* error) {
  return MakeLaunchPlan(list, Module(), Globals(), {{"ns::taps", "_ZN2ns4tapsE"}}, error);
}

std::string Complaint(const LaunchList& list) {
  std::string error;
  Plan(list, &error);
  return error;
}

std::string Text() {
  std::string error;
  return LaunchPlanToText(Plan(Everything(), &error));
}

}  // namespace

TEST_CASE("a plan has every kernel resolved and every argument encoded") {
  std::string error;
  const LaunchPlan plan = Plan(Everything(), &error);
  REQUIRE(error.empty());
  REQUIRE(plan.operations.size() == 4);
  CHECK(std::get<MemorySet>(plan.operations[0]) == MemorySet{{2, 8}, 255, 4088});
  const auto& launch = std::get<PlannedLaunch>(plan.operations[1]);
  CHECK(launch.lowered_name == "_Z5scaleIfEv");
  CHECK(launch.launch == Launch());
  CHECK(launch.arguments.offsets == std::vector<int64_t>{0, 8, 16, 20, 64});
  CHECK(launch.arguments.bytes.size() == 192);
  CHECK(launch.arguments.bytes[16] == 0xfb);
  REQUIRE(launch.arguments.pointers.size() == 2);
  CHECK(launch.arguments.pointers[1].at == 8);
  CHECK(launch.arguments.pointers[1].address == BufferAddress{2, 64});
  REQUIRE(launch.arguments.maps.size() == 1);
  CHECK(launch.arguments.maps[0].at == 64);
  CHECK(std::get<PlannedLaunch>(plan.operations[3]).lowered_name == "plain");
  REQUIRE(plan.constants.size() == 1);
  CHECK(plan.constants[0].first == "_ZN2ns4tapsE");
  REQUIRE(plan.globals.size() == 2);  // the writable ones
  CHECK(plan.globals[0].name == "counter");
  CHECK(plan.globals[1].bytes == 65532);
}

TEST_CASE("a plan survives its text exactly") {
  std::string error;
  const LaunchPlan plan = Plan(Everything(), &error), read = LaunchPlanFromText(LaunchPlanToText(plan));
  CHECK(LaunchPlanToText(read) == LaunchPlanToText(plan));
  CHECK(read.cubin == plan.cubin);
  CHECK(read.workspaces == plan.workspaces);
  REQUIRE(read.operations.size() == 4);
  CHECK(std::get<MemorySet>(read.operations[0]) == std::get<MemorySet>(plan.operations[0]));
  CHECK(std::get<MemoryCopy>(read.operations[2]) == std::get<MemoryCopy>(plan.operations[2]));
  const auto& before = std::get<PlannedLaunch>(plan.operations[1]);
  const auto& after = std::get<PlannedLaunch>(read.operations[1]);
  KernelLaunch launch = before.launch;
  launch.arguments.clear();  // encoded they travel
  CHECK(after.launch == launch);
  CHECK(after.lowered_name == before.lowered_name);
  CHECK(after.arguments.bytes == before.arguments.bytes);
  CHECK(after.arguments.offsets == before.arguments.offsets);
  REQUIRE(after.arguments.pointers.size() == 2);
  CHECK(after.arguments.pointers[1].at == 8);
  CHECK(after.arguments.pointers[1].address == BufferAddress{2, 64});
  REQUIRE(after.arguments.maps.size() == 1);
  CHECK(after.arguments.maps[0].at == 64);
  CHECK(after.arguments.maps[0].map == Map());
  CHECK(!std::get<PlannedLaunch>(read.operations[3]).launch.cluster.has_value());
  REQUIRE(read.constants.size() == 1);
  CHECK(read.constants[0] == plan.constants[0]);
  REQUIRE(read.globals.size() == 2);
  CHECK(read.globals[1].name == "buffer");
  CHECK(read.globals[1].bytes == 65532);
}

TEST_CASE("misfits are reported") {
  const auto with = [](auto change) {
    LaunchList list = Everything();
    change(&list, &std::get<KernelLaunch>(list.operations[1]));
    return Complaint(list);
  };
  CHECK(with([](LaunchList*, KernelLaunch*) {}).empty());
  CHECK(with([](LaunchList*, KernelLaunch* launch) { launch->kernel = "scale<int>"; }) ==
        "line 12: there is no kernel `scale<int>`");
  CHECK(with([](LaunchList*, KernelLaunch* launch) { launch->arguments.pop_back(); }).rfind("line 12: ", 0) ==
        0);
  CHECK(with([](LaunchList* list, KernelLaunch*) { list->constants[0].symbol = "taps"; }) ==
        "there is no __constant__ variable `taps` that a kernel uses");
  CHECK(with([](LaunchList* list, KernelLaunch*) { list->constants[0].offset_bytes = 11; }).empty());
  CHECK(with([](LaunchList* list, KernelLaunch*) { list->constants[0].offset_bytes = 12; }) ==
        "`ns::taps` has 16 bytes; 17 are given");
}

TEST_CASE("other texts are no launch plans") {
  const std::string good = Text();
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), std::string("null"),
        good.substr(0, good.size() / 2), broken("\"operations\":[", "\"operations\":[7,"),
        broken("\"set\"", "\"sat\""), broken("\"launch\"", "\"lunch\""), broken("[32,8,2]", "[32,8]"),
        broken("\"cooperative\":true", "\"cooperative\":\"yes\""), broken("\"sizes\"", "\"seizes\""),
        broken("\"7f454c4600ff\"", "\"7f454c4600fg\""), broken("\"7f454c4600ff\"", "\"7f454c4600f\""),
        broken("\"7f454c4600ff\"", "5")}) {
    INFO(text);
    try {
      LaunchPlanFromText(text);
      FAIL_CHECK("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBroken);
    }
  }
}

TEST_CASE("bytes as text") {
  CHECK(HexText(std::string("\0\x7f\xff", 3)) == "007fff");
  CHECK(BytesFromHex("007fff") == std::string("\0\x7f\xff", 3));
  CHECK(BytesFromHex("").empty());
  for (const char* text : {"0", "0g", "G0", "0A", " 00"}) CHECK_THROWS_AS(BytesFromHex(text), Error);
}

// How many warps stay resident, against values worked out by hand for compute capability 9.0.

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

TEST_CASE("a grid with fewer blocks than fit limits occupancy") {
  MultiprocessorLimits limits;
  CHECK(OccupancyOf(limits, 512, 40, 0, 132).limited_by == "registers");
  limits.multiprocessors = 132;
  const Occupancy one = OccupancyOf(limits, 512, 40, 0, 132);
  CHECK((one.blocks == 1 && one.share == 0.25 && one.limited_by == "the grid"));
  const Occupancy two = OccupancyOf(limits, 512, 40, 0, 133);
  CHECK((two.blocks == 2 && two.share == 0.5));
  CHECK(OccupancyOf(limits, 512, 40, 0, 1 << 20).limited_by == "registers");
  CHECK(OccupancyOf(limits, 512, 40, 227 << 10, 132).limited_by == "shared memory");
}

TEST_CASE("no threads, no occupancy") {
  const Occupancy none = OccupancyOf({}, 0, 32, 0);
  CHECK(none.blocks == 0);
  CHECK(none.share == 0);
}

}  // namespace kevin
