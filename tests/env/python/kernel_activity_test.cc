// Recording of kernels by a stand-in for CUPTI (fake_cupti.cc).

#include "env/python/kernel_activity.h"

#include <dlfcn.h>

#include <cstdlib>

#include "env/error.h"
#include "tests/catch.h"

namespace kevin {
namespace {

int Enabled() {
  void* library = dlopen("libcupti.so.13", RTLD_NOW);
  REQUIRE(library != nullptr);
  return reinterpret_cast<int (*)()>(dlsym(library, "FakeCuptiEnabled"))();
}

}  // namespace

TEST_CASE("CUPTI that is missing is named") {
  try {
    const ActivityRecording recording("libcupti-of-nobody.so");
    FAIL("recorded without CUPTI");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("libcupti-of-nobody.so") != std::string::npos);
    CHECK(error.code() == ExitCode::kMachine);
  }
}

TEST_CASE("kernels have their names, copies and fills names that no kernel can have") {
  {
    ActivityRecording recording;
    CHECK(Enabled() == 3);
    const std::vector<DeviceActivity> taken = recording.Take();
    REQUIRE(taken.size() == 3);
    CHECK(taken[0].name == "at::relu(float*)");
    CHECK(taken[0].begin_ns == 1000);
    CHECK(taken[0].end_ns == 3500);
    CHECK(taken[1].name == "(copy of memory)");
    CHECK(taken[1].end_ns == 4200);
    CHECK(taken[2].name == "(fill of memory)");
    CHECK(recording.Take().size() == 3);  // what was taken does not come again
  }
  CHECK(Enabled() == 0);
  ActivityRecording again;
  CHECK(again.Take().size() == 3);
}

TEST_CASE("a recorder that has ended begins again with the next recording") {
  { const ActivityRecording first; }
  EndRecorder();
  EndRecorder();
  ActivityRecording again;  // after its end the stand-in knows no callbacks any more
  CHECK(Enabled() == 3);
  CHECK(again.Take().size() == 3);
}

TEST_CASE("a recording ends by itself where there are too many kernels") {
  ActivityRecording recording;
  for (size_t i = 0; i < ActivityRecording::kMostActivities / 3 + 10; ++i) {
    static void* library = dlopen("libcupti.so.13", RTLD_NOW);
    static const auto flush = reinterpret_cast<int (*)(uint32_t)>(dlsym(library, "cuptiActivityFlushAll"));
    flush(1);
  }
  CHECK(recording.Take().size() == ActivityRecording::kMostActivities);
}

TEST_CASE("a refusal of CUPTI is told") {
  setenv("FAKE_CUPTI_ENABLE", "35", 1);
  CHECK_THROWS_AS(ActivityRecording(), Error);
  unsetenv("FAKE_CUPTI_ENABLE");
}

}  // namespace kevin
