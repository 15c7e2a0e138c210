#include "env/gpu/launch/launch_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "env/error.h"
#include "env/gpu/launch/interpreter.h"
#include "env/gpu/launch/outline.h"

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

namespace {

bool Holds(const Type& type, DType dtype) {
  if (type.pointers != 1) return false;
  const std::string& name = type.info->name;
  if (dtype == DType::kI64) return name == "long" || name == "long long";
  if (dtype == DType::kBool) return name == "bool" || name == "unsigned char";
  return name == DTypeInKind(dtype, "cuda");
}

}  // namespace

std::vector<Value> LaunchArguments(const SourceText& source, const SizedProblem& problem,
                                   const Function& launch, size_t name_at, Interpreter* interpreter,
                                   ListBuilder* list) {
  const std::vector<Parameter>& parameters = interpreter->Syntax(launch).parameters;
  const std::string advice = fmt::format("; write `{}`", LaunchSignature(*problem.problem, "cuda"));
  const auto is_stream = [](const Parameter& parameter) {
    const TypeInfo* info = FindTypeInfo(parameter.type.name);
    return info && info->kind == TypeKind::kHandle && parameter.type.pointers == 0;
  };
  size_t tensors = parameters.size();
  const bool has_stream = tensors > 0 && is_stream(parameters.back());
  if (has_stream) list->AddNote(parameters.back().at, "launch needs no stream: all work runs in one");
  tensors -= has_stream;
  const size_t wanted = problem.arguments.size();
  if (tensors != wanted) {
    source.Fail(name_at, fmt::format("launch takes {} tensors and the problem {} {}{}", tensors,
                                     HasParamBlock(*problem.problem) ? "gives" : "has", wanted, advice));
  }
  std::vector<Value> arguments;
  for (size_t i = 0; i < wanted; ++i) {
    const bool input = !IsWrittenArgument(*problem.problem, i);
    const ConcreteTensor& tensor = problem.arguments[i];
    const Parameter& parameter = parameters[i];
    const Type type = interpreter->Resolve(parameter.type);
    if (!Holds(type, tensor.spec.dtype) || parameter.type.is_reference) {
      source.Fail(parameter.at,
                  fmt::format("parameter {} is {}, and `{}` holds {}{}", i + 1, parameter.type.text,
                              tensor.spec.name, DTypeName(tensor.spec.dtype), advice));
    }
    if (!input && parameter.type.is_const) {
      source.Fail(parameter.at,
                  fmt::format("parameter {} is the {} `{}` and must not be const{}", i + 1,
                              tensor.spec.is_inout ? "input-output" : "output", tensor.spec.name, advice));
    }
    list->AddTensor(parameter.name.empty() ? tensor.spec.name : parameter.name, tensor.bytes, !input);
    arguments.push_back({type, DevicePointer{static_cast<int>(i), 0}});
  }
  if (has_stream) arguments.push_back({TypeNamed("cudaStream_t"), DevicePointer{}});
  return arguments;
}

std::string AdviceFor(const std::string& name) {
  struct Advice {
    const char* prefix;
    const char* text;
  };
  static constexpr const char* kScratch = "use workspace<float>(count), which needs no freeing";
  static constexpr const char* kOneStream = "remove it: all work runs in order in one stream";
  static constexpr const char* kNoTorch = "launch gets plain pointers; use them and the problem's sizes";
  static constexpr const char* kNoPrinting = "remove the output; use `bench --debug` and printf in a kernel";
  static constexpr Advice kAdvice[] = {
      {"cudaMalloc", kScratch},
      {"cudaFree", kScratch},
      {"cudaHostAlloc", kScratch},
      {"cuMem", kScratch},
      {"malloc", kScratch},
      {"calloc", kScratch},
      {"free", kScratch},
      {"thrust", "write a kernel; scratch memory is workspace<float>(count)"},
      {"cub::Device", "write a kernel; cub's block and warp functions work inside kernels"},
      {"cublas", "write a kernel; libraries cannot be called"},
      {"cudnn", "write a kernel; libraries cannot be called"},
      {"cudaStream", kOneStream},
      {"cudaEvent", kOneStream},
      {"cudaGraph", kOneStream},
      {"cudaOccupancy", "write the number of blocks, computed from the sizes"},
      {"cudaGetDevice", "write the numbers of the device, for example 132 multiprocessors"},
      {"cudaDeviceGetAttribute", "write the numbers of the device, for example 132 multiprocessors"},
      {"cudaDeviceProp", "write the numbers of the device, for example 132 multiprocessors"},
      {"cudaGetSymbolAddress", "set it with constant(symbol, {values})"},
      {"cudaMemcpy", "write cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice)"},
      {"cuTensorMap", "write tensor_map<float>(pointer, {sizes}, {stride bytes}, {box})"},
      {"cudaLaunch", "write kernel<<<grid, block, shared>>>(...)"},
      {"cuLaunch", "write kernel<<<grid, block, shared>>>(...)"},
      {"printf", kNoPrinting},
      {"fprintf", kNoPrinting},
      {"puts", kNoPrinting},
      {"cout", kNoPrinting},
      {"cerr", kNoPrinting},
      {"vector", "use a local array: int sizes[4] = {...}"},
      {"array", "use a local array: int sizes[4] = {...}"},
      {"string", "launch needs no strings"},
      {"unique_ptr", kScratch},
      {"memcpy", "do it in a kernel, or with cudaMemcpyAsync within the device"},
      {"memset", "write cudaMemsetAsync(pointer, 0, bytes)"},
      {"torch", kNoTorch},
      {"at::", kNoTorch},
      {"c10", kNoTorch},
      {"threadIdx", "it exists in kernels only"},
      {"blockIdx", "it exists in kernels only"},
      {"blockDim", "it exists in kernels only"},
      {"gridDim", "it exists in kernels only"},
      {"exit", "return early instead"},
      {"abort", "return early instead"},
      {"getenv", "launch has no access to the machine"},
      {"rand", "launch has no random numbers; compute them in the kernel"},
      {"time", "launch has no clock"},
      {"clock", "launch has no clock"},
      {"omp_", "launch has no threads"},
      {"thread", "launch has no threads"}};
  for (const Advice& advice : kAdvice) {
    const std::string prefix = advice.prefix;
    const bool whole_word = prefix == "free" || prefix == "time" || prefix == "thread" || prefix == "array" ||
                            prefix == "string" || prefix == "vector" || prefix == "exit" ||
                            prefix == "rand" || prefix == "clock" || prefix == "at";
    if (whole_word ? name == prefix : name.starts_with(prefix)) return advice.text;
  }
  return "";
}

}  // namespace kevin::launch

namespace kevin {
namespace {

constexpr size_t kMaxTextBytes = size_t{2} << 20;

// Accepted items around launch without effect.
void NoteUnneeded(const launch::SourceText& source, const launch::Outline& outline,
                  const launch::Function& function, launch::ListBuilder* list) {
  if (function.extern_c) {
    list->AddNote(outline.tokens[function.whole.begin].begin, "`extern \"C\"` is not needed");
  }
  for (size_t i = function.whole.begin; i < function.name_token; ++i) {
    const launch::Token& token = outline.tokens[i];
    if (token.Is("int") || token.Is("cudaError_t") || token.Is("auto")) {
      list->AddNote(token.begin, "the return value of launch is ignored");
    } else if (token.Is("__device__")) {
      source.Fail(token.begin, "launch runs on the host; remove `__device__`");
    }
  }
}

}  // namespace

InterpretedLaunch InterpretLaunch(const SizedProblem& problem, const std::string& kind,
                                  const std::string& text, const LaunchFunctionLimits& limits) {
  const bool ptx = kind == "ptx";
  if (!ptx && kind != "cuda") {
    throw Error(ExitCode::kBroken,
                fmt::format("a candidate of kind {} has no launch function to interpret", kind));
  }
  const launch::SourceText source(text);
  if (text.size() > kMaxTextBytes) {
    source.Fail(
        0, fmt::format("the text has {} bytes, and {} are allowed; shorten it", text.size(), kMaxTextBytes));
  }
  const launch::Outline outline = launch::ReadOutline(source, problem.symbols, ptx);
  const launch::Function& function =
      launch::FindLaunch(source, outline, LaunchSignature(*problem.problem, "cuda"));
  launch::ListBuilder list(source, limits);
  NoteUnneeded(source, outline, function, &list);
  launch::Interpreter interpreter(source, outline, problem.symbols, ptx, limits, &list);
  const size_t name_at = outline.tokens[function.name_token].begin;
  interpreter.Run(function, launch::LaunchArguments(source, problem, function, name_at, &interpreter, &list));

  InterpretedLaunch result;
  launch::HostAndDevice split = launch::SplitText(source, outline, function, ptx);
  result.split = {std::move(split.device), std::move(split.host), list.notes()};
  result.kernels = list.kernels();
  result.list = list.TakeList();
  if (result.kernels.empty()) {
    source.Fail(name_at, "launch starts no kernel; write kernel<<<grid, block>>>(...)");
  }
  return result;
}

}  // namespace kevin
