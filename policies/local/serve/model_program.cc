#include "policies/local/serve/model_program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

namespace kevin::local {
namespace fs = std::filesystem;
namespace {

// A folder that is its owner's alone, for a socket. Removed with all that is in it.
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

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

void Say(const std::string& line) { fmt::print(stderr, "{}\n", line); }

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

// Until a signal, or the model's end.
void Serve(const Engine& engine, const sigset_t& signals) {
  constexpr timespec kLook{0, 200000000};
  while (sigtimedwait(&signals, nullptr, &kLook) < 0) {
    if (const auto failure = engine.Failure()) throw Error(*failure);
  }
}

// Ended by signals alone while nothing can wait for them: the weights are being read.
class EndsAtOnce {
 public:
  explicit EndsAtOnce(const sigset_t& signals) : signals_(signals) {
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  }
  ~EndsAtOnce() { pthread_sigmask(SIG_BLOCK, &signals_, nullptr); }
  EndsAtOnce(const EndsAtOnce&) = delete;
  EndsAtOnce& operator=(const EndsAtOnce&) = delete;

 private:
  const sigset_t signals_;
};

}  // namespace

int RunModelProgram(const ProgramOptions& options, const ModelReader& read, const RunnerMaker& make) {
  const sigset_t signals = EndSignals();
  RequireFolder(options.runner.folder);
  ServedModel model;
  MadeRunner made;
  {
    const EndsAtOnce until_loaded(signals);
    model = read(options.runner.folder);
    made = make(options.runner, Say);
  }
  model.name =
      options.name.empty() ? fs::weakly_canonical(options.runner.folder).filename().string() : options.name;
  model.root = options.runner.folder.string();
  model.seed = options.seed;
  std::unique_ptr<PrivateFolder> folder;
  HttpServerOptions http = options.http;
  if (options.private_socket) {
    folder = std::make_unique<PrivateFolder>();
    http.unix_socket = (folder->path() / "socket").string();
  }
  Engine engine(std::move(made.runner));
  ModelApi api(engine, std::move(model));
  const HttpServer server(api, http);
  Say(fmt::format("{} is served at {} on {}, up to {} tokens", api.model().name, server.Url(), made.device,
                  engine.ContextTokens()));
  AnnounceReady(options.ready_fd, {{"event", "ready"},
                                   {"model", api.model().name},
                                   {"url", server.Url()},
                                   {"max_model_len", engine.ContextTokens()},
                                   {"device", made.device}});
  Serve(engine, signals);
  return 0;
}

}  // namespace kevin::local
