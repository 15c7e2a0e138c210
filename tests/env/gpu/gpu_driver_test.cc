// The driver as evaluator and runner load it, where it is one that lacks functions (fake_driver.cc).

#include "env/error.h"
#include "env/gpu/runner/driver.h"
#include "tests/catch.h"

namespace kevin {

TEST_CASE("a driver that lacks what Kevin calls is too old") {
  try {
    LoadDriver();
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMachine);
    CHECK(std::string(error.what()) ==
          "the NVIDIA driver on this machine is too old: it lacks cuDevicePrimaryCtxRetain");
    CHECK(error.next_step() == "install driver 580 or newer (CUDA 13)");
  }
}

TEST_CASE("which faults leave a GPU process of no use") {
  for (const int code : {1, 2, 701, 720}) CHECK_FALSE(DriverError(code, "").fatal());
  for (const int code : {700, 702, 710, 715, 719, 999}) CHECK(DriverError(code, "").fatal());
}

}  // namespace kevin
