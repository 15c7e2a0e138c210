#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "policies/search/write.h"

namespace kevin::search {
namespace {

constexpr char kOpen = '\x01', kClose = '\x02', kOpenFloat = '\x03';

bool IsOpen(char c) { return c == kOpen || c == kOpenFloat; }

// Replaces hole i by text(i).
template <class Text>
std::string FillHoles(const std::string& skeleton, const Text& text) {
  std::string filled;
  size_t hole = 0;
  for (const char c : skeleton) {
    if (IsOpen(c)) {
      filled += text(hole++);
    } else {
      filled += c;
    }
  }
  return filled;
}

}  // namespace

std::string Hole(int64_t value) { return Hole(std::to_string(value)); }

std::string Hole(const std::string& constant) { return kOpen + constant + kClose; }

std::string FloatHole(const std::string& literal) { return kOpenFloat + literal + kClose; }

bool IsCommonFloat(double value) {
  const double size = std::fabs(value);
  return !std::isfinite(static_cast<float>(value)) || size == 0 || size == 0.5 || size == 1 || size == 2;
}

size_t FunctionTable::Add(const std::string& name, const std::string& head, const std::string& body,
                          const std::vector<std::string>& parameters,
                          const std::vector<std::string>& arguments, const std::string& launch) {
  std::string skeleton;
  std::vector<std::string> numbers;
  skeleton.reserve(body.size());
  for (size_t at = 0; at < body.size();) {
    size_t open = at;
    while (open < body.size() && !IsOpen(body[open])) ++open;
    skeleton.append(body, at, open - at);
    if (open == body.size()) break;
    skeleton += body[open];
    const size_t close = body.find(kClose, open);
    numbers.emplace_back(body, open + 1, close - open - 1);
    at = close + 1;
  }
  std::string key = head + "\n" + skeleton;
  for (const std::string& parameter : parameters) key += "\n" + parameter;
  std::vector<size_t>& group = groups_[key];
  if (group.empty()) order_.push_back(key);
  group.push_back(skeletons_.size());
  group_of_.push_back(&group);
  skeletons_.push_back(std::move(skeleton));
  numbers_.push_back(std::move(numbers));
  names_.push_back(name);
  heads_.push_back(head);
  launches_.push_back(launch);
  parameters_.push_back(parameters);
  arguments_.push_back(arguments);
  return skeletons_.size() - 1;
}

size_t FunctionTable::AddAgain(size_t number, const std::vector<std::string>& arguments) {
  group_of_[number]->push_back(skeletons_.size());
  group_of_.push_back(group_of_[number]);
  skeletons_.emplace_back();  // that of the first in the group is read
  numbers_.push_back(numbers_[number]);
  names_.push_back(names_[number]);
  heads_.push_back(heads_[number]);
  launches_.push_back(launches_[number]);
  parameters_.push_back(parameters_[number]);
  arguments_.push_back(arguments);
  return skeletons_.size() - 1;
}

std::string FunctionTable::Definitions() {
  std::string text;
  std::set<std::string> taken;
  calls_.assign(skeletons_.size(), "");
  for (const std::string& key : order_) {
    const std::vector<size_t>& group = groups_[key];
    const size_t first = group[0];
    std::string name = names_[first];
    for (int number = 2; !taken.insert(name).second; ++number)
      name = fmt::format("{}_{}", names_[first], number);
    const std::vector<std::string>& numbers = numbers_[first];
    std::string kinds;  // of holes
    for (const char c : skeletons_[first]) {
      if (IsOpen(c)) kinds += c;
    }
    // Holes of one kind whose numbers agree in every member share a parameter.
    std::map<std::pair<char, std::vector<std::string>>, std::string> parameter_of;
    std::vector<std::string> hole_text(numbers.size());
    std::vector<size_t> parameter_hole;
    for (size_t hole = 0; hole < numbers.size(); ++hole) {
      const bool varies = std::any_of(group.begin(), group.end(),
                                      [&](size_t member) { return numbers_[member][hole] != numbers[hole]; });
      if (!varies) {
        hole_text[hole] = numbers[hole];
        continue;
      }
      std::vector<std::string> column;
      for (const size_t member : group) column.push_back(numbers_[member][hole]);
      auto [found, is_new] =
          parameter_of.try_emplace({kinds[hole], column}, fmt::format("s{}", parameter_hole.size()));
      if (is_new) parameter_hole.push_back(hole);
      hole_text[hole] = found->second;
    }
    std::string list;
    for (const std::string& parameter : parameters_[first]) list += (list.empty() ? "" : ", ") + parameter;
    for (size_t i = 0; i < parameter_hole.size(); ++i)
      list += fmt::format("{}{} s{}", list.empty() ? "" : ", ",
                          kinds[parameter_hole[i]] == kOpenFloat ? "float" : integer_, i);
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
