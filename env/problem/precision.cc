#include "env/problem/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "env/error.h"

namespace kevin {
namespace {

constexpr Precision kPrecisions[] = {Precision::kFp32, Precision::kFp16, Precision::kBf16};

// The bytes of all tensors that keep their type, as an expression over the size symbols; each term begins
// with a plus.
std::string BytesThatStay(const Problem& problem) {
  std::string sum;
  for (const auto* tensors : {&problem.inputs, &problem.outputs}) {
    for (const TensorSpec& tensor : *tensors) {
      if (IsFloating(tensor.dtype)) continue;
      sum += fmt::format(" + {}", DTypeBytes(tensor.dtype));
      for (const std::string& dim : tensor.shape) sum += fmt::format("*({})", dim);
    }
  }
  return sum;
}

// Stored values are rounded like drawn ones: a finite value stays finite.
template <typename Narrow>
std::shared_ptr<const std::string> Narrowed(const std::string& floats, float largest) {
  std::string narrow(floats.size() / sizeof(float) * sizeof(Narrow), '\0');
  for (size_t i = 0; i < floats.size() / sizeof(float); ++i) {
    float value = 0;
    std::memcpy(&value, floats.data() + i * sizeof(float), sizeof(float));
    Narrow rounded;
    Round(std::isfinite(value) ? std::clamp(value, -largest, largest) : value, &rounded);
    std::memcpy(narrow.data() + i * sizeof(Narrow), &rounded, sizeof(Narrow));
  }
  return std::make_shared<const std::string>(std::move(narrow));
}

}  // namespace

const char* PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kFp16:
      return "fp16";
    case Precision::kBf16:
      return "bf16";
  }
  return "";
}

Precision PrecisionNamed(const std::string& name) {
  for (const Precision precision : kPrecisions) {
    if (name == PrecisionName(precision)) return precision;
  }
  throw Error(ExitCode::kBadRequest, "no such precision: " + name, "one of fp32, fp16, bf16");
}

DType DTypeOf(Precision precision) {
  return precision == Precision::kFp16   ? DType::kF16
         : precision == Precision::kBf16 ? DType::kBF16
                                         : DType::kF32;
}

bool IsFloating(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

Precision PrecisionOf(const Problem& problem) {
  for (const auto* tensors : {&problem.inputs, &problem.outputs}) {
    for (const TensorSpec& tensor : *tensors) {
      for (const Precision precision : kPrecisions) {
        if (tensor.dtype == DTypeOf(precision)) return precision;
      }
    }
  }
  return Precision::kFp32;
}

Problem InPrecision(Problem problem, Precision precision) {
  if (precision == Precision::kFp32 || PrecisionOf(problem) != Precision::kFp32) return problem;
  // `bytes` counts every integer tensor once. `min_bytes` need not count them; half of it is a lower bound in
  // any case.
  problem.bytes = fmt::format("({}{})/2", problem.bytes, BytesThatStay(problem));
  problem.min_bytes = fmt::format("({})/2", problem.min_bytes);
  for (auto* tensors : {&problem.inputs, &problem.outputs}) {
    for (TensorSpec& tensor : *tensors) {
      if (tensor.dtype != DType::kF32) continue;
      tensor.dtype = DTypeOf(precision);
      if (!tensor.stored) continue;
      const auto largest = static_cast<float>(LargestFinite(tensor.dtype));
      tensor.stored = precision == Precision::kFp16 ? Narrowed<Float16>(*tensor.stored, largest)
                                                    : Narrowed<BFloat16>(*tensor.stored, largest);
    }
  }
  return problem;
}

std::vector<const char*> FlagsAgainst(Precision precision, const std::string& size) {
  std::vector<const char*> flags = {"inadmissible"};
  if (size.empty() || size == "full") flags.push_back("inadmissible-at-full");
  if (precision != Precision::kFp32) flags.push_back("inadmissible-in-16-bits");
  return flags;
}

double Roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return 0;
  }
}

double SmallestStep(DType dtype) {
  return dtype == DType::kF16 ? 0x1p-24 : dtype == DType::kBF16 ? 0x1p-126 : 0;  // bf16: may be flushed to 0
}

double LargestFinite(DType dtype) {
  return dtype == DType::kF16    ? 65504
         : dtype == DType::kBF16 ? 0x1.FEp127
                                 : static_cast<double>(std::numeric_limits<float>::max());
}

}  // namespace kevin
