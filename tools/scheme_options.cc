#include "tools/scheme_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "env/error.h"

namespace kevin {
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
  number("--weight-correct", o->correct, "For a correct kernel");
  number("--weight-speedup", o->speedup, "Times the speed-up");
  number("--weight-log2-speedup", o->log2_speedup, "Times log2 of the speed-up");
  number("--weight-faster", o->faster, "For more than 5 % faster than eager");
  number("--weight-format", o->format, "For a reply with a source");
  number("--weight-compiled", o->compiled, "For a source that compiles");
  number("--weight-wrong", o->wrong, "For everything that is not correct");
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
  Override(o.compiled, &scheme.score.compiled), Override(o.wrong, &scheme.score.wrong);
  return scheme;
}

}  // namespace kevin
