#pragma once
// What admission says of one answer that was put through a problem's own check. Plain values.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kevin {

struct DecoyResult {
  std::string name;        // "zeros", "inputs rounded to fp16", "the reference once more", ...
  bool must_pass = false;  // a right answer: the reference's own
  bool passed = false;     // the check took it for right
  bool told_apart = true;  // false: right, as far as the outputs' type can tell (env/cpu/admission.h)
  std::string reason;      // why it was rejected
};

// As evaluators answer it; throws nlohmann::json::exception.
nlohmann::json DecoysToJson(const std::vector<DecoyResult>& decoys);
std::vector<DecoyResult> DecoysFromJson(const nlohmann::json& json);

}  // namespace kevin
