#pragma once
// `--results FILE` of `kevin problems --admit`: what was found, one JSON object a line as --json prints it,
// so that a long admission can be done in slices and go on where it stopped.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/workload.h"

namespace kevin {

// One problem's admission.
struct AdmissionRecord {
  std::string problem, problem_hash;
  Workload workload;
  std::string device;
  std::string reason = {};          // why it is not admitted; empty: it is
  std::string error = {};           // why that is not known: it could not be judged here
  int decoys = 0, rejected = 0;     // wrong answers
  int right = 0, right_passed = 0;  // correct answers: alternatives and the reference's own
  int too_near = 0;  // decoys that are not distinguishable (env/verdict/admission.h), counted nowhere else
  double seconds = 0;
};

// The `admission` event and back; other events give a record without a problem.
nlohmann::ordered_json ToJson(const AdmissionRecord& record);
AdmissionRecord AdmissionFromJson(const nlohmann::json& json);

class AdmissionLog {
 public:
  // "" keeps nothing. Lines that cannot be read, such as one that a kill cut off, count as absent. Throws
  // Error(kBadRequest) when the file is there and cannot be opened.
  explicit AdmissionLog(std::filesystem::path file);

  // The latest of the same problem text, size, inputs, device and precision that has no error; else null.
  const AdmissionRecord* Find(const AdmissionRecord& wanted) const;
  // The events of one problem, the `admission` event last. Throws Error(kBroken) when they cannot be written.
  void Add(const std::vector<nlohmann::ordered_json>& events, const AdmissionRecord& record);

 private:
  std::filesystem::path file_;
  std::vector<AdmissionRecord> records_;
};

}  // namespace kevin
