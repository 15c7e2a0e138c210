#pragma once
// What Python found in a module, as the text of a problem file.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kevin {

// How hard an imported problem's inputs and check are made until wrong answers fail on it.
enum class Hardness {
  kAsGiven,        // inputs as the person's file draws them
  kMixture,        // floating-point inputs from the mixture instead
  kMixtureStrict,  // and a shorter sum assumed in the bound on errors
};

struct ImportedProblem {
  std::string id, name;
  std::string from;       // the person's file or function, for a remark
  std::string remark;     // one more line of remark; may be empty
  std::string hardened;   // why inputs are harder than given: the flag degenerate-upstream; may be empty
  std::string rejection;  // why it is not admitted: the flag inadmissible; may be empty
  Hardness hardness = Hardness::kAsGiven;
};

// `found` is ImportAnswer::found. Throws nlohmann::json::exception where a part is missing.
std::string ImportedProblemText(const nlohmann::json& found, const ImportedProblem& problem);

// Whether a harder set of inputs differs from what was given.
bool CanBeHarder(const nlohmann::json& found);

}  // namespace kevin
