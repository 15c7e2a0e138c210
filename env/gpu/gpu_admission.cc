#include "env/gpu/gpu_admission.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>

#include "env/device_lock.h"
#include "env/gpu/gpu_checker.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSlot = 0;
constexpr uint64_t kMembersForRight = 2;
constexpr int64_t kSample = 1 << 20;  // elements that a mean or a root mean square is taken of
constexpr uint32_t kFp16Dropped = 13, kBf16Dropped = 16;  // bits of the mantissa
constexpr float kFp16Largest = 65504, kBf16Largest = 3e38F;

CuDevicePtr Address(const TensorView& view) { return reinterpret_cast<CuDevicePtr>(view.data); }
int64_t Bytes(const ConcreteTensor& tensor) { return tensor.elements * DTypeBytes(tensor.spec.dtype); }

struct Moments {
  double mean = 0, rms = 0;
};

template <typename T>
Moments MomentsOf(CuDevicePtr data, int64_t elements) {
  std::vector<T> values(static_cast<size_t>(std::min(elements, kSample)));
  KEVIN_CU(MemcpyDtoH, values.data(), data, values.size() * sizeof(T));
  double sum = 0, squares = 0;
  for (const T value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const auto count = static_cast<double>(values.size());
  return {sum / count, std::sqrt(squares / count)};
}

struct GpuDecoy {
  std::string name;
  std::function<void()> make;  // fills the slot's outputs
  bool must_pass = false;
  bool is_decided = false;
  std::string reason = {};
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
    Add(
        "the reference once more",
        [this] {
          CopyReference();
          RunReference();
        },
        true);
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
    for (const GpuDecoy& decoy : decoys_)
      results.push_back({decoy.name, decoy.must_pass, !decoy.is_decided, true, decoy.reason});
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
    decoy->reason = check.message;
  }

  // What must pass is tried on few members: each costs a truth.
  bool AllDecided() const {
    return std::all_of(decoys_.begin(), decoys_.end(), [this](const GpuDecoy& decoy) {
      return decoy.is_decided || (decoy.must_pass && member_ >= kMembersForRight);
    });
  }

  void Add(const std::string& name, std::function<void()> make, bool must_pass = false) {
    decoys_.push_back({name, std::move(make), must_pass});
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
      KEVIN_CU(MemcpyDtoDAsync, session_.Output(kSlot, o), Address(reference[o]),
               static_cast<size_t>(Bytes(outputs_[o])), session_.stream());
    }
    session_.Synchronize();
  }

  bool IsIndex(size_t output) const { return outputs_[output].spec.dtype == DType::kI64; }

  Moments ReferenceMoments(size_t output) {
    const TensorView view = session_.ReferenceOutputs(kSlot)[output];
    session_.Synchronize();
    return IsIndex(output) ? MomentsOf<int64_t>(Address(view), outputs_[output].elements)
                           : MomentsOf<float>(Address(view), outputs_[output].elements);
  }

  void Fill(size_t output, double value) {
    const CuDevicePtr data = session_.Output(kSlot, output);
    const auto elements = static_cast<size_t>(outputs_[output].elements);
    if (IsIndex(output)) {
      const std::vector<int64_t> values(elements, static_cast<int64_t>(value));
      KEVIN_CU(MemcpyHtoD, data, values.data(), elements * sizeof(int64_t));
    } else {
      KEVIN_CU(MemsetD32Async, data, std::bit_cast<uint32_t>(static_cast<float>(value)), elements,
               session_.stream());
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
    const auto at = static_cast<uint64_t>(outputs_[0].elements * 2 / 3);
    const CuDevicePtr data = session_.Output(kSlot, 0);
    if (IsIndex(0)) {
      int64_t value = 0;
      KEVIN_CU(MemcpyDtoH, &value, data + at * sizeof(value), sizeof(value));
      ++value;
      KEVIN_CU(MemcpyHtoD, data + at * sizeof(value), &value, sizeof(value));
    } else {
      float value = 0;
      KEVIN_CU(MemcpyDtoH, &value, data + at * sizeof(value), sizeof(value));
      value += static_cast<float>(0.01 * ReferenceMoments(0).rms);
      KEVIN_CU(MemcpyHtoD, data + at * sizeof(value), &value, sizeof(value));
    }
  }

  void AddRoundedDecoys() {
    const auto rounded = [this](uint32_t dropped, float largest) {
      is_disturbed_ = true;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        if (inputs_[i].spec.dtype != DType::kF32) continue;
        CuDevicePtr data = Address(session_.Inputs(kSlot)[i]);
        long long elements = inputs_[i].elements;
        void* arguments[] = {&data, &elements, &dropped, &largest};
        session_.Launch("kevin_round", 132 * 8, 256, arguments);
      }
      RunReference();
      CopyReference();
    };
    Add("inputs rounded to fp16", [rounded] { rounded(kFp16Dropped, kFp16Largest); });
    Add("inputs rounded to bf16", [rounded] { rounded(kBf16Dropped, kBf16Largest); });
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
        KEVIN_CU(MemcpyDtoDAsync, session_.Output(kSlot, 0), Address(session_.Inputs(kSlot)[i]),
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

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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
