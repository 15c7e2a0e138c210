#pragma once
// A compiled GPU candidate: machine code for one architecture, and its properties that need no run:
// parameters, resources, occupancy.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "env/gpu/launch/launch_list.h"

namespace kevin {

// In the notation of PTX: "u64", "f32", ...; a struct passed by value is "b8" with its size.
struct KernelParameter {
  std::string type;
  int64_t bytes = 0;
  int64_t align = 0;
};

struct KernelInfo {
  std::string name;          // the name expression asked for
  std::string lowered_name;  // in the machine code
  std::vector<KernelParameter> parameters;
  int registers = 0;
  int64_t static_shared_bytes = 0, stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0;
};

struct GpuModule {
  std::string cubin, ptx;
  std::vector<KernelInfo> kernels;
};

// The bytes of the kernel parameters of a launch, each converted to the declared type as in C++. The bytes of
// pointers and tensor maps are 0: `pointers` and `maps` give their places and values.
struct EncodedArguments {
  struct Pointer {
    int64_t at = 0;  // byte offset in `bytes`
    BufferAddress address;
  };
  struct Map {
    int64_t at = 0;
    TensorMap map;
  };
  std::vector<uint8_t> bytes;
  std::vector<int64_t> offsets;  // of each parameter
  std::vector<Pointer> pointers;
  std::vector<Map> maps;
};
// Empty `error`: all arguments fit. Else a message for the author ("kernel `relu` takes 3 arguments ..."). In
// env/gpu/launch/list_builder.cc.
EncodedArguments EncodeArguments(const KernelLaunch& launch, const KernelInfo& kernel, std::string* error);

// The assembler's report on each kernel, extracted from the log of a compiler.
struct PtxasReport {
  std::map<std::string, KernelInfo> kernels;  // by lowered name; only the resources are filled in
  std::string rest;                           // the log without the report: errors, warnings, advice
};

PtxasReport ReadPtxasReport(const std::string& log);

// Theoretical occupancy: how many warps of a multiprocessor a launch can keep resident. Pure arithmetic, by
// the rules of compute capability 7.0 and up (CUDA C++ Programming Guide, "Occupancy").
struct MultiprocessorLimits {
  int threads = 2048, registers = 65536, blocks = 32;
  int64_t shared_bytes = 233472, reserved_shared_bytes = 1024;  // reserved: of each block
  int multiprocessors = 0;                                      // 0: unknown
};

struct Occupancy {
  int blocks = 0;    // resident on one multiprocessor
  double share = 0;  // resident warps / the maximum of the device
  std::string
      limited_by;  // "registers", "shared memory", "threads", "blocks", "the grid": it has no more blocks
};

// `blocks`: of the whole grid; 0: enough.
Occupancy OccupancyOf(const MultiprocessorLimits& limits, int threads_per_block, int registers_per_thread,
                      int64_t shared_bytes_per_block, int64_t blocks = 0);

}  // namespace kevin
