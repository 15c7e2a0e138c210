#include "env/problem/size_sets.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "env/problem/problem_names.h"

namespace kevin {
namespace {

constexpr std::string_view kWeight = "weight";

double ReadWeight(const TomlSection& shape) {
  const double weight = shape.Number(kWeight, 1);
  if (weight <= 0) {
    shape.Fail(kWeight, fmt::format("must be above 0, not {:g}", weight),
               "it is what this shape counts beside the others; leave out a shape that does not");
  }
  return weight;
}

// All keys but `other` are symbols.
Symbols ReadSymbols(const TomlSection& size, std::string_view other) {
  Symbols symbols;
  for (const auto& [symbol, value] : size.table()) {
    if (symbol.str() == other) continue;
    const std::string key = size.Key(symbol.str());
    if (const std::string reason = WhyNoName(symbol.str()); !reason.empty()) {
      size.Fail(symbol.source(), key, reason, "choose another name");
    }
    const int64_t number = size.Integer(symbol.str());
    if (number < 1)
      size.Fail(symbol.str(), fmt::format("must be positive, not {}", number), "sizes start at 1");
    symbols[std::string(symbol.str())] = number;
  }
  return symbols;
}

// As those of the first size read; `size` is another.
void CheckSameSymbols(const std::pair<const std::string, Symbols>& first, const TomlSection& size,
                      const Symbols& symbols) {
  const auto complain = [&](const std::string& reason) {
    size.FailHere(reason, "every size set, and every shape of one, gives a value to the same symbols");
  };
  for (const auto& [symbol, value] : first.second) {
    if (symbols.contains(symbol)) continue;
    if (size.Has(symbol)) {
      size.Fail(symbol, fmt::format("is what the shape counts here, and a symbol in sizes.{}", first.first),
                "rename the symbol");
    }
    complain(fmt::format("'{}' is missing (sizes.{} has it)", symbol, first.first));
  }
  for (const auto& [symbol, value] : symbols) {
    if (!first.second.contains(symbol)) complain(fmt::format("'{}' is not in sizes.{}", symbol, first.first));
  }
}

void AddSize(const TomlSection& size, const std::string& name, const Symbols& symbols, Problem* problem) {
  if (!problem->sizes.empty()) CheckSameSymbols(*problem->sizes.begin(), size, symbols);
  if (problem->sizes.emplace(name, symbols).second) return;
  size.FailHere("the name is taken by a shape of a size set", "choose another name");
}

void ReadShapes(const TomlSection& sizes, const std::string& name, Problem* problem) {
  const std::vector<TomlSection> tables = sizes.Tables(name);
  if (tables.size() > kMaxShapes) {
    sizes.Fail(name, fmt::format("has {} shapes, more than {}", tables.size(), kMaxShapes),
               "a candidate is compiled, checked and timed at each; leave some out");
  }
  std::vector<WeightedShape> shapes;
  for (const TomlSection& table : tables) {
    const std::string size = tables.size() == 1 ? name : fmt::format("{}/{}", name, shapes.size() + 1);
    const TomlSection shape = table.Named(sizes.Key(size));
    const double weight = ReadWeight(shape);
    const Symbols symbols = ReadSymbols(shape, kWeight);
    for (const WeightedShape& earlier : shapes) {
      if (problem->sizes.at(earlier.size) != symbols) continue;
      shape.FailHere(fmt::format("is the same shape as {}", earlier.size),
                     "leave it out, and add its weight to that one's");
    }
    AddSize(shape, size, symbols, problem);
    shapes.push_back({size, weight});
  }
  if (shapes.size() > 1) problem->shape_sets[name] = std::move(shapes);
}

}  // namespace

void ReadSizeSets(const TomlSection& sizes, Problem* problem) {
  for (const auto& [key, node] : sizes.table()) {
    const std::string name(key.str());
    if (node.is_array()) {
      ReadShapes(sizes, name, problem);
    } else {
      const TomlSection size = sizes.Table(name);
      AddSize(size, name, ReadSymbols(size, ""), problem);
    }
  }
  if (problem->sizes.empty()) sizes.FailHere("must not be empty", "add a [sizes.small] table");
}

}  // namespace kevin
