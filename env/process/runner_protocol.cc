#include "env/process/runner_protocol.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/machine.h"
#include "env/process/shared_control_page.h"

namespace kevin {
namespace {

struct WireLoad {
  int32_t slots, argument_count;
  int64_t inputs_bytes, outputs_bytes, max_memory_bytes;
  double cpu_limit_s;
  struct {
    int32_t output;
    uint64_t offset, stride;
  } arguments[kMaxArguments];
};

struct Packet {
  WireLoad wire{};
  iovec part{&wire, sizeof(wire)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kLoadDescriptors)> control{};
  msghdr header{};
  Packet() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
};

}  // namespace

std::vector<std::string> RunnerEnvironment(int threads) {
  const std::string count = std::to_string(threads);
  return {"OMP_WAIT_POLICY=passive", "OMP_NUM_THREADS=" + count, "MKL_NUM_THREADS=" + count, "LC_ALL=C",
          "PATH=/usr/bin:/bin"};
}

std::vector<std::string> TrustedEnvironment(int threads) {
  std::vector<std::string> environment = RunnerEnvironment(threads);
  if (const char* libraries = std::getenv("LD_LIBRARY_PATH"))
    environment.push_back(std::string("LD_LIBRARY_PATH=") + libraries);
  environment.push_back("KEVIN_LOCK_DIRECTORY=" + DeviceLock::Directory().string());
  return environment;
}

std::vector<std::string> CompilerCommand(const SandboxedCompiler& compiler) {
  std::vector<std::string> argv = {compiler.runner,
                                   "exec",
                                   compiler.namespaces ? "namespaces" : "plain",
                                   "--work",
                                   compiler.work_directory,
                                   "--memory-mb",
                                   std::to_string(compiler.memory_mb),
                                   "--cpu-s",
                                   std::to_string(compiler.cpu_s),
                                   "--file-mb",
                                   std::to_string(compiler.file_mb)};
  for (const std::string& folder : compiler.shown) argv.insert(argv.end(), {"--show", folder});
  argv.emplace_back("--");
  return argv;
}

void SendLoad(int socket, const RunnerLoad& load, const int (&descriptors)[kLoadDescriptors]) {
  if (load.arguments.size() > kMaxArguments) {
    throw Error(ExitCode::kBadRequest,
                "a problem may have at most " + std::to_string(kMaxArguments) + " tensors");
  }
  Packet packet;
  packet.wire.slots = load.slots;
  packet.wire.argument_count = static_cast<int32_t>(load.arguments.size());
  packet.wire.inputs_bytes = load.inputs_bytes;
  packet.wire.outputs_bytes = load.outputs_bytes;
  packet.wire.max_memory_bytes = load.max_memory_bytes;
  packet.wire.cpu_limit_s = load.cpu_limit_s;
  for (size_t i = 0; i < load.arguments.size(); ++i) {
    packet.wire.arguments[i] = {load.arguments[i].output, load.arguments[i].offset, load.arguments[i].stride};
  }
  cmsghdr* message = CMSG_FIRSTHDR(&packet.header);
  message->cmsg_level = SOL_SOCKET;
  message->cmsg_type = SCM_RIGHTS;
  message->cmsg_len = CMSG_LEN(sizeof(descriptors));
  std::memcpy(CMSG_DATA(message), descriptors, sizeof(descriptors));
  if (sendmsg(socket, &packet.header, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(packet.wire))) {
    throw Error(ExitCode::kBroken, "the runner ended before it could be used", "run `kevin doctor`");
  }
}

bool ReceiveLoad(int socket, RunnerLoad* load, int (*descriptors)[kLoadDescriptors]) {
  Packet packet;
  if (recvmsg(socket, &packet.header, MSG_WAITALL) != static_cast<ssize_t>(sizeof(packet.wire))) return false;
  const cmsghdr* message = CMSG_FIRSTHDR(&packet.header);
  if (!message || message->cmsg_len != CMSG_LEN(sizeof(*descriptors))) return false;
  std::memcpy(*descriptors, CMSG_DATA(message), sizeof(*descriptors));
  load->slots = packet.wire.slots;
  load->inputs_bytes = packet.wire.inputs_bytes;
  load->outputs_bytes = packet.wire.outputs_bytes;
  load->max_memory_bytes = packet.wire.max_memory_bytes;
  load->cpu_limit_s = packet.wire.cpu_limit_s;
  for (int i = 0; i < packet.wire.argument_count; ++i) {
    const auto& argument = packet.wire.arguments[i];
    load->arguments.push_back({argument.output != 0, argument.offset, argument.stride});
  }
  return true;
}

// --- The memory ---

namespace {

constexpr int kMinSlotsOnGpu = 2;
constexpr int64_t kSlotBudgetBytesOnGpu = int64_t{8} << 30;

int64_t Pages(int64_t bytes) { return (bytes + kSlotPage - 1) / kSlotPage * kSlotPage; }

bool IsOutput(const SizedProblem& problem, size_t argument) {
  return argument + problem.outputs.size() >= problem.arguments.size();
}

int64_t Bytes(const SizedProblem& problem, bool outputs) {
  int64_t bytes = 0;
  for (size_t i = 0; i < problem.arguments.size(); ++i) {
    if (IsOutput(problem, i) == outputs) bytes += Pages(problem.arguments[i].bytes);
  }
  return bytes;
}

int64_t SlotBytes(const SizedProblem& problem) {
  return SlotInputBytes(problem) + SlotOutputBytes(problem) +
         static_cast<int64_t>(problem.outputs.size()) * 2 * kSlotPage;
}

// The memory of the reference's own tensors and the truth, in slots. Elements of the truth are twice as wide
// as float32, four times as wide as 16-bit types.
int64_t SlotsForReference(const SizedProblem& problem) {
  return PrecisionOf(*problem.problem) == Precision::kFp32 ? 5 : 10;
}

// Not all that is free can be used: contexts of runners, fragments.
constexpr double kUsableShare = 0.9;
int64_t ForUsable(int64_t bytes) {
  return static_cast<int64_t>(static_cast<double>(bytes) / kUsableShare) + 1;
}

int64_t SlotsWithRoom(const SizedProblem& problem, size_t free_bytes) {
  const int64_t usable = static_cast<int64_t>(static_cast<double>(free_bytes) * kUsableShare);
  return usable / SlotBytes(problem) - SlotsForReference(problem);
}

double Gib(double bytes) { return bytes / (1 << 30); }

}  // namespace

int64_t SlotInputBytes(const SizedProblem& problem) { return Bytes(problem, false); }
int64_t SlotOutputBytes(const SizedProblem& problem) { return Bytes(problem, true); }

SlotLayout LayOutSlots(const SizedProblem& problem, int slots) {
  SlotLayout layout;
  for (size_t i = 0; i < problem.arguments.size(); ++i) {
    const bool output = IsOutput(problem, i);
    const int64_t guard = output ? kSlotPage : 0, stride = Pages(problem.arguments[i].bytes) + 2 * guard;
    int64_t* bytes = output ? &layout.outputs_bytes : &layout.inputs_bytes;
    layout.arguments.push_back(
        {output, static_cast<uint64_t>(*bytes + guard), static_cast<uint64_t>(stride)});
    *bytes += stride * slots;
  }
  layout.tensors = layout.arguments;
  if (!HasParamBlock(*problem.problem)) return layout;
  const auto block = layout.tensors.end() - static_cast<std::ptrdiff_t>(problem.outputs.size()) - 1;
  std::vector<ArgumentPlace> params;
  for (const ConcreteTensor& input : problem.inputs) {
    if (!input.spec.is_param) continue;
    const int64_t offset = problem.symbols.at(OffsetName(input.spec.name)) * DTypeBytes(input.spec.dtype);
    params.push_back({false, block->offset + static_cast<uint64_t>(offset), block->stride});
  }
  layout.tensors.insert(layout.tensors.erase(block), params.begin(), params.end());
  return layout;
}

int MostSlotsMappedApart(const SizedProblem& problem) {
  constexpr size_t kMostMappings = 2048;  // a reading of them takes milliseconds
  const size_t inputs = std::max<size_t>(1, problem.arguments.size() - problem.outputs.size());
  return static_cast<int>(std::max<size_t>(1, kMostMappings / inputs));
}

int64_t GapBetweenInputs(const ArgumentPlace& place) {
  constexpr uint64_t kHugePage = uint64_t{2} << 20;
  return static_cast<int64_t>(place.stride >= kHugePage ? kHugePage : 16 * kSlotPage);
}

int PreferredSlotsOnGpu(const SizedProblem& problem) {
  return static_cast<int>(
      std::clamp<int64_t>(kSlotBudgetBytesOnGpu / SlotBytes(problem), kMinSlotsOnGpu, kMaxSlotsOnGpu));
}

int64_t SessionBytesOnGpu(const SizedProblem& problem) {
  return ForUsable((PreferredSlotsOnGpu(problem) + SlotsForReference(problem)) * SlotBytes(problem));
}

int64_t ReferenceBytesOnGpu(const SizedProblem& problem) {
  return ForUsable(SlotsForReference(problem) * SlotBytes(problem));
}

int SlotsOnGpu(const SizedProblem& problem, size_t free_bytes) {
  const int64_t slots = SlotsWithRoom(problem, free_bytes);
  if (slots >= 1) return static_cast<int>(std::min<int64_t>(slots, PreferredSlotsOnGpu(problem)));
  const std::string what = fmt::format(
      "{} at size {} needs about {:.1f} GiB of GPU memory and {:.1f} GiB are free", problem.problem->id,
      problem.size,
      Gib(static_cast<double>((SlotsForReference(problem) + 1) * SlotBytes(problem)) / kUsableShare),
      Gib(static_cast<double>(free_bytes)));
  // The largest size that fits.
  std::string fitting;
  int64_t largest = 0;
  for (const auto& [name, symbols] : problem.problem->sizes) {
    const SizedProblem other = AtSize(*problem.problem, name);
    if (SlotsWithRoom(other, free_bytes) < 1 || SlotBytes(other) <= largest) continue;
    largest = SlotBytes(other);
    fitting = name;
  }
  if (!fitting.empty()) throw Error(ExitCode::kBadRequest, what, "use --size " + fitting);
  throw Error(
      ExitCode::kMachine, what,
      "free memory on the GPU (nvidia-smi lists its users), or add a smaller size to the problem file");
}

}  // namespace kevin
