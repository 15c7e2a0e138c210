#include "env/python/own_kernels.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>

namespace kevin {
namespace {

constexpr std::string_view kLibraries[] = {"at",    "c10",    "torch",         "cutlass", "cub",    "thrust",
                                           "cute",  "cublas", "cudnn",         "flash",   "native", "cuda",
                                           "nvjet", "std",    "pytorch_flash", "fmha"};

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

}  // namespace

std::set<std::string> OwnKernelNames(const std::string& source) {
  std::set<std::string> names;
  constexpr std::string_view kGlobal = "__global__";
  for (size_t at = source.find(kGlobal); at != std::string::npos; at = source.find(kGlobal, at + 1)) {
    if (std::string name = DeclaredName(source, at + kGlobal.size()); !name.empty())
      names.insert(std::move(name));
  }
  for (const std::string_view decorator : {"@triton.jit", "@jit", "@triton.autotune", "@triton.heuristics"}) {
    for (size_t at = source.find(decorator); at != std::string::npos; at = source.find(decorator, at + 1)) {
      if (!FollowsDecorator(source, at)) continue;
      if (std::string name = DecoratedName(source, at); !name.empty()) names.insert(std::move(name));
    }
  }
  return names;
}

bool IsOwnKernel(const std::string& name, const std::set<std::string>& own) {
  const std::vector<std::string> parts = QualifiedName(name);
  const bool is_of_library = std::any_of(parts.begin(), parts.end() - 1, [](const std::string& part) {
    return std::find(std::begin(kLibraries), std::end(kLibraries), part) != std::end(kLibraries);
  });
  return !is_of_library && own.count(parts.back()) > 0;
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

}  // namespace kevin
