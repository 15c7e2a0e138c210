#include "tools/privacy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <set>

#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "policies/remote/endpoint.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kImportedHeading = "# Made by `kevin import`";
constexpr size_t kMostNames = 5;  // of problems in a message

std::set<std::string> Agreed() {
  std::set<std::string> destinations;
  std::ifstream file(AgreedDestinations());
  for (std::string line; std::getline(file, line);) destinations.insert(line);
  return destinations;
}

void Remember(const std::string& destination) {
  const fs::path path = AgreedDestinations();
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  std::ofstream(path, std::ios::app) << destination << "\n";
}

std::string Names(const std::vector<Problem*>& problems) {
  std::vector<std::string> names;
  for (const Problem* problem : problems) {
    if (names.size() < kMostNames) names.push_back(problem->id);
  }
  const size_t more = problems.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string WhatIsSent(const std::vector<Problem*>& problems, bool no_source) {
  size_t lines = 0;
  for (const Problem* problem : problems) lines += SplitLines(problem->source).size();
  return no_source
             ? "the graph of operations that was traced, with the names and shapes of its tensors, but not the "
               "module's source; kernels, their results and the machine's description"
             : fmt::format(
                   "the module's source ({} of code), the graph that was traced, kernels, their results and the "
                   "machine's description",
                   Counted(static_cast<int64_t>(lines), "line"));
}

bool AnswerIsYes() {
  Print(stderr, "Send it? [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// The destinations that are not on this machine.
std::set<std::string> RemoteDestinations(const std::vector<std::string>& policies,
                                         const PolicyOptions& options) {
  std::set<std::string> destinations;
  for (const std::string& policy : policies) {
    if (!remote::IsRemoteSpec(policy)) continue;
    const remote::Endpoint endpoint = remote::ParseSpec(policy, options.base_url);
    if (endpoint.unix_socket.empty() && !IsOnThisMachine(endpoint.base_url))
      destinations.insert(endpoint.base_url);
  }
  return destinations;
}

}  // namespace

void AddPrivacyOptions(CLI::App* command, PrivacyOptions* options) {
  command->add_flag("--yes", options->yes,
                    "Imported problems: send them to the policy's server without a question, for scripts");
  command->add_flag("--no-source", options->no_source,
                    "Imported problems: leave the module's source out of prompts; the traced graph is sent");
}

bool IsPrivate(const Problem& problem) {
  const fs::path inside = problem.path.lexically_relative(ProblemSet::ImportedDirectory());
  const bool is_imported = !problem.path.empty() && !inside.empty() && *inside.begin() != "..";
  return !problem.source.empty() || problem.module || is_imported;
}

bool IsPrivate(const ProblemRecord& problem) {
  if (problem.text.starts_with(kImportedHeading)) return true;
  try {
    return IsPrivate(ParseProblem(problem.text, problem.id));
  } catch (const Error&) {
    return true;  // unknown
  }
}

std::function<bool(const ProblemRecord&)> LeftOutOfMemory(const std::vector<std::string>& policies,
                                                          const PolicyOptions& options,
                                                          const PrivacyOptions& privacy) {
  const std::set<std::string> agreed = Agreed();
  for (const std::string& destination : RemoteDestinations(policies, options)) {
    const bool is_agreed = !privacy.no_source && (privacy.yes || agreed.contains(destination));
    if (!is_agreed) return [](const ProblemRecord& problem) { return IsPrivate(problem); };
  }
  return {};
}

std::string MemoryLine(const std::string& database, size_t problems, size_t left_out) {
  return fmt::format(
      "memory {}: {}{}", database, Counted(static_cast<int64_t>(problems), "measured problem"),
      left_out == 0 ? "" : fmt::format(", {} private left out (--yes sends them too)", left_out));
}

fs::path AgreedDestinations() {
  return ProblemSet::ImportedDirectory().parent_path() / "agreed-destinations";
}

bool IsOnThisMachine(const std::string& base_url) {
  const size_t scheme = base_url.find("://");
  const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  std::string host = base_url.substr(begin, base_url.find('/', begin) - begin);
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  const bool is_ipv4 = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || (is_ipv4 && host.starts_with("127."));
}

void RequireAgreement(const std::vector<std::string>& policies, const PolicyOptions& options,
                      const std::vector<Problem*>& problems, const PrivacyOptions& privacy) {
  std::vector<Problem*> own;
  for (Problem* problem : problems) {
    if (IsPrivate(*problem)) own.push_back(problem);
  }
  if (own.empty()) return;
  const std::set<std::string> agreed = Agreed();
  for (const std::string& destination : RemoteDestinations(policies, options)) {
    const std::string text =
        fmt::format("{} {} private. To {} goes: {}.", Names(own), own.size() == 1 ? "is" : "are", destination,
                    WhatIsSent(own, privacy.no_source));
    if (!privacy.no_source && agreed.contains(destination)) continue;
    if (!privacy.no_source && !privacy.yes && (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1)) {
      throw Error(ExitCode::kBadRequest, text + " Nothing was sent.",
                  "--yes agrees, --no-source leaves the source out; or run it on a terminal, which asks");
    }
    Print(stderr, "kevin: " + text + "\n");
    if (privacy.no_source || privacy.yes) continue;
    if (!AnswerIsYes())
      throw Error(ExitCode::kBadRequest, "not agreed: nothing was sent", "--no-source leaves the source out");
    Remember(destination);
  }
  if (!privacy.no_source) return;
  for (Problem* problem : own) problem->source.clear();
}

}  // namespace kevin
