#include "env/process/evaluator_client.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/error.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kRequests = 3;  // the evaluator's descriptor

}  // namespace

EvaluatorClient::EvaluatorClient(const std::vector<std::string>& argv, std::vector<std::string> environment) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(ExitCode::kBroken, "cannot make a socket pair for the evaluator");
  }
  ours_ = Fd(pair[0]);
  const Fd theirs(pair[1]);
  SpawnOptions spawn;
  spawn.argv = argv;
  spawn.environment = std::move(environment);
  spawn.descriptors = {{STDERR_FILENO, STDERR_FILENO}, {theirs.get(), kRequests}};
  process_ = Spawn(spawn);
  lines_.emplace(ours_.get());
}

std::optional<json> EvaluatorClient::Ask(const json& request,
                                         const std::function<void(const std::string&)>& on_phase) {
  std::string line;
  bool open = lines_->Write(request.dump());
  while (open && (open = lines_->Read(&line))) {
    const json answer = json::parse(line);
    if (answer.contains("result")) return answer["result"];
    if (answer.contains("phase") && on_phase) on_phase(answer["phase"]);
    if (answer.contains("error")) {
      const json& error = answer["error"];
      throw Error(static_cast<ExitCode>(error.at("code").get<int>()), error.at("what"), error.at("next"));
    }
  }
  int status = 0;
  process_.Wait(5, &status);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) return std::nullopt;
  throw Error(ExitCode::kBroken, "kevin-evaluator " + DescribeStatus(status) + " (see its message above)",
              "run `kevin doctor`; if torch is missing, set KEVIN_TORCH or run tools/kevin once");
}

}  // namespace kevin
