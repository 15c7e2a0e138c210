#include "tools/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

#include "env/problem/text.h"

namespace kevin {
namespace {

constexpr size_t kMaxEdits = 2;

// The first of the nearest names; "" when all are farther than kMaxEdits or share no character with `given`.
std::string Nearest(const std::string& given, const std::vector<std::string>& names) {
  std::string nearest;
  size_t edits = std::min(kMaxEdits + 1, given.size());
  for (const std::string& name : names) {
    const size_t distance = EditDistance(given, name);
    if (distance < edits) {
      edits = distance;
      nearest = name;
    }
  }
  return nearest;
}

// The innermost subcommand that was given, and its name as typed: "kevin policy check".
const CLI::App* CommandGiven(const CLI::App& app, std::string* name) {
  const CLI::App* command = &app;
  *name = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    *name += " " + command->get_name();
  }
  return command;
}

std::vector<std::string> CommandNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

std::vector<std::string> OptionNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

struct Misspelt {
  std::string what, meant;
};

Misspelt FirstExtra(const CLI::App& command, const std::vector<std::string>& extras) {
  const auto option = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& extra) { return extra.starts_with("-"); });
  if (option != extras.end()) {
    const std::string given = option->substr(0, option->find('='));
    const std::string nearest =
        given.starts_with("--") ? Nearest(given.substr(2), OptionNames(command)) : std::string();
    return {given + ": no such option", nearest.empty() ? "" : "--" + nearest};
  }
  const std::vector<std::string> commands = CommandNames(command);
  if (commands.empty()) return {extras.front() + ": one argument too many", ""};
  return {extras.front() + ": no such command", Nearest(extras.front(), commands)};
}

}  // namespace

std::string WhyNotWhole(const std::string& text) {
  int64_t value = -1;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec == std::errc() && read.ptr == end && value >= 0) return "";
  return text + " is not a whole number: 0, 1, 2, ...";
}

Error UsageError(const CLI::App& app, const CLI::ParseError& error) {
  std::string name;
  const CLI::App* const command = CommandGiven(app, &name);
  const bool is_app = command == &app;
  const std::string subject = is_app ? "" : name.substr(app.get_name().size() + 1) + ": ";
  const std::string help = fmt::format("{} --help lists the {}", name, is_app ? "commands" : "options");
  const std::vector<std::string> extras = command->remaining();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || extras.empty())
    return Error(ExitCode::kBadRequest, subject + error.what(), help);
  const Misspelt misspelt = FirstExtra(*command, extras);
  return Error(ExitCode::kBadRequest, subject + misspelt.what,
               misspelt.meant.empty() ? help : fmt::format("did you mean {}? {}", misspelt.meant, help));
}

}  // namespace kevin
