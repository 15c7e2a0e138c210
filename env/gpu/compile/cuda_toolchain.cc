// Where the device compiler's parts are. Each part is looked for by itself: on a GPU machine the libraries
// may come with torch and the headers with a toolkit.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "env/error.h"
#include "env/gpu/compile/compile_farm.h"
#include "env/problem/text.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr int kOldestMajor = 12;  // knows sm_90a and C++20

constexpr const char* kInstall =
    "run tools/setup.sh, or `pip install nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96 "
    "nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 nvidia-nvjitlink==13.0.88`, or set KEVIN_CUDA to a "
    "CUDA 13 folder with include and lib";

std::string PythonTorch() {
  std::FILE* pipe = popen(
      "python3 -c \"import importlib.util as u; s = u.find_spec('torch'); "
      "print(s.submodule_search_locations[0] if s else '')\" 2>/dev/null",
      "r");
  if (!pipe) return {};
  char line[4096] = "";
  const bool read = std::fgets(line, sizeof(line), pipe) != nullptr;
  pclose(pipe);
  std::string path = read ? line : "";
  while (!path.empty() && path.back() == '\n') path.pop_back();
  return path;
}

// The folder of NVIDIA's wheels beside a torch package.
fs::path WheelsBeside(const fs::path& torch) {
  std::error_code error;
  const fs::path real = fs::canonical(torch, error);
  return error ? fs::path() : real.parent_path() / "nvidia" / "cu13";
}

fs::path Real(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? fs::path() : real;
}

// The highest NAME.so.MAJOR in a root's library folders; empty when there is none.
fs::path FindLibrary(const fs::path& root, const std::string& name) {
  for (const char* folder : {"lib64", "lib", "targets/x86_64-linux/lib"}) {
    for (int major = kOldestMajor + 8; major >= kOldestMajor; --major) {
      const fs::path path = Real(root / folder / (name + ".so." + std::to_string(major)));
      if (!path.empty()) return path;
    }
  }
  return {};
}

// The first include folder of a root that holds `file`.
fs::path FindInclude(const fs::path& root, const std::string& file) {
  for (const char* folder :
       {"include", "include/cccl", "targets/x86_64-linux/include", "targets/x86_64-linux/include/cccl"}) {
    std::error_code error;
    if (fs::is_regular_file(root / folder / file, error)) return Real(root / folder);
  }
  return {};
}

// The number behind `#define NAME`; 0 when it is not there.
long Defined(const fs::path& header, const std::string& name) {
  std::ifstream in(header);
  const std::string start = "#define " + name + " ";
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, start.size(), start) == 0)
      return std::strtol(line.c_str() + start.size(), nullptr, 10);
  }
  return 0;
}

// The name of libnvrtc.so.13 has no minor version; that of the built-in functions beside it has.
std::string NvrtcVersion(const fs::path& library) {
  std::error_code error;
  const std::string start = "libnvrtc-builtins.so.";
  for (const auto& file : fs::directory_iterator(library.parent_path(), error)) {
    const std::string name = file.path().filename().string();
    if (name.compare(0, start.size(), start) == 0) return name.substr(start.size());
  }
  return "?";
}

// The size of the library, its beginning (with the build id) and its end: enough to distinguish two builds.
std::string BuildOf(const fs::path& library) {
  std::ifstream in(library, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(in.tellg());
  std::string ends(128 << 10, '\0');
  const std::streamsize half = static_cast<std::streamsize>(ends.size() / 2);
  in.seekg(0);
  in.read(ends.data(), half);
  in.clear();
  in.seekg(std::max<int64_t>(0, size - half));
  in.read(ends.data() + half, half);
  return Sha256Hex(ends + std::to_string(size)).substr(0, 12);
}

class Search {
 public:
  CudaToolchain Find() {
    if (const char* chosen = std::getenv("KEVIN_CUDA")) {
      Look(chosen);
      if (!Whole()) throw Missing(std::string("KEVIN_CUDA=") + chosen + ": ");
      return Finished();
    }
    if (const char* home = std::getenv("CUDA_HOME")) Look(home);
    Look("/usr/local/cuda");
    Look(WheelsBeside(KEVIN_TORCH_ROOT));
    if (const char* torch = std::getenv("KEVIN_TORCH")) {
      Look(WheelsBeside(torch));
      Look(WheelsBeside(fs::path(torch) / "torch"));
    }
    if (!Whole() || toolchain_.nvjitlink.empty()) Look(WheelsBeside(PythonTorch()));
    if (!Whole()) throw Missing("");
    return Finished();
  }

 private:
  void Look(const fs::path& root) {
    if (root.empty()) return;
    if (toolchain_.nvrtc.empty()) toolchain_.nvrtc = FindLibrary(root, "libnvrtc");
    if (toolchain_.nvjitlink.empty()) toolchain_.nvjitlink = FindLibrary(root, "libnvJitLink");
    for (size_t i = 0; i < std::size(kParts); ++i) {
      if (includes_[i].empty()) includes_[i] = FindInclude(root, kParts[i].file);
    }
  }

  bool Whole() const {
    for (const fs::path& include : includes_) {
      if (include.empty()) return false;
    }
    return !toolchain_.nvrtc.empty();
  }

  Error Missing(const std::string& start) const {
    std::string missing = toolchain_.nvrtc.empty() ? ", libnvrtc.so" : "";
    for (size_t i = 0; i < std::size(kParts); ++i) {
      if (includes_[i].empty()) missing += std::string(", ") + kParts[i].file + " (" + kParts[i].what + ")";
    }
    return Error(ExitCode::kMachine, start + "no CUDA device compiler: missing " + missing.substr(2),
                 kInstall);
  }

  CudaToolchain Finished() {
    for (const fs::path& include : includes_) {
      std::vector<fs::path>& all = toolchain_.includes;
      if (std::find(all.begin(), all.end(), include) == all.end()) all.push_back(include);
    }
    const long cuda = Defined(includes_[0] / "cuda.h", "CUDA_VERSION");
    const long cccl = Defined(includes_[2] / "cuda/std/__cccl/version.h", "CCCL_VERSION");
    toolchain_.version = "NVRTC " + NvrtcVersion(toolchain_.nvrtc) + " (" + BuildOf(toolchain_.nvrtc) +
                         "), headers " + std::to_string(cuda / 1000) + "." +
                         std::to_string(cuda % 1000 / 10) + ", CCCL " + std::to_string(cccl / 1000000) + "." +
                         std::to_string(cccl / 1000 % 1000) + "." + std::to_string(cccl % 1000);
    if (!toolchain_.nvjitlink.empty()) toolchain_.version += ", nvJitLink " + BuildOf(toolchain_.nvjitlink);
    return toolchain_;
  }

  struct Part {
    const char* file;
    const char* what;
  };
  static constexpr Part kParts[] = {{"cuda_fp16.h", "the run-time's headers"},
                                    {"crt/mma.h", "the compiler's own headers, nvidia-cuda-crt"},
                                    {"cuda/std/version", "CCCL"},
                                    {"nv/target", "CCCL"}};
  CudaToolchain toolchain_;
  fs::path includes_[std::size(kParts)];
};

}  // namespace

CudaToolchain FindCudaToolchain() { return Search().Find(); }

}  // namespace kevin
