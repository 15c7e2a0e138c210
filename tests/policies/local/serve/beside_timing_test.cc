// A user's `kevin serve-model` beside measurements on the same device: a stand-in, of which the model's server and this
// test have the lock.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "agent/machine.h"
#include "env/process/machine.h"
#include "policies/local/serve/local_policy.h"
#include "policies/remote/json.h"
#include "policies/remote/remote_policy.h"
#include "tests/catch.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The program with a stand-in for its model, as a user starts it.
class Served {
 public:
  explicit Served(const std::string& device) {
    fs::create_directories(folder_);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], STDOUT_FILENO);
      execl(FAKE_MODEL, FAKE_MODEL, folder_.c_str(), "--port=0", "--quantization=nf4-double",
            ("--device=" + device).c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    close(ends[1]);
    std::string line;
    for (char c = 0; read(ends[0], &c, 1) == 1 && c != '\n';) line += c;
    close(ends[0]);
    const auto ready = remote::ParseJson(line);
    REQUIRE(ready);
    url_ = remote::TextAt(*ready, "url"), model_ = remote::TextAt(*ready, "model");
  }
  ~Served() {
    if (pid_ > 0) MillisecondsToEnd();
    fs::remove_all(folder_.parent_path());
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  std::unique_ptr<RemotePolicy> Client() const {
    RemoteOptions options;
    options.endpoint = remote::ParseSpec("openai:" + model_ + "@" + url_, "");
    options.attempts = 1;
    return MakeRemotePolicy(options);
  }
  // Ends it as Ctrl-C would. The milliseconds until it has ended.
  double MillisecondsToEnd() {
    const auto start = Clock::now();
    kill(pid_, SIGTERM);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }

 private:
  const fs::path folder_ =
      fs::temp_directory_path() / ("kevin-timing-test-" + std::to_string(getpid())) / "letters";
  pid_t pid_ = -1;
  std::string url_, model_;
};

Request Ask(const std::string& text, int tokens) {
  Request request;
  request.messages = {{"user", text}};
  request.sampling.max_tokens = tokens;
  return request;
}

constexpr const char* kDevice = "cuda:9";  // no other test has its lock

}  // namespace

TEST_CASE(
    "serve-model computes nothing while a pair is timed on its device, and something else is timed meanwhile",
    "[local]") {
  Served served(kDevice);
  const auto client = served.Client();
  CHECK(!client->Complete(Ask("a", 20), nullptr, {}).text.empty());
  std::atomic<bool> has_answered{false};
  std::thread asking;
  {
    const DeviceLock elsewhere(LockNameOf("cuda:8"), LockMode::kExclusive, nullptr);
    CHECK(!client->Complete(Ask("b", 20), nullptr, {}).text.empty());
    const DeviceLock timing(LockNameOf(kDevice), LockMode::kExclusive, nullptr);
    asking = std::thread([&] {
      client->Complete(Ask("c", 20), nullptr, {});
      has_answered = true;
    });
    std::this_thread::sleep_for(milliseconds(700));
    CHECK_FALSE(has_answered);
  }
  asking.join();
  CHECK(has_answered);
}

TEST_CASE("serve-model loads no weights while a pair is timed on its device", "[local]") {
  std::atomic<bool> is_ready{false};
  std::thread loading;
  {
    const DeviceLock timing(LockNameOf(kDevice), LockMode::kExclusive, nullptr);
    loading = std::thread([&] {
      const Served served(kDevice);
      is_ready = true;
    });
    std::this_thread::sleep_for(milliseconds(700));
    CHECK_FALSE(is_ready);
  }
  loading.join();
  CHECK(is_ready);
}

TEST_CASE("a measurement begins soon where serve-model always has answers in progress, which pause",
          "[local]") {
  Served served(kDevice);
  std::atomic<bool> stop{false};
  std::atomic<int> pieces{0};
  std::vector<std::thread> asking;
  for (int i = 0; i < 3; ++i) {
    asking.emplace_back([&] {
      const auto client = served.Client();
      while (!stop) client->Complete(Ask("a long one", 500), nullptr, [&](const std::string&) { ++pieces; });
    });
  }
  while (pieces < 20) std::this_thread::sleep_for(milliseconds(5));
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    const DeviceLock timing(LockNameOf(kDevice), LockMode::kExclusive, nullptr);
    CHECK(Clock::now() - start < std::chrono::seconds(2));
    std::this_thread::sleep_for(milliseconds(150));  // what was computed before has arrived
    const int before = pieces;
    std::this_thread::sleep_for(milliseconds(300));
    CHECK(pieces == before);
  }
  const int after = pieces;
  for (int i = 0; i < 1000 && pieces == after; ++i) std::this_thread::sleep_for(milliseconds(5));
  CHECK(pieces > after);
  stop = true;
  for (std::thread& thread : asking) thread.join();
}

TEST_CASE("serve-model ends while it waits for its device", "[local]") {
  Served served(kDevice);
  const DeviceLock timing(LockNameOf(kDevice), LockMode::kExclusive, nullptr);
  std::thread asking([client = served.Client()] {
    try {
      client->Complete(Ask("a", 20), nullptr, {});
    } catch (const Error&) {
    }
  });
  std::this_thread::sleep_for(milliseconds(300));
  CHECK(served.MillisecondsToEnd() < 5000);
  asking.join();
}

TEST_CASE("a private model's process leaves the lock to its owner, who holds it while it asks", "[local]") {
  const fs::path folder =
      fs::temp_directory_path() / ("kevin-owner-test-" + std::to_string(getpid())) / "tiny";
  fs::create_directories(folder);
  {
    LocalPolicy policy(ParseLocalSpec("local:" + folder.string() + "?device=" + kDevice), FAKE_MODEL, {},
                       [](const std::string&) {});
    CHECK(policy.ComputesOn() == kDevice);
    const DeviceLock held(LockNameOf(kDevice), LockMode::kExclusive, nullptr);
    CancelToken cancel{false};
    const std::jthread late([&](const std::stop_token& answered) {
      for (int i = 0; i < 500 && !answered.stop_requested(); ++i)
        std::this_thread::sleep_for(milliseconds(10));
      cancel = true;
    });
    const Completion completion = policy.Complete(Ask("a", 20), &cancel, {});
    CHECK(completion.stop_reason != "cancelled");
    CHECK(!completion.token_ids.empty());
  }
  fs::remove_all(folder.parent_path());
}

}  // namespace kevin::local
