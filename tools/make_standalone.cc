// make_standalone: the search policy's kernels for every problem as stand-alone files (kevin export --as cu),
// to see that these build and run where there is nothing but nvcc. Writes PROBLEM-N.cu (or .cpp) and run.sh,
// which builds and runs all of them and says which failed. Usage: make_standalone FOLDER [--kind cuda]
// [--size small] [--schedules 2].

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "agent/conversation.h"
#include "agent/parse.h"
#include "env/error.h"
#include "env/process/files.h"
#include "policies/search/search_policy.h"
#include "tools/export/standalone.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder, kind = "cuda", size = "small", problems;
  int schedules = 2;
};

// The policy's first kernels: it is told that each was as fast as eager.
std::vector<std::string> Kernels(const SizedProblem& problem, const Options& options) {
  const auto policy = MakeSearchPolicy();
  ConversationContext context;
  context.problem = &problem, context.kind = options.kind;
  Request request;
  request.task = BuildTask(context, {});
  std::vector<std::string> sources;
  const std::string why_not = policy->WhyNot(request.task);
  if (!why_not.empty()) {
    fmt::print(stderr, "{}: {}\n", problem.problem->id, why_not);
    return sources;
  }
  for (int i = 0; i < options.schedules; ++i) {
    request.task.turn = i + 1;
    const ParsedReply reply = ParseReply(policy->Complete(request, nullptr, {}).text, options.kind);
    if (!reply.source || std::count(sources.begin(), sources.end(), *reply.source)) break;
    sources.push_back(*reply.source);
    TaskAttempt attempt;
    attempt.source = *reply.source, attempt.outcome = "measured", attempt.speedup = 1.0;
    request.task.attempts.push_back(attempt);
  }
  return sources;
}

constexpr char kRunScript[] = R"sh(#!/usr/bin/env bash
# Builds and runs every file here; with an argument (a GPU architecture such as sm_90) only builds, for it.
cd "$(dirname "$0")" || exit 2
failed=0
for file in *.cu *.cpp; do
  [[ -e $file ]] || continue
  program=./${file%.*}
  if [[ $file == *.cu ]]; then build=(nvcc -O3 -std=c++20 "-arch=${1:-native}" --expt-relaxed-constexpr)
  else build=(g++ -O3 -std=c++20 -march=native -fopenmp); fi
  if ! "${build[@]}" -o "$program" "$file" >"$program.log" 2>&1; then
    echo "FAILED to build $file"; head -5 "$program.log"; failed=$((failed + 1)); continue
  fi
  if [[ $file == *.cu && -n ${1:-} ]]; then echo "built $file"; continue; fi
  if ! "$program" >"$program.log" 2>&1; then echo "FAILED $file"; failed=$((failed + 1)); else echo "ok $file"; fi
  sed 's/^/    /' "$program.log"
done
echo "$failed failed"
[[ $failed == 0 ]]
)sh";

int Make(const Options& options) {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  fs::create_directories(options.folder);
  int written = 0;
  for (const std::string& id : problems.Ids()) {
    if (!id.starts_with(options.problems)) continue;
    const Problem problem = problems.Find(id);
    if (!problem.sizes.count(options.size)) continue;
    const SizedProblem sized = AtSize(problem, options.size);
    int number = 0;
    for (const std::string& source : Kernels(sized, options)) {
      std::string name = fmt::format("{}-{}.{}", id, ++number, options.kind == "cuda" ? "cu" : "cpp");
      std::replace(name.begin(), name.end(), '/', '-');
      const Standalone file =
          WriteStandalone(sized, options.kind, source, {"the search policy", "", {}, {}, {}, {}, {}}, name);
      if (!file.warning.empty()) fmt::print(stderr, "{}: no check: {}\n", name, file.warning);
      WriteFile(options.folder + "/" + name, file.text, true);
      written++;
    }
  }
  WriteFile(options.folder + "/run.sh", kRunScript, true);
  fs::permissions(options.folder + "/run.sh", fs::perms::owner_exec, fs::perm_options::add);
  fmt::print("{} files in {}; {}/run.sh builds and runs them\n", written, options.folder, options.folder);
  return 0;
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  CLI::App app{"The search policy's kernels as stand-alone files"};
  kevin::Options options;
  app.add_option("folder", options.folder, "Where to")->required();
  app.add_option("--kind", options.kind, "Of the kernels")
      ->check(CLI::IsMember({"cuda", "cpp"}))
      ->capture_default_str();
  app.add_option("--size", options.size, "Size set")->capture_default_str();
  app.add_option("--problems", options.problems, "Only ids that begin so");
  app.add_option("--schedules", options.schedules, "Kernels of each problem")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return kevin::Make(options);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "make_standalone: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
