// The compile farm, with no GPU: its cache, its processes, and what a hostile text can do to the compiler.

#include "env/gpu/compile/compile_farm.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "env/gpu/compile/compile_cache.h"
#include "tests/env/gpu/compile_samples.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

void FlipByte(const fs::path& path, uintmax_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const auto flipped = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(flipped);
}
// Takes NVRTC long: each line brings the slow path of sinf along.
std::string Slow(int seed, int lines) {
  std::string text = "__global__ void k(float* x) {\n  float v = x[threadIdx.x];\n";
  for (int i = 0; i < lines; ++i) text += "  v = v * " + std::to_string(i + seed) + ".5f + sinf(v);\n";
  return text + "  x[threadIdx.x] = v;\n}\n";
}
// The processes that this one has started and that run kevin-gpu-compiler.
std::vector<pid_t> CompilerProcesses() {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string number, program, state;
    pid_t parent = 0;
    stat >> number >> program >> state >> parent;
    if (parent == getpid() && Contains(program, "kevin-gpu-comp")) found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace

TEST_CASE("without nvJitLink, PTX is this machine's error and says what to install") {
  if (!TestToolchain()) return;
  CudaToolchain toolchain = *TestToolchain();
  toolchain.nvjitlink.clear();
  const TemporaryFolder folder;
  CompileFarmOptions options;
  options.compiler_program = BuiltPrograms() / "kevin-gpu-compiler";
  options.runner_program = BuiltPrograms() / "kevin-runner";
  options.cache_directory = folder.path();
  CompileFarm farm(toolchain, options);
  GpuCompileRequest request;
  request.kind = "ptx";
  try {
    farm.Compile(request);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMachine);
    CHECK(Contains(error.next_step(), "nvidia-nvjitlink"));
  }
}

TEST_CASE("the cache: other symbols and architectures miss, damage is noticed, the oldest entries go") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->cache_limit_bytes = 60000; });
  GpuCompileRequest request;
  request.device_text = kRelu;
  request.kernels = {"relu"};
  const GpuCompiled first = farm->Compile(request);
  CHECK(!first.cached);
  const GpuCompiled again = farm->Compile(request);
  CHECK(again.cached);
  CHECK(again.module.cubin == first.module.cubin);
  CHECK(again.module.kernels[0].registers == first.module.kernels[0].registers);
  request.symbols = {{"N", 1}};
  CHECK(!farm->Compile(request).cached);
  request.symbols.clear();
  request.architecture = "sm_90";
  CHECK(!farm->Compile(request).cached);
  request.architecture = "sm_90a";
  for (const auto& file : fs::directory_iterator(farm.cache())) FlipByte(file, fs::file_size(file) / 2);
  CHECK(!farm->Compile(request).cached);
  CHECK(farm->Compile(request).cached);
  for (int i = 0; i < 12; ++i) {
    CHECK(farm->Compile(request).cached);  // used all along: it stays
    farm.Compile(kRelu + std::string("__device__ int v") + std::to_string(i) + ";", {"relu"});
  }
  int64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(farm.cache()))
    bytes += static_cast<int64_t>(fs::file_size(file));
  CHECK(bytes <= 60000);
  CHECK(bytes > 20000);
  CHECK(!farm.Compile(kRelu + std::string("__device__ int v0;"), {"relu"}).cached);
}

TEST_CASE("--include folders are visible to the compiler, and their contents count") {
  if (!TestToolchain()) return;
  Farm farm;
  const fs::path folder = farm.folder() / "mine";
  fs::create_directories(folder / "sub");
  std::ofstream(folder / "sub/mine.h") << "#define VALUE 1\n";
  GpuCompileRequest request;
  request.device_text = "#include <sub/mine.h>\n__global__ void k(int* x) { *x = VALUE; }";
  request.kernels = {"k"};
  CHECK(Contains(farm->Compile(request).log, "sub/mine.h"));
  request.include_directories = {folder};
  const GpuCompiled first = farm->Compile(request);
  INFO(first.log);
  CHECK(!first.module.cubin.empty());
  CHECK(farm->Compile(request).cached);
  std::ofstream(folder / "sub/mine.h") << "#define VALUE 22\n";
  const GpuCompiled changed = farm->Compile(request);
  CHECK(!changed.cached);
  CHECK(Contains(changed.module.ptx, ", 22;"));
  request.include_directories = {farm.folder() / "absent"};
  CHECK_THROWS_AS(farm->Compile(request), Error);
}

TEST_CASE("the compiler sees nothing but its toolchain") {
  if (!TestToolchain()) return;
  for (const bool namespaces : {true, false}) {
    if (namespaces && !NamespacesAvailable()) continue;
    Farm farm([&](CompileFarmOptions* options) { options->namespaces = namespaces; });
    CHECK(!farm.Compile(kRelu, {"relu"}).module.cubin.empty());
    std::ofstream(farm.folder() / "secret.h") << "#define SECRET 1\n";
    const std::string secret = (farm.folder() / "secret.h").string();
    for (const std::string& path : {std::string("/etc/passwd"), secret, std::string("/proc/self/environ")}) {
      const GpuCompiled compiled = farm.Compile("#include \"" + path + "\"\n" + kRelu, {"relu"});
      INFO(path << compiled.log);
      CHECK(compiled.module.cubin.empty());
      CHECK(!Contains(compiled.log, "root:"));
      CHECK(Contains(compiled.log, "cannot open source file"));
    }
  }
}

TEST_CASE("a compiler that is killed in the middle is replaced and the text compiled again") {
  if (!TestToolchain()) return;
  Farm farm;
  farm.Compile(kRelu, {"relu"});
  REQUIRE(CompilerProcesses().size() == 1);
  const pid_t victim = CompilerProcesses()[0];
  auto result = std::async(std::launch::async, [&] { return farm.Compile(Slow(1, 80), {"k"}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  kill(victim, SIGKILL);
  const GpuCompiled compiled = result.get();
  INFO(compiled.log);
  CHECK(!compiled.module.cubin.empty());
  CHECK(!Contains(compiled.log, "fails on this text"));
  REQUIRE(CompilerProcesses().size() == 1);
  CHECK(CompilerProcesses()[0] != victim);
}

TEST_CASE("a text that takes too long times out, is not remembered, and the next one compiles") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->limits.compile_timeout_s = 1.5; });
  const GpuCompiled slow = farm.Compile(Slow(1, 30000), {"k"});
  CHECK(slow.timed_out);
  CHECK(slow.module.cubin.empty());
  CHECK(slow.seconds < 4);
  CHECK(!farm.Compile(kRelu, {"relu"}).module.cubin.empty());
  CHECK(!farm.Compile(Slow(1, 30000), {"k"}).cached);
}

TEST_CASE("endless templates, endless includes and huge logs end in an error of the text") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->limits.max_log_bytes = 3000; });
  const GpuCompiled endless = farm.Compile(
      "template <int N> struct A { static const int v = A<N + 1>::v; };\n__global__ void k(int* x) { *x = "
      "A<0>::v; }",
      {"k"});
  CHECK(endless.module.cubin.empty());
  CHECK(Contains(endless.log, "excessive recursion"));
  const GpuCompiled self = farm.Compile("#include __FILE__\n", {"k"});
  CHECK(self.module.cubin.empty());
  CHECK(!self.log.empty());
  std::string many = "__global__ void k(int* x) {\n";
  for (int i = 0; i < 5000; ++i) many += "  unknown" + std::to_string(i) + "();\n";
  const GpuCompiled huge = farm.Compile(many + "}\n", {"k"});
  CHECK(huge.log.size() < 3100);
  CHECK(Contains(huge.log, "candidate.cu(2): error"));
  CHECK(Contains(huge.log, "bytes more"));
}

TEST_CASE("a text that exhausts the compiler's memory is an error, and not remembered") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->limits.compile_memory_mb = 400; });
  CHECK(!farm.Compile(kRelu, {"relu"}).module.cubin.empty());
  std::string text =
      "#define A(x) x x x x x x x x x x\n#define B(x) A(A(A(A(x))))\n__global__ void k(float* x) {\n";
  text += "  B(B(*x = *x * 2 + sinf(*x);))\n}\n";
  const GpuCompiled compiled = farm.Compile(text, {"k"});
  CHECK(compiled.module.cubin.empty());
  CHECK((compiled.timed_out || Contains(compiled.log, "fails on this text")));
  CHECK(!farm.Compile(kRelu + std::string(" "), {"relu"}).module.cubin.empty());
}

TEST_CASE("many threads share a farm") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->processes = 2; });
  std::vector<std::future<GpuCompiled>> results;
  for (int i = 0; i < 8; ++i) {
    results.push_back(std::async(std::launch::async, [&farm, i] {
      return farm.Compile("__global__ void k(float* x) { x[0] = " + std::to_string(i) + "; }", {"k"});
    }));
  }
  for (auto& result : results) CHECK(!result.get().module.cubin.empty());
  CHECK(CompilerProcesses().size() == 2);
}

TEST_CASE("a toolchain that is asked for and not there is named, with what to install") {
  const char* before = std::getenv("KEVIN_CUDA");
  const std::string kept = before ? before : "";
  setenv("KEVIN_CUDA", "/nowhere", 1);
  try {
    FindCudaToolchain();
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMachine);
    CHECK(Contains(error.what(),
                   "KEVIN_CUDA=/nowhere: no CUDA device compiler: missing libnvrtc.so, cuda_fp16.h"));
    CHECK(Contains(error.next_step(), "nvidia-cuda-nvrtc"));
  }
  before ? setenv("KEVIN_CUDA", kept.c_str(), 1) : unsetenv("KEVIN_CUDA");
}

TEST_CASE("an unknown architecture is the machine's error, a missing program too") {
  if (!TestToolchain()) return;
  Farm farm;
  GpuCompileRequest request;
  request.device_text = kRelu;
  request.architecture = "sm_999";
  CHECK_THROWS_AS(farm->Compile(request), Error);
  request.architecture = "sm_90a -I/";
  CHECK_THROWS_AS(farm->Compile(request), Error);
  CHECK_THROWS_AS(Farm([](CompileFarmOptions* options) { options->compiler_program = "/nowhere"; }), Error);
}

}  // namespace kevin
