#pragma once
// torch/extension.h in precompiled form, for C++ of candidates in Python that Kevin's own headers do not serve, and for winners
// that are built again. env/python/torch_headers.py makes a set for the flags of a text, in the sandbox of compilers; no candidate
// takes part. With it g++ takes a third of the time; making one takes as long as two builds and 800 MB of disk (RESULTS.md). So a
// set is made when builds of a process have asked for it several times, and two are kept. Functions of any thread.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "env/process/spawn.h"
#include "env/python/python_workers.h"

namespace kevin {

// The beginning of the paths of all sets for this Python and compiler. Its folder is made if needed.
std::filesystem::path TorchHeaderSets(const PythonSetup& setup, const std::string& compiler_version,
                                      const std::filesystem::path& cache_directory);

// The flags of the first set that a build has asked for: its lines about sets are taken out of what it printed. Others that it
// asked for are asked for again. A candidate may print such lines too.
std::optional<std::vector<std::string>> TakeWantedHeaders(std::string* output);

// Counts a request. `make` runs torch_headers.py with the flags in an empty folder; it is called at the third request of this
// process, which waits for it, and not again. It is not called while two sets are there that are younger than a day. Throws
// Error(kInterrupted) of `make`; whatever else fails only leaves the set unmade.
void CountWantedHeaders(const std::filesystem::path& sets, const std::vector<std::string>& flags,
                        const std::function<Ran(const std::filesystem::path& work)>& make);

inline constexpr int kRequestsOfTorchHeaders = 3;
// Of one file of a set.
inline constexpr int64_t kTorchHeadersMb = 2048;

}  // namespace kevin
