#include "policies/search/graph.h"

namespace kevin::search {
namespace {
GraphNode NodeOf(const nlohmann::json& json) {
  GraphNode node;
  node.op = json.at("op").get<std::string>();
  if (json.contains("args")) node.args = json.at("args");
  for (const auto& r : json.at("results")) node.results.push_back(r.is_number_integer() ? r.get<int>() : -1);
  if (json.contains("body"))
    for (const auto& b : json.at("body")) node.body.push_back(NodeOf(b));
  return node;
}
}  // namespace
Graph ParseGraph(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Graph graph;
  for (const auto& i : json.at("inputs"))
    graph.inputs.push_back({i.at("name").get<std::string>(), i.at("value").get<int>()});
  for (const auto& v : json.at("values"))
    graph.values.push_back({v.at("dtype").get<std::string>(), v.at("shape").get<std::vector<int64_t>>()});
  for (const auto& n : json.at("nodes")) graph.nodes.push_back(NodeOf(n));
  graph.outputs = json.at("outputs").get<std::vector<int>>();
  return graph;
}
}  // namespace kevin::search
