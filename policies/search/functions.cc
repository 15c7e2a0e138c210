#include <fmt/format.h>

#include <map>
#include <set>

#include "policies/search/write.h"

namespace kevin::search {
namespace {

constexpr char kOpen = '\x01', kClose = '\x02';

// Replaces hole i by text(i).
template <class Text>
std::string FillHoles(const std::string& skeleton, const Text& text) {
  std::string filled;
  size_t hole = 0;
  for (const char c : skeleton) {
    if (c == kOpen) {
      filled += text(hole++);
    } else {
      filled += c;
    }
  }
  return filled;
}

}  // namespace

std::string Hole(int64_t value) { return kOpen + std::to_string(value) + kClose; }

size_t FunctionTable::Add(const std::string& name, const std::string& head, const std::string& body,
                          const std::vector<std::string>& parameters,
                          const std::vector<std::string>& arguments, const std::string& launch) {
  std::string skeleton;
  std::vector<int64_t> numbers;
  for (size_t at = 0; at < body.size(); ++at) {
    skeleton += body[at];
    if (body[at] != kOpen) continue;
    const size_t close = body.find(kClose, at);
    numbers.push_back(std::stoll(body.substr(at + 1, close - at - 1)));
    at = close;
  }
  skeletons_.push_back(std::move(skeleton));
  numbers_.push_back(std::move(numbers));
  names_.push_back(name);
  heads_.push_back(head);
  launches_.push_back(launch);
  parameters_.push_back(parameters);
  arguments_.push_back(arguments);
  return skeletons_.size() - 1;
}

std::string FunctionTable::Definitions() {
  // Members of a group have equal text but for their numbers.
  std::map<std::string, std::vector<size_t>> groups;
  std::vector<std::string> order;
  for (size_t i = 0; i < skeletons_.size(); ++i) {
    std::string key = heads_[i] + "\n" + skeletons_[i];
    for (const std::string& parameter : parameters_[i]) key += "\n" + parameter;
    std::vector<size_t>& group = groups[key];
    if (group.empty()) order.push_back(key);
    group.push_back(i);
  }
  std::string text;
  std::set<std::string> taken;
  calls_.assign(skeletons_.size(), "");
  for (const std::string& key : order) {
    const std::vector<size_t>& group = groups[key];
    const size_t first = group[0];
    std::string name = names_[first];
    for (int number = 2; !taken.insert(name).second; ++number)
      name = fmt::format("{}_{}", names_[first], number);
    const std::vector<int64_t>& numbers = numbers_[first];
    // Holes whose numbers agree in every member share a parameter.
    std::map<std::vector<int64_t>, std::string> parameter_of;
    std::vector<std::string> hole_text(numbers.size());
    std::vector<size_t> parameter_hole;
    for (size_t hole = 0; hole < numbers.size(); ++hole) {
      std::vector<int64_t> column;
      bool varies = false;
      for (const size_t member : group) {
        column.push_back(numbers_[member][hole]);
        varies |= column.back() != column.front();
      }
      if (!varies) {
        hole_text[hole] = std::to_string(numbers[hole]);
        continue;
      }
      auto [found, is_new] = parameter_of.try_emplace(column, fmt::format("s{}", parameter_hole.size()));
      if (is_new) parameter_hole.push_back(hole);
      hole_text[hole] = found->second;
    }
    std::string list;
    for (const std::string& parameter : parameters_[first]) list += (list.empty() ? "" : ", ") + parameter;
    for (size_t i = 0; i < parameter_hole.size(); ++i)
      list += fmt::format("{}{} s{}", list.empty() ? "" : ", ", integer_, i);
    text += fmt::format("{} {}({}) {{\n{}}}\n\n", heads_[first], name, list,
                        FillHoles(skeletons_[first], [&](size_t hole) { return hole_text[hole]; }));
    for (const size_t member : group) {
      std::string arguments;
      for (const std::string& argument : arguments_[member])
        arguments += (arguments.empty() ? "" : ", ") + argument;
      for (const size_t hole : parameter_hole)
        arguments += fmt::format("{}{}", arguments.empty() ? "" : ", ", numbers_[member][hole]);
      calls_[member] = fmt::format("{}{}({})", name, launches_[member], arguments);
    }
  }
  return text;
}

std::string FunctionTable::Call(size_t number) const { return calls_.at(number); }

}  // namespace kevin::search
