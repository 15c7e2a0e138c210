#pragma once
// Ranks as processes of their own, which can be killed and stopped: each runs a hidden test case of this program.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "policies/local/train/ranks.h"
#include "tests/policies/local/train/trainer_fixture.h"

namespace kevin::local {

inline std::string TextOf(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline std::string Given(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

using EndRank = std::function<void(const Error&)>;

// Of a hidden case: runs `work`, which ends by an error alone, as the rank that LaunchRanks asks for. `end` ends the process
// and leaves the error in FOLDER/rank-N.
inline void AsRank(
    const std::function<void(const Rendezvous&, const std::string& folder, const EndRank& end)>& work) {
  signal(SIGPIPE, SIG_IGN);  // as kevin-trainer does: ranks that are gone are written to
  const std::string rank = Given("TEST_RANK"), folder = Given("TEST_FOLDER");
  const EndRank end = [&](const Error& error) {
    std::ofstream(folder + "/rank-" + rank) << error.what() << "\n";
    _exit(static_cast<int>(error.code()));
  };
  Rendezvous rendezvous{std::stoi(rank), std::stoi(Given("TEST_SIZE")),
                        "127.0.0.1",     std::stoi(Given("TEST_PORT")),
                        rank == "0",     "test"};
  rendezvous.lost_seconds = 4, rendezvous.on_lost = end;
  try {
    work(rendezvous, folder, end);
  } catch (const Error& error) {
    end(error);
  }
}

struct Ended {
  int code = -1;
  std::string what;
  double seconds = 0;  // after the signal
};

// Starts `size` ranks, each running the hidden case `test` of this program.
inline std::vector<pid_t> LaunchRanks(const char* test, int size, const std::string& folder) {
  const std::string port = std::to_string(FreePort());
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setenv("TEST_RANK", std::to_string(rank).c_str(), 1),
          setenv("TEST_SIZE", std::to_string(size).c_str(), 1);
      setenv("TEST_PORT", port.c_str(), 1), setenv("TEST_FOLDER", folder.c_str(), 1);
      execl("/proc/self/exe", "a_rank", test, static_cast<char*>(nullptr));
      _exit(127);
    }
    ranks.push_back(process);
  }
  return ranks;
}

// Whether the file has any content within `seconds`.
inline bool IsWritten(const std::string& file, int seconds) {
  for (int i = 0; i < 50 * seconds && TextOf(file).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return !TextOf(file).empty();
}

// A rank's exit status; -1: it was ended by a signal, or killed at `limit`.
inline int CodeOf(pid_t process, std::chrono::steady_clock::time_point limit) {
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(process, &status, WNOHANG)) == 0) {
    if (std::chrono::steady_clock::now() >= limit) kill(process, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return ended == process && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// LaunchRanks; waits until each has made its file FOLDER/sums-N.
inline std::vector<pid_t> StartRanks(const char* test, int size, const std::string& folder) {
  const std::vector<pid_t> ranks = LaunchRanks(test, size, folder);
  for (int rank = 0; rank < size; ++rank) CHECK(IsWritten(folder + "/sums-" + std::to_string(rank), 30));
  return ranks;
}

// StartRanks; sends `signal` to one of them then. How the others end.
inline std::vector<Ended> EndsAfter(const char* test, int size, int victim, int signal) {
  using Clock = std::chrono::steady_clock;
  const Folder folder;
  const std::vector<pid_t> ranks = StartRanks(test, size, folder.Path());
  const auto start = Clock::now();
  kill(ranks[static_cast<size_t>(victim)], signal);
  std::vector<Ended> ends;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    Ended ended;
    ended.code = CodeOf(ranks[static_cast<size_t>(rank)], start + std::chrono::seconds(60));
    ended.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    ended.what = TextOf(folder.Path() + "/rank-" + std::to_string(rank));
    ends.push_back(ended);
  }
  kill(ranks[static_cast<size_t>(victim)], SIGKILL);
  waitpid(ranks[static_cast<size_t>(victim)], nullptr, 0);
  return ends;
}

}  // namespace kevin::local
