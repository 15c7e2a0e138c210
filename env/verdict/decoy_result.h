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
  std::string reason;      // why it was rejected; of a right one that passed: how near it came to being so
  // False where its answers, before they were rounded to outputs of 16 bits, lie within that one rounding of
  // the truth everywhere: no check can reject it that lets the best answer pass. A loss that averages a
  // million elements is such a case. Counts neither way.
  bool told_apart = true;
};

// "worst error 1.2e-07 of 4e-07 allowed"
std::string WorstErrorText(double max_error, double error_bound);

// As evaluators answer it; throws nlohmann::json::exception.
nlohmann::json DecoysToJson(const std::vector<DecoyResult>& decoys);
std::vector<DecoyResult> DecoysFromJson(const nlohmann::json& json);

}  // namespace kevin
