#pragma once
// What this machine is, as the prompt and the record tell it: env/process/machine.h and what /sys and sysconf add.

#include <cstdint>
#include <string>
#include <vector>

namespace kevin {

struct MachineFacts {
  std::string cpu;                  // "AMD EPYC 9354"
  int cores = 1;                    // that this process may run on
  std::string instruction_sets;     // those that matter to a kernel: "avx2 fma avx512f"
  std::vector<std::string> caches;  // "L1d 32K", "L2 1024K", "L3 32768K"; empty: /sys does not say
  int64_t memory_mb = 0;            // 0: unknown
  std::string kernel;               // "6.1.0-18-amd64"
};

MachineFacts ReadMachine();

// "AMD EPYC 9354, 2 cores, avx2 fma avx512f, L1d 32K, L2 1024K, L3 32768K, 8 GB memory"
std::string MachineLine(const MachineFacts& facts);
std::string MachineJson(const MachineFacts& facts);  // an object, for RunRecord::machine

}  // namespace kevin
