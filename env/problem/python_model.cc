#include "env/problem/python_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "env/error.h"
#include "env/problem/python_operators.h"

namespace kevin {
namespace {

constexpr const char* kFunctionName =
    "compute";  // `forward` of the reference, beside the method of that name

// --- Shapes and values ---

// "/" of an expression rounds down.
std::string PythonExpression(const std::string& expression, const std::map<std::string, std::string>& names) {
  std::string text = ReplaceWords(expression, [&](std::string_view word) {
    const auto found = names.find(std::string(word));
    return found == names.end() ? std::string(word) : found->second;
  });
  for (size_t at = text.find('/'); at != std::string::npos; at = text.find('/', at + 2)) text.insert(at, "/");
  return text;
}

std::string Shape(const TensorSpec& spec, const std::map<std::string, std::string>& names) {
  std::vector<std::string> dims;
  for (const std::string& dim : spec.shape) dims.push_back(PythonExpression(dim, names));
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

bool IsInteger(DType dtype) { return dtype == DType::kI64 || dtype == DType::kI32; }

// "1/sqrt(9*C)" is "(9*C) ** -0.5"; "" for 1.
std::string Scale(const TensorSpec& spec, const std::map<std::string, std::string>& names) {
  constexpr std::string_view kRoot = "1/sqrt(";
  if (spec.scale_text.starts_with(kRoot) && spec.scale_text.ends_with(")")) {
    const std::string inside =
        spec.scale_text.substr(kRoot.size(), spec.scale_text.size() - kRoot.size() - 1);
    // A fan-in may be a fraction ("363/6"): the quotient is not rounded.
    return fmt::format("({}) ** -0.5", ReplaceWords(inside, [&](std::string_view word) {
                         const auto found = names.find(std::string(word));
                         return found == names.end() ? std::string(word) : found->second;
                       }));
  }
  if (!spec.scale_text.empty()) return fmt::format("({})", PythonExpression(spec.scale_text, names));
  return spec.scale == 1 ? "" : fmt::format("{:g}", spec.scale);
}

std::string DrawnFloats(const TensorSpec& spec, const std::string& shape) {
  switch (spec.distribution) {
    case Distribution::kUniform:
      return fmt::format("(torch.rand({}) * 2 - 1)", shape);
    case Distribution::kUniform01:
      return fmt::format("torch.rand({})", shape);
    case Distribution::kPositive:
      return fmt::format("(torch.rand({}) + 0.01)", shape);
    case Distribution::kSigns:
      return fmt::format("(torch.randint(0, 2, {}) * 2.0 - 1)", shape);
    default:
      return fmt::format("torch.randn({})", shape);
  }
}

// A tensor with values such as the problem draws.
std::string Drawn(const TensorSpec& spec, const std::map<std::string, std::string>& names) {
  const std::string shape = Shape(spec, names), scale = Scale(spec, names);
  if (spec.dtype == DType::kBool) return fmt::format("torch.rand({}) > 0.5", shape);
  std::string text = DrawnFloats(spec, shape);
  if (!scale.empty()) text += " * " + scale;
  if (spec.offset != 0)
    text +=
        fmt::format(" {} {:g}", spec.offset < 0 ? '-' : '+', spec.offset < 0 ? -spec.offset : spec.offset);
  const bool is_sum = text.find(' ') != std::string::npos;
  const auto with_method = [&](const char* method) {
    return is_sum ? fmt::format("({}){}", text, method) : text + method;
  };
  if (IsInteger(spec.dtype))
    return with_method(spec.dtype == DType::kI64 ? ".floor().long()" : ".floor().int()");
  if (spec.structure == Structure::kUpper) return fmt::format("torch.triu({})", text);
  if (spec.structure == Structure::kLower) return fmt::format("torch.tril({})", text);
  if (spec.dtype == DType::kF16) return with_method(".half()");
  if (spec.dtype == DType::kBF16) return with_method(".bfloat16()");
  return text;
}

// --- The module ---

class ModelWriter {
 public:
  explicit ModelWriter(const SizedProblem& sized) : sized_(sized), problem_(*sized.problem), facts_(Facts()) {
    for (size_t i = 0; i < facts_.arguments.size(); ++i) {
      const ModelValue& value = facts_.init[i];
      const bool is_symbol = value.form == ModelValue::Form::kInteger && Symbols().contains(value.text);
      if (is_symbol) names_.emplace(value.text, facts_.arguments[i]);  // the first argument with this value
    }
  }

  std::string Write() const {
    std::string text = PythonOperators(problem_.reference);
    text = ReplaceWords(text, [](std::string_view word) {
      return word == "forward" ? std::string(kFunctionName) : std::string(word);
    });
    // A size symbol may be called F.
    if (Symbols().contains("F"))
      text = ReplaceWords(text, [](std::string_view word) {
        return word == "F" ? std::string("nn.functional") : std::string(word);
      });
    return Imports(text) + text.substr(text.find_first_not_of('\n')) + "\n\n" + Class() + "\n\n" + Inputs();
  }

 private:
  const kevin::Symbols& Symbols() const { return problem_.sizes.at(sized_.size); }

  ModelFacts Facts() const {
    if (problem_.model) return *problem_.model;
    ModelFacts facts;
    for (const TensorSpec& input : problem_.inputs) {
      if (input.is_param) facts.parameters[input.name] = input.name;
      if (!input.is_param) facts.forward.push_back({ModelValue::Form::kInput, input.name, 0, false, {}});
    }
    return facts;
  }

  static std::string Imports(const std::string& text) {
    const bool has_dict = text.find("Dict[") != std::string::npos;
    const bool has_list = text.find("List[") != std::string::npos;
    std::string imports;
    if (has_dict || has_list)
      imports += fmt::format("from typing import {}{}{}\n\n", has_dict ? "Dict" : "",
                             has_dict && has_list ? ", " : "", has_list ? "List" : "");
    imports += "import torch\nimport torch.nn as nn\n";
    if (text.find(" F.") != std::string::npos || text.find("(F.") != std::string::npos)
      imports += "import torch.nn.functional as F\n";
    if (text.find("Tensor") != std::string::npos) imports += "from torch import Tensor\n";
    return imports + "\n\n";
  }

  std::string Class() const {
    std::vector<std::string> arguments = {"self"};
    arguments.insert(arguments.end(), facts_.arguments.begin(), facts_.arguments.end());
    if (facts_.arguments.empty() && !facts_.init.empty()) arguments.emplace_back("*init");
    std::string text =
        fmt::format("class Model(nn.Module):\n    def __init__({}):\n        super().__init__()\n",
                    fmt::join(arguments, ", "));
    bool has_dots = false;
    for (const TensorSpec& input : problem_.inputs) {
      if (!input.is_param) continue;
      const std::string& state = facts_.parameters.at(input.name);
      const bool is_dotted = state.find('.') != std::string::npos;
      has_dots |= is_dotted;
      text += is_dotted ? fmt::format("        self.add(\"{}\", {})\n", state, Drawn(input, names_))
                        : fmt::format("        self.{} = nn.Parameter({})\n", state, Drawn(input, names_));
    }
    if (has_dots) text += kAdd;
    return text + Forward();
  }

  std::string Forward() const {
    std::vector<std::string> arguments = {"self"}, values;
    int constants = 0;
    for (const ModelValue& value : facts_.forward) {
      const bool is_input = value.form == ModelValue::Form::kInput;
      arguments.push_back(is_input ? value.text : fmt::format("constant{}", ++constants));
    }
    std::string text = fmt::format("\n    def forward({}):\n", fmt::join(arguments, ", "));
    for (const ModelValue& value : facts_.forward) {
      if (value.form != ModelValue::Form::kInput)
        text += fmt::format("        # Always {}.\n", PythonText(value, Symbols()));
    }
    for (const TensorSpec& input : problem_.inputs) {
      const bool is_drawn =
          std::find(facts_.drawn.begin(), facts_.drawn.end(), input.name) != facts_.drawn.end();
      if (is_drawn)
        text += fmt::format("        {} = ({}).to({}.device)\n", input.name, Drawn(input, {}),
                            arguments.size() > 1 ? arguments[1] : "self");
      if (!input.is_param || !problem_.has_param_dict)
        values.push_back(input.is_param ? Param(input) : input.name);
    }
    if (problem_.has_param_dict) {
      text += ParamDict();
      values.push_back("p");
    }
    return text + fmt::format("        return {}({})\n", kFunctionName, fmt::join(values, ", "));
  }

  std::string Param(const TensorSpec& input) const {
    const std::string& state = facts_.parameters.at(input.name);
    return state.find('.') == std::string::npos ? "self." + state
                                                : fmt::format("self.get_parameter(\"{}\")", state);
  }

  std::string ParamDict() const {
    const bool is_by_name =
        std::all_of(facts_.parameters.begin(), facts_.parameters.end(), [](const auto& pair) {
          std::string name = pair.second;
          std::replace(name.begin(), name.end(), '.', '_');
          return name == pair.first;
        });
    if (is_by_name)
      return "        p = {name.replace(\".\", \"_\"): value for name, value in self.named_parameters()}\n";
    std::string text = "        p = {\n";
    for (const TensorSpec& input : problem_.inputs) {
      if (input.is_param) text += fmt::format("            \"{}\": {},\n", input.name, Param(input));
    }
    return text + "        }\n";
  }

  std::string Inputs() const {
    std::string text;
    for (const auto& [symbol, value] : Symbols()) text += fmt::format("{} = {}\n", symbol, value);
    std::vector<std::string> lines, values;
    for (const ModelValue& value : facts_.forward) {
      if (value.form != ModelValue::Form::kInput) {
        values.push_back(PythonText(value, Symbols()));
        continue;
      }
      const auto input = std::find_if(problem_.inputs.begin(), problem_.inputs.end(),
                                      [&](const TensorSpec& spec) { return spec.name == value.text; });
      std::string drawn = Drawn(*input, {});
      if (input->structure == Structure::kSymmetric) {
        lines.push_back(fmt::format("    {} = {}\n", input->name, drawn));
        drawn = fmt::format("({0} + {0}.t()) / 2", input->name);
      }
      values.push_back(drawn);
    }
    text += fmt::format("\n\ndef get_inputs():\n{}    return [{}]\n", fmt::join(lines, ""),
                        fmt::join(values, ", "));
    text += fmt::format("\n\ndef get_init_inputs():\n    return {}\n", InitText());
    return text;
  }

  // With symbols where KernelBench's constants are.
  std::string InitText() const {
    std::vector<std::string> values;
    for (const ModelValue& value : facts_.init) values.push_back(Symbolic(value));
    return fmt::format("[{}]", fmt::join(values, ", "));
  }

  std::string Symbolic(const ModelValue& value) const {
    if (value.form == ModelValue::Form::kInteger) return PythonExpression(value.text, {});
    if (value.items.empty()) return PythonText(value, Symbols());
    std::vector<std::string> items;
    for (const ModelValue& item : value.items) items.push_back(Symbolic(item));
    if (value.form == ModelValue::Form::kList) return fmt::format("[{}]", fmt::join(items, ", "));
    return fmt::format("({}{})", fmt::join(items, ", "), items.size() == 1 ? "," : "");
  }

  static constexpr const char* kAdd = R"(
    def add(self, name, value):
        """Registers a parameter under a name with dots, "conv.weight"."""
        *path, last = name.split(".")
        module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module._modules[part]
        module.register_parameter(last, nn.Parameter(value))
)";

  const SizedProblem& sized_;
  const Problem& problem_;
  const ModelFacts facts_;
  std::map<std::string, std::string> names_;  // of size symbols inside the constructor
};

// --- Candidates for admission: subclasses of the module ---

constexpr const char* kCorrect = R"(
class ModelNew(Model):
    pass
)";

constexpr const char* kOff = R"(
def off(result):
    return result * 1.01 if result.is_floating_point() else result + 1


class ModelNew(Model):
    def forward(self, *inputs):
        results = super().forward(*inputs)
        return tuple(map(off, results)) if isinstance(results, (tuple, list)) else off(results)
)";

constexpr const char* kZeros = R"(
class ModelNew(Model):
    def forward(self, *inputs):
        results = super().forward(*inputs)
        if isinstance(results, (tuple, list)):
            return tuple(map(torch.zeros_like, results))
        return torch.zeros_like(results)
)";

constexpr const char* kNoWeights = R"(
class ModelNew(Model):
    def forward(self, *inputs, without_weights=False):
        if without_weights:
            return super().forward(*inputs)
        zeros = {name: nn.Parameter(torch.zeros_like(value)) for name, value in self.named_parameters()}
        return torch.func.functional_call(self, zeros, inputs, {"without_weights": True})
)";

}  // namespace

std::string PythonModel(const SizedProblem& problem) { return ModelWriter(problem).Write(); }

std::vector<PythonAnswer> PythonAnswers(const SizedProblem& problem) {
  const auto& facts = problem.problem->model;
  if (facts && !facts->drawn.empty())
    throw Error(ExitCode::kBadRequest, "Model draws `" + facts->drawn[0] + "` itself, other values each time",
                "use a kind other than modelnew");
  const std::string model = PythonModel(problem) + "\n";
  const bool has_weights = std::any_of(problem.inputs.begin(), problem.inputs.end(),
                                       [](const ConcreteTensor& input) { return input.spec.is_param; });
  const PythonAnswer last = has_weights
                                ? PythonAnswer{"modelnew: all weights zero", false, model + kNoWeights}
                                : PythonAnswer{"modelnew: zeros", false, model + kZeros};
  return {{"modelnew: operators of torch", true, model + kCorrect},
          {"modelnew: each element 1 % off", false, model + kOff},
          last};
}

}  // namespace kevin
