#pragma once
// The inputs of a candidate's process: each tensor of each slot in a mapping of its own, with zeros before and behind it,
// so that the kernel shows which of them were touched (env/cpu/audit.h). Read-only, but for input-outputs, which are
// mapped with their guard pages. The mappings stay until the process ends.

#include <cstddef>
#include <cstdint>

#include "env/process/runner_protocol.h"

namespace kevin {

class InputsApart {
 public:
  // The shared memories of the inputs and of the outputs, where input-outputs are. Ends the process, with a message, where
  // memory is too little.
  InputsApart(int inputs_fd, int outputs_fd, const RunnerLoad& load);

  // The address of an argument in the first of `slots` slots. From one slot to the next it is the stride and the gap
  // (GapBetweenInputs). Once for each argument, in their order.
  std::byte* Place(const ArgumentPlace& place, int slots);

 private:
  static constexpr int64_t kAlignment = int64_t{2} << 20;

  int inputs_fd_, outputs_fd_;
  int64_t bytes_ = 2 * kAlignment, used_ = 0;
  std::byte* zeros_ = nullptr;
};

}  // namespace kevin
