#include "policies/search/cuda_staged.h"

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/prelude.h"

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

// --- Knobs of rows ---
// The settings that suit rows of a length: where a row can be kept between passes, and whether there are
// enough rows to occupy the device.

namespace {

int PowerOfTwoFrom(int64_t count, int low, int high) {
  int power = low;
  while (power < high && power < count) power *= 2;
  return power;
}

bool FitsRegisters(int64_t terms) {
  const int width = PackWidth(terms);
  return terms <= 1024 * std::min(32, 16 * width);
}

}  // namespace

std::vector<Knob> RowKnobs(const StagedWork& work, const TaskDevice& device) {
  const ReducedLayout& layout = work.form.layout;
  const int64_t bytes = layout.terms * 4, reserve = kSlots * 4 + 1024;
  const bool is_long = layout.terms >= 16384, few_rows = layout.outer < 4 * device.multiprocessors;
  Knob row{"row", {}};
  const auto add = [&](bool fits, const std::string& value) {
    if (fits) row.values.push_back(value);
  };
  if (!work.is_per_row && OnlyFullLeaf(work)) {
    add(FitsRegisters(layout.terms), "registers");
    for (const int blocks : {8, 4, 2}) {
      add(is_long && (bytes + blocks - 1) / blocks + reserve <= device.block_shared_bytes,
          "cluster" + std::to_string(blocks));
    }
    add(layout.terms >= 2048 && bytes + reserve <= device.block_shared_bytes, "shared");
  }
  row.values.push_back("block");
  const bool splits = is_long && few_rows;
  const bool is_shared_out = row.values[0] == "block" && splits;
  if (splits) row.values.insert(is_shared_out ? row.values.begin() : row.values.end(), {"split", "split4"});
  const int64_t packs = layout.terms / PackWidth(layout.terms);
  Knob threads{"threads", {}};
  Knob each{"each", {"4", "2", "8"}};
  if (is_long) {
    threads.values = row.values[0].rfind("cluster", 0) == 0 ? std::vector<std::string>{"1024", "512"}
                                                            : std::vector<std::string>{"256", "512"};
    if (row.values[0] == "registers") threads.values = {"1024"};
  } else {
    const bool in_registers = row.values[0] == "registers";
    // Registers: packs * width / threads must stay within what one thread can hold.
    const int least = in_registers ? PowerOfTwoFrom((packs + 15) / 16, 32, 1024) : 32;
    const int best = std::max(least, PowerOfTwoFrom((packs + 3) / 4, 32, 1024));
    threads.values = {std::to_string(best)};
    if (best < 1024) threads.values.push_back(std::to_string(best * 2));
    if (best > least) threads.values.push_back(std::to_string(best / 2));
    if (packs < 4 * 1024) each.values = {"4", "2"};
  }
  return {row, threads, each, MathKnob(work.form.root)};
}

// --- Reductions ---
// One result per reduced row: sums, means, extremes, norms, and the indices of extremes.

namespace {

Kernel MakeKernel(const std::string& family, StagedWork work, const Task& task, const std::string& prelude) {
  const bool is_row = work.form.layout.inner == 1;
  Kernel kernel;
  kernel.family = family;
  kernel.summary = is_row ? "rows folded in registers, then across the threads that share one"
                          : "strips of columns folded in registers, then across the threads that share one";
  kernel.knobs = is_row ? RowKnobs(work, task.device) : ColumnKnobs(work);
  kernel.write = [work = std::move(work), is_row, task, prelude](const Setting& setting) {
    return WithCudaPrelude(prelude +
                           (is_row ? WriteRows(work, task, setting) : WriteColumns(work, task, setting)));
  };
  return kernel;
}

}  // namespace

std::optional<Kernel> RecogniseCudaReduction(const Computation& computation) {
  const std::optional<ReducedForm> form = FindReduction(computation);
  if (!form) return std::nullopt;
  return MakeKernel("reduction", StagedFrom(*form), *computation.task, "");
}

std::optional<Kernel> RecogniseCudaExtreme(const Computation& computation) {
  const std::optional<ExtremeForm> form = FindExtreme(computation);
  if (!form) return std::nullopt;
  return MakeKernel("extreme", StagedFrom(*form), *computation.task, ExtremePrelude(form->is_max));
}

// --- Normalisations ---
// out = f(inputs, reductions of the inputs): softmax, log-softmax, layer norm, RMS norm and their
// relatives.

std::optional<Kernel> RecogniseCudaNormalisation(const Computation& computation) {
  const std::optional<NormalisedForm> one_pass = FindNormalised(computation.one_pass);
  const std::optional<NormalisedForm> two_pass = FindNormalised(computation.two_pass);
  if (!one_pass || !two_pass) return std::nullopt;
  const bool has_two_forms = computation.one_pass->key != computation.two_pass->key;
  const bool is_row = one_pass->layout.inner == 1;
  Kernel kernel;
  kernel.family =
      Contains(computation.one_pass, [](const Term& t) { return t.op == "max"; }) ? "softmax" : "norm";
  kernel.summary =
      fmt::format("{} passes that find what a row needs, then one that writes", one_pass->stages.size());
  kernel.knobs = is_row ? RowKnobs({*one_pass}, computation.task->device) : ColumnKnobs({*one_pass});
  if (has_two_forms) {
    // On data that stays in registers or shared memory the second pass is cheap, and more exact.
    const std::string& place = kernel.knobs[0].values[0];
    const bool rereads = place == "block" || place.rfind("split", 0) == 0 || !is_row;
    kernel.knobs.push_back({"moments", rereads ? std::vector<std::string>{"onepass", "twopass"}
                                               : std::vector<std::string>{"twopass", "onepass"}});
  }
  kernel.write = [one_pass = StagedWork{*one_pass}, two_pass = StagedWork{*two_pass}, has_two_forms, is_row,
                  task = *computation.task](const Setting& setting) {
    const StagedWork& work = has_two_forms && Is(setting, "moments", "twopass") ? two_pass : one_pass;
    return WithCudaPrelude(is_row ? WriteRows(work, task, setting) : WriteColumns(work, task, setting));
  };
  return kernel;
}

}  // namespace kevin::search
