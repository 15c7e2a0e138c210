// bench_program: cost of the program itself. Prints the start-up time of commands that need no torch, and the
// parts of a turn's time. Usage: bench_program [--turns N] [--problem ID]; the `kevin` beside it is used.

#include <fmt/format.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "agent/machine.h"
#include "env/error.h"
#include "env/process/spawn.h"
#include "env/verdict/estimate.h"

namespace kevin {
namespace {

std::string Quoted(const std::filesystem::path& path) { return "'" + path.string() + "'"; }

void StartUp(const std::string& arguments) {
  constexpr int kRuns = 30;
  const std::string command = Quoted(ProgramDirectory() / "kevin") + " " + arguments + " >/dev/null";
  std::vector<double> times_ms;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (std::system(command.c_str()) != 0) throw Error(ExitCode::kBroken, command + " failed");
    times_ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  fmt::print("kevin {:<12} median {:.1f} ms of {} starts, a shell's own start included\n", arguments,
             Median(times_ms), kRuns);
}

void Turns(const std::string& problem, int turns, const std::filesystem::path& folder) {
  const std::string command =
      fmt::format("cd {} && {} run --problem {} --turns {} --seed 1 --json 2>/dev/null", Quoted(folder),
                  Quoted(ProgramDirectory() / "kevin"), problem, turns);
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw Error(ExitCode::kBroken, "cannot start kevin");
  std::vector<double> total_s, compile_s, verify_s, measure_s, overhead_s;
  char line[1 << 16];
  while (std::fgets(line, sizeof(line), pipe)) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") != "turn") continue;
    const auto seconds = [&](const char* name) {
      return event.at(name).is_number() ? event.at(name).get<double>() : 0;
    };
    compile_s.push_back(seconds("compile_s"));
    verify_s.push_back(seconds("verify_s"));
    measure_s.push_back(seconds("measure_s"));
    overhead_s.push_back(seconds("overhead_s"));
    total_s.push_back(seconds("generate_s") + compile_s.back() + verify_s.back() + measure_s.back() +
                      overhead_s.back());
  }
  const int status = pclose(pipe);
  if (status != 0)
    throw Error(ExitCode::kBroken, fmt::format("kevin run ended with {}", WEXITSTATUS(status)));
  fmt::print(
      "one turn of {} small, median of {}: {:.2f} s = compile {:.2f} + verify {:.2f} + measure {:.2f} + "
      "overhead {:.2f}\n",
      problem, total_s.size(), Median(total_s), Median(compile_s), Median(verify_s), Median(measure_s),
      Median(overhead_s));
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  CLI::App app{"Cost of the program itself on this machine"};
  int turns = 8;
  std::string problem = "level1/19";
  app.add_option("--turns", turns, "Turns of the episode")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--problem", problem, "Problem id")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("kevin-bench-{}", getpid());
  try {
    std::filesystem::create_directories(folder);
    kevin::StartUp("--help");
    kevin::StartUp("problems");
    kevin::Turns(problem, turns, folder);
    std::filesystem::remove_all(folder);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_program: {}\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
