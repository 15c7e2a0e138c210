#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "env/error.h"
#include "env/gpu/judge/gpu_judge.h"
#include "env/problem/precision.h"
#include "env/process/resident_sessions.h"

namespace kevin {
namespace {

constexpr unsigned kBlocks = 132 * 8;
constexpr double kProvenShare = 0.5, kKnownError = 0.05;

// As the trusted kernels lay them out.
struct DeviceVerdict {
  uint64_t wrong = 0, first_wrong = ~uint64_t{0}, worst = 0, bad_row = ~uint64_t{0};
  uint32_t reference_error = 0, padding = 0;
};
struct DeviceTensors {
  CuDevicePtr answer = 0, reference = 0, truth = 0, scale = 0;
  ErrorFloor floor;
  double of_spread = 0, largest = 0;
  long long rows = 0, row = 0;
};

template <typename T>
T ReadAt(CuDevicePtr base, uint64_t index) {
  T value{};
  KEVIN_CU(MemcpyDtoH, &value, base + index * sizeof(T), sizeof(T));
  return value;
}

float FloatAt(DType dtype, CuDevicePtr base, uint64_t index) {
  if (dtype == DType::kF16) return ToFloat(ReadAt<Float16>(base, index));
  if (dtype == DType::kBF16) return ToFloat(ReadAt<BFloat16>(base, index));
  return ReadAt<float>(base, index);
}

CuDevicePtr Address(const void* pointer) { return reinterpret_cast<CuDevicePtr>(pointer); }

std::string IndexText(uint64_t flat, const std::vector<int64_t>& shape) {
  std::vector<uint64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % static_cast<uint64_t>(shape[d]);
    flat /= static_cast<uint64_t>(shape[d]);
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

void Reserve(DeviceBuffer* buffer, size_t bytes) {
  if (buffer->bytes() < bytes) *buffer = DeviceBuffer(bytes);
}

struct ElementError {
  double error = 0, bound = 0;
  float answer = 0;
  double target = 0;
};

ElementError ErrorAt(DType dtype, const DeviceTensors& tensors, CuDevicePtr sums, uint64_t index) {
  ElementError element;
  element.answer = FloatAt(dtype, tensors.answer, index);
  const float reference = FloatAt(dtype, tensors.reference, index);
  element.target = tensors.truth ? ReadAt<double>(tensors.truth, index) : static_cast<double>(reference);
  const uint64_t row = index / static_cast<uint64_t>(tensors.row);
  const double count = std::max(ReadAt<double>(sums, row * 3 + 1), 1.0);
  const double rms = std::sqrt(ReadAt<double>(sums, row * 3) / count);
  const double spread = tensors.of_spread * std::sqrt(ReadAt<double>(sums, row * 3 + 2) / count);
  const double scale =
      tensors.scale ? ReadAt<double>(tensors.scale, index) : std::max(std::abs(element.target), rms);
  element.error = std::abs(element.answer - element.target);
  if (std::isnan(element.error)) element.error = std::numeric_limits<double>::infinity();
  element.bound = std::max(
      {4 * std::abs(reference - element.target), tensors.floor.At(std::abs(element.target), scale), spread});
  return element;
}

template <typename T>
std::vector<T> ReadPart(CuDevicePtr base, int64_t first, int64_t count) {
  std::vector<T> values(base ? static_cast<size_t>(count) : 0);
  if (base)
    KEVIN_CU(MemcpyDtoH, values.data(), base + static_cast<uint64_t>(first) * sizeof(T),
             values.size() * sizeof(T));
  return values;
}

std::vector<float> ReadFloats(DType dtype, CuDevicePtr base, int64_t first, int64_t count) {
  if (dtype == DType::kF32) return ReadPart<float>(base, first, count);
  std::vector<float> values;
  const auto widen = [&](const auto& part) {
    for (const auto value : part) values.push_back(ToFloat(value));
  };
  if (dtype == DType::kF16) widen(ReadPart<Float16>(base, first, count));
  if (dtype == DType::kBF16) widen(ReadPart<BFloat16>(base, first, count));
  return values;
}

// Of the incorrect elements of an output, or, where it is large, of as many slices as are worth copying, from that of the first
// incorrect one on: along dimension 0, or along a later one at the first indices of that element, which the name then has.
std::string PatternFrom(const ConcreteTensor& output, const DeviceTensors& tensors, const SizedProblem& sized,
                        int64_t first_wrong) {
  constexpr int64_t kMostElements = int64_t{1} << 20;  // more takes longer than to judge a candidate
  constexpr int kHostThreads = 4;
  std::string name = output.spec.name;
  std::span<const int64_t> shape = output.shape;
  int64_t elements = output.elements, first = 0, slice = shape.empty() ? 1 : elements / shape.front();
  for (; slice > kMostElements && shape.size() > 1; elements = slice, slice /= shape.front()) {
    const int64_t index = (first_wrong - first) / slice;
    name += fmt::format("[{}]", index);
    first += index * slice;
    shape = shape.subspan(1);
  }
  if (slice > kMostElements || (elements > kMostElements && slice % tensors.row != 0)) return "";
  const int64_t origin = elements <= kMostElements ? 0 : (first_wrong - first) / slice;
  std::vector<int64_t> part(shape.begin(), shape.end());
  const int64_t taken = std::clamp<int64_t>(kMostElements / slice, 1, elements / slice - origin);
  if (!part.empty()) part.front() = taken;
  first += origin * slice;
  const int64_t count = taken * slice;
  const DType dtype = output.spec.dtype;
  const double margin = tensors.truth ? 0 : tensors.floor.of_scale - FloorOf(sized.reduction, dtype).of_scale;
  std::string text = DescribeIncorrect(
      {name, part, sized.reduction, dtype, sized.problem->error_spread},
      ReadFloats(dtype, tensors.answer, first, count), ReadFloats(dtype, tensors.reference, first, count),
      ReadPart<double>(tensors.truth, first, count), ReadPart<double>(tensors.scale, first, count), margin,
      kHostThreads, origin, count < output.elements);
  if (name != output.spec.name && !text.empty() && !text.starts_with(name)) text = "in " + name + ": " + text;
  return text;
}

// `is_poisoned` asks whether an element was never written. Incorrect elements are described only for a reader: to look for a
// pattern takes longer than the rest.
CheckResult Report(const ConcreteTensor& output, const DeviceTensors& tensors, const DeviceVerdict& verdict,
                   CuDevicePtr sums, CuDevicePtr errors, const SizedProblem& sized, bool describes,
                   const std::function<bool(uint64_t index)>& is_poisoned) {
  CheckResult result;
  result.reference_error = std::bit_cast<float>(verdict.reference_error);
  const uint64_t worst_index = verdict.worst & 0xffffffffU;
  const DType dtype = output.spec.dtype;
  const ElementError worst = ErrorAt(dtype, tensors, sums, worst_index);
  result.max_error = worst.error;
  result.error_bound = worst.bound;
  if (verdict.wrong > 0) {
    result.ok = false;
    if (!describes) return result;
    const ElementError first = ErrorAt(dtype, tensors, sums, verdict.first_wrong);
    const bool unwritten = is_poisoned(verdict.first_wrong);
    result.message =
        IncorrectText(output.spec.name,
                      {IndexText(verdict.first_wrong, output.shape), first.answer, first.target, unwritten},
                      static_cast<int64_t>(verdict.wrong), output.elements,
                      PatternFrom(output, tensors, sized, static_cast<int64_t>(verdict.first_wrong)),
                      worst.error, worst.bound);
  } else if (verdict.bad_row != ~uint64_t{0}) {
    result.ok = false;
    const auto row = static_cast<double>(tensors.row);
    result.max_error = std::sqrt(ReadAt<double>(errors, verdict.bad_row * 3) / row);
    result.error_bound = std::sqrt(std::max(16 * ReadAt<double>(errors, verdict.bad_row * 3 + 1),
                                            ReadAt<double>(errors, verdict.bad_row * 3 + 2)) /
                                   row);
    result.message = fmt::format(
        "{}: the row that starts at {} has RMS error {:.3g} with {:.3g} allowed (4x the reference's)",
        output.spec.name, IndexText(verdict.bad_row * static_cast<uint64_t>(tensors.row), output.shape),
        result.max_error, result.error_bound);
  }
  return result;
}

// Off by so many bounds that no error of the reference explains it. In 16 bits the truth may be infinite where eager is finite.
bool IsGross(const CheckResult& result, Precision precision) {
  constexpr double kGross = 100;
  if (result.ok || (precision != Precision::kFp32 && !std::isfinite(result.max_error))) return false;
  return !(result.max_error <= kGross * result.error_bound);
}

}  // namespace

std::string KernelFor(const std::string& name, DType dtype) {
  return name + (dtype == DType::kF16 ? "_f16" : dtype == DType::kBF16 ? "_bf16" : "");
}

CheckResult GpuChecker::Floats(int slot, size_t output, const TensorView& reference, const double* truth,
                               const double* scale, bool describes) {
  const ConcreteTensor& tensor = session_.sized().outputs[output];
  const int64_t last = tensor.shape.empty() ? 1 : tensor.shape.back();
  DeviceTensors tensors;
  tensors.answer = Answer(slot, output);
  tensors.reference = Address(reference.data);
  tensors.truth = Address(truth);
  tensors.scale = Address(scale);
  const DType dtype = tensor.spec.dtype;
  tensors.floor = FloorOf(session_.sized().reduction, dtype);
  tensors.floor.of_scale += truth ? 0 : margin_;
  tensors.largest = LargestFinite(dtype);
  tensors.row = last > 1 ? last : tensor.elements;
  tensors.rows = tensor.elements / tensors.row;
  tensors.of_spread = truth ? SpreadFactor(session_.sized().problem->error_spread, dtype, tensors.row) : 0;
  const auto rows = static_cast<size_t>(tensors.rows);
  Reserve(&sums_, rows * 3 * sizeof(double));
  Reserve(&errors_, rows * 3 * sizeof(double));
  Reserve(&verdict_, sizeof(DeviceVerdict));
  DeviceVerdict verdict;
  session_.Synchronize();
  KEVIN_CU(MemcpyHtoD, verdict_.data(), &verdict, sizeof(verdict));
  KEVIN_CU(MemsetD8Async, sums_.data(), 0, rows * 3 * sizeof(double), session_.stream());
  KEVIN_CU(MemsetD8Async, errors_.data(), 0, rows * 3 * sizeof(double), session_.stream());
  CuDevicePtr sums = sums_.data(), errors = errors_.data(), place = verdict_.data();
  void* squares_arguments[] = {&tensors, &sums};
  session_.Launch(KernelFor("kevin_row_squares", dtype).c_str(), kBlocks, 256, squares_arguments);
  void* check_arguments[] = {&tensors, &sums, &errors, &place};
  session_.Launch(KernelFor("kevin_check", dtype).c_str(), kBlocks, 256, check_arguments);
  void* row_arguments[] = {&errors, &tensors.rows, &place};
  session_.Launch("kevin_check_rows", 132, 256, row_arguments);
  session_.Synchronize();
  KEVIN_CU(MemcpyDtoH, &verdict, verdict_.data(), sizeof(verdict));
  const size_t bytes = DTypeBytes(dtype);
  return Report(tensor, tensors, verdict, sums, errors, session_.sized(), describes, [&](uint64_t index) {
    return !checks_kept_ && session_.IsPoisoned(slot, output, index * bytes, bytes);
  });
}

// Adds their number to the first word of verdict_.
void GpuChecker::CountDoubtful(int slot, size_t output, const TensorView& reference) {
  CuDevicePtr answer = Answer(slot, output), theirs = Address(reference.data), others = verdict_.data();
  long long elements = session_.sized().outputs[output].elements;
  const DType dtype = reference.dtype;
  auto floor = static_cast<float>(FloorOf(session_.sized().reduction, dtype).At(1, 1) * 0.999);
  void* arguments[] = {&answer, &theirs, &elements, &floor, &others};
  session_.Launch(KernelFor("kevin_surely_fine", dtype).c_str(), kBlocks, 256, arguments);
}

bool GpuChecker::SurelyCorrect(int slot, size_t output, const TensorView& reference) {
  Reserve(&verdict_, sizeof(DeviceVerdict));
  KEVIN_CU(MemsetD8Async, verdict_.data(), 0, sizeof(uint64_t), session_.stream());
  CountDoubtful(slot, output, reference);
  session_.Synchronize();
  return ReadAt<uint64_t>(verdict_.data(), 0) == 0;
}

bool GpuChecker::AreSurelyCorrect(std::span<const uint16_t> slots) {
  if (!session_.sized().problem->scale.empty()) return false;
  Reserve(&verdict_, sizeof(DeviceVerdict));
  KEVIN_CU(MemsetD8Async, verdict_.data(), 0, sizeof(uint64_t), session_.stream());
  for (const uint16_t slot : slots) {
    const std::vector<TensorView> reference = session_.ReferenceOutputs(slot);
    for (size_t o = 0; o < reference.size(); ++o) {
      if (reference[o].dtype == DType::kI64) return false;
      CountDoubtful(slot, o, reference[o]);
    }
  }
  session_.Synchronize();
  return ReadAt<uint64_t>(verdict_.data(), 0) == 0;
}

CheckResult GpuChecker::Index(int slot, size_t output, const TensorView& reference) {
  const Problem& problem = *session_.sized().problem;
  const ConcreteTensor& tensor = session_.sized().outputs[output];
  if (!problem.extreme_dim) {
    throw Error(ExitCode::kBadRequest, problem.id + ": an integer output needs check.extreme_dim",
                "say in [check] along which dimension it points at an extreme value");
  }
  const TensorView values = session_.Inputs(slot)[0];
  const auto dim = static_cast<size_t>(*problem.extreme_dim);
  long long length = values.shape[dim], inner = 1, outer = 1;
  for (size_t d = 0; d < values.shape.size(); ++d)
    (d < dim ? outer : d > dim ? inner : length) *= d == dim ? 1 : values.shape[d];
  Reserve(&verdict_, sizeof(DeviceVerdict));
  DeviceVerdict verdict;
  session_.Synchronize();
  KEVIN_CU(MemcpyHtoD, verdict_.data(), &verdict, sizeof(verdict));
  CuDevicePtr answer = Answer(slot, output), theirs = Address(reference.data), data = Address(values.data),
              place = verdict_.data();
  void* arguments[] = {&answer, &theirs, &data, &outer, &length, &inner, &place};
  session_.Launch(KernelFor("kevin_check_index", values.dtype).c_str(), kBlocks, 256, arguments);
  session_.Synchronize();
  KEVIN_CU(MemcpyDtoH, &verdict, verdict_.data(), sizeof(verdict));
  CheckResult result;
  if (verdict.wrong == 0) return result;
  const auto index = ReadAt<int64_t>(answer, verdict.first_wrong);
  const auto right = ReadAt<int64_t>(theirs, verdict.first_wrong);
  const auto unit = static_cast<uint64_t>(inner);
  const uint64_t line =
      verdict.first_wrong / unit * static_cast<uint64_t>(length) * unit + verdict.first_wrong % unit;
  const float extreme = FloatAt(values.dtype, data, line + static_cast<uint64_t>(right) * unit);
  result.ok = false;
  result.max_error = static_cast<double>(length);
  std::string what = "is out of range";
  if (index >= 0 && index < length) {
    const float value = FloatAt(values.dtype, data, line + static_cast<uint64_t>(index) * unit);
    what = fmt::format("points at {:.8g}", value);
    result.max_error = std::abs(static_cast<double>(value) - extreme);
  }
  result.message = fmt::format("{}{} = {} {}, the {} along dimension {} is {:.8g}; {} of {} are off",
                               tensor.spec.name, IndexText(verdict.first_wrong, tensor.shape), index, what,
                               problem.extreme_is_max ? "maximum" : "minimum", dim, extreme, verdict.wrong,
                               tensor.elements);
  return result;
}

SlotTruth GpuChecker::TruthOf(int slot) {
  const std::vector<ConcreteTensor>& outputs = session_.sized().outputs;
  if (std::all_of(outputs.begin(), outputs.end(),
                  [](const ConcreteTensor& output) { return output.spec.dtype == DType::kI64; }))
    return {};
  has_computed_truth_ = true;
  const std::vector<TensorView> inputs = session_.Inputs(slot);
  return {session_.reference().Truth(inputs), session_.reference().Scale(inputs)};
}

CheckResult GpuChecker::AgainstTruth(int slot, const SlotTruth& truth) {
  const std::vector<TensorView> reference = session_.ReferenceOutputs(slot);
  CheckResult worst;
  for (size_t o = 0; o < reference.size(); ++o) {
    CheckResult result;
    if (reference[o].dtype == DType::kI64) {
      result = Index(slot, o, reference[o]);
    } else {
      result = Floats(slot, o, reference[o], truth.outputs[o].data.get(),
                      o == 0 ? truth.scale.data.get() : nullptr);
      margin_ = std::max(margin_, 10 * result.reference_error);
      session_.reference_error_seen = std::max(session_.reference_error_seen, result.reference_error);
    }
    if (!result.ok) return result;
    if (o == 0 || IsNearerItsBound(result, worst)) worst = result;
  }
  return worst;
}

CuDevicePtr GpuChecker::Answer(int slot, size_t output) const {
  return checks_kept_ ? kept_[output].data() : session_.Output(slot, output);
}

bool GpuChecker::Keep(int slot) {
  const std::vector<ConcreteTensor>& outputs = session_.sized().outputs;
  try {
    for (size_t o = kept_.size(); o < outputs.size(); ++o)
      kept_.emplace_back(static_cast<size_t>(outputs[o].bytes));
  } catch (const DriverError& error) {
    if (!error.out_of_memory()) throw;
    return false;
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    KEVIN_CU(MemcpyDtoDAsync, kept_[o].data(), session_.Output(slot, o),
             static_cast<size_t>(outputs[o].bytes), session_.stream());
  }
  return true;
}

CheckResult GpuChecker::OfKept(const std::function<CheckResult()>& check) {
  checks_kept_ = true;
  CheckResult result = check();
  checks_kept_ = false;
  return result;
}

CheckResult GpuChecker::NearReference(int slot) {
  const SizedProblem& sized = session_.sized();
  const std::vector<TensorView> reference = session_.ReferenceOutputs(slot);
  const double margin =
      std::exchange(margin_, (kProvenShare - 1) * FloorOf(sized.reduction, DType::kF32).of_scale);
  CheckResult worst;
  for (size_t o = 0; o < reference.size() && worst.ok; ++o) {
    CheckResult result = reference[o].dtype == DType::kI64
                             ? Index(slot, o, reference[o])
                             : Floats(slot, o, reference[o], nullptr, nullptr, false);
    result.error_bound /= kProvenShare;
    if (!result.ok || o == 0 || IsNearerItsBound(result, worst)) worst = result;
  }
  margin_ = margin;
  return worst;
}

CheckResult GpuChecker::VerifyWith(int slot, const std::function<CheckResult()>& against_truth) {
  const double seen = session_.reference_error_seen;
  if (seen < 0) return against_truth();
  margin_ = std::max(margin_, 10 * seen);
  const Problem& problem = *session_.sized().problem;
  bool describes = false;  // it will be needed
  if (PrecisionOf(problem) == Precision::kFp32 && problem.scale.empty() && seen <= kKnownError) {
    const CheckResult near = NearReference(slot);
    if (near.ok) return near;
    describes = IsGross(near, Precision::kFp32);
  }
  const CheckResult result = AgainstReferenceAlone(slot, describes);
  if (!IsGross(result, PrecisionOf(problem))) return against_truth();
  return describes ? result : AgainstReferenceAlone(slot);
}

CheckResult GpuChecker::AgainstReference(int slot) {
  const CheckResult result = AgainstReferenceAlone(slot, false);
  if (result.ok) return result;
  if (IsGross(result, PrecisionOf(*session_.sized().problem))) return AgainstReferenceAlone(slot);
  return AgainstTruthIfItFits(slot);
}

CheckResult GpuChecker::AgainstTruthIfItFits(int slot) {
  std::optional<CheckResult> judged;
  try {
    judged = AgainstTruth(slot);
  } catch (const std::exception& error) {
    if (!IsOutOfMemory(error)) throw;
  }
  if (!judged) judged = AgainstReferenceAlone(slot);
  // Python times eager in a process of its own, and the outputs of other slots are still needed.
  if (!session_.options().for_python) session_.WarmReference(slot);
  return *judged;
}

CheckResult GpuChecker::AgainstReferenceAlone(int slot, bool describes) {
  const std::vector<TensorView> reference = session_.ReferenceOutputs(slot);
  CheckResult result;
  for (size_t o = 0; o < reference.size() && result.ok; ++o) {
    if (reference[o].dtype == DType::kI64) {
      result = Index(slot, o, reference[o]);
      continue;
    }
    if (session_.sized().problem->scale.empty() && SurelyCorrect(slot, o, reference[o])) continue;
    const DoubleTensor scale = o == 0 ? session_.reference().Scale(session_.Inputs(slot)) : DoubleTensor{};
    result = Floats(slot, o, reference[o], nullptr, scale.data.get(), describes);
  }
  return result;
}

}  // namespace kevin
