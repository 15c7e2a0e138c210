#include "tools/report/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kevin {
namespace {

std::string BareText(double value, MetricUnit unit) {
  switch (unit) {
    case MetricUnit::kShare:
      return fmt::format("{:.1f}", 100 * value);
    case MetricUnit::kRatio:
    case MetricUnit::kDollars:
    case MetricUnit::kSeconds:
      return fmt::format("{:.3g}", value);
    case MetricUnit::kCount:
      return std::abs(value) >= 9999.5 ? fmt::format("{:.3g}k", value / 1000) : fmt::format("{:.4g}", value);
  }
  return "";
}

const char* UnitText(MetricUnit unit) {
  switch (unit) {
    case MetricUnit::kShare:
      return " %";
    case MetricUnit::kRatio:
      return "x";
    case MetricUnit::kSeconds:
      return " s";
    case MetricUnit::kCount:
    case MetricUnit::kDollars:  // the label says it
      return "";
  }
  return "";
}

}  // namespace

std::string ValueText(double value, MetricUnit unit) {
  return std::isnan(value) ? "-" : BareText(value, unit) + UnitText(unit);
}

std::string IntervalText(const Interval& i, MetricUnit unit) {
  if (std::isnan(i.value) || std::isnan(i.low)) return ValueText(i.value, unit);
  return fmt::format("{} ({} to {})", ValueText(i.value, unit), ValueText(i.low, unit),
                     ValueText(i.high, unit));
}

std::string DifferenceText(const Interval& i, MetricUnit unit) {
  if (std::isnan(i.value)) return "-";
  const std::string sign = i.value > 0 ? "+" : "",
                    what = unit == MetricUnit::kShare ? " points" : UnitText(unit);
  const std::string value = sign + BareText(i.value, unit) + what;
  if (std::isnan(i.low)) return value;
  return fmt::format("{} ({} to {})", value, BareText(i.low, unit), BareText(i.high, unit));
}

std::string SignificanceWord(const Report& report, size_t metric, const Difference& d) {
  const MetricSpec& spec = report.specs[metric];
  if (!spec.is_tested || !(d.p_adjusted < 1 - report.options.confidence)) return "";
  return (d.difference.value > 0) == spec.higher_is_better ? "better" : "worse";
}

std::string PValueText(double p) { return p < 0.001 ? "< 0.001" : fmt::format("{:.2g}", p); }

std::string CountText(int64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const size_t rest = digits.size() - i;
    if (i > 0 && rest % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string SpanText(double s) {
  if (s < 60) return fmt::format("{:.3g} s", s);
  const auto whole = static_cast<int64_t>(std::llround(s));
  if (s < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string MoneyText(const Side& side) {
  constexpr const char* kAdvice = "(--price computes it from the tokens)";
  if (side.unknown_costs > 0 && side.unknown_costs == side.requests)
    return fmt::format("cost of {} requests unknown {}", CountText(side.requests), kAdvice);
  std::string text = fmt::format("cost ${:.4g}", side.cost_usd);
  if (side.unknown_costs > 0) {
    text += fmt::format(" without {} of {} requests, whose cost is unknown {}", CountText(side.unknown_costs),
                        CountText(side.requests), kAdvice);
  }
  return text;
}

std::string SideRulesText(const Side& side) {
  std::string text;
  for (const auto& [rules, episodes] : side.rules) {
    text += text.empty() ? "rules " : ", ";
    text += rules;
    if (side.rules.size() > 1)
      text += fmt::format(" ({} episode{})", CountText(episodes), episodes == 1 ? "" : "s");
  }
  return text;
}

std::string MixedRulesWarning(const Side& side) {
  if (side.rules.size() < 2) return "";
  return fmt::format(
      "{}: the figures mix verdicts under different rules; --rules {} reports on those of one, --by rules compares them",
      side.name, side.rules.begin()->first);
}

namespace {

size_t Width(const std::string& cell) {
  return std::count_if(cell.begin(), cell.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

std::string AlignedTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] + 2 - Width(row[i]), ' ');
    }
    std::replace_if(
        line.begin(), line.end(), [](unsigned char c) { return c < ' '; }, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace kevin
