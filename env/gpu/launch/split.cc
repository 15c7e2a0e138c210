#include "env/gpu/launch/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace kevin::launch {
namespace {

// Names that only exist on the host: a function that uses one cannot be compiled for the device.
bool IsHostName(const std::string& name) {
  static const std::set<std::string> kNames = {"workspace",    "zeroed_workspace", "tensor_map", "constant",
                                               "cudaStream_t", "ceil_div",         "cdiv",       "div_up",
                                               "round_up",     "next_power_of_2",  "CUtensorMap"};
  const bool cuda_call = name.starts_with("cuda") && name.size() > 4 && name[4] >= 'A' && name[4] <= 'Z';
  return cuda_call || kNames.contains(name);
}

class HostFunctions {
 public:
  HostFunctions(const Outline& outline, const Function& launch) : outline_(outline), launch_(launch) {}

  // launch, what starts kernels, what launch calls that the device compiler could not read, and what calls
  // any of these.
  std::set<const Function*> Find() {
    Reach(launch_);
    for (const Function& function : outline_.functions) {
      if (function.name.empty() || !function.OnHost() || !function.defined) continue;
      if (&function == &launch_ || Contains(function, "<<<")) found_.insert(&function);
    }
    AddUsers();
    return found_;
  }

 private:
  const Token& At(size_t i) const { return outline_.tokens[i]; }

  bool Contains(const Function& function, const char* text) const {
    for (size_t i = function.body.begin; i < function.body.end; ++i) {
      if (At(i).Is(text)) return true;
    }
    return false;
  }

  std::set<std::string> NamesIn(TokenRange range) const {
    std::set<std::string> names;
    for (size_t i = range.begin; i < range.end; ++i) {
      if (At(i).IsName()) names.insert(At(i).text);
    }
    return names;
  }

  // Which functions mention a name, and all that launch calls, directly or not.
  void Reach(const Function& from) {
    std::multimap<std::string, const Function*> by_name;
    for (const Function& function : outline_.functions) {
      own_names_.insert(function.name);
      if (!function.defined || !function.OnHost() || function.name.empty()) continue;
      by_name.emplace(function.name, &function);
      for (const std::string& name : NamesIn({function.parameters.begin, function.body.end})) {
        users_.emplace(name, &function);
      }
    }
    std::vector<const Function*> open = {&from};
    while (!open.empty()) {
      const Function* function = open.back();
      open.pop_back();
      if (!reached_.insert(function).second) continue;
      for (const std::string& name : NamesIn({function->parameters.begin, function->body.end})) {
        const auto [first, last] = by_name.equal_range(name);
        for (auto named = first; named != last; ++named) open.push_back(named->second);
        by_name.erase(first, last);
      }
    }
  }

  void AddUsers() {
    std::vector<std::string> names;
    for (const auto& [name, function] : users_) {
      const bool host_alone = IsHostName(name) && !own_names_.contains(name);
      if (host_alone && reached_.contains(function) && !function->device) found_.insert(function);
    }
    for (const Function* function : found_) names.push_back(function->name);
    while (!names.empty()) {
      const auto [first, last] = users_.equal_range(names.back());
      names.pop_back();
      for (auto user = first; user != last; ++user) {
        const bool added = !user->second->device && found_.insert(user->second).second;
        if (added) names.push_back(user->second->name);
      }
      users_.erase(first, last);
    }
  }

  std::multimap<std::string, const Function*> users_;
  std::set<std::string> own_names_;
  const Outline& outline_;
  const Function& launch_;
  std::set<const Function*> reached_, found_;
};

}  // namespace

const Function& FindLaunch(const SourceText& source, const Outline& outline, const std::string& signature) {
  const Function* launch = nullptr;
  for (const Function& function : outline.functions) {
    if (function.name != "launch") continue;
    const size_t at = outline.tokens[function.name_token].begin;
    if (!function.OnHost()) {
      source.Fail(at, "`launch` is the name of the host function; give the kernel another name");
    }
    if (!function.defined) continue;
    if (launch) source.Fail(at, "`launch` is defined twice; keep one");
    if (function.is_template)
      source.Fail(at, fmt::format("`launch` cannot be a template; write `{}`", signature));
    launch = &function;
  }
  if (launch) return *launch;
  for (const Token& token : outline.tokens) {
    if (token.kind == TokenKind::kBroken && token.text.find("never closed") != std::string::npos) {
      source.Fail(token.begin, token.text);
    }
  }
  const size_t text_end = source.text().find_last_not_of(" \t\r\n");
  source.Fail(
      text_end == std::string::npos ? 0 : text_end,
      fmt::format("there is no launch function; write `{} {{ kernel<<<grid, block>>>(...); }}`", signature));
}

HostAndDevice SplitText(const SourceText& source, const Outline& outline, const Function& launch, bool ptx) {
  std::vector<char> host(source.text().size());
  const auto mark = [&](TokenRange range, char value) {
    if (range.empty()) return;
    const size_t begin = outline.tokens[range.begin].begin, end = outline.tokens[range.end - 1].end;
    std::fill(host.begin() + static_cast<std::ptrdiff_t>(begin),
              host.begin() + static_cast<std::ptrdiff_t>(end), value);
  };
  const std::set<const Function*> functions = HostFunctions(outline, launch).Find();
  std::set<std::string> names;
  for (const Function* function : functions) {
    mark(function->whole, 1);
    names.insert(function->scope + function->name);
  }
  for (const Function& function : outline.functions) {
    if (!function.defined && function.OnHost() && names.contains(function.scope + function.name)) {
      mark(function.whole, 1);
    }
  }
  for (const TokenRange& range : outline.host_declarations) mark(range, 1);
  for (const Preprocessed::Range& directive : outline.directives) {
    std::fill(host.begin() + static_cast<std::ptrdiff_t>(directive.begin),
              host.begin() + static_cast<std::ptrdiff_t>(directive.end), ptx ? 1 : 0);
  }
  HostAndDevice split{source.text(), source.text()};
  for (size_t i = 0; i < host.size(); ++i) {
    if (source.text()[i] == '\n') continue;
    (host[i] ? split.device : split.host)[i] = ' ';
  }
  return split;
}

}  // namespace kevin::launch
