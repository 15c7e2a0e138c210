#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>

#include "env/gpu/judge/gpu_judge.h"
#include "env/problem/precision.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSlot = 0;
constexpr int kMembersForCorrect = 2;
constexpr int64_t kSample = 1 << 20;  // elements that a mean or a root mean square is taken of

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
  bool is_coarse = false;    // in 16 bits: may be nearer to the truth than the outputs' rounding
  bool shows_error = false;  // the distance is the reason
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
    AddLeftInOuts();
    AddCoarseDecoys();
    AddCorrect("the reference once more", [](Reference& r) { r.RunSlot(kSlot); });
    // Torch's plain kernels of 16-bit types keep sums in them, which is incorrect.
    if (PrecisionOf(*session.sized().problem) == Precision::kFp32)
      AddCorrect("the reference by other algorithms", [](Reference& r) { r.RunSlotOtherwise(kSlot); });
  }

  std::vector<DecoyResult> Run() {
    for (member_ = 0; member_ < kMixtureMembers && !AllDecided(); ++member_) {
      drawing_ = session_.Draw(kSlot, member_);
      RunReference();
      const SlotTruth truth = checker_.TruthOf(kSlot);
      for (GpuDecoy& decoy : decoys_) {
        if (!decoy.is_decided) Try(truth, &decoy);
      }
    }
    std::vector<DecoyResult> results;
    for (const GpuDecoy& decoy : decoys_) {
      const bool may_be_correct = decoy.is_coarse && !decoy.is_decided;
      results.push_back(
          {decoy.name, decoy.must_pass, !decoy.is_decided,
           may_be_correct ? "may be within the outputs' rounding; see --device cpu" : decoy.reason, true,
           !decoy.is_decided && IsMarked(*session_.sized().problem, decoy.name)});
    }
    return results;
  }

 private:
  // An answer that is incorrect on one member of the mixture is rejected.
  void Try(const SlotTruth& truth, GpuDecoy* decoy) {
    is_disturbed_ = false;
    decoy->make();
    if (is_disturbed_) {
      DrawAll();
      RunReference();
    }
    const CheckResult check = checker_.AgainstTruth(kSlot, truth);
    decoy->is_decided = !check.ok;
    if (!check.ok && !decoy->shows_error) {
      decoy->reason = check.message;
    } else if ((decoy->must_pass || decoy->shows_error) && !IsNearerItsBound(*decoy, check)) {
      decoy->max_error = check.max_error, decoy->error_bound = check.error_bound;
      decoy->reason = WorstErrorText(check.max_error, check.error_bound);
    }
  }

  // What must pass is tried on few members: each costs a truth.
  bool AllDecided() const {
    return std::all_of(decoys_.begin(), decoys_.end(), [this](const GpuDecoy& decoy) {
      return decoy.is_decided || (decoy.must_pass && member_ >= kMembersForCorrect);
    });
  }

  void Add(const std::string& name, std::function<void()> make) {
    decoys_.push_back({name, std::move(make)});
  }
  // The result of `run`, compared with the result of the reference.
  void AddRun(const std::string& name, bool must_pass, const std::function<void(Reference&)>& run) {
    const auto make = [this, run] {
      session_.RestoreReference(kSlot);
      run(session_.reference());
      CopyReference();
      RunReference();
    };
    decoys_.push_back({name, make, must_pass});
  }
  void AddCorrect(const std::string& name, const std::function<void(Reference&)>& run) {
    AddRun(name, true, run);
  }
  void AddCoarseDecoys() {
    const size_t contractions = session_.reference().CountContractions(kSlot);
    for (const CoarseDecoy& coarse :
         CoarseDecoys(*session_.sized().problem, contractions, session_.options().tf32)) {
      AddRun(coarse.name, false,
             [coarse](Reference& r) { r.RunSlotCoarsely(kSlot, coarse.dropped, coarse.is_coarse); });
      decoys_.back().shows_error = true;
    }
  }

  // --- What the slot holds ---

  void DrawAll() {
    for (size_t i = 0; i < inputs_.size(); ++i) session_.DrawTensor(kSlot, i, drawing_);
  }

  void RunReference() { session_.WarmReference(kSlot); }

  // Try restores inputs and outputs afterwards.
  void Disturb(const std::function<bool(size_t)>& is_other) {
    is_disturbed_ = true;
    ValueStream other = drawing_.OfCall(1);
    other.member = (member_ + 1) % kMixtureMembers;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (is_other(i)) session_.DrawTensor(kSlot, i, other);
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
    const WrongElement at = PlaceOfWrongElement(outputs_[0]);
    const DType dtype = outputs_[0].spec.dtype;
    const auto bytes = static_cast<size_t>(DTypeBytes(dtype));
    const CuDevicePtr place = session_.Output(kSlot, 0) + static_cast<uint64_t>(at.index) * bytes;
    if (IsIndex(0)) {
      int64_t value = 0;
      KEVIN_CU(MemcpyDtoH, &value, place, sizeof(value));
      ++value;
      KEVIN_CU(MemcpyHtoD, place, &value, sizeof(value));
      return;
    }
    const double correct = ElementAt(dtype, place);
    const double rms =
        std::max(ReferenceMoments(0).rms, ReferenceMoments(0, at.row_begin, at.row_length).rms);
    const double offset = OffsetOfWrongElement(dtype, correct, rms, [&] { return ScaleAt(at.index); });
    const uint32_t wrong = BitsOf(dtype, correct + offset);
    KEVIN_CU(MemcpyHtoD, place, &wrong, bytes);
  }

  void AddRoundedDecoys() {
    const auto rounded = [this](NarrowType type) {
      is_disturbed_ = true;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const DType dtype = inputs_[i].spec.dtype;
        if (!IsFloating(dtype)) continue;
        CuDevicePtr data = AddressOf(session_.Inputs(kSlot)[i]);
        long long elements = inputs_[i].elements;
        auto dropped = static_cast<uint32_t>(type.dropped);
        void* arguments[] = {&data, &elements, &dropped, &type.largest};
        session_.Launch(KernelFor("kevin_round", dtype).c_str(), 132 * 8, 256, arguments);
      }
      RunReference();
      CopyReference();
    };
    const Precision precision = PrecisionOf(*session_.sized().problem);
    for (const NarrowType& type : NarrowerThan(precision)) {
      Add(std::string("inputs rounded to ") + type.name, [rounded, type] { rounded(type); });
      decoys_.back().is_coarse = precision != Precision::kFp32;
    }
  }

  void AddBlindDecoys() {
    for (const BlindDecoy& blind : BlindDecoys(session_.sized())) {
      Add(blind.name, [this, is_other = blind.is_other] {
        Disturb(is_other);
        CopyReference();
      });
    }
  }

  void AddLeftInOuts() {
    for (const LeftInOut& left : LeftInOuts(session_.sized())) {
      Add(left.name, [this, left] {
        CopyReference();
        KEVIN_CU(MemcpyDtoDAsync, session_.Output(kSlot, left.output),
                 AddressOf(session_.Inputs(kSlot)[left.input]),
                 static_cast<size_t>(Bytes(outputs_[left.output])), session_.stream());
        session_.Synchronize();
      });
    }
  }

  void AddCopyOfInput() {
    const std::optional<size_t> input = InputLikeOutput(session_.sized());
    if (!input) return;
    Add("a copy of an input", [this, i = *input] {
      KEVIN_CU(MemcpyDtoDAsync, session_.Output(kSlot, 0), AddressOf(session_.Inputs(kSlot)[i]),
               static_cast<size_t>(Bytes(outputs_[0])), session_.stream());
      session_.Synchronize();
    });
  }

  GpuSession& session_;
  GpuChecker checker_;
  const std::vector<ConcreteTensor>& inputs_;
  const std::vector<ConcreteTensor>& outputs_;
  std::vector<GpuDecoy> decoys_;
  ValueStream drawing_;        // what the slot holds ...
  int member_ = 0;             // ... and the member of the mixture
  bool is_disturbed_ = false;  // inputs or the reference's outputs are replaced at the moment
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
  session.WarmReference(kSlot);
  preparation.reference_s = SecondsSince(start);
  start = Clock::now();
  const SlotTruth truth = GpuChecker(session).TruthOf(kSlot);
  session.Synchronize();
  preparation.truth_s = SecondsSince(start);
  const DeviceMemoryBytes memory = MemoryOfDevice();
  preparation.slots = session.slots();
  preparation.used_bytes = static_cast<int64_t>(memory.total - memory.free);
  preparation.total_bytes = static_cast<int64_t>(memory.total);
  return preparation;
}

}  // namespace kevin
