#include "env/process/wire.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "env/error.h"

namespace kevin {
using nlohmann::json;

namespace {
constexpr int kIdleMs = 300;  // where several candidates wait, the next one is sent at once
}

json SampleToJson(const Sample& s) { return {s.process, s.pair, s.phase, s.side, s.calls, s.total_us}; }

Sample SampleFromJson(const json& j) { return {j.at(0), j.at(1), j.at(2), j.at(3), j.at(4), j.at(5)}; }

void PutJudgeOptions(const EvaluateOptions& options, bool verify_only, json* request) {
  request->update({{"start_in_test", options.start_in_test},
                   {"confirm", options.confirm},
                   {"patience", options.patience},
                   {"verify_only", verify_only},
                   {"screen", options.screen},
                   {"screen_limit_us", options.screen_limit_us}});
}

JudgeOptions JudgeOptionsOf(const json& request) {
  return {.start_in_test = request.at("start_in_test"),
          .confirm = request.at("confirm"),
          .patience = request.at("patience"),
          .verify_only = request.at("verify_only"),
          .screen = request.at("screen"),
          .screen_limit_us = request.at("screen_limit_us")};
}

json JudgeResultToJson(const JudgeResult& result) {
  json samples = json::array();
  for (const Sample& sample : result.samples) samples.push_back(SampleToJson(sample));
  return {{"outcome", json(OutcomeToJson(result.outcome))},
          {"verify_s", result.verify_s},
          {"measure_s", result.measure_s},
          {"wait_s", result.wait_s},
          {"device_s", result.device_s},
          {"shared_gpu", result.shared_gpu},
          {"others", result.others},
          {"seeds", result.seeds},
          {"samples", samples},
          {"log", result.log},
          {"own_share", result.own_share ? json(*result.own_share) : json()},
          {"device_us", result.device_us ? json(*result.device_us) : json()}};
}

void TakeJudgeResult(const json& result, int64_t max_log_bytes, Evaluation* evaluation) {
  evaluation->outcome = OutcomeFromJson(result.at("outcome"));
  evaluation->verify_s = result.at("verify_s");
  evaluation->measure_s = result.at("measure_s");
  evaluation->wait_s += result.at("wait_s").get<double>();
  evaluation->device_s = result.at("device_s");
  evaluation->shared_gpu = result.at("shared_gpu");
  evaluation->seeds = result.at("seeds").get<std::vector<uint64_t>>();
  for (const json& sample : result.at("samples")) evaluation->samples.push_back(SampleFromJson(sample));
  const json own_share = result.value("own_share", json());
  if (own_share.is_number()) evaluation->own_share = own_share.get<double>();
  const json device_us = result.value("device_us", json());
  if (device_us.is_number()) evaluation->device_us = device_us.get<double>();
  const std::string said = result.at("log");
  if (said.empty()) return;
  evaluation->log +=
      (evaluation->log.empty() ? "" : "\n") + said.substr(0, static_cast<size_t>(max_log_bytes));
}

Fd OpenNamed(const std::string& path, const std::string& what) {
  if (path.empty()) return Fd();
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat about {};
  if (!fd || fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode))
    throw Error(ExitCode::kBroken, "cannot open " + what + " " + path, "clear Kevin's cache and try again");
  return fd;
}

void ServeRequests(LineSocket* socket, const RequestHandlers& handlers) {
  for (std::string line; socket->Read(&line);) {
    json reply;
    try {
      reply["result"] = handlers.answer(json::parse(line));
    } catch (const Error& error) {
      handlers.after_error();
      reply["error"] = {
          {"code", static_cast<int>(error.code())}, {"what", error.what()}, {"next", error.next_step()}};
    } catch (const std::exception& error) {  // of a library
      handlers.after_error();
      reply["error"] = {{"code", static_cast<int>(ExitCode::kBroken)},
                        {"what", std::string("the evaluator failed: ") + error.what()},
                        {"next", "try again; the evaluation is void"}};
    }
    reply["resident"] = handlers.resident();
    if (!socket->Write(reply.dump(-1, ' ', false, json::error_handler_t::replace))) return;
    if (handlers.when_idle && !socket->AwaitInput(kIdleMs)) handlers.when_idle();
  }
}

bool LineSocket::Write(const std::string& line) {
  const std::string bytes = line + "\n";
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool LineSocket::AwaitInput(int timeout_ms) const {
  if (buffer_.find('\n') != std::string::npos) return true;
  pollfd ready{fd_, POLLIN, 0};
  return poll(&ready, 1, timeout_ms) > 0;
}

bool LineSocket::Read(std::string* line) {
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      *line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return true;
    }
    char chunk[16384];
    const ssize_t n = recv(fd_, chunk, sizeof(chunk), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(n));
  }
}

}  // namespace kevin
