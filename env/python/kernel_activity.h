#pragma once
// What ran on the GPU between two moments, told by CUPTI, the driver's library for profilers. torch's profiler asks the same
// library; its first session of a process takes 6 s on an H100, this takes 20 ms.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kevin {

// A kernel, or a copy or fill of memory, whose names stand in brackets: no kernel can have them.
struct DeviceActivity {
  std::string name;                   // demangled
  uint64_t begin_ns = 0, end_ns = 0;  // of one clock, whose zero is not known
};

// Of the whole process, so there is one recording at a time. Functions are called by one thread; CUPTI calls back from others.
// A process that is to record after its sandbox is complete makes one recording before: CUPTI opens what it needs then.
class ActivityRecording {
 public:
  // `library` is CUPTI's name; torch has loaded it. Throws Error (kMachine) where it is missing or refuses.
  explicit ActivityRecording(const char* library = "libcupti.so.13");
  // Ends the recording.
  ~ActivityRecording();
  ActivityRecording(const ActivityRecording&) = delete;
  ActivityRecording& operator=(const ActivityRecording&) = delete;

  // All that has ended since the beginning, in the order that CUPTI tells it, but for kMostActivities at most. The caller has
  // waited for the device.
  std::vector<DeviceActivity> Take();

  static constexpr size_t kMostActivities = 200'000;
};

// Without a recording under way: ends CUPTI in this process, which else makes each launch a tenth longer from the first
// recording on. A later recording begins it again.
void EndRecorder();

}  // namespace kevin
