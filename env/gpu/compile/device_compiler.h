#pragma once
// NVRTC and nvJitLink, loaded when first needed. Runs inside the compiler's sandbox and nowhere else.

#include <string>

#include "env/gpu/compile/compiler_protocol.h"

namespace kevin {

class DeviceCompiler {
 public:
  // Paths of libnvrtc.so.N and libnvJitLink.so.N; the second may be empty.
  DeviceCompiler(std::string nvrtc, std::string nvjitlink)
      : nvrtc_(std::move(nvrtc)), nvjitlink_(std::move(nvjitlink)) {}
  CompilerReply Compile(const CompilerRequest& request);

 private:
  CompilerReply CompileCuda(const CompilerRequest& request);
  CompilerReply AssemblePtx(const CompilerRequest& request);
  // The library, or null and a reply that says why.
  static void* Load(const std::string& path, void** handle, CompilerReply* reply);

  std::string nvrtc_, nvjitlink_;
  void* nvrtc_handle_ = nullptr;
  void* nvjitlink_handle_ = nullptr;
};

}  // namespace kevin
