// What the evaluator reads of a batch: where its outputs lie, whether they stay as they are, and when the device is idle.

#include <algorithm>
#include <chrono>

#include "env/gpu/judge/python_session.h"
#include "env/process/machine.h"
#include "env/python/output_places.h"

namespace kevin {
namespace {

constexpr uint64_t kWatch_ns = 3'000'000, kGap_ns = 100'000;

// As in env/gpu/runner/trusted_python.cc.
struct StridedTensor {
  long long shape[kMaxDims] = {}, stride[kMaxDims] = {};
  int dims = 0, bytes = 0;
};

}  // namespace

std::string GpuPythonSession::Locate(const PythonSide& side, size_t calls, bool may_overlap) {
  places_.clear();
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  const BatchProcess& process = side.process();
  for (size_t call = 0; call < calls; ++call) {
    places_.emplace_back();
    for (size_t o = 0; o < base_.sized().outputs.size(); ++o) {
      const ConcreteTensor& tensor = base_.sized().outputs[o];
      const uint64_t offset = process.PublishedOffset(call, o);
      auto strides = process.PublishedStrides(call, o, tensor.shape.size());
      const uint64_t extent =
          strides ? ExtentOfOutput(tensor, *strides) : static_cast<uint64_t>(tensor.bytes);
      if (std::string reason = RefusedPlace(tensor, offset, extent, side.pool().bytes()); !reason.empty())
        return reason;
      taken.emplace_back(offset, offset + extent);
      places_.back().push_back({side.pool().data() + offset, std::move(strides)});
    }
  }
  return may_overlap ? "" : RefusedOverlap(std::move(taken));
}

// Words at random places of each output of the last batch: as they are at its end, or again.
void GpuPythonSession::Sample(bool again) {
  std::vector<uint32_t> words(kOutputSamples);
  if (!again) {
    std::vector<CuDevicePtr> addresses;
    const size_t outputs = base_.sized().outputs.size(), count = places_.size() * outputs;
    for (int i = 0; i < kOutputSamples; ++i) {
      const size_t which = static_cast<size_t>(i) % count, o = which % outputs;
      const ConcreteTensor& tensor = base_.sized().outputs[o];
      const Place& place = places_[which / outputs][o];
      uint64_t element = base_.random()() % static_cast<uint64_t>(tensor.elements), at = element;
      if (place.strides) {
        at = 0;
        for (size_t d = tensor.shape.size(); d-- > 0;) {
          const auto size = static_cast<uint64_t>(tensor.shape[d]);
          at += element % size * static_cast<uint64_t>((*place.strides)[d]);
          element /= size;
        }
      }
      addresses.push_back((place.address + at * static_cast<uint64_t>(DTypeBytes(tensor.spec.dtype))) / 4 *
                          4);
    }
    KEVIN_CU(MemcpyHtoD, sample_places_.data(), addresses.data(), addresses.size() * sizeof(CuDevicePtr));
  }
  CuDevicePtr places = sample_places_.data(), out = sampled_.data();
  int count = kOutputSamples;
  void* arguments[] = {&places, &count, &out};
  base_.Launch("kevin_sample", 4, 256, arguments);
  base_.Synchronize();
  KEVIN_CU(MemcpyDtoH, words.data(), out, words.size() * sizeof(uint32_t));
  if (!again)
    samples_ = std::move(words);
  else if (words != samples_)
    samples_.clear();
}

std::string GpuPythonSession::Changed(const PythonSide& side, std::span<const uint16_t> slots) {
  Sample(true);
  if (samples_.empty()) return "deferred work: outputs changed after the end of their batch";
  KEVIN_CU(MemsetD8Async, number_.data(), 0, sizeof(uint64_t), base_.stream());
  for (const uint16_t slot : slots) {
    for (const ArgumentPlace& place : base_.layout().arguments) {
      if (place.output) continue;
      const uint64_t at = place.offset + slot * place.stride;
      CuDevicePtr ours = base_.inputs_memory().data() + at, theirs = side.inputs().data() + at,
                  count = number_.data();
      auto words = static_cast<long long>(place.stride / 4);
      void* arguments[] = {&ours, &theirs, &words, &count};
      base_.Launch("kevin_count_different", 528, 256, arguments);
    }
  }
  base_.Synchronize();
  uint64_t different = 0;
  KEVIN_CU(MemcpyDtoH, &different, number_.data(), sizeof(different));
  return different == 0 ? "" : "it writes to its inputs or weights, which are read-only";
}

std::string GpuPythonSession::Take(const PythonSide& side, std::span<const uint16_t> slots, size_t calls) {
  if (std::string reason = Locate(side, calls, false); !reason.empty()) return reason;
  for (size_t call = 0; call < calls; ++call) {
    for (size_t o = 0; o < base_.sized().outputs.size(); ++o) {
      const ConcreteTensor& tensor = base_.sized().outputs[o];
      const Place& place = places_[call][o];
      const auto bytes = static_cast<size_t>(tensor.bytes);
      if (!place.strides) {
        KEVIN_CU(MemcpyDtoDAsync, base_.Output(slots[call], o), place.address, bytes, base_.stream());
        continue;
      }
      StridedTensor strided;
      strided.dims = static_cast<int>(tensor.shape.size());
      strided.bytes = static_cast<int>(DTypeBytes(tensor.spec.dtype));
      std::copy(tensor.shape.begin(), tensor.shape.end(), strided.shape);
      std::copy(place.strides->begin(), place.strides->end(), strided.stride);
      CuDevicePtr out = base_.Output(slots[call], o), in = place.address;
      auto elements = static_cast<long long>(tensor.elements);
      void* arguments[] = {&out, &in, &elements, &strided};
      base_.Launch("kevin_take", 528, 256, arguments);
    }
  }
  base_.Synchronize();
  return "";
}

bool GpuPythonSession::IsQuiet() {
  CuDevicePtr out = number_.data();
  uint64_t duration = kWatch_ns, longest = 0;
  void* arguments[] = {&duration, &out};
  base_.Launch("kevin_watch", 1, 1, arguments);
  base_.Synchronize();
  KEVIN_CU(MemcpyDtoH, &longest, out, sizeof(longest));
  return longest < kGap_ns;
}

bool GpuPythonSession::AwaitQuiet(double limit_s) {
  const auto start = std::chrono::steady_clock::now();
  do {
    if (IsQuiet()) return true;
  } while (SecondsSince(start) < limit_s);
  return false;
}

}  // namespace kevin
