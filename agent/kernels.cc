#include "agent/kernels.h"

#include <fmt/format.h>

namespace kevin {
namespace {

using Json = nlohmann::ordered_json;

std::string Bytes(int64_t bytes) {
  return bytes >= 1024 ? fmt::format("{:.3g} KB", static_cast<double>(bytes) / 1024)
                       : fmt::format("{} B", bytes);
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

}  // namespace

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
      fmt::format("{} <<<{}, {}>>>: {} registers", kernel.name, kernel.grid, kernel.block, kernel.registers);
  if (kernel.spill_store_bytes + kernel.spill_load_bytes > 0) {
    line += fmt::format(", {} written and {} read a thread for lack of registers",
                        Bytes(kernel.spill_store_bytes), Bytes(kernel.spill_load_bytes));
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
