// The first calls of a candidate: in a process of their own that may start compilers, or, where they compile nothing, in the one
// that is timed afterwards. What either writes is hostile.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "env/gpu/judge/python_session.h"
#include "env/problem/text.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr size_t kExaminedKept = 8;
constexpr size_t kMostErrorCharacters = 3500, kMostNameCharacters = 400, kMostKernels = 200;
constexpr size_t kMostResultBytes = size_t{1} << 20;  // of the first line
constexpr off_t kMostFileBytes =
    (off_t{128} << 20) + kMostResultBytes;  // with caches, as in gpu_first_calls.py
constexpr double kMostCall_us = 1e12;

// The first line; empty: there is none of a possible length.
std::string ResultIn(int fd) {
  std::string text(kMostResultBytes, '\0');
  const ssize_t bytes = pread(fd, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  const size_t end = text.find('\n');
  return end == std::string::npos ? "" : text.substr(0, end);
}

std::string Bounded(const std::string& text, size_t most) {
  return Printable(std::string_view(text).substr(0, most));
}

bool IsTime(double us) { return std::isfinite(us) && us >= 0 && us <= kMostCall_us; }

// False: no result.
bool ReadExamined(const std::string& line, GpuPythonSession::Examined* examined) {
  try {
    const json told = json::parse(line);
    const std::string error = Bounded(told.at("error").get<std::string>(), kMostErrorCharacters);
    if (!error.empty()) {
      examined->error = error;
      return true;
    }
    std::vector<std::pair<std::string, double>> kernels;
    for (const json& kernel : told.at("kernels")) {
      const double us = kernel.at(1).get<double>();
      if (kernels.size() == kMostKernels || !IsTime(us)) return false;
      kernels.emplace_back(Bounded(kernel.at(0).get<std::string>(), kMostNameCharacters), us);
    }
    if (const json& us = told.at("device_us"); us.is_number() && us.get<double>() > 0 && IsTime(us))
      examined->device_us = us;
    if (const json us = told.value("least_us", json()); us.is_number() && us.get<double>() > 0 && IsTime(us))
      examined->least_us = us;
    examined->kernels = std::move(kernels);
    examined->error.clear();
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

// An archive begins with a name, one without files with zeros.
bool HasFilesBehind(const std::string& line, int fd) {
  char first = 0;
  return pread(fd, &first, 1, static_cast<off_t>(line.size()) + 1) == 1 && first != 0;
}

bool IsTooLarge(int fd) {
  struct stat file {};
  return fstat(fd, &file) != 0 || file.st_size > kMostFileBytes;
}

}  // namespace

GpuPythonSession::Examined GpuPythonSession::Examine(const std::string& key, int bundle_fd,
                                                     double timeout_s) {
  if (const Examined* known = Known(key)) return *known;
  Examined examined;
  examined.caches = std::make_shared<Fd>(CreateSharedFile("kevin-examined", 1));
  const std::unique_ptr<PythonSide> side = MakeSide("candidate", true, candidate_pool_bytes_);
  workers_.Settle();  // autotuners measure
  const std::vector<uint16_t> all = AllSlots();
  Draw(all);
  HandOut(*side, all);
  side->Send(JobOf("examine", *side), bundle_fd, examined.caches->get());
  const auto end = side->process().WaitReady(timeout_s);
  side->Kill();  // from here on the file stays as it is
  examined.timed_out = end && end->kind == ProcessEnd::Kind::kTimedOut;
  examined.error = end ? Bounded(end->message, kMostErrorCharacters) : "it left no result";
  const std::string line = ResultIn(examined.caches->get());
  const bool has_result = !examined.timed_out && ReadExamined(line, &examined);
  examined.has_compiled = has_result && HasFilesBehind(line, examined.caches->get());
  if (!has_result || IsTooLarge(examined.caches->get()))
    examined.caches = std::make_shared<Fd>(CreateSharedFile("kevin-nothing", 1));
  if (has_result) Keep(key, examined);
  return examined;
}

void GpuPythonSession::Keep(const std::string& key, const Examined& examined) {
  if (examined_.size() == kExaminedKept) examined_.pop_front();
  examined_.emplace_back(key, examined);
}

// The one that was asked for last is kept longest.
const GpuPythonSession::Examined* GpuPythonSession::Known(const std::string& key) {
  const auto known =
      std::find_if(examined_.begin(), examined_.end(), [&](const auto& entry) { return entry.first == key; });
  if (known == examined_.end()) return nullptr;
  examined_.splice(examined_.end(), examined_, known);
  return &examined_.back().second;
}

GpuPythonSession::Examined GpuPythonSession::ExamineLater(const std::string& key) {
  if (const Examined* known = Known(key)) return *known;
  Examined examined;
  examined.caches = std::make_shared<Fd>(CreateSharedFile("kevin-examined", 1));
  examined.is_due = true;
  return examined;
}

bool GpuPythonSession::ExamineIn(PythonSide& side, const std::string& key, std::span<const uint16_t> slots,
                                 double timeout_s, Examined* examined) {
  Draw(slots);
  HandOut(side, slots);
  if (side.process().RunExamined(slots, timeout_s)) return false;
  Examined told;
  if (!ReadExamined(ResultIn(examined->caches->get()), &told) || !told.error.empty() || told.kernels.empty())
    return false;
  told.caches = std::make_shared<Fd>(CreateSharedFile("kevin-nothing", 1));
  *examined = told;
  Keep(key, told);
  return true;
}

}  // namespace kevin
