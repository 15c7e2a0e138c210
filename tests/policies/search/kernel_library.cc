#include "tests/policies/search/kernel_library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/folders.h"

namespace kevin::test {
namespace {

constexpr size_t kCompilers = 2;
// Of the candidates; they come before all namespaces.
const std::vector<std::string> kIncludes = {"#include <utility>\n",       "#include <cstdlib>\n",
                                            "#include <immintrin.h>\n",   "#include <omp.h>\n",
                                            "#include <linux/futex.h>\n", "#include <sys/syscall.h>\n",
                                            "#include <unistd.h>\n",      "#include <atomic>\n"};

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string MakeFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kevin-kernels-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder " + pattern);
  return pattern;
}

// Candidates are whole files; to share one they get a namespace, a launch and macros each of their own.
std::string Nested(std::string source, size_t index) {
  const std::string head = "extern \"C\" void launch(";
  for (const std::string& include : kIncludes) {
    const size_t at = source.find(include);
    if (at != std::string::npos) source.erase(at, include.size());
  }
  source.replace(source.find(head), head.size(), "extern \"C\" void launch_" + std::to_string(index) + "(");
  return "namespace kernel_" + std::to_string(index) + " {\n" + source +
         "}\n#undef LANES\n#undef INLINE\n#undef HAS_512\n#undef HAS_256\n";
}

// In `folder`, with names relative to it: a cache of the compiler, where there is one, then knows a text wherever it lies.
void RunCompiler(const std::string& folder, const std::string& source, const std::string& output,
                 const std::string& flags, bool links = false) {
  static const bool kHasCache = std::system("command -v ccache >/dev/null") == 0;
  // The cache of the user: ctest gives tests a XDG_CACHE_HOME of their own.
  const std::string cached =
      "env -u XDG_CACHE_HOME CCACHE_NOHASHDIR=1 "
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ccache ";
  const std::string log = folder + "/" + source + ".log";
  const std::string command = "cd " + folder + " && " + (kHasCache && !links ? cached : "") +
                              "g++ -std=c++20 -fopenmp -fPIC " + flags + " -o " + output + " " + source +
                              " 2> " + log;
  if (std::system(command.c_str()) != 0) throw std::runtime_error(ReadFile(log));
}

// -march=native means another thing on another processor, which a cache of the compiler does not know.
std::string ThisProcessor() {
  std::ifstream lines("/proc/cpuinfo");
  std::string flags;
  for (std::string line; std::getline(lines, line) && line.find("processor\t: 1") != 0;) {
    if (line.find("flags") == 0 || line.find("Features") == 0 || line.find("model name") == 0) flags += line;
  }
  return "-march=native -DKEVIN_PROCESSOR=" + std::to_string(std::hash<std::string>()(flags)) + "UL ";
}

// What all candidates of a library include, precompiled: to parse the emulation of CUDA takes longer than most candidates.
class Heads {
 public:
  // A folder with the header head.h, for -include. Kept as long as this process.
  const std::string& Of(const std::string& flags, const std::string& head) {
    std::string& folder = folders_[{flags, head}];
    if (!folder.empty()) return folder;
    folder = MakeFolder();
    std::filesystem::create_directory_symlink(SourceFolder() / "tests", folder + "/tests");
    std::ofstream file(folder + "/contents.h");
    for (const std::string& include : kIncludes) file << include;
    file << head << "\n";
    file.close();
    RunCompiler(folder, "contents.h", "head.h.gch", flags + " -x c++-header");
    std::ofstream(folder + "/head.h") << "#error the precompiled form is not used\n";
    return folder;
  }

  ~Heads() {
    std::error_code ignored;
    for (const auto& [key, folder] : folders_) std::filesystem::remove_all(folder, ignored);
  }

 private:
  std::map<std::pair<std::string, std::string>, std::string> folders_;  // by flags and head
};

}  // namespace

KernelLibrary::KernelLibrary(const std::vector<std::string>& sources, const std::string& flags,
                             const std::string& head)
    : handles_(std::min(kCompilers, sources.size())), functions_(sources.size()) {
  static Heads heads;
  static int libraries = 0;
  const size_t parts = handles_.size();
  const std::string all_flags = ThisProcessor() + flags, folder = heads.Of(all_flags, head);
  const std::string name = "library" + std::to_string(libraries++) + "_";
  std::vector<std::string> errors(parts);
  std::vector<std::thread> compilers;
  for (size_t part = 0; part < parts; ++part) {
    compilers.emplace_back([&, part] {
      const std::string base = name + std::to_string(part);
      std::ofstream file(folder + "/" + base + ".cc");
      for (size_t i = part; i < sources.size(); i += parts) file << Nested(sources[i], i);
      file.close();
      try {
        RunCompiler(folder, base + ".cc", base + ".o", all_flags + " -c -include head.h");
        RunCompiler(folder, base + ".o", base + ".so", "-shared", true);
      } catch (const std::exception& error) {
        errors[part] = error.what();
      }
    });
  }
  for (std::thread& compiler : compilers) compiler.join();
  for (size_t part = 0; part < parts; ++part) {
    if (!errors[part].empty()) throw std::runtime_error(errors[part]);
    // Stays loaded: OpenMP's threads may still be inside it when this object ends.
    handles_[part] =
        dlopen((folder + "/" + name + std::to_string(part) + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handles_[part] == nullptr) throw std::runtime_error(dlerror());
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    functions_[i] = dlsym(handles_[i % parts], ("launch_" + std::to_string(i)).c_str());
    if (functions_[i] == nullptr) throw std::runtime_error(dlerror());
  }
}

void KernelLibrary::Launch(size_t index, const std::vector<void*>& t) const {
  void* function = functions_.at(index);
  const auto call = [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    using Function = void (*)(std::conditional_t<kAt == 0, void*, void*>...);
    reinterpret_cast<Function>(function)(t[kAt]...);
  };
  switch (t.size()) {
    case 1:
      return call(std::make_index_sequence<1>());
    case 2:
      return call(std::make_index_sequence<2>());
    case 3:
      return call(std::make_index_sequence<3>());
    case 4:
      return call(std::make_index_sequence<4>());
    case 5:
      return call(std::make_index_sequence<5>());
    case 6:
      return call(std::make_index_sequence<6>());
    case 7:
      return call(std::make_index_sequence<7>());
    case 8:
      return call(std::make_index_sequence<8>());
    default:
      break;
  }
  throw std::runtime_error("a kernel with " + std::to_string(t.size()) + " tensors");
}

bool Compiles(const std::string& source, const std::string& flags) {
  const std::string folder = MakeFolder();
  std::ofstream(folder + "/kernel.cc") << source;
  bool compiles = true;
  try {
    RunCompiler(folder, "kernel.cc", "kernel.o", flags + " -c");
  } catch (const std::exception&) {
    compiles = false;
  }
  std::filesystem::remove_all(folder);
  return compiles;
}

std::string ToCpp(const std::string& cuda_source) {
  std::string text = cuda_source;
  for (size_t at = text.find("#include"); at != std::string::npos; at = text.find("#include")) {
    text.erase(at, text.find('\n', at) - at);
  }
  const auto replace = [&](const char* pattern, const std::string& by) {
    text = std::regex_replace(text, std::regex(pattern), by);
  };
  const std::regex cluster("__cluster_dims__\\((\\w+), 1, 1\\) void __launch_bounds__\\([^)]*\\) (\\w+)\\(");
  for (std::sregex_iterator one(cuda_source.begin(), cuda_source.end(), cluster), end; one != end; ++one) {
    const std::string blocks = (*one)[1], name = (*one)[2];
    replace(
        ("\\b" + name + "<<<(.*)>>>\\((.*)\\);").c_str(),
        "emulated::Run(emulated::Configuration($1).Clusters(" + blocks + "), [&] { " + name + "($2); });");
  }
  replace("(\\w+)<<<(.*)>>>\\((.*)\\);", "emulated::Run(emulated::Configuration($2), [&] { $1($3); });");
  replace("extern __shared__ (\\w+) (\\w+)\\[\\];",
          "$1* $2 = ($1*)emulated::self->block->dynamic_shared.data();");
  replace("__shared__ (\\w+) (\\w+)((?:\\[[^\\]]*\\])+);",
          "typedef $1 $2_shared$3; static char $2_key; "
          "$2_shared& $2 = *($2_shared*)emulated::Shared(&$2_key, sizeof($2_shared));");
  replace(
      "INLINE void (CopyAsync|CommitCopies|WaitForCopies|MultiplyTf32|ContractCopy|ContractCommit|ContractWait|ContractMmaTf32|ContractMatrix|ContractMma|ContractBarrier|ContractBarriersReady|ContractExpect|ContractArrive|ContractAwait|ContractFetch|ContractRegisters|ContractOpen|ContractClose|ContractDone|ContractWarpgroup|AttendPack|AttendUnpack|AttendPower)\\(",
      "INLINE void Device$1(");
  replace("INLINE unsigned ContractShared\\(", "INLINE unsigned DeviceContractShared(");
  replace("INLINE float (MaxOrNan|MinOrNan)\\(", "INLINE float Device$1(");
  replace("#include <cuda_(fp16|bf16).h>", "");
  replace("void launch\\(", "extern \"C\" void launch(");
  return text;
}

}  // namespace kevin::test
