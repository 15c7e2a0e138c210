#include "agent/problem_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "env/problem/precision.h"
#include "env/verdict/verify.h"

namespace kevin {
namespace {

// As env/process/generator.h draws them, before scale and offset.
constexpr double kBellLimit = 3;

std::string Number(double value) { return fmt::format("{:.4g}", value); }

bool IsFromZeroToOne(const TensorSpec& spec, bool kernelbench_inputs) {
  return kernelbench_inputs && !spec.is_param && IsFloating(spec.dtype) &&
         spec.distribution != Distribution::kSigns && spec.distribution != Distribution::kStored;
}

// Of a distribution with the given ends, at scale 1 and offset 0.
std::string Range(double low, double high, double scale, double offset) {
  return fmt::format("[{}, {}]", Number(low * scale + offset), Number(high * scale + offset));
}

std::string Integers(const TensorSpec& spec, double low, double high) {
  const double first = std::floor(low * spec.scale + spec.offset);
  const double last = std::ceil(high * spec.scale + spec.offset) - 1;
  return fmt::format("integers from {:.0f} to {:.0f}", first, std::max(first, last));
}

// ", times 1/sqrt(C), plus 64"
std::string Moved(const TensorSpec& spec, bool with_numbers) {
  std::string text;
  if (!with_numbers && !spec.scale_text.empty()) {
    text += ", times " + spec.scale_text;
  } else if (spec.scale != 1) {
    text += ", times " + Number(spec.scale);
  }
  return spec.offset == 0 ? text : text + ", plus " + Number(spec.offset);
}

std::string Drawn(const TensorSpec& spec, bool with_numbers) {
  const bool is_open = !with_numbers && !spec.scale_text.empty();
  const double s = spec.scale, o = spec.offset;
  const bool is_integer = spec.dtype == DType::kI64 || spec.dtype == DType::kI32;
  switch (spec.distribution) {
    case Distribution::kMixture:
      return "mixture" + Moved(spec, with_numbers);
    case Distribution::kNormal:
      if (is_open) return "bell-shaped with standard deviation 1" + Moved(spec, with_numbers);
      return fmt::format("bell-shaped, mean {}, standard deviation {}, in {}", Number(o), Number(s),
                         Range(-kBellLimit, kBellLimit, s, o));
    case Distribution::kUniform:
      if (is_open) return "uniform in [-1, 1]" + Moved(spec, with_numbers);
      return is_integer ? Integers(spec, -1, 1) : "uniform in " + Range(-1, 1, s, o);
    case Distribution::kUniform01:
      if (is_open && is_integer) return fmt::format("integers from 0 to {} - 1", spec.scale_text);
      if (is_open) return "uniform in [0, 1]" + Moved(spec, with_numbers);
      return is_integer ? Integers(spec, 0, 1) : "uniform in " + Range(0, 1, s, o);
    case Distribution::kHeavyTailed:
      return "heavy-tailed, mostly within 2 and at most 33" + Moved(spec, with_numbers);
    case Distribution::kPositive:
      if (is_open) return "uniform in [0.01, 1.01]" + Moved(spec, with_numbers);
      return "uniform in " + Range(0.01, 1.01, s, o);
    case Distribution::kSigns:
      return s == 1 && o == 0 ? "-1 or 1" : "-1 or 1" + Moved(spec, with_numbers);
    case Distribution::kStored:
      return "fixed, the same in every call";
  }
  return "";
}

const char* StructureText(Structure structure) {
  switch (structure) {
    case Structure::kUpper:
      return "; upper triangular: zero below the diagonal";
    case Structure::kLower:
      return "; lower triangular: zero above the diagonal";
    case Structure::kSymmetric:
      return "; symmetric";
    case Structure::kNone:
      break;
  }
  return "";
}

// "; if bell-shaped times 8, each row (all behind the first dimension) is shifted by -150, 0 or 150 at random"
std::string ShiftText(const TensorSpec& spec, bool kernelbench_inputs) {
  if (spec.row_shift == 0 || IsFromZeroToOne(spec, kernelbench_inputs)) return "";
  return fmt::format(
      "; {}, {} is shifted by -{}, 0 or {} at random",
      spec.distribution == Distribution::kMixture ? "if bell-shaped times 8" : "in one call of four",
      spec.shape.size() < 2 ? "all of it" : "each row (all behind the first dimension)",
      Number(spec.row_shift), Number(spec.row_shift));
}

}  // namespace

std::string ValuesText(const TensorSpec& spec, bool kernelbench_inputs, bool with_numbers) {
  if (spec.dtype == DType::kBool) return "true or false";
  const std::string drawn =
      IsFromZeroToOne(spec, kernelbench_inputs) ? "uniform in [0, 1]" : Drawn(spec, with_numbers);
  return drawn + StructureText(spec.structure) + ShiftText(spec, kernelbench_inputs);
}

bool HasMixture(const Problem& problem, bool kernelbench_inputs) {
  return std::any_of(problem.inputs.begin(), problem.inputs.end(), [&](const TensorSpec& spec) {
    return spec.distribution == Distribution::kMixture && !IsFromZeroToOne(spec, kernelbench_inputs) &&
           spec.dtype != DType::kBool;
  });
}

bool HasProducts(const Problem& problem) {
  static const std::set<std::string> kFamilies = {"conv", "conv_transpose", "matmul", "network",
                                                  "rnn",  "attention"};
  return problem.families.empty() ||
         std::any_of(problem.families.begin(), problem.families.end(),
                     [](const std::string& family) { return kFamilies.contains(family); });
}

std::string ToleranceText(const SizedProblem& sized, bool with_numbers) {
  const Problem& problem = *sized.problem;
  if (problem.extreme_dim) {
    return fmt::format("An index is correct if it points at a {} along dimension {} of `{}`.",
                       problem.extreme_is_max ? "maximum" : "minimum", *problem.extreme_dim,
                       problem.inputs.front().name);
  }
  const DType dtype = problem.outputs.front().dtype;
  const bool is_scalar = std::all_of(sized.outputs.begin(), sized.outputs.end(),
                                     [](const ConcreteTensor& output) { return output.shape.empty(); });
  const ErrorFloor floor = FloorOf(sized.reduction, dtype);
  std::string bound = with_numbers ? fmt::format("{:.2g} s", floor.of_scale) : fmt::format("F s");
  if (floor.of_value > 0) bound += fmt::format(" + {:.2g} |t|", floor.of_value);
  std::string text = fmt::format(
      "Every {} y must satisfy |y - t| <= max(4 |r - t|, {}): t is the result in float64, r that of eager "
      "PyTorch, s {}",
      HasInOuts(problem) ? "element of outputs, and of input-outputs after the call," : "output element",
      bound,
      !problem.scale.empty() ? "the magnitude of the terms that are added up for this element"
      : is_scalar            ? "the magnitude of t"
                             : "the larger of |t| and the RMS of t along the last dimension");
  const std::string terms = with_numbers ? std::to_string(sized.reduction) : problem.reduction;
  if (dtype == DType::kF32) {
    text += with_numbers ? fmt::format(" (the factor is 8 eps sqrt(terms), eps = 2^-23, {} terms)", terms)
                         : fmt::format(", F = 8 * 2^-23 * sqrt({})", terms);
  } else if (!with_numbers) {
    text += fmt::format(", F = 8 * 2^-23 * sqrt({}) + 2 roundings to the type", terms);
  }
  return is_scalar
             ? text + "."
             : text +
                   ". The RMS error of a row of the last dimension may be at most 4 times eager's, or that floor.";
}

}  // namespace kevin
