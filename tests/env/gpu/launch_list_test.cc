#include "env/gpu/launch/launch_list.h"

#include <cmath>
#include <limits>

#include "env/error.h"
#include "tests/catch.h"

namespace kevin {
namespace {

LaunchList Everything() {
  LaunchList list;
  list.workspaces = {{4096, true}, {int64_t{16} << 30, false}};
  KernelLaunch launch;
  launch.kernel = "softmax<float, 256>";
  launch.grid = {UINT32_MAX, 65535, 1};
  launch.block = {32, 8, 2};
  launch.shared_bytes = 232448;
  launch.cluster = Dim3{2, 1, 1};
  launch.cooperative = true;
  launch.programmatic = true;
  launch.line = 12;
  TensorMap map{"bfloat16", {3, 16}, {UINT64_MAX, 2}, {4096}, {64, 32}, {1, 1}, 1, 3, 2, 1};
  launch.arguments = {INT64_MIN,
                      INT64_MAX,
                      int64_t{3},
                      3.0,
                      0.1,
                      -0.0,
                      std::numeric_limits<double>::denorm_min(),
                      HUGE_VAL,
                      -HUGE_VAL,
                      1.7976931348623157e308,
                      true,
                      false,
                      BufferAddress{2, 1},
                      NullPointer{},
                      map};
  list.operations = {MemorySet{{1, 8}, 255, 4096}, launch, MemoryCopy{{1, 0}, {0, 4}, 12}, KernelLaunch{}};
  list.constants = {{"ns::taps", 4, {0, 1, 127, 128, 255}}};
  return list;
}

TEST_CASE("a launch list survives its text exactly") {
  const LaunchList list = Everything();
  const std::string text = LaunchListToText(list);
  const LaunchList read = LaunchListFromText(text);
  CHECK(read == list);
  CHECK(LaunchListToText(read) == text);
  // 3 and 3.0 compare unequal as arguments, and -0.0 keeps its sign.
  const auto& arguments = std::get<KernelLaunch>(read.operations[1]).arguments;
  CHECK(std::holds_alternative<int64_t>(arguments[2]));
  CHECK(std::holds_alternative<double>(arguments[3]));
  CHECK(std::signbit(std::get<double>(arguments[5])));
  CHECK(LaunchListFromText(LaunchListToText({})) == LaunchList{});
  LaunchList nan;
  nan.operations = {KernelLaunch{}};
  std::get<KernelLaunch>(nan.operations[0]).arguments = {NAN};
  const LaunchList back = LaunchListFromText(LaunchListToText(nan));
  CHECK(std::isnan(std::get<double>(std::get<KernelLaunch>(back.operations[0]).arguments[0])));
}

TEST_CASE("other texts are no launch lists") {
  const std::string good = LaunchListToText(Everything());
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), std::string("null"),
        good.substr(0, good.size() / 2), broken("\"value\":255", "\"value\":256"),
        broken("\"value\":255", "\"value\":-1"), broken("\"bytes\":4096", "\"bytes\":-4096"),
        broken("\"bytes\":4096", "\"bytes\":1.5"), broken("\"buffer\":1", "\"buffer\":-1"),
        broken("\"00017f80ff\"", "\"00017f80f\""), broken("\"00017f80ff\"", "\"00017f80fg\""),
        broken("{\"null\":true}", "{\"nothing\":true}"), broken("{\"null\":true}", "{}"),
        broken("\"-inf\"", "\"many\""), broken("[32,8,2]", "[32,8]"), broken("[32,8,2]", "[32,8,4294967296]"),
        broken("\"launch\"", "\"lunch\"")}) {
    INFO(text);
    try {
      LaunchListFromText(text);
      FAIL_CHECK("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBroken);
      CHECK(std::string(error.what()).rfind("the stored launch list cannot be read: ", 0) == 0);
    }
  }
}

}  // namespace
}  // namespace kevin
