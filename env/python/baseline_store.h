#pragma once
// What eager PyTorch and, on a GPU, torch.compile take for a problem, measured once (env/python/torch_compile.h,
// env/cpu/session.h) and kept as one small JSON file each under CACHE/baselines, so that no Python is
// started to look it up. A failure is kept too, with its reason, so that it is not tried again each time.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kevin {

// What a baseline depends on beside the version of torch.
struct BaselineKey {
  std::string problem_hash;  // content hash
  std::string size;          // "full"
  bool tf32 = false;
  std::string device_model;  // "NVIDIA H200"; "cpu: AMD EPYC, 2 threads"
  std::string driver;        // the CUDA version that it knows, "13000"; empty for a CPU
  std::string precision = "fp32";
};

struct Baseline {
  BaselineKey key;
  std::string problem;        // its id, for people
  std::string torch_version;  // "2.11.0+cu130"
  std::string measured_at;    // UTC, "2026-11-21T09:40:12Z"
  std::string failure;        // why there are no times; empty: there are
  // Medians of single calls in one Python process, in microseconds, in turn and on inputs drawn anew.
  double eager_us = 0, compiled_us = 0;  // compiled_us: 0 on a CPU, where torch.compile is not measured
  double compile_s = 0;                  // the first call through torch.compile
  double max_error = 0;                  // the largest difference between the two, absolute
  int pairs = 0;

  bool HasCompiled() const { return failure.empty() && compiled_us > 0; }
  // How many times faster torch.compile is than eager; 0 where that is not known.
  double CompileOverEager() const { return HasCompiled() ? eager_us / compiled_us : 0; }
};

class BaselineStore {
 public:
  // The folder is made by the first Store.
  explicit BaselineStore(const std::filesystem::path& cache_directory);

  // The latest one, of this version of torch if it is given. A file that cannot be read counts as absent.
  std::optional<Baseline> Find(const BaselineKey& key, const std::string& torch_version = "") const;
  // All of a problem: every size, device and version, the latest last.
  std::vector<Baseline> OfProblem(const std::string& problem_hash) const;
  // Replaces the one with the same key and version. The file is there whole or not at all. Throws
  // Error(kBroken) when it cannot be written.
  void Store(const Baseline& baseline) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace kevin
