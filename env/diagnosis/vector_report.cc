#include "env/diagnosis/vector_report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

namespace kevin {
namespace {

constexpr std::string_view kOrder =
    "the order of its floating-point additions is fixed (use several independent sums, or `#pragma omp simd "
    "reduction`)";
constexpr std::string_view kCall = "it calls a function that has no vector form or is not inlined";
constexpr std::string_view kCarried = "a value is carried from one iteration to the next";
constexpr std::string_view kOverlap = "its pointers may overlap (use `__restrict`)";
constexpr std::string_view kCount = "the number of iterations is not known when it begins";
constexpr std::string_view kAccess = "its accesses have no simple stride";
constexpr std::string_view kOperation = "an operation or a type in it has no vector form";

struct KnownReason {
  std::string_view part;  // of the compiler's message
  std::string_view words;
};
// The first that fits counts.
constexpr std::array<KnownReason, 28> kReasons = {{
    // g++
    {"unsafe fp math", kOrder},
    {"control flow in loop", "there is a branch in it"},
    {"multiple exits", "it has several exits"},
    {"number of iterations cannot be computed", kCount},
    {"loop contains function calls", kCall},
    {"statement clobbers memory", kCall},
    {"can't create dependence", kOverlap},
    {"possible dependence", kOverlap},
    {"versioning for alias", kOverlap},
    {"unsupported use in stmt", kCarried},
    {"volatile", "it uses a volatile variable"},
    {"complicated access pattern", kAccess},
    {"not suitable for gather", kAccess},
    {"not suitable for strided", kAccess},
    {"data ref analysis failed", kAccess},
    {"no vectype for stmt", kOperation},
    {"relevant stmt not supported", kOperation},
    {"unsupported data-type", kOperation},
    {"vectorization is not profitable", "vectors would not pay by the compiler's estimate"},
    {"vectorization not profitable", "vectors would not pay by the compiler's estimate"},
    // clang
    {"cannot prove it is safe to reorder floating-point", kOrder},
    {"could not determine number of loop iterations", kCount},
    {"call instruction cannot be vectorized", kCall},
    {"unsafe dependent memory operations", kCarried},
    {"could not be identified as reduction", kCarried},
    {"cannot identify array bounds", kAccess},
    {"control flow", "there is a branch in it"},
    {"instruction cannot be vectorized", kOperation},
}};

std::string ReasonIn(std::string_view message) {
  for (const KnownReason& known : kReasons) {
    if (message.find(known.part) != std::string_view::npos) return std::string(known.words);
  }
  return "";
}

std::optional<int> NumberAt(std::string_view text) {
  int number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<int> NumberAfter(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  return at == std::string_view::npos ? std::nullopt : NumberAt(text.substr(at + words.size()));
}

struct Message {
  int line = 0;
  std::string_view text;
};

// "candidate.cpp:12:24: optimized: loop vectorized using 32 byte vectors", with or without a folder in front.
std::optional<Message> Parse(std::string_view line, const std::string& source_name) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon < source_name.size()) return std::nullopt;
  const std::string_view path = line.substr(0, colon);
  if (path.substr(path.size() - source_name.size()) != source_name) return std::nullopt;
  if (path.size() > source_name.size() && path[path.size() - source_name.size() - 1] != '/')
    return std::nullopt;
  const auto number = NumberAt(line.substr(colon + 1));
  const size_t text = line.find(": ", colon);
  if (!number || text == std::string_view::npos) return std::nullopt;
  return Message{*number, line.substr(text + 2)};
}

// Of a loop that was vectorised: bytes; 0 of one that was not; nothing of other messages.
std::optional<int> VectorBytes(std::string_view text) {
  if (text.starts_with("optimized: loop vectorized")) return NumberAfter(text, "using ").value_or(0);
  if (text.starts_with("remark: vectorized loop"))
    return 4 * NumberAfter(text, "width: ").value_or(0);  // of elements, which are mostly floats
  if (text.starts_with("missed: ") || text.starts_with("remark: loop not vectorized")) return 0;
  return std::nullopt;
}

}  // namespace

std::vector<std::string> VectorReportFlags(bool is_clang, const std::string& report) {
  if (!is_clang) return {"-fopt-info-vec-optimized-missed=" + report};
  return {"-Rpass=loop-vectorize", "-Rpass-missed=loop-vectorize", "-Rpass-analysis=loop-vectorize"};
}

std::vector<VectorNote> ReadVectorReport(const std::string& report, const std::string& source_name,
                                         int lines) {
  std::map<int, VectorNote> notes;
  std::istringstream text(report);
  for (std::string line; std::getline(text, line);) {
    const auto message = Parse(line, source_name);
    if (!message || message->line < 1 || message->line > lines) continue;
    const auto bytes = VectorBytes(message->text);
    if (!bytes) continue;
    VectorNote& note = notes[message->line];
    note.line = message->line;
    note.vector_bytes = std::max(note.vector_bytes, std::min(*bytes, 256));
    if (note.reason.empty() && *bytes == 0) note.reason = ReasonIn(message->text);
  }
  std::vector<VectorNote> all;
  for (auto& [line, note] : notes) {
    if (note.vector_bytes > 0) note.reason.clear();
    all.push_back(std::move(note));
  }
  return all;
}

}  // namespace kevin
