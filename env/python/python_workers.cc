#include "env/python/python_workers.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/process/runner_protocol.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kTheirSocket = 3;
constexpr int kImportLimitMs = 120'000;
constexpr int kForkLimitMs = 20'000;

[[noreturn]] void Fail(const std::string& what) {
  throw Error(ExitCode::kBroken, "the Python workers: " + what + " (see any message above)",
              "check that KEVIN_PYTHON is a Python whose torch can be imported");
}

// One byte with descriptors.
bool SendDescriptors(int socket, const int* descriptors, size_t count) {
  char byte = 'j';
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kJobDescriptors)> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = CMSG_SPACE(sizeof(int) * count);
  cmsghdr* message = CMSG_FIRSTHDR(&header);
  message->cmsg_level = SOL_SOCKET;
  message->cmsg_type = SCM_RIGHTS;
  message->cmsg_len = CMSG_LEN(sizeof(int) * count);
  std::memcpy(CMSG_DATA(message), descriptors, sizeof(int) * count);
  return sendmsg(socket, &header, MSG_NOSIGNAL) == 1;
}

void AddForGpu(const GpuOfWorkers& gpu, std::vector<std::string>* environment) {
  std::erase_if(*environment, [](const std::string& entry) { return entry.starts_with("PATH="); });
  // Queues of the device make contexts slow: 0.27 s with the driver's own eight and eight for copies. Four let the streams
  // of a call run at once.
  for (const char* entry : {"PATH=/usr/local/cuda/bin:/usr/bin:/bin:/sbin", "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                            "CUDA_CACHE_DISABLE=1", "TORCHINDUCTOR_COMPILE_THREADS=1",
                            "CUDA_DEVICE_MAX_CONNECTIONS=4", "CUDA_DEVICE_MAX_COPY_CONNECTIONS=1"})
    environment->emplace_back(entry);
  environment->push_back("KEVIN_GPU_CAPABILITY=" + std::to_string(gpu.capability));
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    environment->push_back(std::string("CUDA_VISIBLE_DEVICES=") + visible);
  const char* libraries = std::getenv("KEVIN_OUTER_LIBRARY_PATH");
  if (libraries == nullptr) libraries = std::getenv("LD_LIBRARY_PATH");
  if (libraries != nullptr && *libraries != '\0')
    environment->push_back(std::string("LD_LIBRARY_PATH=") + libraries);
}

std::vector<std::string> PythonEnvironmentOfWorkers(int threads, const std::optional<GpuOfWorkers>& gpu) {
  std::vector<std::string> environment = RunnerEnvironment(threads);
  for (const char* entry : {"OPENBLAS_NUM_THREADS=1",  // its threads would start with the import
                            "HOME=/tmp", "TMPDIR=/tmp", "PYTHONDONTWRITEBYTECODE=1",
                            "TRITON_CACHE_DIR=/tmp/triton", "TORCHINDUCTOR_CACHE_DIR=/tmp/inductor",
                            "TORCH_EXTENSIONS_DIR=/tmp/extensions", "USER=kevin", "LOGNAME=kevin"})
    environment.emplace_back(entry);
  if (gpu) {
    AddForGpu(*gpu, &environment);
  } else {
    environment.emplace_back("CUDA_VISIBLE_DEVICES=");
    environment.emplace_back(
        "TRITON_INTERPRET=1");  // no compiler for CPUs: kernels run, correctly and slowly
  }
  return environment;
}

}  // namespace

json PythonSetupToJson(const PythonSetup& setup) {
  return {{"python", setup.python},
          {"script", setup.script},
          {"library", setup.library},
          {"torch", setup.torch_version},
          {"folders", setup.folders}};
}

PythonSetup PythonSetupFromJson(const json& json) {
  return {json.at("python"), json.at("script"), json.at("library"), json.at("torch"),
          json.at("folders").get<std::vector<std::string>>()};
}

std::vector<std::filesystem::path> FoldersOf(const PythonSetup& setup) {
  std::vector<std::filesystem::path> folders(setup.folders.begin(), setup.folders.end());
  for (const std::string& file : {setup.script, setup.library})
    folders.push_back(std::filesystem::path(file).parent_path());
  return folders;
}

PythonWorkers::PythonWorkers(PythonSetup setup, int threads, bool namespaces,
                             const std::optional<GpuOfWorkers>& gpu)
    : setup_(std::move(setup)) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) Fail(std::strerror(errno));
  socket_ = Fd(pair[0]);
  const Fd theirs(pair[1]);
  SpawnOptions spawn;
  spawn.argv = {setup_.python,
                "-I",
                "-B",
                setup_.script,
                setup_.library,
                gpu ? "gpu" : std::to_string(threads),
                namespaces ? "namespaces" : "plain"};
  spawn.argv.insert(spawn.argv.end(), setup_.folders.begin(), setup_.folders.end());
  spawn.environment = PythonEnvironmentOfWorkers(threads, gpu);
  spawn.descriptors = {{STDERR_FILENO, STDERR_FILENO}, {theirs.get(), kTheirSocket}};
  process_ = Spawn(spawn);
}

ChildProcess PythonWorkers::Fork(int socket) {
  Ask(socket);
  return Await();
}

void PythonWorkers::Ask(int socket) {
  if (!SendDescriptors(socket_.get(), &socket, 1)) Fail("ended");
}

ChildProcess PythonWorkers::Await() {
  pollfd ready{socket_.get(), POLLIN, 0};
  // The first one waits for the import.
  if (poll(&ready, 1, kImportLimitMs + kForkLimitMs) <= 0) Fail("no worker within two minutes");
  char answer[256];
  const ssize_t bytes = recv(socket_.get(), answer, sizeof(answer), 0);
  const json parsed =
      json::parse(std::string(answer, static_cast<size_t>(std::max<ssize_t>(bytes, 0))), nullptr, false);
  if (!parsed.is_object()) Fail("ended");
  if (parsed.contains("error")) Fail(parsed["error"].get<std::string>());
  return ChildProcess(parsed.at("pid").get<pid_t>());
}

void SendJob(int socket, const std::string& text, const int (&descriptors)[kJobText]) {
  const Fd file = CreateSharedFile("kevin-job", text.size());
  if (pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    throw Error(ExitCode::kBroken, "cannot write the job of a Python worker");
  int all[kJobDescriptors];
  std::copy(std::begin(descriptors), std::end(descriptors), all);
  all[kJobText] = file.get();
  if (!SendDescriptors(socket, all, kJobDescriptors)) Fail("a worker ended before it got its job");
}

}  // namespace kevin
