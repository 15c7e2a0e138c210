#include "tools/record_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "env/error.h"
#include "trajectories/identity.h"

namespace kevin {
std::string FindRunId(const std::vector<RunFigures>& runs, const std::string& prefix,
                      const std::string& database) {
  if (runs.empty())
    throw Error(ExitCode::kBadRequest, database + ": has no runs yet", "make one with: kevin run");
  if (prefix == "latest") return runs.back().id;
  const std::string wanted = NormalizeUlid(prefix);
  std::vector<std::string> found;
  for (const RunFigures& run : runs) {
    if (!wanted.empty() && run.id.starts_with(wanted)) found.push_back(run.id);
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    throw Error(ExitCode::kBadRequest, fmt::format("run '{}' is ambiguous in {}", prefix, database),
                fmt::format("give more characters; it fits {}", fmt::join(found, ", ")));
  }
  std::vector<std::string> latest;
  for (size_t i = runs.size(); i-- > 0 && latest.size() < 5;) latest.push_back(runs[i].id);
  throw Error(ExitCode::kBadRequest, fmt::format("run '{}' is not in {}", prefix, database),
              fmt::format("the latest there: {}", fmt::join(latest, ", ")));
}

namespace {

[[noreturn]] void ThrowUnknown(const std::string& what, const std::string& name, const std::string& known) {
  throw Error(ExitCode::kBadRequest, fmt::format("there is no {} '{}'", what, name), "there are: " + known);
}

std::string KnownSchemeNames() {
  std::string names;
  for (const Scheme& scheme : KnownSchemes()) names += (names.empty() ? "" : ", ") + scheme.name;
  return names;
}

// Names and options of earlier versions.
void ThrowIfRemoved(const SchemeOptions& o) {
  if (o.scheme == "first")
    throw Error(ExitCode::kBadRequest, "the scheme 'first' was removed",
                "use --scheme kevin --advantage turn; attributions stored under 'first' can still be read");
  if (o.returns == "first")
    throw Error(ExitCode::kBadRequest, "the return 'first' was removed", "use --return sum");
  if (o.strong)
    throw Error(ExitCode::kBadRequest, "--strong was removed: milestones has no third step any more",
                "use --scheme kevin with --weight-faster to reward more than 5 % over eager");
}

void Override(const std::optional<double>& value, double* target) {
  if (value) *target = *value;
}

}  // namespace

void AddAcceptedVerdicts(CLI::App* command, AcceptedVerdicts* accept, const std::string& group) {
  CLI::Option* const old = command->add_flag(
      "--accept-old-verdicts", accept->old,
      "Keep verdicts given under rules from before the last security fix, which false results could "
      "pass (default: left out, counted; kevin db rejudge evaluates them again)");
  CLI::Option* const shared = command->add_flag(
      "--accept-shared-gpu", accept->shared_gpu,
      "Keep speed-ups that were timed while another process computed on the GPU (default: left "
      "out, counted; kevin db rejudge evaluates them again)");
  if (group.empty()) return;
  old->group(group), shared->group(group);
}

void AddSchemeOptions(CLI::App* command, SchemeOptions* o) {
  command->add_option("--scheme", o->scheme, "How turns are credited: " + KnownSchemeNames())
      ->capture_default_str();
  const auto number = [command](const char* name, std::optional<double>& value, const char* help) {
    return command->add_option(name, value, help)->group("Parts of a scheme, in place of its own");
  };
  const auto choice = [command](const char* name, std::string& value, const char* help) {
    command->add_option(name, value, help)->group("Parts of a scheme, in place of its own");
  };
  choice("--score", o->score, "kevin, dr-kernel, shaped, correct, milestones");
  choice("--return", o->returns, "sum, max, outcome, own");
  choice("--advantage", o->advantage, "group, turn, turn-loo, group-loo, group-mean, turn-mean");
  number("--gamma", o->gamma, "Discount of later turns")->check(CLI::Range(0.0, 1.0));
  number("--noise", o->noise,
         "A spread within this many measurement errors counts as none; 0: every spread counts")
      ->check(CLI::NonNegativeNumber);
  number("--cap", o->cap, "Largest speed-up that counts; 0: no cap")->check(CLI::NonNegativeNumber);
  number("--weight-correct", o->correct, "Weight of a correct answer");
  number("--weight-speedup", o->speedup, "Times the speed-up");
  number("--weight-log2-speedup", o->log2_speedup, "Times log2 of the speed-up");
  number("--weight-faster", o->faster, "For more than 5 % faster than eager");
  number("--weight-format", o->format, "For a reply with a source");
  number("--weight-compiled", o->compiled, "For a source that compiles");
  number("--weight-wrong", o->wrong, "Weight of every incorrect answer");
  number("--weight-tags", o->tags, "For reasoning in tags and a fenced block (agent/attribution/shaping.h)");
  number("--weight-similarity", o->similarity,
         "Times the similarity to the fastest correct kernel of other episodes");
  number("--weight-staged", o->staged, "For features of the text of a Triton kernel");
  number(
      "--weight-overlong", o->overlong,
      "Times DAPO's penalty of replies near their length limit, from -1 to 0; cut-off replies then count too")
      ->check(CLI::NonNegativeNumber);
  number("--overlong-cache", o->overlong_cache,
         "Where that penalty begins: this share of the limit before it (default 0.2)")
      ->check(CLI::Range(0.001, 1.0));
  command->add_option("--strong", o->strong)->group("");  // removed; hidden from the help
}

Scheme SchemeFrom(const SchemeOptions& o) {
  ThrowIfRemoved(o);
  const auto found = FindScheme(o.scheme);
  if (!found) ThrowUnknown("scheme", o.scheme, KnownSchemeNames());
  Scheme scheme = *found;
  if (!o.score.empty() && !FindScoreRule(o.score, &scheme.score))
    ThrowUnknown("score", o.score, "kevin, dr-kernel, shaped, correct, milestones");
  if (!o.returns.empty() && !FindReturnKind(o.returns, &scheme.returns.kind))
    ThrowUnknown("return", o.returns, "sum, max, outcome, own");
  if (!o.advantage.empty() && !FindAdvantageKind(o.advantage, &scheme.advantage.kind))
    ThrowUnknown("advantage", o.advantage, "group, turn, turn-loo, group-loo, group-mean, turn-mean");
  Override(o.gamma, &scheme.returns.gamma), Override(o.noise, &scheme.advantage.noise);
  Override(o.cap, &scheme.score.cap), Override(o.correct, &scheme.score.correct);
  Override(o.speedup, &scheme.score.speedup), Override(o.log2_speedup, &scheme.score.log2_speedup);
  Override(o.faster, &scheme.score.faster), Override(o.format, &scheme.score.format);
  Override(o.tags, &scheme.score.tags), Override(o.similarity, &scheme.score.similarity);
  Override(o.staged, &scheme.score.staged), Override(o.overlong, &scheme.score.overlong);
  Override(o.overlong_cache, &scheme.score.overlong_cache);
  if (o.overlong_cache && scheme.score.overlong == 0)
    throw Error(ExitCode::kBadRequest, "--overlong-cache has no effect without a penalty of overlong replies",
                "add --weight-overlong 1, or leave it out");
  Override(o.compiled, &scheme.score.compiled), Override(o.wrong, &scheme.score.wrong);
  return scheme;
}

}  // namespace kevin
