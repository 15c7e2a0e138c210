#include "agent/attribution/returns.h"

#include <cmath>

namespace kevin {
namespace {

using ReturnKind = ReturnRule::Kind;

std::vector<Scored> DiscountedSums(std::span<const Scored> turns, double gamma) {
  std::vector<Scored> returns(turns.size());
  Scored after;
  for (size_t i = turns.size(); i-- > 0;) {
    after = {turns[i].score + gamma * after.score, std::hypot(turns[i].se, gamma * after.se)};
    returns[i] = after;
  }
  return returns;
}

std::vector<Scored> DiscountedMaxima(std::span<const Scored> turns, double gamma) {
  std::vector<Scored> returns(turns.size());
  for (size_t i = turns.size(); i-- > 0;) {
    returns[i] = turns[i];
    if (i + 1 == turns.size()) continue;
    const Scored later = {gamma * returns[i + 1].score, gamma * returns[i + 1].se};
    if (later.score > returns[i].score) returns[i] = later;
  }
  return returns;
}

std::vector<Scored> Outcomes(std::span<const Scored> turns) {
  Scored best = turns.front();
  for (const Scored& turn : turns) {
    if (turn.score > best.score) best = turn;
  }
  return std::vector<Scored>(turns.size(), best);
}

std::vector<Scored> FirstAnchored(std::span<const Scored> turns, double gamma) {
  std::vector<Scored> returns = DiscountedSums(turns, gamma);
  const Scored first = turns.front();
  returns.front() = first;
  for (size_t i = 1; i < returns.size(); ++i) {
    const Scored later = returns[i];
    returns[i] = {first.score + gamma * (later.score - first.score),
                  std::hypot((1 - gamma) * first.se, gamma * later.se)};
  }
  return returns;
}

struct NamedReturn {
  const char* name;
  ReturnKind kind;
};
constexpr NamedReturn kReturnNames[] = {{"sum", ReturnKind::kSum},
                                        {"max", ReturnKind::kMax},
                                        {"outcome", ReturnKind::kOutcome},
                                        {"own", ReturnKind::kOwn},
                                        {"first", ReturnKind::kFirst}};

}  // namespace

std::vector<Scored> Returns(const ReturnRule& rule, std::span<const Scored> turns) {
  if (turns.empty()) return {};
  switch (rule.kind) {
    case ReturnKind::kSum:
      return DiscountedSums(turns, rule.gamma);
    case ReturnKind::kMax:
      return DiscountedMaxima(turns, rule.gamma);
    case ReturnKind::kOutcome:
      return Outcomes(turns);
    case ReturnKind::kOwn:
      return {turns.begin(), turns.end()};
    case ReturnKind::kFirst:
      return FirstAnchored(turns, rule.gamma);
  }
  return {};
}

bool FindReturnKind(const std::string& name, ReturnKind* kind) {
  for (const NamedReturn& known : kReturnNames) {
    if (name != known.name) continue;
    *kind = known.kind;
    return true;
  }
  return false;
}

const char* ReturnKindName(ReturnKind kind) {
  for (const NamedReturn& known : kReturnNames) {
    if (kind == known.kind) return known.name;
  }
  return "";
}

}  // namespace kevin
