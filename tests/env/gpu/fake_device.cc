// A stand-in for libcuda.so.1 with a device of host memory: allocations are memory files, so that they cross processes as the
// real ones do; streams do their work at once, but who waits for one waits at its closed gate; of the trusted kernels it has
// those that judge candidates in Python, as plain loops over float32.
//
//   FAKE_DEVICE_GAP_NS       what the kernel that looks for other contexts finds; with FAKE_DEVICE_GAP_ABOVE=N only while more
//                            than N children of this process are stopped, as a candidate and references are between batches
//   FAKE_DEVICE_DRAINS=N     in a pause of a batch, the first N looks find a gap; FAKE_DEVICE_GAP_ABOVE counts here too
//   FAKE_DEVICE_FULL_ABOVE=N there is no free memory while more than N children are stopped
//   FAKE_DEVICE_MIB=N        it has so much memory, of which allocations of this process take (cuMemCreate alone). Unset: 4 GiB,
//                            of which 2 GiB stay free, whatever is allocated

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace {

using u64 = unsigned long long;
using Clock = std::chrono::steady_clock;

constexpr u64 kGranularity = u64{2} << 20;

struct Allocation {
  int file = -1;
  u64 bytes = 0;
};
struct FakeFunction {
  std::string name;
};
struct FakeEvent {
  Clock::time_point at;
};
// What a stream of this thread waits for: a value in memory.
struct FakeGate {
  const volatile uint32_t* place = nullptr;
  uint32_t value = 0;
};
thread_local FakeGate gate;

std::mutex allocations_mutex;
std::map<u64, Allocation>& allocations =
    *new std::map<u64, Allocation>;  // objects of a test may outlive this library's
u64 latest_allocation = 0;

u64 Keep(const Allocation& allocation) {
  const std::lock_guard lock(allocations_mutex);
  allocations[++latest_allocation] = allocation;
  return latest_allocation;
}

uint32_t Mixed(u64 seed, u64 index) {
  u64 x = seed + index * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<uint32_t>(x >> 32);
}

template <typename T>
T Argument(void** arguments, int at) {
  T value;
  std::memcpy(&value, arguments[at], sizeof(T));
  return value;
}

// --- The trusted kernels, with the arguments of env/gpu/runner/trusted_*.cc ---

void Fill(void** arguments) {
  auto* out = Argument<float*>(arguments, 0);
  const auto count = Argument<long long>(arguments, 1);
  struct Keystream {
    uint32_t key[8];
    u64 nonce;
  };
  const auto from = Argument<Keystream>(arguments, 3);
  const auto scale = Argument<float>(arguments, 4), offset = Argument<float>(arguments, 5);
  const u64 seed = from.key[0] ^ (static_cast<u64>(from.key[1]) << 32) ^ from.nonce * 0x9e3779b97f4a7c15ULL;
  for (long long i = 0; i < count; ++i)
    out[i] = static_cast<float>(static_cast<int32_t>(Mixed(seed, static_cast<u64>(i)))) * 0x1p-31F * scale +
             offset;
}

void Poison(void** arguments) {
  auto* words = Argument<uint32_t*>(arguments, 0);
  const auto first = Argument<long long>(arguments, 1), count = Argument<long long>(arguments, 2);
  const auto seed = Argument<u64>(arguments, 3);
  for (long long i = 0; i < count; ++i)
    words[i] = 0x7fc00000U | Mixed(seed, static_cast<u64>(first + i)) >> 10;
}

void CopyParts(void** arguments, unsigned parts) {
  struct Part {
    char* to;
    const char* from;
    long long vectors;
  };
  const auto* all = Argument<const Part*>(arguments, 0);
  for (unsigned i = 0; i < parts; ++i)
    std::memcpy(all[i].to, all[i].from, static_cast<size_t>(all[i].vectors) * 16);
}

void Take(void** arguments) {
  struct Strided {
    long long shape[8], stride[8];
    int dims, bytes;
  };
  auto* out = Argument<char*>(arguments, 0);
  const auto* in = Argument<const char*>(arguments, 1);
  const auto count = Argument<long long>(arguments, 2);
  const auto of = Argument<Strided>(arguments, 3);
  for (long long i = 0; i < count; ++i) {
    long long rest = i, at = 0;
    for (int d = of.dims - 1; d >= 0; --d) {
      at += rest % of.shape[d] * of.stride[d];
      rest /= of.shape[d];
    }
    std::memcpy(out + i * of.bytes, in + at * of.bytes, static_cast<size_t>(of.bytes));
  }
}

void Sample(void** arguments) {
  const auto* const* places = Argument<const uint32_t* const*>(arguments, 0);
  const auto count = Argument<int>(arguments, 1);
  auto* out = Argument<uint32_t*>(arguments, 2);
  for (int i = 0; i < count; ++i) out[i] = *places[i];
}

void CountDifferent(void** arguments) {
  const auto *a = Argument<const uint32_t*>(arguments, 0), *b = Argument<const uint32_t*>(arguments, 1);
  const auto count = Argument<long long>(arguments, 2);
  auto* different = Argument<u64*>(arguments, 3);
  for (long long i = 0; i < count; ++i) *different += a[i] != b[i];
}

void SurelyFine(void** arguments) {
  const auto *answer = Argument<const float*>(arguments, 0),
             *reference = Argument<const float*>(arguments, 1);
  const auto count = Argument<long long>(arguments, 2);
  const auto floor = Argument<float>(arguments, 3);
  auto* others = Argument<u64*>(arguments, 4);
  for (long long i = 0; i < count; ++i)
    *others += !(std::abs(answer[i] - reference[i]) <= floor * std::abs(reference[i]));
}

struct Tensors {
  const float *answer, *reference;
  const double *truth, *scale;
  double of_scale, of_value, absolute, of_spread, largest;
  long long rows, row;
};
struct Verdict {
  u64 wrong, first_wrong, worst, bad_row;
  uint32_t reference_error, padding;
};

double TargetAt(const Tensors& t, long long i) {
  return t.truth != nullptr ? t.truth[i] : static_cast<double>(t.reference[i]);
}

void RowSquares(void** arguments) {
  const auto t = Argument<Tensors>(arguments, 0);
  auto* sums = Argument<double*>(arguments, 1);
  for (long long i = 0; i < t.rows * t.row; ++i) {
    sums[i / t.row * 3] += TargetAt(t, i) * TargetAt(t, i);
    sums[i / t.row * 3 + 1] += 1;
  }
}

void Check(void** arguments) {
  const auto t = Argument<Tensors>(arguments, 0);
  const auto* sums = Argument<const double*>(arguments, 1);
  auto* verdict = Argument<Verdict*>(arguments, 3);
  for (long long i = 0; i < t.rows * t.row; ++i) {
    const double target = TargetAt(t, i), rms = std::sqrt(sums[i / t.row * 3] / sums[i / t.row * 3 + 1]);
    const double bound = std::max(4 * std::abs(static_cast<double>(t.reference[i]) - target),
                                  t.of_scale * std::max(std::abs(target), rms));
    if (std::abs(static_cast<double>(t.answer[i]) - target) <= bound) continue;
    ++verdict->wrong;
    verdict->first_wrong = std::min(verdict->first_wrong, static_cast<u64>(i));
    verdict->worst = static_cast<u64>(i);
  }
}

// As env/gpu/runner/trusted_python.cc does it, for elements of 4 bytes.
u64 Scattered(u64 seed, u64 number) {
  return static_cast<u64>(Mixed(seed, number)) << 20 ^ Mixed(~seed, number);
}
void Rearrange(void** arguments) {
  auto* data = Argument<uint32_t*>(arguments, 0);
  const auto count = Argument<u64>(arguments, 1), seed = Argument<u64>(arguments, 3);
  if (count < 2 || Argument<int>(arguments, 2) != 4) return;
  for (u64 i = 0; i < (count + 255) / 256; ++i) {
    const u64 from = Scattered(seed, 2 * i) % count;
    data[(from + 1 + Scattered(seed, 2 * i + 1) % (count - 1)) % count] = data[from];
  }
}

bool HasMoreStoppedThan(const char* setting) {
  long children = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    if (std::atoi(entry.path().filename().c_str()) <= 0) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t end = text.rfind(')');  // "ID (NAME) STATE PARENT ..."
    if (end != std::string::npos && end + 4 < text.size() && text[end + 2] == 'T')
      children += std::atoi(text.c_str() + end + 4) == getpid();
  }
  return children > std::atol(setting);
}

// After the copying of inputs and before any reading of outputs a batch is paused.
bool is_in_batch = false;
int looks_in_pause = 0;

void Watch(void** arguments) {
  u64& longest = *Argument<u64*>(arguments, 1);
  longest = 0;
  const char *gap = std::getenv("FAKE_DEVICE_GAP_NS"), *above = std::getenv("FAKE_DEVICE_GAP_ABOVE"),
             *drains = std::getenv("FAKE_DEVICE_DRAINS");
  if (gap != nullptr && (above == nullptr || HasMoreStoppedThan(above)))
    longest = std::strtoull(gap, nullptr, 10);
  if (drains != nullptr && is_in_batch && (above == nullptr || HasMoreStoppedThan(above)) &&
      ++looks_in_pause <= std::atoi(drains))
    longest = 2'000'000;
}

void ClockReading(void** arguments) {
  auto* out = Argument<u64*>(arguments, 0);
  out[0] = out[1] = 1000;
}

struct Config {
  unsigned grid_x, grid_y;
};

void Run(const std::string& name, const Config& config, void** arguments) {
  if (name != "kevin_watch") is_in_batch = name == "kevin_copy_parts", looks_in_pause = 0;
  if (name == "kevin_fill") Fill(arguments);
  if (name == "kevin_poison") Poison(arguments);
  if (name == "kevin_copy_parts") CopyParts(arguments, config.grid_y);
  if (name == "kevin_take") Take(arguments);
  if (name == "kevin_sample") Sample(arguments);
  if (name == "kevin_count_different") CountDifferent(arguments);
  if (name == "kevin_surely_fine") SurelyFine(arguments);
  if (name == "kevin_row_squares") RowSquares(arguments);
  if (name == "kevin_check") Check(arguments);
  if (name == "kevin_watch") Watch(arguments);
  if (name == "kevin_rearrange") Rearrange(arguments);
  if (name == "kevin_clock") ClockReading(arguments);
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGetName(char* name, int size, int) {
  return std::strncpy(name, "Fake device", static_cast<size_t>(size)), 0;
}
int cuDeviceGetPCIBusId(char* bus, int size, int) {
  return std::strncpy(bus, "0000:7f:00.0", static_cast<size_t>(size)), 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int kL2 = 38, kMultiprocessors = 16;
  *value = attribute == kL2 ? 1 << 20 : attribute == kMultiprocessors ? 2 : 1024;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &allocations, 0; }
int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
bool IsFull() {
  const char* above = std::getenv("FAKE_DEVICE_FULL_ABOVE");
  return above != nullptr && HasMoreStoppedThan(above);
}
u64 FreeBytes() {
  const char* all = std::getenv("FAKE_DEVICE_MIB");
  if (IsFull()) return 0;
  if (all == nullptr) return u64{2} << 30;
  const std::lock_guard lock(allocations_mutex);
  u64 taken = 0;
  for (const auto& [handle, allocation] : allocations) taken += allocation.bytes;
  return std::max(std::strtoull(all, nullptr, 10) << 20, taken) - taken;
}
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  return *free_bytes = FreeBytes(), *total = size_t{4} << 30, 0;
}
int cuMemAlloc_v2(u64* place, size_t bytes) {
  if (IsFull()) return 2;
  *place = reinterpret_cast<u64>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  return *place == 0 ? 2 : 0;
}
int cuMemFree_v2(u64 place) { return std::free(reinterpret_cast<void*>(place)), 0; }
int cuMemHostAlloc(void** place, size_t bytes, unsigned) { return *place = std::calloc(1, bytes), 0; }
int cuMemHostGetDevicePointer_v2(u64* place, void* host, unsigned) {
  return *place = reinterpret_cast<u64>(host), 0;
}
int cuMemcpyHtoD_v2(u64 to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}
int cuMemcpyDtoH_v2(void* to, u64 from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), 0;
}
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void*) {
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), 0;
}
int cuMemsetD8Async(u64 to, unsigned char value, size_t bytes, void*) {
  return std::memset(reinterpret_cast<void*>(to), value, bytes), 0;
}
int cuMemsetD32Async(u64 to, unsigned value, size_t words, void*) {
  return std::fill_n(reinterpret_cast<unsigned*>(to), words, value), 0;
}
int cuMemGetAllocationGranularity(size_t* bytes, const void*, int) { return *bytes = kGranularity, 0; }
int cuMemCreate(u64* handle, size_t bytes, const void*, u64) {
  if (std::getenv("FAKE_DEVICE_MIB") != nullptr && FreeBytes() < bytes) return 2;
  const int file = memfd_create("fake-device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return 2;
  return *handle = Keep({file, bytes}), 0;
}
int cuMemRelease(u64 handle) {
  const std::lock_guard lock(allocations_mutex);
  close(allocations[handle].file);
  allocations.erase(handle);
  return 0;
}
int cuMemExportToShareableHandle(void* descriptor, u64 handle, int, u64) {
  const std::lock_guard lock(allocations_mutex);
  *static_cast<int*>(descriptor) = dup(allocations[handle].file);
  return 0;
}
int cuMemImportFromShareableHandle(u64* handle, void* descriptor, int) {
  const int file = dup(static_cast<int>(reinterpret_cast<intptr_t>(descriptor)));
  if (file < 0) return 1;
  return *handle = Keep({file, static_cast<u64>(lseek(file, 0, SEEK_END))}), 0;
}
int cuMemAddressReserve(u64* place, size_t bytes, size_t, u64, u64) {
  void* all =
      mmap(nullptr, bytes + kGranularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return 2;
  return *place = (reinterpret_cast<u64>(all) + kGranularity - 1) / kGranularity * kGranularity, 0;
}
int cuMemAddressFree(u64 place, size_t bytes) { return munmap(reinterpret_cast<void*>(place), bytes), 0; }
int cuMemMap(u64 place, size_t bytes, size_t, u64 handle, u64) {
  const std::lock_guard lock(allocations_mutex);
  if (allocations[handle].bytes < bytes) return 1;
  void* at = mmap(reinterpret_cast<void*>(place), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                  allocations[handle].file, 0);
  return at == MAP_FAILED ? 1 : 0;
}
int cuMemUnmap(u64 place, size_t bytes) {
  mmap(reinterpret_cast<void*>(place), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  return 0;
}
int cuMemSetAccess(u64 place, size_t bytes, const void* access, size_t) {
  struct Access {
    int type, id, flags;
  };
  const bool is_writable = static_cast<const Access*>(access)->flags == 3;
  return mprotect(reinterpret_cast<void*>(place), bytes, is_writable ? PROT_READ | PROT_WRITE : PROT_READ) ==
                 0
             ? 0
             : 1;
}
int cuModuleLoadData(void** module, const void*) { return *module = &allocations, 0; }
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void*, const char* name) {
  return *function = new FakeFunction{name}, 0;
}
int cuModuleGetGlobal_v2(u64*, size_t*, void*, const char*) { return 500; }
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuLaunchKernelEx(const void* config, void* function, void** arguments, void**) {
  Run(static_cast<FakeFunction*>(function)->name, *static_cast<const Config*>(config), arguments);
  return 0;
}
int cuStreamCreate(void** stream, unsigned) { return *stream = nullptr, 0; }
int cuStreamSynchronize(void*) {
  while (gate.place != nullptr && *gate.place != gate.value) std::this_thread::yield();
  return gate = {}, 0;
}
int cuStreamWaitValue32_v2(void*, u64 place, uint32_t value, unsigned) {
  return gate = {reinterpret_cast<const volatile uint32_t*>(place), value}, 0;
}
int cuStreamWriteValue32_v2(void*, u64 place, uint32_t value, unsigned) {
  return *reinterpret_cast<volatile uint32_t*>(place) = value, 0;
}
int cuStreamGetCaptureInfo_v3(void*, int* status, u64*, void*, void*, void*, size_t*) {
  return *status = 0, 0;
}
int cuThreadExchangeStreamCaptureMode(int*) { return 0; }
int cuEventCreate(void** event, unsigned) { return *event = new FakeEvent, 0; }
int cuEventRecord(void* event, void*) { return static_cast<FakeEvent*>(event)->at = Clock::now(), 0; }
int cuEventSynchronize(void*) { return 0; }
int cuEventQuery(void*) { return 0; }
int cuEventDestroy_v2(void* event) { return delete static_cast<FakeEvent*>(event), 0; }
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  *milliseconds = std::chrono::duration<float, std::milli>(static_cast<FakeEvent*>(end)->at -
                                                           static_cast<FakeEvent*>(start)->at)
                      .count();
  return 0;
}
int cuProfilerStart() { return 0; }
int cuProfilerStop() { return 0; }
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_FAKE", 0; }
int cuGetErrorString(int code, const char** text) {
  return *text = code == 2 ? "out of memory" : "of the stand-in", 0;
}
int cuTensorMapEncodeTiled(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*,
                           const uint32_t*, int, int, int, int) {
  return 1;
}

}  // extern "C"
