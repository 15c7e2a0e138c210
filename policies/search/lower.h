#pragma once
// From the expression that a reference returns to terms: looks up the operations, infers shapes, and
// decomposes composed operations. START HERE to add an operation that existing families can write.

#include <cstdint>
#include <string>
#include <vector>

#include "policies/policy.h"
#include "policies/search/term.h"
#include "policies/search/torchscript.h"

namespace kevin::search {

struct LowerOptions {
  // Mean and variance in one pass, from sums of x - head(x). False: first the mean, then the squared
  // deviations.
  bool one_pass_moments = true;
};

// Throws Unsupported for an operation that is not known.
TermPtr Lower(const Node& node, const std::vector<TaskArgument>& arguments, const LowerOptions& options);

// --- Inside lower*.cc ---

// The arguments of a call, by position or by name.
class Args {
 public:
  explicit Args(const Node& call) : call_(call) {}
  const Node* Get(size_t position, const char* name) const {
    if (position < call_.args.size()) return call_.args[position].get();
    const auto found = call_.named.find(name);
    return found == call_.named.end() || found->second->kind == Node::Kind::kNone ? nullptr
                                                                                  : found->second.get();
  }
  const Node& Need(size_t position, const char* name) const {
    const Node* node = Get(position, name);
    if (node == nullptr) throw Unsupported("`" + call_.text + "` lacks its argument `" + name + "`");
    return *node;
  }

 private:
  const Node& call_;
};

// The walk over the expression. Each group of operations (Activation, Reduction, View, Product, ...) returns
// nullptr for a call that it does not know.
class Lowering {
 public:
  Lowering(const std::vector<TaskArgument>& arguments, const LowerOptions& options)
      : arguments_(arguments), options_(options) {}
  TermPtr Value(const Node& node);

 private:
  TermPtr Leaf(int position);
  static void SetContiguous(Term& term);
  TermPtr Unary(const std::string& op, const Node& node) { return MakeTerm(op, {Value(node)}); }
  static TermPtr Add(const TermPtr& a, const TermPtr& b) { return MakeTerm("add", {a, b}); }
  static TermPtr Sub(const TermPtr& a, const TermPtr& b) { return MakeTerm("sub", {a, b}); }
  static TermPtr Mul(const TermPtr& a, const TermPtr& b) { return MakeTerm("mul", {a, b}); }
  static TermPtr Div(const TermPtr& a, const TermPtr& b) { return MakeTerm("div", {a, b}); }
  static TermPtr Number(double value) { return MakeConstant(value); }
  static TermPtr Scale(const TermPtr& a, double factor) { return factor == 1 ? a : Mul(a, Number(factor)); }
  static TermPtr Where(const TermPtr& condition, const TermPtr& yes, const TermPtr& no) {
    return MakeTerm("where", {condition, yes, no});
  }
  static TermPtr Positive(const TermPtr& x) { return MakeTerm("gt", {x, Number(0)}); }
  static TermPtr Clamp(TermPtr x, const TermPtr& low, const TermPtr& high);
  double Scalar(const Args& args, size_t position, const char* name, double fallback);
  bool Flag(const Args& args, size_t position, const char* name);
  std::vector<int64_t> Integers(const Node& node);
  std::vector<int64_t> Slice(const std::vector<int64_t>& from, const Node& slice);
  static int Wrap(int64_t dim, size_t rank);
  std::vector<int> Dims(const Args& args, size_t position, const TermPtr& of);
  TermPtr CallValue(const Node& call);
  TermPtr Arithmetic(const Node& call, const Args& args);
  static TermPtr Power(const TermPtr& base, double exponent);
  static TermPtr Sigmoid(const TermPtr& x);
  // log(1 + exp(x)) without overflow.
  static TermPtr SoftPlus(const TermPtr& x);
  static TermPtr Elu(const TermPtr& x, double alpha, double scale);
  TermPtr Activation(const Node& call, const Args& args);
  static TermPtr HardSigmoid(const TermPtr& x);
  TermPtr GatedActivation(const Node& call, const Args& args);
  static TermPtr Gelu(const TermPtr& x, const Node* approximate);
  // The call's `dim` argument is at position 1 and `keepdim` at 2 for all of these.
  TermPtr Reduction(const Node& call, const Args& args);
  // max(x, dim)[0], .values, [1], .indices; x[:, None]; x.shape[1].
  TermPtr Indexed(const Node& call);
  TermPtr NewAxes(const Node& call);
  struct Moments {
    TermPtr mean, variance;
  };
  Moments MeanAndVariance(const TermPtr& x, const std::vector<int>& dims);
  TermPtr Statistic(const Node& call, const Args& args);
  TermPtr Normalisation(const Node& call, const Args& args);
  TermPtr View(const Node& call, const Args& args);
  static TermPtr Unsqueeze(const TermPtr& x, int at);
  static TermPtr Swap(const TermPtr& x, size_t a, size_t b);
  TermPtr Reshape(const Node& call);
  TermPtr Product(const Node& call, const Args& args);
  static TermPtr MatMul(const TermPtr& a, const TermPtr& b);
  // Each row of `a` times the vector, summed: a reduction.
  static TermPtr MatVec(const TermPtr& a, const TermPtr& b);
  const std::vector<TaskArgument>& arguments_;
  const LowerOptions& options_;
};

}  // namespace kevin::search
