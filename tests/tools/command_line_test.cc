#include "tools/command_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "agent/terminal.h"
#include "env/error.h"
#include "env/process/files.h"
#include "tests/catch.h"

namespace kevin {
namespace {

// What a command line with one command, two options, is told.
std::string Told(std::vector<std::string> arguments) {
  CLI::App app{"", "kevin"};
  app.require_subcommand(0, 1);
  CLI::App* run = app.add_subcommand("run", "");
  int turns = 0;
  std::string problem;
  run->add_option("--turns", turns)->check(CLI::Range(1, 9));
  run->add_option("--problem", problem)->required();
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& parse_error) {
    const Error error = UsageError(app, parse_error);
    CHECK(error.code() == ExitCode::kBadRequest);
    return std::string(error.what()) + " | " + error.next_step();
  }
  return "";
}

}  // namespace

TEST_CASE("a command line that is not understood gets one form of message, and what may have been meant") {
  CHECK(Told({"run", "--problem", "x"}).empty());
  CHECK(Told({"rnu"}) == "rnu: no such command | did you mean run? kevin --help lists the commands");
  CHECK(Told({"nonsense"}) == "nonsense: no such command | kevin --help lists the commands");
  CHECK(Told({"run", "--problem", "x", "--trns", "8"}) ==
        "run: --trns: no such option | did you mean --turns? kevin run --help lists the options");
  CHECK(Told({"run", "--problem", "x", "--trns=8"}).starts_with("run: --trns: no such option"));
  CHECK(Told({"run", "--problem", "x", "--colour"}) ==
        "run: --colour: no such option | kevin run --help lists the options");
  CHECK(Told({"run", "--problem", "x", "y"}) ==
        "run: y: one argument too many | kevin run --help lists the options");
  CHECK(Told({"run"}) == "run: --problem is required | kevin run --help lists the options");
  CHECK(Told({"run", "--problem", "x", "--turns", "eight"}).starts_with("run: --turns: "));
  CHECK((WhyNotWhole("0").empty() && WhyNotWhole("9223372036854775807").empty()));
  for (const char* text : {"-1", "", "1.5", "8 ", "abc", "9223372036854775808"})
    CHECK(WhyNotWhole(text) == std::string(text) + " is not a whole number: 0, 1, 2, ...");
}

namespace {

// While this exists, standard output is `file`.
class Redirected {
 public:
  explicit Redirected(int file) : saved_((std::fflush(stdout), dup(STDOUT_FILENO))) {
    dup2(file, STDOUT_FILENO);
  }
  ~Redirected() {
    std::fflush(stdout);
    std::clearerr(stdout);
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
  }

 private:
  const int saved_;
};

}  // namespace

TEST_CASE("a closed pipe is no failure, a full disk is, for texts of any length") {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string line = "short\n", page(100000, 'x');
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  bool threw = false;
  {
    const Redirected closed(ends[1]);
    try {
      for (const std::string& text : {line, page, line}) Print(stdout, text);
      WriteAll(STDOUT_FILENO, page, "standard output");
      RequireOutputWritten();
    } catch (const Error&) {
      threw = true;
    }
  }
  close(ends[1]);
  CHECK_FALSE(threw);
  const int full = open("/dev/full", O_WRONLY);
  for (const std::string& text : {line, page}) {
    std::string reason;
    {
      const Redirected to_full(full);
      try {
        Print(stdout, text);
      } catch (const Error& error) {
        reason = error.what();
      }
    }
    CHECK(reason == "standard output: No space left on device");
  }
  close(full);
  CHECK_THROWS_AS(RequireOutputWritten(), Error);  // it remembers
}

}  // namespace kevin
