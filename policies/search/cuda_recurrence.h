#pragma once
// Internal to the CUDA writer: loops over time that one kernel can run (cuda_recurrence.cc finds and plans them,
// write_cuda_recurrence.cc writes).

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "policies/search/cuda_text.h"

namespace kevin::search {

// state(time + 1) = gates(state(time) * weights, other values of the step), elementwise in the gates. The body is the
// product (directions x rows x gates * size, over size terms) with the gates as its stores, or with one stage behind it.
struct CudaRecurrence {
  Loop times, unit;
  const Contraction* product = nullptr;    // its lhs is the state
  int64_t size = 0;                        // units of the state
  std::vector<int64_t> gates;              // columns of the product where gates begin
  std::map<std::string, size_t> products;  // the gate, by the key of the load that reads the product
  std::vector<Store> stores;               // in the variables of the product, and `unit`
  size_t state_store = 0;                  // which of them is the new state
  // A value that a step reads where the step before stored it.
  struct Kept {
    ExprPtr load;
    size_t store = 0;
  };
  std::vector<Kept> kept;
  std::vector<ExprPtr> loads;  // all others
};
// nullopt: another body.
std::optional<CudaRecurrence> ReadCudaRecurrence(const Program& program, const Repeat& repeat);

// A cluster of `blocks` has `rows` rows of the batch; `lanes` threads share a unit, and hold its weights.
struct CudaRecurrencePlan {
  int64_t blocks = 8, lanes = 16, rows = 1, threads = 256;
};
// nullopt: the weights do not fit, or the device has no clusters.
std::optional<CudaRecurrencePlan> PlanCudaRecurrence(const CudaRecurrence& work, const TaskDevice& device);

inline constexpr const char* kCudaClusterKnob = "CLUSTER";
// False where the loop is not such a recurrence, or the knob says so: then nothing is written.
bool WriteCudaRecurrence(CudaText& text, const Stage& stage, const Repeat& repeat);

}  // namespace kevin::search
