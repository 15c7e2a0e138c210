#include "env/python/own_kernels.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <regex>
#include <string_view>

namespace kevin {
namespace {

// Namespaces.
constexpr std::string_view kLibraries[] = {"at",    "c10",    "torch",         "cutlass", "cub",    "thrust",
                                           "cute",  "cublas", "cudnn",         "flash",   "native", "cuda",
                                           "nvjet", "std",    "pytorch_flash", "fmha"};

// Of libraries' kernels that stand in no namespace, in small letters: cuBLAS and cuDNN name an architecture or a tile with the
// layouts of its operands, and Inductor the form of its kernel. "sgemm_tiled" and "sm90_gemm" may be a candidate's own.
constexpr const char* kLibraryKernels =
    R"(^(sm\d+_(xmma|cublas|cudnn)_.*|(maxwell|pascal|volta|turing|ampere|hopper)_.*(\d+x\d+|cudnn).*)"
    R"(|(cask_|xmma_|nvjet|cutlass|cublas|cudnn|cufft|cusparse|cusolver|nccl|fmha_cutlass).*)"
    R"(|.*[sdhciz]gemm_(largek.*|\d+x\d+(x\d+)?_[nt][nt](_.*)?)|(im|ex)plicit_convolve_.*)"
    R"(|triton_(poi|red|per|tem|for|spl|unk|mix)_.*)$)";
// In arguments of templates and of functions: types of these libraries only.
constexpr std::string_view kLibraryTypes[] = {"cublas", "cudnn", "cusparse", "cusolver"};

bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

size_t SkipSpace(const std::string& text, size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at;
}

// From an opening bracket to behind its counterpart.
size_t SkipBrackets(std::string_view text, size_t at, char open, char close) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == open) ++depth;
    if (text[at] == close && --depth == 0) return at + 1;
  }
  return at;
}

// The last name before the parameters of the function that is declared from here on.
std::string DeclaredName(const std::string& text, size_t at) {
  std::string name;
  while (at < text.size() && text[at] != ';' && text[at] != '{') {
    at = SkipSpace(text, at);
    if (at >= text.size()) break;
    if (IsNameChar(text[at])) {
      const size_t begin = at;
      while (at < text.size() && IsNameChar(text[at])) ++at;
      const std::string word = text.substr(begin, at - begin);
      const size_t next = SkipSpace(text, at);
      if (next < text.size() && text[next] == '(') {
        if (word != "__launch_bounds__" && word != "__attribute__" && word != "__cluster_dims__") return word;
        at = SkipBrackets(text, next, '(', ')');
      }
    } else if (text[at] == '(') {
      at = SkipBrackets(text, at, '(', ')');
    } else {
      ++at;
    }
  }
  return name;
}

// Splits a Python text into its code and its literals.
class PythonSplitter {
 public:
  explicit PythonSplitter(const std::string& source) : source_(source) {}

  PythonParts Split() {
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == '#') {
        at_ = std::min(source_.find('\n', at_), source_.size());
      } else if (c == '"' || c == '\'') {
        TakeLiteral();
      } else {
        depth_ += c == '(' || c == '[' || c == '{';
        depth_ -= c == ')' || c == ']' || c == '}';
        text_.code += c;
        ++at_;
      }
    }
    return std::move(text_);
  }

 private:
  void TakeLiteral() {
    const bool is_raw = TakePrefix(), is_statement = IsAtBeginOfStatement();
    const std::string quote(source_, at_, source_.compare(at_, 3, std::string(3, source_[at_])) == 0 ? 3 : 1);
    std::string literal;
    text_.code += quote[0];
    for (at_ += quote.size(); at_ < source_.size() && source_.compare(at_, quote.size(), quote) != 0;) {
      const char c = source_[at_];
      if (c == '\n' && quote.size() == 1) break;  // is no Python
      if (c == '\n') text_.code += c;
      if (c == '\\' && at_ + 1 < source_.size()) {
        TakeEscape(is_raw, &literal);
      } else {
        literal += c;
        ++at_;
      }
    }
    if (source_.compare(at_, quote.size(), quote) == 0) at_ += quote.size();
    text_.code += quote[0];
    if (!is_statement) text_.literals.push_back(std::move(literal));
  }

  // Takes the letters before a quote out of the code. Whether backslashes stand for themselves.
  bool TakePrefix() {
    size_t begin = text_.code.size();
    while (begin > 0 && IsNameChar(text_.code[begin - 1])) --begin;
    const std::string prefix = text_.code.substr(begin);
    if (prefix.size() > 2 || prefix.find_first_not_of("rRbBuUfFtT") != std::string::npos) return false;
    text_.code.resize(begin);
    return prefix.find_first_of("rR") != std::string::npos;
  }

  // A literal there is a comment: nothing uses its value.
  bool IsAtBeginOfStatement() const {
    const size_t last = text_.code.find_last_not_of(" \t");
    if (depth_ > 0) return false;
    if (last == std::string::npos) return true;
    return text_.code[last] == '\n' && (last == 0 || text_.code[last - 1] != '\\');
  }

  void TakeEscape(bool is_raw, std::string* literal) {
    const char c = source_[at_ + 1];
    at_ += 2;
    if (c == '\n') text_.code += c;
    if (is_raw || std::string_view("nt\n\"'\\").find(c) == std::string_view::npos) {
      *literal += {'\\', c};
    } else if (c != '\n') {
      *literal += c == 'n' ? '\n' : c == 't' ? '\t' : c;
    }
  }

  const std::string& source_;
  size_t at_ = 0;
  int depth_ = 0;  // of brackets
  PythonParts text_;
};

// The end of a comment or string of C++ that begins at `at`; `at` where none does.
size_t EndOfCComment(std::string_view text, size_t at) {
  const auto end_of = [&](std::string_view what, size_t from) {
    const size_t found = text.find(what, from);
    return found == std::string_view::npos ? text.size() : found + what.size();
  };
  if (text.compare(at, 2, "//") == 0) return std::min(text.find('\n', at), text.size());
  if (text.compare(at, 2, "/*") == 0) return end_of("*/", at + 2);
  if (text.compare(at, 3, "'\"'") == 0) return at + 3;
  if (text[at] != '"') return at;
  for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at) at += text[at] == '\\';
  return std::min(at + 1, text.size());
}

std::string WithoutCComments(std::string_view text) {
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t end = EndOfCComment(text, at);
    kept += end > at ? ' ' : text[at];
    at = std::max(end, at + 1);
  }
  return kept;
}

bool FollowsDecorator(const std::string& text, size_t decorator) {
  const size_t line = text.rfind('\n', decorator);
  const size_t begin = line == std::string::npos ? 0 : line + 1;
  return text.find_first_not_of(" \t", begin) == decorator;
}

// Of the function under a decorator of triton; further decorators may stand between.
std::string DecoratedName(const std::string& text, size_t at) {
  const size_t def = text.find("\ndef ", at);
  const size_t indented = text.find(" def ", at);
  const size_t begin = std::min(def, indented);
  if (begin == std::string::npos) return "";
  size_t name = SkipSpace(text, begin + 5), end = name;
  while (end < text.size() && IsNameChar(text[end])) ++end;
  return text.substr(name, end - name);
}

// "void a::b<4, c>(float*)" to "a", "b".
std::vector<std::string> QualifiedName(const std::string& name) {
  std::string plain;
  for (size_t at = 0; at < name.size();) {
    if (name.compare(at, 21, "(anonymous namespace)") == 0) {
      plain += "anonymous";
      at += 21;
    } else if (name[at] == '<') {
      at = SkipBrackets(name, at, '<', '>');
    } else if (name[at] == '(') {
      break;
    } else {
      plain += name[at++];
    }
  }
  plain = plain.substr(0, plain.find_last_not_of(' ') + 1);
  plain = plain.substr(plain.rfind(' ') + 1);
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= plain.size();) {
    const size_t end = std::min(plain.find("::", begin), plain.size());
    parts.push_back(plain.substr(begin, end - begin));
    begin = end + 2;
  }
  return parts;
}

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  std::transform(lowered.begin(), lowered.end(), lowered.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lowered;
}

bool IsOfLibrary(const std::string& name, const std::vector<std::string>& parts) {
  static const std::regex kernels(kLibraryKernels, std::regex::ECMAScript | std::regex::optimize);
  constexpr size_t kLongest = 300;  // the regular expressions of the library recurse
  const bool is_in_library = std::any_of(parts.begin(), parts.end() - 1, [](const std::string& part) {
    return std::find(std::begin(kLibraries), std::end(kLibraries), part) != std::end(kLibraries);
  });
  if (is_in_library || parts.back().size() > kLongest || std::regex_match(Lowered(parts.back()), kernels))
    return true;
  const std::string whole = Lowered(name);
  return std::any_of(std::begin(kLibraryTypes), std::end(kLibraryTypes),
                     [&](std::string_view type) { return whole.find(type) != std::string::npos; });
}

}  // namespace

PythonParts SplitPythonText(const std::string& source) { return PythonSplitter(source).Split(); }

std::string CudaTextOf(const PythonParts& text) {
  std::string sources;  // a declaration may lie in several literals
  for (const std::string& literal : text.literals) sources += WithoutCComments(literal) + "\n";
  return sources;
}

std::set<std::string> TritonKernelNames(const PythonParts& text) {
  std::set<std::string> names;
  for (const std::string_view decorator : {"@triton.jit", "@jit", "@triton.autotune", "@triton.heuristics"}) {
    for (size_t at = text.code.find(decorator); at != std::string::npos;
         at = text.code.find(decorator, at + 1)) {
      if (!FollowsDecorator(text.code, at)) continue;
      if (std::string name = DecoratedName(text.code, at); !name.empty()) names.insert(std::move(name));
    }
  }
  return names;
}

std::set<std::string> OwnKernelNames(const std::string& source) {
  const PythonParts text = SplitPythonText(source);
  std::set<std::string> names = TritonKernelNames(text);
  const std::string sources = CudaTextOf(text);
  constexpr std::string_view kGlobal = "__global__";
  for (size_t at = sources.find(kGlobal); at != std::string::npos; at = sources.find(kGlobal, at + 1)) {
    if (std::string name = DeclaredName(sources, at + kGlobal.size()); !name.empty())
      names.insert(std::move(name));
  }
  return names;
}

bool IsOwnKernel(const std::string& name, const std::set<std::string>& own) {
  const std::vector<std::string> parts = QualifiedName(name);
  return own.count(parts.back()) > 0 && !IsOfLibrary(name, parts);
}

std::optional<double> OwnKernelShare(const std::vector<std::pair<std::string, double>>& kernels,
                                     const std::set<std::string>& own) {
  double all_us = 0, own_us = 0;
  for (const auto& [name, us] : kernels) {
    if (!std::isfinite(us) || us < 0) return std::nullopt;
    all_us += us;
    if (IsOwnKernel(name, own)) own_us += us;
  }
  if (all_us <= 0) return std::nullopt;
  return own_us / all_us;
}

std::string NamesOfOthers(const std::vector<std::pair<std::string, double>>& kernels,
                          const std::set<std::string>& own) {
  constexpr size_t kMostNames = 3, kMostCharacters = 80;
  constexpr double kLeastShare = 0.01;
  double all_us = 0;
  std::vector<std::pair<std::string, double>> others;
  for (const auto& kernel : kernels) {
    all_us += kernel.second;
    if (!IsOwnKernel(kernel.first, own)) others.push_back(kernel);
  }
  if (!(all_us > 0)) return "";
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < std::min(others.size(), kMostNames); ++i) {
    if (!(others[i].second >= kLeastShare * all_us)) break;
    text += (text.empty() ? "" : ", ") + others[i].first.substr(0, kMostCharacters) + " " +
            std::to_string(std::lround(100 * others[i].second / all_us)) + " %";
  }
  return text;
}

}  // namespace kevin
