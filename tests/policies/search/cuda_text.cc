#include "tests/policies/search/cuda_text.h"

#include <regex>

namespace kevin::test {

std::string ToCpp(const std::string& cuda_source) {
  const bool has_clusters = cuda_source.find("__cluster_dims__(kParts, 1, 1)") != std::string::npos;
  std::string text = cuda_source;
  const auto replace = [&](const char* pattern, const std::string& by) {
    text = std::regex_replace(text, std::regex(pattern), by);
  };
  replace("(\\w+)<<<(.*)>>>\\((.*)\\);", std::string("emulated::Run(emulated::Configuration($2)") +
                                             (has_clusters ? ".Clusters(kParts)" : "") +
                                             ", [&] { $1($3); });");
  replace("extern __shared__ (\\w+) (\\w+)\\[\\];",
          "$1* $2 = ($1*)emulated::self->block->dynamic_shared.data();");
  replace("__shared__ (\\w+) (\\w+)((?:\\[[^\\]]*\\])+);",
          "typedef $1 $2_shared$3; static char $2_key; "
          "$2_shared& $2 = *($2_shared*)emulated::Shared(&$2_key, sizeof($2_shared));");
  replace("INLINE void (CopyAsync|CommitCopies|WaitForCopies|MultiplyTf32)\\(", "INLINE void Device$1(");
  replace("void launch\\(", "extern \"C\" void launch(");
  return text;
}

}  // namespace kevin::test
