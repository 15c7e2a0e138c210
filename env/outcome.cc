#include <fmt/format.h>

#include <string_view>

#include "env/environment.h"

namespace kevin {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::string OneLine(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return "";
  text = text.substr(start);
  text = text.substr(0, text.find_first_of("\r\n"));
  return std::string(text.substr(0, text.find_last_not_of(" \t") + 1));
}

// The first error of a compiler's or linker's log, without the file's name; its first line when none is
// found.
std::string FirstCompileError(std::string_view log) {
  for (const std::string_view mark : {"error: ", "undefined reference"}) {
    const size_t at = log.find(mark);
    if (at == std::string_view::npos) continue;
    const size_t line_start = log.rfind('\n', at) + 1;  // npos + 1 is 0
    const size_t colon = log.find(':', line_start);
    return OneLine(log.substr(colon < at ? colon + 1 : line_start));
  }
  return OneLine(log);
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFast:
      return "fast";
    case Verdict::kSlow:
      return "slow";
    case Verdict::kSame:
      return "same";
    case Verdict::kAmbiguous:
      return "ambiguous";
  }
  return "";
}

const char* OutcomeName(const Outcome& outcome) {
  static constexpr const char* kNames[] = {"parse_failed", "compile_failed", "refused", "crashed",
                                           "timed_out",    "wrong",          "measured"};
  static_assert(std::size(kNames) == std::variant_size_v<Outcome>);
  return kNames[outcome.index()];
}

std::string OutcomeReason(const Outcome& outcome) {
  return std::visit(
      Overloaded{
          [](const ParseFailed& o) { return OneLine(o.message); },
          [](const CompileFailed& o) {
            return (o.where.empty() ? "" : o.where + ": ") + FirstCompileError(o.log);
          },
          [](const Refused& o) { return OneLine(o.reason); },
          [](const Crashed& o) { return OneLine(o.message); },
          [](const TimedOut& o) { return fmt::format("{} took longer than {:g} s", o.phase, o.limit_s); },
          [](const Wrong& o) { return OneLine(o.message); }, [](const Measured&) { return std::string(); }},
      outcome);
}

double Score(const Outcome& outcome) {
  const Measured* measured = std::get_if<Measured>(&outcome);
  return measured ? 0.3 + measured->speedup.value : 0.0;
}

}  // namespace kevin
