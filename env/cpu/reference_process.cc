// The reference process: eager libtorch behind the same shared control page as a candidate, with the same
// threads and the same kind of memory pages. Its text is a problem's: it has a sandbox of its own.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "env/cpu/session.h"
#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/runner_protocol.h"
#include "env/process/shared_control_page.h"
#include "env/process/shared_memory.h"
#include "env/reference/reference.h"
#include "env/sandbox/evaluator_sandbox.h"

namespace kevin {
namespace {

struct ReferenceProcess {
  Mapping control, inputs, arena;
  SizedProblem sized;
  std::unique_ptr<Reference> reference;

  SharedControlPage* page() const { return reinterpret_cast<SharedControlPage*>(control.data()); }

  void BindSlots(int slots) {
    const SlotLayout layout = LayOutSlots(sized, slots);
    for (int slot = 0; slot < slots; ++slot) {
      std::vector<TensorView> views;
      for (size_t i = 0; i < sized.inputs.size(); ++i) {
        const ArgumentPlace& place = layout.tensors[i];
        // Input-outputs are the first part of the arena.
        std::byte* memory = place.inout ? arena.data() - layout.inouts_begin : inputs.data();
        views.push_back({memory + place.offset + static_cast<uint64_t>(slot) * place.stride,
                         sized.inputs[i].spec.dtype, sized.inputs[i].shape});
      }
      reference->BindSlot(static_cast<size_t>(slot), views);
    }
  }

  void RunCalls() {
    for (uint32_t i = 0; i < page()->calls; ++i) {
      reference->RunSlot(page()->slot[i]);
      page()->returned.store(i + 1, std::memory_order_seq_cst);  // as the runner does
    }
  }

  void Publish() {
    for (uint32_t i = 0; i < page()->calls; ++i) {
      const std::vector<TensorView> outputs = reference->SlotOutputs(page()->slot[i], sized.outputs);
      for (size_t o = 0; o < outputs.size() && o < kMaxOutputs; ++o) {
        page()->published_offset[i][o] =
            static_cast<uint64_t>(static_cast<std::byte*>(outputs[o].data) - arena.data());
      }
    }
  }

  [[noreturn]] void ServeForEver() {
    uint32_t seen = 0;
    for (;;) {
      FutexWaitWhile(&page()->go, seen, -1);
      seen = page()->go.load(std::memory_order_acquire);
      if (page()->command == PageCommand::kRun) {
        RunCalls();
      } else {
        Publish();
      }
      page()->done.store(seen, std::memory_order_release);
      FutexWake(&page()->done);
    }
  }
};

}  // namespace

int RunReferenceProcess(const std::string& size, int threads, const std::string& precision) {
  EnterReferenceSandbox();
  RunnerLoad load;
  int descriptors[kLoadDescriptors];
  if (!ReceiveLoad(kRunnerSocket, &load, &descriptors)) return 0;
  dup2(descriptors[kLogFd], STDOUT_FILENO);
  ReferenceProcess process;
  process.control = Mapping(descriptors[kControlPageFd], sizeof(SharedControlPage), Access::kReadWrite, true);
  process.inputs =
      Mapping(descriptors[kInputsFd], static_cast<size_t>(load.inputs_bytes), Access::kReadOnly, true);
  process.arena =
      Mapping(descriptors[kOutputsFd], static_cast<size_t>(load.outputs_bytes), Access::kReadWrite, false);
  const Problem problem = InPrecision(ParseProblem(ReadSharedFile(descriptors[kLibraryFd]), "problem"),
                                      PrecisionNamed(precision));
  process.sized = AtSize(problem, size);
  constexpr int64_t kAlignment = int64_t{2} << 20;
  const int64_t inouts = LayOutSlots(process.sized, load.slots).inouts_bytes();
  const auto taken = static_cast<size_t>((inouts + kAlignment - 1) / kAlignment * kAlignment);
  InstallCachingAllocator(process.arena.data() + taken, process.arena.bytes() - taken);
  process.reference = std::make_unique<Reference>(problem, threads);
  process.BindSlots(load.slots);
  process.page()->state.store(static_cast<uint32_t>(PageState::kReady), std::memory_order_release);
  FutexWake(&process.page()->state);
  process.ServeForEver();
}

}  // namespace kevin
