// Imported problems are private: what is asked before their source goes to a server.

#include "tools/privacy.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

// No terminal to ask, and a data folder of its own.
struct Fixture {
  TemporaryFolder folder;
  Problem imported, shipped;
  PolicyOptions options;
  int stdin_before = dup(STDIN_FILENO);
  std::string data_before = std::getenv("XDG_DATA_HOME") ? std::getenv("XDG_DATA_HOME") : "";

  Fixture() {
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    close(nothing);
    setenv("XDG_DATA_HOME", folder.path().c_str(), 1);
    shipped = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
    imported = shipped;
    imported.id = "mine/relu";
    imported.source = "import torch\nclass Model(torch.nn.Module):\n    pass\n";
    options.base_url = "https://models.example.com/v1";
  }
  ~Fixture() {
    dup2(stdin_before, STDIN_FILENO);
    close(stdin_before);
    data_before.empty() ? unsetenv("XDG_DATA_HOME") : setenv("XDG_DATA_HOME", data_before.c_str(), 1);
  }
  std::string Refusal(const std::string& policy, Problem* problem, const PrivacyOptions& privacy) const {
    try {
      RequireAgreement({policy}, options, {problem}, privacy);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadRequest);
      CHECK_FALSE(error.next_step().empty());
      return error.what();
    }
    return "";
  }
};

TEST_CASE("the source of an imported problem is sent only after a yes") {
  Fixture fixture;
  const std::string why = fixture.Refusal("openai:m", &fixture.imported, {});
  CHECK(Contains(
      why,
      "mine/relu is private. To https://models.example.com/v1 goes: the module's source (3 lines of code)"));
  CHECK(fixture.Refusal("openai:m", &fixture.imported, {.yes = true}).empty());
  CHECK_FALSE(fixture.imported.source.empty());
  CHECK_FALSE(fixture.Refusal("openai:m", &fixture.imported, {}).empty());  // --yes is for that one command
}

TEST_CASE("--no-source leaves the source out, and nothing is asked") {
  Fixture fixture;
  CHECK(fixture.Refusal("openai:m", &fixture.imported, {.no_source = true}).empty());
  CHECK(fixture.imported.source.empty());
  CHECK_FALSE(fixture.imported.reference.empty());
}

TEST_CASE("an agreement holds for its destination") {
  Fixture fixture;
  std::filesystem::create_directories(AgreedDestinations().parent_path());
  std::ofstream(AgreedDestinations()) << "https://models.example.com/v1\n";
  CHECK(fixture.Refusal("openai:m", &fixture.imported, {}).empty());
  fixture.options.base_url = "https://other.example.com/v1";
  CHECK_FALSE(fixture.Refusal("openai:m", &fixture.imported, {}).empty());
}

TEST_CASE("private problems of a memory go to a server only where that was agreed to") {
  Fixture fixture;
  const auto left_out = [&](const std::string& policy, const PrivacyOptions& privacy, const Problem& problem,
                            const std::string& text) {
    const auto leave_out = LeftOutOfMemory({policy}, fixture.options, privacy);
    return leave_out && leave_out({problem.content_hash, problem.id, problem.name, text, {}, {}});
  };
  std::ifstream file(fixture.shipped.path);
  const std::string shipped((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string imported = "source = \"import torch\"\n" + shipped,
                    no_source = "# Made by `kevin import` from ops.py:f, with torch 2.11.0.\n" + shipped;
  for (const std::string& text : {imported, no_source, std::string("no problem")}) {
    CHECK(left_out("openai:m", {}, fixture.imported, text));
    CHECK(left_out("openai:m", {.no_source = true}, fixture.imported, text));
    CHECK_FALSE(left_out("openai:m", {.yes = true}, fixture.imported, text));
    CHECK_FALSE(left_out("search", {}, fixture.imported, text));
  }
  CHECK_FALSE(left_out("openai:m", {}, fixture.shipped, shipped));
  std::filesystem::create_directories(AgreedDestinations().parent_path());
  std::ofstream(AgreedDestinations()) << "https://models.example.com/v1\n";
  CHECK_FALSE(left_out("openai:m", {}, fixture.imported, imported));
  fixture.options.base_url = "https://other.example.com/v1";
  CHECK(left_out("openai:m", {}, fixture.imported, imported));
  CHECK(MemoryLine("a.db", 3, 2) ==
        "memory a.db: 3 measured problems, 2 private left out (--yes sends them too)");
  CHECK(MemoryLine("a.db", 1, 0) == "memory a.db: 1 measured problem");
}

TEST_CASE("nobody is asked for problems that ship, policies of this machine and servers on it") {
  Fixture fixture;
  CHECK(fixture.Refusal("openai:m", &fixture.shipped, {}).empty());
  CHECK(fixture.Refusal("search", &fixture.imported, {}).empty());
  CHECK(fixture.Refusal("local:models/m", &fixture.imported, {}).empty());
  fixture.options.base_url = "http://127.0.0.1:8000/v1";
  CHECK(fixture.Refusal("openai:m", &fixture.imported, {}).empty());
  CHECK((IsOnThisMachine("http://localhost/v1") && IsOnThisMachine("http://[::1]:8000/v1")));
  CHECK_FALSE(IsOnThisMachine("http://127.0.0.1.example.com/v1"));
  CHECK_FALSE(IsOnThisMachine("https://localhost.example.com/v1"));
}

}  // namespace
}  // namespace kevin
