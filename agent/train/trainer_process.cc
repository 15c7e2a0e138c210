#include "agent/train/trainer_process.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "agent/machine.h"
#include "env/error.h"
#include "env/process/spawn.h"

extern char** environ;

namespace kevin {
namespace {

constexpr std::chrono::seconds kEndLimit{10};
constexpr double kLeaveSeconds = 5;  // to take its leave of other ranks

Error ErrorIn(const nlohmann::json& reply) {
  const nlohmann::json& error = reply.at("error");
  return {static_cast<ExitCode>(error.at("code").get<int>()), error.at("what"), error.at("next")};
}

}  // namespace

TrainerProcess::TrainerProcess() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ExitCode::kBroken, "cannot make a socket pair for the trainer");
  socket_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  SpawnOptions spawn;
  spawn.argv = {RequireProgram(ProgramDirectory(), "kevin-trainer").string()};
  for (char** entry = environ; *entry != nullptr; ++entry) spawn.environment.emplace_back(*entry);
  // torch's idle threads would otherwise spin on the cores of the judges.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) spawn.environment.emplace_back("OMP_WAIT_POLICY=passive");
  // A rank that is lost is reported by an error, not by torch's stack traces of its connections.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr)
    spawn.environment.emplace_back("TORCH_CPP_LOG_LEVEL=ERROR");
  spawn.descriptors = {
      {theirs.get(), STDIN_FILENO}, {theirs.get(), STDOUT_FILENO}, {STDERR_FILENO, STDERR_FILENO}};
  process_ = Spawn(spawn);
}

TrainerProcess::~TrainerProcess() {
  shutdown(socket_.get(), SHUT_WR);
  int status = 0;
  process_.Wait(kLeaveSeconds, &status);
}

nlohmann::json TrainerProcess::Ask(const nlohmann::json& request, const char* answer) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
    is_asking_ = true;
  }
  local::WriteFrame(socket_.get(), request);  // where it has ended, its error may be there to be read
  const std::optional<nlohmann::json> reply = local::ReadFrame(socket_.get());
  {
    const std::lock_guard lock(mutex_);
    is_asking_ = false;
  }
  if (!reply) {
    const auto end = std::chrono::steady_clock::now() + kEndLimit;
    while (std::chrono::steady_clock::now() < end) {
      if (const auto failure = PermanentFailure()) throw Error(*failure);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    throw Error(ExitCode::kBroken, "the trainer closed its stream but does not end",
                "end kevin-trainer, then --resume");
  }
  if (reply->contains("error")) throw ErrorIn(*reply);
  return reply->at(answer);
}

std::optional<Error> TrainerProcess::PermanentFailure() {
  const std::lock_guard lock(mutex_);
  int status = 0;
  if (!failure_ && process_.Wait(0, &status)) {
    // What it said last, unless a request gets it.
    const auto last = is_asking_ ? std::nullopt : local::ReadFrame(socket_.get());
    if (last && last->contains("error")) return failure_ = ErrorIn(*last);
    failure_.emplace(
        ExitCode::kBroken, "the trainer " + DescribeStatus(status),
        "if it was killed, memory ran out: try --micro-tokens, --recompute or --lora; --resume continues");
  }
  return failure_;
}

std::vector<int64_t> TrainerProcess::FreeBytes(const std::vector<std::string>& devices) {
  return Ask({{"free", devices}}, "available");
}

TrainerProcess::Opened TrainerProcess::Open(const local::TrainOptions& options,
                                            const local::SamplingOptions* sampled) {
  nlohmann::json request = {{"open", local::ToJson(options)}};
  if (sampled != nullptr) {
    folder_.emplace(std::filesystem::temp_directory_path(), "kevin-trainer");
    local::SamplingOptions served = *sampled;
    served.socket = (folder_->path() / "socket").string();
    request["sample"] = local::ToJson(served);
  }
  const nlohmann::json opened = Ask(request, "opened");
  return {opened.at("steps"),          opened.at("checkpoint"),
          opened.at("trained"),        opened.at("rank"),
          opened.at("ranks"),          opened.value("url", ""),
          opened.value("model", ""),   opened.value("context", int64_t{0}),
          opened.value("split", false)};
}

void TrainerProcess::NameRun(const std::string& run) { Ask({{"run", run}}, "named"); }

void TrainerProcess::Restore(const std::string& checkpoint) { Ask({{"restore", checkpoint}}, "restored"); }

std::vector<std::string> TrainerProcess::Exchange(const std::string& own) {
  return Ask({{"exchange", own}}, "exchanged");
}

local::StepFigures TrainerProcess::Step(const local::Batch& batch) {
  return local::StepFiguresFromJson(Ask({{"step", local::ToJson(batch)}}, "figures"));
}

double TrainerProcess::BringSamplerUp() { return Ask({{"sync", true}}, "synced"); }

std::string TrainerProcess::Save() { return Ask({{"save", true}}, "saved"); }
void TrainerProcess::WriteModel(const std::string& folder) { Ask({{"write", folder}}, "written"); }
std::string TrainerProcess::Finish() { return Ask({{"finish", true}}, "saved"); }

}  // namespace kevin
