#include "env/gpu/launch/launch_function.h"

#include <fmt/format.h>

#include "env/error.h"
#include "env/gpu/launch/interpreter.h"
#include "env/gpu/launch/signature.h"
#include "env/gpu/launch/split.h"

namespace kevin {

namespace {

constexpr size_t kMaxTextBytes = size_t{2} << 20;

// What models write by habit around launch and what costs nothing.
void NoteHabits(const launch::SourceText& source, const launch::Outline& outline,
                const launch::Function& function, launch::ListBuilder* list) {
  if (function.extern_c) {
    list->AddNote(outline.tokens[function.whole.begin].begin, "`extern \"C\"` is not needed");
  }
  for (size_t i = function.whole.begin; i < function.name_token; ++i) {
    const launch::Token& token = outline.tokens[i];
    if (token.Is("int") || token.Is("cudaError_t") || token.Is("auto")) {
      list->AddNote(token.begin, "what launch returns is ignored");
    } else if (token.Is("__device__")) {
      source.Fail(token.begin, "launch runs on the host; take `__device__` out");
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
        0, fmt::format("the text has {} bytes, and {} are allowed; write less", text.size(), kMaxTextBytes));
  }
  const launch::Outline outline = launch::ReadOutline(source, problem.symbols, ptx);
  const launch::Function& function =
      launch::FindLaunch(source, outline, LaunchSignature(*problem.problem, "cuda"));
  launch::ListBuilder list(source, limits);
  NoteHabits(source, outline, function, &list);
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
