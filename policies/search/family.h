#pragma once
// Families of kernels, and the choice of the next setting of a kernel's knobs. A family recognises
// computations of one form and offers a Kernel: knobs with a few values each, and a function from a setting
// to the kernel's text.
//
// START HERE to add a family: copy the second half of family_elementwise_scan.cc (C++) or of
// cuda_elementwise_scan.cc, the shortest families, and add the new function to the list of its kind in
// family.cc. forms.h has the recognisers that both kinds share. All functions are pure and may be called from
// any thread.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "policies/policy.h"
#include "policies/search/term.h"

namespace kevin::search {

using Setting = std::map<std::string, std::string>;  // knob -> value

// The most promising knob of a kernel comes first, and in each knob its most promising value. The first
// values together are the setting of the first turn. `values` are words without spaces.
struct Knob {
  std::string name;
  std::vector<std::string> values;
};

struct Kernel {
  std::string family;
  std::string summary;  // what the kernel does, in a few words, for the reply
  std::vector<Knob> knobs;
  std::function<std::string(const Setting&)> write;  // the text without its first (settings) line
};

// The input of a family: the computation with and without one-pass moments (LowerOptions).
struct Computation {
  TermPtr one_pass, two_pass;
  const Task* task = nullptr;
};

struct Family {
  std::string name;    // "elementwise"
  std::string covers;  // "relu, gelu, ...", for WhyNot
  std::optional<Kernel> (*recognise)(const Computation&);
  bool writes_16_bits = false;  // tensors of fp16 and bf16 too
};

// The families of a kind of candidate, in the order in which they are tried; empty for an unsupported kind.
const std::vector<Family>& Families(const std::string& kind);

// --- Helpers for writers ---

// The task's floating type as its kind spells it: "float", "_Float16", "__nv_bfloat16", ...
std::string ElementOf(const Task& task);
// `extern "C" void launch(const float* in0, ..., float* out0)`; without extern "C" for kind cuda.
std::string LaunchHead(const Task& task);
// All tensors as the parameters of a CUDA kernel (`const float* __restrict__ in0, ...`) and as its arguments.
std::string KernelParameters(const Task& task);
std::string KernelArguments(const Task& task);
std::string Name(int input);  // "in0"
int Integer(const Setting& setting, const std::string& knob);
bool Is(const Setting& setting, const std::string& knob, const char* value);
// Replaces each {name} that `values` has; other text in braces stays.
std::string Fill(std::string text, const std::map<std::string, std::string>& values);

// Whether the leaf reads a whole tensor of this shape in memory order: no broadcast, transposition or slice.
bool IsFull(const Term& leaf, const std::vector<Dim>& shape);
// How an operand's address changes over dims [begin, end) of `shape`: by one element per element, not at all,
// or otherwise.
enum class Motion { kInStep, kConstant, kOther };
Motion MotionOver(const Term& leaf, const std::vector<Dim>& shape, size_t begin, size_t end);

// A tensor reduced over neighbouring dims, as outer x terms x inner elements.
struct ReducedLayout {
  size_t begin = 0, end = 0;  // the reduced dims
  int64_t outer = 1, terms = 1, inner = 1;
  std::string outer_text, terms_text, inner_text;
};
// Throws Unsupported when `dims` are not neighbours.
ReducedLayout LayoutOf(const std::vector<Dim>& shape, const std::vector<int>& dims);

// How sum, mean, max and min are computed: `start` combined with every term. `combine` has $0 and $1.
struct ReductionForm {
  const char *start, *combine;
};
ReductionForm FormOf(const std::string& op);
std::string Combine(const ReductionForm& form, const std::string& a, const std::string& b);

// Every leaf of `term`, equal ones once.
std::vector<TermPtr> Leaves(const TermPtr& term);
// Every reduction in `term`, inner ones first, equal ones once.
std::vector<TermPtr> Reductions(const TermPtr& term);
bool Contains(const TermPtr& term, const std::function<bool(const Term&)>& is_wanted);

// --- The choice of a setting (choose.cc) ---

// The first line of a kernel's text, `// search: family=scan lanes=full rows=4`: the policy keeps no state,
// so settings travel in the texts. ReadSetting returns nullopt for a text without such a line for this kernel
// (another family, or other knobs).
std::string SettingLine(const Kernel& kernel, const Setting& setting);
std::optional<Setting> ReadSetting(const Kernel& kernel, const std::string& source);

struct Choice {
  Setting setting;
  std::string reason;   // why, one sentence
  std::string changed;  // the difference from the best setting so far, one sentence
};

// First the first values. Then moves from the fastest setting, one knob at a time: the most important knob
// and its nearest untried value first. `seed` decides the order among equals and occasional jumps. No setting
// is tried twice; values that occurred only in kernels that failed come last. When all have been tried: the
// fastest again.
Choice ChooseNext(const Kernel& kernel, const std::vector<TaskAttempt>& attempts, uint64_t seed);

}  // namespace kevin::search
