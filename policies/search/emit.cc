#include "policies/search/emit.h"

#include <fmt/format.h>

#include <cmath>

namespace kevin::search {

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
