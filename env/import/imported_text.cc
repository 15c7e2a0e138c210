#include "env/import/imported_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "env/printable.h"

namespace kevin {

using nlohmann::json;

namespace {

constexpr double kShift =
    64;  // far from 0, where fewer bits are a larger error than the spread of the values
constexpr int kStrictDivisor = 64;  // like the norms that ship with Kevin: terms of about one magnitude

// Inside a basic string of TOML, or a comment.
std::string Escaped(const std::string& text, bool keep_lines) {
  std::string escaped;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character c = Utf8At(text, at);
    if (c.code == '\\' || c.code == '"') escaped += '\\';
    const bool stays = (c.code == '\n' && keep_lines) || c.code == '\t' || !IsHidden(c.code);
    if (!c.is_valid) {
      escaped += "\xef\xbf\xbd";
    } else if (stays) {
      escaped += text.substr(at, c.bytes);
    } else {
      escaped += c.code < 0x10000 ? fmt::format("\\u{:04x}", c.code) : fmt::format("\\U{:08x}", c.code);
    }
    at += c.bytes;
  }
  return escaped;
}

std::string Quoted(const std::string& text) { return "\"" + Escaped(text, false) + "\""; }

// A literal string if TOML permits it; else triple quotes and hidden characters are escaped.
std::string Lines(std::string text) {
  std::erase(text, '\r');
  while (!text.empty() && text.back() == '\n') text.pop_back();
  bool plain = text.find("'''") == std::string::npos;
  for (size_t at = 0; plain && at < text.size();) {
    const Utf8Character c = Utf8At(text, at);
    plain = c.is_valid && (!IsHidden(c.code) || c.code == '\n' || c.code == '\t');
    at += c.bytes;
  }
  return plain ? "'''\n" + text + "\n'''" : "\"\"\"\n" + Escaped(text, true) + "\n\"\"\"";
}

bool IsDigits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string ShapeText(const json& shape) {
  std::vector<std::string> dims;
  for (const std::string dim : shape) dims.push_back(IsDigits(dim) ? dim : Quoted(dim));
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

bool IsDrawnFloat(const json& input) {
  const std::string distribution = input.at("distribution");
  const std::string dtype = input.at("dtype");
  return input.at("role") != "param" && (dtype == "float32" || dtype == "float16" || dtype == "bfloat16") &&
         (distribution == "uniform01" || distribution == "uniform" || distribution == "normal");
}

std::string InputText(const json& input, Hardness hardness) {
  std::string text =
      fmt::format("\n[[inputs]]\nname = {}\nshape = {}\ndtype = {}\n", Quoted(input.at("name")),
                  ShapeText(input.at("shape")), Quoted(input.at("dtype")));
  if (input.at("role") != "input") text += fmt::format("role = {}\n", Quoted(input.at("role")));
  const bool shifted = hardness == Hardness::kShiftedStrict && IsDrawnFloat(input);
  if (hardness != Hardness::kAsGiven && !shifted && IsDrawnFloat(input))
    return text + "distribution = \"mixture\"\n";
  text += fmt::format("distribution = {}\n", Quoted(input.at("distribution")));
  if (input.contains("values")) text += fmt::format("values = {}\n", Quoted(input.at("values")));
  if (input.value("scale", 1.0) != 1.0) text += fmt::format("scale = {:#}\n", input["scale"].get<double>());
  const double offset = input.value("offset", 0.0) + (shifted ? kShift : 0.0);
  if (offset != 0.0) text += fmt::format("offset = {:#}\n", offset);
  return text;
}

std::string CheckText(const json& check, Hardness hardness) {
  std::string reduction = check.at("reduction");
  if (hardness == Hardness::kMixtureStrict || hardness == Hardness::kShiftedStrict)
    reduction = fmt::format("({}) / {} + 1", reduction, kStrictDivisor);
  std::string text = fmt::format("\n[check]\nreduction = {}\n", Quoted(reduction));
  if (check.contains("error_spread"))
    text += fmt::format("error_spread = {}\n", check["error_spread"].get<int>());
  if (check.contains("extreme_dim")) {
    text += fmt::format("extreme_dim = {}\nextreme_is_max = {}\n", check["extreme_dim"].get<int>(),
                        check.at("extreme_is_max").get<bool>());
  }
  return text;
}

std::string FlagsText(const json& found, const ImportedProblem& problem) {
  std::string text;
  for (const auto& [flag, reason] : found.at("flags").items())
    text += fmt::format("{} = {}\n", flag, Quoted(reason));
  if (!problem.hardened.empty()) text += fmt::format("degenerate-upstream = {}\n", Quoted(problem.hardened));
  if (!problem.rejection.empty()) text += fmt::format("inadmissible = {}\n", Quoted(problem.rejection));
  return text.empty() ? text : "\n[flags]\n" + text;
}

std::string ModuleText(const json& found) {
  const json module = found.value("module", json());
  if (!module.is_object() || found.value("source", "").empty()) return "";
  const std::string import = module.value("import", "");
  return fmt::format("\n[module]\nclass = {}\n{}details = {}\n", Quoted(module.at("class")),
                     import.empty() ? "" : fmt::format("import = {}\n", Quoted(import)),
                     Lines(module.at("details").dump()));
}

// A value of ModelFacts. {"input": name} is a string, as an expression would be.
std::string ModelValueText(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  if (value.is_number()) {
    const std::string text = fmt::format("{}", value.get<double>());
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  if (value.contains("input")) return Quoted(value.at("input"));
  const bool is_list = value.contains("list");
  std::vector<std::string> items;
  for (const json& item : value.at(is_list ? "list" : "tuple")) items.push_back(ModelValueText(item));
  return is_list ? fmt::format("{{list = [{}]}}", fmt::join(items, ", "))
                 : fmt::format("[{}]", fmt::join(items, ", "));
}

std::string ModelValuesText(const json& values) {
  std::vector<std::string> items;
  for (const json& value : values) items.push_back(ModelValueText(value));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string NamesText(const json& names) {
  std::vector<std::string> items;
  for (const std::string name : names) items.push_back(Quoted(name));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string ModelText(const json& found) {
  const json model = found.value("model", json());
  if (!model.is_object()) return "";
  std::string text = "\n[model]\n";
  if (!model.at("arguments").empty()) text += fmt::format("arguments = {}\n", NamesText(model["arguments"]));
  text += fmt::format("init = {}\nforward = {}\n", ModelValuesText(model.at("init")),
                      ModelValuesText(model.at("forward")));
  if (model.at("sizes").is_array()) text += fmt::format("sizes = {}\n", NamesText(model["sizes"]));
  if (!model.at("unused").empty()) text += fmt::format("unused = {}\n", NamesText(model["unused"]));
  if (model.at("parameters").empty()) return text;
  text += "\n[model.parameters]\n";
  for (const auto& [name, state] : model["parameters"].items())
    text += fmt::format("{} = {}\n", name, Quoted(state.get<std::string>()));
  return text;
}

std::string SymbolsText(const json& symbols) {
  std::string text;
  for (const auto& [symbol, value] : symbols.items())
    text += fmt::format("{} = {}\n", symbol, value.get<int64_t>());
  return text;
}

}  // namespace

bool CanBeHarder(const json& found) {
  const json& inputs = found.at("inputs");
  return std::any_of(inputs.begin(), inputs.end(), IsDrawnFloat);
}

std::string ImportedProblemText(const json& found, const ImportedProblem& problem) {
  std::vector<std::string> families;
  for (const std::string family : found.at("families")) families.push_back(Quoted(family));
  std::string text = fmt::format("# Made by `kevin import` from {}, with torch {}.\n",
                                 Escaped(problem.from, false), found.value("torch", "?"));
  if (!problem.remark.empty()) text += "# " + Escaped(problem.remark, false) + "\n";
  text += fmt::format("id = {}\nname = {}\nfamilies = [{}]\n\nreference = {}\n", Quoted(problem.id),
                      Quoted(problem.name), fmt::join(families, ", "), Lines(found.at("reference")));
  if (!found.value("source", "").empty()) text += fmt::format("\nsource = {}\n", Lines(found["source"]));
  text += ModuleText(found);
  text += FlagsText(found, problem);
  for (const auto& [size, symbols] : found.at("sizes").items())
    text += fmt::format("\n[sizes.{}]\n{}", size, SymbolsText(symbols));
  for (const json& shape : found.value("shapes", json::array())) {
    text += fmt::format("\n[[sizes.{}]]\n{}weight = {}\n", shape.at("set").get<std::string>(),
                        SymbolsText(shape.at("symbols")), shape.at("weight").get<double>());
  }
  for (const json& input : found.at("inputs")) text += InputText(input, problem.hardness);
  for (const json& output : found.at("outputs")) {
    text += fmt::format("\n[[outputs]]\nname = {}\nshape = {}\ndtype = {}\n", Quoted(output.at("name")),
                        ShapeText(output.at("shape")), Quoted(output.at("dtype")));
  }
  const json& cost = found.at("cost");
  text += fmt::format("\n[cost]\nflops = {}\nbytes = {}\nmin_flops = 0\nmin_bytes = {}\n",
                      Quoted(cost.at("flops")), Quoted(cost.at("bytes")), Quoted(cost.at("min_bytes")));
  return text + CheckText(found.at("check"), problem.hardness) + ModelText(found);
}

}  // namespace kevin
