#include "env/process/run_to_end.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "env/error.h"
#include "env/process/shared_memory.h"

namespace kevin {

using Clock = std::chrono::steady_clock;

Ran RunToEnd(SpawnOptions spawn, double timeout_s, size_t limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ExitCode::kBroken, std::string("cannot make a pipe: ") + std::strerror(errno));
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  spawn.descriptors = {{write_end.get(), STDOUT_FILENO}, {write_end.get(), STDERR_FILENO}};
  ChildProcess child = Spawn(spawn);
  write_end.Reset();
  Ran ran;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    const double left_s = std::chrono::duration<double>(deadline - Clock::now()).count();
    pollfd ready{read_end.get(), POLLIN, 0};
    if (left_s <= 0 || poll(&ready, 1, static_cast<int>(left_s * 1000) + 1) == 0) {
      ran.timed_out = true;
      child.Kill();
      return ran;
    }
    char chunk[65536];
    const ssize_t n = read(read_end.get(), chunk, sizeof(chunk));
    if (n <= 0 && errno != EINTR) break;
    if (n > 0)
      ran.output.append(chunk, std::min(static_cast<size_t>(n), limit - std::min(limit, ran.output.size())));
  }
  ran.timed_out =
      !child.Wait(std::max(std::chrono::duration<double>(deadline - Clock::now()).count(), 0.1), &ran.status);
  return ran;
}

}  // namespace kevin
