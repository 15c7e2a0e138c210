#pragma once
// The loaded machine code of a candidate, with what its launch list needs: workspaces, constants, encoded
// arguments for every slot. Lives in the runner; one at a time. Errors are DriverError: after a fatal one the
// process cannot be used again.

#include <functional>
#include <variant>
#include <vector>

#include "env/gpu/runner/device_memory.h"
#include "env/gpu/runner/launch_plan.h"
#include "env/process/runner_protocol.h"

namespace kevin {

struct SlotMemory {
  CuDevicePtr inputs = 0, outputs = 0;
  std::vector<ArgumentPlace> places;  // of the arguments of `launch`
  int slots = 0;
};

// Of the trusted kernels.
struct CallKernels {
  CuHandle poison = nullptr, nothing = nullptr;
};
CallKernels CallKernelsOf(CuHandle trusted_module);

class CandidateModule {
 public:
  CandidateModule(const LaunchPlan& plan, const SlotMemory& memory, const CallKernels& kernels,
                  CuHandle stream);
  ~CandidateModule();
  CandidateModule(const CandidateModule&) = delete;
  CandidateModule& operator=(const CandidateModule&) = delete;

  // Poisons workspaces and restores global variables, so that a call finds nothing of earlier ones. `seed` is
  // secret and new. `keeps_globals`: they stay as the latest call has left them, as they do in use. On the stream.
  void Restore(uint64_t seed, bool keeps_globals = false);
  // One call, on the stream. `after` (may be empty) is called with the number of each operation once it is enqueued.
  void Enqueue(int slot, const std::function<void(size_t operation)>& after = {});
  // A call without the candidate's code, on the stream. Around cooperative and clustered launches the device
  // changes its mode, which takes time outside the events. Such launches are made, of a kernel that does
  // nothing; others are left out.
  void EnqueueEmpty();
  size_t operations() const { return operations_.size(); }

 private:
  struct Launch {
    CuHandle function = nullptr;
    CuLaunchConfig config;
    std::vector<CuLaunchAttribute> attributes;
    std::vector<std::vector<uint8_t>> arguments;  // by slot
    std::vector<int64_t> offsets;
    std::vector<void*> pointers;  // to the arguments of one slot, for the driver
    bool changes_mode = false;
  };
  using Operation = std::variant<Launch, MemorySet, MemoryCopy>;
  struct Global {
    CuDevicePtr place = 0;
    size_t bytes = 0;
    DeviceBuffer pristine;
  };

  CuDevicePtr AddressOf(const BufferAddress& address, int slot) const;
  Launch Prepare(const PlannedLaunch& planned) const;
  void AllowEmpty(const LaunchPlan& plan) const;
  std::vector<uint8_t> ArgumentsFor(const PlannedLaunch& planned, int slot) const;
  void SetConstants(const LaunchPlan& plan) const;
  void KeepGlobals(const LaunchPlan& plan);

  SlotMemory memory_;
  CallKernels kernels_;
  CuHandle stream_ = nullptr, module_ = nullptr;
  std::vector<DeviceBuffer> workspaces_;
  std::vector<Operation> operations_;
  std::vector<Global> globals_;
};

}  // namespace kevin
