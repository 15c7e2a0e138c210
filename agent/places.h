#pragma once
// Where things are on this machine, and the environment's options from what the command line says.

#include <filesystem>
#include <string>

#include "env/environment.h"

namespace kevin {

std::filesystem::path CacheDirectory();  // $XDG_CACHE_HOME/kevin, else ~/.cache/kevin; not made
std::string CommandLine();               // of this process, words quoted where a shell would need it

// `isolation` is "full" or "reduced"; `threads` 0 means all cores of this process.
EnvironmentOptions EnvironmentOptionsFor(int threads, const std::string& isolation);

// A kernel's source. Throws Error(kBadRequest) when the file cannot be read, is empty or is larger than 512
// KiB.
std::string ReadSourceFile(const std::filesystem::path& path);

}  // namespace kevin
