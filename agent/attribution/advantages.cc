#include "agent/attribution/advantages.h"

#include <cmath>

namespace kevin {
namespace {

using Kind = AdvantageRule::Kind;

struct NamedKind {
  const char* name;
  Kind kind;
};
constexpr NamedKind kNames[] = {{"group", Kind::kGroup},
                                {"turn", Kind::kTurn},
                                {"turn-loo", Kind::kTurnLeaveOneOut},
                                {"group-loo", Kind::kGroupLeaveOneOut},
                                {"group-mean", Kind::kGroupMean},
                                {"turn-mean", Kind::kTurnMean}};

struct Moments {
  double mean = 0, deviation = 0, error = 0;
};

Moments MomentsOf(std::span<const Scored> returns) {
  const auto n = static_cast<double>(returns.size());
  Moments m;
  for (const Scored& r : returns) m.mean += r.score / n;
  double squares = 0, errors = 0;
  for (const Scored& r : returns) {
    squares += (r.score - m.mean) * (r.score - m.mean);
    errors += r.se * r.se;
  }
  m.deviation = std::sqrt(squares / n), m.error = std::sqrt(errors / n);
  return m;
}

}  // namespace

bool IsPerTurn(Kind kind) {
  return kind == Kind::kTurn || kind == Kind::kTurnLeaveOneOut || kind == Kind::kTurnMean;
}

GroupResult Advantages(const AdvantageRule& rule, std::span<const Scored> returns) {
  GroupResult result;
  result.advantages.assign(returns.size(), 0.0);
  const Moments m = MomentsOf(returns);
  const double rounding = 1e-9 * std::max(1.0, std::abs(m.mean));
  result.flat = returns.size() < 2 || m.deviation <= rounding || m.deviation <= rule.noise * m.error;
  if (result.flat) return result;
  const auto n = static_cast<double>(returns.size());
  double factor = 1;
  if (rule.kind == Kind::kGroup || rule.kind == Kind::kTurn) factor = 1 / m.deviation;
  if (rule.kind == Kind::kTurnLeaveOneOut || rule.kind == Kind::kGroupLeaveOneOut) factor = n / (n - 1);
  for (size_t i = 0; i < returns.size(); ++i) result.advantages[i] = factor * (returns[i].score - m.mean);
  return result;
}

bool FindAdvantageKind(const std::string& name, Kind* kind) {
  for (const NamedKind& known : kNames) {
    if (name != known.name) continue;
    *kind = known.kind;
    return true;
  }
  return false;
}

const char* AdvantageKindName(Kind kind) {
  for (const NamedKind& known : kNames) {
    if (kind == known.kind) return known.name;
  }
  return "";
}

}  // namespace kevin
