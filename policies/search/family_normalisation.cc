// out = f(inputs, reductions of the inputs): softmax, log-softmax, layer norm, RMS norm and their relatives.
// Each stage is a pass over the reduced dims that needs only results of earlier stages; the last pass writes.
// "Row" kernels have the reduced dims last; "column" kernels keep a strip of neighbouring columns in
// registers.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/forms.h"
#include "policies/search/prelude.h"
#include "policies/search/term.h"

namespace kevin::search {
namespace {

// Writes one kernel; the two layouts differ in how values are named and how passes are spelled.
class NormalisationWriter {
 public:
  NormalisationWriter(const NormalisedForm& n, const Task& task, const Setting& setting)
      : n_(n), task_(task), setting_(setting), is_column_(n.layout.inner > 1) {
    is_split_ = !is_column_ && Is(setting, "split", "inside");
    keeps_ = n.kept && Is(setting, "keep", "output");
  }

  std::string Write() {
    std::string passes;
    for (size_t stage = 0; stage < n_.stages.size(); ++stage) passes += Stage(stage);
    passes += RowConstants({n_.root});
    passes += LastPass();
    return is_column_ ? Columns(passes) : Rows(passes);
  }

 private:
  // `[t]` picks the column vector of a strip.
  std::string At() const { return is_column_ ? "[t]" : ""; }

  std::string LeafText(const Term& leaf) const {
    const std::string name = Name(leaf.input);
    if (Count(leaf.shape) == 1) return "Splat(" + name + "[0])";
    if (IsFull(leaf, n_.shape)) return "part.Load(" + name + " + at)";
    return is_column_ ? "Splat(" + name + "[i])" : "part.Load(" + name + " + i)";
  }

  Emitter MakeEmitter(const std::string& names) const {
    Emitter emitter(CppDialect(), is_column_ ? "          " : "        ", names,
                    [this](const Term& l) { return LeafText(l); });
    for (const auto& [key, term_and_name] : constants_)
      emitter.Bind(*term_and_name.first, term_and_name.second + At());
    return emitter;
  }

  // Computes what the passes after this point need once per row.
  std::string RowConstants(const std::vector<TermPtr>& users) {
    std::vector<TermPtr> found;
    for (const TermPtr& user : users) FindRowConstants(user, found);
    std::string text;
    for (const TermPtr& term : found) {
      if (constants_.count(term->key)) continue;
      Emitter emitter = MakeEmitter("s");
      const std::string value = emitter.Emit(term);
      const std::string name = "c" + std::to_string(constants_.size());
      constants_[term->key] = {term, name};
      text += is_column_ ? fmt::format(
                               "      Vec {}[kCount];\n      for (int t = 0; t < kCount; ++t) {{\n{}"
                               "          {}[t] = {};\n      }}\n",
                               name, emitter.Lines(), name, value)
                         : fmt::format("      Vec {};\n      {{\n{}        {} = {};\n      }}\n", name,
                                       emitter.Lines(), name, value);
    }
    return text;
  }

  std::string TermsOf(size_t stage) const {
    const bool is_head = n_.stages[stage][0]->op == "head";
    return is_head ? fmt::format("(kTerms < {0} ? kTerms : {0})", kHeadTerms) : "kTerms";
  }

  static std::string StageName(size_t stage, size_t which) { return fmt::format("r{}_{}", stage, which); }

  std::string Stage(size_t stage) {
    std::vector<TermPtr> operands;
    for (const TermPtr& reduction : n_.stages[stage]) operands.push_back(reduction->args[0]);
    std::string text = RowConstants(operands), declare, update;
    Emitter emitter = MakeEmitter("t");
    for (size_t k = 0; k < operands.size(); ++k) {
      const std::string name = StageName(stage, k), value = emitter.Emit(operands[k]);
      const ReductionForm form = FormOf(n_.stages[stage][k]->op);
      declare += Declaration(name, form);
      const std::string acc = name + (is_column_ ? "[t]" : "[u]");
      const std::string term = is_column_ ? value : fmt::format("part.Keep({}, {})", value, form.start);
      update += fmt::format("        {} = {};\n", acc, Combine(form, acc, term));
      if (keeps_ && operands[k]->key == n_.kept->key) {
        update += fmt::format("        part.Store(out0 + at, {});\n", value);
      }
    }
    text += Pass(stage, declare, emitter.Lines() + update);
    for (size_t k = 0; k < operands.size(); ++k) {
      const TermPtr& reduction = n_.stages[stage][k];
      const bool is_mean = reduction->op == "mean" || reduction->op == "head";
      const std::string mean = "(1.0f / float(" + TermsOf(stage) + "))", name = StageName(stage, k);
      constants_[reduction->key] = {reduction, is_column_ ? name : name + "_all"};
      if (is_mean && is_column_) {
        text += fmt::format("      for (int t = 0; t < kCount; ++t) {}[t] *= {};\n", name, mean);
      } else if (is_mean) {
        text += fmt::format("      {}_all *= {};\n", name, mean);
      }
    }
    return text;
  }

  std::string Declaration(const std::string& name, const ReductionForm& form) const {
    return is_column_ ? fmt::format(
                            "      Vec {0}[kCount];\n      for (int t = 0; t < kCount; ++t) {0}[t] = "
                            "Splat({1});\n",
                            name, form.start)
                      : fmt::format(
                            "      Vec {0}[kUnroll];\n      for (int u = 0; u < kUnroll; ++u) {0}[u] = "
                            "Splat({1});\n",
                            name, form.start);
  }

  std::string Pass(size_t stage, const std::string& declare, const std::string& body) const {
    if (is_column_) {
      return declare + ColumnLoop(TermsOf(stage), body);
    }
    std::string folds, joins, alls;
    for (size_t k = 0; k < n_.stages[stage].size(); ++k) {
      const ReductionForm form = FormOf(n_.stages[stage][k]->op);
      const std::string name = StageName(stage, k);
      const std::string fold = fmt::format("Across<kUnroll>({}, [](Vec a, Vec b) {{ return {}; }})", name,
                                           Combine(form, "a", "b"));
      folds += is_split_ ? fmt::format("      partial[{}][p] = {};\n", PartialIndex(stage, k), fold)
                         : fmt::format("      {}_all = Splat({});\n", name, fold);
      alls += fmt::format("      Vec {}_all = Splat({});\n", name, form.start);
      const std::string part = fmt::format("Splat(partial[{}][p])", PartialIndex(stage, k));
      joins += fmt::format(
          "      for (long p = 0; p < kParts; ++p) {{\n        const Vec next = {};\n"
          "        {}_all = {};\n      }}\n",
          part, name, Combine(form, name + "_all", "next"));
    }
    return alls + RowLoop(TermsOf(stage), declare, body, folds) + (is_split_ ? joins : "");
  }

  size_t PartialIndex(size_t stage, size_t which) const {
    size_t index = which;
    for (size_t s = 0; s < stage; ++s) index += n_.stages[s].size();
    return index;
  }

  std::string RowLoop(const std::string& terms, const std::string& declare, const std::string& body,
                      const std::string& after) const {
    const std::string bounds =
        is_split_ ? fmt::format(
                        "#pragma omp for schedule(static)\n      for (long p = 0; p < kParts; ++p) {{\n"
                        "      const long terms = {}, part_size = (terms + kParts * 16 - 1) / (kParts * 16) "
                        "* 16;\n      const long begin = p * part_size < terms ? p * part_size : terms;\n"
                        "      const long end = begin + part_size < terms ? begin + part_size : terms;\n",
                        terms)
                  : fmt::format("      {{\n      const long begin = 0, end = {};\n", terms);
    return bounds + declare +
           "      Walk<kUnroll>(begin, end, [&](auto part, long i, int u) __attribute__((always_inline)) {\n"
           "        const long at = first + i;\n        (void)at, (void)u;\n" +
           body + "      });\n" + after + "      }\n";
  }

  static std::string ColumnLoop(const std::string& terms, const std::string& body) {
    return "      for (long i = 0; i < " + terms +
           "; ++i) {\n#pragma GCC unroll 16\n        for (int t = 0; t < kCount; ++t) {\n"
           "          const long at = first + i * kInner + j + t * kLanes;\n" +
           body + "        }\n      }\n";
  }

  bool Streams() const {
    const int64_t step = is_column_ ? n_.layout.inner : n_.layout.terms;
    return Is(setting_, "store", "stream") && !keeps_ && step % 16 == 0;
  }

  std::string LastPass() {
    Emitter emitter = MakeEmitter("t");
    if (keeps_) emitter.Bind(*n_.kept, "part.Load(out0 + at)");
    const std::string value = emitter.Emit(n_.root);
    const std::string store = fmt::format("{}        part.{}(out0 + at, {});\n", emitter.Lines(),
                                          Streams() ? "Stream" : "Store", value);
    return is_column_ ? ColumnLoop("kTerms", store) : RowLoop("kTerms", "", store, "");
  }

  std::string Rows(const std::string& passes) const {
    const std::string loop =
        is_split_ ? "#pragma omp parallel\n" : "#pragma omp parallel for schedule(static)\n";
    std::string text = fmt::format("\nconstexpr long kRows = {}, kTerms = {};\nconstexpr int kUnroll = {};\n",
                                   n_.layout.outer_text, n_.layout.terms_text, setting_.at("unroll"));
    if (is_split_) {
      text += fmt::format("constexpr long kParts = {};\nstatic float partial[{}][kParts];\n",
                          4 * task_.threads, PartialIndex(n_.stages.size(), 0));
    }
    return text + "\n" + LaunchHead(task_) + " {\n" + loop +
           "  for (long row = 0; row < kRows; ++row) {\n      const long first = row * kTerms;\n" + passes +
           (Streams() ? "      StreamFence();\n" : "") + "  }\n}\n";
  }

  std::string Columns(const std::string& passes) const {
    constexpr const char* kFrame = R"(
constexpr long kOuter = {outer}, kTerms = {terms}, kInner = {inner};
constexpr int kStrip = {strip};
constexpr long kStrips = kInner / (kStrip * kLanes), kRest = kStrips * kStrip * kLanes < kInner;
template <int kNumber>
struct Number {
  static constexpr int value = kNumber;
};

{head} {
#pragma omp parallel for schedule(static)
  for (long job = 0; job < kOuter * (kStrips + kRest); ++job) {
    const long first = job / (kStrips + kRest) * kTerms * kInner;
    const long begin = job % (kStrips + kRest) * kStrip * kLanes;
    const auto strip = [&](auto part, auto count, const long j) __attribute__((always_inline)) {
      constexpr int kCount = decltype(count)::value;
{passes}    };
    if (begin + kStrip * kLanes <= kInner) {
      strip(Whole{}, Number<kStrip>{}, begin);
    } else {
      Walk<1>(begin, kInner, [&](auto part, long j, int) { strip(part, Number<1>{}, j); });
    }
{fence}  }
}
)";
    return Fill(kFrame, {{"outer", n_.layout.outer_text},
                         {"terms", n_.layout.terms_text},
                         {"inner", n_.layout.inner_text},
                         {"strip", setting_.at("strip")},
                         {"head", LaunchHead(task_)},
                         {"passes", passes},
                         {"fence", Streams() ? "    StreamFence();\n" : ""}});
  }

  const NormalisedForm& n_;
  const Task& task_;
  const Setting& setting_;
  bool is_column_ = false, is_split_ = false, keeps_ = false;
  std::map<std::string, std::pair<TermPtr, std::string>> constants_;  // by key: what is known, and its name
};

std::vector<Knob> NormalisationKnobs(const NormalisedForm& n, bool has_two_forms, int threads) {
  std::vector<Knob> knobs;
  if (n.kept) knobs.push_back({"keep", {"output", "no"}});
  if (has_two_forms) knobs.push_back({"moments", {"onepass", "twopass"}});
  knobs.push_back({"store", {"stream", "plain"}});
  if (n.layout.inner > 1) {
    knobs.push_back({"strip", {"8", "4", "16", "2"}});
  } else {
    const bool few_rows = n.layout.outer < 2 * threads && n.layout.outer % threads != 0;
    const bool long_rows = n.layout.terms >= 65536;
    knobs.push_back({"unroll", {"4", "2", "8", "1"}});
    knobs.push_back({"split", {"rows"}});
    if (few_rows) knobs.back().values = {"inside", "rows"};
    if (!few_rows && long_rows) knobs.back().values = {"rows", "inside"};
  }
  knobs.push_back({"lanes", {"full", "half"}});
  return knobs;
}

}  // namespace

std::optional<Kernel> RecogniseNormalisation(const Computation& computation) {
  const std::optional<NormalisedForm> one_pass = FindNormalised(computation.one_pass);
  const std::optional<NormalisedForm> two_pass = FindNormalised(computation.two_pass);
  if (!one_pass || !two_pass) return std::nullopt;
  const bool has_two_forms = computation.one_pass->key != computation.two_pass->key;
  Kernel kernel;
  kernel.family =
      Contains(computation.one_pass, [](const Term& t) { return t.op == "max"; }) ? "softmax" : "norm";
  kernel.summary =
      fmt::format("{} passes that stay in the cache, then one that writes", one_pass->stages.size());
  kernel.knobs = NormalisationKnobs(*one_pass, has_two_forms, computation.task->threads);
  kernel.write = [one_pass = *one_pass, two_pass = *two_pass, has_two_forms,
                  task = *computation.task](const Setting& setting) {
    const bool is_two_pass = has_two_forms && Is(setting, "moments", "twopass");
    return WithPrelude(NormalisationWriter(is_two_pass ? two_pass : one_pass, task, setting).Write(),
                       setting.at("lanes"));
  };
  return kernel;
}

}  // namespace kevin::search
