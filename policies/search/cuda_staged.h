#pragma once
// The CUDA families `reduction`, `extreme`, `softmax` and `norm`: passes over the reduced dims, each of which
// needs only results of earlier ones. cuda_rows.cc writes them where the reduced dims are the last ones
// (rows), cuda_columns.cc where other dims follow (columns), cuda_staged.cc the rest.

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "policies/search/forms.h"
#include "policies/search/term.h"

namespace kevin::search {

struct StagedWork {
  NormalisedForm form;
  bool is_per_row = false;  // one result per reduced row (a reduction) rather than one per element
};
StagedWork StagedFrom(const ReducedForm& form);
StagedWork StagedFrom(const ExtremeForm& form);

// Numbers at the front of the shared memory that holds rows: one per reduction, exchanged within a cluster.
inline constexpr int kSlots = 16;
std::vector<Knob> RowKnobs(const StagedWork& work, const TaskDevice& device);
std::string WriteRows(const StagedWork& work, const Task& task, const Setting& setting);
std::vector<Knob> ColumnKnobs(const StagedWork& work);
std::string WriteColumns(const StagedWork& work, const Task& task, const Setting& setting);

// How a thread accumulates one reduction in a variable, and how the variables of several threads are
// combined.
class Fold {
 public:
  explicit Fold(const std::string& op);
  std::string Declare(const std::string& name) const;  // "float r = 0.0f"
  std::string Start() const { return start_; }         // of the accumulator
  std::string AccumulatorType() const { return is_index_ ? "Extreme" : "float"; }
  // The statement that adds term number `index` with `value`.
  std::string Add(const std::string& name, const std::string& value, const std::string& index) const;
  // The value that threads exchange: its type, its neutral value, that of an accumulator, and the function
  // `[](T a, T b) { ... }` that combines two.
  std::string Type() const { return is_index_ ? "long" : "float"; }
  std::string Neutral() const { return is_index_ ? "(long)(1ul << 63)" : form_.start; }
  std::string Exchanged(const std::string& name) const { return is_index_ ? name + ".Key()" : name; }
  std::string Lambda() const;

 private:
  bool is_index_;
  ReductionForm form_;
  std::string start_;
};

// The names of values that are constant in a row, and the statements that compute such parts of later passes.
class RowValues {
 public:
  explicit RowValues(const Dialect& dialect) : dialect_(&dialect) {}
  // `suffix` follows each name where it is used ("[t]").
  void BindTo(Emitter& emitter, const std::string& suffix) const;
  void Add(const TermPtr& term, const std::string& name) { known_[term->key] = {term, name}; }
  // Declares, by `declare(name, lines, value)`, the row-constant parts of `users` that are not known yet.
  std::string Compute(
      const std::vector<TermPtr>& users, const std::string& suffix,
      const std::function<std::string(const std::string&, const std::string&, const std::string&)>& declare);

 private:
  const Dialect* dialect_;
  std::map<std::string, std::pair<TermPtr, std::string>> known_;  // by the term's key
};

// The leaf that has full size, when there is exactly one, and null otherwise.
TermPtr OnlyFullLeaf(const StagedWork& work);
bool IsHead(const StagedWork& work, size_t stage);
bool IsMean(const Term& reduction);
// Whether the work's `kept` term, once stored in place of the only full leaf, is all that the result needs of
// it.
bool MayReplace(const StagedWork& work);

}  // namespace kevin::search
