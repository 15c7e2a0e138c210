#include "env/python/kernel_activity.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "env/error.h"

namespace kevin {
namespace {

// cupti_activity.h of CUDA 13; the records of later versions begin alike.
constexpr int kCopy = 1, kFill = 2, kConcurrentKernel = 10;
constexpr int kKinds[] = {kConcurrentKernel, kCopy, kFill};
constexpr size_t kBeginAt = 16, kEndAt = 24, kNameAt = 104;
constexpr uint32_t kFlushAll = 1;
constexpr size_t kBufferBytes = size_t{1} << 20, kAlignment = 8;

using Request = void (*)(uint8_t** buffer, size_t* bytes, size_t* most_records);
using Completed = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t valid_bytes);

struct Cupti {
  int (*register_callbacks)(Request, Completed) = nullptr;
  int (*enable)(int kind) = nullptr;
  int (*disable)(int kind) = nullptr;
  int (*flush)(uint32_t flags) = nullptr;
  int (*next)(uint8_t* buffer, size_t valid_bytes, void** record) = nullptr;
  int (*finalize)() = nullptr;
};

Cupti cupti;
std::mutex mutex;
std::vector<DeviceActivity>& recorded =
    *new std::vector<DeviceActivity>;  // CUPTI may call until the process ends

template <typename T>
T At(const void* record, size_t offset) {
  T value{};
  std::memcpy(&value, static_cast<const char*>(record) + offset, sizeof(T));
  return value;
}

std::string Demangled(const char* name) {
  if (name == nullptr) return "?";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 && text ? text.get() : name;
}

void GiveBuffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void ReadBuffer(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  const std::unique_ptr<uint8_t, void (*)(void*)> owned(buffer, std::free);
  const std::lock_guard<std::mutex> lock(mutex);
  for (void* record = nullptr; cupti.next(buffer, valid_bytes, &record) == 0;) {
    if (recorded.size() == ActivityRecording::kMostActivities) return;
    const int kind = At<int>(record, 0);
    const std::string name = kind == kConcurrentKernel ? Demangled(At<const char*>(record, kNameAt))
                             : kind == kCopy           ? "(copy of memory)"
                             : kind == kFill           ? "(fill of memory)"
                                                       : "";
    if (!name.empty())
      recorded.push_back({name, At<uint64_t>(record, kBeginAt), At<uint64_t>(record, kEndAt)});
  }
}

void Require(int status, const char* what) {
  if (status == 0) return;
  throw Error(ExitCode::kMachine,
              std::string("CUPTI cannot record kernels: ") + what + " answers " + std::to_string(status),
              "another profiler may run on this GPU; end it");
}

void Load(const char* library) {
  if (cupti.next != nullptr) return;
  void* handle = dlopen(library, RTLD_NOW);
  Cupti found;
  const auto find = [&](const char* name, auto* function) {
    *function = handle == nullptr
                    ? nullptr
                    : reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(handle, name));
    return *function != nullptr;
  };
  if (!find("cuptiActivityRegisterCallbacks", &found.register_callbacks) ||
      !find("cuptiActivityEnable", &found.enable) || !find("cuptiActivityDisable", &found.disable) ||
      !find("cuptiActivityFlushAll", &found.flush) || !find("cuptiActivityGetNextRecord", &found.next) ||
      !find("cuptiFinalize", &found.finalize)) {
    throw Error(ExitCode::kMachine,
                std::string("there is no CUPTI: ") + library + " was not found, or lacks functions",
                "install torch with CUDA 13, which brings it");
  }
  Require(found.register_callbacks(GiveBuffer, ReadBuffer), "cuptiActivityRegisterCallbacks");
  cupti = found;
}

}  // namespace

ActivityRecording::ActivityRecording(const char* library) {
  Load(library);
  cupti.flush(kFlushAll);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    recorded.clear();
  }
  for (const int kind : kKinds) Require(cupti.enable(kind), "cuptiActivityEnable");
}

ActivityRecording::~ActivityRecording() {
  for (const int kind : kKinds) cupti.disable(kind);
}

void EndRecorder() {
  if (cupti.finalize == nullptr) return;
  Require(cupti.finalize(), "cuptiFinalize");
  cupti = {};
}

std::vector<DeviceActivity> ActivityRecording::Take() {
  Require(cupti.flush(kFlushAll), "cuptiActivityFlushAll");
  const std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(recorded, {});
}

}  // namespace kevin
