#include "env/verdict/pattern.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>

namespace kevin {
namespace {

constexpr int64_t kSamples = 4096;     // values that are compared with a rule
constexpr int64_t kLeastSamples = 8;   // fewer prove no rule
constexpr double kClose = 1e-3;        // relative: equal up to rounding
constexpr int64_t kLargestTile = 256;  // along a dimension
constexpr double kNearly = 0.9;        // share of a place from which nearly all of it is incorrect
constexpr double kInside = 0.95;       // share of the incorrect elements that a place must have
constexpr int64_t kMostListed = 6;     // indices without a rule that are named one by one

// The indices along one dimension that incorrect elements have: first, first + step, ..., count of them; or, without such
// a rule and if they are few, a list.
struct Indices {
  int64_t first = 0, step = 1, count = 0;
  std::vector<int64_t> listed;  // empty: the rule
  bool is_known = true;         // neither a rule nor few
  int64_t Last() const { return first + step * (count - 1); }
  bool Has(int64_t index) const {
    if (!listed.empty()) return std::find(listed.begin(), listed.end(), index) != listed.end();
    return index >= first && index <= Last() && (index - first) % step == 0;
  }
};

// The product of the indices of all dimensions.
struct Block {
  std::vector<Indices> dimensions;
  int64_t volume = 0, inside = 0;  // elements; those that are incorrect
  double Fill() const { return volume > 0 ? static_cast<double>(inside) / static_cast<double>(volume) : 0; }
};

struct Places {
  int64_t count = 0, first = -1, last = -1;
  int64_t stride = 0;                        // greatest common divisor of the distances from the first
  std::vector<std::vector<int64_t>> counts;  // of each dimension: incorrect elements by index
  std::vector<int64_t> samples;              // flat indices
};

// Of the indices with at least `least` incorrect elements.
Indices IndicesOf(const std::vector<int64_t>& counts, int64_t least) {
  std::vector<int64_t> present;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] >= least) present.push_back(static_cast<int64_t>(i));
  }
  Indices indices;
  if (present.empty()) return indices;
  indices.first = present.front();
  int64_t step = 0;
  for (const int64_t index : present) step = std::gcd(step, index - indices.first);
  indices.step = std::max<int64_t>(step, 1);
  indices.count = (present.back() - indices.first) / indices.step + 1;
  const auto found = static_cast<int64_t>(present.size());
  if (static_cast<double>(found) >= kNearly * static_cast<double>(indices.count)) return indices;
  indices.is_known = found <= kMostListed;
  if (indices.is_known) indices.listed = std::move(present), indices.count = found;
  return indices;
}

Places Find(const IncorrectElements& e) {
  Places places;
  const auto elements = static_cast<int64_t>(e.mask.size());
  for (const int64_t extent : e.shape) places.counts.emplace_back(static_cast<size_t>(extent), 0);
  for (int64_t i = 0; i < elements; ++i) {
    if (e.mask[static_cast<size_t>(i)] == 0) continue;
    if (places.count++ == 0) places.first = i;
    places.last = i;
    places.stride = std::gcd(places.stride, i - places.first);
    int64_t rest = i;
    for (size_t d = e.shape.size(); d-- > 0; rest /= e.shape[d])
      ++places.counts[d][static_cast<size_t>(rest % e.shape[d])];
  }
  const int64_t step = std::max<int64_t>(1, places.count / kSamples);
  for (int64_t i = places.first, seen = 0; i >= 0 && i <= places.last; ++i) {
    if (e.mask[static_cast<size_t>(i)] != 0 && seen++ % step == 0) places.samples.push_back(i);
  }
  return places;
}

// Of all indices with incorrect elements; `is_rough`: of those alone that have half as many as the one with the most.
Block BlockOf(const IncorrectElements& e, const Places& places, bool is_rough) {
  Block block;
  block.volume = 1;
  for (const std::vector<int64_t>& counts : places.counts) {
    const int64_t most = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    block.dimensions.push_back(IndicesOf(counts, is_rough ? std::max<int64_t>(1, (most + 1) / 2) : 1));
    const bool may_list = places.counts.size() > 1 || block.dimensions.back().listed.empty();
    block.volume *= block.dimensions.back().is_known && may_list ? block.dimensions.back().count : 0;
  }
  block.inside = places.count;
  if (!is_rough || block.volume == 0) return block;
  block.inside = 0;
  for (int64_t i = places.first; i <= places.last; ++i) {
    if (e.mask[static_cast<size_t>(i)] == 0) continue;
    int64_t rest = i;
    bool is_inside = true;
    for (size_t d = e.shape.size(); d-- > 0 && is_inside; rest /= e.shape[d])
      is_inside = block.dimensions[d].Has(rest % e.shape[d]);
    block.inside += is_inside ? 1 : 0;
  }
  return block;
}

// ":", "96:128", "1::2", "3", "[3, 4, 9]"
std::string SliceText(const Indices& p, int64_t extent, int64_t origin) {
  if (!p.listed.empty()) {
    std::vector<int64_t> listed = p.listed;
    for (int64_t& index : listed) index += origin;
    return fmt::format("[{}]", fmt::join(listed, ", "));
  }
  if (p.count == extent && origin == 0) return ":";
  const int64_t first = p.first + origin;
  if (p.count == 1) return std::to_string(first);
  const std::string range = fmt::format("{}:{}", first, p.Last() + origin + 1);
  return p.step == 1 ? range : fmt::format("{}:{}", range, p.step);
}

std::string BlockText(const IncorrectElements& e, const Block& block) {
  std::vector<std::string> slices;
  for (size_t d = 0; d < block.dimensions.size(); ++d)
    slices.push_back(SliceText(block.dimensions[d], e.shape[d], d == 0 ? e.origin : 0));
  return fmt::format("{}[{}]", e.name, fmt::join(slices, ", "));
}

// "a tile of 16 x 16": the last two dimensions, both in part, from a multiple of the size on.
std::string TileText(const IncorrectElements& e, const Block& block) {
  const size_t dimensions = block.dimensions.size();
  if (dimensions < 2) return "";
  const Indices &rows = block.dimensions[dimensions - 2], &columns = block.dimensions[dimensions - 1];
  for (const auto& [p, extent] :
       {std::pair(rows, e.shape[dimensions - 2]), {columns, e.shape[dimensions - 1]}}) {
    const bool is_run = p.step == 1 && p.listed.empty();
    if (!is_run || p.count < 2 || p.count == extent || p.count > kLargestTile || p.first % p.count != 0)
      return "";
  }
  return fmt::format(", a tile of {} x {}", rows.count, columns.count);
}

// The part of one of the candidate's threads, as a static schedule divides `all` iterations: as equal as possible, the
// longer parts first. `first` and `count` may be off by 2 % of a part.
std::string ThreadText(const IncorrectElements& e, int64_t first, int64_t count, int64_t all) {
  if (e.threads < 2 || e.is_part || all < e.threads) return "";
  const int64_t part = all / e.threads, longer = all % e.threads, slack = part / 50;
  for (int64_t thread = 0; thread < e.threads; ++thread) {
    const int64_t begin = thread * part + std::min(thread, longer), size = part + (thread < longer ? 1 : 0);
    if (std::abs(begin - first) <= slack && std::abs(size - count) <= slack)
      return fmt::format(", the share of one of {} threads", e.threads);
  }
  return "";
}

// Of a block that is one run of slices along the first dimension of which it has a part.
std::string ThreadText(const IncorrectElements& e, const Block& block) {
  int64_t first = 0, all = 1;
  for (size_t d = 0; d < block.dimensions.size(); ++d) {
    const Indices& p = block.dimensions[d];
    first = first * e.shape[d] + p.first, all *= e.shape[d];
    if (p.count == 1 && d + 1 < block.dimensions.size()) continue;
    if (p.step != 1 || !p.listed.empty()) return "";
    for (size_t rest = d + 1; rest < block.dimensions.size(); ++rest) {
      if (block.dimensions[rest].count != e.shape[rest]) return "";
    }
    return ThreadText(e, first, p.count, all);
  }
  return "";
}

// "", "nearly all of ": the incorrect elements as a share of a place.
std::string Nearly(int64_t count, int64_t volume) { return count == volume ? "" : "nearly all of "; }

bool IsNearly(int64_t count, int64_t volume) {
  return volume > 0 && static_cast<double>(count) >= kNearly * static_cast<double>(volume);
}

// Empty: it is none.
std::string BlockPlace(const IncorrectElements& e, const Places& places, const Block& block) {
  const int64_t others = places.count - block.inside;
  if (!IsNearly(block.inside, block.volume) ||
      static_cast<double>(block.inside) < kInside * static_cast<double>(places.count))
    return "";
  const bool is_whole = block.volume == static_cast<int64_t>(e.mask.size()) && e.origin == 0;
  if (is_whole && e.is_part) return fmt::format("nearly all of the {} that were looked at", block.volume);
  if (is_whole) return "nearly all of them";
  return Nearly(block.inside, block.volume) + BlockText(e, block) + TileText(e, block) +
         ThreadText(e, block) + (others > 0 ? fmt::format(", and {} elsewhere", others) : "");
}

std::string RunPlace(const IncorrectElements& e, const Places& places) {
  const auto elements = static_cast<int64_t>(e.mask.size());
  const int64_t span = places.last - places.first + 1;
  if (!IsNearly(places.count, span)) return "";
  return fmt::format("{}one run of the flat array, from element {} {}{}", Nearly(places.count, span),
                     places.first,
                     places.last == elements - 1 ? "to the end" : fmt::format("to {}", places.last),
                     ThreadText(e, places.first, span, elements));
}

std::string StridePlace(const Places& places) {
  if (places.stride < 2) return "";
  const int64_t steps = (places.last - places.first) / places.stride + 1;
  if (!IsNearly(places.count, steps)) return "";
  return fmt::format("{}one element in {} of the flat array, from {} to {}",
                     places.count == steps ? "" : "nearly always ", places.stride, places.first, places.last);
}

std::string WhereText(const IncorrectElements& e, const Places& places) {
  const auto elements = static_cast<int64_t>(e.mask.size());
  if (places.count == elements && e.origin != 0) return "";
  if (places.count == elements)
    return e.is_part ? fmt::format("all of the {} that were looked at", elements) : "all of them";
  const Block block = BlockOf(e, places, false);
  if (block.volume == places.count) return BlockPlace(e, places, block);
  const std::string run = RunPlace(e, places), stride = StridePlace(places);
  if (!run.empty() && places.last - places.first + 1 == places.count) return run;
  for (const std::string& place :
       {BlockPlace(e, places, block), run, stride, BlockPlace(e, places, BlockOf(e, places, true))}) {
    if (!place.empty()) return place;
  }
  std::string text = fmt::format("scattered between flat elements {} and {}", places.first, places.last);
  if (places.stride > 1) text += fmt::format(", at distances that are multiples of {}", places.stride);
  if (block.volume > 0 && block.volume < elements / 2)
    text += fmt::format(", {:.2g} % of {}", 100 * block.Fill(), BlockText(e, block));
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

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// "all are 0", "nearly all are NaN". Empty: they differ.
std::string OneValueText(const std::vector<double>& answers) {
  const auto share_of = [&](const auto& fits) {
    return static_cast<double>(std::count_if(answers.begin(), answers.end(), fits)) /
           static_cast<double>(answers.size());
  };
  const auto text = [](double share, const std::string& value) {
    return fmt::format("{} are {}", share == 1 ? "all" : "nearly all", value);
  };
  if (const double nan = share_of([](double y) { return std::isnan(y); }); nan >= kInside)
    return text(nan, "NaN");
  std::vector<double> numbers;
  std::copy_if(answers.begin(), answers.end(), std::back_inserter(numbers),
               [](double y) { return !std::isnan(y); });
  const double most = MedianOf(numbers);  // the value that most have, if most have one
  const double share = share_of([&](double y) { return y == most; });
  const bool is_proof = share == 1 || static_cast<int64_t>(answers.size()) >= kLeastSamples;
  return share >= kInside && is_proof ? text(share, fmt::format("{:.6g}", most)) : "";
}

std::string ValueText(const IncorrectElements& e, const Places& places) {
  std::vector<double> answers, factors, differences;
  for (const int64_t i : places.samples) {
    const double answer = e.answer[static_cast<size_t>(i)], target = e.target(i);
    answers.push_back(answer);
    if (!std::isfinite(answer) || !std::isfinite(target)) continue;
    differences.push_back(answer - target);
    if (target != 0) factors.push_back(answer / target);
  }
  if (std::string one = OneValueText(answers); !one.empty()) return one;
  const double factor = MedianOf(factors), difference = MedianOf(differences);
  if (factor != 0 && Explains(e, places, [&](int64_t i) { return std::optional(e.target(i) * factor); }))
    return fmt::format("each is {:.4g} times the expected value", factor);
  if (difference != 0 &&
      Explains(e, places, [&](int64_t i) { return std::optional(e.target(i) + difference); }))
    return fmt::format("each differs by {:.4g}", difference);
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
