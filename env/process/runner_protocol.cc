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
  int64_t inputs_bytes, outputs_bytes, inouts_begin, max_memory_bytes;
  double cpu_limit_s;
  struct {
    int32_t output, inout;
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
  packet.wire.inouts_begin = load.inouts_begin;
  packet.wire.max_memory_bytes = load.max_memory_bytes;
  packet.wire.cpu_limit_s = load.cpu_limit_s;
  for (size_t i = 0; i < load.arguments.size(); ++i) {
    packet.wire.arguments[i] = {load.arguments[i].output, load.arguments[i].inout, load.arguments[i].offset,
                                load.arguments[i].stride};
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
  load->inouts_begin = packet.wire.inouts_begin;
  load->max_memory_bytes = packet.wire.max_memory_bytes;
  load->cpu_limit_s = packet.wire.cpu_limit_s;
  for (int i = 0; i < packet.wire.argument_count; ++i) {
    const auto& argument = packet.wire.arguments[i];
    load->arguments.push_back({argument.output != 0, argument.inout != 0, argument.offset, argument.stride});
  }
  return true;
}

// --- The memory ---

namespace {

constexpr int kMinSlotsOnGpu = 2;
constexpr int64_t kSlotBudgetBytesOnGpu = int64_t{8} << 30;

int64_t Pages(int64_t bytes) { return (bytes + kSlotPage - 1) / kSlotPage * kSlotPage; }

static_assert(kMaxResults <= kMaxOutputs);

int64_t Bytes(const SizedProblem& problem, bool written) {
  int64_t bytes = 0;
  for (size_t i = 0; i < problem.arguments.size(); ++i) {
    if (IsWrittenArgument(*problem.problem, i) == written) bytes += Pages(problem.arguments[i].bytes);
  }
  return bytes;
}

// With the values of input-outputs before the call, and the reference's own.
int64_t SlotBytes(const SizedProblem& problem) {
  int64_t inouts = 0;
  for (const ConcreteTensor& input : problem.inputs) {
    if (input.spec.is_inout) inouts += 2 * (Pages(input.bytes) + 2 * kSlotPage);
  }
  return SlotInputBytes(problem) + SlotOutputBytes(problem) + inouts +
         static_cast<int64_t>(problem.outputs.size()) * 2 * kSlotPage;
}

// The memory of the reference's own tensors and the truth where nobody has seen it, in slots: what to keep free, and the
// least that elementwise problems need. Elements of the truth are twice as wide as float32, four times as wide as 16-bit types.
constexpr double kSlotsToKeepFree = 5, kLeastSlots = 3.5;
int64_t ReferenceBytes(const SizedProblem& problem, int64_t seen, double slots) {
  if (seen > 0) return seen;
  const double width = PrecisionOf(*problem.problem) == Precision::kFp32 ? 1 : 2;
  return static_cast<int64_t>(slots * width * static_cast<double>(SlotBytes(problem)));
}

// Not all that is free can be used: contexts of runners, fragments.
constexpr double kUsableShare = 0.9;
int64_t ForUsable(int64_t bytes) {
  return static_cast<int64_t>(static_cast<double>(bytes) / kUsableShare) + 1;
}

int64_t SlotsWithRoom(const SizedProblem& problem, size_t free_bytes, int64_t seen) {
  const int64_t usable = static_cast<int64_t>(static_cast<double>(free_bytes) * kUsableShare);
  const int64_t for_slots = usable - ReferenceBytes(problem, seen, kLeastSlots);
  return for_slots < 0 ? 0 : for_slots / SlotBytes(problem);
}

// In place of the block each parameter has its own place, in the block.
void PlaceParamsOfBlock(const SizedProblem& problem, SlotLayout* layout) {
  const auto block = layout->tensors.end() - static_cast<std::ptrdiff_t>(OwnOutputs(*problem.problem)) - 1;
  std::vector<ArgumentPlace> params;
  for (const ConcreteTensor& input : problem.inputs) {
    if (!input.spec.is_param) continue;
    const int64_t offset = problem.symbols.at(OffsetName(input.spec.name)) * DTypeBytes(input.spec.dtype);
    params.push_back({false, false, block->offset + static_cast<uint64_t>(offset), block->stride});
  }
  layout->tensors.insert(layout->tensors.erase(block), params.begin(), params.end());
}

double Gib(double bytes) { return bytes / (1 << 30); }

}  // namespace

int64_t SlotInputBytes(const SizedProblem& problem) { return Bytes(problem, false); }
int64_t SlotOutputBytes(const SizedProblem& problem) { return Bytes(problem, true); }

SlotLayout LayOutSlots(const SizedProblem& problem, int slots) {
  SlotLayout layout;
  layout.arguments.resize(problem.arguments.size());
  const auto place = [&](size_t i) {
    const bool output = IsWrittenArgument(*problem.problem, i);
    const bool inout = output && !IsOutputArgument(*problem.problem, i);
    const int64_t guard = output ? kSlotPage : 0, stride = Pages(problem.arguments[i].bytes) + 2 * guard;
    int64_t* bytes = output ? &layout.outputs_bytes : &layout.inputs_bytes;
    layout.arguments[i] = {output, inout, static_cast<uint64_t>(*bytes + guard),
                           static_cast<uint64_t>(stride)};
    *bytes += stride * slots;
  };
  const auto is_inout = [&](size_t i) {
    return IsWrittenArgument(*problem.problem, i) && !IsOutputArgument(*problem.problem, i);
  };
  for (size_t i = 0; i < problem.arguments.size(); ++i) {
    if (!is_inout(i)) place(i);
  }
  layout.inputs_bytes = std::max(layout.inputs_bytes, kSlotPage);  // a mapping is never empty
  layout.outputs_bytes = std::max(layout.outputs_bytes, kSlotPage);
  layout.inouts_begin = layout.outputs_bytes;
  for (size_t i = 0; i < problem.arguments.size(); ++i) {
    if (is_inout(i)) place(i);
  }
  layout.tensors = layout.arguments;
  if (HasParamBlock(*problem.problem)) PlaceParamsOfBlock(problem, &layout);
  for (const ArgumentPlace& argument : layout.arguments) {
    if (argument.inout) layout.tensors.push_back(argument);
  }
  return layout;
}

int MostSlotsMappedApart(const SizedProblem& problem) {
  constexpr size_t kMostMappings = 2048;  // a reading of them takes milliseconds
  const size_t inputs = std::max<size_t>(1, problem.arguments.size() - OwnOutputs(*problem.problem));
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

int64_t SessionBytesOnGpu(const SizedProblem& problem, int64_t reference_bytes) {
  return ForUsable(PreferredSlotsOnGpu(problem) * SlotBytes(problem) +
                   ReferenceBytes(problem, reference_bytes, kSlotsToKeepFree));
}

int64_t LeastSessionBytesOnGpu(const SizedProblem& problem) {
  return ForUsable(SlotBytes(problem) + ReferenceBytes(problem, 0, kLeastSlots));
}

int64_t ReferenceBytesOnGpu(const SizedProblem& problem, int64_t reference_bytes) {
  return ForUsable(ReferenceBytes(problem, reference_bytes, kSlotsToKeepFree));
}

int SlotsOnGpu(const SizedProblem& problem, size_t free_bytes, int64_t reference_bytes) {
  const int64_t slots = SlotsWithRoom(problem, free_bytes, reference_bytes);
  if (slots >= 1) return static_cast<int>(std::min<int64_t>(slots, PreferredSlotsOnGpu(problem)));
  const std::string what = fmt::format(
      "{} at size {} needs about {:.1f} GiB of GPU memory and {:.1f} GiB are free", problem.problem->id,
      problem.size, Gib(static_cast<double>(LeastSessionBytesOnGpu(problem))),
      Gib(static_cast<double>(free_bytes)));
  // The largest size that fits.
  std::string fitting;
  int64_t largest = 0;
  for (const auto& [name, symbols] : problem.problem->sizes) {
    const SizedProblem other = AtSize(*problem.problem, name);
    if (SlotsWithRoom(other, free_bytes, 0) < 1 || SlotBytes(other) <= largest) continue;
    largest = SlotBytes(other);
    fitting = name;
  }
  if (!fitting.empty()) throw Error(ExitCode::kBadRequest, what, "use --size " + fitting);
  throw Error(
      ExitCode::kMachine, what,
      "free memory on the GPU (nvidia-smi lists its users), or add a smaller size to the problem file");
}

int PythonSlotsOnGpu(const SizedProblem& problem, size_t free_bytes) {
  SlotsOnGpu(problem, free_bytes);  // throws where none fits
  constexpr int64_t kBudgetBytes = int64_t{24} << 30;
  constexpr int64_t kMostOutputBytes = int64_t{4} << 30;  // of a batch: they lie in a worker's pool
  const int64_t bytes = 3 * SlotInputBytes(problem) + 2 * SlotBytes(problem);
  const int64_t budget = std::min(kBudgetBytes, static_cast<int64_t>(free_bytes) / 4);
  const int64_t slots = std::min(budget / bytes, kMostOutputBytes / SlotOutputBytes(problem));
  return static_cast<int>(std::clamp<int64_t>(slots, 1, kMostPythonSlotsOnGpu));
}

}  // namespace kevin
