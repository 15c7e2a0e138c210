#include "env/gpu/judge/gpu_admission.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>

#include "env/gpu/judge/gpu_checker.h"
#include "env/problem/precision.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSlot = 0;
constexpr uint64_t kMembersForRight = 2;
constexpr int64_t kSample = 1 << 20;  // elements that a mean or a root mean square is taken of

// A narrower type by the bits of mantissa that it lacks against float32, and by its range; fp8 as if scaled
// to fit.
struct Narrower {
  const char* name;
  uint32_t dropped;
  float largest;
};
constexpr Narrower kFp16 = {"fp16", 13, 65504}, kBf16 = {"bf16", 16, 3e38F};
constexpr Narrower kE4m3 = {"fp8 (e4m3)", 20, 3e38F}, kE5m2 = {"fp8 (e5m2)", 21, 3e38F};

CuDevicePtr AddressOf(const TensorView& view) { return reinterpret_cast<CuDevicePtr>(view.data); }
int64_t Bytes(const ConcreteTensor& tensor) { return tensor.elements * DTypeBytes(tensor.spec.dtype); }

struct Moments {
  double mean = 0, rms = 0;
};

double Number(Float16 value) { return ToFloat(value); }
double Number(BFloat16 value) { return ToFloat(value); }
double Number(float value) { return value; }
double Number(int64_t value) { return static_cast<double>(value); }

// One element of a floating type, from the device and back.
double ElementAt(DType dtype, CuDevicePtr place) {
  uint32_t bits = 0;
  KEVIN_CU(MemcpyDtoH, &bits, place, static_cast<size_t>(DTypeBytes(dtype)));
  const auto low = static_cast<uint16_t>(bits);
  return dtype == DType::kF16    ? ToFloat(Float16{low})
         : dtype == DType::kBF16 ? ToFloat(BFloat16{low})
                                 : std::bit_cast<float>(bits);
}
uint32_t BitsOf(DType dtype, double value) {
  Float16 half;
  BFloat16 brain;
  Round(static_cast<float>(value), &half);
  Round(static_cast<float>(value), &brain);
  return dtype == DType::kF16    ? half.bits
         : dtype == DType::kBF16 ? brain.bits
                                 : std::bit_cast<uint32_t>(static_cast<float>(value));
}

template <typename T>
Moments MomentsOf(CuDevicePtr data, int64_t elements) {
  std::vector<T> values(static_cast<size_t>(std::min(elements, kSample)));
  KEVIN_CU(MemcpyDtoH, values.data(), data, values.size() * sizeof(T));
  double sum = 0, squares = 0;
  for (const T value : values) {
    sum += Number(value);
    squares += Number(value) * Number(value);
  }
  const auto count = static_cast<double>(values.size());
  return {sum / count, std::sqrt(squares / count)};
}

struct GpuDecoy {
  std::string name;
  std::function<void()> make;  // fills the slot's outputs
  bool must_pass = false;
  bool is_decided = false;
  bool is_coarse = false;  // in 16 bits: may be nearer to the truth than the outputs' rounding
  std::string reason = {};
  double max_error = 0, error_bound = 0;  // of one that must pass, at its worst so far
};

class GpuAdmission {
 public:
  explicit GpuAdmission(GpuSession& session)
      : session_(session),
        checker_(session),
        inputs_(session.sized().inputs),
        outputs_(session.sized().outputs) {
    AddFixedDecoys();
    AddRoundedDecoys();
    AddBlindDecoys();
    AddCopyOfInput();
    AddRight("the reference once more", &Reference::RunSlot);
    // Torch's plain kernels of 16-bit types keep sums in them, which is wrong.
    if (PrecisionOf(*session.sized().problem) == Precision::kFp32)
      AddRight("the reference by other algorithms", &Reference::RunSlotOtherwise);
  }

  std::vector<DecoyResult> Run() {
    for (member_ = 0; member_ < kMixtureMembers && !AllDecided(); ++member_) {
      seed_ = session_.Draw(kSlot, static_cast<int>(member_));
      RunReference();
      const SlotTruth truth = checker_.TruthOf(kSlot);
      for (GpuDecoy& decoy : decoys_) {
        if (!decoy.is_decided) Try(truth, &decoy);
      }
    }
    std::vector<DecoyResult> results;
    for (const GpuDecoy& decoy : decoys_) {
      const bool may_be_right = decoy.is_coarse && !decoy.is_decided;
      results.push_back(
          {decoy.name, decoy.must_pass, !decoy.is_decided,
           may_be_right ? "may be within the outputs' rounding: --device cpu tells" : decoy.reason, true});
    }
    return results;
  }

 private:
  // A wrong answer on one member of the mixture is rejected.
  void Try(const SlotTruth& truth, GpuDecoy* decoy) {
    is_disturbed_ = false;
    decoy->make();
    if (is_disturbed_) {
      DrawAll(seed_);
      RunReference();
    }
    const CheckResult check = checker_.AgainstTruth(kSlot, truth);
    decoy->is_decided = !check.ok;
    if (!check.ok) {
      decoy->reason = check.message;
    } else if (decoy->must_pass &&
               check.max_error * decoy->error_bound >= decoy->max_error * check.error_bound) {
      decoy->max_error = check.max_error, decoy->error_bound = check.error_bound;
      decoy->reason = WorstErrorText(check.max_error, check.error_bound);
    }
  }

  // What must pass is tried on few members: each costs a truth.
  bool AllDecided() const {
    return std::all_of(decoys_.begin(), decoys_.end(), [this](const GpuDecoy& decoy) {
      return decoy.is_decided || (decoy.must_pass && member_ >= kMembersForRight);
    });
  }

  void Add(const std::string& name, std::function<void()> make) {
    decoys_.push_back({name, std::move(make)});
  }
  // What `run` gives, beside what the reference gives.
  void AddRight(const std::string& name, void (Reference::*run)(size_t slot)) {
    const auto make = [this, run] {
      session_.reference().DropOutputs();
      (session_.reference().*run)(kSlot);
      CopyReference();
      RunReference();
    };
    decoys_.push_back({name, make, true});
  }

  // --- What the slot holds ---

  void DrawAll(uint64_t seed) {
    for (size_t i = 0; i < inputs_.size(); ++i) session_.DrawTensor(kSlot, i, seed, member_);
  }

  void RunReference() {
    session_.reference().DropOutputs();
    session_.reference().RunSlot(kSlot);
    session_.Synchronize();
  }

  // Until Try puts things right.
  void Disturb(const std::function<bool(size_t)>& is_other) {
    is_disturbed_ = true;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (is_other(i)) session_.DrawTensor(kSlot, i, ~seed_, (member_ + 1) % kMixtureMembers);
    }
    RunReference();
  }

  void CopyReference() {
    const std::vector<TensorView> reference = session_.ReferenceOutputs(kSlot);
    for (size_t o = 0; o < outputs_.size(); ++o) {
      KEVIN_CU(MemcpyDtoDAsync, session_.Output(kSlot, o), AddressOf(reference[o]),
               static_cast<size_t>(Bytes(outputs_[o])), session_.stream());
    }
    session_.Synchronize();
  }

  bool IsIndex(size_t output) const { return outputs_[output].spec.dtype == DType::kI64; }

  // Of the reference's elements from `first` on.
  Moments ReferenceMoments(size_t output, int64_t first, int64_t elements) {
    const TensorView view = session_.ReferenceOutputs(kSlot)[output];
    session_.Synchronize();
    const DType dtype = outputs_[output].spec.dtype;
    const CuDevicePtr data = AddressOf(view) + static_cast<uint64_t>(first * DTypeBytes(dtype));
    switch (dtype) {
      case DType::kI64:
        return MomentsOf<int64_t>(data, elements);
      case DType::kF16:
        return MomentsOf<Float16>(data, elements);
      case DType::kBF16:
        return MomentsOf<BFloat16>(data, elements);
      default:
        return MomentsOf<float>(data, elements);
    }
  }
  Moments ReferenceMoments(size_t output) { return ReferenceMoments(output, 0, outputs_[output].elements); }

  // The problem's own scale; 0 where it gives none.
  double ScaleAt(int64_t at) {
    const DoubleTensor scales = session_.reference().Scale(session_.Inputs(kSlot));
    double scale = 0;
    if (scales.elements == 0) return 0;
    session_.Synchronize();
    KEVIN_CU(MemcpyDtoH, &scale, reinterpret_cast<CuDevicePtr>(scales.data.get() + at), sizeof(scale));
    return scale;
  }

  // Of all elements or of the row around `at`, whichever is larger: an error's bound follows the row.
  double RmsAround(int64_t at) {
    const std::vector<int64_t>& shape = outputs_[0].shape;
    const int64_t row = shape.empty() ? 1 : shape.back();
    return std::max(ReferenceMoments(0).rms, ReferenceMoments(0, at / row * row, row).rms);
  }

  void Fill(size_t output, double value) {
    const CuDevicePtr data = session_.Output(kSlot, output);
    const auto elements = static_cast<size_t>(outputs_[output].elements);
    if (IsIndex(output)) {
      const std::vector<int64_t> values(elements, static_cast<int64_t>(value));
      KEVIN_CU(MemcpyHtoD, data, values.data(), elements * sizeof(int64_t));
    } else if (DTypeBytes(outputs_[output].spec.dtype) == 2) {
      const std::vector<uint16_t> values(elements,
                                         static_cast<uint16_t>(BitsOf(outputs_[output].spec.dtype, value)));
      KEVIN_CU(MemcpyHtoD, data, values.data(), elements * sizeof(uint16_t));
    } else {
      KEVIN_CU(MemsetD32Async, data, BitsOf(DType::kF32, value), elements, session_.stream());
      session_.Synchronize();
    }
  }

  // --- The decoys ---

  void AddFixedDecoys() {
    Add("zeros", [this] {
      for (size_t o = 0; o < outputs_.size(); ++o) Fill(o, 0);
    });
    Add("a constant", [this] {
      Disturb([](size_t) { return true; });
      for (size_t o = 0; o < outputs_.size(); ++o) Fill(o, ReferenceMoments(o).mean);
    });
    Add("output for other inputs", [this] {
      Disturb([](size_t) { return true; });
      CopyReference();
    });
    Add("one wrong element", [this] { OneWrongElement(); });
    Add("half the rows", [this] {
      CopyReference();
      for (size_t o = 0; o < outputs_.size(); ++o) {
        const auto bytes = static_cast<size_t>(Bytes(outputs_[o]));
        const size_t kept = bytes / 8 * 4;
        KEVIN_CU(MemsetD8Async, session_.Output(kSlot, o) + kept, 0, bytes - kept, session_.stream());
      }
      session_.Synchronize();
    });
  }

  void OneWrongElement() {
    CopyReference();
    const int64_t index = outputs_[0].elements * 2 / 3;
    const auto at = static_cast<uint64_t>(index);
    const CuDevicePtr data = session_.Output(kSlot, 0);
    if (IsIndex(0)) {
      int64_t value = 0;
      KEVIN_CU(MemcpyDtoH, &value, data + at * sizeof(value), sizeof(value));
      ++value;
      KEVIN_CU(MemcpyHtoD, data + at * sizeof(value), &value, sizeof(value));
    } else {
      const DType dtype = outputs_[0].spec.dtype;
      const auto bytes = static_cast<size_t>(DTypeBytes(dtype));
      const double right = ElementAt(dtype, data + at * bytes), rms = RmsAround(index);
      // Of 16-bit types a hundredth may be no more than rounding.
      double off = 0.01 * rms;
      if (bytes == 2)
        off = std::max(off, 16 * Roundoff(dtype) * std::max({std::abs(right), rms, ScaleAt(index)}));
      const uint32_t wrong = BitsOf(dtype, right + off);
      KEVIN_CU(MemcpyHtoD, data + at * bytes, &wrong, bytes);
    }
  }

  void AddRoundedDecoys() {
    const auto rounded = [this](Narrower type) {
      is_disturbed_ = true;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const DType dtype = inputs_[i].spec.dtype;
        if (!IsFloating(dtype)) continue;
        CuDevicePtr data = AddressOf(session_.Inputs(kSlot)[i]);
        long long elements = inputs_[i].elements;
        void* arguments[] = {&data, &elements, &type.dropped, &type.largest};
        session_.Launch(KernelFor("kevin_round", dtype).c_str(), 132 * 8, 256, arguments);
      }
      RunReference();
      CopyReference();
    };
    // As env/cpu/admission.h has it.
    const Precision precision = PrecisionOf(*session_.sized().problem);
    const auto types = precision == Precision::kFp32   ? std::array{kFp16, kBf16}
                       : precision == Precision::kFp16 ? std::array{kBf16, kE4m3}
                                                       : std::array{kE4m3, kE5m2};
    for (const Narrower& type : types) {
      Add(std::string("inputs rounded to ") + type.name, [rounded, type] { rounded(type); });
      decoys_.back().is_coarse = precision != Precision::kFp32;
    }
  }

  void AddBlindDecoys() {
    const auto with_other = [this](const std::function<bool(size_t)>& is_other) {
      return [this, is_other] {
        Disturb(is_other);
        CopyReference();
      };
    };
    const auto is_param = [this](size_t i) { return inputs_[i].spec.is_param; };
    std::vector<size_t> drawn;
    bool has_params = false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].spec.stored) continue;
      if (!is_param(i)) drawn.push_back(i);
      has_params |= is_param(i);
    }
    if (!drawn.empty() && has_params) {
      Add("other inputs, same weights", with_other([is_param](size_t i) { return !is_param(i); }));
      Add("other weights, same inputs", with_other(is_param));
    }
    if (drawn.size() < 2 || session_.sized().problem->flags.contains("ignored-input")) return;
    for (const size_t i : drawn)
      Add("other values of " + inputs_[i].spec.name, with_other([i](size_t at) { return at == i; }));
  }

  void AddCopyOfInput() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].elements < outputs_[0].elements || inputs_[i].spec.dtype != outputs_[0].spec.dtype)
        continue;
      Add("a copy of an input", [this, i] {
        KEVIN_CU(MemcpyDtoDAsync, session_.Output(kSlot, 0), AddressOf(session_.Inputs(kSlot)[i]),
                 static_cast<size_t>(Bytes(outputs_[0])), session_.stream());
        session_.Synchronize();
      });
      return;
    }
  }

  GpuSession& session_;
  GpuChecker checker_;
  const std::vector<ConcreteTensor>& inputs_;
  const std::vector<ConcreteTensor>& outputs_;
  std::vector<GpuDecoy> decoys_;
  uint64_t seed_ = 0, member_ = 0;  // of what the slot holds
  bool is_disturbed_ = false;       // inputs or the reference's outputs are others at the moment
};

}  // namespace

std::vector<DecoyResult> AdmitOnGpu(GpuSession& session) {
  double wait_s = 0;
  const DeviceLock lock(session.LockName(), LockMode::kShared, &wait_s);
  return GpuAdmission(session).Run();
}

GpuPreparation PrepareOnGpu(GpuSession& session) {
  double wait_s = 0;
  const DeviceLock lock(session.LockName(), LockMode::kShared, &wait_s);
  GpuPreparation preparation;
  auto start = Clock::now();
  session.Draw(kSlot);
  session.Synchronize();
  preparation.draw_s = SecondsSince(start);
  start = Clock::now();
  session.reference().RunSlot(kSlot);
  session.Synchronize();
  preparation.reference_s = SecondsSince(start);
  start = Clock::now();
  const SlotTruth truth = GpuChecker(session).TruthOf(kSlot);
  session.Synchronize();
  preparation.truth_s = SecondsSince(start);
  size_t free_bytes = 0, total_bytes = 0;
  KEVIN_CU(MemGetInfo, &free_bytes, &total_bytes);
  preparation.slots = session.slots();
  preparation.used_bytes = static_cast<int64_t>(total_bytes - free_bytes);
  preparation.total_bytes = static_cast<int64_t>(total_bytes);
  return preparation;
}

}  // namespace kevin
