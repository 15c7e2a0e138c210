// `kevin doctor --policies` on a small list of problems: what the default policy writes is counted, what it refuses is
// named with the reason. The graphs come from the evaluator.

#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "tests/catch.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

void Write(const std::filesystem::path& folder, const std::string& id, const std::string& operation,
           const std::string& flags = "") {
  const std::filesystem::path file = folder / (id + "_problem.toml");
  std::filesystem::create_directories(file.parent_path());
  std::string number = file.stem().string();
  const std::string name =
      file.parent_path().filename().string() + "/" + std::to_string(std::stoi(number.substr(0, 3)));
  std::ofstream(file) << fmt::format(
      "id = \"{}\"\nname = \"{}\"\nfamilies = [\"elementwise\"]\n"
      "reference = '''\ndef forward(x):\n    return torch.{}(x)\n'''\n{}\n"
      "[sizes.full]\nN = 4096\n[sizes.small]\nN = 1024\n"
      "[[inputs]]\nname = \"x\"\nshape = [\"N\"]\n[[outputs]]\nname = \"out\"\nshape = [\"N\"]\n"
      "[cost]\nflops = \"N\"\nbytes = \"8*N\"\nmin_flops = 0\nmin_bytes = \"8*N\"\n",
      name, operation, operation, flags);
}

struct Fixture {
  TemporaryFolder folder;
  Fixture() {
    Write(folder.path(), "level1/001", "relu");
    Write(folder.path(), "level1/002", "special_bessel_j1");
    Write(folder.path(), "level1/003", "tanh", "[flags]\ninadmissible = \"It has one answer.\"\n");
    for (const char* suite : {"level2", "level3", "chains"})
      Write(folder.path(), std::string(suite) + "/001", "sigmoid");
    setenv("KEVIN_PROBLEMS", folder.path().c_str(), 1);
  }
  ~Fixture() { unsetenv("KEVIN_PROBLEMS"); }
};

Result Doctor(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"doctor"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunCommand({&AddDoctorCommand}, arguments);
}

}  // namespace

TEST_CASE("doctor --policies --json counts what is written and names what is refused") {
  const Fixture kevin;
  const Result result = Doctor({"--policies", "--json"});
  INFO(result.output << result.error);
  std::map<std::string, Json> checks;  // of the policy, by name
  for (const Json& line : Lines(result.output)) {
    CHECK(line.at("event") == "check");
    const std::string name = line.at("name");
    if (name.rfind("policy ", 0) == 0) CHECK(checks.emplace(name, line).second);
  }
  REQUIRE(checks.size() == 5);
  const auto found = [&](const std::string& name) {
    REQUIRE(checks.count(name) == 1);
    return checks[name].at("found").get<std::string>();
  };
  // The inadmissible problem is not asked for.
  CHECK(found("policy search, level1").rfind("writes 1 of 2 problems, kind ", 0) == 0);
  CHECK(checks["policy search, level1"].at("ok") == false);
  for (const char* suite : {"level2", "level3", "chains"}) {
    CHECK(found(std::string("policy search, ") + suite).rfind("writes 1 of 1 problems, kind ", 0) == 0);
    CHECK(checks[std::string("policy search, ") + suite].at("ok") == true);
  }
  const Json& refused = checks["policy search, level1/2"];
  REQUIRE(refused.is_object());
  CHECK(refused.at("ok") == false);
  CHECK(Contains(refused.at("found"), "level1/2: "));
  CHECK(Contains(refused.at("found"), "special_bessel_j1"));
  CHECK_FALSE(refused.at("fix").get<std::string>().empty());
}

TEST_CASE("doctor --policies prints the same for people, and a refusal is no fault of the machine") {
  const Fixture kevin;
  const Result with = Doctor({"--policies"});
  INFO(with.output);
  CHECK(Contains(with.output, "policy search, level1 "));
  CHECK(Contains(with.output, "writes 1 of 2 problems"));
  CHECK(Contains(with.output, "special_bessel_j1"));
  const Result without = Doctor({});
  CHECK_FALSE(Contains(without.output, "policy search"));
  CHECK(with.code == without.code);
}

TEST_CASE("doctor --policies names a list of problems that it cannot read") {
  const Fixture kevin;
  std::filesystem::remove_all(kevin.folder / "chains");
  const Result result = Doctor({"--policies", "--json"});
  INFO(result.output);
  bool named = false;
  for (const Json& line : Lines(result.output))
    named |= line.at("name") == "policy search" && line.at("ok") == false &&
             Contains(line.at("found"), "chains") && !line.at("fix").get<std::string>().empty();
  CHECK(named);
}

}  // namespace kevin
