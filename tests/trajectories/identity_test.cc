#include "trajectories/identity.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace kevin {
namespace {

TEST_CASE("ULIDs are 26 characters of Crockford's base 32, in order, and carry the time") {
  std::vector<std::string> ids;
  for (int i = 0; i < 20'000; ++i) ids.push_back(NewUlid());
  CHECK(std::is_sorted(ids.begin(), ids.end()));
  CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
  for (const std::string& id : {ids.front(), ids.back()}) {
    CHECK(id.size() == 26);
    CHECK(id.find_first_not_of("0123456789ABCDEFGHJKMNPQRSTVWXYZ") == std::string::npos);
    CHECK(id[0] <= '7');  // 130 bits hold 128
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    CHECK(std::abs(UlidMilliseconds(id) - now.count()) < 60'000);
  }
  CHECK(UlidMilliseconds("01ARZ3NDEKTSV4RRFFQ69G5FAV") == 1469922850259);
  CHECK(NormalizeUlid("01arzilo") == "01ARZ110");
}

TEST_CASE("threads and forked processes get different ULIDs") {
  std::vector<std::string> ids(4000);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 1000; ++i) ids[t * 1000 + i] = NewUlid();
    });
  }
  for (auto& thread : threads) thread.join();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  for (int child = 0; child < 30; ++child) {
    ids.push_back(NewUlid());  // so that parent and child often go on within the same millisecond
    if (fork() == 0) {
      const std::string id = NewUlid();
      _exit(write(ends[1], id.data(), id.size()) == 26 ? 0 : 1);
    }
    ids.push_back(NewUlid());
  }
  close(ends[1]);
  char buffer[26];
  while (read(ends[0], buffer, sizeof buffer) == 26) ids.emplace_back(buffer, sizeof buffer);
  close(ends[0]);
  while (wait(nullptr) > 0) {
  }
  CHECK(ids.size() == 4090);
  CHECK(std::set<std::string>(ids.begin(), ids.end()).size() == ids.size());
}

TEST_CASE("a process is known to be dead only when it is") {
  CHECK_FALSE(IsDead(ThisProcess()));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string owner = ThisProcess();
    if (write(ends[1], owner.data(), owner.size()) < 0) _exit(1);
    pause();
    _exit(0);
  }
  close(ends[1]);
  char buffer[512];
  const auto size = read(ends[0], buffer, sizeof buffer);
  close(ends[0]);
  REQUIRE(size > 0);
  const std::string owner(buffer, static_cast<size_t>(size));
  CHECK_FALSE(IsDead(owner));
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  CHECK(IsDead(owner));  // a zombie
  waitpid(child, nullptr, 0);
  CHECK(IsDead(owner));
  const std::string rest = owner.substr(owner.find(' '));
  CHECK_FALSE(IsDead("elsewhere" + rest));
  const std::string host = owner.substr(0, owner.find(' '));
  CHECK(IsDead(host + " earlier-boot pid:[1] 1 1"));
}

}  // namespace
}  // namespace kevin
