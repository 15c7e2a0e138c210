#include "agent/train/peak_flops.h"

namespace kevin {

std::optional<double> PeakFlops(const std::string& gpu_name) {
  struct Row {
    const char* name;
    double tflops;
  };
  // The longer of two names that fit is first.
  constexpr Row kGpus[] = {{"B200", 2250},      {"H200 NVL", 835}, {"H200", 989},   {"GH200", 989},
                           {"H100 PCIe", 756},  {"H100 NVL", 835}, {"H100", 989},   {"H800", 989},
                           {"H20", 148},        {"A100", 312},     {"A800", 312},   {"L40S", 362},
                           {"L40", 181},        {"L4", 121},       {"A10G", 70},    {"RTX 4090", 165},
                           {"RTX 5090", 209.5}, {"A40", 149.7},    {"RTX 3090", 71}};
  for (const Row& row : kGpus) {
    if (gpu_name.find(row.name) != std::string::npos) return row.tflops * 1e12;
  }
  return std::nullopt;
}

}  // namespace kevin
