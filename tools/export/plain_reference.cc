#include "tools/export/plain_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "policies/search/lower.h"

namespace kevin {
namespace {

using search::Term;
using search::TermPtr;
using search::Unsupported;

const std::map<std::string, const char*>& ElementForms() {
  static const std::map<std::string, const char*> kForms = {{"add", "({} + {})"},
                                                            {"sub", "({} - {})"},
                                                            {"mul", "({} * {})"},
                                                            {"div", "({} / {})"},
                                                            {"neg", "(-{})"},
                                                            {"abs", "fabs({})"},
                                                            {"exp", "exp({})"},
                                                            {"expm1", "expm1({})"},
                                                            {"log", "log({})"},
                                                            {"log1p", "log1p({})"},
                                                            {"log1p_unit", "log1p({})"},
                                                            {"sqrt", "sqrt({})"},
                                                            {"tanh", "tanh({})"},
                                                            {"erf", "erf({})"},
                                                            {"gt", "({} > {})"},
                                                            {"lt", "({} < {})"},
                                                            {"ge", "({} >= {})"},
                                                            {"le", "({} <= {})"},
                                                            {"eq", "({} == {})"},
                                                            {"where", "({} ? {} : {})"},
                                                            {"maximum", "Larger<T>({}, {})"},
                                                            {"minimum", "Smaller<T>({}, {})"}};
  return kForms;
}

std::string NumberText(double value) {
  if (std::isinf(value)) return value < 0 ? "T(-INFINITY)" : "T(INFINITY)";
  return fmt::format("T({:.17g})", value);
}

bool IsStep(const Term& term) {
  return search::IsReduction(term) || term.op == "cumsum" || term.op == "cumprod" || term.op == "matmul";
}

// Writes one term's templates; `prefix` tells the reference's from its scale's.
class Writer {
 public:
  explicit Writer(std::string prefix) : prefix_(std::move(prefix)) {}

  void WriteRoot(const TermPtr& root) {
    MakeSteps(*root);
    const std::vector<std::string> at = Names(root->shape.size());
    Function("Result", "long i", Decode("i", at, root->shape) + "  return " + Value(*root, at) + ";\n");
  }

  const std::string& code() const { return code_; }
  const std::vector<ReferenceStep>& steps() const { return steps_; }

 private:
  using Coordinates = std::vector<std::string>;

  static Coordinates Names(size_t count) {
    Coordinates names;
    for (size_t d = 0; d < count; ++d) names.push_back(fmt::format("c{}", d));
    return names;
  }

  // "const long c1 = i % 4;": the coordinates of linear index `of`.
  static std::string Decode(const std::string& of, const Coordinates& names,
                            const std::vector<search::Dim>& shape) {
    std::string text;
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      text += shape[d].size == 1 ? fmt::format("  const long {} = 0; (void){};\n", names[d], names[d])
                                 : fmt::format("  const long {} = {} / {}L % {}L; (void){};\n", names[d], of,
                                               step, shape[d].size, names[d]);
      step *= shape[d].size;
    }
    return text;
  }

  void Function(const std::string& name, const std::string& parameters, const std::string& body) {
    code_ += fmt::format(
        "template <class T>\nHD T {}{}(const Inputs& in, const Buffers<T>& b, {}) {{\n  (void)in; "
        "(void)b;\n{}}}\n\n",
        prefix_, name, parameters, body);
  }

  // Steps that others need come first; equal ones once.
  void MakeSteps(const Term& term) {
    for (const TermPtr& arg : term.args) MakeSteps(*arg);
    if (!IsStep(term) || step_of_.count(term.key)) return;
    if (term.op == "matmul") {
      MakeProduct(term);
    } else if (term.op == "cumsum" || term.op == "cumprod") {
      MakeScan(term);
    } else {
      MakeReduction(term);
    }
    step_of_[term.key] = steps_.size() - 1;
  }

  std::string TermName() const { return fmt::format("Term{}", steps_.size()); }

  void MakeReduction(const Term& term) {
    if (term.op == "head") throw Unsupported("a reduction over a part of its input");
    const Term& arg = *term.args[0];
    Coordinates at(arg.shape.size()), kept, reduced;
    std::vector<search::Dim> reduced_shape;
    const Coordinates out = Names(term.shape.size());
    int64_t terms = 1;
    size_t next = 0;
    for (size_t d = 0; d < arg.shape.size(); ++d) {
      const bool is_reduced = std::count(term.dims.begin(), term.dims.end(), static_cast<int>(d)) > 0;
      if (is_reduced) {
        at[d] = fmt::format("r{}", d);
        reduced.push_back(at[d]), reduced_shape.push_back(arg.shape[d]);
        terms *= arg.shape[d].size;
        next += term.keep_dims;
      } else {
        at[d] = out.at(next++);
      }
    }
    Function(TermName(), "long i, long r",
             Decode("i", out, term.shape) + Decode("r", reduced, reduced_shape) + "  (void)r;\n  return " +
                 Value(arg, at) + ";\n");
    steps_.push_back({term.op, search::Count(term.shape), terms, 1});
  }

  void MakeProduct(const Term& term) {
    const Term &a = *term.args[0], &b = *term.args[1];
    const Coordinates out = Names(term.shape.size());
    Coordinates left(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(a.shape.size()) - 1), right;
    left.push_back("r");
    if (b.shape.size() == 1) {
      right = {"r"};
    } else {
      const size_t batch = b.shape.size() - 2;  // the last of the result's batch dimensions
      if (batch > term.shape.size() - 2) throw Unsupported("a product with more batches on the right");
      for (size_t d = 0; d < batch; ++d) {
        const size_t of_out = term.shape.size() - 2 - batch + d;
        right.push_back(b.shape[d].size == 1 ? "0L" : out[of_out]);
      }
      right.push_back("r"), right.push_back(out.back());
    }
    Function(TermName(), "long i, long r",
             Decode("i", out, term.shape) + "  return " + Value(a, left) + " * " + Value(b, right) + ";\n");
    steps_.push_back({"sum", search::Count(term.shape), a.shape.back().size, 1});
  }

  void MakeScan(const Term& term) {
    const Term& arg = *term.args[0];
    const Coordinates at = Names(arg.shape.size());
    Function(TermName(), "long i, long", Decode("i", at, arg.shape) + "  return " + Value(arg, at) + ";\n");
    const auto dim = static_cast<size_t>(term.dims.at(0));
    int64_t inner = 1;
    for (size_t d = dim + 1; d < arg.shape.size(); ++d) inner *= arg.shape[d].size;
    steps_.push_back({term.op, search::Count(arg.shape), arg.shape[dim].size, inner});
  }

  // The value of `term` at `at`, one coordinate for each of its dimensions.
  std::string Value(const Term& term, const Coordinates& at) {
    if (term.op == "constant") return NumberText(term.value);
    if (term.op == "leaf") return fmt::format("T(in.p[{}][{}])", term.input, Index(term.strides, at));
    if (IsStep(term)) {
      std::vector<int64_t> strides(term.shape.size());
      int64_t step = 1;
      for (size_t d = term.shape.size(); d-- > 0; step *= term.shape[d].size)
        strides[d] = term.shape[d].size == 1 ? 0 : step;
      return fmt::format("b.p[{}][{}]", step_of_.at(term.key), Index(strides, at));
    }
    const auto form = ElementForms().find(term.op);
    if (form == ElementForms().end()) throw Unsupported("`" + term.op + "`");
    std::vector<std::string> operands;
    for (const TermPtr& arg : term.args) operands.push_back(Value(*arg, Broadcast(*arg, at)));
    return Filled(form->second, operands);
  }

  static std::string Filled(const std::string& form, const std::vector<std::string>& operands) {
    std::string text;
    size_t next = 0;
    for (size_t i = 0; i < form.size(); ++i) {
      if (form.compare(i, 2, "{}") != 0) {
        text += form[i];
        continue;
      }
      text += operands.at(next++);
      ++i;
    }
    return text;
  }

  static Coordinates Broadcast(const Term& arg, const Coordinates& at) {
    Coordinates own(at.end() - static_cast<std::ptrdiff_t>(arg.shape.size()), at.end());
    for (size_t d = 0; d < own.size(); ++d) {
      if (arg.shape[d].size == 1) own[d] = "0L";
    }
    return own;
  }

  static std::string Index(const std::vector<int64_t>& strides, const Coordinates& at) {
    std::string text;
    for (size_t d = 0; d < strides.size(); ++d) {
      if (strides[d] != 0) text += fmt::format("{}{} * {}L", text.empty() ? "" : " + ", at[d], strides[d]);
    }
    return text.empty() ? "0" : text;
  }

  std::string prefix_, code_;
  std::vector<ReferenceStep> steps_;
  std::map<std::string, size_t> step_of_;  // by the term's key
};

std::vector<TaskArgument> Arguments(const SizedProblem& problem) {
  std::vector<TaskArgument> arguments;
  for (const ConcreteTensor& t : problem.inputs) {
    if (t.spec.dtype != DType::kF32) throw Unsupported("an input that is not float32");
    arguments.push_back({t.spec.name, t.spec.is_param ? "param" : "input", "const float*", t.shape, {}});
  }
  for (const ConcreteTensor& t : problem.outputs)
    arguments.push_back({t.spec.name, "output", "float*", t.shape, {}});
  return arguments;
}

TermPtr Read(const std::string& text, const SizedProblem& problem) {
  return search::Lower(*search::ReadReference(text), Arguments(problem), {.one_pass_moments = false});
}

}  // namespace

PlainReference WritePlainReference(const SizedProblem& problem) {
  PlainReference result;
  try {
    if (problem.outputs.size() != 1) throw Unsupported("more than one output");
    const TermPtr root = Read(problem.problem->reference, problem);
    if (search::Count(root->shape) != problem.outputs[0].elements)
      throw Unsupported("an output of another size");
    Writer writer("");
    writer.WriteRoot(root);
    result.code = writer.code(), result.steps = writer.steps();
  } catch (const Unsupported& why) {
    result.why_not = why.what();
    return result;
  }
  if (problem.problem->scale.empty()) return result;
  try {
    std::string text = problem.problem->scale;
    const size_t at = text.find("def scale");
    if (at != std::string::npos) text.replace(at, 9, "def forward");
    Writer writer("Scale");
    writer.WriteRoot(Read(text, problem));
    result.code += writer.code();
    result.scale_steps = writer.steps(), result.has_scale = true;
  } catch (const Unsupported&) {  // the row's RMS stands in, which is what problems without a scale have
  }
  return result;
}

}  // namespace kevin
