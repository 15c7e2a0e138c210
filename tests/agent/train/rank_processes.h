#pragma once
// The ranks of a run as processes of their own, as torchrun starts them.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace kevin {

// The variables of both ranks, before a command of a shell. `port`: of this test, so that tests at once do not meet.
inline std::string RanksOfTwo(int port) {
  return "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(20000 + (getpid() + port) % 20000) +
         " WORLD_SIZE=2 ";
}
// And which one it is, for all commands that follow.
inline std::string RankOfTwo(int rank, int port) {
  return "export " + RanksOfTwo(port) + "RANK=" + std::to_string(rank) + "; ";
}

// Runs a shell's command in a process group of its own.
inline pid_t StartCommand(const std::string& command) {
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  setpgid(child, child);
  return child;
}

// -1: ended by a signal.
inline int CodeOf(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Whether `ready` comes true within so long.
inline bool ComesTrue(const std::function<bool()>& ready, std::chrono::seconds within) {
  const auto end = std::chrono::steady_clock::now() + within;
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// As CodeOf; -2: it did not end within so long, and was killed with its group.
inline int CodeWithin(pid_t child, std::chrono::seconds within) {
  siginfo_t info{};
  const auto ended = [&] {
    return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child;
  };
  if (ComesTrue(ended, within)) return CodeOf(child);
  kill(-child, SIGKILL);
  CodeOf(child);
  return -2;
}

}  // namespace kevin
