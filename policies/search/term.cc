#include "policies/search/term.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kevin::search {

TermPtr FinishTerm(Term term) {
  std::string key = term.op;
  if (term.op == "constant") key += fmt::format(" {:.17g}", term.value);
  if (term.op == "leaf") {
    key += fmt::format(" {}", term.input);
    for (size_t i = 0; i < term.shape.size(); ++i)
      key += fmt::format(" {}:{}", term.shape[i].size, term.strides[i]);
  }
  for (const int dim : term.dims) key += fmt::format(" {}", dim);
  if (term.keep_dims) key += " keep";
  for (const TermPtr& arg : term.args) key += " (" + arg->key + ")";
  term.key = std::move(key);
  return std::make_shared<const Term>(std::move(term));
}

namespace {

std::vector<Dim> BroadcastShapes(const std::vector<TermPtr>& args) {
  std::vector<Dim> shape;
  for (const TermPtr& arg : args) {
    const std::vector<Dim>& other = arg->shape;
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), Dim{});
    for (size_t i = 0; i < other.size(); ++i) {
      Dim& dim = shape[shape.size() - other.size() + i];
      if (other[i].size == 1) continue;
      if (dim.size != 1 && dim.size != other[i].size) {
        throw Unsupported(fmt::format("sizes {} and {} do not broadcast", dim.size, other[i].size));
      }
      dim = other[i];
    }
  }
  return shape;
}

}  // namespace

bool IsReduction(const Term& term) {
  static const char* const kNames[] = {"sum", "mean", "max", "min", "argmax", "argmin", "head"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](const char* name) { return term.op == name; });
}

bool IsElementwise(const Term& term) { return CppDialect().forms.count(term.op) > 0; }

int64_t Count(const std::vector<Dim>& shape) {
  int64_t count = 1;
  for (const Dim& dim : shape) count *= dim.size;
  return count;
}

std::string CountText(const std::vector<Dim>& shape, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    if (shape[i].size == 1) continue;
    text += (text.empty() ? "" : " * ") + shape[i].text;
  }
  return text.empty() ? "1" : text;
}

TermPtr MakeConstant(double value) {
  Term term;
  term.op = "constant";
  term.value = value;
  return FinishTerm(std::move(term));
}

TermPtr MakeTerm(const std::string& op, std::vector<TermPtr> args) {
  const bool folds =
      std::all_of(args.begin(), args.end(), [](const TermPtr& a) { return a->op == "constant"; });
  if (folds && !args.empty()) {
    const std::optional<double> value =
        FoldElement(op, args[0]->value, args.size() > 1 ? args[1]->value : 0.0);
    if (value) return MakeConstant(*value);
  }
  Term term;
  term.op = op;
  term.shape = BroadcastShapes(args);
  term.args = std::move(args);
  return FinishTerm(std::move(term));
}

TermPtr MakeReduction(const std::string& op, const TermPtr& arg, std::vector<int> dims, bool keep_dims) {
  std::sort(dims.begin(), dims.end());
  Term term;
  term.op = op;
  term.dims = std::move(dims);
  term.keep_dims = keep_dims;
  for (size_t i = 0; i < arg->shape.size(); ++i) {
    const bool reduced = std::count(term.dims.begin(), term.dims.end(), static_cast<int>(i)) > 0;
    if (!reduced) term.shape.push_back(arg->shape[i]);
    if (reduced && keep_dims) term.shape.push_back(Dim{});
  }
  term.args = {arg};
  return FinishTerm(std::move(term));
}

// --- Writing terms ---

namespace {

Dialect MakeCpp() {
  return {{{"add", "$0 + $1"},
           {"sub", "$0 - $1"},
           {"mul", "$0 * $1"},
           {"div", "$0 / $1"},
           {"neg", "-$0"},
           {"abs", "Abs($0)"},
           {"exp", "Exp($0)"},
           {"expm1", "Expm1($0)"},
           {"log", "Log($0)"},
           {"log1p", "Log1p($0)"},
           {"sqrt", "Sqrt($0)"},
           {"tanh", "Tanh($0)"},
           {"erf", "Erf($0)"},
           {"gt", "$0 > $1"},
           {"lt", "$0 < $1"},
           {"ge", "$0 >= $1"},
           {"le", "$0 <= $1"},
           {"eq", "$0 == $1"},
           {"where", "$0 ? $1 : $2"},
           {"maximum", "Max($0, $1)"},
           {"minimum", "Min($0, $1)"},
           {"log1p_unit", "Log1pUnit($0)"}},
          "Splat($0)"};
}

Dialect MakeCuda(bool is_fast) {
  Dialect dialect = MakeCpp();
  dialect.constant = "$0";
  const std::map<std::string, const char*> precise = {
      {"abs", "fabsf($0)"},  {"exp", "expf($0)"},     {"expm1", "expm1f($0)"},
      {"log", "logf($0)"},   {"log1p", "log1pf($0)"}, {"sqrt", "sqrtf($0)"},
      {"tanh", "tanhf($0)"}, {"erf", "erff($0)"},     {"log1p_unit", "log1pf($0)"}};
  for (const auto& [op, form] : precise) dialect.forms[op] = form;
  if (!is_fast) return dialect;
  dialect.forms["div"] = "__fdividef($0, $1)";
  dialect.forms["exp"] = "__expf($0)";
  dialect.forms["expm1"] = "(__expf($0) - 1.0f)";
  dialect.forms["tanh"] = "FastTanh($0)";
  dialect.forms["log1p_unit"] = "logf(1.0f + $0)";
  return dialect;
}

}  // namespace

const Dialect& CppDialect() {
  static const Dialect kDialect = MakeCpp();
  return kDialect;
}

const Dialect& CudaDialect(bool is_fast) {
  static const Dialect kPrecise = MakeCuda(false), kFast = MakeCuda(true);
  return is_fast ? kFast : kPrecise;
}

std::string Spell(const char* form, const std::vector<std::string>& operands) {
  std::string text;
  for (const char* at = form; *at != 0; ++at) {
    if (*at == '$') {
      text += operands.at(static_cast<size_t>(*++at - '0'));
    } else {
      text += *at;
    }
  }
  return text;
}

std::optional<double> FoldElement(const std::string& op, double a, double b) {
  if (op == "add") return a + b;
  if (op == "sub") return a - b;
  if (op == "mul") return a * b;
  if (op == "div") return a / b;
  if (op == "pow") return std::pow(a, b);
  if (op == "neg") return -a;
  if (op == "abs") return std::fabs(a);
  if (op == "sqrt") return std::sqrt(a);
  if (op == "exp") return std::exp(a);
  if (op == "log") return std::log(a);
  if (op == "tanh") return std::tanh(a);
  return std::nullopt;
}

std::string FloatText(double value) {
  if (std::isinf(value)) return value < 0 ? "-__builtin_inff()" : "__builtin_inff()";
  std::string text = fmt::format("{:.9g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

std::string Emitter::Emit(const TermPtr& term) {
  const auto known = known_.find(term->key);
  if (known != known_.end()) return known->second;
  if (term->op == "constant") return Spell(dialect_.constant, {FloatText(term->value)});
  std::string text;
  if (term->op == "leaf") {
    text = leaf_(*term);
  } else {
    const auto form = dialect_.forms.find(term->op);
    if (form == dialect_.forms.end()) throw Unsupported("`" + term->op + "` inside another operation");
    const bool two_tensors = term->args.size() == 2 && term->args[1]->op != "constant";
    std::vector<std::string> operands;
    for (const TermPtr& arg : term->args) operands.push_back(Emit(arg));
    text = Spell(form->second, operands);
    if (two_tensors && (term->op == "maximum" || term->op == "minimum")) text = "Nan" + text;
  }
  const std::string name = names_ + std::to_string(count_++);
  lines_ += fmt::format("{}const auto {} = {};\n", indent_, name, text);
  known_[term->key] = name;
  return name;
}

}  // namespace kevin::search
