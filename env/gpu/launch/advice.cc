#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {

std::string AdviceFor(const std::string& name) {
  struct Habit {
    const char* prefix;
    const char* advice;
  };
  static constexpr const char* kScratch = "use workspace<float>(count), which needs no freeing";
  static constexpr const char* kOneStream = "leave it out: everything runs in order in one stream";
  static constexpr const char* kNoTorch = "launch gets plain pointers; use them and the problem's sizes";
  static constexpr const char* kNoPrinting =
      "leave the printing out; use `bench --debug` and printf in a kernel";
  static constexpr Habit kHabits[] = {
      {"cudaMalloc", kScratch},
      {"cudaFree", kScratch},
      {"cudaHostAlloc", kScratch},
      {"cuMem", kScratch},
      {"malloc", kScratch},
      {"calloc", kScratch},
      {"free", kScratch},
      {"thrust", "write a kernel; scratch memory is workspace<float>(count)"},
      {"cub::Device", "write a kernel; cub's block and warp functions work inside kernels"},
      {"cublas", "write a kernel; libraries cannot be called"},
      {"cudnn", "write a kernel; libraries cannot be called"},
      {"cudaStream", kOneStream},
      {"cudaEvent", kOneStream},
      {"cudaGraph", kOneStream},
      {"cudaOccupancy", "write the number of blocks down, computed from the sizes"},
      {"cudaGetDevice", "write the device's numbers down, as in 132 multiprocessors"},
      {"cudaDeviceGetAttribute", "write the device's numbers down, as in 132 multiprocessors"},
      {"cudaDeviceProp", "write the device's numbers down, as in 132 multiprocessors"},
      {"cudaGetSymbolAddress", "set it with constant(symbol, {values})"},
      {"cudaMemcpy", "write cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice)"},
      {"cuTensorMap", "write tensor_map<float>(pointer, {sizes}, {stride bytes}, {box})"},
      {"cudaLaunch", "write kernel<<<grid, block, shared>>>(...)"},
      {"cuLaunch", "write kernel<<<grid, block, shared>>>(...)"},
      {"printf", kNoPrinting},
      {"fprintf", kNoPrinting},
      {"puts", kNoPrinting},
      {"cout", kNoPrinting},
      {"cerr", kNoPrinting},
      {"vector", "use a local array: int sizes[4] = {...}"},
      {"array", "use a local array: int sizes[4] = {...}"},
      {"string", "launch needs no texts"},
      {"unique_ptr", kScratch},
      {"memcpy", "do it in a kernel, or with cudaMemcpyAsync within the device"},
      {"memset", "write cudaMemsetAsync(pointer, 0, bytes)"},
      {"torch", kNoTorch},
      {"at::", kNoTorch},
      {"c10", kNoTorch},
      {"threadIdx", "it exists in kernels alone"},
      {"blockIdx", "it exists in kernels alone"},
      {"blockDim", "it exists in kernels alone"},
      {"gridDim", "it exists in kernels alone"},
      {"exit", "return early instead"},
      {"abort", "return early instead"},
      {"getenv", "launch cannot see the machine it runs on"},
      {"rand", "launch has no random numbers; compute them in the kernel"},
      {"time", "launch has no clock"},
      {"clock", "launch has no clock"},
      {"omp_", "launch has no threads"},
      {"thread", "launch has no threads"}};
  for (const Habit& habit : kHabits) {
    const std::string prefix = habit.prefix;
    const bool whole_word = prefix == "free" || prefix == "time" || prefix == "thread" || prefix == "array" ||
                            prefix == "string" || prefix == "vector" || prefix == "exit" ||
                            prefix == "rand" || prefix == "clock" || prefix == "at";
    if (whole_word ? name == prefix : name.starts_with(prefix)) return habit.advice;
  }
  return "";
}

}  // namespace kevin::launch
