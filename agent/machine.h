#pragma once
// This process's surroundings: the machine for prompts and records, folders, and its own command line.

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/process/machine.h"

namespace kevin {

struct MachineFacts {
  std::string cpu;                  // "AMD EPYC 9354"
  int cores = 1;                    // usable by this process
  std::string instruction_sets;     // relevant to kernels: "avx2 fma avx512f"
  std::vector<std::string> caches;  // "L1d 32K", "L2 1024K", "L3 32768K"; empty: not in /sys
  int64_t memory_mb = 0;            // 0: unknown
  std::string kernel;               // "6.1.0-18-amd64"
};

MachineFacts ReadMachine();

// Of the largest one of MachineFacts::caches, in bytes; 0: unknown.
int64_t LargestCacheBytes(const std::vector<std::string>& caches);

// "AMD EPYC 9354, 2 cores, avx2 fma avx512f, L1d 32K, L2 1024K, L3 32768K, 8 GB memory"
std::string MachineLine(const MachineFacts& facts);
std::string MachineJson(const MachineFacts& facts);  // an object, for RunRecord::machine

std::filesystem::path CacheDirectory();  // $XDG_CACHE_HOME/kevin, else ~/.cache/kevin; not created
std::string CommandLine();               // of this process; words are quoted where a shell needs it

// One word of a POSIX shell that stands for `word`, in single quotes where it needs them. Every command that is
// shown to be copied has its paths and ids through this.
std::string ShellWord(const std::string& word);

// The name of the lock (env/process/machine.h, DeviceLock) of "cpu" or "cuda:N", under which all of Kevin's programs
// measure on that device and load it. "cuda" is the first GPU, "auto" too where there is one, else the CPU. A GPU that the driver
// does not list has a name of its own.
std::string LockNameOf(const std::string& device);

// The locks of several devices, shared, while something computes on all of them. Each lock once, in the order of their names:
// programs that hold the same devices do not wait for each other in a circle, with measurements that wait for both.
class SharedDevices {
 public:
  explicit SharedDevices(const std::vector<std::string>& devices);
  // By the names of the locks. Throws Error(kInterrupted) when *stop is set while it waits; `stop` may be null.
  SharedDevices(const std::set<std::string>& locks, const std::atomic<bool>* stop);

 private:
  std::deque<DeviceLock> locks_;
};

// `threads` 0: all usable cores. `isolation`: "full" or "reduced".
EnvironmentOptions EnvironmentOptionsFor(int threads, const std::string& isolation);

}  // namespace kevin
