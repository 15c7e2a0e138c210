#include "env/python/torch_headers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>

#include "env/error.h"
#include "env/problem/text.h"
#include "env/process/files.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// As in torch_headers.py.
constexpr std::string_view kWanted = "\nkevin-build: torch/extension.h for:";
constexpr const char* kFile = "torch/extension.h.gch";
constexpr size_t kMostSets = 2, kMostFlags = 64;
constexpr const char* kMaking = "make";  // before the names of folders in which sets are made
constexpr std::chrono::hours kLongestMaking{1}, kLeastKept{24};

bool IsThirdRequest(const fs::path& set) {
  static std::mutex mutex;
  static std::map<fs::path, int> requests;
  const std::lock_guard lock(mutex);
  return ++requests[set] == kRequestsOfTorchHeaders;
}

// Whether there is room for one more set, after the oldest was removed. What processes that were killed have left goes too.
bool MakeRoom(const fs::path& folder) {
  const auto now = fs::file_time_type::clock::now();
  std::vector<std::pair<fs::file_time_type, fs::path>> sets;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::file_time_type made = fs::last_write_time(entry.path(), error);
    if (fs::exists(entry.path() / kFile, error)) sets.emplace_back(made, entry.path());
    const bool is_left = entry.path().filename().string().starts_with(kMaking);
    if (is_left && made + kLongestMaking < now) fs::remove_all(entry.path(), error);
  }
  std::sort(sets.begin(), sets.end());
  for (size_t i = 0; i + kMostSets <= sets.size(); ++i) {
    if (sets[i].first + kLeastKept > now) return false;
    fs::remove_all(sets[i].second, error);
  }
  return true;
}

void Make(const fs::path& set, const std::function<Ran(const fs::path& work)>& make) {
  if (!MakeRoom(set.parent_path())) return;
  const WorkFolder temporary(set.parent_path(), kMaking);
  const fs::path work = temporary.path() / "work";
  fs::create_directory(work);
  const Ran ran = make(work);
  if (ran.timed_out || ran.status != 0 || !fs::is_regular_file(work / kFile)) return;
  fs::rename(work, set);
}

}  // namespace

fs::path TorchHeaderSets(const PythonSetup& setup, const std::string& compiler_version,
                         const fs::path& cache_directory) {
  const fs::path folder = cache_directory / "torch-headers";
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  return folder / Sha256Hex(setup.python + "\n" + setup.torch_version + "\n" + compiler_version + "\n" +
                            CpuModel() + CpuFeatures());
}

std::optional<std::vector<std::string>> TakeWantedHeaders(std::string* output) {
  std::optional<std::vector<std::string>> first;
  for (size_t at = output->find(kWanted); at != std::string::npos; at = output->find(kWanted, at)) {
    const size_t flags_at = at + kWanted.size(), end = output->find('\n', flags_at);
    std::istringstream line(output->substr(flags_at, end - flags_at));
    std::vector<std::string> flags;
    for (std::string flag; line >> flag;) flags.push_back(flag);
    const bool is_whole = end != std::string::npos && flags.size() <= kMostFlags;
    if (is_whole && !first) first = std::move(flags);
    output->erase(at, end == std::string::npos ? end : end + 1 - at);
  }
  return first;
}

void CountWantedHeaders(const fs::path& sets, const std::vector<std::string>& flags,
                        const std::function<Ran(const fs::path& work)>& make) {
  const fs::path set = sets.string() + "-" + Sha256Hex(fmt::format("{}", fmt::join(flags, "\n")));
  std::error_code error;
  if (fs::exists(set / kFile, error) || !IsThirdRequest(set)) return;
  try {
    Make(set, make);
  } catch (const Error& failure) {
    if (failure.code() == ExitCode::kInterrupted) throw;
  } catch (const fs::filesystem_error&) {
  }
}

}  // namespace kevin
