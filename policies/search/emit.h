#pragma once
// Writes terms as C++ statements over `Vec` (prelude.h): one `const auto` per operation, equal terms once.

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "policies/search/term.h"

namespace kevin::search {

// How an element-wise operation reads, with $0, $1, $2 for its operands; nullptr when `op` is none.
const char* ElementForm(const std::string& op);
// The operation on plain numbers, when it is one of those that references use on constants.
std::optional<double> FoldElement(const std::string& op, double a, double b);
// "0.5f", "3.0f", "__builtin_inff()".
std::string FloatText(double value);

class Emitter {
 public:
  using LeafText = std::function<std::string(const Term& leaf)>;
  // `names` prefixes the variables, so that emitters of one scope do not clash.
  Emitter(std::string indent, std::string names, LeafText leaf)
      : indent_(std::move(indent)), names_(std::move(names)), leaf_(std::move(leaf)) {}

  // `term` is already computed, as `text`.
  void Bind(const Term& term, std::string text) { known_[term.key] = std::move(text); }
  // Adds what `term` needs to Lines() and returns its name. Throws Unsupported for what is not element-wise.
  std::string Emit(const TermPtr& term);
  const std::string& Lines() const { return lines_; }

 private:
  std::string indent_, names_;
  LeafText leaf_;
  std::map<std::string, std::string> known_;
  std::string lines_;
  int count_ = 0;
};

}  // namespace kevin::search
