// kevin-gpu-examiner: runs a GPU candidate once under one of NVIDIA's tools, in a sandbox. Its host code is
// all ours, as in kevin-gpu-runner; nothing of its output is part of a verdict.
//
//   kevin-gpu-examiner enter namespaces|plain WORK [--show FOLDER]... -- PROGRAM ARGS...
//       sandboxes itself, with WORK writable and the folders visible, and becomes PROGRAM
//   kevin-gpu-examiner run DEVICE
//       in the sandbox: makes the one call of job.json in the current folder

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "env/error.h"
#include "env/gpu/examine/examine_job.h"
#include "env/gpu/runner/candidate_module.h"
#include "env/sandbox/sandbox.h"

namespace kevin {
namespace {

constexpr unsigned kNonBlockingStream = 1;
constexpr uint64_t kPoisonSeed = 2;  // even: NaN
constexpr int64_t kReportBytes = int64_t{1} << 30;

std::string ReadFile(const char* name) {
  std::ifstream in(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Every argument in an allocation of its own, so that a step beyond its end is seen.
struct Arguments {
  std::vector<DeviceBuffer> buffers;
  SlotMemory memory;

  Arguments(const ExamineJob& job, const FillKernels& kernels, CuHandle stream) {
    memory.slots = 1;
    const ValueStream values;  // the same values in every run
    size_t tensor = 0;
    for (const ExaminedArgument& argument : job.arguments) {
      buffers.emplace_back(static_cast<size_t>(argument.bytes));
      const CuDevicePtr data = buffers.back().data();
      memory.places.push_back({argument.fills.empty(), false, data, 0});
      for (const ExaminedFill& part : argument.fills) {
        const CuDevicePtr place = data + static_cast<CuDevicePtr>(part.offset_bytes);
        if (part.stored.empty()) {
          FillOnDevice(kernels, stream, place, part.elements, part.drawing, values.OfTensor(tensor++));
        } else {
          KEVIN_CU(MemcpyHtoD, place, part.stored.data(), part.stored.size());
        }
      }
    }
  }
};

void CallOnce(const ExamineJob& job, int device) {
  LoadDriver();
  UsePrimaryContext(device);
  CuHandle stream = nullptr, trusted = nullptr;
  KEVIN_CU(StreamCreate, &stream, kNonBlockingStream);
  KEVIN_CU(ModuleLoadData, &trusted, job.trusted_cubin.data());
  const Arguments arguments(job, FillKernelsOf(trusted), stream);
  CandidateModule candidate(LaunchPlanFromText(job.plan), arguments.memory, CallKernelsOf(trusted), stream);
  if (!job.untouched_memory) candidate.Restore(kPoisonSeed);
  KEVIN_CU(StreamSynchronize, stream);
  KEVIN_CU(ProfilerStart);
  candidate.Enqueue(0);
  KEVIN_CU(StreamSynchronize, stream);
  KEVIN_CU(ProfilerStop);
}

int Run(int device) {
  try {
    CallOnce(ExamineJobFromText(ReadFile(kExamineJobFile)), device);
    return 0;
  } catch (const DriverError& error) {
    std::ofstream(kExamineFaultFile) << error.text();
  } catch (const Error& error) {
    std::ofstream(kExamineFaultFile) << error.what();
  }
  return 1;
}

int Enter(bool namespaces, const std::vector<std::string>& arguments) {
  SandboxOptions sandbox;
  sandbox.profile = SandboxProfile::kGpuTool;
  sandbox.namespaces = namespaces;
  sandbox.work_directory = arguments.at(0);
  sandbox.max_file_bytes = kReportBytes;
  size_t i = 1;
  for (; i + 1 < arguments.size() && arguments[i] == "--show"; i += 2)
    sandbox.read_only.emplace_back(arguments[i + 1]);
  std::vector<char*> argv;
  for (++i; i < arguments.size(); ++i) argv.push_back(const_cast<char*>(arguments[i].c_str()));
  argv.push_back(nullptr);
  EnterSandbox(sandbox);
  execv(argv[0], argv.data());
  std::fprintf(stderr, "%s: %s\n", argv[0], std::strerror(errno));
  return 127;
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  const std::vector<std::string> rest(argv + std::min(argc, 3), argv + argc);
  if (argc == 3 && std::string_view(argv[1]) == "run") return kevin::Run(std::stoi(argv[2]));
  if (argc > 5 && std::string_view(argv[1]) == "enter")
    return kevin::Enter(std::string_view(argv[2]) == "namespaces", rest);
  std::fprintf(stderr, "kevin-gpu-examiner is started by kevin; it has no use of its own\n");
  return 2;
}
