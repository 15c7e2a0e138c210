#include "policies/search/graph.h"

#include <set>
#include <string>

namespace kevin::search {
namespace {

using nlohmann::json;

constexpr int kReadableVersion = 1;
constexpr size_t kMaxGraphText = size_t{256} << 20, kMaxRank = 64, kMaxListDepth = 4,
                 kMaxListLength = 1 << 20;
constexpr int kMaxDepth = 32;
constexpr int64_t kMaxTrip = int64_t{1} << 31, kMaxGraphElements = int64_t{1} << 62;

[[noreturn]] void Bad(const std::string& what) {
  throw Error(ExitCode::kBadRequest, "the graph of the reference is not valid: " + what,
              "clear Kevin's cache and try again");
}

const json& Member(const json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) Bad(std::string("`") + name + "` is missing");
  return object.at(name);
}

const json& ListIn(const json& object, const char* name) {
  const json& list = Member(object, name);
  if (!list.is_array()) Bad(std::string("`") + name + "` is no list");
  return list;
}

std::string TextIn(const json& object, const char* name) {
  const json& text = Member(object, name);
  if (!text.is_string()) Bad(std::string("`") + name + "` is no text");
  return text;
}

bool IsGraphDType(const std::string& name) {
  static const std::set<std::string> kNames = {"float32", "float16", "bfloat16",  "float64",
                                               "int64",   "int32",   "int16",     "int8",
                                               "uint8",   "bool",    "complex64", "complex128"};
  return kNames.count(name) != 0;
}

GraphValue ValueOf(const json& from) {
  GraphValue value;
  value.dtype = TextIn(from, "dtype");
  if (!IsGraphDType(value.dtype)) Bad("there is no dtype " + value.dtype.substr(0, 40));
  if (ListIn(from, "shape").size() > kMaxRank) Bad("a value has too many dimensions");
  int64_t elements = 1;
  for (const json& size : ListIn(from, "shape")) {
    if (!size.is_number_integer() || size.get<int64_t>() < 0) Bad("a size is no number");
    value.shape.push_back(size);
    if (size.get<int64_t>() != 0 && elements > kMaxGraphElements / size.get<int64_t>())
      Bad("a value is too large");
    if (size.get<int64_t>() != 0) elements *= size.get<int64_t>();
  }
  return value;
}

// Before it is parsed: a callback of the parser takes as long as the parsing.
bool IsNestedTooDeeply(const std::string& text) {
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      do {
        at += at < text.size() && text[at] == '\\' ? 2 : 1;
      } while (at < text.size() && text[at] != '"');
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

class Reader {
 public:
  Graph Read(const json& from) {
    if (Member(from, "version") != kReadableVersion) Bad("it has another format");
    for (const json& value : ListIn(from, "values")) graph_.values.push_back(ValueOf(value));
    is_made_.assign(graph_.values.size(), false);
    is_in_scope_ = is_made_;
    for (const json& input : ListIn(from, "inputs"))
      graph_.inputs.push_back({TextIn(input, "name"), Make(Member(input, "value"))});
    for (const json& node : ListIn(from, "nodes")) graph_.nodes.push_back(Node(node, false));
    for (const json& output : ListIn(from, "outputs")) graph_.outputs.push_back(Use(output));
    return std::move(graph_);
  }

 private:
  int Number(const json& value) const {
    if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
        value.get<uint64_t>() >= graph_.values.size())
      Bad("there is no value " + value.dump().substr(0, 40));
    return value;
  }

  int Use(const json& value) const {
    const int number = Number(value);
    if (!is_in_scope_[number]) Bad("value " + std::to_string(number) + " is used before it is made");
    return number;
  }

  int Make(const json& value) {
    const int number = Number(value);
    if (is_made_[number]) Bad("value " + std::to_string(number) + " is made twice");
    is_made_[number] = is_in_scope_[number] = true;
    return number;
  }

  GraphNode Node(const json& from, bool in_body) {
    GraphNode node;
    node.op = TextIn(from, "op");
    node.args = Member(from, "args");
    if (!node.args.is_object()) Bad("`args` is no object");
    for (const json& arg : node.args) CheckArgument(arg, in_body, 0);
    if (node.op == "loop") {
      if (in_body) Bad("a loop is in a loop");
      ReadLoop(from, &node);
    }
    for (const json& result : ListIn(from, "results")) node.results.push_back(Make(result));
    return node;
  }

  void CheckArgument(const json& arg, bool in_body, size_t depth) const {
    if (arg.is_array()) {
      if (depth >= kMaxListDepth || arg.size() > kMaxListLength) Bad("an argument is too long");
      for (const json& element : arg) CheckArgument(element, in_body, depth + 1);
    } else if (arg.is_object()) {
      CheckObject(arg, in_body);
    }
  }

  void CheckObject(const json& arg, bool in_body) const {
    if (arg.size() == 1 && arg.contains("tensor")) {
      Use(arg.at("tensor"));
    } else if (arg.size() == 1 && arg.contains("tensors")) {
      for (const json& element : ListIn(arg, "tensors")) {
        if (!element.is_null()) Use(element);
      }
    } else if (arg.size() == 1 && arg.contains("float")) {
      const std::string text = TextIn(arg, "float");
      if (text != "inf" && text != "-inf" && text != "nan") Bad("an argument is no number");
    } else if (!in_body || arg.size() != 2 || !Member(arg, "base").is_number_integer() ||
               !Member(arg, "step").is_number_integer()) {
      Bad("an argument has an unknown form");
    }
  }

  // The values of the body are in scope in it alone.
  void ReadLoop(const json& from, GraphNode* node) {
    const json& trip = Member(node->args, "trip");
    if (!trip.is_number_integer() || trip.get<int64_t>() < 1 || trip.get<int64_t>() > kMaxTrip)
      Bad("a loop has no number of iterations");
    const std::vector<bool> outside = is_in_scope_;
    for (const json& carried : ListIn(from, "carried")) {
      if (!carried.is_array() || carried.size() != 4) Bad("`carried` is no list of four values");
      const int init = carried[0].is_null() ? -1 : Use(carried[0]);
      const int param = carried[1].is_null() ? -1 : Make(carried[1]);
      if ((init < 0) != (param < 0)) Bad("a carried value has no start");
      node->carried.push_back({init, param, -1, -1});
    }
    for (const json& inner : ListIn(from, "body")) node->body.push_back(Node(inner, true));
    for (size_t i = 0; i < node->carried.size(); ++i) {
      auto& [init, param, next, result] = node->carried[i];
      next = Use(from.at("carried")[i][2]);
      if (param >= 0 && (!IsLike(init, param) || !IsLike(next, param)))
        Bad("a carried value changes its shape");
    }
    std::set<int> results;
    for (const json& result : ListIn(from, "results")) results.insert(Number(result));
    for (const json& stacked : ListIn(from, "stacked")) {
      if (!stacked.is_array() || stacked.size() != 2) Bad("`stacked` is no list of two values");
      node->stacked.push_back({Use(stacked[0]), Result(stacked[1], &results)});
      CheckStacked(node->stacked.back(), trip);
    }
    for (size_t i = 0; i < node->carried.size(); ++i) {
      const json& result = from.at("carried")[i][3];
      node->carried[i][3] = result.is_null() ? -1 : Result(result, &results);
      if (!result.is_null() && !IsLike(node->carried[i][3], node->carried[i][2]))
        Bad("a carried value changes its shape");
    }
    if (!results.empty()) Bad("a loop has a result that nothing makes");
    is_in_scope_ = outside;
  }

  int Result(const json& value, std::set<int>* results) const {
    const int number = Number(value);
    if (results->erase(number) != 1) Bad("a loop makes what is not its result");
    return number;
  }

  bool IsLike(int a, int b) const {
    return graph_.values[a].dtype == graph_.values[b].dtype &&
           graph_.values[a].shape == graph_.values[b].shape;
  }

  void CheckStacked(const std::array<int, 2>& stacked, int64_t trip) const {
    std::vector<int64_t> shape = graph_.values[stacked[0]].shape;
    shape.insert(shape.begin(), trip);
    if (graph_.values[stacked[1]].shape != shape) Bad("a stacked value has another shape");
  }

  Graph graph_;
  std::vector<bool> is_made_, is_in_scope_;
};

}  // namespace

Graph ParseGraph(const std::string& text) {
  if (text.size() > kMaxGraphText) Bad("it is too long");
  if (IsNestedTooDeeply(text)) Bad("it is nested too deeply");
  const json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded()) Bad("it is no JSON");
  return Reader().Read(parsed);
}

}  // namespace kevin::search
