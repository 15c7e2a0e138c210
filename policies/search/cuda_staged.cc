#include "policies/search/cuda_staged.h"

#include <fmt/format.h>

namespace kevin::search {

StagedWork StagedFrom(const ReducedForm& form) {
  StagedWork work{{form.root, form.reduction->args[0]->shape, form.layout, {{form.reduction}}, nullptr},
                  true};
  return work;
}

StagedWork StagedFrom(const ExtremeForm& form) {
  return {{form.root, form.root->args[0]->shape, form.layout, {{form.root}}, nullptr}, true};
}

Fold::Fold(const std::string& op)
    : is_index_(op.rfind("arg", 0) == 0), form_(FormOf(is_index_ ? op.substr(3) : op)) {
  start_ = is_index_ ? fmt::format("Extreme{{{}, 0}}", form_.start) : form_.start;
}

std::string Fold::Declare(const std::string& name) const {
  return fmt::format("{} {} = {}", AccumulatorType(), name, Start());
}

std::string Fold::Add(const std::string& name, const std::string& value, const std::string& index) const {
  if (is_index_) return fmt::format("{}.Take({}, {});", name, value, index);
  return fmt::format("{} = {};", name, Combine(form_, name, value));
}

std::string Fold::Lambda() const {
  return fmt::format("[]({0} a, {0} b) {{ return {1}; }}", Type(),
                     is_index_ ? "Larger(a, b)" : Combine(form_, "a", "b"));
}

void RowValues::BindTo(Emitter& emitter, const std::string& suffix) const {
  for (const auto& [key, term_and_name] : known_)
    emitter.Bind(*term_and_name.first, term_and_name.second + suffix);
}

std::string RowValues::Compute(
    const std::vector<TermPtr>& users, const std::string& suffix,
    const std::function<std::string(const std::string&, const std::string&, const std::string&)>& declare) {
  std::vector<TermPtr> found;
  for (const TermPtr& user : users) FindRowConstants(user, found);
  std::string text;
  for (const TermPtr& term : found) {
    if (known_.count(term->key) > 0) continue;
    const std::string name = "c" + std::to_string(known_.size());
    Emitter emitter(*dialect_, "    ", name + "_",
                    [](const Term& leaf) { return "__ldg(" + Name(leaf.input) + ")"; });
    BindTo(emitter, suffix);
    const std::string value = emitter.Emit(term);
    text += declare(name, emitter.Lines(), value);
    Add(term, name);
  }
  return text;
}

TermPtr OnlyFullLeaf(const StagedWork& work) {
  TermPtr only;
  for (const TermPtr& leaf : Leaves(work.form.root)) {
    if (!IsFull(*leaf, work.form.shape)) continue;
    if (only) return nullptr;
    only = leaf;
  }
  return only;
}

bool IsHead(const StagedWork& work, size_t stage) { return work.form.stages[stage][0]->op == "head"; }
bool IsMean(const Term& reduction) { return reduction.op == "mean" || reduction.op == "head"; }

bool MayReplace(const StagedWork& work) {
  const TermPtr only = OnlyFullLeaf(work);
  if (!work.form.kept || !only) return false;
  bool needs_leaf = false;
  Emitter emitter(CudaDialect(false), "", "t", [&](const Term& leaf) {
    needs_leaf |= leaf.key == only->key;
    return std::string("x");
  });
  for (const std::vector<TermPtr>& stage : work.form.stages) {
    for (const TermPtr& reduction : stage) emitter.Bind(*reduction, "r");
  }
  emitter.Bind(*work.form.kept, "x");
  emitter.Emit(work.form.root);
  return !needs_leaf;
}

}  // namespace kevin::search
