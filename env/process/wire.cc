#include "env/process/wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "env/error.h"

namespace kevin {
namespace {

using nlohmann::json;

json RatioToJson(const Ratio& r) {
  return {{"value", r.value},   {"low", r.low},     {"high", r.high},
          {"log_se", r.log_se}, {"pairs", r.pairs}, {"processes", r.processes}};
}

Ratio RatioFromJson(const json& j) {
  return {j.at("value"), j.at("low"), j.at("high"), j.at("log_se"), j.at("pairs"), j.at("processes")};
}

struct ToJson {
  json operator()(const ParseFailed& o) const { return {{"message", o.message}}; }
  json operator()(const CompileFailed& o) const { return {{"log", o.log}}; }
  json operator()(const Refused& o) const { return {{"reason", o.reason}}; }
  json operator()(const Crashed& o) const { return {{"message", o.message}}; }
  json operator()(const TimedOut& o) const { return {{"phase", o.phase}, {"limit_s", o.limit_s}}; }
  json operator()(const Wrong& o) const {
    return {{"message", o.message}, {"max_error", o.max_error}, {"error_bound", o.error_bound}};
  }
  json operator()(const Measured& o) const {
    return {{"speedup", RatioToJson(o.speedup)},
            {"against_start", o.against_start ? RatioToJson(*o.against_start) : json()},
            {"verdict", static_cast<int>(o.verdict)},
            {"verdict_against_start", static_cast<int>(o.verdict_against_start)},
            {"candidate_us", o.candidate_us},
            {"reference_us", o.reference_us},
            {"gb_per_s", o.gb_per_s},
            {"gflop_per_s", o.gflop_per_s},
            {"floor_us", o.floor_us},
            {"max_error", o.max_error},
            {"error_bound", o.error_bound}};
  }
};

// JSON has no Infinity; an error can be infinite.
double NumberOr(const json& j, const char* name, double otherwise) {
  return j.at(name).is_number() ? j.at(name).get<double>() : otherwise;
}

Measured MeasuredFromJson(const json& j) {
  Measured m;
  m.speedup = RatioFromJson(j.at("speedup"));
  if (!j.at("against_start").is_null()) m.against_start = RatioFromJson(j.at("against_start"));
  m.verdict = static_cast<Verdict>(j.at("verdict").get<int>());
  m.verdict_against_start = static_cast<Verdict>(j.at("verdict_against_start").get<int>());
  m.candidate_us = j.at("candidate_us");
  m.reference_us = j.at("reference_us");
  m.gb_per_s = j.at("gb_per_s");
  m.gflop_per_s = j.at("gflop_per_s");
  m.floor_us = j.at("floor_us");
  m.max_error = j.at("max_error");
  m.error_bound = j.at("error_bound");
  return m;
}

}  // namespace

json OutcomeToJson(const Outcome& outcome) {
  json j = std::visit(ToJson{}, outcome);
  j["outcome"] = OutcomeName(outcome);
  return j;
}

Outcome OutcomeFromJson(const json& j) {
  const std::string name = j.at("outcome");
  if (name == "parse_failed") return ParseFailed{j.at("message")};
  if (name == "compile_failed") return CompileFailed{j.at("log")};
  if (name == "refused") return Refused{j.at("reason")};
  if (name == "crashed") return Crashed{j.at("message")};
  if (name == "timed_out") return TimedOut{j.at("phase"), j.at("limit_s")};
  if (name == "wrong") {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    return Wrong{j.at("message"), NumberOr(j, "max_error", kInfinite), NumberOr(j, "error_bound", 0)};
  }
  return MeasuredFromJson(j);
}

json SampleToJson(const Sample& s) { return {s.process, s.pair, s.phase, s.side, s.calls, s.total_us}; }

Sample SampleFromJson(const json& j) { return {j.at(0), j.at(1), j.at(2), j.at(3), j.at(4), j.at(5)}; }

json JudgeResultToJson(const JudgeResult& result) {
  json samples = json::array();
  for (const Sample& sample : result.samples) samples.push_back(SampleToJson(sample));
  return {{"outcome", OutcomeToJson(result.outcome)},
          {"verify_s", result.verify_s},
          {"measure_s", result.measure_s},
          {"wait_s", result.wait_s},
          {"device_s", result.device_s},
          {"peak_gb_per_s", result.peak_gb_per_s},
          {"peak_gflop_per_s", result.peak_gflop_per_s},
          {"seeds", result.seeds},
          {"samples", samples},
          {"log", result.log}};
}

void TakeJudgeResult(const json& result, int64_t max_log_bytes, Evaluation* evaluation) {
  evaluation->outcome = OutcomeFromJson(result.at("outcome"));
  evaluation->verify_s = result.at("verify_s");
  evaluation->measure_s = result.at("measure_s");
  evaluation->wait_s += result.at("wait_s").get<double>();
  evaluation->device_s = result.at("device_s");
  evaluation->peak_gb_per_s = result.at("peak_gb_per_s");
  evaluation->peak_gflop_per_s = result.at("peak_gflop_per_s");
  evaluation->seeds = result.at("seeds").get<std::vector<uint64_t>>();
  for (const json& sample : result.at("samples")) evaluation->samples.push_back(SampleFromJson(sample));
  const std::string said = result.at("log");
  if (said.empty()) return;
  evaluation->log +=
      (evaluation->log.empty() ? "" : "\n") + said.substr(0, static_cast<size_t>(max_log_bytes));
}

void ServeRequests(LineSocket* socket, const std::function<json(const json&)>& answer,
                   const std::function<void()>& after_error) {
  for (std::string line; socket->Read(&line);) {
    json reply;
    try {
      reply["result"] = answer(json::parse(line));
    } catch (const Error& error) {
      after_error();
      reply["error"] = {
          {"code", static_cast<int>(error.code())}, {"what", error.what()}, {"next", error.next_step()}};
    }
    if (!socket->Write(reply.dump(-1, ' ', false, json::error_handler_t::replace))) return;
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
