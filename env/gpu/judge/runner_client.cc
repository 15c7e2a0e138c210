#include "env/gpu/judge/runner_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "env/error.h"
#include "env/gpu/runner/runner_link.h"
#include "env/problem/text.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

std::set<int> process_ids;  // of the one thread that has runners
constexpr double kStart_s = 60, kShort_s = 20;

}  // namespace

RunnerClient::RunnerClient(const RunnerOptions& options) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw Error(ExitCode::kBroken, std::string("cannot make a socket pair: ") + std::strerror(errno));
  socket_ = Fd(pair[0]);
  const Fd theirs(pair[1]);
  SpawnOptions spawn;
  spawn.argv = {options.program, std::to_string(options.device), options.namespaces ? "namespaces" : "plain"};
  // A runner uses one stream. A context with one queue is made in a third of the time of one with eight.
  spawn.environment = {"LC_ALL=C",
                       "PATH=/usr/bin:/bin",
                       "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                       "CUDA_CACHE_DISABLE=1",
                       "CUDA_DEVICE_MAX_CONNECTIONS=1",
                       "CUDA_DEVICE_MAX_COPY_CONNECTIONS=1"};
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"}) {
    if (const char* value = std::getenv(name)) spawn.environment.push_back(std::string(name) + "=" + value);
  }
  spawn.descriptors = {{STDERR_FILENO, STDERR_FILENO}, {theirs.get(), kRunnerSocket}};
  spawn.namespaces = options.namespaces;
  process_ = Spawn(spawn);
  process_ids.insert(process_.pid());
}

RunnerClient::~RunnerClient() { process_ids.erase(process_.pid()); }

std::vector<int> RunnerClient::ProcessIds() { return {process_ids.begin(), process_ids.end()}; }

void RunnerClient::AwaitGreeting() {
  if (has_greeted_) return;
  const auto greeting = ReceiveFrame(socket_.get(), kStart_s);
  if (!greeting || greeting->contains("fault")) {
    int status = 0;
    const std::string why = greeting                    ? greeting->value("fault", "no reason given")
                            : process_.Wait(1, &status) ? DescribeStatus(status)
                                                        : "no answer";
    throw Error(ExitCode::kMachine, "the GPU runner does not start: " + Printable(why), "run `kevin doctor`");
  }
  has_greeted_ = true;
}

void RunnerClient::Open(const SharedDeviceMemory& inputs, const SharedDeviceMemory& outputs,
                        const SlotMemory& memory, const std::string& trusted_cubin) {
  AwaitGreeting();
  json tensors = json::array();
  for (const ArgumentPlace& place : memory.places)
    tensors.push_back({place.output, place.offset, place.stride});
  const json request = {{"open",
                         {{"inputs_bytes", inputs.bytes()},
                          {"outputs_bytes", outputs.bytes()},
                          {"slots", memory.slots},
                          {"tensors", tensors},
                          {"trusted_bytes", has_trusted_ ? 0 : trusted_cubin.size()}}}};
  const Fd inputs_fd = inputs.Export(), outputs_fd = outputs.Export();
  const int descriptors[] = {inputs_fd.get(), outputs_fd.get()};
  std::optional<json> answer;
  const bool sent = SendFrame(socket_.get(), request, descriptors) &&
                    (has_trusted_ || SendBytes(socket_.get(), trusted_cubin.data(), trusted_cubin.size()));
  if (sent) answer = ReceiveFrame(socket_.get(), kStart_s);
  if (!answer || !answer->contains("ok")) {
    throw Error(ExitCode::kMachine,
                "the GPU runner cannot use shared device memory: " +
                    Printable(answer ? answer->value("fault", "no reason given") : "it ended"),
                "run `kevin doctor`");
  }
  has_trusted_ = true;
}

RunnerFault RunnerClient::End(RunnerFault::Kind kind, const std::string& message) {
  dead_ = true;
  process_.Kill();
  return {kind, Printable(message)};
}

RunnerFault RunnerClient::NoAnswer(bool is_late) {
  int status = 0;
  if (is_late && !process_.Wait(0, &status)) return End(RunnerFault::Kind::kHung, "no answer in time");
  process_.Wait(1, &status);
  return End(RunnerFault::Kind::kDied, "the runner " + DescribeStatus(status));
}

std::optional<RunnerFault> RunnerClient::Receive(Clock::time_point start, double timeout_s, json* answer) {
  std::optional<json> received = ReceiveFrame(socket_.get(), timeout_s);
  if (!received) return NoAnswer(SecondsSince(start) >= timeout_s);
  if (received->contains("fault")) {
    const std::string message = received->value("fault", "");
    if (received->value("fatal", true)) return End(RunnerFault::Kind::kFault, message);
    using enum RunnerFault::Kind;
    return RunnerFault{received->value("out_of_memory", false) ? kOutOfMemory : kFault, Printable(message)};
  }
  *answer = std::move(*received);
  return std::nullopt;
}

std::optional<RunnerFault> RunnerClient::Ask(const json& request, double timeout_s, json* answer) {
  if (dead_) return RunnerFault{RunnerFault::Kind::kDied, "the runner has ended"};
  const auto start = Clock::now();
  if (!SendFrame(socket_.get(), request)) return NoAnswer(false);
  return Receive(start, timeout_s, answer);
}

std::optional<RunnerFault> RunnerClient::AskTimed(const json& request, double timeout_s, CallTimes* times) {
  json answer;
  if (auto fault = Ask(request, timeout_s, &answer)) return fault;
  const auto number = static_cast<uint32_t>(random_());
  char done = 0;
  const auto start = Clock::now();
  if (!SendBytes(socket_.get(), &number, sizeof(number))) return NoAnswer(false);
  if (!AwaitBytes(socket_.get(), timeout_s, &done, 1)) return NoAnswer(SecondsSince(start) >= timeout_s);
  times->wall_us = SecondsSince(start) * 1e6;
  if (auto fault = Receive(Clock::now(), kShort_s, &answer)) return fault;
  times->event_us = answer.value("us", 0.0);
  return std::nullopt;
}

std::optional<RunnerFault> RunnerClient::Load(const LaunchPlan& plan, double timeout_s) {
  json answer;
  return Ask({{"load", LaunchPlanToText(plan)}}, timeout_s, &answer);
}

std::optional<RunnerFault> RunnerClient::Time(int slot, bool called, uint64_t seed, double timeout_s,
                                              CallTimes* times, bool keeps_globals) {
  return AskTimed({{"run", slot}, {"called", called}, {"keeps_globals", keeps_globals}, {"seed", seed}},
                  timeout_s, times);
}

std::optional<RunnerFault> RunnerClient::TimeOperations(int slot, uint64_t seed, double timeout_s,
                                                        std::vector<double>* times_us) {
  json answer;
  if (auto fault = Ask({{"operations", slot}, {"seed", seed}}, timeout_s, &answer)) return fault;
  times_us->clear();
  const json times = answer.value("us", json::array());
  for (const json& us : times) times_us->push_back(us.is_number() ? us.get<double>() : 0.0);
  return std::nullopt;
}

std::optional<RunnerFault> RunnerClient::Probe(uint64_t out, uint64_t in, int64_t vectors, int blocks,
                                               uint64_t seed, CallTimes* times) {
  return AskTimed({{"probe", {out, in, vectors, blocks}}, {"seed", seed}}, kShort_s, times);
}

std::optional<RunnerFault> RunnerClient::Canary(uint64_t out, int words, uint32_t seed) {
  json answer;
  return Ask({{"canary", {out, words, seed}}}, kShort_s, &answer);
}

std::optional<RunnerFault> RunnerClient::Unload() {
  json answer;
  return Ask({{"unload", true}}, kShort_s, &answer);
}

std::optional<RunnerFault> RunnerClient::Close() {
  json answer;
  return Ask({{"close", true}}, kShort_s, &answer);
}

}  // namespace kevin
