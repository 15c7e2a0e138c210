// local:DIR with a kevin-model that has a stand-in for its model: start, answers, every way to die.

#include "policies/local/serve/local_policy.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>

#include "tests/catch.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : path(fs::temp_directory_path() / ("kevin-local-test-" + std::to_string(getpid())) / "tiny") {
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path.parent_path()); }
  std::string Spec(const std::string& options = "") const { return "local:" + path.string() + options; }
  const fs::path path;
};

// What a model's process says while it starts. A thread of the policy's adds lines.
class Lines {
 public:
  void Add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    added_.notify_all();
  }
  // Empty: there is none within ten seconds.
  std::string First() {
    std::unique_lock lock(mutex_);
    added_.wait_for(lock, std::chrono::seconds(10), [this] { return !lines_.empty(); });
    return lines_.empty() ? "" : lines_.front();
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::string> lines_;
};

std::unique_ptr<LocalPolicy> Made(const std::string& spec, Lines* lines = nullptr) {
  return std::make_unique<LocalPolicy>(ParseLocalSpec(spec), FAKE_MODEL, RemoteOptions{},
                                       [lines](const std::string& line) {
                                         if (lines != nullptr) lines->Add(line);
                                       });
}

Request Ask(const std::string& text) {
  Request request;
  request.messages = {{"user", text}};
  request.sampling.max_tokens = 30;
  return request;
}

std::string ErrorOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.next_step();
  }
  return "no Error";
}

bool IsGone(pid_t pid) {
  for (int i = 0; i < 600; ++i) {
    if (kill(pid, 0) != 0) return true;
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(status, text);
    if (text.find(") Z ") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_CASE("a spec names a folder and options", "[local]") {
  const Folder folder;
  CHECK(IsLocalSpec("local:x"));
  CHECK(!IsLocalSpec("openai:x"));
  const LocalSpec spec = ParseLocalSpec(folder.Spec("?quantization=int8&device=cuda:1"));
  CHECK(spec.folder == fs::canonical(folder.path));
  CHECK(spec.options.at("device") == "cuda:1");
  CHECK(spec.Text() == "local:" + fs::canonical(folder.path).string() + "?device=cuda:1&quantization=int8");
  CHECK(ParseLocalSpec(spec.Text()).Text() == spec.Text());
  CHECK(ErrorOf([&] { ParseLocalSpec("local:/no/such?device=cpu"); }).find("no such folder: /no/such") !=
        std::string::npos);
  CHECK(ErrorOf([&] { ParseLocalSpec(folder.Spec("?devise=cpu")); }).find("no such option: devise=cpu") !=
        std::string::npos);
}

TEST_CASE("many threads share one process, and it ends with its policy", "[local]") {
  const Folder folder;
  Lines lines;
  auto policy = Made(folder.Spec("?device=cpu"), &lines);
  CHECK(lines.First() == "plan: 3 bytes");
  CHECK(policy->Name() == "local:" + fs::canonical(folder.path).string() + "?device=cpu");
  CHECK(policy->ComputesOn() == "cpu");
  CHECK(policy->process().model() == "tiny");
  CHECK(policy->client().FindWindow() == 600);
  std::vector<std::thread> threads;
  std::vector<Completion> completions(16);
  for (size_t i = 0; i < completions.size(); ++i) {
    threads.emplace_back(
        [&, i] { completions[i] = policy->Complete(Ask("Hello " + std::to_string(i)), nullptr, {}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Completion& completion : completions) {
    CHECK(!completion.token_ids.empty());
    CHECK(completion.token_ids.size() == completion.logprobs.size());
    CHECK(!completion.prompt_token_ids.empty());
    CHECK(completion.model == "tiny");
  }
  const pid_t pid = policy->process().pid();
  const fs::path socket = policy->process().url().substr(5);
  CHECK(fs::exists(socket));
  policy.reset();
  CHECK(kill(pid, 0) != 0);
  CHECK(!fs::exists(socket.parent_path()));
}

TEST_CASE("what a model cannot be started for is the error", "[local]") {
  const Folder folder;
  CHECK(ErrorOf([&] { Made(folder.Spec("?dtype=float16")); }) ==
        "the weights need 64 GB, 16 GB are free | --quantization nf4 fits");
  CHECK(ErrorOf([&] { Made(folder.Spec("?dtype=float8")); }).find("kevin-model ended with code 2") == 0);
  CHECK(ErrorOf([&] {
          LocalPolicy(ParseLocalSpec(folder.Spec()), "/no/such/program", RemoteOptions{}, {});
        }).find("cannot be started") != std::string::npos);
}

TEST_CASE("a process that dies is the error, with the last it said", "[local]") {
  const Folder folder;
  auto killed = Made(folder.Spec("?quantization=int8"));
  const fs::path socket = killed->process().url().substr(5);
  const std::string first = ErrorOf([&] { killed->Complete(Ask("Hello"), nullptr, {}); });
  INFO(first);
  CHECK(first.find("local:") == 0);
  CHECK(first.find("signal 9") != std::string::npos);
  CHECK(first.find("something is wrong") != std::string::npos);
  CHECK(ErrorOf([&] { killed->Complete(Ask("Hello"), nullptr, {}); }) == first);
  killed.reset();
  CHECK(!fs::exists(socket.parent_path()));
  const auto failed = Made(folder.Spec("?quantization=nf4"));
  const std::string second = ErrorOf([&] { failed->Complete(Ask("Hello"), nullptr, {}); });
  INFO(second);
  CHECK(second.find("the device fell off the bus") != std::string::npos);
}

TEST_CASE("the process does not outlive one that is killed", "[local]") {
  const Folder folder;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto policy = Made(folder.Spec());
    const pid_t model = policy->process().pid();
    if (write(ends[1], &model, sizeof(model)) != sizeof(model)) _exit(1);
    pause();
  }
  pid_t model = 0;
  REQUIRE(read(ends[0], &model, sizeof(model)) == sizeof(model));
  REQUIRE(kill(model, 0) == 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(IsGone(model));
  close(ends[0]);
  close(ends[1]);
}

struct Ran {
  int code = 0;
  std::string log;
};

// kevin-model as a program; ended after a second where it serves.
Ran RunModel(const Folder& folder, const std::string& arguments) {
  const std::string log = (folder.path.parent_path() / "log").string();
  const int status = std::system(
      ("timeout --preserve-status -s TERM 3 " FAKE_MODEL " " + arguments + " >/dev/null 2>'" + log + "'")
          .c_str());
  std::ifstream file(log, std::ios::binary);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          std::string(std::istreambuf_iterator<char>(file), {})};
}

TEST_CASE("kevin-model: keys and addresses are checked before the model is loaded") {
  const Folder folder;
  const std::string model = "'" + folder.path.string() + "' --port 0 ";
  const std::string keys = (folder.path.parent_path() / "keys").string();
  std::ofstream(keys) << "key-number-one-0123456789\n";
  fs::permissions(keys, fs::perms::owner_read | fs::perms::others_read);
  const auto check = [&](const std::string& arguments, int code, const std::string& says) {
    const Ran ran = RunModel(folder, model + arguments);
    INFO(arguments << "\n" << ran.log);
    CHECK(ran.code == code);
    CHECK(ran.log.find(says) != std::string::npos);
    CHECK((code == 0 || ran.log.find("plan:") == std::string::npos));
  };
  check("--host 0.0.0.0", 2, "next: give --api-keys FILE; or --no-authentication");
  check("--api-keys /no/such/keys", 2, "--api-keys /no/such/keys: No such file");
  check("--api-keys " + keys + " --no-authentication", 2, "excludes");
  check("--allow-host 'a b'", 2, "is no host name");
  check("--host 0.0.0.0 --api-keys " + keys, 0, "warning: " + keys + ": other users can reach the keys");
  check("--host 0.0.0.0 --no-authentication", 0, "is served at http://0.0.0.0:");
  check("--allow-host a.example --allow-host b.example", 0, "is served at http://127.0.0.1:");
}

TEST_CASE("kevin-model prints no escape of a name") {
  const Folder folder;
  const Ran ran = RunModel(folder, "'/no/such/\x1b[2J'");
  INFO(ran.log);
  CHECK(ran.log.find('\x1b') == std::string::npos);
  CHECK(ran.log.find("/no/such/\\x1b[2J") != std::string::npos);
}

}  // namespace
}  // namespace kevin::local
