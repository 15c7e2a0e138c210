#include "env/kinds.h"

namespace kevin {

std::string FileEnding(const std::string& kind) { return kind == "cuda" ? "cu" : kind; }

std::string KindOfFile(const std::filesystem::path& path) {
  const std::string ending = path.extension();
  if (ending == ".cpp" || ending == ".cc" || ending == ".cxx") return "cpp";
  if (ending == ".cu") return "cuda";
  return ending == ".ptx" ? "ptx" : "";
}

std::string LanguageOf(const std::string& kind) {
  return kind == "cuda" ? "CUDA C++" : kind == "ptx" ? "PTX" : "C++";
}

std::string DeviceModel(const std::string& device) {
  const size_t name = device.find(": ");
  return name == std::string::npos ? device : device.substr(name + 2);
}

bool IsForGpu(const std::string& kind) { return kind == "cuda" || kind == "ptx"; }

}  // namespace kevin
