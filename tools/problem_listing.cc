#include "tools/problem_listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "agent/json.h"
#include "env/problem/precision.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

using Cells = std::vector<std::string>;

// `small` first, as the default, then the others by name; the shapes of a set in its order.
std::vector<SizedProblem> Sizes(const Problem& problem, const std::string& size) {
  std::vector<SizedProblem> sizes;
  if (!size.empty()) {
    for (const WeightedShape& shape : ShapesOf(problem, size)) sizes.push_back(AtSize(problem, shape.size));
    return sizes;
  }
  std::set<std::string> in_sets, names;
  for (const auto& [set, shapes] : problem.shape_sets) {
    names.insert(set);
    for (const WeightedShape& shape : shapes) in_sets.insert(shape.size);
  }
  for (const auto& [name, symbols] : problem.sizes) {
    if (!in_sets.contains(name)) names.insert(name);
  }
  if (names.contains("small")) sizes = Sizes(problem, "small");
  for (const std::string& name : names) {
    if (name == "small") continue;
    const std::vector<SizedProblem> more = Sizes(problem, name);
    sizes.insert(sizes.end(), more.begin(), more.end());
  }
  return sizes;
}

// A line for each set with several shapes, under a heading; "" when there is none.
std::string ShapeSetsText(const Problem& problem) {
  std::string text;
  for (const auto& [set, shapes] : problem.shape_sets) {
    std::vector<std::string> items;
    for (const auto& [size, weight] : shapes) items.push_back(fmt::format("{} (weight {:g})", size, weight));
    text += fmt::format("  {}  {}\n", set, fmt::join(items, ", "));
  }
  if (text.empty()) return "";
  return "\nSize sets with several shapes: a candidate is correct at all of them, the speed-up is the weighted geometric "
         "mean\n" +
         text;
}

std::string Shape(const ConcreteTensor& tensor) {
  return tensor.shape.empty() ? "scalar" : fmt::format("{}", fmt::join(tensor.shape, "x"));
}

// "16x64x64x64 + 2 params -> 16x64x64x64"
std::string ShapeSummary(const SizedProblem& sized) {
  std::string text;
  int params = 0;
  for (const ConcreteTensor& input : sized.inputs) {
    if (input.spec.is_param) {
      ++params;
    } else {
      text += Shape(input) + ' ';
    }
  }
  if (params > 0) text += fmt::format("+ {} param{} ", params, params > 1 ? "s" : "");
  text += "->";
  for (const ConcreteTensor& output : sized.outputs) {
    text += ' ' + Shape(output) + (output.spec.is_inout ? " (in place)" : "");
  }
  return text;
}

std::string Rounded(double value, const char* unit) {
  constexpr std::pair<double, const char*> kScales[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, prefix] : kScales) {
    if (value >= scale) return fmt::format("{:.3g} {}{}", value / scale, prefix, unit);
  }
  return fmt::format("{:.3g} {}", value, unit);
}

std::string BlockText(const Problem& problem) {
  if (!HasParamBlock(problem)) return "";
  const auto first = std::find_if(problem.inputs.begin(), problem.inputs.end(),
                                  [](const TensorSpec& input) { return input.is_param; });
  return fmt::format(
      "  {} holds the parameters in the file's order, each from the next multiple of {} elements on;\n"
      "  constants in scope say where, in elements: {}, ...\n",
      kParamBlockName, kParamAlignment, OffsetName(first->name));
}

void AddTensorRows(const std::vector<SizedProblem>& sizes, bool is_output, std::vector<Cells>* rows) {
  const std::vector<ConcreteTensor>& first = is_output ? sizes[0].outputs : sizes[0].inputs;
  for (size_t i = 0; i < first.size(); ++i) {
    const TensorSpec& spec = first[i].spec;
    if (is_output && spec.is_inout) continue;  // stands among the inputs
    Cells row = {spec.name,
                 is_output       ? "output"
                 : spec.is_inout ? "inout"
                 : spec.is_param ? "param"
                                 : "input",
                 DTypeName(spec.dtype), is_output ? "" : DistributionName(spec.distribution)};
    if (!spec.scale_text.empty() && !is_output) {
      row.back() += " * " + spec.scale_text;
    } else if (spec.scale != 1) {
      row.back() += fmt::format(" * {:g}", spec.scale);
    }
    if (spec.structure != Structure::kNone) row.back() += fmt::format(", {}", StructureName(spec.structure));
    if (spec.offset != 0)
      row.back() += fmt::format(" {} {:g}", spec.offset < 0 ? '-' : '+', std::abs(spec.offset));
    if (spec.row_shift != 0) row.back() += fmt::format(", rows +- {:g}", spec.row_shift);
    for (const SizedProblem& sized : sizes)
      row.push_back(Shape(is_output ? sized.outputs[i] : sized.inputs[i]));
    rows->push_back(std::move(row));
  }
}

void AddCostRow(const std::vector<SizedProblem>& sizes, const char* name, const std::string& expression,
                double SizedProblem::*value, const char* unit, std::vector<Cells>* rows) {
  Cells row = {name, expression};
  for (const SizedProblem& sized : sizes) row.push_back(Rounded(sized.*value, unit));
  rows->push_back(std::move(row));
}

Json TensorJson(const std::vector<SizedProblem>& sizes,
                const std::vector<ConcreteTensor> SizedProblem::*tensors, size_t i) {
  const TensorSpec& spec = (sizes[0].*tensors)[i].spec;
  Json shape = Json::object();
  for (const SizedProblem& sized : sizes) shape[sized.size] = (sized.*tensors)[i].shape;
  return {{"name", spec.name}, {"dtype", DTypeName(spec.dtype)}, {"shape", shape}};
}

// Constructor arguments per size as Python writes them; null without facts.
Json ModelJson(const std::vector<SizedProblem>& sizes) {
  const Problem& problem = *sizes.front().problem;
  if (!problem.model) return nullptr;
  const ModelFacts& facts = *problem.model;
  Json init = Json::object(), forward = Json::array();
  for (const SizedProblem& sized : sizes) {
    if (ModelFitsSize(problem, sized.size)) init[sized.size] = PythonInit(facts, sized.symbols);
  }
  for (const ModelValue& value : facts.forward) forward.push_back(PythonText(value, sizes.front().symbols));
  return {
      {"arguments", facts.arguments},   {"init", init},          {"forward", forward}, {"drawn", facts.drawn},
      {"parameters", facts.parameters}, {"unused", facts.unused}};
}

}  // namespace

std::string ProblemTable(const std::vector<Problem>& problems, const std::string& size) {
  std::vector<std::string> columns;  // the size sets of all problems
  std::vector<std::pair<const Problem*, std::vector<SizedProblem>>> listed;
  for (const Problem& problem : problems) {
    listed.emplace_back(&problem, Sizes(problem, size));
    for (const SizedProblem& sized : listed.back().second) {
      if (std::find(columns.begin(), columns.end(), sized.size) == columns.end())
        columns.push_back(sized.size);
    }
  }
  std::vector<Cells> rows = {{"id", "name", "families", "dtype"}};
  rows[0].insert(rows[0].end(), columns.begin(), columns.end());
  for (const auto& [problem, sizes] : listed) {
    Cells row = {problem->id, problem->name, fmt::format("{}", fmt::join(problem->families, " ")),
                 DTypeName(DTypeOf(PrecisionOf(*problem)))};
    for (const std::string& column : columns) {
      const auto sized = std::find_if(sizes.begin(), sizes.end(), [&](const SizedProblem& candidate) {
        return candidate.size == column;
      });
      row.push_back(sized == sizes.end() ? "" : ShapeSummary(*sized));
    }
    rows.push_back(std::move(row));
  }
  return AlignedTable(rows);
}

std::string ProblemDetails(const Problem& problem, const std::string& size) {
  const std::vector<SizedProblem> sizes = Sizes(problem, size);
  std::vector<std::string> symbols;
  for (const auto& [symbol, value] : problem.sizes.begin()->second) symbols.push_back(symbol);
  std::string text = fmt::format("{}  {}\n\n", problem.id, problem.name);
  std::vector<Cells> facts = {{"families", fmt::format("{}", fmt::join(problem.families, ", "))},
                              {"file", problem.path.string()}};
  for (const auto& [flag, reason] : problem.flags) facts.push_back({flag, reason});
  text += AlignedTable(facts);
  const size_t begin = problem.reference.find_first_not_of('\n');
  text += fmt::format("\nReference\n{}", problem.reference.substr(begin));
  if (text.back() != '\n') text += '\n';
  text += fmt::format(
      "\nA candidate defines (size symbols {} are constants in scope)\n  cpp   {}\n  cuda  {}\n{}\n",
      symbols.empty() ? "none" : fmt::format("{}", fmt::join(symbols, ", ")), LaunchSignature(problem),
      LaunchSignature(problem, "cuda"), BlockText(problem));

  std::vector<Cells> tensors = {{"tensor", "role", "dtype", "values"}};
  std::vector<Cells> costs = {{"cost", "formula"}};
  for (const SizedProblem& sized : sizes) {
    tensors[0].push_back(sized.size);
    costs[0].push_back(sized.size);
  }
  AddTensorRows(sizes, false, &tensors);
  AddTensorRows(sizes, true, &tensors);
  AddCostRow(sizes, "flops", problem.flops, &SizedProblem::flops, "FLOP", &costs);
  AddCostRow(sizes, "bytes", problem.bytes, &SizedProblem::bytes, "B", &costs);
  AddCostRow(sizes, "min_flops", problem.min_flops, &SizedProblem::min_flops, "FLOP", &costs);
  AddCostRow(sizes, "min_bytes", problem.min_bytes, &SizedProblem::min_bytes, "B", &costs);
  return text + AlignedTable(tensors) + '\n' + AlignedTable(costs) + ShapeSetsText(problem);
}

nlohmann::ordered_json ProblemJson(const Problem& problem, const std::string& size) {
  const std::vector<SizedProblem> sizes = Sizes(problem, size);
  Json inputs = Json::array(), params = Json::array(), outputs = Json::array();
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const bool is_param = problem.inputs[i].is_param;
    Json& tensor = (is_param ? params : inputs).emplace_back(TensorJson(sizes, &SizedProblem::inputs, i));
    if (problem.inputs[i].is_inout) tensor["inout"] = true;
    if (!is_param || !HasParamBlock(problem)) continue;
    for (const SizedProblem& sized : sizes)
      tensor["offset"][sized.size] = sized.symbols.at(OffsetName(problem.inputs[i].name));
  }
  for (size_t i = 0; i < OwnOutputs(problem); ++i) {
    outputs.push_back(TensorJson(sizes, &SizedProblem::outputs, i));
  }
  Json flags = Json::array();
  for (const auto& [flag, reason] : problem.flags) flags.push_back(flag);
  Json flops = Json::object(), bytes = Json::object();
  for (const SizedProblem& sized : sizes) {
    flops[sized.size] = static_cast<int64_t>(sized.flops);
    bytes[sized.size] = static_cast<int64_t>(sized.bytes);
  }
  Json shape_sets = Json::object();
  for (const auto& [set, shapes] : problem.shape_sets) {
    for (const auto& [shape, weight] : shapes)
      shape_sets[set].push_back({{"size", shape}, {"symbols", problem.sizes.at(shape)}, {"weight", weight}});
  }
  const auto of_python = [&](const char* kind) {  // null: no such candidate can solve it
    return HasInOuts(problem) ? Json() : Json(LaunchSignature(problem, kind));
  };
  const Json signature = {{"cpp", LaunchSignature(problem)},
                          {"cuda", LaunchSignature(problem, "cuda")},
                          {"modelnew", of_python("modelnew")},
                          {"triton", of_python("triton")}};
  return {{"event", "problem"},
          {"id", problem.id},
          {"name", problem.name},
          {"families", problem.families},
          {"precision", PrecisionName(PrecisionOf(problem))},
          {"flags", flags},
          {"signature", signature},
          {"inputs", inputs},
          {"params", params},
          {"outputs", outputs},
          {"flops", flops},
          {"bytes", bytes},
          {"shape_sets", shape_sets},
          {"model", ModelJson(sizes)}};
}

}  // namespace kevin
