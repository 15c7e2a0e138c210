// Writing weight files and model folders.

#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "env/error.h"
#include "policies/local/files/safetensors.h"
#include "tests/catch.h"
#include "tests/policies/local/hashed_model.h"
#include "tests/support/fakes.h"

namespace kevin::testing {
namespace {

using namespace local;

std::vector<std::string> Names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<TensorToWrite> Three(const std::vector<std::byte>& bytes) {
  const auto all = [&bytes] { return std::span(bytes); };
  return {{"c", NumberType::kBF16, {10, 5}, all},
          {"a", NumberType::kF32, {25}, all},
          {"b", NumberType::kU8, {100}, all}};
}

}  // namespace

TEST_CASE("what is written is read back, in one file or in shards") {
  std::vector<std::byte> bytes(100);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  for (const int64_t shard : {1'000'000, 200, 50}) {
    INFO(shard);
    const TempFolder folder;
    WriteOptions options;
    options.shard_bytes = shard;
    WriteTensors(folder.path(), Three(bytes), options);
    CHECK(Names(folder.path()).size() == (shard == 200 ? 3 : shard == 50 ? 4 : 1));
    const Checkpoint checkpoint = Checkpoint::Open(folder.path());
    REQUIRE(checkpoint.Tensors().size() == 3);
    for (const auto& [name, tensor] : checkpoint.Tensors()) {
      CHECK(std::equal(tensor.bytes.begin(), tensor.bytes.end(), bytes.begin(), bytes.end()));
      CHECK(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % 4 == 0);
    }
    CHECK(checkpoint.Find("c")->type == NumberType::kBF16);
    CHECK(checkpoint.Find("c")->shape == std::vector<int64_t>{10, 5});
  }
}

TEST_CASE("a write that fails leaves what was there") {
  const TempFolder folder;
  std::vector<std::byte> bytes(100);
  WriteTensors(folder.path(), Three(bytes));
  std::vector<TensorToWrite> wrong = Three(bytes);
  wrong[2].bytes = [&] { return std::span(bytes).first(99); };
  CHECK_THROWS_WITH(WriteTensors(folder.path(), wrong),
                    Catch::Contains("`b` has 99 bytes to write instead of 100"));
  CHECK(Names(folder.path()) == std::vector<std::string>{"model.safetensors"});
  CHECK(Checkpoint::Open(folder.path()).Tensors().size() == 3);
  // A full disk, as far as this process can tell.
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit little = {128, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &little);
  int code = 0;
  try {
    WriteTensors(folder.path(), Three(bytes));
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(code == static_cast<int>(ExitCode::kBroken));
  CHECK(Names(folder.path()) == std::vector<std::string>{"model.safetensors"});
  CHECK(Checkpoint::Open(folder.path()).Tensors().size() == 3);
  CHECK_THROWS_AS(WriteTensors(folder.path() / "nowhere", Three(bytes)), Error);
}

TEST_CASE("a folder appears whole or not at all") {
  const TempFolder folder;
  const std::filesystem::path from = folder.path() / "from", place = folder.path() / "place";
  std::filesystem::create_directories(from / "nested");
  for (const char* name :
       {"config.json", "tokenizer.json", "chat_template.jinja", "merges.txt", "model.safetensors",
        "model.safetensors.index.json", "adapter_config.json", "x.py"})
    std::ofstream(from / name) << name;
  {
    NewFolder never(place);
    never.WriteText("a.txt", "a");
  }
  CHECK(Names(folder.path()) == std::vector<std::string>{"from"});
  NewFolder made(place);
  made.CopyModelFiles(from);
  made.WriteText("a.txt", "a");
  CHECK(!std::filesystem::exists(place));
  made.Commit();
  CHECK(Names(place) == std::vector<std::string>{"a.txt", "chat_template.jinja", "config.json", "merges.txt",
                                                 "tokenizer.json"});
  CHECK(Names(folder.path()) == std::vector<std::string>{"from", "place"});
  CHECK_THROWS_WITH(NewFolder(place), Catch::Contains("exists already"));
  std::ofstream(folder.path() / "file") << "x";
  CHECK_THROWS_AS(NewFolder(folder.path() / "file" / "inside"), Error);
}

TEST_CASE("who looks for a folder finds it while another one takes its place") {
  const TempFolder folder;
  const std::filesystem::path place = folder.path() / "place", next = folder.path() / "next";
  const auto make_next = [&](int number) {
    std::filesystem::create_directories(next);
    std::ofstream(next / "number") << number;
  };
  make_next(0);
  ReplaceFolder(place, next);
  int missing = 0;
  std::jthread reader([&](const std::stop_token& end) {
    while (!end.stop_requested()) missing += std::filesystem::exists(place / "number") ? 0 : 1;
  });
  for (int i = 1; i <= 500; ++i) {
    make_next(i);
    ReplaceFolder(place, next);
  }
  reader.request_stop(), reader.join();
  CHECK(missing == 0);
  int number = 0;
  std::ifstream(place / "number") >> number;
  CHECK(number == 500);
  CHECK(Names(folder.path()) == std::vector<std::string>{"place"});
}

}  // namespace kevin::testing
