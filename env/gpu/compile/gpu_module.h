#pragma once
// A compiled GPU candidate: machine code for one architecture and what is known about it without running it.

#include <cstdint>
#include <string>
#include <vector>

#include "env/gpu/launch/launch_list.h"

namespace kevin {

// As PTX declares it: "u64", "f32", ...; a struct passed by value is "b8" with its size.
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

// The bytes of a launch's kernel parameters, each converted to the type that the kernel declares, as C++
// would. A pointer's bytes are left 0: `pointers` says where each lies and what it is to hold; tensor maps
// likewise.
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
// Empty `error`: all arguments fit; else what is wrong, for the policy ("kernel `relu` takes 3 arguments
// ...").
EncodedArguments EncodeArguments(const KernelLaunch& launch, const KernelInfo& kernel, std::string* error);

}  // namespace kevin
