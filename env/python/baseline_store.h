#pragma once
// Baselines: the times of eager PyTorch and, on a GPU, torch.compile for a problem, measured once
// (env/python/torch_compile.h, kevin baseline) and stored as one JSON file each under CACHE/baselines, so
// that a look-up needs no Python. A failure is stored with its reason, so that it is not repeated.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kevin {

// Identifies a baseline, together with the version of torch.
struct BaselineKey {
  std::string problem_hash;  // content hash
  std::string size;          // "full"
  bool tf32 = false;
  std::string device_model;  // "NVIDIA H200"; "cpu: AMD EPYC, 2 threads"
  std::string driver;        // the CUDA version of the driver, "13000"; empty for a CPU
  std::string precision = "fp32";
  std::string mode = "default";  // of torch.compile; "default" on a CPU, where eager alone is measured
};

struct Baseline {
  BaselineKey key;
  std::string problem;        // its id, for display
  std::string torch_version;  // "2.11.0+cu130"
  std::string measured_at;    // UTC, "2026-11-21T09:40:12Z"
  std::string failure;        // why there are no times; empty if there are
  // Medians of single calls in one Python process, in microseconds, interleaved and with new inputs for each
  // call.
  double eager_us = 0, compiled_us = 0;  // compiled_us: 0 on a CPU
  double compile_s = 0;                  // of the first call through torch.compile
  double max_error = 0;                  // the largest absolute difference between the two
  int pairs = 0;

  bool HasCompiled() const { return failure.empty() && compiled_us > 0; }
  // The speed-up of torch.compile over eager; 0 if unknown.
  double CompileOverEager() const { return HasCompiled() ? eager_us / compiled_us : 0; }
};

class BaselineStore {
 public:
  // Store makes the folder.
  explicit BaselineStore(const std::filesystem::path& cache_directory);

  // The latest baseline, of this version of torch if given. A file that cannot be read counts as absent.
  std::optional<Baseline> Find(const BaselineKey& key, const std::string& torch_version = "") const;
  // All baselines of a problem: of every size, device, version, precision and mode; the latest last.
  std::vector<Baseline> OfProblem(const std::string& problem_hash) const;
  // Replaces the baseline with the same key and version, by a rename. Throws Error(kBroken) if it cannot be
  // written.
  void Store(const Baseline& baseline) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace kevin
