#include "env/verdict/words.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace kevin {
namespace {

constexpr double kSameFrom = 0.98, kSameTo = 1.02;
constexpr double kTimesAgree = 0.03;  // of the logarithm

std::string Digits(double value) {
  return value >= 1 && value < 1.1 ? fmt::format("{:.4g}", value) : fmt::format("{:.3g}", value);
}

double AsPrinted(double value) { return std::strtod(Digits(value).c_str(), nullptr); }

bool IsOpposite(Verdict verdict, Standing standing) {
  return (verdict == Verdict::kFast && standing == Standing::kSlower) ||
         (verdict == Verdict::kSlow && standing == Standing::kFaster);
}

}  // namespace

Standing StandingOf(const Ratio& ratio) {
  const double low = AsPrinted(ratio.low), high = AsPrinted(ratio.high);
  if (low > 1) return Standing::kFaster;
  if (high < 1) return Standing::kSlower;
  return low >= kSameFrom && high <= kSameTo ? Standing::kSame : Standing::kNotDistinguishable;
}

const char* StandingWord(Standing standing) {
  switch (standing) {
    case Standing::kFaster:
      return "faster";
    case Standing::kSlower:
      return "slower";
    case Standing::kSame:
      return "same";
    case Standing::kNotDistinguishable:
      return "not distinguishable";
  }
  return "";
}

std::string FactorText(double value) { return Digits(value) + "x"; }

std::string RatioText(double value, double low, double high) {
  return fmt::format("{} ({} to {})", FactorText(value), FactorText(low), FactorText(high));
}

std::string VerdictWord(Verdict verdict, const Ratio& ratio) {
  const Standing standing = StandingOf(ratio);
  return fmt::format("{}{}", StandingWord(standing), IsOpposite(verdict, standing) ? " (?)" : "");
}

std::string VerdictWord(const OutcomeFields& fields) {
  if (!fields.speedup) return "";
  for (const Verdict verdict : {Verdict::kFast, Verdict::kSlow}) {
    if (fields.verdict == VerdictName(verdict)) return VerdictWord(verdict, *fields.speedup);
  }
  return VerdictWord(Verdict::kAmbiguous, *fields.speedup);
}

std::string VerdictWords(Verdict verdict, const Ratio& ratio, const std::string& other) {
  const Standing standing = StandingOf(ratio);
  const char* note =
      IsOpposite(verdict, standing) ? ", though a first test with other pairs said the opposite" : "";
  switch (standing) {
    case Standing::kFaster:
      return fmt::format("faster than {}{}", other, note);
    case Standing::kSlower:
      return fmt::format("slower than {}{}", other, note);
    case Standing::kSame:
      return fmt::format("as fast as {} (within 2 %)", other);
    case Standing::kNotDistinguishable:
      return fmt::format("not distinguishable from {}", other);
  }
  return "";
}

std::string TimesNote(const Ratio& ratio, double candidate_us, double other_us) {
  if (candidate_us <= 0 || other_us <= 0 || ratio.value <= 0) return "";
  const double of_medians = other_us / candidate_us;
  if (std::abs(std::log(of_medians / ratio.value)) <= kTimesAgree) return "";
  return fmt::format(
      "The two medians alone would give {}: the machine was faster at some times than at others. The speed-up compares "
      "the two halves of each pair, which ran right after one another.",
      FactorText(of_medians));
}

}  // namespace kevin
