#include "policies/local/serve/model_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "policies/remote/json.h"

namespace kevin::local {
namespace fs = std::filesystem;
namespace {

constexpr size_t kKeptLines = 12;
constexpr int kChildReady = 3;
constexpr auto kPatience = std::chrono::seconds(5);

std::pair<int, int> Pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(ExitCode::kBroken, fmt::format("pipe: {}", std::strerror(errno)), "close other programs");
  return {ends[0], ends[1]};
}

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This process's environment, but torch's threads must not spin while waiting: the model shares the processor
// with the evaluator, and spinning threads cost it most of its speed.
std::vector<std::string> PassiveEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable) variables.emplace_back(*variable);
  if (!std::getenv("OMP_WAIT_POLICY")) variables.emplace_back("OMP_WAIT_POLICY=passive");
  return variables;
}

// Runs in the child: must not allocate.
[[noreturn]] void Become(char* const* arguments, char* const* environment, pid_t parent, int stderr_end,
                         int ready_end) {
  setsid();  // Ctrl-C in the terminal is for Kevin, who ends this in its own time
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(stderr_end, STDERR_FILENO);
  if (ready_end == kChildReady) {
    fcntl(ready_end, F_SETFD, 0);
  } else {
    dup2(ready_end, kChildReady);
  }
  syscall(SYS_close_range, kChildReady + 1, ~0U, 0);
  execve(arguments[0], arguments, environment);
  const char* why = std::strerror(errno);
  for (const char* part : {"kevin-model: cannot be started: ", why, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  _exit(static_cast<int>(ExitCode::kMachine));
}

ExitCode CodeOf(int status) {
  if (!WIFEXITED(status)) return ExitCode::kBroken;
  switch (WEXITSTATUS(status)) {
    case static_cast<int>(ExitCode::kBadRequest):
      return ExitCode::kBadRequest;
    case static_cast<int>(ExitCode::kMachine):
      return ExitCode::kMachine;
    default:
      return ExitCode::kBroken;
  }
}

}  // namespace

ModelProcess::ModelProcess(const fs::path& program, const std::vector<std::string>& arguments,
                           const OnLine& on_line) {
  Start(program, arguments);
  reader_ = std::thread([this, on_line] { ReadStderr(on_line); });
  try {
    WaitUntilReady();
  } catch (...) {
    Stop();
    throw;
  }
}

ModelProcess::~ModelProcess() { Stop(); }

void ModelProcess::Start(const fs::path& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (const char* word : {"--private-socket", "--ready-fd", "3"}) words.emplace_back(word);
  std::vector<std::string> variables = PassiveEnvironment();
  const std::vector<char*> pointers = PointersTo(words), environment = PointersTo(variables);
  const auto [stderr_in, stderr_out] = Pipe();
  const auto [ready_in, ready_out] = Pipe();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) Become(pointers.data(), environment.data(), parent, stderr_out, ready_out);
  close(stderr_out);
  close(ready_out);
  stderr_ = stderr_in;
  ready_ = ready_in;
  if (pid_ < 0) {
    close(stderr_);
    close(ready_);
    throw Error(ExitCode::kBroken, fmt::format("fork: {}", std::strerror(errno)), "close other programs");
  }
}

void ModelProcess::ReadStderr(OnLine on_line) {
  std::string line;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = read(stderr_, buffer.data(), buffer.size())) != 0;) {
    if (count < 0 && errno != EINTR) break;
    for (ssize_t i = 0; i < count; ++i) {
      const char c = buffer[static_cast<size_t>(i)];
      if (c != '\n') {
        line += c;
        continue;
      }
      bool is_loading = false;
      {
        const std::lock_guard lock(mutex_);
        last_lines_.push_back(line);
        if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
        is_loading = !is_ready_;
      }
      if (is_loading && on_line) on_line(line);
      line.clear();
    }
  }
}

void ModelProcess::WaitUntilReady() {
  std::string line;
  char c = 0;
  for (ssize_t count = 0; !line.ends_with('\n');) {
    count = read(ready_, &c, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    line += c;
  }
  const auto ready = remote::ParseJson(line);
  if (!ready || remote::TextAt(*ready, "event") != "ready") {
    int status = 0;
    waitpid(pid_, &status, 0);
    reader_.join();
    pid_ = -1;
    throw FailureOf(status);
  }
  url_ = remote::TextAt(*ready, "url");
  model_ = remote::TextAt(*ready, "model");
  device_ = remote::TextAt(*ready, "device");
  const std::lock_guard lock(mutex_);
  is_ready_ = true;
}

// The program's own error is its last output, as its main prints it.
Error ModelProcess::FailureOf(int status) {
  const std::lock_guard lock(mutex_);
  std::string what, next;
  constexpr std::string_view kOwn = "kevin-model: ", kNext = "  next: ";
  for (const std::string& line : last_lines_) {
    if (line.starts_with(kOwn)) what = line.substr(kOwn.size());
    if (line.starts_with(kNext)) next = line.substr(kNext.size());
  }
  if (!what.empty()) return {CodeOf(status), what, next};
  what = WIFSIGNALED(status) ? fmt::format("kevin-model was ended by signal {} ({})", WTERMSIG(status),
                                           strsignal(WTERMSIG(status)))
                             : fmt::format("kevin-model ended with code {}", WEXITSTATUS(status));
  if (!last_lines_.empty()) what += "; the last it said:";
  for (const std::string& line : last_lines_) what += "\n    " + line;
  const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  return {CodeOf(status), what,
          is_killed ? "perhaps memory ran out: give less context, or quantization=int8" : "start again"};
}

std::optional<Error> ModelProcess::PermanentFailure() {
  int status = 0;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return failure_;
    if (pid_ < 0 || waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
    pid_ = -1;
  }
  // Its last output may not have arrived yet.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Error failure = FailureOf(status);
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  return failure_;
}

void ModelProcess::Stop() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) kill(pid_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    pid_ = -1;
  }
  if (reader_.joinable()) reader_.join();
  // A killed process leaves its socket behind.
  constexpr std::string_view kUnix = "unix:";
  std::error_code ignored;
  if (url_.starts_with(kUnix)) fs::remove_all(fs::path(url_.substr(kUnix.size())).parent_path(), ignored);
  if (stderr_ >= 0) close(stderr_);
  if (ready_ >= 0) close(ready_);
  stderr_ = ready_ = -1;
}

}  // namespace kevin::local
