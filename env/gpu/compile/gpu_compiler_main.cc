// kevin-gpu-compiler NVRTC [NVJITLINK]: compiles the requests from its socket, one after another, until the
// socket closes. The compile farm starts it inside the sandbox of compilers. It stays resident, so that the
// compiler and its precompiled headers are loaded once.

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "env/gpu/compile/compiler_protocol.h"

namespace kevin {
namespace {

// NVRTC and nvJitLink, loaded when first needed. Runs inside the compiler's sandbox and nowhere else.
class DeviceCompiler {
 public:
  // Paths of libnvrtc.so.N and libnvJitLink.so.N; the second may be empty.
  DeviceCompiler(std::string nvrtc, std::string nvjitlink)
      : nvrtc_(std::move(nvrtc)), nvjitlink_(std::move(nvjitlink)) {}
  CompilerReply Compile(const CompilerRequest& request);

 private:
  CompilerReply CompileCuda(const CompilerRequest& request);
  CompilerReply AssemblePtx(const CompilerRequest& request);
  // The library, or null and a reply with the reason.
  static void* Load(const std::string& path, void** handle, CompilerReply* reply);

  std::string nvrtc_, nvjitlink_;
  void* nvrtc_handle_ = nullptr;
  void* nvjitlink_handle_ = nullptr;
};

// Declared here because no CUDA header may be there when Kevin is built. The numbers are NVRTC's ABI.
using Program = void*;
constexpr int kSuccess = 0, kInvalidOption = 5, kCompilation = 6;
// nvJitLink: the text is no PTX, does not assemble, or is for another architecture.
constexpr int kLinkSuccess = 0, kLinkTextErrors[] = {3, 4, 8, 13};

template <typename Function>
Function Find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

std::vector<const char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<const char*> pointers;
  for (const std::string& string : strings) pointers.push_back(string.c_str());
  return pointers;
}

struct Nvrtc {
  explicit Nvrtc(void* library)
      : create(Find<decltype(create)>(library, "nvrtcCreateProgram")),
        destroy(Find<decltype(destroy)>(library, "nvrtcDestroyProgram")),
        add_name(Find<decltype(add_name)>(library, "nvrtcAddNameExpression")),
        compile(Find<decltype(compile)>(library, "nvrtcCompileProgram")),
        lowered_name(Find<decltype(lowered_name)>(library, "nvrtcGetLoweredName")),
        error_string(Find<decltype(error_string)>(library, "nvrtcGetErrorString")),
        library_(library) {}

  bool Whole() const { return create && destroy && add_name && compile && lowered_name && error_string; }

  // `what`: "CUBIN", "PTX" or "ProgramLog".
  std::string Get(Program program, const std::string& what) const {
    const auto size_of = Find<int (*)(Program, size_t*)>(library_, ("nvrtcGet" + what + "Size").c_str());
    const auto get = Find<int (*)(Program, char*)>(library_, ("nvrtcGet" + what).c_str());
    size_t size = 0;
    if (!size_of || !get || size_of(program, &size) != kSuccess || size > kMaxMessageBytes / 3) return {};
    std::string bytes(size, '\0');
    if (get(program, bytes.data()) != kSuccess) return {};
    return bytes;
  }

  std::string GetText(Program program, const std::string& what) const {
    std::string text = Get(program, what);
    text.resize(text.find('\0') == std::string::npos ? text.size() : text.find('\0'));
    return text;
  }

  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(Program*);
  int (*add_name)(Program, const char*);
  int (*compile)(Program, int, const char* const*);
  int (*lowered_name)(Program, const char*, const char**);
  const char* (*error_string)(int);

 private:
  void* library_;
};

CompilerReply Failed(const std::string& why) {
  CompilerReply reply;
  reply.log = why;
  return reply;
}

// A log can be gigabytes of template errors; its end matters too (the assembler's report).
std::string Shortened(std::string log) {
  if (log.size() > kMaxRawLogBytes) log.erase(kMaxRawLogBytes / 2, log.size() - kMaxRawLogBytes);
  return log;
}

void Collect(const Nvrtc& nvrtc, Program program, const CompilerRequest& request, CompilerReply* reply) {
  reply->cubin = nvrtc.Get(program, "CUBIN");
  reply->ptx = nvrtc.GetText(program, "PTX");
  for (const std::string& name : request.names) {
    const char* lowered = nullptr;
    nvrtc.lowered_name(program, name.c_str(), &lowered);
    reply->lowered_names.emplace_back(lowered ? lowered : "");
  }
  if (!reply->cubin.empty() && !reply->ptx.empty()) reply->status = CompilerStatus::kCompiled;
}

void* DeviceCompiler::Load(const std::string& path, void** handle, CompilerReply* reply) {
  if (!*handle) *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!*handle) *reply = Failed(dlerror());
  return *handle;
}

CompilerReply DeviceCompiler::Compile(const CompilerRequest& request) {
  return request.kind == "ptx" ? AssemblePtx(request) : CompileCuda(request);
}

CompilerReply DeviceCompiler::CompileCuda(const CompilerRequest& request) {
  CompilerReply reply;
  void* library = Load(nvrtc_, &nvrtc_handle_, &reply);
  if (!library) return reply;
  const Nvrtc nvrtc(library);
  if (!nvrtc.Whole()) return Failed(nvrtc_ + " is not NVRTC");
  std::vector<std::string> names, texts;
  for (const auto& [name, text] : request.headers) {
    names.push_back(name);
    texts.push_back(text);
  }
  Program program = nullptr;
  const int made =
      nvrtc.create(&program, request.text.c_str(), "candidate.cu", static_cast<int>(names.size()),
                   Pointers(texts).data(), Pointers(names).data());
  if (made != kSuccess) return Failed(nvrtc.error_string(made));
  for (const std::string& name : request.names) nvrtc.add_name(program, name.c_str());
  const int result =
      nvrtc.compile(program, static_cast<int>(request.options.size()), Pointers(request.options).data());
  reply.log = Shortened(nvrtc.GetText(program, "ProgramLog"));
  const bool exhausted = reply.log.find("catastrophic error: out of memory") != std::string::npos;
  if (result == kSuccess) {
    Collect(nvrtc, program, request, &reply);
  } else if (result == kCompilation && !exhausted) {
    reply.status = CompilerStatus::kTextHasErrors;
  } else {
    reply.status = result == kInvalidOption ? CompilerStatus::kNotUsable : CompilerStatus::kCompilerFailed;
    reply.log += std::string(reply.log.empty() ? "" : "\n") + nvrtc.error_string(result);
  }
  nvrtc.destroy(&program);
  return reply;
}

CompilerReply DeviceCompiler::AssemblePtx(const CompilerRequest& request) {
  CompilerReply reply;
  void* library = Load(nvjitlink_, &nvjitlink_handle_, &reply);
  if (!library) return reply;
  using Handle = void*;
  const auto create = Find<int (*)(Handle*, uint32_t, const char**)>(library, "nvJitLinkCreate");
  const auto destroy = Find<int (*)(Handle*)>(library, "nvJitLinkDestroy");
  const auto add = Find<int (*)(Handle, int, const void*, size_t, const char*)>(library, "nvJitLinkAddData");
  const auto complete = Find<int (*)(Handle)>(library, "nvJitLinkComplete");
  if (!create || !destroy || !add || !complete) return Failed(nvjitlink_ + " is not nvJitLink");
  const auto get = [&](Handle handle, const std::string& what) {
    const auto size_of = Find<int (*)(Handle, size_t*)>(library, ("nvJitLinkGet" + what + "Size").c_str());
    const auto copy = Find<int (*)(Handle, void*)>(library, ("nvJitLinkGet" + what).c_str());
    size_t size = 0;
    if (!size_of || !copy || size_of(handle, &size) != kLinkSuccess || size > kMaxMessageBytes / 3)
      return std::string();
    std::string bytes(size, '\0');
    if (copy(handle, bytes.data()) != kLinkSuccess) bytes.clear();
    return bytes;
  };
  std::vector<const char*> options = Pointers(request.options);
  Handle handle = nullptr;
  const int made = create(&handle, static_cast<uint32_t>(options.size()), options.data());
  if (made != kLinkSuccess) return Failed("nvJitLink cannot start: error " + std::to_string(made));
  constexpr int kInputPtx = 2;
  int result = add(handle, kInputPtx, request.text.c_str(), request.text.size() + 1, "candidate.ptx");
  if (result == kLinkSuccess) result = complete(handle);
  reply.log = get(handle, "ErrorLog").c_str();  // up to the first zero byte
  reply.log += get(handle, "InfoLog").c_str();
  reply.log = Shortened(reply.log);
  if (result == kLinkSuccess) {
    reply.cubin = get(handle, "LinkedCubin");
    reply.ptx = request.text;
    if (!reply.cubin.empty()) reply.status = CompilerStatus::kCompiled;
  } else if (std::count(std::begin(kLinkTextErrors), std::end(kLinkTextErrors), result) != 0) {
    reply.status = CompilerStatus::kTextHasErrors;
  } else {
    reply.status = CompilerStatus::kCompilerFailed;
    reply.log += "\nnvJitLink: error " + std::to_string(result);
  }
  destroy(&handle);
  return reply;
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "kevin-gpu-compiler is started by kevin; it has no use of its own\n");
    return 2;
  }
  // The working folder's name goes into the machine code's line information.
  if (chdir("/") != 0) return 1;
  signal(SIGPIPE, SIG_IGN);
  kevin::DeviceCompiler compiler(argv[1], argc > 2 ? argv[2] : "");
  for (std::string bytes; kevin::ReadMessage(kevin::kCompilerSocket, &bytes);) {
    kevin::CompilerRequest request;
    if (!kevin::FromBytes(bytes, &request)) return 1;
    if (!kevin::WriteMessage(kevin::kCompilerSocket, kevin::ToBytes(compiler.Compile(request)))) return 1;
  }
  return 0;
}
