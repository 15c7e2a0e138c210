// The arguments of a graph's node, read by their names in torch's schema.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

double NumberOf(const nlohmann::json& arg, const GraphNode& node, const char* name) {
  if (arg.is_number()) return arg.get<double>();
  if (arg.is_boolean()) return arg.get<bool>() ? 1 : 0;
  if (arg.is_object() && arg.contains("float")) {
    const std::string text = arg["float"].get<std::string>();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    return std::numeric_limits<double>::quiet_NaN();
  }
  throw Unsupported(fmt::format("`{}` of `{}` is not a number that is known beforehand", name, node.op));
}

}  // namespace

bool Lowering::Has(const GraphNode& node, const char* name) const {
  return node.args.contains(name) && !node.args[name].is_null();
}

ValuePtr Lowering::OptionalTensor(const GraphNode& node, const char* name) {
  return Has(node, name) ? Tensor(node, name) : nullptr;
}

ValuePtr Lowering::Tensor(const GraphNode& node, const char* name) {
  if (!Has(node, name)) throw Unsupported(fmt::format("`{}` lacks its argument `{}`", node.op, name));
  const nlohmann::json& arg = node.args[name];
  if (arg.is_object() && arg.contains("tensor")) {
    const auto found = values_.find(arg["tensor"].get<int>());
    if (found == values_.end() || !found->second)
      throw Unsupported(fmt::format("`{}` of `{}` is a result that is not computed", name, node.op));
    return found->second;
  }
  const double value = NumberOf(arg, node, name);
  return Constant(value, arg.is_number_integer() ? "int64" : arg.is_boolean() ? "bool" : "float32");
}

std::vector<ValuePtr> Lowering::Tensors(const GraphNode& node, const char* name) {
  std::vector<ValuePtr> values;
  if (!Has(node, name)) return values;
  const nlohmann::json& arg = node.args[name];
  for (const auto& one : arg.is_object() ? arg.at("tensors") : arg) {
    const nlohmann::json& number = one.is_object() ? one.at("tensor") : one;
    values.push_back(number.is_null() ? nullptr : values_.at(number.get<int>()));
  }
  return values;
}

double Lowering::Number(const GraphNode& node, const char* name, double fallback) const {
  return Has(node, name) ? NumberOf(node.args[name], node, name) : fallback;
}

int64_t Lowering::Integer(const GraphNode& node, const char* name, int64_t fallback) const {
  if (!Has(node, name)) return fallback;
  if (node.args[name].is_number_integer()) return node.args[name].get<int64_t>();
  return static_cast<int64_t>(NumberOf(node.args[name], node, name));
}

bool Lowering::Flag(const GraphNode& node, const char* name, bool fallback) const {
  return Has(node, name) ? NumberOf(node.args[name], node, name) != 0 : fallback;
}

std::string Lowering::Word(const GraphNode& node, const char* name, const std::string& fallback) const {
  return Has(node, name) && node.args[name].is_string() ? node.args[name].get<std::string>() : fallback;
}

Shape Lowering::Integers(const GraphNode& node, const char* name) const {
  if (!Has(node, name)) return {};
  const nlohmann::json& arg = node.args[name];
  if (arg.is_number_integer()) return {arg.get<int64_t>()};
  if (!arg.is_array())
    throw Unsupported(fmt::format("`{}` of `{}` is not a list of integers", name, node.op));
  Shape list;
  for (const auto& one : arg) {
    if (!one.is_number_integer())
      throw Unsupported(fmt::format("`{}` of `{}` is not a list of integers", name, node.op));
    list.push_back(one.get<int64_t>());
  }
  return list;
}

Shape Lowering::IntegersFor(const GraphNode& node, const char* name, size_t rank, int64_t fallback) const {
  Shape list = Integers(node, name);
  if (list.empty()) list = {fallback};
  if (list.size() == 1) list.assign(rank, list[0]);
  if (list.size() != rank)
    throw Unsupported(fmt::format("`{}` of `{}` has not {} numbers", name, node.op, rank));
  return list;
}

std::vector<int> Lowering::Dims(const GraphNode& node, const char* name, size_t rank) const {
  std::vector<int> dims;
  if (rank == 0) return dims;  // of one element; torch takes 0 and -1
  for (const int64_t dim : Integers(node, name))
    dims.push_back(static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim));
  if (dims.empty()) {
    for (size_t i = 0; i < rank; ++i) dims.push_back(static_cast<int>(i));
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

const GraphValue& Lowering::ResultOf(const GraphNode& node, size_t at) const {
  return graph_.values.at(node.results.at(at));
}

void Lowering::Set(const GraphNode& node, const ValuePtr& value, size_t at) {
  const GraphValue& declared = ResultOf(node, at);
  // The shapes that torch infers are the contract: a disagreement is an error here, not a wrong kernel.
  if (value->shape != declared.shape) throw Unsupported("`" + node.op + "` in this form has no stage");
  if (value->dtype == declared.dtype) {
    values_[node.results[at]] = value;
    return;
  }
  const Type type = TypeOf(declared.dtype);
  ValuePtr converted = Lazy(
      declared.dtype, value->shape,
      [value, type](const Index& index) { return ToType(value->at(index), type); }, value->cost);
  if (TypeOf(value->dtype) == type) converted->buffer = -1;
  values_[node.results[at]] = converted;
}

}  // namespace kevin::search
