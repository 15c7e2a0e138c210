#include "env/gpu/judge/gpu_floor.h"

#include <algorithm>

namespace kevin {
namespace {

constexpr double kBandwidthMargin = 1.1;  // a better kernel than ours may be faster by that factor
// mma.sync reaches some 60 % of what the newest tensor instructions do; fp8 and sparsity double it twice.
constexpr double kMatrixMargin = 1.7 * 4;
constexpr int64_t kMostFloorCalls = 16;
constexpr int kLeastRepeatsIfEmpty = 3;
// Of a kernel of ours beside an empty one: a short one has ended when the next is launched.
constexpr double kLeastShareOfFloor = 0.25, kLeastFloorUs = 0.05;
constexpr unsigned kMultiprocessors = 132;

class FloorMeasurement {
 public:
  FloorMeasurement(const GpuFloorSetup& setup, int repeats)
      : setup_(setup),
        repeats_(repeats),
        in_bytes_(SlotInputBytes(setup.sized) / 16 * 16),
        out_bytes_(SlotOutputBytes(setup.sized) / 16 * 16) {
    if (!setup.in_batches) return;
    calls_ = static_cast<int>(
        std::clamp<int64_t>(std::min(setup.layout.inputs_bytes / std::max<int64_t>(in_bytes_, 1),
                                     setup.layout.outputs_bytes / std::max<int64_t>(out_bytes_, 1)),
                            1, kMostFloorCalls));
    // A stall here would lower the floor for good.
    if (calls_ > 1) empty_us_ = CallUs("kevin_nothing", 1, nullptr, std::max(repeats, kLeastRepeatsIfEmpty));
  }

  // At the size of one call: reading from the inputs' memory, writing to the outputs', and both.
  double BytesPerSecond() {
    long long in_vectors = in_bytes_ / 16, out_vectors = out_bytes_ / 16;
    long long both = std::min(in_vectors, out_vectors);
    void* read[] = {&in_, &in_vectors, &setup_.sink};
    void* write[] = {&out_, &out_vectors};
    void* copy[] = {&out_, &in_, &both};
    return std::max({Rate("kevin_read", in_vectors, 1, read), Rate("kevin_write", out_vectors, 1, write),
                     Rate("kevin_copy", both, 2, copy)});
  }

  double MatrixFlopPerSecond() {
    int rounds = 4096;
    void* arguments[] = {&setup_.sink, &rounds};
    constexpr unsigned kMatrixBlocks = kMultiprocessors * 8;
    const double us =
        setup_.stopwatch.BestUs(repeats_, [&] { setup_.launch("kevin_mma", kMatrixBlocks, arguments); });
    return kMatrixBlocks * 8.0 * 4 * (2.0 * 16 * 8 * 16) * rounds / us * 1e6;
  }

 private:
  double Rate(const char* name, long long vectors, double factor, void** arguments) {
    double best = 0;
    const auto one_each = static_cast<unsigned>(std::max(vectors / 256, 1LL));  // a vector a thread
    for (const unsigned blocks : {kMultiprocessors * 8, kMultiprocessors * 32, one_each}) {
      const double us = CallUs(name, blocks, arguments, repeats_);
      const double own_us = std::max({us - empty_us_, us * kLeastShareOfFloor, kLeastFloorUs});
      best = std::max(best, static_cast<double>(vectors) * 16 * factor / own_us * 1e6);
    }
    return best;
  }

  // What the events take beside the launches is in the time of the empty ones too.
  double CallUs(const char* name, unsigned blocks, void** arguments, int repeats) {
    const auto launch_all = [&] {
      for (int call = 0; call < calls_; ++call) {
        in_ = setup_.memory.inputs + static_cast<CuDevicePtr>(call * in_bytes_);
        out_ = setup_.memory.outputs + static_cast<CuDevicePtr>(call * out_bytes_);
        setup_.launch(name, blocks, arguments);
      }
    };
    return setup_.stopwatch.BestUs(repeats, launch_all) / calls_;
  }

  GpuFloorSetup setup_;
  const int repeats_;
  const int64_t in_bytes_, out_bytes_;  // of a call, in whole vectors
  int calls_ = 1;
  double empty_us_ = 0;
  CuDevicePtr in_ = 0, out_ = 0;
};

}  // namespace

double GpuFloorUs(const GpuFloorSetup& setup, int repeats) {
  FloorMeasurement measurement(setup, repeats);
  return std::max(setup.sized.min_bytes / (measurement.BytesPerSecond() * kBandwidthMargin),
                  setup.sized.min_flops / (measurement.MatrixFlopPerSecond() * kMatrixMargin)) *
         1e6;
}

}  // namespace kevin
