#include "env/verdict/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <vector>

#include "env/problem/precision.h"
#include "env/process/machine.h"
#include "env/process/poison.h"
#include "env/verdict/pattern.h"

namespace kevin {
namespace {

constexpr double kEps = 0x1p-23;

int64_t Product(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t RowLength(std::span<const int64_t> shape) {
  const int64_t last = shape.empty() ? 1 : shape.back();
  return last > 1 ? last : Product(shape);
}

std::string IndexText(int64_t flat, std::span<const int64_t> shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

// Poison as it looks in a 16-bit type, widened to float.
bool IsPoison(float value, DType dtype) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kBF16) return IsPoisonHalf(static_cast<uint16_t>(bits >> 16));
  if (dtype == DType::kF16)  // the mantissa's ten bits come first in the float's
    return std::isnan(value) && IsPoisonHalf(static_cast<uint16_t>(0x7c00U | (bits >> 13 & 0x3ffU)));
  return IsPoisonWord(bits);
}

bool SameNonFinite(float a, float b) { return std::isnan(a) ? std::isnan(b) : a == b; }

// The worst element of a part of the tensor, and whether a rule was broken there.
struct Worst {
  double ratio = -1;  // error / bound
  double error = 0, bound = 0;
  int64_t index = -1;
  int64_t wrong = 0;  // elements over their bound
  int64_t first_wrong = std::numeric_limits<int64_t>::max();
  double reference_error = 0;
  int64_t bad_row = -1;
  double row_error = 0, row_bound = 0;
  uint8_t* mask = nullptr;  // one a element: set to 1 where it is over its bound; null: not asked for

  void See(int64_t i, double e, double b) {
    const bool over = !(e <= b);
    if (over) {
      ++wrong;
      if (mask != nullptr) mask[i] = 1;
      first_wrong = std::min(first_wrong, i);
    }
    const double r =
        over ? (std::isfinite(e) ? e / std::max(b, 1e-300) : std::numeric_limits<double>::infinity())
             : (b > 0 ? e / b : 0);
    if (r > ratio) {
      ratio = r;
      error = e;
      bound = b;
      index = i;
    }
  }
  void Merge(const Worst& o) {
    if (o.ratio > ratio) {
      ratio = o.ratio;
      error = o.error;
      bound = o.bound;
      index = o.index;
    }
    wrong += o.wrong;
    first_wrong = std::min(first_wrong, o.first_wrong);
    reference_error = std::max(reference_error, o.reference_error);
    if (bad_row < 0 && o.bad_row >= 0) {
      bad_row = o.bad_row;
      row_error = o.row_error;
      row_bound = o.row_bound;
    }
  }
};

struct Data {
  std::span<const float> answer, reference;
  std::span<const double> truth;  // empty: check against the reference
  std::span<const double> scale;
  ErrorFloor floor;  // with the margin where there is no truth
  DType dtype = DType::kF32;
  int64_t row = 1;
  double error_spread = 0;

  double Target(int64_t i) const { return truth.empty() ? reference[i] : truth[i]; }
};

// `margin` counts where there is no truth.
Data DataOf(const CheckShape& shape, std::span<const float> answer, std::span<const float> reference,
            std::span<const double> truth, std::span<const double> scale, double margin) {
  ErrorFloor floor = FloorOf(shape.reduction, shape.dtype);
  if (truth.empty()) floor.of_scale += margin;
  return {answer, reference, truth, scale, floor, shape.dtype, RowLength(shape.shape), shape.error_spread};
}

struct RowRms {
  double target = 0, reference_error = 0;  // over finite targets
};

RowRms RmsOf(const Data& data, int64_t begin, int64_t end) {
  double targets = 0, errors = 0;
  int64_t count = 0;
  for (int64_t i = begin; i < end; ++i) {
    const double t = data.Target(i), error = data.reference[i] - t;
    if (!std::isfinite(t)) continue;
    targets += t * t;
    if (std::isfinite(error)) errors += error * error;
    ++count;
  }
  const auto elements = static_cast<double>(std::max<int64_t>(count, 1));
  return {std::sqrt(targets / elements), std::sqrt(errors / elements)};
}

// Of 16-bit types, whose range correct arithmetic may leave on the way or at the end. Without a truth it is
// unknown what eager lost on the way.
bool CorrectBeyondRange(const Data& data, float y, double t, double floor) {
  if (data.dtype == DType::kF32) return false;
  if (!std::isfinite(t)) return data.truth.empty();
  if (std::isfinite(y)) return std::abs(y - t) <= floor;
  return !std::isnan(y) && (y > 0) == (t > 0) && std::abs(t) + floor > LargestFinite(data.dtype);
}

void CheckRow(const Data& data, int64_t begin, int64_t end, Worst* worst) {
  const RowRms rms = RmsOf(data, begin, end);
  const double spread =
      data.truth.empty() ? 0 : SpreadFactor(data.error_spread, data.dtype, end - begin) * rms.reference_error;
  double error_squares = 0, reference_squares = 0, floor_squares = 0;
  for (int64_t i = begin; i < end; ++i) {
    const double t = data.Target(i);
    const float r = data.reference[i], y = data.answer[i];
    const double s = data.scale.empty() ? std::max(std::abs(t), rms.target) : data.scale[i];
    const double floor = data.floor.At(std::abs(t), s);
    if (!std::isfinite(t) || !std::isfinite(r) || (!std::isfinite(y) && data.dtype != DType::kF32)) {
      const bool correct = SameNonFinite(y, r) || CorrectBeyondRange(data, y, t, floor);
      worst->See(i, correct ? 0 : std::numeric_limits<double>::infinity(), 0);
      continue;
    }
    const double reference_error = std::abs(r - t), error = std::abs(y - t);
    worst->See(i, std::isnan(error) ? std::numeric_limits<double>::infinity() : error,
               std::max({4 * reference_error, floor, spread}));
    if (s > 0) worst->reference_error = std::max(worst->reference_error, reference_error / s);
    error_squares += error * error;
    reference_squares += reference_error * reference_error;
    floor_squares += floor * floor;
  }
  const double allowed = std::max(16 * reference_squares, floor_squares);
  if (!(error_squares <= allowed) && worst->bad_row < 0) {
    worst->bad_row = begin;
    worst->row_error = std::sqrt(error_squares / static_cast<double>(end - begin));
    worst->row_bound = std::sqrt(allowed / static_cast<double>(end - begin));
  }
}

// The fast path for timed outputs without a scale: fp32 throughout, vectorised, and the careful pass only
// where it finds something.
bool RowSurelyCorrect(const Data& data, int64_t begin, int64_t end) {
  const float* y = data.answer.data();
  const float* r = data.reference.data();
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = begin; i < end; ++i) squares += r[i] * r[i];
  if (!std::isfinite(squares)) return false;  // they overflow, or the row has values that are no numbers
  const auto floor = static_cast<float>(data.floor.of_scale * 0.999);
  const float rms = std::sqrt(squares / static_cast<float>(end - begin)) * 0.999F;
  int outside = 0;
#pragma omp simd reduction(+ : outside)
  for (int64_t i = begin; i < end; ++i) {
    const float s = std::max(std::abs(r[i]), rms);
    outside += !(std::abs(y[i] - r[i]) <= floor * s);
  }
  return outside == 0;
}

Worst CheckRows(const Data& data, int threads, uint8_t* mask = nullptr) {
  const auto elements = static_cast<int64_t>(data.answer.size());
  const int64_t rows = elements / data.row;
  const bool fast = data.truth.empty() && data.scale.empty();
  Worst total;
  std::mutex mutex;
  ParallelFor(rows, std::max<int64_t>(1, (1 << 15) / data.row), threads, [&](int64_t begin, int64_t end) {
    Worst part;
    part.mask = mask;
    for (int64_t row = begin; row < end; ++row) {
      if (fast && RowSurelyCorrect(data, row * data.row, (row + 1) * data.row)) continue;
      CheckRow(data, row * data.row, (row + 1) * data.row, &part);
    }
    const std::lock_guard lock(mutex);
    total.Merge(part);
  });
  return total;
}

std::string Pattern(const CheckShape& shape, const Data& data, int threads, int candidate_threads,
                    int64_t origin = 0, bool is_part = false) {
  std::vector<uint8_t> mask(data.answer.size(), 0);
  CheckRows(data, threads, mask.data());
  return PatternOf({shape.name, shape.shape, mask, data.answer,
                    [&](int64_t flat) { return data.Target(flat); }, candidate_threads, origin, is_part});
}

// "; 2 of 4 elements (50 %) are off: out[:, 1]"
std::string OffText(int64_t wrong, int64_t elements, const std::string& pattern) {
  const double percent = 100 * static_cast<double>(wrong) / static_cast<double>(elements);
  return fmt::format("; {} of {} elements ({} %) {} off{}{}", wrong, elements,
                     percent >= 9.95 ? fmt::format("{:.0f}", percent) : fmt::format("{:.2g}", percent),
                     wrong == 1 ? "is" : "are", pattern.empty() ? "" : ": ", pattern);
}

// Of an output of indices: the places that do not point at an extreme value.
struct MissedExtremes {
  std::vector<uint8_t> mask;
  std::vector<float> answer, target;  // as indices
  int64_t count = 0;
};

CheckResult Report(const CheckShape& shape, const Data& data, const Worst& worst, int threads) {
  CheckResult result;
  result.max_error = worst.error;
  result.error_bound = worst.bound;
  result.reference_error = worst.reference_error;
  const auto elements = static_cast<int64_t>(data.answer.size());
  if (worst.wrong > 0) {
    result.ok = false;
    const int64_t i = worst.first_wrong;
    const bool is_unwritten = IsPoison(data.answer[i], data.dtype);
    const FirstIncorrect first{IndexText(i, shape.shape), data.answer[i], data.Target(i), is_unwritten};
    result.message = IncorrectText(shape.name, first, worst.wrong, elements,
                                   Pattern(shape, data, threads, threads), worst.error, worst.bound);
  } else if (worst.bad_row >= 0) {
    result.ok = false;
    result.message = fmt::format("{}{} RMS error {:.3g} with {:.3g} allowed (4x the reference's)", shape.name,
                                 elements == data.row ? std::string(" has")
                                                      : fmt::format(": the row that starts at {} has",
                                                                    IndexText(worst.bad_row, shape.shape)),
                                 worst.row_error, worst.row_bound);
    result.max_error = worst.row_error;
    result.error_bound = worst.row_bound;
  }
  return result;
}

}  // namespace

std::string IncorrectText(const std::string& name, const FirstIncorrect& first, int64_t wrong,
                          int64_t elements, const std::string& pattern, double error, double bound) {
  const auto number = [](double value) { return std::isnan(value) ? "NaN" : fmt::format("{:.8g}", value); };
  std::string text =
      fmt::format("{}{} = {}{}, expected {}", name, elements == 1 ? "" : first.index, number(first.answer),
                  first.is_unwritten ? " (never written)" : "", number(first.target));
  if (elements > 1) text += OffText(wrong, elements, pattern);
  if (!std::isfinite(error)) return text;  // NaN, infinite or never written
  return text +
         fmt::format("; {}error {:.3g} with {:.3g} allowed", wrong > 1 ? "largest " : "", error, bound);
}

std::string DescribeIncorrect(const CheckShape& shape, std::span<const float> answer,
                              std::span<const float> reference, std::span<const double> truth,
                              std::span<const double> scale, double margin, int threads, int64_t origin,
                              bool is_part, int candidate_threads) {
  return Pattern(shape, DataOf(shape, answer, reference, truth, scale, margin), threads, candidate_threads,
                 origin, is_part);
}

double SpreadFactor(double error_spread, DType dtype, int64_t row) {
  constexpr int64_t kLeastRow = 32;  // a short row shows no spread
  return dtype == DType::kF32 || row < kLeastRow ? 0 : error_spread;
}

ErrorFloor FloorOf(int64_t reduction, DType dtype) {
  ErrorFloor floor{8 * kEps * std::sqrt(static_cast<double>(reduction)), 0, 0};
  if (dtype == DType::kF32) return floor;
  floor.of_scale += 2 * Roundoff(dtype);
  floor.of_value = 2 * Roundoff(dtype);
  floor.absolute = 2 * SmallestStep(dtype);
  return floor;
}

CheckResult CheckAgainstTruth(const CheckShape& shape, std::span<const float> answer,
                              std::span<const float> reference, std::span<const double> truth,
                              std::span<const double> scale, int threads) {
  const Data data = DataOf(shape, answer, reference, truth, scale, 0);
  return Report(shape, data, CheckRows(data, threads), threads);
}

CheckResult CheckAgainstReference(const CheckShape& shape, std::span<const float> answer,
                                  std::span<const float> reference, std::span<const double> scale,
                                  double margin, int threads) {
  const Data data = DataOf(shape, answer, reference, {}, scale, margin);
  return Report(shape, data, CheckRows(data, threads), threads);
}

CheckResult CheckExtremeIndex(const std::string& name, std::span<const int64_t> answer,
                              std::span<const float> values, std::span<const int64_t> values_shape, int dim,
                              bool maximum) {
  const int64_t length = values_shape[static_cast<size_t>(dim)];
  const int64_t inner = Product(values_shape.subspan(static_cast<size_t>(dim) + 1));
  const int64_t outer = Product(values_shape.first(static_cast<size_t>(dim)));
  std::vector<int64_t> shape(values_shape.begin(), values_shape.end());
  shape.erase(shape.begin() + dim);
  std::vector<float> extreme(static_cast<size_t>(inner));
  MissedExtremes missed;
  CheckResult result;
  for (int64_t o = 0; o < outer; ++o) {
    const float* block = values.data() + o * length * inner;
    std::copy(block, block + inner, extreme.begin());
    for (int64_t l = 1; l < length; ++l) {
      const float* line = block + l * inner;
      for (int64_t i = 0; i < inner; ++i) {
        extreme[i] = maximum ? std::max(extreme[i], line[i]) : std::min(extreme[i], line[i]);
      }
    }
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t flat = o * inner + i, index = answer[flat];
      const bool inside = index >= 0 && index < length;
      if (inside && block[index * inner + i] == extreme[i]) continue;
      if (missed.count++ == 0) {
        missed.mask.resize(answer.size()), missed.target.resize(answer.size());
        result.ok = false;
        result.max_error = inside ? std::abs(static_cast<double>(block[index * inner + i]) - extreme[i])
                                  : static_cast<double>(length);
        result.message = fmt::format(
            "{}{} = {} {}, the {} along dimension {} is {:.8g}", name,
            answer.size() == 1 ? "" : IndexText(flat, shape), index,
            inside ? fmt::format("points at {:.8g}", block[index * inner + i]) : "is out of range",
            maximum ? "maximum" : "minimum", dim, extreme[i]);
      }
      missed.mask[static_cast<size_t>(flat)] = 1;
      int64_t place = 0;
      while (place + 1 < length && block[place * inner + i] != extreme[i]) ++place;
      missed.target[static_cast<size_t>(flat)] = static_cast<float>(place);
    }
  }
  if (missed.count == 0 || answer.size() == 1) return result;
  missed.answer.assign(answer.begin(), answer.end());
  const std::string pattern =
      PatternOf({name, shape, missed.mask, missed.answer, [&](int64_t flat) {
                   return static_cast<double>(missed.target[static_cast<size_t>(flat)]);
                 }});
  result.message += OffText(missed.count, static_cast<int64_t>(answer.size()), pattern);
  return result;
}

}  // namespace kevin
