#pragma once
// For tests: programs made at random, of stages as Lower makes them. What one stage stores others read at its own place,
// mirrored, shifted, broadcast, reshaped, transposed, under guards, or at places that are loaded. Tensors are written in parts,
// overwritten and changed in place; loops carry values along.

#include <cstdint>
#include <vector>

#include "tests/policies/search/program_cases.h"

namespace kevin::test {

// Valid: each stage's points are independent, and nothing is read before it is written. Values are whole numbers small
// enough that fp32 has them exactly, where those of the inputs are (WholeMemory). Equal for equal seeds.
search::Program RandomProgram(uint64_t seed);

// For every buffer of the program: whole numbers from -4 to 4; of integers, from 0 to kPlaces - 1.
inline constexpr int64_t kPlaces = 3;
Memory WholeMemory(const search::Program& program, uint64_t seed);

// Of a test: from 1 on, or those that KEVIN_SEEDS=FIRST:COUNT names.
std::vector<uint64_t> SeedsOr(uint64_t count);
// The programs of the seeds for the tests of the writers: fused.
std::vector<ProgramCase> RandomCases(const std::vector<uint64_t>& seeds);

// Numbers from 0 to `count` - 1, equal on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 0x632be59bd9b4e019ULL) {}
  int64_t Below(int64_t count) {
    state_ ^= state_ >> 30, state_ *= 0xbf58476d1ce4e5b9ULL;
    state_ ^= state_ >> 27, state_ += 0x9e3779b97f4a7c15ULL;
    return static_cast<int64_t>((state_ >> 11) % static_cast<uint64_t>(count));
  }
  bool OneIn(int64_t count) { return Below(count) == 0; }

 private:
  uint64_t state_;
};

}  // namespace kevin::test
