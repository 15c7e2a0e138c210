// kevin-runner: the process of a candidate. The trusted side starts it in namespaces of its own; it sandboxes
// itself, then
//
//   run                  loads one candidate and makes the calls it is asked for, until it is killed
//   exec OPTIONS -- ...  runs a compiler in the sandbox of compilers
//   attempt NAME ...     tries one forbidden act in the sandbox of candidates (env/sandbox/self_test.h)

#include <dlfcn.h>
#include <emmintrin.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "env/process/files.h"
#include "env/process/inputs_apart.h"
#include "env/process/runner_protocol.h"
#include "env/process/shared_control_page.h"
#include "env/process/shared_memory.h"
#include "env/sandbox/sandbox.h"
#include "env/sandbox/self_test.h"

namespace kevin {
namespace {

SharedControlPage* control_page = nullptr;  // for the signal handler

void NoteFault(int number, siginfo_t* info, void*) {
  control_page->fault_address.store(reinterpret_cast<uint64_t>(info->si_addr));
  signal(number, SIG_DFL);  // the faulting instruction runs again and ends the process
}

void CatchFaults() {
  static char stack[64 << 10];
  const stack_t alternative{stack, 0, sizeof(stack)};
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = NoteFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
  // Process 1 of a namespace survives the signal, and abort() then ends it with another one.
  signal(SIGABRT, [](int) { _exit(kAbortedStatus); });
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
}

// The libraries of candidates, so that loading one reads little inside the sandbox.
void LoadCommonLibraries() {
  for (const char* name : {"libgomp.so.1", "libstdc++.so.6", "libm.so.6", "libmvec.so.1"})
    dlopen(name, RTLD_NOW);
}

struct Runner {
  RunnerLoad load;
  Mapping control, outputs;
  LaunchFunction launch = nullptr;
  std::vector<std::vector<void*>> slot_arguments;
};

void PlaceArguments(Runner* runner, int inputs_fd, int outputs_fd) {
  InputsApart inputs(inputs_fd, outputs_fd, runner->load);
  runner->slot_arguments.resize(static_cast<size_t>(runner->load.slots));
  for (const ArgumentPlace& place : runner->load.arguments) {
    const bool is_apart = !place.output || place.inout;
    std::byte* first =
        is_apart ? inputs.Place(place, runner->load.slots) : runner->outputs.data() + place.offset;
    const uint64_t distance = place.stride + (is_apart ? static_cast<uint64_t>(GapBetweenInputs(place)) : 0);
    for (size_t slot = 0; slot < runner->slot_arguments.size(); ++slot)
      runner->slot_arguments[slot].push_back(first + slot * distance);
  }
}

bool LoadCandidate(Runner* runner, const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library) runner->launch = reinterpret_cast<LaunchFunction>(dlsym(library, "launch"));
  if (runner->launch) return true;
  const char* why = dlerror();
  std::snprintf(control_page->message, sizeof(control_page->message), "%s", why ? why : "no symbol `launch`");
  return false;
}

[[noreturn]] void ServeForEver(const Runner& runner) {
  uint32_t seen = 0;
  for (;;) {
    FutexWaitWhile(&control_page->go, seen, -1);
    seen = control_page->go.load(std::memory_order_acquire);
    const uint32_t calls = control_page->calls;
    for (uint32_t i = 0; i < calls; ++i) {
      const auto& arguments = runner.slot_arguments[control_page->slot[i]];
      Invoke(runner.launch, arguments.data(), arguments.size());
      _mm_sfence();  // non-temporal stores count as finished outputs too
      control_page->returned.store(i + 1, std::memory_order_seq_cst);  // a full barrier: audits rely on it
    }
    control_page->done.store(seen, std::memory_order_release);
    FutexWake(&control_page->done);
  }
}

int RunCandidate(bool namespaces) {
  Runner runner;
  int descriptors[kLoadDescriptors];
  LoadCommonLibraries();
  if (!ReceiveLoad(kRunnerSocket, &runner.load, &descriptors)) return 0;  // a spare that was not needed
  runner.control = Mapping(descriptors[kControlPageFd], sizeof(SharedControlPage), Access::kReadWrite, true);
  runner.outputs = Mapping(descriptors[kOutputsFd], static_cast<size_t>(runner.load.inouts_begin),
                           Access::kReadWrite, true);
  control_page = reinterpret_cast<SharedControlPage*>(runner.control.data());
  PlaceArguments(&runner, descriptors[kInputsFd], descriptors[kOutputsFd]);

  SandboxOptions sandbox;
  sandbox.namespaces = namespaces;
  sandbox.candidate_file = ReadSharedFile(descriptors[kLibraryFd]);
  sandbox.max_memory_bytes = runner.load.max_memory_bytes;
  sandbox.max_file_bytes = kLogBytes;
  sandbox.cpu_limit_s = static_cast<int64_t>(runner.load.cpu_limit_s);
  std::string path = "/candidate.so";
  Fd library;
  if (!namespaces) {  // no private root to put it into: a copy that every user may open
    library = CreateSharedFile("kevin-candidate", sandbox.candidate_file.size());
    WriteAll(library.get(), sandbox.candidate_file, "the candidate's library");
    path = "/proc/self/fd/" + std::to_string(library.get());
    sandbox.candidate_file.clear();
  }
  dup2(descriptors[kLogFd], STDOUT_FILENO);
  dup2(descriptors[kLogFd], STDERR_FILENO);
  CatchFaults();
  EnterSandbox(sandbox);
  for (const int descriptor : descriptors) close(descriptor);
  const char loading = 1;
  if (write(kRunnerSocket, &loading, 1) != 1) return 1;
  close(kRunnerSocket);
  const bool loaded = LoadCandidate(&runner, path.c_str());
  library.Reset();
  control_page->state.store(static_cast<uint32_t>(loaded ? PageState::kReady : PageState::kLoadFailed),
                            std::memory_order_release);
  FutexWake(&control_page->state);
  if (!loaded) return 1;
  ServeForEver(runner);
}

// Whether files outside are out of reach, and the network is.
bool HidesFiles(const SandboxLayers& layers) {
  const auto lacks = [&](const char* layer) {
    return std::find(layers.missing.begin(), layers.missing.end(), layer) != layers.missing.end();
  };
  return !lacks("seccomp") && !(lacks("root folder") && lacks("Landlock"));
}

// exec [--work DIR] [--show PATH]... [--memory-mb N] [--cpu-s N] [--file-mb N] [--strict 1] [--gpu 1] -- PROGRAM ARGS...
int Exec(bool namespaces, const std::vector<std::string>& arguments) {
  SandboxOptions sandbox;
  sandbox.profile = SandboxProfile::kCompiler;
  sandbox.namespaces = namespaces;
  bool strict = false;
  size_t i = 0;
  for (; i + 1 < arguments.size() && arguments[i] != "--"; i += 2) {
    const std::string& value = arguments[i + 1];
    if (arguments[i] == "--work") sandbox.work_directory = value;
    if (arguments[i] == "--show") sandbox.read_only.emplace_back(value);
    if (arguments[i] == "--memory-mb") sandbox.max_memory_bytes = std::stoll(value) << 20;
    if (arguments[i] == "--cpu-s") sandbox.cpu_limit_s = std::stoll(value);
    if (arguments[i] == "--strict") strict = true;
    if (arguments[i] == "--gpu") sandbox.profile = SandboxProfile::kGpuTool;
    if (arguments[i] == "--file-mb") sandbox.max_file_bytes = std::stoll(value) << 20;
  }
  std::vector<char*> argv;
  for (++i; i < arguments.size(); ++i) argv.push_back(const_cast<char*>(arguments[i].c_str()));
  argv.push_back(nullptr);
  if (const SandboxLayers layers = EnterSandbox(sandbox); strict && !HidesFiles(layers)) {
    std::fprintf(stderr, "sandbox: this machine has neither namespaces nor Landlock to hide files with\n");
    return 125;  // as for a layer that fails
  }
  signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error message
  execvp(argv[0], argv.data());
  std::fprintf(stderr, "%s: %s\n", argv[0], std::strerror(errno));
  return 127;
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "kevin-runner is started by kevin; it has no use of its own\n");
    return 2;
  }
  const std::string_view mode = argv[1];
  const bool namespaces = std::string_view(argv[2]) == "namespaces";
  const std::vector<std::string> rest(argv + 3, argv + argc);
  if (mode == "run") return kevin::RunCandidate(namespaces);
  if (mode == "exec") return kevin::Exec(namespaces, rest);
  if (mode == "attempt") return kevin::RunAttempt(namespaces, rest);
  return 2;
}
