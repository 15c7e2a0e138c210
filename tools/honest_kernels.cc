#include "tools/honest_kernels.h"

#include "tools/honest_families.h"

namespace kevin {

std::string HonestSource(const Problem& problem, const std::string& text, Parts parts) {
  parts["LAUNCH"] = LaunchSignature(problem);
  std::string source;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '$') {
      source += text[i++];
      continue;
    }
    const size_t end = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", i + 1);
    source += parts.at(text.substr(i + 1, end - i - 1));
    i = end;
  }
  return source;
}

std::vector<HonestKernel> HonestKernelsFor(const Problem& problem) {
  for (const auto family : {HonestElementwise, HonestReductions, HonestMatmuls, HonestSoftmaxes, HonestNorms,
                            HonestScans, HonestLosses, HonestAttention, HonestWindows}) {
    if (auto kernels = family(problem); !kernels.empty()) return kernels;
  }
  return {};
}

}  // namespace kevin
