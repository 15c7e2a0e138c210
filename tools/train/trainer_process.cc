#include "tools/train/trainer_process.h"

#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "env/error.h"
#include "tools/places.h"

extern char** environ;

namespace kevin {
namespace {

constexpr double kEndLimit_s = 10;

std::string TrainerPath() {
  const std::filesystem::path path = ProgramDirectory() / "kevin-trainer";
  if (!std::filesystem::exists(path)) {
    throw Error(ExitCode::kMachine, path.string() + " is not there: this Kevin was built without libtorch",
                "tools/setup.sh fetches libtorch and builds it");
  }
  return path.string();
}

}  // namespace

TrainerProcess::TrainerProcess() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ExitCode::kBroken, "cannot make a socket pair for the trainer");
  socket_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  SpawnOptions spawn;
  spawn.argv = {TrainerPath()};
  for (char** entry = environ; *entry != nullptr; ++entry) spawn.environment.emplace_back(*entry);
  spawn.descriptors = {
      {theirs.get(), STDIN_FILENO}, {theirs.get(), STDOUT_FILENO}, {STDERR_FILENO, STDERR_FILENO}};
  process_ = Spawn(spawn);
}

nlohmann::json TrainerProcess::Ask(const nlohmann::json& request, const char* answer) {
  std::optional<nlohmann::json> reply;
  if (local::WriteFrame(socket_.get(), request)) reply = local::ReadFrame(socket_.get());
  if (!reply) {
    int status = 0;
    const std::string end =
        process_.Wait(kEndLimit_s, &status) ? DescribeStatus(status) : "closed its stream and does not end";
    throw Error(
        ExitCode::kBroken, "the trainer " + end,
        "if it was killed, memory ran out: try --micro-tokens, --recompute or --lora; --resume goes on");
  }
  if (reply->contains("error")) {
    const nlohmann::json& error = reply->at("error");
    throw Error(static_cast<ExitCode>(error.at("code").get<int>()), error.at("what"), error.at("next"));
  }
  return reply->at(answer);
}

TrainerProcess::Opened TrainerProcess::Open(const local::TrainOptions& options) {
  const nlohmann::json opened = Ask({{"open", local::ToJson(options)}}, "opened");
  return {opened.at("steps"), opened.at("trained"), opened.at("rank"), opened.at("ranks")};
}

local::StepFigures TrainerProcess::Step(const local::Batch& batch) {
  return local::StepFiguresFromJson(Ask({{"step", local::ToJson(batch)}}, "figures"));
}

std::string TrainerProcess::Save() { return Ask({{"save", true}}, "saved"); }
std::string TrainerProcess::Finish() { return Ask({{"finish", true}}, "saved"); }

}  // namespace kevin
