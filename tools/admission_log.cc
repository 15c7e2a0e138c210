#include "tools/admission_log.h"

#include <algorithm>
#include <fstream>
#include <tuple>

#include "env/error.h"

namespace kevin {
namespace {

using nlohmann::ordered_json;

auto Key(const AdmissionRecord& record) {
  return std::tie(record.problem_hash, record.workload.size, record.workload.inputs, record.device,
                  record.workload.precision);
}

}  // namespace

ordered_json ToJson(const AdmissionRecord& record) {
  const auto text = [](const std::string& value) {
    return value.empty() ? ordered_json() : ordered_json(value);
  };
  return {{"event", "admission"},
          {"problem", record.problem},
          {"size", record.workload.size},
          {"admitted", record.error.empty() ? ordered_json(record.reason.empty()) : ordered_json()},
          {"reason", text(record.error.empty() ? record.reason : record.error)},
          {"device", record.device},
          {"inputs", record.workload.inputs},
          {"precision", record.workload.precision},
          {"problem_hash", record.problem_hash},
          {"decoys", record.decoys},
          {"rejected", record.rejected},
          {"right", record.right},
          {"right_passed", record.right_passed},
          {"too_near", record.too_near},
          {"seconds", record.seconds}};
}

AdmissionRecord AdmissionFromJson(const nlohmann::json& event) {
  AdmissionRecord record;
  if (event.at("event") != "admission") return record;
  const auto text = [&](const char* key) {
    return event.at(key).is_null() ? std::string() : event.at(key).get<std::string>();
  };
  record.problem = text("problem");
  record.problem_hash = text("problem_hash");
  record.workload.size = text("size");
  record.workload.inputs = text("inputs");
  record.device = text("device");
  record.workload.precision = event.value("precision", "fp32");
  (event.at("admitted").is_null() ? record.error : record.reason) = text("reason");
  record.decoys = event.at("decoys");
  record.rejected = event.at("rejected");
  record.right = event.at("right");
  record.right_passed = event.at("right_passed");
  record.too_near = event.value("too_near", 0);
  record.seconds = event.at("seconds");
  return record;
}

AdmissionLog::AdmissionLog(std::filesystem::path file) : file_(std::move(file)) {
  if (file_.empty() || !std::filesystem::exists(file_)) return;
  std::ifstream lines(file_);
  if (!lines)
    throw Error(ExitCode::kBadRequest, file_.string() + ": cannot be read", "check its permissions");
  for (std::string line; std::getline(lines, line);) {
    try {
      AdmissionRecord record = AdmissionFromJson(nlohmann::json::parse(line));
      if (!record.problem.empty()) records_.push_back(std::move(record));
    } catch (const nlohmann::json::exception&) {
    }
  }
}

const AdmissionRecord* AdmissionLog::Find(const AdmissionRecord& wanted) const {
  const auto found = std::find_if(records_.rbegin(), records_.rend(), [&](const AdmissionRecord& record) {
    return record.error.empty() && Key(record) == Key(wanted);
  });
  return found == records_.rend() ? nullptr : &*found;
}

void AdmissionLog::Add(const std::vector<ordered_json>& events, const AdmissionRecord& record) {
  records_.push_back(record);
  if (file_.empty()) return;
  std::string text;
  for (const ordered_json& event : events)
    text += event.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  std::ofstream out(file_, std::ios::app);
  out << text;
  if (!out.flush())
    throw Error(ExitCode::kBroken, file_.string() + ": cannot be written", "free some disk space");
}

}  // namespace kevin
