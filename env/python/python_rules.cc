#include "env/python/python_rules.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <initializer_list>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "env/python/own_kernels.h"

namespace kevin {
namespace {

constexpr const char* kTensorClass = "a subclass of Tensor";

bool IsWordPart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// As Python counts it.
bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f'); }

bool HasAny(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

// Whether it is so of a whole word, by its begin and end.
bool AnyWord(const std::string& code, const std::function<bool(size_t, size_t)>& is_so) {
  for (size_t begin = 0; begin < code.size();) {
    size_t end = begin;
    while (end < code.size() && IsWordPart(code[end])) ++end;
    if (end > begin && is_so(begin, end)) return true;
    begin = std::max(end, begin + 1);
  }
  return false;
}

bool HasWord(const std::string& code, const std::set<std::string_view>& words) {
  const std::string_view text = code;
  return AnyWord(code,
                 [&](size_t begin, size_t end) { return words.count(text.substr(begin, end - begin)) > 0; });
}

bool IsDefinition(const std::string& code, size_t name) {
  const size_t before = name == 0 ? std::string::npos : code.find_last_not_of(" \t", name - 1);
  return before != std::string::npos && before >= 2 && code.compare(before - 2, 3, "def") == 0 &&
         (before == 2 || !IsWordPart(code[before - 3]));
}

// Whether the code names one of these functions anywhere but in its definition.
bool IsUsed(const std::string& code, const std::set<std::string>& names) {
  return AnyWord(code, [&](size_t begin, size_t end) {
    return names.count(code.substr(begin, end - begin)) > 0 && !IsDefinition(code, begin);
  });
}

// Statements and the parts of compound ones: "if a: import b" is two.
std::vector<std::string> StatementsOf(const std::string& code) {
  std::vector<std::string> statements(1);
  int depth = 0;  // of brackets
  for (size_t at = 0; at < code.size(); ++at) {
    const char c = code[at];
    depth += c == '(' || c == '[' || c == '{';
    if (depth > 0) depth -= c == ')' || c == ']' || c == '}';
    if (c == '\\' && code.compare(at + 1, 1, "\n") == 0) {
      statements.back() += ' ';
      ++at;
    } else if (depth == 0 && (c == '\n' || c == ';' || c == ':')) {
      statements.emplace_back();
    } else {
      statements.back() += c;
    }
  }
  return statements;
}

std::vector<std::string> WordsOf(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// What the code imports of a module and its parts, and the code without statements of import.
struct Imports {
  std::set<std::string> names;  // that stand for them; "*" for all of a module
  std::string rest;
};

// The names that one statement of import gives to a module or to what is in it.
void AddImported(const std::string& module, std::string statement, std::set<std::string>* names) {
  std::replace_if(
      statement.begin(), statement.end(), [](char c) { return c == '(' || c == ')'; }, ' ');
  const auto is_of_module = [&](const std::string& name) { return name.substr(0, name.find('.')) == module; };
  const std::vector<std::string> begin = WordsOf(statement);
  const bool is_from = begin[0] == "from";
  if (is_from && (begin.size() < 4 || !is_of_module(begin[1]))) return;
  std::istringstream items(statement.substr(statement.find("import") + 6));
  for (std::string item; std::getline(items, item, ',');) {
    const std::vector<std::string> words = WordsOf(item);
    if (words.empty() || (!is_from && !is_of_module(words[0]))) continue;
    names->insert(is_from || words.size() > 1 ? words.back() : module);
  }
}

Imports ImportsOf(const std::string& code, const std::string& module) {
  Imports imports;
  for (const std::string& statement : StatementsOf(code)) {
    const std::vector<std::string> words = WordsOf(statement.substr(0, statement.find('(')));
    const bool is_import =
        !words.empty() &&
        (words[0] == "import" || (words.size() > 2 && words[0] == "from" && words[2] == "import"));
    if (is_import)
      AddImported(module, statement, &imports.names);
    else
      imports.rest += statement + "\n";
  }
  return imports;
}

// Whether it calls something of a module, decorates with it or reads an attribute of it.
bool UsesModule(const std::string& code, const std::string& module) {
  const Imports imports = ImportsOf(code, module);
  if (imports.names.count("*") > 0) return true;
  const std::string& rest = imports.rest;
  return AnyWord(rest, [&](size_t begin, size_t end) {
    const char before = begin > 0 ? rest[begin - 1] : '\n';
    if (imports.names.count(rest.substr(begin, end - begin)) == 0 || before == '.') return false;
    const char after = rest[std::min(rest.find_first_not_of(" \t", end), rest.size() - 1)];
    return before == '@' || after == '.' || (after == '(' && !IsDefinition(rest, begin));
  });
}

bool HasTritonKernel(const PythonParts& text) {
  return !ImportsOf(text.code, "triton").names.empty() && IsUsed(text.code, TritonKernelNames(text));
}

// KernelBench's static check, from here on: on the whole text, up to "#" or "//" of each line, in literals too.
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

// Characters beyond ASCII count as letters, apart from blocks of punctuation and symbols: a non-breaking hyphen ends a word.
bool IsWordAt(const std::string& text, size_t at) {
  if (at >= text.size()) return false;
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return IsWordPart(text[at]);
  const std::string_view two = std::string_view(text).substr(at, 2);
  return first != 0xc2 && first != 0xe2 && first != 0xef && two != "\xe3\x80" && two != "\xf0\x9f";
}

bool IsWordBefore(const std::string& text, size_t at) {
  if (at == 0) return false;
  for (--at; at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;) --at;
  return IsWordAt(text, at);
}

// By hand: the regular expressions of the library recurse over a long line. In a pattern "|" is an end of a word, "~" space of
// any length, " " the same and not empty, "%" a character of a word; space has line ends.
bool MatchesAt(const std::string& text, size_t at, std::string_view pattern) {
  for (const char part : pattern) {
    if (part == '|') {
      if (IsWordAt(text, at) == IsWordBefore(text, at)) return false;
    } else if (part == '~' || part == ' ') {
      const size_t begin = at;
      while (at < text.size() && IsSpace(text[at])) ++at;
      if (part == ' ' && at == begin) return false;
    } else {
      if (at >= text.size() || !(part == '%' ? IsWordAt(text, at) : text[at] == part)) return false;
      ++at;
    }
  }
  return true;
}

bool Matches(const std::string& text, std::string_view pattern) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (MatchesAt(text, at, pattern)) return true;
  }
  return false;
}

// "class NAME", and later in the line of the name "(Tensor)".
bool HasTensorClass(const std::string& text) {
  size_t searched = 0;
  for (size_t at = text.find("class"); at != std::string::npos; at = text.find("class", at + 1)) {
    if (!MatchesAt(text, at, "class %")) continue;
    size_t name = at + 5;
    while (IsSpace(text[name])) ++name;
    if (name < searched) continue;
    searched = std::min(text.find('\n', name), text.size());
    if (HasAny(std::string_view(text).substr(name, searched - name), {"(Tensor)", "(torch.Tensor)"}))
      return true;
  }
  return false;
}

struct StaticRule {
  const char* reason;
  std::vector<const char*> patterns;
};

const std::vector<StaticRule>& StaticRules() {
  static const std::vector<StaticRule> rules = {
      {"try/except: a fallback may take the kernel's place", {"|try~:", "|except~:", "|except %"}},
      {"pass: nothing takes the place of the reference", {"|pass|"}},
      {"a clock is replaced",
       {"torch.cuda.Event~=", "torch.cuda.Event.record~=", "torch.cuda.Event.elapsed_time~=",
        "torch.cuda.synchronize~=", "time.perf_counter~=", "time.time~="}},
      {"threads or processes of its own",
       {"threading.Thread~(", "import threading", "from threading import", "multiprocessing.Process",
        "multiprocessing.Pool", "multiprocessing.Manager", "multiprocessing.Queue", "multiprocessing.Pipe",
        "import multiprocessing", "concurrent.futures", "ThreadPoolExecutor", "ProcessPoolExecutor"}},
      {kTensorClass, {"_make_subclass", "torch.Tensor.__new__"}},
  };
  return rules;
}

// What the text lacks of a backend of KernelBench; "cuda" is its default.
std::string MissingOf(const std::string& backend, const std::string& text) {
  if (backend == "triton") {
    if (!HasAny(text, {"@triton.jit", "@triton.autotune"}))
      return "its kernels in Triton stand under no @triton.jit or @triton.autotune";
    return Matches(text, "|tl.%") ? "" : "its kernels in Triton have no operation of tl";
  }
  if (backend == "tilelang")
    return HasAny(text, {"@T.prim_func"}) ? "" : "its kernels in TileLang stand under no @T.prim_func";
  if (backend == "cute")
    return HasAny(text, {"cute::", "cutlass::", "from cutlass"})
               ? ""
               : "it has no cute::, cutlass:: or `from cutlass`";
  if (!HasAny(text, {"__global__"}))
    return "it has no kernel in CUDA C++ (__global__), Triton, CuTe or TileLang";
  return HasAny(text, {"load_inline", "cpp_extension"})
             ? ""
             : "its CUDA C++ is compiled by no load_inline or cpp_extension";
}

}  // namespace

std::string BackendOf(const std::string& source) {
  const PythonParts text = SplitPythonText(source);
  if (HasTritonKernel(text)) return "triton";
  if (UsesModule(text.code, "tilelang")) return "tilelang";
  if (UsesModule(text.code, "cutlass")) return "cute";
  if (HasWord(text.code, {"load_inline", "cpp_extension"}))
    return CudaTextOf(text).find("__global__") != std::string::npos ? "cuda" : "cpp";
  return "torch";
}

std::string BackendThatRan(const std::string& backend, std::optional<double> own_share) {
  const bool has_known_kernels = backend == "triton" || backend == "cuda" || backend == "cpp";
  return has_known_kernels && own_share == 0.0 ? "torch" : backend;
}

bool NeedsFirstCallsApart(const std::string& source) {
  const std::string code = SplitPythonText(source).code;
  return AnyWord(code, [&](size_t begin, size_t end) {
    static const std::set<std::string_view> words = {"tilelang", "cutlass",    "compile", "jit",
                                                     "cupy",     "numba",      "dynamo",  "_dynamo",
                                                     "system",   "subprocess", "Popen",   "popen"};
    const std::string_view word = std::string_view(code).substr(begin, end - begin);
    return words.count(word) > 0 || word.starts_with("spawn") || word.starts_with("exec") ||
           HasAny(word, {"triton", "nvrtc", "graph", "Graph", "inductor", "Inductor"});
  });
}

std::string KernelBenchRefusal(const std::string& source) {
  const std::string text = WithoutComments(source);
  const std::vector<StaticRule>& rules = StaticRules();
  const auto broken = std::find_if(rules.begin(), rules.end(), [&](const StaticRule& rule) {
    return std::any_of(rule.patterns.begin(), rule.patterns.end(),
                       [&](const char* pattern) { return Matches(text, pattern); });
  });
  const std::string reason = broken != rules.end()  ? broken->reason
                             : HasTensorClass(text) ? kTensorClass
                                                    : MissingOf(BackendOf(source), text);
  return reason.empty() ? "" : "KernelBench's static rules refuse it: " + reason;
}

}  // namespace kevin
