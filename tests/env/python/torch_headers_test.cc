// torch's headers in precompiled form: when a set is made, what a build says about them. torch_headers_test.py has g++.

#include "env/python/torch_headers.h"

#include <sys/wait.h>

#include <chrono>
#include <fstream>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using Flags = std::vector<std::string>;

size_t SetsIn(const fs::path& folder) {
  size_t sets = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    sets += fs::exists(entry.path() / "torch/extension.h.gch");
  return sets;
}

struct Maker {
  fs::path folder;
  bool succeeds = true;
  int calls = 0;

  void Count(const Flags& flags, int times = 1) {
    for (int i = 0; i < times; ++i)
      CountWantedHeaders(folder / "x", flags, [this](const fs::path& work) { return Make(work); });
  }
  Ran Make(const fs::path& work) {
    ++calls;
    fs::create_directory(work / "torch");
    std::ofstream(work / "torch/extension.h.gch") << "header";
    Ran ran;
    if (!succeeds) ran.status = W_EXITCODE(1, 0);
    return ran;
  }
};

}  // namespace

TEST_CASE("torch's headers are precompiled at the third request for their flags") {
  const TemporaryFolder folder;
  Maker maker{folder.path()};
  maker.Count({"-O3"}, 2);
  maker.Count({});
  CHECK(maker.calls == 0);
  maker.Count({"-O3"});
  CHECK(maker.calls == 1);
  // sha256("-O3"), as torch_headers.py looks for it.
  const std::string set = "x-ab3e680b0f70d8bb2df694b55c6d78e11dc82973ad20d5f376f30ee8d4a11a0a";
  CHECK(fs::exists(folder.path() / set / "torch/extension.h.gch"));
  maker.Count({"-O3"}, 4);
  CHECK(maker.calls == 1);
}

TEST_CASE("torch's headers that cannot be made are not tried again, and only an interruption is told") {
  const TemporaryFolder folder;
  Maker maker{folder.path(), false};
  maker.Count({"-O2"}, 6);
  CHECK(maker.calls == 1);
  CHECK(SetsIn(folder.path()) == 0);
  const auto count = [&](const Flags& flags, ExitCode code) {
    for (int i = 0; i < 3; ++i) {
      CountWantedHeaders(folder.path() / "x", flags,
                         [&](const fs::path&) -> Ran { throw Error(code, "it"); });
    }
  };
  CHECK_THROWS_AS(count({"-O0"}, ExitCode::kInterrupted), Error);
  CHECK_NOTHROW(count({"-O1"}, ExitCode::kBroken));
  Maker without{folder.path() / "none"};
  std::ofstream(folder.path() / "none") << "no folder";
  CHECK_NOTHROW(without.Count({"-O1"}, 3));
  CHECK(without.calls == 0);
}

TEST_CASE("two sets of torch's headers are kept, each for a day") {
  const TemporaryFolder folder;
  Maker maker{folder.path()};
  for (const char* flag : {"-O1", "-O2", "-O3"}) maker.Count({flag}, 3);
  CHECK(maker.calls == 2);
  CHECK(SetsIn(folder.path()) == 2);
  fs::create_directory(folder.path() / "make-left");
  const auto yesterday = fs::file_time_type::clock::now() - std::chrono::hours(25);
  for (const auto& entry : fs::directory_iterator(folder.path()))
    fs::last_write_time(entry.path(), yesterday);
  maker.Count({"-Os"}, 3);
  CHECK(maker.calls == 3);
  CHECK(SetsIn(folder.path()) == 2);
  CHECK_FALSE(fs::exists(folder.path() / "make-left"));
}

TEST_CASE("what a build says of torch's headers is taken out of its output") {
  std::string output =
      "first\n\nkevin-build: torch/extension.h for: -O3 -march=native\n\nkevin-build: torch/extension.h for:\nlast\n"
      "\nkevin-build: torch/extension.h for: -O3 -march=native\n";
  CHECK(TakeWantedHeaders(&output) == Flags{"-O3", "-march=native"});
  CHECK(output == "first\nlast\n");
  std::string plain = "first\n\nkevin-build: torch/extension.h for:\nlast\n";
  CHECK(TakeWantedHeaders(&plain) == Flags{});
  CHECK(plain == "first\nlast\n");
  CHECK_FALSE(TakeWantedHeaders(&plain).has_value());
  std::string cut = "\nkevin-build: torch/extension.h for: -O3 -mar";
  CHECK_FALSE(TakeWantedHeaders(&cut).has_value());
  CHECK(cut.empty());
}

}  // namespace kevin
