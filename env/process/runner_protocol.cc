#include "env/process/runner_protocol.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "env/error.h"
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
                                   std::to_string(compiler.cpu_s)};
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

}  // namespace kevin
