// Looking for GPUs through a stand-in for the driver library (fake_driver.cc).

#include "env/gpu/find_gpus.h"

#include <stdlib.h>

#include "tests/catch.h"

namespace kevin {
namespace {

// Set for as long as it lives.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("what the driver says of its devices") {
  std::string why_none = "unset";
  const std::vector<GpuFound> gpus = FindGpus(&why_none);
  CHECK(why_none.empty());
  REQUIRE(gpus.size() == 2);
  CHECK((gpus[0].pci_bus == "0000:40:00.0" && gpus[1].pci_bus == "0000:41:00.0"));
  CHECK((gpus[0].index == 0 && gpus[0].name == "Fake 40" && gpus[0].driver_version == 13020));
  CHECK((gpus[0].capability_major == 9 && gpus[0].capability_minor == 1));
  CHECK((gpus[0].compute_mode == 0 && gpus[0].Shared()));
  CHECK((gpus[1].index == 1 && gpus[1].name == "Fake 41"));
  CHECK((gpus[1].compute_mode == 3 && !gpus[1].Shared()));
}

TEST_CASE("why a driver shows no device") {
  std::string why_none;
  SECTION("it does not start") {
    const Setting broken("FAKE_DRIVER_INIT", "803");
    CHECK(FindGpus(&why_none).empty());
    CHECK(why_none == "the NVIDIA driver (CUDA 13.2) does not start: cuInit says 803");
  }
  SECTION("it has none") {
    const Setting none("FAKE_DRIVER_GPUS", "0");
    CHECK(FindGpus(&why_none).empty());
    CHECK(why_none == "the NVIDIA driver (CUDA 13.2) shows no device");
  }
}

}  // namespace kevin
