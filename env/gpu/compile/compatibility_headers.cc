#include "env/gpu/compile/compatibility_headers.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "env/gpu/compile/compatibility_texts.h"

namespace kevin {
namespace {

// Host code: nothing of it can be used in a kernel.
bool IsHostHeader(const std::string& name) {
  static const std::set<std::string_view> kNames = {"stdio.h",
                                                    "cstdio",
                                                    "stdlib.h",
                                                    "cstdlib",
                                                    "time.h",
                                                    "ctime",
                                                    "errno.h",
                                                    "signal.h",
                                                    "stdarg.h",
                                                    "cstdarg",
                                                    "stdbool.h",
                                                    "vector",
                                                    "string",
                                                    "string_view",
                                                    "iostream",
                                                    "ostream",
                                                    "istream",
                                                    "sstream",
                                                    "fstream",
                                                    "iomanip",
                                                    "map",
                                                    "unordered_map",
                                                    "set",
                                                    "unordered_set",
                                                    "list",
                                                    "deque",
                                                    "queue",
                                                    "stack",
                                                    "memory",
                                                    "functional",
                                                    "tuple",
                                                    "array",
                                                    "optional",
                                                    "variant",
                                                    "any",
                                                    "chrono",
                                                    "thread",
                                                    "mutex",
                                                    "atomic",
                                                    "random",
                                                    "numeric",
                                                    "stdexcept",
                                                    "exception",
                                                    "initializer_list",
                                                    "iterator",
                                                    "span",
                                                    "bit",
                                                    "complex",
                                                    "bitset",
                                                    "cctype",
                                                    "ctype.h",
                                                    "new",
                                                    "typeinfo",
                                                    "utility.h",
                                                    "concepts",
                                                    "ranges",
                                                    "helper_cuda.h",
                                                    "helper_functions.h",
                                                    "cuda_profiler_api.h",
                                                    "nvToolsExt.h",
                                                    "omp.h",
                                                    "pthread.h",
                                                    "unistd.h",
                                                    "Python.h",
                                                    "cublas.h",
                                                    "cublas_v2.h",
                                                    "cublasLt.h",
                                                    "cudnn.h",
                                                    "cufft.h",
                                                    "cusparse.h",
                                                    "cusolverDn.h",
                                                    "cutensor.h",
                                                    "nccl.h",
                                                    "curand.h",
                                                    "cuda_gl_interop.h"};
  if (kNames.count(name)) return true;
  for (const std::string_view folder : {"torch/", "ATen/", "c10/", "pybind11/", "sys/", "nvtx3/"}) {
    if (std::string_view(name).substr(0, folder.size()) == folder) return true;
  }
  return false;
}

bool InFolders(const std::string& name, const std::vector<std::filesystem::path>& folders) {
  return std::any_of(folders.begin(), folders.end(), [&](const std::filesystem::path& folder) {
    std::error_code error;
    return std::filesystem::is_regular_file(folder / name, error);
  });
}

}  // namespace

std::vector<std::string> IncludedNames(const std::string& text) {
  std::vector<std::string> names;
  for (size_t line = 0; line < text.size();) {
    const size_t end = std::min(text.find('\n', line), text.size());
    const auto skip_blanks = [&](size_t at) {
      while (at < end && (text[at] == ' ' || text[at] == '\t')) ++at;
      return at;
    };
    size_t at = skip_blanks(line);
    line = end + 1;
    if (at >= end || text[at] != '#') continue;
    at = skip_blanks(at + 1);
    if (text.compare(at, 7, "include") != 0) continue;
    at = skip_blanks(at + 7);
    if (at >= end || (text[at] != '<' && text[at] != '"')) continue;
    const size_t close = text.find(text[at] == '<' ? '>' : '"', at + 1);
    if (close != std::string::npos && close < end) names.push_back(text.substr(at + 1, close - at - 1));
  }
  return names;
}

std::vector<std::pair<std::string, std::string>> HeadersWithoutClock(
    const std::vector<std::filesystem::path>& includes) {
  const std::string name = "cuda/std/__cuda/chrono.h", read = "mov.u64 %0, %%globaltimer;";
  for (const std::filesystem::path& folder : includes) {
    std::ifstream in(folder / name, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t at = text.find(read);
    if (at == std::string::npos) continue;
    text.replace(at, read.size(), "mov.u64 %0, 0;");
    return {{name, text}};
  }
  return {};
}

HabitHeaders HeadersFor(const std::string& text, const std::vector<std::filesystem::path>& folders) {
  HabitHeaders result;
  for (const auto& header : FixedHeaders()) {
    if (!InFolders(header.first, folders)) result.headers.push_back(header);
  }
  std::set<std::string> seen;
  for (const std::string& name : IncludedNames(text)) {
    if (!IsHostHeader(name) || !seen.insert(name).second || InFolders(name, folders)) continue;
    result.headers.emplace_back(name, kBasicsOnly);
    result.notes.push_back("`#include <" + name + ">` is ignored: there is no host code");
  }
  return result;
}

}  // namespace kevin
