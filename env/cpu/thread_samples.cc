#include "env/cpu/thread_samples.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <numeric>
#include <sstream>
#include <utility>

namespace kevin {
namespace {

constexpr size_t kMostThreads = 1024, kMostMaps = 2000, kMostAddresses = 20'000;
constexpr uint64_t kLeastRun_ns = 50'000;  // being stopped and woken takes less

bool IsCandidate(const std::string& file) {
  return file == "candidate.so" || file.rfind("memfd:kevin-candidate", 0) == 0 ||
         file.rfind("own-", 0) == 0;  // an extension of a candidate in Python (env/python/build_candidate.py)
}

// The library's name, or nullptr: not one of these. Never the file's own name, which a candidate may have chosen.
const char* NameOf(const std::string& file,
                   std::initializer_list<std::pair<const char*, const char*>> libraries) {
  for (const auto& [prefix, name] : libraries) {
    if (file.rfind(prefix, 0) == 0) return name;
  }
  return nullptr;
}

const char* LibraryOf(const std::string& file) {
  return NameOf(file, {{"libtorch", "torch"}, {"libc10", "torch"}, {"libmkl", "MKL"}, {"libdnnl", "oneDNN"}});
}

bool IsInterpreter(const std::string& file) {
  return file.rfind("python3", 0) == 0 || file.rfind("libpython3", 0) == 0;
}

bool IsTriton(const std::string& file) { return file.rfind("libtriton", 0) == 0; }

const char* ProductsOf(const std::string& file) {
  return NameOf(file, {{"libopenblas", "OpenBLAS"}, {"libscipy_openblas", "OpenBLAS"}});
}

// "running", "202 0x1 ... SP PC", "-1 SP PC"
struct Place {
  long call = -1;
  uint64_t address = 0;
};

bool Read(const std::string& path, Place* place) {
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text)) return false;
  const size_t last = text.rfind(' ');
  unsigned long long address = 0;
  if (last == std::string::npos || std::sscanf(text.c_str(), "%ld", &place->call) != 1 ||
      std::sscanf(text.c_str() + last, "%llx", &address) != 1)
    return false;
  place->address = address;
  return true;
}

}  // namespace

int ThreadSamples::All() const {
  return std::accumulate(in_candidate.begin(), in_candidate.end(),
                         waiting + math + library + products + system + elsewhere,
                         [](int sum, const auto& at) { return sum + at.second; });
}

void ThreadSampler::Take() {
  if (maps_.empty()) ReadMaps();
  const int waiting = samples_.waiting;
  int taken = 0;
  std::error_code ended;
  size_t threads = 0;
  for (std::filesystem::directory_iterator task("/proc/" + std::to_string(pid_) + "/task", ended), end;
       !ended && task != end && threads < kMostThreads; task.increment(ended), ++threads) {
    Place place;
    if (!Read((task->path() / "syscall").string(), &place)) continue;
    ++taken;
    if (place.call == SYS_futex) {
      ++samples_.waiting;
    } else if (place.call >= 0) {
      ++samples_.system;
    } else if (HasRun(task->path().string())) {
      Add(place.address);
    }
  }
  ++(taken > 0 ? samples_.moments : samples_.unreadable);
  // A moment at which every thread waits lies between calls: no thread waits for another one there.
  if (samples_.waiting - waiting == taken) samples_.waiting = waiting;
}

// True where the machine does not tell.
bool ThreadSampler::HasRun(const std::string& task) {
  std::ifstream file(task + "/schedstat");
  uint64_t ran_ns = 0;
  if (!(file >> ran_ns)) return true;
  if (ran_ns_.size() >= kMostAddresses) ran_ns_.clear();
  const auto [at, is_new] = ran_ns_.try_emplace(task, ran_ns);
  if (!is_new && ran_ns < at->second + kLeastRun_ns) return false;
  at->second = ran_ns;
  return true;
}

void ThreadSampler::ReadMaps() {
  std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
  for (std::string line; std::getline(maps, line) && maps_.size() < kMostMaps;) {
    Mapped mapped;
    unsigned long begin = 0, end = 0, offset = 0;
    int path = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %*s %n", &begin, &end, &offset, &path) < 3) continue;
    const std::string name = path > 0 ? line.substr(static_cast<size_t>(path)) : "";
    mapped.file = name.substr(name.rfind('/') + 1);
    mapped.begin = begin, mapped.end = end, mapped.base = begin - offset;
    // The first part of a library begins with its first byte: the others lie as the library says.
    if (!maps_.empty() && offset > 0 && maps_.back().file == mapped.file) mapped.base = maps_.back().base;
    maps_.push_back(mapped);
  }
}

void ThreadSampler::Add(uint64_t address) {
  const auto at = std::find_if(maps_.begin(), maps_.end(), [address](const Mapped& mapped) {
    return mapped.begin <= address && address < mapped.end;
  });
  if (at == maps_.end()) {
    ++samples_.elsewhere;
  } else if (IsCandidate(at->file)) {
    if (samples_.in_candidate.size() < kMostAddresses) ++samples_.in_candidate[address - at->base];
  } else if (at->file.rfind("libgomp", 0) == 0 || at->file.rfind("libomp", 0) == 0) {
    ++samples_.waiting;
  } else if (at->file.rfind("libm.", 0) == 0 || at->file.rfind("libm-", 0) == 0 ||
             at->file.rfind("libmvec", 0) == 0) {
    ++samples_.math;
  } else if (const char* library = LibraryOf(at->file)) {
    ++samples_.library;
    ++samples_.by_library[library];
  } else if (const char* products = ProductsOf(at->file)) {
    ++samples_.products;
    ++samples_.by_library[products];
  } else {
    samples_.python += IsInterpreter(at->file);
    samples_.triton += IsTriton(at->file);
    ++samples_.elsewhere;
  }
}

}  // namespace kevin
