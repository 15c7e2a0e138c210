// A stand-in for libcupti.so.13 with as much of it as recording kernels needs. While something is enabled, each flush completes
// two buffers: in the first a kernel, a copy and a record of another kind; in the second a fill. FAKE_CUPTI_ENABLE is what
// cuptiActivityEnable answers.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

// As CUpti_ActivityKernel10, CUpti_ActivityMemcpy6 and CUpti_ActivityMemset4 begin.
constexpr size_t kRecordBytes = 128;
struct Record {
  int32_t kind;
  uint32_t facts[3];
  uint64_t begin, end;
  uint32_t others[18];
  const char* name;
  char rest[kRecordBytes - 112];
};
static_assert(sizeof(Record) == kRecordBytes && offsetof(Record, name) == 104);

using Request = void (*)(uint8_t**, size_t*, size_t*);
using Completed = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);
Request request = nullptr;
Completed completed = nullptr;
int enabled = 0;

void Complete(std::initializer_list<Record> records) {
  uint8_t* buffer = nullptr;
  size_t bytes = 0, most = 0, at = 0;
  request(&buffer, &bytes, &most);
  for (const Record& record : records) {
    std::memcpy(buffer + at, &record, sizeof(record));
    at += sizeof(record);
  }
  completed(nullptr, 0, buffer, bytes, at);
}

Record Of(int kind, uint64_t begin, uint64_t end, const char* name) {
  Record record{};
  record.kind = kind, record.begin = begin, record.end = end, record.name = name;
  return record;
}

}  // namespace

extern "C" {

int cuptiActivityRegisterCallbacks(Request on_request, Completed on_completed) {
  request = on_request, completed = on_completed;
  return 0;
}
int cuptiActivityEnable(int) {
  const char* answer = std::getenv("FAKE_CUPTI_ENABLE");
  ++enabled;
  return answer == nullptr ? 0 : std::atoi(answer);
}
int cuptiActivityDisable(int) {
  --enabled;
  return 0;
}
int cuptiActivityFlushAll(uint32_t) {
  if (enabled <= 0) return 0;
  Complete({Of(10, 1000, 3500, "_ZN2at4reluEPf"), Of(1, 4000, 4200, nullptr), Of(7, 1, 2, nullptr)});
  Complete({Of(2, 5000, 5100, nullptr)});
  return 0;
}
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes, void** record) {
  auto* next = *record == nullptr ? buffer : static_cast<uint8_t*>(*record) + kRecordBytes;
  if (next >= buffer + valid_bytes) return 1;
  *record = next;
  return 0;
}
int cuptiFinalize() {
  request = nullptr, completed = nullptr;
  enabled = 0;
  return 0;
}
int FakeCuptiEnabled() { return enabled; }

}  // extern "C"
