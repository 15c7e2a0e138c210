#pragma once
// Where the threads of a stopped process are: their program counters, read from outside (/proc/PID/task/TID/syscall),
// so that neither the process nor a profiler takes part. One thread.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kevin {

inline constexpr const char* kNumpy = "numpy";  // in ThreadSamples::foreign

struct ThreadSamples {
  std::map<uint64_t, int> in_candidate;  // by address in its library
  int waiting = 0;                       // for other threads: in futex(), or in the OpenMP library
  int math = 0;                          // in the math library
  int library = 0;                       // in torch's kernels and the libraries that they call
  int binding = 0;                       // in torch's binding to Python and its core, which have no kernels
  int products = 0;                      // in a library of products of matrices that is not torch's: numpy's
  std::map<std::string, int>
      by_library;  // those of `library` and `products`: "torch", "MKL", "oneDNN", "OpenBLAS"
  int system = 0;  // in other system calls
  int elsewhere = 0;
  int python = 0;  // of `elsewhere`: in Python's own program
  int triton = 0;  // of `elsewhere`: in Triton's library, which loads and stores for its interpreter
  // Of `elsewhere`, by library (kNumpy, "another library"): in any other file than the system's and Python's own, or in memory
  // that the candidate may have written.
  std::map<std::string, int> foreign;
  int moments = 0, unreadable = 0;  // at which a thread could be read; at which none could
  int All() const;
};

// By which code of a candidate in Python is told from others' code.
struct CodeOfPython {
  std::map<std::string, std::string> built;  // the libraries that its build made, by name: their bytes
  std::vector<std::filesystem::path>
      read_only;  // folders that it sees and cannot write to, beside the system's
};

// The libraries of a bundle, as env/python/build_candidate.py writes it; what cannot be read, and -1, has none.
std::map<std::string, std::string> BuiltLibraries(int bundle_fd);

class ThreadSampler {
 public:
  explicit ThreadSampler(pid_t pid) : pid_(pid) {}
  // The candidate's own code is that of its built libraries as they were built. Code elsewhere in memory or in a file that it
  // may have written is another library's, whatever its name.
  ThreadSampler(pid_t pid, CodeOfPython code) : pid_(pid), code_(std::move(code)) {}
  // The process must be stopped. Adds one sample a thread; of a moment at which all threads wait, only the moment. A thread
  // that computes counts only if it has run since it counted last: one that waits for a processor stands where it was.
  void Take();
  // The next sample looks anew at what is mapped, and at the candidate's own code.
  void ForgetMappings() { maps_.clear(); }
  const ThreadSamples& samples() const { return samples_; }

 private:
  struct Mapped {
    uint64_t begin = 0, end = 0, base = 0;  // base: the address of the file's first byte
    std::string path, file;                 // `file`: its name without folders
    uint64_t offset = 0;                    // of `begin` in the file
    bool is_own = false, may_be_written = false;
  };
  void ReadMaps();
  bool IsOwn(const Mapped& mapped) const;
  bool MayBeWritten(const std::string& path) const;
  bool HasRun(const std::string& task);
  void Add(uint64_t address);
  void AddToLibrary(const Mapped& mapped);

  pid_t pid_;
  std::optional<CodeOfPython> code_;
  std::vector<Mapped> maps_;
  std::map<std::string, uint64_t> ran_ns_;  // CPU time of a thread when it counted last, by its folder
  ThreadSamples samples_;
};

}  // namespace kevin
