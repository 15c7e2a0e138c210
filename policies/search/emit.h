#pragma once
// Writes terms as C++ statements: one `const auto` per operation, equal terms once. A dialect says how a kind
// of candidate spells them: C++ works on whole vectors (prelude.h), CUDA on one number per thread
// (cuda_prelude.h).

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "policies/search/term.h"

namespace kevin::search {

struct Dialect {
  std::map<std::string, const char*> forms;  // element-wise operations, $0, $1, $2 for their operands
  const char* constant = nullptr;            // $0 for the number
};
const Dialect& CppDialect();
// `is_fast` has quicker functions whose absolute error is a few units in the last place of 1.
const Dialect& CudaDialect(bool is_fast);
// `form` with $0, $1, ... replaced.
std::string Spell(const char* form, const std::vector<std::string>& operands);
// The operation on plain numbers, when it is one of those that references use on constants.
std::optional<double> FoldElement(const std::string& op, double a, double b);
// "0.5f", "3.0f", "__builtin_inff()".
std::string FloatText(double value);

class Emitter {
 public:
  using LeafText = std::function<std::string(const Term& leaf)>;
  // `names` prefixes the variables, so that emitters of one scope do not clash.
  Emitter(const Dialect& dialect, std::string indent, std::string names, LeafText leaf)

      : dialect_(dialect), indent_(std::move(indent)), names_(std::move(names)), leaf_(std::move(leaf)) {}

  // `term` is already computed, as `text`.
  void Bind(const Term& term, std::string text) { known_[term.key] = std::move(text); }
  // Adds what `term` needs to Lines() and returns its name. Throws Unsupported for what is not element-wise.
  std::string Emit(const TermPtr& term);
  const std::string& Lines() const { return lines_; }

 private:
  const Dialect& dialect_;
  std::string indent_, names_;
  LeafText leaf_;
  std::map<std::string, std::string> known_;
  std::string lines_;
  int count_ = 0;
};

}  // namespace kevin::search
