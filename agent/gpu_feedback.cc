#include "agent/gpu_feedback.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "agent/json.h"
#include "agent/rates.h"
#include "agent/text.h"
#include "env/printable.h"

namespace kevin {
namespace {

constexpr size_t kMaxNameBytes = 100;
constexpr size_t kMaxAutotunedBytes = 300;

bool Spills(const KernelReport& kernel) { return kernel.spill_store_bytes + kernel.spill_load_bytes > 0; }

bool IsSame(const KernelReport& a, const KernelReport& b) { return KernelLine(a) == KernelLine(b); }

std::string Bytes(int64_t bytes) {
  return bytes >= 1024 ? fmt::format("{:.3g} KB", static_cast<double>(bytes) / 1024)
                       : fmt::format("{} B", bytes);
}

// All launches of equal kernels.
struct KernelTime {
  KernelReport kernel;
  int launches = 0;
  double us = 0;  // 0: unknown
};

std::vector<KernelTime> SlowestFirst(const Evaluation& e, const Diagnosis* diagnosis) {
  std::vector<KernelTime> distinct;
  for (size_t i = 0; i < e.kernels.size(); ++i) {
    auto at = std::find_if(distinct.begin(), distinct.end(),
                           [&](const KernelTime& other) { return IsSame(e.kernels[i], other.kernel); });
    if (at == distinct.end()) at = distinct.insert(at, KernelTime{e.kernels[i], 0, 0});
    ++at->launches;
    for (const LaunchTime& launch : diagnosis ? diagnosis->launches : std::vector<LaunchTime>()) {
      if (launch.index == static_cast<int>(i)) at->us += launch.us;
    }
  }
  std::stable_sort(distinct.begin(), distinct.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.us > b.us; });
  return distinct;
}

// ", 3 launches, 12.5 us (62 % of all)"
std::string TimeNote(const KernelTime& kernel, const std::vector<KernelTime>& all) {
  double all_us = 0;
  for (const KernelTime& other : all) all_us += other.us;
  std::string text = kernel.launches > 1 ? fmt::format(", {} launches", kernel.launches) : "";
  if (all_us <= 0) return text;
  return text + fmt::format(", {} us ({} of all launches)", SignificantText(kernel.us, 3),
                            PercentText(kernel.us / all_us));
}

KernelReport KernelFromJson(const Json& json) {
  KernelReport kernel;
  kernel.name = json.value("name", "");
  kernel.grid = json.value("grid", "");
  kernel.block = json.value("block", "");
  kernel.registers = json.value("registers", 0);
  kernel.static_shared_bytes = json.value("static_shared_bytes", int64_t{0});
  kernel.dynamic_shared_bytes = json.value("dynamic_shared_bytes", int64_t{0});
  kernel.spill_store_bytes = json.value("spill_store_bytes", int64_t{0});
  kernel.spill_load_bytes = json.value("spill_load_bytes", int64_t{0});
  kernel.occupancy = json.value("occupancy", 0.0);
  kernel.limited_by = json.value("limited_by", "");
  return kernel;
}

// What Triton's autotuner chose, by lines of the log (env/python/autotune.py): words of the candidate's own process.
std::string AutotunedNotes(const Evaluation& e) {
  constexpr std::string_view kBegin = "autotuned ";
  std::string text;
  if (e.backend != "triton") return text;
  size_t shown = 0, end = 0;
  for (size_t at = 0; at < e.log.size() && shown < kMaxKernelsShown; at = end + 1) {
    end = std::min(e.log.find('\n', at), e.log.size());
    const std::string line = e.log.substr(at, end - at);
    if (!line.starts_with(kBegin)) continue;
    text += fmt::format("Triton's autotuner chose {}\n",
                        Clip(Printable(line.substr(kBegin.size())), kMaxAutotunedBytes));
    ++shown;
  }
  return text;
}

}  // namespace

std::string KernelNotes(const Evaluation& e, const Diagnosis* diagnosis) {
  const std::vector<KernelTime> kernels = SlowestFirst(e, diagnosis);
  std::string text;
  for (size_t i = 0; i < std::min(kernels.size(), kMaxKernelsShown); ++i)
    text += fmt::format("- {}{}\n", KernelLine(kernels[i].kernel), TimeNote(kernels[i], kernels));
  if (kernels.size() > kMaxKernelsShown)
    text += fmt::format("- ({} more kernels)\n", kernels.size() - kMaxKernelsShown);
  if (std::any_of(e.kernels.begin(), e.kernels.end(), Spills)) {
    text +=
        "Register spills go through local memory: keep fewer values alive at once (smaller tiles, "
        "less unrolling), or allow more registers with __launch_bounds__ and smaller blocks.\n";
  }
  text += AutotunedNotes(e);
  if (!Trim(e.profile).empty()) text += fmt::format("Profiler: {}\n", Trim(e.profile));
  return std::string(TrimRight(text));
}

Json KernelsJson(const std::vector<KernelReport>& kernels) {
  Json list = Json::array();
  for (const KernelReport& kernel : kernels) {
    list.push_back({{"name", kernel.name},
                    {"grid", kernel.grid},
                    {"block", kernel.block},
                    {"registers", kernel.registers},
                    {"static_shared_bytes", kernel.static_shared_bytes},
                    {"dynamic_shared_bytes", kernel.dynamic_shared_bytes},
                    {"spill_store_bytes", kernel.spill_store_bytes},
                    {"spill_load_bytes", kernel.spill_load_bytes},
                    {"occupancy", kernel.occupancy},
                    {"limited_by", kernel.limited_by}});
  }
  return list;
}

std::string KernelsText(const std::vector<KernelReport>& kernels) {
  if (kernels.empty()) return "";
  return KernelsJson(kernels).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<KernelReport> KernelsFromText(const std::string& text) {
  std::vector<KernelReport> kernels;
  try {
    for (const Json& kernel : Json::parse(text.empty() ? "[]" : text))
      kernels.push_back(KernelFromJson(kernel));
  } catch (const Json::exception&) {
    kernels.clear();
  }
  return kernels;
}

std::string KernelLine(const KernelReport& kernel) {
  std::string line =
      fmt::format("{} <<<{}, {}>>>: {} registers", Clip(PrintableLine(kernel.name), kMaxNameBytes),
                  kernel.grid, kernel.block, kernel.registers);
  if (kernel.spill_store_bytes + kernel.spill_load_bytes > 0) {
    line += fmt::format(", spills {} of stores and {} of loads per thread", Bytes(kernel.spill_store_bytes),
                        Bytes(kernel.spill_load_bytes));
  }
  const int64_t shared = kernel.static_shared_bytes + kernel.dynamic_shared_bytes;
  if (shared > 0) line += fmt::format(", {} shared memory", Bytes(shared));
  if (kernel.occupancy > 0) {
    line += fmt::format(", occupancy {:.0f} %", 100 * kernel.occupancy);
    if (!kernel.limited_by.empty()) line += fmt::format(" (limited by {})", kernel.limited_by);
  }
  return line;
}

}  // namespace kevin
