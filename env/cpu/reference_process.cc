// The reference's twin: eager libtorch behind the same hand-over as a candidate, with the same threads and
// the same kind of pages. Trusted; runs outside the sandbox.

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
#include "env/reference/caching_allocator.h"
#include "env/reference/reference.h"

namespace kevin {
namespace {

struct Twin {
  Mapping control, inputs, arena;
  SizedProblem sized;
  std::unique_ptr<Reference> reference;

  Handover* page() const { return reinterpret_cast<Handover*>(control.data()); }

  void BindSlots(int slots) {
    const SlotLayout layout = LayOutSlots(sized, slots);
    for (int slot = 0; slot < slots; ++slot) {
      std::vector<TensorView> views;
      for (size_t i = 0; i < sized.inputs.size(); ++i) {
        const ArgumentPlace& place = layout.tensors[i];
        views.push_back({inputs.data() + place.offset + static_cast<uint64_t>(slot) * place.stride,
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
      if (page()->command == HandoverCommand::kRun) {
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

int RunTwin(const std::string& size, int threads, const std::string& precision) {
  RunnerLoad load;
  int descriptors[kLoadDescriptors];
  if (!ReceiveLoad(kRunnerSocket, &load, &descriptors)) return 0;
  dup2(descriptors[kLogFd], STDOUT_FILENO);
  Twin twin;
  twin.control = Mapping(descriptors[kHandoverFd], sizeof(Handover), Access::kReadWrite, true);
  twin.inputs =
      Mapping(descriptors[kInputsFd], static_cast<size_t>(load.inputs_bytes), Access::kReadOnly, true);
  twin.arena =
      Mapping(descriptors[kOutputsFd], static_cast<size_t>(load.outputs_bytes), Access::kReadWrite, false);
  InstallCachingAllocator(twin.arena.data(), twin.arena.bytes());
  const Problem problem = InPrecision(ParseProblem(ReadSharedFile(descriptors[kLibraryFd]), "problem"),
                                      PrecisionNamed(precision));
  twin.sized = AtSize(problem, size);
  twin.reference = std::make_unique<Reference>(problem, threads);
  twin.BindSlots(load.slots);
  twin.page()->state.store(static_cast<uint32_t>(HandoverState::kReady), std::memory_order_release);
  FutexWake(&twin.page()->state);
  twin.ServeForEver();
}

}  // namespace kevin
