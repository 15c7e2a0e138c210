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
  CHECK((gpus[0].compute_mode == 0 && ObstacleTo(gpus[0]).reason.empty()));
  CHECK((gpus[1].index == 1 && gpus[1].name == "Fake 41"));
  CHECK((gpus[1].compute_mode == 3 && !ObstacleTo(gpus[1]).reason.empty()));
}

TEST_CASE("an architecture has a name of its own for torch") {
  GpuFound gpu;
  gpu.capability_major = 8, gpu.capability_minor = 9;
  CHECK((ArchitectureOf(gpu) == "sm_89" && TorchArchitecture("sm_89") == "8.9"));
  gpu.capability_major = 9, gpu.capability_minor = 0;
  CHECK((ArchitectureOf(gpu) == "sm_90a" && TorchArchitecture("sm_90a") == "9.0a"));
  CHECK((TorchArchitecture("sm_120a") == "12.0a" && TorchArchitecture("").empty()));
}

TEST_CASE("why a driver shows no device") {
  std::string why_none;
  SECTION("it does not start") {
    const Setting broken("FAKE_DRIVER_INIT", "803");
    CHECK(FindGpus(&why_none).empty());
    CHECK(why_none == "the NVIDIA driver (CUDA 13.2) does not start: cuInit returns 803");
  }
  SECTION("it has none") {
    const Setting none("FAKE_DRIVER_GPUS", "0");
    CHECK(FindGpus(&why_none).empty());
    CHECK(why_none ==
          "the NVIDIA driver (CUDA 13.2) shows no device (CUDA_VISIBLE_DEVICES hides them, or MIG mode is on "
          "without an instance)");
  }
}

TEST_CASE("what stands in the way of a GPU, and what to do about it") {
  const GpuFound good{2, "Fake", 8, 0, 0, 13000};
  CHECK(ObstacleTo(good).reason.empty());
  CHECK(ObstacleTo(good).fix.empty());
  const auto with = [&](auto change) {
    GpuFound gpu = good;
    change(&gpu);
    const GpuObstacle obstacle = ObstacleTo(gpu);
    return obstacle.reason + " -> " + obstacle.fix;
  };
  const std::string mode =
      " compute mode; Kevin needs two processes on it -> set it to the default mode (as "
      "root: nvidia-smi -i 2 -c DEFAULT)";
  CHECK(with([](GpuFound* gpu) { gpu->compute_mode = 3; }) == "cuda:2 (Fake) is in exclusive" + mode);
  CHECK(with([](GpuFound* gpu) { gpu->compute_mode = 1; }) == "cuda:2 (Fake) is in exclusive" + mode);
  CHECK(with([](GpuFound* gpu) { gpu->compute_mode = 2; }) == "cuda:2 (Fake) is in prohibited" + mode);
  CHECK(with([](GpuFound* gpu) { gpu->name = "Fake MIG 1g.18gb"; }) ==
        "cuda:2 (Fake MIG 1g.18gb) is a MIG instance; the load of other instances changes its speed and so "
        "every time -> disable MIG (as root: nvidia-smi -mig 0) or use an undivided GPU");
  CHECK(
      with([](GpuFound* gpu) { gpu->driver_version = 12080; }) ==
      "cuda:2 (Fake): its driver supports CUDA 12.8; Kevin's compiler needs 13.0 -> install NVIDIA's driver 580 "
      "or newer");
  CHECK(with([](GpuFound* gpu) {
          gpu->capability_major = 7;
          gpu->capability_minor = 5;
        }) == "cuda:2 (Fake) has compute capability 7.5; Kevin needs 8.0 or more -> use a newer GPU");
}

}  // namespace kevin
