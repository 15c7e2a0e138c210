#include "env/gpu/launch/launch_list.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "env/error.h"
#include "env/gpu/compile/gpu_module.h"
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

namespace {

struct Encoded {
  EncodedArguments arguments;
  std::string error;
};

Encoded Encode(std::vector<LaunchArgument> arguments, std::vector<KernelParameter> parameters,
               const std::string& lowered_name = "_Z4reluPf") {
  KernelLaunch launch;
  launch.kernel = "relu";
  launch.arguments = std::move(arguments);
  KernelInfo kernel;
  kernel.name = "relu";
  kernel.lowered_name = lowered_name;
  kernel.parameters = std::move(parameters);
  Encoded encoded;
  encoded.arguments = EncodeArguments(launch, kernel, &encoded.error);
  return encoded;
}

template <typename T>
T Value(const LaunchArgument& argument, const KernelParameter& parameter,
        const std::string& lowered_name = "_Z4reluPf") {
  const Encoded encoded = Encode({argument}, {parameter}, lowered_name);
  INFO(encoded.error);
  REQUIRE(encoded.error.empty());
  REQUIRE(encoded.arguments.bytes.size() == sizeof(T));
  T value;
  std::memcpy(&value, encoded.arguments.bytes.data(), sizeof(T));
  return value;
}

const KernelParameter kU8{"u8", 1, 1}, kU16{"u16", 2, 2}, kU32{"u32", 4, 4}, kS32{"s32", 4, 4},
    kU64{"u64", 8, 8}, kF32{"f32", 4, 4}, kF64{"f64", 8, 8}, kHalf{"b8", 2, 2}, kMap{"b8", 128, 64},
    kStruct{"b8", 12, 4};
const std::string kBrain = "_Z4relu13__nv_bfloat16";

TEST_CASE("arguments take the types that the kernel declares") {
  CHECK(Value<int32_t>(int64_t{-5}, kU32) == -5);
  CHECK(Value<int32_t>(int64_t{-5}, kS32) == -5);
  CHECK(Value<uint32_t>(int64_t{4294967295}, kU32) == 4294967295u);
  CHECK(Value<int64_t>(int64_t{5000000000}, kU64) == 5000000000);
  CHECK(Value<uint8_t>(true, kU8) == 1);
  CHECK(Value<uint8_t>(false, {"s8", 1, 1}) == 0);
  CHECK(Value<uint8_t>(int64_t{7}, {"b8", 1, 1}) == 7);
  CHECK(Value<int16_t>(int64_t{-32768}, kU16) == -32768);
  CHECK(Value<int32_t>(true, kU32) == 1);
  CHECK(Value<int32_t>(-2.9, kU32) == -2);
  CHECK(Value<float>(int64_t{3}, kF32) == 3.0f);
  CHECK(Value<float>(true, kF32) == 1.0f);
  CHECK(Value<float>(0.1, kF32) == 0.1f);
  CHECK(Value<float>(1e300, kF32) == HUGE_VALF);
  CHECK(Value<float>(-HUGE_VAL, kF32) == -HUGE_VALF);
  CHECK(std::isnan(Value<float>(NAN, kF32)));
  CHECK(Value<double>(0.1, kF64) == 0.1);
  CHECK(Value<double>(int64_t{7}, kF64) == 7.0);
}

TEST_CASE("numbers become half precision") {
  struct Row {
    double value;
    uint16_t half, brain;
  };
  for (const Row& row :
       {Row{1.0, 0x3c00, 0x3f80}, Row{-2.0, 0xc000, 0xc000}, Row{0.0, 0x0000, 0x0000},
        Row{-0.0, 0x8000, 0x8000}, Row{65504.0, 0x7bff, 0x4780}, Row{65519.9, 0x7bff, 0x4780},
        Row{65520.0, 0x7c00, 0x4780}, Row{HUGE_VAL, 0x7c00, 0x7f80}, Row{std::ldexp(1, -24), 0x0001, 0x3380},
        Row{std::ldexp(1, -25), 0x0000, 0x3300}, Row{std::ldexp(1, -14), 0x0400, 0x3880},
        Row{std::ldexp(1023, -24), 0x03ff, 0x3880}, Row{0.1, 0x2e66, 0x3dcd},
        Row{1.0 + std::ldexp(1, -11), 0x3c00, 0x3f80}, Row{1.0 + std::ldexp(3, -11), 0x3c02, 0x3f80},
        Row{1.0 + std::ldexp(1, -8), 0x3c04, 0x3f80},
        Row{1.0 + std::ldexp(1, -8) + std::ldexp(1, -40), 0x3c04, 0x3f81},
        Row{1.0 + std::ldexp(3, -8) - std::ldexp(1, -40), 0x3c0c, 0x3f81}}) {
    INFO(row.value);
    CHECK(Value<uint16_t>(row.value, kHalf) == row.half);
    CHECK(Value<uint16_t>(row.value, {"b16", 2, 2}) == row.half);
    CHECK(Value<uint16_t>(row.value, kHalf, kBrain) == row.brain);
  }
  CHECK(Value<uint16_t>(int64_t{2}, kHalf) == 0x4000);
  CHECK((Value<uint16_t>(NAN, kHalf) & 0x7fff) > 0x7c00);
  CHECK((Value<uint16_t>(NAN, kHalf, kBrain) & 0x7fff) > 0x7f80);
  CHECK(Encode({1.0}, {kHalf}, "_Z1kI6__half13__nv_bfloat16EvT_").error ==
        "argument 1 of `relu`: the kernel has __half and __nv_bfloat16 parameters; let this one be a float");
}

TEST_CASE("pointers and tensor maps are left to be filled in, aligned as PTX does") {
  TensorMap map;
  map.dtype = "float32";
  map.base = {1, 32};
  const Encoded encoded = Encode({true, BufferAddress{2, 16}, 1.0, NullPointer{}, map, int64_t{9}},
                                 {kU8, kU64, kF32, kU64, kMap, kU16});
  REQUIRE(encoded.error.empty());
  CHECK(encoded.arguments.offsets == std::vector<int64_t>{0, 8, 16, 24, 64, 192});
  CHECK(encoded.arguments.bytes.size() == 194);
  REQUIRE(encoded.arguments.pointers.size() == 1);
  CHECK(encoded.arguments.pointers[0].at == 8);
  CHECK(encoded.arguments.pointers[0].address == BufferAddress{2, 16});
  REQUIRE(encoded.arguments.maps.size() == 1);
  CHECK(encoded.arguments.maps[0].at == 64);
  CHECK(encoded.arguments.maps[0].map == map);
  CHECK(std::vector<uint8_t>(encoded.arguments.bytes.begin() + 8, encoded.arguments.bytes.begin() + 16) ==
        std::vector<uint8_t>(8));
  CHECK(Encode({}, {}).error.empty());
  CHECK(Encode({int64_t{1}, int64_t{2}}, {{"u8", 1, 0}, {"u32", 4, 0}}).arguments.offsets ==
        std::vector<int64_t>{0, 4});
}

TEST_CASE("misfits are reported") {
  const auto error = [](const LaunchArgument& argument, const KernelParameter& parameter) {
    const Encoded encoded = Encode({argument}, {parameter});
    CHECK(encoded.arguments.bytes.empty());
    return encoded.error;
  };
  CHECK(error(int64_t{5000000000}, kU32) ==
        "argument 1 of `relu`: 5000000000 does not fit into a 32-bit integer parameter; declare it long");
  CHECK(error(int64_t{256}, kU8) ==
        "argument 1 of `relu`: 256 does not fit into a 8-bit integer parameter; declare it long");
  CHECK(error(int64_t{-129}, kU8) ==
        "argument 1 of `relu`: -129 does not fit into a 8-bit integer parameter; declare it long");
  CHECK(error(int64_t{65536}, kU16).find("65536 does not fit into a 16-bit") != std::string::npos);
  CHECK(error(int64_t{-2147483649}, kS32).find("does not fit") != std::string::npos);
  CHECK(error(1e10, kU32).find("10000000000 does not fit into a 32-bit") != std::string::npos);
  CHECK(error(1e30, kU64).find("does not fit into a 64-bit integer parameter; pass a smaller number") !=
        std::string::npos);
  CHECK(error(NAN, kU32).find("nan does not fit") != std::string::npos);
  CHECK(error(BufferAddress{0, 0}, kU32) ==
        "argument 1 of `relu`: a pointer does not fit into a parameter of 4 bytes");
  CHECK(error(BufferAddress{0, 0}, kF64) ==
        "argument 1 of `relu`: a pointer does not fit into a parameter of 8 bytes");
  CHECK(error(NullPointer{}, kF32).find("a pointer does not fit") != std::string::npos);
  CHECK(error(int64_t{1}, kStruct) ==
        "argument 1 of `relu`: a number does not fit into a struct of 12 bytes; pass its members as numbers");
  CHECK(error(TensorMap{}, kU64).find("a tensor map fits only") != std::string::npos);
  CHECK(error(TensorMap{}, {"b8", 128, 8}).find("a tensor map fits only") != std::string::npos);
  CHECK(error(1.0, kMap).find("a number does not fit into a struct of 128 bytes") != std::string::npos);
  CHECK(Encode({int64_t{1}, int64_t{2}}, {kU32}).error ==
        "kernel `relu` takes 1 argument and gets 2; pass one for each parameter");
  CHECK(Encode({}, {kU32, kU32}).error ==
        "kernel `relu` takes 2 arguments and gets 0; pass one for each parameter");
}

}  // namespace

}  // namespace kevin
