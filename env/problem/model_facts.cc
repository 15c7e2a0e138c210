#include "env/problem/model_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "env/problem/problem.h"
#include "env/problem/text.h"
#include "env/problem/toml_reader.h"

namespace kevin {
namespace {

constexpr size_t kMostValues = 256;  // of an array
constexpr size_t kMostStateNameBytes = 200;

using Form = ModelValue::Form;

// "layers.0.attn.weight"
bool IsStateName(const std::string& name) {
  bool part_begins = true;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (c == '.' ? part_begins : !(is_digit || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
      return false;
    part_begins = c == '.';
  }
  return !part_begins && name.size() <= kMostStateNameBytes && (name[0] < '0' || name[0] > '9');
}

bool HasSize(const Problem& problem, const std::string& size) {
  return problem.sizes.contains(size) || problem.shape_sets.contains(size);
}

class ModelReader {
 public:
  ModelReader(const TomlSection& section, const Problem& problem) : section_(section), problem_(problem) {}

  ModelFacts Read() {
    section_.CheckKeys({"arguments", "init", "forward", "sizes", "first_shapes", "unused", "parameters"});
    facts_.init = Values("init");
    if (section_.Has("arguments")) ReadArguments();
    ReadForward();
    if (section_.Has("sizes")) ReadSizes();
    if (section_.Has("first_shapes")) ReadFirstShapes();
    ReadParameters();
    if (section_.Has("unused")) {
      facts_.unused = section_.Strings("unused");
      for (const std::string& name : facts_.unused) CheckStateName(section_, "unused", name);
    }
    return std::move(facts_);
  }

 private:
  std::vector<ModelValue> Values(const char* key) {
    return Values(section_.Array(key), section_.Key(key), std::string_view(key) == "forward", 0);
  }

  std::vector<ModelValue> Values(const toml::array& array, const std::string& key, bool takes_inputs,
                                 int depth) {
    if (depth > 4 || array.size() > kMostValues)
      section_.Fail(array.source(), key, "is nested too deeply or too long",
                    fmt::format("at most {} values and 4 levels", kMostValues));
    std::vector<ModelValue> values;
    for (const toml::node& node : array) values.push_back(Value(node, key, takes_inputs, depth));
    return values;
  }

  ModelValue Value(const toml::node& node, const std::string& key, bool takes_inputs, int depth) {
    if (node.is_boolean()) return {Form::kBool, "", 0, **node.as_boolean(), {}};
    if (node.is_floating_point()) {
      const double number = **node.as_floating_point();
      if (!std::isfinite(number)) section_.Fail(node.source(), key, "must be finite", "write a number");
      return {Form::kFloat, "", number, false, {}};
    }
    if (node.is_array())
      return {Form::kTuple, "", 0, false, Values(*node.as_array(), key, takes_inputs, depth + 1)};
    if (node.is_table()) {
      const toml::node* list = node.as_table()->get("list");
      if (list == nullptr || !list->is_array() || node.as_table()->size() != 1)
        section_.Fail(node.source(), key, "is no list", "write {list = [1, 2]}");
      return {Form::kList, "", 0, false, Values(*list->as_array(), key, takes_inputs, depth + 1)};
    }
    if (node.is_string() && takes_inputs && IsInput(**node.as_string()))
      return {Form::kInput, **node.as_string(), 0, false, {}};
    if (!node.is_integer() && !node.is_string())
      section_.FailType(node, key, "a number, true or false, an expression in quotes or an array");
    const std::string text = node.is_integer() ? std::to_string(**node.as_integer()) : **node.as_string();
    for (const auto& [size, symbols] : problem_.sizes) {
      const ExpressionResult result = TryEvaluateExpression(text, symbols);
      if (!result.error.empty())
        section_.Fail(node.source(), key, result.error, "size symbols are defined in the [sizes.*] tables");
    }
    return {Form::kInteger, text, 0, false, {}};
  }

  bool IsInput(const std::string& name) const {
    return std::any_of(problem_.inputs.begin(), problem_.inputs.end(),
                       [&](const TensorSpec& input) { return !input.is_param && input.name == name; });
  }

  void ReadArguments() {
    facts_.arguments = section_.Strings("arguments");
    if (facts_.arguments.size() != facts_.init.size())
      section_.Fail(
          "arguments",
          fmt::format("{} names for {} values of init", facts_.arguments.size(), facts_.init.size()),
          "name each value, or remove the key");
    std::set<std::string> names;
    for (const std::string& name : facts_.arguments) {
      if (const std::string reason = WhyNoName(name); !reason.empty())
        section_.Fail("arguments", reason, "it names an argument in Python");
      if (!names.insert(name).second)
        section_.Fail("arguments", fmt::format("'{}' is used twice", name), "names must differ");
    }
  }

  void ReadForward() {
    if (section_.Has("forward")) {
      facts_.forward = Values("forward");
    } else {
      for (const TensorSpec& input : problem_.inputs) {
        if (!input.is_param) facts_.forward.push_back({Form::kInput, input.name, 0, false, {}});
      }
    }
    std::set<std::string> named;
    for (const ModelValue& value : facts_.forward) {
      if (value.form == Form::kInput && !named.insert(value.text).second)
        section_.Fail("forward", fmt::format("has '{}' twice", value.text), "each input at most once");
    }
    for (const TensorSpec& input : problem_.inputs) {
      if (!input.is_param && !named.contains(input.name)) facts_.drawn.push_back(input.name);
    }
  }

  void ReadSizes() {
    facts_.sizes = section_.Strings("sizes");
    for (const std::string& size : facts_.sizes) RequireSize("sizes", size);
    if (facts_.sizes.empty())
      section_.Fail("sizes", "must not be empty", "remove [model] if its parameters never have these shapes");
  }

  void ReadFirstShapes() {
    facts_.first_shapes = section_.String("first_shapes");
    RequireSize("first_shapes", facts_.first_shapes);
    if (HasSize(problem_, kFirstShapes))
      section_.Fail("first_shapes", fmt::format("there is a size '{}' too", kFirstShapes),
                    "remove one of them");
  }

  void RequireSize(const char* key, const std::string& size) {
    if (!HasSize(problem_, size))
      section_.Fail(key, fmt::format("there is no size '{}'", size), "name a [sizes.*] table");
  }

  void CheckStateName(const TomlSection& section, std::string_view key, const std::string& name) {
    if (!IsStateName(name))
      section.Fail(key, fmt::format("'{}' is no name of a state_dict()", name.substr(0, kMostStateNameBytes)),
                   "identifiers with dots between them, such as layers.0.weight");
    if (!states_.insert(name).second)
      section.Fail(key, fmt::format("'{}' is used twice", name), "each parameter of the model once");
  }

  void ReadParameters() {
    if (section_.Has("parameters")) {
      const TomlSection table = section_.Table("parameters");
      for (const auto& [key, node] : table.table()) {
        const std::string name(key.str());
        const auto found = std::find_if(problem_.inputs.begin(), problem_.inputs.end(),
                                        [&](const TensorSpec& input) { return input.name == name; });
        if (found == problem_.inputs.end() || !found->is_param)
          table.Fail(name, "is no parameter of this problem", "name the inputs with role = \"param\"");
        const std::string state = table.String(name);
        CheckStateName(table, name, state);
        facts_.parameters[name] = state;
      }
    }
    for (const TensorSpec& input : problem_.inputs) {
      if (input.is_param && !facts_.parameters.contains(input.name))
        section_.FailHere(fmt::format("the parameter '{}' has no name in the model", input.name),
                          "add it to model.parameters");
    }
  }

  const TomlSection& section_;
  const Problem& problem_;
  ModelFacts facts_;
  std::set<std::string> states_;
};

void AppendText(const ModelValue& value, std::string* text) {
  *text += fmt::format("{} {} {} {}[", static_cast<int>(value.form), value.text, value.number, value.flag);
  for (const ModelValue& item : value.items) AppendText(item, text);
  *text += "]\n";
}

}  // namespace

ModelFacts ReadModelFacts(const TomlSection& section, const Problem& problem) {
  return ModelReader(section, problem).Read();
}

bool ModelFitsSize(const Problem& problem, const std::string& size) {
  if (!problem.model) return false;
  const std::vector<std::string>& sizes = problem.model->sizes;
  if (sizes.empty()) return true;
  return std::any_of(sizes.begin(), sizes.end(), [&](const std::string& name) {
    return size == name || size.starts_with(name + "/");  // a shape of a set
  });
}

std::string SizeOfFirstShapes(const Problem& problem) {
  if (HasSize(problem, kFirstShapes)) return kFirstShapes;
  return problem.model ? problem.model->first_shapes : "";
}

std::string PythonText(const ModelValue& value, const Symbols& symbols) {
  std::vector<std::string> items;
  for (const ModelValue& item : value.items) items.push_back(PythonText(item, symbols));
  switch (value.form) {
    case Form::kInteger:
      return std::to_string(EvaluateExpression(value.text, symbols));
    case Form::kFloat: {
      const std::string text = fmt::format("{}", value.number);
      return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    }
    case Form::kBool:
      return value.flag ? "True" : "False";
    case Form::kTuple:
      return fmt::format("({}{})", fmt::join(items, ", "), items.size() == 1 ? "," : "");
    case Form::kList:
      return fmt::format("[{}]", fmt::join(items, ", "));
    case Form::kInput:
      return value.text;
  }
  return "";
}

std::string PythonInit(const ModelFacts& facts, const Symbols& symbols) {
  return PythonText({Form::kList, "", 0, false, facts.init}, symbols);
}

std::string HashFor(const Problem& problem, const std::string& kind) {
  if (!problem.model || !IsPython(kind)) return problem.content_hash;
  // The names of arguments are for people, `drawn` follows from `forward`, and the size judged at is in the key itself.
  std::string text = problem.content_hash + "\n";
  for (const ModelValue& value : problem.model->init) AppendText(value, &text);
  text += "forward\n";
  for (const ModelValue& value : problem.model->forward) AppendText(value, &text);
  for (const auto& [name, state] : problem.model->parameters) text += name + "=" + state + "\n";
  text += fmt::format("unused {}\nsizes {}\n", fmt::join(problem.model->unused, " "),
                      fmt::join(problem.model->sizes, " "));
  return Sha256Hex(text);
}

}  // namespace kevin
