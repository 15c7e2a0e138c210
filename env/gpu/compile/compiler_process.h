#pragma once
// One resident kevin-gpu-compiler in its sandbox. Used by one thread at a time, and only by the thread that
// started it for as long as that lives: the kernel ends the compiler together with that thread.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "env/gpu/compile/compile_farm.h"
#include "env/gpu/compile/compiler_protocol.h"
#include "env/process/files.h"
#include "env/process/shared_memory.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

enum class CompilerAnswer { kReplied, kTimedOut, kDied };

class CompilerProcess {
 public:
  CompilerProcess() = default;
  // Starts it; `folders` can be read beside the toolchain. Throws Error(kBroken).
  CompilerProcess(const CudaToolchain& toolchain, const CompileFarmOptions& options,
                  std::vector<std::filesystem::path> folders);
  bool Running() const { return socket_.get() >= 0; }
  const std::vector<std::filesystem::path>& folders() const { return folders_; }
  // Unless it replied, the process is gone afterwards and, if it died by itself, *how says how. Throws
  // Error(kBroken) when its sandbox could not be set up.
  CompilerAnswer Ask(const std::string& request, double timeout_s, CompilerReply* reply, std::string* how);

 private:
  CompilerAnswer Exchange(const std::string& request, double timeout_s, std::string* bytes) const;
  std::string Obituary();

  std::vector<std::filesystem::path> folders_;
  std::unique_ptr<WorkFolder> work_;  // NVRTC wants one for its precompiled headers
  Fd socket_, messages_;              // messages: what it wrote to its standard error
  ChildProcess process_;
};

}  // namespace kevin
