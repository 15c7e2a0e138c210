#pragma once
// Ceilings: rates that programs reach on this machine, measured. Users and policies are told them with the share that a
// kernel reaches. They are no bounds of a verdict: the floor that no time may beat (env/verdict/README.md) is below
// what any program can reach, and stays with the judge.
//
// Measured once a machine and kept in the cache folder, so that two runs name the same ceiling. Measured again where
// the key differs (device, driver, threads, version of the measurement), where the machine was busy the last time (up to
// kMostMeasured times), and where a kernel was faster than a ceiling: then the larger value stays.

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "env/workload.h"

namespace kevin {

// Of units of arithmetic.
inline constexpr const char* kFp32Unit = "fp32 FMA";
inline constexpr const char* kTf32Unit = "TF32 tensor cores";
inline constexpr const char* kFp16Unit = "fp16 tensor cores";
inline constexpr const char* kBf16Unit = "bf16 tensor cores";

struct Ceilings {
  double gb_per_s = 0;                        // of main memory, with cold caches; 0: unknown
  std::map<std::string, double> gflop_per_s;  // by unit; absent: unknown
  bool is_quiet = true;                       // nothing else ran while they were measured
  int measured = 1;                           // how often
};

// The unit that limits arithmetic under these conditions on a GPU or on a CPU.
const char* UnitFor(const Workload& workload, bool on_gpu);
// Of that unit; 0: unknown.
double GflopCeiling(const Ceilings& ceilings, const Workload& workload, bool on_gpu);

// What tensor cores reach in products of float32 inputs at the accuracy of float32: each input is split into parts of fewer
// bits, and the products of the parts are added up in float32.
struct SplitCeiling {
  // Whose parts: TF32 (two, three products), fp16 (the same; its range asks for rows that are scaled) or bf16 (three, six products).
  const char* unit = "";
  int parts = 0, products = 0;  // `products` of the unit take the place of one
  double unit_gflop_per_s = 0;  // of the unit itself
  double gflop_per_s = 0;       // of such products; 0: no unit is known that exceeds fp32 FMA
};
SplitCeiling SplitCeilingOf(const std::map<std::string, double>& gflop_per_s);

// The larger of each.
Ceilings Larger(const Ceilings& a, const Ceilings& b);

class CeilingStore {
 public:
  // `key` names everything that the ceilings depend on.
  CeilingStore(std::filesystem::path folder, std::string key);

  // What the file says; all 0 where nothing was measured yet.
  const Ceilings& Known();
  // From the file, else by `measure`, at most once a process where the machine was busy. An unwritable folder is no
  // error. Not thread-safe.
  const Ceilings& Get(const std::function<Ceilings()>& measure);
  // A kernel reached these rates. Beyond a ceiling by more than kTolerance, `measure` is called once more in this
  // process, and the larger values stay. Bandwidth does not count: a cache may be larger than what is flushed.
  void See(double gflop_per_s, const std::string& unit, const std::function<Ceilings()>& measure);

  static constexpr double kTolerance = 1.03;
  static constexpr int kMostMeasured = 3;

 private:
  void Read();
  void Write() const;

  std::filesystem::path file_;
  std::string key_;
  Ceilings ceilings_;
  bool is_known_ = false, has_measured_ = false, has_measured_again_ = false;
};

}  // namespace kevin
