#include "env/import/problem_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kStrictDivisor = 64;  // as for the norms that ship: their terms are of about one size

std::string Escaped(const std::string& text, bool keep_lines) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') {
      escaped += std::string("\\") + c;
    } else if ((c == '\n' && keep_lines) || c == '\t' || static_cast<unsigned char>(c) >= 0x20) {
      escaped += c;
    } else {
      escaped += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

std::string Quoted(const std::string& text) { return "\"" + Escaped(text, false) + "\""; }

// Literal where TOML can hold it so; Python's own triple quotes and odd characters are escaped.
std::string Lines(std::string text) {
  std::erase(text, '\r');
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const bool plain =
      text.find("'''") == std::string::npos && std::all_of(text.begin(), text.end(), [](char c) {
        return c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20;
      });
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
  return input.at("role") == "input" && input.at("dtype") == "float32" &&
         (distribution == "uniform01" || distribution == "uniform" || distribution == "normal");
}

std::string InputText(const json& input, Hardness hardness) {
  std::string text =
      fmt::format("\n[[inputs]]\nname = {}\nshape = {}\ndtype = {}\n", Quoted(input.at("name")),
                  ShapeText(input.at("shape")), Quoted(input.at("dtype")));
  if (hardness != Hardness::kAsGiven && IsDrawnFloat(input)) return text + "distribution = \"mixture\"\n";
  text += fmt::format("distribution = {}\n", Quoted(input.at("distribution")));
  if (input.contains("values")) text += fmt::format("values = {}\n", Quoted(input.at("values")));
  if (input.value("scale", 1.0) != 1.0) text += fmt::format("scale = {:#}\n", input["scale"].get<double>());
  if (input.value("offset", 0.0) != 0.0)
    text += fmt::format("offset = {:#}\n", input["offset"].get<double>());
  if (input.at("role") == "param") text += "role = \"param\"\n";
  return text;
}

std::string CheckText(const json& check, Hardness hardness) {
  std::string reduction = check.at("reduction");
  if (hardness == Hardness::kMixtureStrict)
    reduction = fmt::format("({}) / {} + 1", reduction, kStrictDivisor);
  std::string text = fmt::format("\n[check]\nreduction = {}\n", Quoted(reduction));
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
  return text + CheckText(found.at("check"), problem.hardness);
}

}  // namespace kevin
