// Hashes of weights: known digests, and what makes a difference.

#include "policies/local/files/weights_hash.h"

#include <sha256.h>

#include <array>
#include <cstring>
#include <random>

#include "policies/local/files/safetensors.h"
#include "tests/catch.h"
#include "tests/policies/local/formula_model.h"
#include "tests/policies/local/text/text_fixture.h"

namespace kevin::local {
namespace {

std::string HashOf(const std::string& text) { return Sha256OfBytes(std::as_bytes(std::span(text))); }

TEST_CASE("SHA-256: FIPS 180-4's examples, and libmd's word for every length") {
  CHECK(HashOf("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(HashOf("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  std::mt19937 random(1);
  std::string text;
  for (int length = 0; length < 300; ++length) {
    std::array<char, SHA256_DIGEST_STRING_LENGTH> hex{};
    SHA256Data(reinterpret_cast<const uint8_t*>(text.data()), text.size(), hex.data());
    INFO(length);
    REQUIRE(HashOf(text) == hex.data());
    text += static_cast<char>(random());
  }
}

ModelConfig Tiny() {
  ModelConfig config;
  config.family = ModelFamily::kQwen2;
  config.hidden = 16, config.layers = 2, config.heads = 2, config.kv_heads = 1, config.head_dim = 8;
  config.ffn = 32, config.vocabulary = 32, config.context = 64, config.qkv_bias = true;
  config.dtype = NumberType::kF32;
  return config;
}

TEST_CASE("a folder's hash is of its numbers: not of its files, and of every one of them") {
  const ModelFolder folder;
  WriteFormulaModel(folder.path() / "a", Tiny(), 0.5f);
  WriteFormulaModel(folder.path() / "same", Tiny(), 0.5f);
  WriteFormulaModel(folder.path() / "other", Tiny(), 0.6f);
  const auto hash = [&](const char* name) { return FolderHash(folder.path() / name).Hash().get(); };
  const std::string a = hash("a");
  CHECK(a.size() == 64);
  CHECK(hash("same") == a);
  CHECK(hash("other") != a);
  CHECK(hash("nothing") == "");

  const Checkpoint weights = Checkpoint::Open(folder.path() / "a");
  std::vector<TensorToWrite> tensors;
  std::vector<TensorBytes> bytes;
  for (const auto& [name, stored] : weights.Tensors()) {
    tensors.push_back({name, stored.type, stored.shape, [&stored = stored] { return stored.bytes; }});
    bytes.push_back({name, stored.type, stored.shape, stored.bytes});
  }
  std::filesystem::create_directories(folder.path() / "shards");
  WriteOptions options;
  options.shard_bytes = 2000;
  WriteTensors(folder.path() / "shards", tensors, options);
  REQUIRE(Checkpoint::Open(folder.path() / "shards").Files() > 2);
  CHECK(hash("shards") == a);

  const std::atomic<bool> go_on{false}, stop{true};
  CHECK(HashOfTensors(bytes, go_on) == a);
  CHECK(HashOfTensors(bytes, stop) == "");
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> changed(bytes[i].bytes.begin(), bytes[i].bytes.end());
    changed.back() ^= std::byte{1};
    std::vector<TensorBytes> others = bytes;
    others[i].bytes = changed;
    CHECK(HashOfTensors(others, go_on) != a);
  }
}

}  // namespace
}  // namespace kevin::local
