#pragma once
// The text of an imported problem's file, made of Python's description of the module. Names and texts in it come from the
// user's file: they are escaped. Pure; any thread.

#include <nlohmann/json.hpp>
#include <string>

namespace kevin {

// How the inputs and the check of an imported problem are changed until incorrect answers fail on it.
enum class Hardness {
  kAsGiven,        // inputs as in the user's file
  kMixture,        // floating-point inputs from the mixture
  kMixtureStrict,  // and a shorter sum assumed in the error bound
  kShiftedStrict,  // as in the file but around 64, and the shorter sum: rounded inputs change means and losses too
};

struct ImportedProblem {
  std::string id, name;
  std::string from;       // the user's file or function, for a comment
  std::string remark;     // one more line of comment; may be empty
  std::string hardened;   // why inputs are harder than given: the flag degenerate-upstream; may be empty
  std::string rejection;  // why it is not admitted: the flag inadmissible; may be empty
  Hardness hardness = Hardness::kAsGiven;
};

// `found` is ImportAnswer::found. Throws nlohmann::json::exception if a part is missing.
std::string ImportedProblemText(const nlohmann::json& found, const ImportedProblem& problem);

// Whether the mixture would differ from the given inputs.
bool CanBeHarder(const nlohmann::json& found);

}  // namespace kevin
