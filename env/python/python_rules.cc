#include "env/python/python_rules.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <utility>

#include "env/python/own_kernels.h"

namespace kevin {
namespace {

// Line by line: the regular expressions of the library recurse over a long text.
bool HasInALine(const std::string& text, const char* pattern) {
  const std::regex expression(pattern, std::regex::ECMAScript | std::regex::optimize);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    constexpr size_t kLongest = 2000;
    const std::string line = text.substr(begin, std::min(end - begin, kLongest));
    if (std::regex_search(line, expression)) return true;
    begin = end + 1;
  }
  return false;
}

std::string WithoutComments(const std::string& text) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    kept += line.substr(0, std::min(line.find('#'), line.find("//"))) + "\n";
    begin = end + 1;
  }
  return kept;
}

bool IsWordPart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether the code names a function anywhere but in its definition.
bool IsUsed(const std::string& code, const std::string& name) {
  for (size_t at = code.find(name); at != std::string::npos; at = code.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at > 0 && IsWordPart(code[at - 1])) || (end < code.size() && IsWordPart(code[end]))) continue;
    const size_t before = code.find_last_not_of(" \t", at == 0 ? 0 : at - 1);
    const bool is_definition = before != std::string::npos && before >= 2 &&
                               code.compare(before - 2, 3, "def") == 0 &&
                               (before == 2 || !IsWordPart(code[before - 3]));
    if (!is_definition) return true;
  }
  return false;
}

bool HasTritonKernel(const PythonParts& text) {
  if (!HasInALine(text.code, R"(^\s*(from\s+triton\b|import\s+([\w.]+(\s+as\s+\w+)?\s*,\s*)*triton\b))"))
    return false;
  const std::set<std::string> names = TritonKernelNames(text);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return IsUsed(text.code, name); });
}

}  // namespace

std::string BackendOf(const std::string& source) {
  const PythonParts text = SplitPythonText(source);
  if (HasTritonKernel(text)) return "triton";
  if (HasInALine(text.code, R"(^\s*(import|from)\s+tilelang)")) return "tilelang";
  if (HasInALine(text.code, R"(^\s*(import|from)\s+cutlass)")) return "cute";
  if (HasInALine(text.code, R"(\b(load_inline|cpp_extension)\b)"))
    return CudaTextOf(text).find("__global__") != std::string::npos ? "cuda" : "cpp";
  return "torch";
}

bool NeedsFirstCallsApart(const std::string& source) {
  return HasInALine(
      SplitPythonText(source).code,
      R"(\b(\w*triton\w*|tilelang|cutlass|compile|jit|\w*nvrtc\w*|cupy|numba|)"
      R"(\w*[gG]raph\w*|\w*[iI]nductor\w*|_?dynamo|subprocess|Popen|popen|system|spawn\w*|exec\w*)\b)");
}

std::string KernelBenchRefusal(const std::string& source) {
  const std::string text = WithoutComments(source);
  const std::pair<const char*, const char*> rules[] = {
      {R"(^\s*(try\s*:|except\b))", "try/except: a fallback may take the kernel's place"},
      {R"(^\s*pass\s*$)", "pass: nothing takes the place of the reference"},
      {R"((torch\.cuda\.Event|torch\.cuda\.synchronize|time\.time|time\.perf_counter)(\.\w+)?\s*=[^=])",
       "a clock is replaced"},
      {R"(\b(threading|multiprocessing|concurrent\.futures)\b)", "threads or processes of its own"},
      {R"(_make_subclass|class\s+\w+\s*\(\s*(torch\.)?Tensor\s*\)|torch\.Tensor\.__new__)",
       "a subclass of Tensor"},
  };
  for (const auto& [pattern, reason] : rules) {
    if (HasInALine(text, pattern)) return std::string("KernelBench's static rules refuse it: ") + reason;
  }
  return "";
}

}  // namespace kevin
