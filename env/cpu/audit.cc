#include "env/cpu/audit.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "env/process/generator.h"

namespace kevin {
namespace {

constexpr int kLooks = 3;
constexpr int kProbes = 24;  // words looked at in each output

uint32_t WordAt(const std::byte* place) {
  uint32_t word = 0;
  std::memcpy(&word, place, sizeof(word));
  return word;
}

}  // namespace

Audit::Audit(Session& session, Side& side, const OutputMemory& outputs, std::span<const uint16_t> slots,
             double expected_us)
    : session_(session),
      side_(side),
      slots_(slots),
      final_(session, outputs, slots),
      inputs_(slots.size(), Inputs::kAsDrawn) {
  std::uniform_real_distribution<double> moment(0.05, 0.9);
  for (int i = 0; i < kLooks; ++i) moments_us_.push_back(moment(session.random()) * expected_us);
  std::sort(moments_us_.begin(), moments_us_.end());
}

void Audit::Watch() {
  const auto start = std::chrono::steady_clock::now();
  for (const double moment_us : moments_us_) {
    std::this_thread::sleep_until(start + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                              std::chrono::duration<double, std::micro>(moment_us)));
    const size_t returned = std::min<size_t>(side_.Returned(), slots_.size());
    final_.Remember(returned);
    ChangeInputs(returned + 1);
  }
}

void FinalOutputs::Remember(size_t calls) {
  for (size_t call = 0; call < calls; ++call) {
    for (size_t o = 0; o < session_.sized().outputs.size(); ++o) {
      const std::byte* data = session_.Output(outputs_, slots_[call], o);
      const auto words = static_cast<uint64_t>((session_.sized().outputs[o].bytes + 3) / 4);
      for (int probe = 0; probe < kProbes; ++probe) {
        const uint64_t at = probe == 0 ? 0 : probe == 1 ? words - 1 : session_.random()() % words;
        seen_.push_back({data + at * 4, WordAt(data + at * 4)});
      }
    }
  }
}

void Audit::ChangeInputs(size_t first_call) {
  for (size_t call = slots_.size(); call-- > first_call;) {
    const std::vector<TensorView> inputs = session_.Inputs(slots_[call]);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ConcreteTensor& tensor = session_.sized().inputs[i];
      Rearrange(tensor.spec, tensor.elements, session_.random(), inputs[i].data);
    }
    // The process counts with a full barrier before it begins the next call: if the count is still lower
    // after ours, the call begins with what was just written.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (side_.Returned() >= call) {
      inputs_[call] = Inputs::kChangedPerhapsDuring;
    } else if (inputs_[call] == Inputs::kAsDrawn) {
      inputs_[call] = Inputs::kChangedBefore;
    }
  }
}

bool FinalOutputs::Changed() const {
  return std::any_of(seen_.begin(), seen_.end(),
                     [](const Seen& seen) { return WordAt(seen.place) != seen.word; });
}

bool FinalOutputs::Unwritten() const {
  return std::any_of(seen_.begin(), seen_.end(), [](const Seen& seen) { return seen.word == kPoison; });
}

}  // namespace kevin
