#pragma once
// A candidate's machine code, loaded, with everything that its launch list needs: workspaces, constants,
// encoded arguments for every slot. Lives in the runner; one at a time. Errors are DriverError: a fatal one
// means that the process is of no more use.

#include <array>
#include <variant>
#include <vector>

#include "env/gpu/runner/device_memory.h"
#include "env/gpu/runner/launch_plan.h"
#include "env/process/runner_protocol.h"
#include "env/process/shared_control_page.h"

namespace kevin {

struct SlotMemory {
  CuDevicePtr inputs = 0, outputs = 0;
  std::vector<ArgumentPlace> places;  // of what `launch` takes
  int slots = 0;
};

class CandidateModule {
 public:
  CandidateModule(const LaunchPlan& plan, const SlotMemory& memory, CuHandle stream);
  ~CandidateModule();
  CandidateModule(const CandidateModule&) = delete;
  CandidateModule& operator=(const CandidateModule&) = delete;

  // Workspaces poisoned, global variables as they were: what a call must not find is gone. On the stream.
  void Restore();
  // One call, on the stream.
  void Enqueue(int slot);
  size_t operations() const { return operations_.size(); }

 private:
  struct Launch {
    CuHandle function = nullptr;
    CuLaunchConfig config;
    std::vector<CuLaunchAttribute> attributes;
    std::vector<std::vector<uint8_t>> arguments;  // by slot
    std::vector<int64_t> offsets;
  };
  using Operation = std::variant<Launch, MemorySet, MemoryCopy>;
  struct Global {
    CuDevicePtr place = 0;
    size_t bytes = 0;
    DeviceBuffer pristine;
  };

  CuDevicePtr AddressOf(const BufferAddress& address, int slot) const;
  Launch Prepare(const PlannedLaunch& planned) const;
  std::vector<uint8_t> ArgumentsFor(const PlannedLaunch& planned, int slot) const;
  void SetConstants(const LaunchPlan& plan) const;
  void KeepGlobals(const LaunchPlan& plan);

  SlotMemory memory_;
  CuHandle stream_ = nullptr, module_ = nullptr;
  std::vector<DeviceBuffer> workspaces_;
  std::vector<Operation> operations_;
  std::vector<Global> globals_;
};

}  // namespace kevin
