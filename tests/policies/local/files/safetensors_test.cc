// Reading weight files, sound and hostile.

#include "policies/local/files/safetensors.h"

#include <cstring>
#include <fstream>

#include "env/error.h"
#include "policies/local/files/tensor_list.h"
#include "tests/catch.h"
#include "tests/policies/local/hashed_model.h"
#include "tests/support/fakes.h"

namespace kevin::testing {
namespace {

using namespace local;
using Catch::Contains;

std::string File(const std::string& header, size_t data_bytes, uint64_t claimed_length) {
  std::string file(reinterpret_cast<const char*>(&claimed_length), sizeof(claimed_length));
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

std::string File(const std::string& header, size_t data_bytes) {
  return File(header, data_bytes, header.size());
}

std::string Refusal(const std::string& file) {
  try {
    ReadHeader(std::as_bytes(std::span(file)), "x.safetensors");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return error.what();
  }
  return "accepted";
}

constexpr char kGood[] =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I8","shape":[],"data_offsets":[8,9]},)"
    R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"e":{"dtype":"F16","shape":[0,5],"data_offsets":[8,8]}})";

}  // namespace

TEST_CASE("a sound header is read") {
  const std::string file = File(kGood, 9);
  const std::vector<HeaderEntry> entries = ReadHeader(std::as_bytes(std::span(file)), "x");
  REQUIRE(entries.size() == 3);
  CHECK(entries[0].name == "a");
  CHECK(entries[0].shape == std::vector<int64_t>{1, 2});
  CHECK(entries[0].begin == file.size() - 9);
  CHECK(entries[1].name == "e");
  CHECK(entries[2].type == NumberType::kI8);
  CHECK(entries[2].end == file.size());
}

TEST_CASE("hostile headers are refused with what is wrong") {
  CHECK_THAT(Refusal(""), Contains("it has only 0 bytes"));
  CHECK_THAT(Refusal(File("{}", 0, 100'000'001)), Contains("claims 100000001 bytes; 100000000 are allowed"));
  CHECK_THAT(Refusal(File("{}", 0, ~0ull)), Contains("are allowed"));
  CHECK_THAT(Refusal(File("{}", 0, 3)), Contains("truncated"));
  CHECK_THAT(Refusal(File("{]", 0)), Contains("not JSON"));
  CHECK_THAT(Refusal(File("\xff\xfe", 0)), Contains("not JSON"));
  CHECK_THAT(Refusal(File("[]", 0)), Contains("no JSON object"));
  CHECK_THAT(Refusal(File(std::string(1'000'000, '['), 0)), Contains("not JSON"));
  const auto one = [](const std::string& fields) { return File("{\"t\":{" + fields + "}}", 8); };
  CHECK(Refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])")) == "accepted");
  CHECK_THAT(Refusal(File(R"({"t":3})", 8)), Contains("described by no object"));
  CHECK_THAT(Refusal(one(R"("shape":[2],"data_offsets":[0,8])")), Contains("no dtype"));
  CHECK_THAT(Refusal(one(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])")),
             Contains("unknown dtype F31"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","data_offsets":[0,8])")), Contains("no shape"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])")),
             Contains("no integer from 0 on"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])")),
             Contains("no integer from 0 on"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[2])")), Contains("no data_offsets"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[0])")), Contains("no data_offsets"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[-1,7])")), Contains("no data_offsets"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])")), Contains("before it begins"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])")), Contains("ends at byte 16"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])")),
             Contains("its shape and dtype make 12"));
  // 2^62 * 4 bytes wrap around to 0.
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])")),
             Contains("beyond 2^64 bytes"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[65536,65536,65536,65536],"data_offsets":[0,0])")),
             Contains("beyond 2^64 bytes"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])")),
             Contains("4 bytes at its end"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])")),
             Contains("4 bytes before tensor `t`"));
  CHECK_THAT(Refusal(one(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])")),
             Contains("`dtype` twice"));
  const std::string t = R"("t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  CHECK_THAT(Refusal(File("{" + t + "," + t + "}", 8)), Contains("`t` twice"));
  const std::string u = R"("u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  CHECK_THAT(Refusal(File("{" + t + "," + u + "}", 8)), Contains("`t` and `u` overlap"));
}

TEST_CASE("every shortening of a file is noticed") {
  const std::string file = File(kGood, 9);
  REQUIRE(Refusal(file) == "accepted");
  for (size_t size = 0; size < file.size(); ++size) CHECK(Refusal(file.substr(0, size)) != "accepted");
}

TEST_CASE("an index and its shards must agree") {
  const TempFolder folder;
  const std::filesystem::path place = folder.path();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(place / name, std::ios::binary) << text;
  };
  const auto refusal = [&] {
    try {
      Checkpoint::Open(place);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto index = [&](const std::string& map) {
    write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  };
  CHECK_THAT(refusal(), Contains("neither model.safetensors nor model.safetensors.index.json"));
  write("one.safetensors", File(R"({"t":{"dtype":"I8","shape":[8],"data_offsets":[0,8]}})", 8));
  write("two.safetensors", File(R"({"u":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 4));
  index(R"("t":"one.safetensors","u":"two.safetensors")");
  REQUIRE(refusal() == "accepted");
  const Checkpoint both = Checkpoint::Open(place);
  CHECK(both.Files() == 2);
  CHECK(both.Tensors().size() == 2);
  CHECK(both.Find("u")->bytes.size() == 4);
  CHECK(static_cast<int>(both.Find("u")->bytes[3]) == 3);
  CHECK(both.Find("v") == nullptr);
  index(R"("t":"one.safetensors","u":"three.safetensors")");
  CHECK_THAT(refusal(), Contains("names `three.safetensors`, which is not in the folder"));
  index(R"("t":"one.safetensors","u":"two.safetensors","v":"two.safetensors")");
  CHECK_THAT(refusal(), Contains("has no tensor `v`; the index says so"));
  index(R"("t":"two.safetensors","u":"one.safetensors")");
  CHECK_THAT(refusal(), Contains("says is in"));
  index(R"("u":"two.safetensors","v":"one.safetensors")");
  CHECK_THAT(refusal(), Contains("has tensor `t`, which the index does not name"));
  index(R"("t":"../one.safetensors")");
  CHECK_THAT(refusal(), Contains("no file of this folder"));
  index(R"("t":3)");
  CHECK_THAT(refusal(), Contains("tensor `t` has no file"));
  index("");
  CHECK_THAT(refusal(), Contains("weight_map is empty"));
  write("model.safetensors.index.json", "[");
  CHECK_THAT(refusal(), Contains("no JSON with a weight_map"));
}

TEST_CASE("a checkpoint must have the model's tensors") {
  const TempFolder folder;
  const ModelConfig config = TinyConfig(ModelFamily::kQwen2);
  const auto check = [&](const std::function<void(std::vector<TensorToWrite>&)>& change, bool tied = false) {
    ModelConfig model = config;
    model.tied_embeddings = tied;
    std::vector<TensorToWrite> tensors;
    std::vector<float> values;
    for (const ExpectedTensor& tensor : ExpectedTensors(config))
      tensors.push_back({tensor.name, NumberType::kF32, tensor.shape, {}});
    change(tensors);
    std::vector<std::byte> zeros(1 << 20);
    for (TensorToWrite& tensor : tensors) {
      int64_t size = BytesOf(tensor.type);
      for (const int64_t length : tensor.shape) size *= length;
      tensor.bytes = [&zeros, size] {
        return std::span<const std::byte>(zeros).first(static_cast<size_t>(size));
      };
    }
    WriteTensors(folder.path(), tensors);
    try {
      CheckTensors(Checkpoint::Open(folder.path()), model);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(check([](auto&) {}) == "accepted");
  CHECK(check([](auto&) {}, true) == "accepted");  // a head beside a tied embedding
  CHECK_THAT(check([](auto& tensors) { tensors.pop_back(); }),
             Contains("1 tensors are missing: lm_head.weight"));
  CHECK(check([](auto& tensors) { tensors.pop_back(); }, true) == "accepted");
  CHECK_THAT(
      check([](auto& tensors) { tensors.erase(tensors.begin() + 2, tensors.begin() + 10); }),
      Contains("8 tensors are missing: model.layers.0.self_attn.q_proj.weight") && Contains("and 3 more"));
  CHECK_THAT(check([](auto& tensors) {
               tensors.push_back({"model.extra", NumberType::kF32, {2}, {}});
             }),
             Contains("1 tensors have no place in this model: model.extra"));
  CHECK_THAT(
      check([](auto& tensors) {
        tensors[2].shape = {64, 32};
      }),
      Contains("`model.layers.0.self_attn.q_proj.weight` is [64, 32], but config.json makes it [64, 64]"));
  CHECK_THAT(check([](auto& tensors) { tensors[0].type = NumberType::kI8; }), Contains("is of type I8"));
}

}  // namespace kevin::testing
