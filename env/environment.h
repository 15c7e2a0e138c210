#pragma once
// START HERE for the environment: a candidate's source goes in, an Outcome comes out.
// Compile -> inspect -> verify -> measure. The rules: env/verdict/README.md, env/verdict/verify.h, estimate.h there.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "env/diagnosis/diagnosis.h"
#include "env/outcome.h"
#include "env/problem/problem.h"
#include "env/workload.h"

namespace kevin {

struct Candidate {
  // "cpp"   C++ for the CPU with `extern "C" void launch(...)`
  // "cuda"  CUDA C++ device code and an interpreted `void launch(...)` (env/gpu/launch/launch_function.h)
  // "ptx"   PTX text with the same launch function
  // "modelnew"  a Python file with `class ModelNew(nn.Module)`, as KernelBench's
  std::string kind = "cpp";
  std::string source;
};

// What is known about one launch of a GPU candidate without a profiler.
struct KernelReport {
  std::string name, grid, block;  // "relu<4>", "132 x 1 x 1"
  int registers = 0;              // a thread
  int64_t static_shared_bytes = 0, dynamic_shared_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0;
  double occupancy = 0;    // theoretical: resident warps over the most that fit, 0 to 1
  std::string limited_by;  // "registers", "shared memory", "threads", "blocks", "the grid"
};

// Everything known about one evaluation: what the store keeps and --json prints.
struct Evaluation {
  Outcome outcome;
  std::vector<ShapeResult> shapes;  // of a size set with several: those that were judged, in its order
  std::string candidate_hash;       // SHA-256 of kind and source
  std::string key;                  // SHA-256 over key_parts
  std::map<std::string, std::string> key_parts;  // what the verdict depends on, by name
  std::string cached_from;            // id of the earlier evaluation whose verdict this repeats; else empty
  int rules_version = kRulesVersion;  // of the rules that gave the verdict; of a cached one: as stored
  Workload workload;                  // precision: that of the problem as it was given
  std::string device, isolation;
  double compile_s = 0, verify_s = 0, measure_s = 0, wait_s = 0;  // wait_s: for the machine-wide lock
  std::vector<uint64_t> seeds;
  std::vector<Sample> samples;
  std::string log;  // compiler warnings or the candidate's own stderr, trimmed
  // The machine's ceilings (env/ceilings.h): of its memory, and of the unit that this workload may use. 0: unknown.
  double peak_gb_per_s = 0, peak_gflop_per_s = 0;
  // On a GPU only; empty and 0 elsewhere.
  std::map<std::string, double> unit_gflop_per_s;  // the ceilings of all units (env/ceilings.h); not stored
  std::vector<KernelReport> kernels;
  std::string launch_list;  // the launches that `launch` resolves to, as JSON
  std::string profile;      // what a profiler said, in sentences; empty: none ran
  double device_s = 0;      // how long the GPU was held
  // Of a candidate in Python; empty elsewhere.
  std::string
      backend;  // what its kernels are written in: "cpp", "cuda", "triton", "cute", "tilelang"; "torch": it has none
  std::optional<double> own_share;  // the share of the work that its own kernels did, 0 to 1
  // Of a candidate in Python on a GPU: a call on the GPU alone, by the profiler of a process that ran the candidate.
  std::optional<double> device_us;
  bool shared_gpu = false;  // another process computed on the GPU during the measurement that stands
  // SHA-256 of the machine code with its launches and of all parts of `key` except the text: two texts with
  // equal machine keys are one kernel. Empty: unknown.
  std::string machine_key;
};

// What an evaluation is allowed and asked to do.
struct EvaluateOptions {
  Workload workload = {.size = "small"};  // its precision is already applied to the problem
  bool confirm = false;                   // measure a winner again: new seeds, pairs and process
  // How many times longer than usual the sequential test may look before it leaves a verdict ambiguous: that
  // against start_source if there is one, else that against the reference. Of no effect where there is no such test.
  double patience = 1;
  // A short look instead of a judgement, to choose between settings of knobs (env/knobs/tune.h): one call is verified
  // and a few are timed, without the reference. The outcome of a correct candidate is a Measured with candidate_us
  // and the errors alone. It is no verdict: nothing is cached or stored. Only at sizes of one shape.
  bool screen = false;
  // With `screen`: timing ends early once a call certainly takes longer than this. 0: no limit.
  double screen_limit_us = 0;
  // Also pair against this kernel (--from, the best of an episode so far); empty: none. It was judged before: where it
  // fails now, Evaluate throws Error(kBadRequest).
  std::string start_source;
  std::string start_kind;  // of start_source; empty: the candidate's
  // false: start_source takes part in the fixed pairs alone. That gives Measured::against_start and costs less; the
  // verdict against it stays ambiguous.
  bool start_in_test = true;
  // --profile, GPU only: read the hardware's counters of a candidate that was measured, into
  // Evaluation::profile. The profiler's own file goes to profile_report if that is not empty; a second one to
  // NAME-2 and so on.
  bool profile = false;
  std::filesystem::path profile_report;
  // Asked once a candidate is compiled, where that gives a machine key: an earlier verdict on the same
  // machine code, if it may stand for a new one. May be empty.
  std::function<std::optional<Evaluation>(const std::string& machine_key)> known;
  // "compile", "verify", "measure", "confirm"; may be empty.
  std::function<void(const std::string& phase)> on_phase;
  // Set by any thread, it ends the evaluation: Evaluate throws Error(kInterrupted) within a second. May be null.
  const std::atomic<bool>* stop = nullptr;
};

// Named limits; hitting one is an Outcome.
struct Limits {
  double compile_timeout_s = 60;
  double call_timeout_s = 20;  // one batch of calls of the candidate
  // All batches of the candidate in one evaluation on a CPU, so that a slow one does not hold the device for long. Where
  // a hundred calls of eager take longer, that is the limit.
  double evaluation_timeout_s = 60;
  int64_t max_memory_mb = 4096;  // the runner's address space beyond its buffers
  int64_t compile_memory_mb = 4096;
  int64_t max_log_bytes = 16384;
};

struct EnvironmentOptions {
  std::filesystem::path program_directory;  // where kevin-evaluator and kevin-runner are
  std::filesystem::path cache_directory;    // $XDG_CACHE_HOME/kevin
  std::string device = "auto";  // "cpu", "cuda:0", ...; "auto": the first usable GPU, else the CPU
  std::vector<std::filesystem::path> include_directories;  // --include, for kind `cuda`
  int threads = 0;                 // 0: all cores of this process, the same on both sides
  bool reduced_isolation = false;  // --isolation reduced
  // Measure the ceilings (env/ceilings.h) at the start where none are known, so that EnvironmentFacts has them from the
  // first evaluation on: once a machine, 1 to 2 s. false: they follow the first correct candidate.
  bool measure_ceilings = false;
  bool unsafe_python = false;  // --unsafe-python: kinds in Python without the isolation of files and network
  Limits limits;
};

// Facts about an environment; constant while it lives.
// What decides which instructions and sizes a kernel may use.
struct GpuLimits {
  int capability = 0;  // 90: compute capability 9.0; 0: there is no GPU, or it is unknown
  int multiprocessors = 0;
  int64_t block_shared_bytes = 0;  // the most that one block may have
};

struct EnvironmentFacts {
  std::string device;              // "cpu: AMD EPYC, 2 threads", "cuda:0: NVIDIA H200"
  std::string isolation;           // "full" or "reduced (...)"
  std::vector<std::string> kinds;  // of candidates that it can judge; the first is what a policy writes
  std::string default_size;        // "small" on a CPU, "full" on a GPU
  std::string machine;             // one line for the prompt about the device; empty: the CPU's own facts
  std::string compiler =
      {};  // of the first kind, with its version: "g++ (Debian 12.2.0-14) 12.2.0"; empty: unknown
  std::string compiler_flags = {};  // that matter to a candidate: "-std=c++20 -O3 -march=native -fopenmp"
  // What programs reach here, measured: bandwidth of the device's memory with cold caches, and fp32 multiply-adds, with
  // all threads of a candidate. 0: not measured yet (env/ceilings.h).
  double peak_gb_per_s = 0, peak_gflop_per_s = 0;
  std::map<std::string, double> unit_gflop_per_s = {};  // on a GPU, by unit (env/ceilings.h)
  GpuLimits gpu = {};
};

// Judges candidates on one device. Second implementation: the fake in tests/support/fakes.h.
// Calls block and may come from many threads at once: exclusive use of the device is serialised, compiling is
// not. Throws Error for broken infrastructure (the turn is then void).
class Environment {
 public:
  virtual ~Environment() = default;
  // At all shapes of the size: correct only if correct at each. Each shape of a size set with several is judged
  // like a size of its own, the cheapest first, up to the first failure; env/verdict/shapes.h combines the results.
  Evaluation Evaluate(const Problem& problem, const Candidate& candidate, const EvaluateOptions& options);
  // The key that Evaluate would give this candidate (Evaluation::key), without compiling or running anything.
  // Evaluations with equal keys ask the same question: a stored verdict may answer the second.
  // `confirm`, `patience`, `start_source`, `profile`, `known`, `on_phase` and `stop` do not enter.
  virtual std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                                    const EvaluateOptions& options) = 0;
  // The machine key (Evaluation::machine_key) at a size of one shape: compiles, runs nothing. Empty: unknown.
  virtual std::string MachineKey(const Problem& problem, const Candidate& candidate,
                                 const EvaluateOptions& options);
  // The graph of the reference at one size, as JSON (env/reference/graph.h); the problem is in its precision. Cached.
  // Throws Error(kBadRequest) where it depends on the values of the inputs. Empty: this environment has none.
  virtual std::string Graph(const Problem& problem, const std::string& size);
  // Candidates of this kind will come for this problem soon: what can be prepared beside other work may be. Returns at
  // once; changes no verdict and throws nothing.
  virtual void Expect(const Problem& problem, const std::string& kind, const Workload& workload);
  virtual const EnvironmentFacts& Facts() const = 0;
  // Evidence of what limits a candidate that was measured, at a size of one shape. Runs it again, for about a second;
  // no verdict and no time depends on it. Throws Error like Evaluate. Nothing: this environment cannot.
  virtual std::optional<Diagnosis> Diagnose(const Problem& problem, const Candidate& candidate,
                                            const EvaluateOptions& options);
  // Gives back the device's memory that is kept between evaluations, for work other than judging. Waits for evaluations
  // in progress; the next one of a problem prepares it anew.
  virtual void ReleaseMemory() {}

 protected:
  // Evaluate, where the size has one shape.
  virtual Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                                   const EvaluateOptions& options) = 0;
};

// Starts the evaluator and runs the sandbox self-test. Throws Error(kMachine) when no compiler or no torch is
// found, Error(kSandbox) when a forbidden act succeeded and reduced isolation was not asked for.
std::unique_ptr<Environment> MakeCpuEnvironment(const EnvironmentOptions& options);

// As `options.device` says. Throws Error(kMachine) when that GPU, its driver or NVRTC is not there, not
// usable (exclusive or prohibited compute mode, MIG) or too old; "auto" then takes the CPU.
std::unique_ptr<Environment> MakeEnvironment(const EnvironmentOptions& options);

}  // namespace kevin
