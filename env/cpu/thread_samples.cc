#include "env/cpu/thread_samples.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <utility>

#include "env/process/shared_memory.h"

namespace kevin {
namespace {

constexpr size_t kMostThreads = 1024, kMostAddresses = 20'000;
constexpr size_t kLongestHeader = 16 << 20;
constexpr uint64_t kLeastRun_ns = 50'000;  // being stopped and woken takes less

constexpr const char* kOther = "another library";
constexpr const char* kFolderOfBuilt = "/tmp/candidate/";  // env/python/caller.py

// The file of a compiled kernel, or an extension of a candidate in Python (env/python/build_candidate.py).
bool HasNameOfCandidate(const std::string& file) {
  return file == "candidate.so" || file.starts_with("memfd:kevin-candidate") || file.starts_with("own-");
}

// The library's name, or nullptr: not one of these. Never the file's own name, which a candidate may have chosen.
const char* NameOf(const std::string& file,
                   std::initializer_list<std::pair<const char*, const char*>> libraries) {
  for (const auto& [prefix, name] : libraries) {
    if (file.starts_with(prefix)) return name;
  }
  return nullptr;
}

const char* LibraryOf(const std::string& file) {
  return NameOf(file, {{"libtorch", "torch"}, {"libmkl", "MKL"}, {"libdnnl", "oneDNN"}});
}

bool IsBinding(const std::string& file) {
  return file.starts_with("libtorch_python.") || file.starts_with("libc10.") ||
         file.starts_with("kevin-python-worker.");
}

bool IsInterpreter(const std::string& file) {
  return file.starts_with("python3") || file.starts_with("libpython3");
}

// What every program has, and Python's own modules: calls into them are on neither side.
bool IsOfSystem(const std::string& path, const std::string& file) {
  if (path.starts_with("[v") || path.find("/lib-dynload/") != std::string::npos) return true;
  constexpr const char* kLibraries[] = {"libc.",     "libc-",       "ld-",         "libstdc++.",
                                        "libgcc_s.", "libpthread.", "libpthread-", "libdl.",
                                        "libdl-",    "librt.",      "librt-",      "libffi."};
  return std::any_of(std::begin(kLibraries), std::end(kLibraries),
                     [&](const char* prefix) { return file.starts_with(prefix); });
}

bool IsTriton(const std::string& file) { return file.starts_with("libtriton"); }

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

std::map<std::string, std::string> BuiltLibraries(int bundle_fd) {
  if (bundle_fd < 0) return {};
  const std::string content = ReadSharedFile(bundle_fd);
  const size_t line = content.find('\n');  // a line of JSON, and the files behind it
  std::map<std::string, std::string> libraries;
  if (line > kLongestHeader) return libraries;
  try {
    const nlohmann::json header = nlohmann::json::parse(content.substr(0, line));
    size_t at = line + 1;
    for (const nlohmann::json& file : header.at("files")) {
      const std::string& name = file.at("name").get_ref<const std::string&>();
      const std::string bytes = content.substr(at, file.at("bytes").get<uint32_t>());
      at += bytes.size();
      if (HasNameOfCandidate(name)) libraries[name] = bytes;
    }
  } catch (const std::exception&) {  // the candidate's code ran in the process that wrote it
    return {};
  }
  return libraries;
}

int ThreadSamples::All() const {
  return std::accumulate(in_candidate.begin(), in_candidate.end(),
                         waiting + math + library + binding + products + system + elsewhere,
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
  maps_.clear();
  std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    Mapped mapped;
    unsigned long begin = 0, end = 0, offset = 0;
    char rights[5] = {};
    int path = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %*s %*s %n", &begin, &end, rights, &offset, &path) < 4)
      continue;
    mapped.path = path > 0 ? line.substr(static_cast<size_t>(path)) : "";
    mapped.file = mapped.path.substr(mapped.path.rfind('/') + 1);
    mapped.begin = begin, mapped.end = end, mapped.offset = offset, mapped.base = begin - offset;
    // The first part of a library begins with its first byte: the others lie as the library says.
    if (!maps_.empty() && offset > 0 && maps_.back().path == mapped.path) mapped.base = maps_.back().base;
    mapped.is_own = std::strchr(rights, 'x') != nullptr && IsOwn(mapped);
    mapped.may_be_written = MayBeWritten(mapped.path);
    maps_.push_back(std::move(mapped));
  }
}

// By a candidate in Python. A file there, or memory of no file, may hold a copy of anything.
bool ThreadSampler::MayBeWritten(const std::string& path) const {
  if (!code_ || path == "[vdso]" || path == "[vsyscall]") return false;
  const auto lies_in = [&](const std::filesystem::path& folder) {
    return path.starts_with(folder.string() + "/");
  };
  constexpr const char* kSystem[] = {"/usr", "/lib", "/lib64", "/bin", "/opt"};
  return std::none_of(std::begin(kSystem), std::end(kSystem), lies_in) &&
         std::none_of(code_->read_only.begin(), code_->read_only.end(), lies_in);
}

bool ThreadSampler::IsOwn(const Mapped& mapped) const {
  if (!HasNameOfCandidate(mapped.file)) return false;
  if (!code_) return true;
  const auto built = code_->built.find(mapped.file);
  if (built == code_->built.end() || mapped.path != kFolderOfBuilt + mapped.file ||
      mapped.offset >= built->second.size())
    return false;
  // The linker changes no code, so that memory holds the file's bytes.
  const size_t bytes = std::min<size_t>(mapped.end - mapped.begin, built->second.size() - mapped.offset);
  std::string held(bytes, '\0');
  const Fd memory(open(("/proc/" + std::to_string(pid_) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  return memory &&
         pread(memory.get(), held.data(), bytes, static_cast<off_t>(mapped.begin)) ==
             static_cast<ssize_t>(bytes) &&
         std::memcmp(held.data(), built->second.data() + mapped.offset, bytes) == 0;
}

void ThreadSampler::Add(uint64_t address) {
  const auto find = [&] {
    return std::find_if(maps_.begin(), maps_.end(), [address](const Mapped& mapped) {
      return mapped.begin <= address && address < mapped.end;
    });
  };
  const auto at = find();
  if (at == maps_.end()) {
    ++samples_.elsewhere;
    samples_.foreign[kOther] += code_.has_value();
  } else if (at->is_own) {
    if (samples_.in_candidate.size() < kMostAddresses) ++samples_.in_candidate[address - at->base];
  } else if (at->may_be_written) {
    ++samples_.elsewhere;
    ++samples_.foreign[kOther];
  } else if (at->file.starts_with("libgomp") || at->file.starts_with("libomp") ||
             at->file.starts_with("libiomp")) {
    ++samples_.waiting;
  } else if (at->file.starts_with("libm.") || at->file.starts_with("libm-") ||
             at->file.starts_with("libmvec")) {
    ++samples_.math;
  } else {
    AddToLibrary(*at);
  }
}

void ThreadSampler::AddToLibrary(const Mapped& mapped) {
  const std::string& file = mapped.file;
  if (IsBinding(file)) {
    ++samples_.binding;
  } else if (const char* library = LibraryOf(file)) {
    ++samples_.library;
    ++samples_.by_library[library];
  } else if (const char* products = ProductsOf(file)) {
    ++samples_.products;
    ++samples_.by_library[products];
  } else {
    ++samples_.elsewhere;
    if (IsInterpreter(file)) {
      ++samples_.python;
    } else if (IsTriton(file)) {
      ++samples_.triton;
    } else if (!IsOfSystem(mapped.path, file)) {
      ++samples_.foreign[mapped.path.find("/numpy/") == std::string::npos ? kOther : kNumpy];
    }
  }
}

}  // namespace kevin
