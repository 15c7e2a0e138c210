// The bytes between the frames of a GPU runner, on which its wall clock depends.

#include "env/gpu/runner/runner_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "env/process/machine.h"
#include "tests/catch.h"

namespace kevin {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    one = Fd(ends[0]);
    other = Fd(ends[1]);
  }
  Fd one, other;
};

}  // namespace

TEST_CASE("a number and a frame behind it arrive as they were sent") {
  const Pair pair;
  const uint32_t number = 0x12345678;
  std::jthread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    SendBytes(pair.one.get(), &number, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // beyond the time of spinning
    SendBytes(pair.one.get(), reinterpret_cast<const char*>(&number) + 2, 2);
    SendFrame(pair.one.get(), {{"us", 2.5}});
  });
  uint32_t received = 0;
  REQUIRE(AwaitBytes(pair.other.get(), 10, &received, sizeof(received)));
  CHECK(received == number);
  const auto frame = ReceiveFrame(pair.other.get(), 10);
  REQUIRE(frame);
  CHECK(frame->at("us") == 2.5);
}

TEST_CASE("waiting for bytes ends in time, and when the other side closes") {
  Pair pair;
  char byte = 0;
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(AwaitBytes(pair.other.get(), 0.1, &byte, 1));
  const double waited_s = SecondsSince(start);
  CHECK(waited_s >= 0.1);
  CHECK(waited_s < 5);
  pair.one = Fd();
  CHECK_FALSE(AwaitBytes(pair.other.get(), -1, &byte, 1));
}

}  // namespace kevin
