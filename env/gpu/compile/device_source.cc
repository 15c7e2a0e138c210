#include "env/gpu/compile/device_source.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

namespace kevin {
namespace {

// The dearest first: a precompiled beginning serves every text that begins the same way.
const char* const kPrecompiled[] = {"cub/block/block_reduce.cuh",
                                    "cub/block/block_scan.cuh",
                                    "cub/warp/warp_reduce.cuh",
                                    "cuda/pipeline",
                                    "cuda/barrier",
                                    "cuda/ptx",
                                    "cooperative_groups.h",
                                    "cooperative_groups/reduce.h",
                                    "mma.h",
                                    "cuda_fp8.h",
                                    "cuda_bf16.h",
                                    "cuda_fp16.h"};

std::string Include(const std::string& name) { return "#include <" + name + ">\n"; }

bool IsWordPart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Comments and string literals become blanks, so that words in them are no code.
std::string WithoutComments(std::string text) {
  const auto blank = [&](size_t from, size_t to) {
    for (size_t i = from; i < std::min(to, text.size()); ++i) {
      if (text[i] != '\n') text[i] = ' ';
    }
    return std::min(to, text.size());
  };
  for (size_t i = 0; i < text.size();) {
    if (text.compare(i, 2, "//") == 0) {
      i = blank(i, text.find('\n', i));
    } else if (text.compare(i, 2, "/*") == 0) {
      const size_t end = text.find("*/", i + 2);
      i = blank(i, end == std::string::npos ? end : end + 2);
    } else if (text[i] == '"') {
      size_t end = i + 1;
      while (end < text.size() && text[end] != '"' && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      i = blank(i, end + 1);
    } else {
      ++i;
    }
  }
  return text;
}

// The word before the first parenthesis that is no attribute's: `void __launch_bounds__(256) relu(`.
std::string NameBehind(const std::string& text, size_t at) {
  std::string word;
  while (at < text.size() && text[at] != ';' && text[at] != '{') {
    if (IsWordPart(text[at])) {
      const size_t start = at;
      while (at < text.size() && IsWordPart(text[at])) ++at;
      word = text.substr(start, at - start);
    } else if (text[at] == '(') {
      if (word.substr(0, 2) != "__" || word.size() < 4 || word.substr(word.size() - 2) != "__") return word;
      for (int depth = 0; at < text.size();) {
        depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
        ++at;
        if (depth == 0) break;
      }
    } else {
      ++at;
    }
  }
  return {};
}

// Names of the prompts whose headers candidates seldom include, since nvcc knows them without.
const std::pair<const char*, const char*> kNamed[] = {
    {"CUtensorMap", "cuda.h"},
    {"cudaGridDependencySynchronize", kDependencyHeader},
    {"cudaTriggerProgrammaticLaunchCompletion", kDependencyHeader}};

// Whether the name at `at` is declared there: what stands before it in its statement says so.
bool IsDeclaredAt(const std::string& text, size_t at, size_t size) {
  constexpr size_t kLookBack = 200;
  const size_t earliest = at < kLookBack ? 0 : at - kLookBack;
  size_t begin = at;
  while (begin > earliest && std::string_view(";{}(=,<>").find(text[begin - 1]) == std::string_view::npos) {
    --begin;
    if (text[begin] != ')') continue;  // alignas(64)
    const size_t open = text.rfind('(', begin);
    begin = open == std::string::npos ? earliest : std::max(earliest, open);
  }
  const std::string before = text.substr(begin, at - begin);
  const size_t next = text.find_first_not_of(" \t\r\n", at + size);
  const bool is_blank = before.find_first_not_of(" \t\r\n") == std::string::npos;
  if (is_blank && begin > 0 && text[begin - 1] == '}') return next != std::string::npos && text[next] == ';';
  std::istringstream words(before);
  for (std::string word; words >> word;) {
    for (const char* one : {"struct", "class", "union", "using", "typedef", "void", "define", "#define"}) {
      if (word == one) return true;
    }
  }
  return false;
}

bool UsesWithoutDeclaration(const std::string& device_text, const std::string& name) {
  if (device_text.find(name) == std::string::npos) return false;
  const std::string text = WithoutComments(device_text);
  bool uses = false;
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + name.size())) {
    const bool is_longer = (at > 0 && IsWordPart(text[at - 1])) ||
                           (at + name.size() < text.size() && IsWordPart(text[at + name.size()]));
    if (is_longer) continue;
    if (IsDeclaredAt(text, at, name.size())) return false;
    uses = true;
  }
  return uses;
}

}  // namespace

DeviceSource BuildDeviceSource(const std::string& device_text, const Symbols& symbols) {
  const std::vector<std::string> included = IncludedNames(device_text);
  const std::set<std::string> names(included.begin(), included.end());
  DeviceSource source;
  for (const char* header : kPrecompiled) {
    if (names.count(header)) source.text += Include(header);
  }
  source.precompiled = !source.text.empty();
  if (source.precompiled) source.text += "#pragma nv_hdrstop\n";
  source.text += Include(kBasicsHeader);
  for (const auto& [name, header] : kNamed) {
    if (UsesWithoutDeclaration(device_text, name) && !names.contains("cuda_device_runtime_api.h"))
      source.text += Include(header);
  }
  for (const auto& [name, value] : symbols)
    source.text += "constexpr long " + name + " = " + std::to_string(value) + ";\n";
  source.text += "#line 1 \"candidate.cu\"\n" + device_text + "\n";
  return source;
}

const std::vector<std::string>& WarmUpTexts() {
  static const std::vector<std::string> kTexts = [] {
    std::vector<std::string> texts;
    for (const char* header : {"cuda_fp16.h", "mma.h", "cooperative_groups.h", "cuda/barrier",
                               "cub/block/block_reduce.cuh", "cuda/pipeline"})
      texts.push_back(Include(header));
    texts.push_back(Include("cooperative_groups.h") + Include("cooperative_groups/reduce.h"));
    texts.push_back(Include("mma.h") + Include("cuda_fp16.h"));
    texts.push_back(Include("cuda_bf16.h"));
    return texts;
  }();
  return kTexts;
}

std::vector<std::string> KernelsIn(const std::string& device_text) {
  const std::string text = WithoutComments(device_text);
  const std::string mark = "__global__";
  std::vector<std::string> kernels;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + mark.size())) {
    const std::string name = NameBehind(text, at + mark.size());
    if (!name.empty() && std::find(kernels.begin(), kernels.end(), name) == kernels.end())
      kernels.push_back(name);
  }
  return kernels;
}

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

CompatibilityHeaders HeadersFor(const std::string& text, const std::vector<std::filesystem::path>& folders) {
  CompatibilityHeaders result;
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
