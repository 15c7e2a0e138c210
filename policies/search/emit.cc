#include "policies/search/emit.h"

#include <fmt/format.h>

#include <cmath>

namespace kevin::search {

const char* ElementForm(const std::string& op) {
  static const std::map<std::string, const char*> kForms = {{"add", "$0 + $1"},
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
                                                            {"log1p_unit", "Log1pUnit($0)"}};
  const auto found = kForms.find(op);
  return found == kForms.end() ? nullptr : found->second;
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
  if (term->op == "constant") return "Splat(" + FloatText(term->value) + ")";
  std::string text;
  if (term->op == "leaf") {
    text = leaf_(*term);
  } else {
    const char* form = ElementForm(term->op);
    if (form == nullptr) throw Unsupported("`" + term->op + "` inside another operation");
    const bool two_tensors = term->args.size() == 2 && term->args[1]->op != "constant";
    std::string prefix = two_tensors && (term->op == "maximum" || term->op == "minimum") ? "Nan" : "";
    for (const char* at = form; *at != 0; ++at) {
      if (*at == '$') {
        text += Emit(term->args[static_cast<size_t>(*++at - '0')]);
      } else {
        text += *at;
      }
    }
    text = prefix + text;
  }
  const std::string name = names_ + std::to_string(count_++);
  lines_ += fmt::format("{}const auto {} = {};\n", indent_, name, text);
  known_[term->key] = name;
  return name;
}

}  // namespace kevin::search
