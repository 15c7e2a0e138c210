#pragma once
// KernelBench's `Model` of a problem, for candidates in Python: with which arguments it is constructed and called, and
// how its state_dict() names the parameters. It is the table [model] of a problem file; level1/019_relu.toml explains
// its keys. Plain values; pure functions; any thread.
//
// The facts say how a candidate is fed, not what is correct or how fast: Problem::content_hash leaves them out, so that
// stored verdicts of the kinds cpp, cuda and ptx stay valid when they change. A verdict on a candidate in Python depends
// on them: its key has HashFor(problem, kind).

#include <map>
#include <string>
#include <vector>

#include "env/problem/expression.h"

namespace kevin {

struct Problem;

// A value of Python: 0.5, True, an integer as an expression over the size symbols, a tuple or list of values, or (in
// `forward` only) an input of the problem.
struct ModelValue {
  enum class Form { kInteger, kFloat, kBool, kTuple, kList, kInput };
  Form form = Form::kInteger;
  std::string text;               // kInteger: the expression; kInput: the name
  double number = 0;              // kFloat
  bool flag = false;              // kBool
  std::vector<ModelValue> items;  // kTuple, kList

  bool operator==(const ModelValue&) const = default;
};

// Guarantees of LoadProblemFile: expressions are valid at every size; `parameters` has each parameter of the problem
// once and no state name twice; state names are identifiers with dots between them; `forward` names inputs, each at
// most once and no parameter; `sizes` and `first_shapes` name sizes of the problem, which has no size kFirstShapes beside
// `first_shapes`.
struct ModelFacts {
  std::vector<ModelValue> init;        // the constructor's arguments, by position
  std::vector<std::string> arguments;  // their names in KernelBench; empty: not given
  std::vector<ModelValue> forward;     // what `forward` is called with, by position
  std::vector<std::string> drawn;      // inputs of the problem that the model draws itself, as dropout does
  std::map<std::string, std::string> parameters;  // the problem's name to the name in state_dict()
  std::vector<std::string> unused;                // state names of parameters without influence on the output
  std::vector<std::string> sizes;  // where its parameters have the problem's shapes; empty: all sizes
  std::string first_shapes;  // the size that has KernelBench's first shapes; empty: kFirstShapes, or none

  bool operator==(const ModelFacts&) const = default;
};

// Whether KernelBench's class, constructed for this size, has parameters of the problem's shapes. Deep networks have
// widths of their own, and the smaller widths of size `small` cannot be asked for. False without facts.
bool ModelFitsSize(const Problem& problem, const std::string& size);

// The size set of KernelBench's first shapes, for which older candidates were written.
inline constexpr const char* kFirstShapes = "v0";
// kFirstShapes; where those shapes have not changed since, the size that has them. Empty: no size has them. What was
// computed has changed too then, if only by a kernel size, or nothing can be judged at them.
std::string SizeOfFirstShapes(const Problem& problem);

// As Python writes it at a size: "64", "2.0", "True", "(64, 1, 1)", "[256, 256]", "x".
std::string PythonText(const ModelValue& value, const Symbols& symbols);
// "[64, 128, 3, (128, 1, 1)]": the result of get_init_inputs() at a size.
std::string PythonInit(const ModelFacts& facts, const Symbols& symbols);

// The hash of the problem for the key of a verdict: content_hash; for the kinds `modelnew` and `triton` of a problem
// with facts one that includes them.
std::string HashFor(const Problem& problem, const std::string& kind);

}  // namespace kevin
