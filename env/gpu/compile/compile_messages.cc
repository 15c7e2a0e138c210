#include "env/gpu/compile/compile_messages.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "env/problem/text.h"

namespace kevin {
namespace {

constexpr const char* kNameFile = "__nv_name_map(";

// "ns::softmax<float, 256>" -> "softmax"
std::string BaseName(const std::string& expression) {
  std::string name = expression.substr(0, expression.find('<'));
  const size_t scope = name.rfind("::");
  if (scope != std::string::npos) name.erase(0, scope + 2);
  name.erase(std::remove_if(name.begin(), name.end(), [](char c) { return c == ' ' || c == '&'; }),
             name.end());
  return name;
}

bool IsSummary(const std::string& block) {
  return block.find(" detected in the compilation of ") != std::string::npos;
}

std::vector<std::string> BlocksOf(const std::string& log) {
  std::vector<std::string> blocks(1);
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      if (!blocks.back().empty()) blocks.emplace_back();
    } else {
      blocks.back() += line + "\n";
    }
  }
  if (blocks.back().empty()) blocks.pop_back();
  return blocks;
}

// "__nv_name_map(2): error: too few arguments" and NVRTC's own lines behind it -> "error: too few arguments"
std::string WithoutNameFile(const std::string& block) {
  const size_t colon = block.find("): ");
  const std::string line = block.substr(0, block.find('\n'));
  return colon == std::string::npos ? line : line.substr(std::min(colon + 3, line.size()));
}

}  // namespace

std::string NoSuchKernel(const std::string& asked, const std::vector<std::string>& there) {
  std::string text = "the launch function launches `" + asked + "`, but the text has no such kernel; ";
  if (there.empty()) return text + "it has no kernel (`__global__` function)\n";
  text += "the kernels there are: ";
  for (size_t i = 0; i < there.size(); ++i) text += (i ? ", " : "") + there[i];
  return text + "\n";
}

std::string ExplainMissingKernels(const std::string& log, const std::vector<std::string>& asked,
                                  const std::vector<std::string>& there) {
  if (log.find(kNameFile) == std::string::npos) return log;
  std::string of_text, of_names;
  for (const std::string& block : BlocksOf(log)) {
    if (block.compare(0, std::string(kNameFile).size(), kNameFile) == 0) {
      if (block.find("Error in parsing name expression") == std::string::npos)
        of_names += WithoutNameFile(block) + "\n";
    } else if (!IsSummary(block)) {
      of_text += block + "\n";
    }
  }
  if (of_text.find("error") != std::string::npos) return of_text;
  std::string missing;
  for (const std::string& name : asked) {
    if (std::find(there.begin(), there.end(), BaseName(name)) == there.end())
      missing += NoSuchKernel(name, there);
  }
  if (!missing.empty()) return missing;
  std::string names;
  for (const std::string& name : asked) names += (names.empty() ? "`" : ", `") + name + "`";
  return "the launch function asks for " + names + ", which does not fit the kernels in the text:\n" +
         of_names;
}

std::string ExplainTooMuchShared(const PtxasReport& report) {
  constexpr int64_t kFitsEverywhere = 48 << 10;
  for (const auto& [name, kernel] : report.kernels) {
    if (kernel.static_shared_bytes > kFitsEverywhere) {
      return "the kernel `" + name + "` declares " + std::to_string(kernel.static_shared_bytes) +
             " bytes of __shared__ memory, which is more than a block can have; use smaller tiles\n";
    }
  }
  return "";
}

std::string TrimmedLog(const std::string& log, int64_t limit) {
  const std::string text = Printable(log);
  const auto most = static_cast<size_t>(std::max<int64_t>(limit, 0));
  if (text.size() <= most) return text;
  const size_t line_end = text.rfind('\n', most);
  const size_t kept = line_end == std::string::npos || line_end == 0 ? most : line_end + 1;
  return text.substr(0, kept) + "... (" + std::to_string(text.size() - kept) + " bytes more)\n";
}

}  // namespace kevin
