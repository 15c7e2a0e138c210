#include "policies/local/serve/model_program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "env/printable.h"
#include "policies/local/files/weights_hash.h"
#include "policies/local/generate/quiet_runner.h"
#include "policies/local/serve/http_server.h"
#include "policies/local/serve/model_options.h"
#include "policies/local/serve/request_gate.h"

namespace kevin::local {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::milliseconds kLook{200};  // between looks at the engine's health

// A private folder for a socket; removed with its contents.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::string pattern = (fs::temp_directory_path() / "kevin-model-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw Error(ExitCode::kBroken, fmt::format("{}: {}", pattern, std::strerror(errno)),
                  "make room, or set TMPDIR");
    path_ = pattern;
  }
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Waits for SIGINT and SIGTERM. Threads started after its construction do not receive them.
class EndWatcher {
 public:
  EndWatcher() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    thread_ = std::thread([this] { Watch(); });
  }
  ~EndWatcher() {
    BeginServing();
    if (!ended_) pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }
  EndWatcher(const EndWatcher&) = delete;
  EndWatcher& operator=(const EndWatcher&) = delete;

  // From now on a signal ends the server in order instead of the process.
  void BeginServing() { is_serving_ = true; }
  const std::atomic<bool>* flag() const { return &ended_; }
  // False: a signal has arrived.
  bool WaitFor(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return !wake_.wait_for(lock, time, [this] { return ended_.load(); });
  }

 private:
  void Watch() {
    int signal = 0;
    sigwait(&signals_, &signal);
    if (!is_serving_) _exit(static_cast<int>(ExitCode::kInterrupted));
    const std::lock_guard lock(mutex_);
    ended_ = true;
    wake_.notify_all();
  }

  sigset_t signals_;
  std::atomic<bool> is_serving_{false}, ended_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

void Say(const std::string& line) { fmt::print(stderr, "{}\n", Printable(line)); }

void RequireFolder(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  throw Error(
      ExitCode::kBadRequest,
      fmt::format("{}: {}", folder.string(), fs::exists(folder, error) ? "is no folder" : "no such folder"),
      "give the folder of a model: config.json, tokenizer.json, *.safetensors");
}

void AnnounceReady(int fd, const Json& what) {
  const std::string line = what.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw Error(ExitCode::kBroken, fmt::format("the line that says ready: {}", std::strerror(errno)));
}

}  // namespace

int RunModelProgram(const ProgramOptions& options, const ModelReader& read, const RunnerMaker& make,
                    const DeviceHolder& hold) {
  RequireFolder(options.runner.folder);
  { const RequestGate gate(options.http); }  // a mistake in its options is found before minutes of loading
  EndWatcher watcher;
  ServedModel model = read(options.runner.folder);
  std::shared_ptr<void> held;
  if (!options.private_socket) held = hold(options.runner.device, watcher.flag());
  MadeRunner made = make(options.runner, Say);
  held.reset();
  model.name =
      options.name.empty() ? fs::weakly_canonical(options.runner.folder).filename().string() : options.name;
  model.root = options.runner.folder.string();
  model.seed = options.seed;
  const FolderHash hash(options.runner.folder);
  const auto weights = std::make_shared<ServedWeights>();
  weights->Set({0, hash.Hash()});
  model.weights = weights;
  watcher.BeginServing();
  std::unique_ptr<PrivateFolder> folder;
  HttpServerOptions http = options.http;
  if (options.private_socket) {
    http.connections = std::max(http.connections, kPrivateConnections);
    folder = std::make_unique<PrivateFolder>();
    http.unix_socket = (folder->path() / "socket").string();
  }
  if (!options.private_socket) {
    made.runner = std::make_unique<QuietRunner>(std::move(made.runner),
                                                [&] { return hold(made.device, watcher.flag()); });
  }
  Engine engine(std::move(made.runner));
  ModelApi api(engine, std::move(model));
  const HttpServer server(api, http);
  for (const std::string& warning : server.Warnings()) Say("warning: " + warning);
  Say(fmt::format("{} is served at {} on {}, up to {} tokens", api.model().name, server.Url(), made.device,
                  engine.ContextTokens()));
  AnnounceReady(options.ready_fd, {{"event", "ready"},
                                   {"model", api.model().name},
                                   {"url", server.Url()},
                                   {"max_model_len", engine.ContextTokens()},
                                   {"device", made.device}});
  while (watcher.WaitFor(kLook)) {
    if (const auto failure = engine.PermanentFailure()) throw Error(*failure);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace kevin::local

namespace kevin {
namespace {

int Fail(ExitCode code, const std::string& what, const std::string& next_step) {
  fmt::print(stderr, "kevin-model: {}\n", Printable(what));
  if (!next_step.empty()) fmt::print(stderr, "  next: {}\n", Printable(next_step));
  return static_cast<int>(code);
}

}  // namespace

int ModelMain(int argc, char** argv, const local::ModelReader& read, const local::RunnerMaker& make,
              const local::DeviceHolder& hold) {
  CLI::App app{"Serves a language model from its folder with OpenAI's API.", "kevin-model"};
  local::ProgramOptions options;
  AddModelOptions(&app, &options);
  app.add_flag("--private-socket", options.private_socket, "A Unix socket in a private folder");
  app.add_option("--ready-fd", options.ready_fd, "Receives a JSON line when the server is ready")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kBadRequest);
  }
  try {
    return local::RunModelProgram(options, read, make, hold);
  } catch (const Error& error) {
    return Fail(error.code(), error.what(), error.next_step());
  } catch (const std::bad_alloc&) {
    return Fail(ExitCode::kMachine, "out of memory",
                "give less context (--max-context), or --quantization int8");
  } catch (const std::exception& error) {
    return Fail(ExitCode::kBroken, error.what(), "");
  }
}

}  // namespace kevin
