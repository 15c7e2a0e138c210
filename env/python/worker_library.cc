// kevin-python-worker.so: what env/python/worker.py needs of the system, by ctypes: namespaces, the sandbox, shared
// memory, torch's allocator, the shared control page. It is loaded after torch, whose libraries it uses.
//
// Inside a worker nothing is believed: a candidate may call or overwrite all of this, and gains nothing. The trusted side
// reads memory that it owns and a clock of its own (env/cpu/session.h).

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "env/process/inputs_apart.h"
#include "env/process/shared_control_page.h"
#include "env/process/shared_memory.h"
#include "env/process/spawn.h"
#include "env/python/gpu_worker_library.h"
#include "env/reference/reference.h"
#include "env/sandbox/sandbox.h"

namespace kevin {
namespace {

std::byte* arena = nullptr;

SharedControlPage* PageAt(void* page) { return static_cast<SharedControlPage*>(page); }

}  // namespace

void SetArena(std::byte* memory) { arena = memory; }

void EnterWorkerSandbox(const SandboxOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Process 1 of a namespace survives the signal, and abort() then ends it with another one.
  signal(SIGABRT, [](int) { _exit(kAbortedStatus); });
  signal(SIGXFSZ, SIG_IGN);
  EnterSandbox(options);
}

}  // namespace kevin

using kevin::PageAt;

extern "C" {

// --- Namespaces and the sandbox ---

int KevinUnshare() { return kevin::UnshareNamespaces(); }
int KevinMapTwoUsers(int process) { return kevin::MapTwoUsers(process); }
int KevinMapOwnUser(unsigned user, unsigned group) { return kevin::MapOwnUser(user, group); }

// Once, with one thread. The folders that the interpreter needs stay readable under their own paths.
void KevinEnterSandbox(int namespaces, const char* const* folders, int count, int64_t max_memory_bytes,
                       int64_t max_file_bytes, int64_t cpu_limit_s) {
  kevin::SandboxOptions options;
  options.profile = kevin::SandboxProfile::kPython;
  options.namespaces = namespaces != 0;
  options.read_only.assign(folders, folders + count);
  options.max_memory_bytes = max_memory_bytes;
  options.max_file_bytes = max_file_bytes;
  options.cpu_limit_s = cpu_limit_s;
  kevin::EnterWorkerSandbox(options);
}

// --- Memory. All mappings stay until the process ends ---

void* KevinMapPage(int fd) {
  return (new kevin::Mapping(fd, sizeof(kevin::SharedControlPage), kevin::Access::kReadWrite, true))->data();
}

// From now on torch allocates its CPU tensors in this file.
void* KevinUseArena(int fd, uint64_t bytes) {
  std::byte* arena = (new kevin::Mapping(fd, bytes, kevin::Access::kReadWrite, false))->data();
  kevin::SetArena(arena);
  kevin::InstallCachingAllocator(arena, bytes);
  return arena;
}

// The address of each argument in the first slot, and its distance to the next slot.
void KevinMapInputs(int fd, int slots, int count, const uint64_t* offsets, const uint64_t* strides,
                    void** first, uint64_t* distances) {
  kevin::RunnerLoad load;
  load.slots = slots;
  for (int i = 0; i < count; ++i) load.arguments.push_back({false, false, offsets[i], strides[i]});
  kevin::InputsApart inputs(fd, -1, load);
  for (int i = 0; i < count; ++i) {
    const kevin::ArgumentPlace& place = load.arguments[static_cast<size_t>(i)];
    first[i] = inputs.Place(place, slots);
    distances[i] = place.stride + static_cast<uint64_t>(kevin::GapBetweenInputs(place));
  }
}

// --- The shared control page ---

uint32_t KevinWaitGo(void* page, uint32_t seen) {
  kevin::FutexWaitWhile(&PageAt(page)->go, seen, -1);
  return PageAt(page)->go.load(std::memory_order_acquire);
}
uint32_t KevinCommand(void* page) { return static_cast<uint32_t>(PageAt(page)->command); }
uint32_t KevinCalls(void* page, uint16_t* slots) {
  const uint32_t calls = std::min<uint32_t>(PageAt(page)->calls, kevin::kMaxSlots);
  std::copy_n(PageAt(page)->slot, calls, slots);
  return calls;
}
// The place of an output of a call: before KevinReturned.
void KevinPublish(void* page, uint32_t call, uint32_t output, uint64_t address) {
  PageAt(page)->published_offset[call][output] = address - reinterpret_cast<uint64_t>(kevin::arena);
  PageAt(page)->is_strided[call][output] = 0;
}
void KevinPublishStrides(void* page, uint32_t call, uint32_t output, const int64_t* strides, int count) {
  std::copy_n(strides, std::min(count, kevin::kMaxDims), PageAt(page)->published_stride[call][output]);
  PageAt(page)->is_strided[call][output] = 1;
}
void KevinReturned(void* page, uint32_t calls) {
  PageAt(page)->returned.store(calls, std::memory_order_seq_cst);  // a full barrier: audits rely on it
}
// Both for a call with one output.
void KevinReturnOne(void* page, uint32_t call, uint64_t address) {
  KevinPublish(page, call, 0, address);
  KevinReturned(page, call + 1);
}
void KevinDone(void* page, uint32_t seen) {
  PageAt(page)->done.store(seen, std::memory_order_release);
  kevin::FutexWake(&PageAt(page)->done);
}
void KevinState(void* page, uint32_t state, const char* message) {
  std::snprintf(PageAt(page)->message, sizeof(PageAt(page)->message), "%s", message);
  PageAt(page)->state.store(state, std::memory_order_release);
  kevin::FutexWake(&PageAt(page)->state);
}

}  // extern "C"
