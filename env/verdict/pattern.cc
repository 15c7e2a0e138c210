#include "env/verdict/pattern.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace kevin {
namespace {

constexpr int64_t kSamples = 4096;     // values that are compared with a rule
constexpr int64_t kLeastSamples = 8;   // fewer prove no rule
constexpr double kClose = 1e-3;        // relative: equal up to rounding
constexpr int64_t kLargestTile = 256;  // along a dimension

// The indices along one dimension that incorrect elements have: first, first + step, ..., count of them.
struct Progression {
  int64_t first = 0, step = 1, count = 0;
  bool is_regular = true;
  int64_t Last() const { return first + step * (count - 1); }
};

struct Places {
  int64_t count = 0, first = -1, last = -1;
  int64_t stride = 0;  // greatest common divisor of the distances from the first
  std::vector<Progression> dimensions;
  std::vector<int64_t> samples;  // flat indices
};

Progression ProgressionOf(const std::vector<uint8_t>& present) {
  Progression p;
  int64_t before = -1;
  for (size_t i = 0; i < present.size(); ++i) {
    if (present[i] == 0) continue;
    const auto at = static_cast<int64_t>(i);
    if (p.count == 0) p.first = at;
    if (p.count == 1) p.step = at - before;
    if (p.count > 1 && at - before != p.step) p.is_regular = false;
    ++p.count;
    before = at;
  }
  return p;
}

Places Find(const IncorrectElements& e) {
  Places places;
  const auto elements = static_cast<int64_t>(e.mask.size());
  std::vector<std::vector<uint8_t>> present;
  for (const int64_t extent : e.shape) present.emplace_back(static_cast<size_t>(extent), 0);
  for (int64_t i = 0; i < elements; ++i) {
    if (e.mask[static_cast<size_t>(i)] == 0) continue;
    if (places.count++ == 0) places.first = i;
    places.last = i;
    places.stride = std::gcd(places.stride, i - places.first);
    int64_t rest = i;
    for (size_t d = e.shape.size(); d-- > 0; rest /= e.shape[d])
      present[d][static_cast<size_t>(rest % e.shape[d])] = 1;
  }
  for (const auto& dimension : present) places.dimensions.push_back(ProgressionOf(dimension));
  const int64_t step = std::max<int64_t>(1, places.count / kSamples);
  for (int64_t i = places.first, seen = 0; i >= 0 && i <= places.last; ++i) {
    if (e.mask[static_cast<size_t>(i)] != 0 && seen++ % step == 0) places.samples.push_back(i);
  }
  return places;
}

// ":", "96:128", "1::2", "3"
std::string SliceText(const Progression& p, int64_t extent, int64_t origin) {
  if (p.count == extent && origin == 0) return ":";
  const int64_t first = p.first + origin;
  if (p.count == 1) return std::to_string(first);
  const std::string range = fmt::format("{}:{}", first, p.Last() + origin + 1);
  return p.step == 1 ? range : fmt::format("{}:{}", range, p.step);
}

std::string BlockText(const IncorrectElements& e, const std::vector<Progression>& dimensions) {
  std::vector<std::string> slices;
  for (size_t d = 0; d < dimensions.size(); ++d)
    slices.push_back(SliceText(dimensions[d], e.shape[d], d == 0 ? e.origin : 0));
  return fmt::format("{}[{}]", e.name, fmt::join(slices, ", "));
}

bool IsBlock(const Places& places) {
  double volume = 1;
  for (const Progression& p : places.dimensions) {
    if (!p.is_regular) return false;
    volume *= static_cast<double>(p.count);
  }
  return volume == static_cast<double>(places.count);
}

// "a tile of 16 x 16": the last two dimensions, both in part, from a multiple of the size on.
std::string TileText(const IncorrectElements& e, const Places& places) {
  const size_t dimensions = places.dimensions.size();
  if (dimensions < 2) return "";
  const Progression &rows = places.dimensions[dimensions - 2], &columns = places.dimensions[dimensions - 1];
  for (const auto& [p, extent] :
       {std::pair(rows, e.shape[dimensions - 2]), {columns, e.shape[dimensions - 1]}}) {
    if (p.step != 1 || p.count < 2 || p.count == extent || p.count > kLargestTile || p.first % p.count != 0)
      return "";
  }
  return fmt::format(", a tile of {} x {}", rows.count, columns.count);
}

// Within 2 %: the part of one of the candidate's threads.
std::string ThreadText(const IncorrectElements& e, const Places& places) {
  const bool is_run = places.last - places.first + 1 == places.count;
  const double share = static_cast<double>(places.count) * e.threads / static_cast<double>(e.mask.size());
  if (!is_run || e.threads < 2 || std::abs(share - 1) > 0.02) return "";
  return fmt::format(", the share of one of {} threads", e.threads);
}

std::string WhereText(const IncorrectElements& e, const Places& places) {
  const auto elements = static_cast<int64_t>(e.mask.size());
  if (places.count == elements && e.origin != 0) return "";
  if (places.count == elements)
    return e.is_part ? fmt::format("all of the {} that were looked at", elements) : "all of them";
  if (IsBlock(places)) return BlockText(e, places.dimensions) + TileText(e, places) + ThreadText(e, places);
  const int64_t span = places.last - places.first + 1;
  if (span == places.count) {
    return fmt::format("one run of the flat array, from element {} {}{}", places.first,
                       places.last == elements - 1 ? "to the end" : fmt::format("to {}", places.last),
                       ThreadText(e, places));
  }
  if (places.stride > 1 && (span - 1) / places.stride + 1 == places.count)
    return fmt::format("one element in {} of the flat array, from {} to {}", places.stride, places.first,
                       places.last);
  double volume = 1;
  for (const Progression& p : places.dimensions) volume *= static_cast<double>(p.count);
  std::string text = fmt::format("scattered between flat elements {} and {}", places.first, places.last);
  if (places.stride > 1) text += fmt::format(", at distances that are multiples of {}", places.stride);
  const bool all_regular = std::all_of(places.dimensions.begin(), places.dimensions.end(),
                                       [](const Progression& p) { return p.is_regular; });
  if (all_regular && volume < static_cast<double>(elements) / 2)
    text += fmt::format(", {:.2g} % of {}", 100 * static_cast<double>(places.count) / volume,
                        BlockText(e, places.dimensions));
  return text;
}

bool IsClose(double a, double b) { return std::abs(a - b) <= kClose * std::max(std::abs(a), std::abs(b)); }

// Whether `rule(flat)` gives the answer in (nearly) all samples where it has a value that is not the target itself.
template <typename Rule>
bool Explains(const IncorrectElements& e, const Places& places, const Rule& rule) {
  int64_t asked = 0, agreed = 0;
  for (const int64_t i : places.samples) {
    const std::optional<double> value = rule(i);
    if (!value || IsClose(*value, e.target(i))) continue;
    ++asked;
    agreed += IsClose(*value, e.answer[static_cast<size_t>(i)]);
  }
  return asked >= kLeastSamples && agreed * 100 >= asked * 99;
}

// The expected value of another element of the output, if there is one.
std::optional<double> TargetAt(const IncorrectElements& e, int64_t flat) {
  if (flat < 0 || flat >= static_cast<int64_t>(e.mask.size())) return std::nullopt;
  return e.target(flat);
}

// Of a slice of the last two dimensions that is stored column by column.
std::string ExchangedText(const IncorrectElements& e, const Places& places) {
  const size_t d = e.shape.size();
  if (d < 2 || e.shape[d - 1] < 2 || e.shape[d - 2] < 2) return "";
  const int64_t rows = e.shape[d - 2], columns = e.shape[d - 1];
  const bool explains = Explains(e, places, [&](int64_t i) {
    const int64_t slice = i / (rows * columns), local = i % (rows * columns);
    return TargetAt(e, slice * rows * columns + local % rows * columns + local / rows);
  });
  return explains ? "the last two dimensions are exchanged (transposed)" : "";
}

std::string NeighbourText(const IncorrectElements& e, const Places& places) {
  const int64_t row = e.shape.empty() ? 1 : e.shape.back();
  for (const int64_t distance : {int64_t{1}, int64_t{-1}, row, -row}) {
    if (distance == 0 || !Explains(e, places, [&](int64_t i) { return TargetAt(e, i + distance); })) continue;
    return fmt::format("each has the value that belongs {} further {}",
                       std::abs(distance) == row && row > 1 ? "one row" : "one element",
                       distance > 0 ? "on" : "back");
  }
  return "";
}

std::string ValueText(const IncorrectElements& e, const Places& places) {
  const auto answer = [&](int64_t i) { return static_cast<double>(e.answer[static_cast<size_t>(i)]); };
  const auto all = [&](const auto& fits) {
    return std::all_of(places.samples.begin(), places.samples.end(), fits);
  };
  if (all([&](int64_t i) { return std::isnan(answer(i)); })) return "all are NaN";
  const double first = answer(places.first);
  if (all([&](int64_t i) { return answer(i) == first; })) return fmt::format("all are {:.6g}", first);
  const double target = e.target(places.first);
  if (target != 0 && std::isfinite(first)) {
    const double factor = first / target, difference = first - target;
    if (Explains(e, places, [&](int64_t i) { return std::optional(e.target(i) * factor); }))
      return fmt::format("each is {:.4g} times the expected value", factor);
    if (Explains(e, places, [&](int64_t i) { return std::optional(e.target(i) + difference); }))
      return fmt::format("each differs by {:.4g}", difference);
  }
  const std::string exchanged = ExchangedText(e, places);
  return exchanged.empty() ? NeighbourText(e, places) : exchanged;
}

}  // namespace

std::string PatternOf(const IncorrectElements& elements) {
  const Places places = Find(elements);
  if (places.count < 2) return "";
  const std::string where = WhereText(elements, places), values = ValueText(elements, places);
  return where + (where.empty() || values.empty() ? "" : "; ") + values;
}

}  // namespace kevin
