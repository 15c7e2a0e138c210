#include "env/sandbox/evaluator_sandbox.h"

#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "env/process/machine.h"
#include "env/process/spawn.h"
#include "env/sandbox/sandbox.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// The folders of a torch package and of the packages beside it that its CUDA library opens.
constexpr const char* kBesideTorch[] = {"nvidia", "cusparselt"};

using Folders = std::set<fs::path>;

// Under the name by which the loader finds it, and under its own.
void Add(const fs::path& folder, Folders* folders) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return;
  for (const fs::path& path : {fs::absolute(folder, error), fs::canonical(folder, error)}) {
    if (!error && path != "/") folders->insert(path.lexically_normal());
  }
}

// The libraries that are loaded now, and the places where the loader looks for more.
Folders LibraryFolders() {
  Folders folders;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const fs::path library = info->dlpi_name;
        if (!library.is_absolute()) return 0;
        const fs::path folder = library.parent_path();
        Add(folder, static_cast<Folders*>(found));
        if (library.filename().string().rfind("libtorch_cpu.so", 0) != 0) return 0;
        for (const char* package : kBesideTorch)
          Add(folder / "../.." / package, static_cast<Folders*>(found));
        return 0;
      },
      &folders);
  const char* path = std::getenv("LD_LIBRARY_PATH");
  std::istringstream listed(path ? path : "");
  for (std::string folder; std::getline(listed, folder, ':');) {
    if (!folder.empty()) Add(folder, &folders);
  }
  return folders;
}

}  // namespace

void EnterEvaluatorSandbox(const EvaluatorSandbox& options) {
  const fs::path locks = DeviceLock::Directory();
  setenv("KEVIN_LOCK_DIRECTORY", locks.c_str(), 1);
  Folders folders = LibraryFolders();
  Add(ProgramDirectory(), &folders);
  for (const fs::path& path : options.visible) Add(path, &folders);
  SandboxOptions sandbox;
  sandbox.profile = SandboxProfile::kEvaluator;
  sandbox.namespaces = options.namespaces;
  sandbox.gpu = options.gpu;
  sandbox.read_only.assign(folders.begin(), folders.end());
  sandbox.writable = {locks};
  EnterSandbox(sandbox);
}

void EnterReferenceSandbox() {
  const Folders folders = LibraryFolders();
  SandboxOptions sandbox;
  sandbox.profile = SandboxProfile::kReference;
  sandbox.namespaces = false;  // in those of its evaluator already
  sandbox.read_only.assign(folders.begin(), folders.end());
  EnterSandbox(sandbox);
}

}  // namespace kevin
