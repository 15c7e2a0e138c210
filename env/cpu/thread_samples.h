#pragma once
// Where the threads of a stopped process are: their program counters, read from outside (/proc/PID/task/TID/syscall),
// so that neither the process nor a profiler takes part. One thread.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kevin {

struct ThreadSamples {
  std::map<uint64_t, int> in_candidate;  // by address in its library
  int waiting = 0;                       // for other threads: in futex(), or in the OpenMP library
  int math = 0;                          // in the math library
  int library = 0;                       // in torch's libraries and those that it calls
  int products = 0;                      // in a library of products of matrices that is not torch's: numpy's
  std::map<std::string, int>
      by_library;  // those of `library` and `products`: "torch", "MKL", "oneDNN", "OpenBLAS"
  int system = 0;  // in other system calls
  int elsewhere = 0;
  int python = 0;  // of `elsewhere`: in Python's own program
  int triton = 0;  // of `elsewhere`: in Triton's library, which loads and stores for its interpreter
  int moments = 0, unreadable = 0;  // at which a thread could be read; at which none could
  int All() const;
};

class ThreadSampler {
 public:
  explicit ThreadSampler(pid_t pid) : pid_(pid) {}
  // The process must be stopped. Adds one sample a thread; of a moment at which all threads wait, only the moment. A thread
  // that computes counts only if it has run since it counted last: one that waits for a processor stands where it was.
  void Take();
  const ThreadSamples& samples() const { return samples_; }

 private:
  struct Mapped {
    uint64_t begin = 0, end = 0, base = 0;  // base: the address of the file's first byte
    std::string file;                       // its name without folders
  };
  void ReadMaps();
  bool HasRun(const std::string& task);
  void Add(uint64_t address);

  pid_t pid_;
  std::vector<Mapped> maps_;
  std::map<std::string, uint64_t> ran_ns_;  // CPU time of a thread when it counted last, by its folder
  ThreadSamples samples_;
};

}  // namespace kevin
