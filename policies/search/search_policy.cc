#include "policies/search/search_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "policies/search/family.h"
#include "policies/search/lower.h"

namespace kevin {
namespace {

using search::Choice;
using search::Computation;
using search::Family;
using search::Kernel;
using search::Unsupported;

// Throws Unsupported when no family takes the task.
Kernel Recognise(const Task& task) {
  if (search::Families(task.kind).empty()) {
    throw Unsupported("it writes candidates of kind cpp and cuda, not " + task.kind);
  }
  if (std::any_of(task.arguments.begin(), task.arguments.end(),
                  [](const TaskArgument& argument) { return argument.role == "params"; })) {
    throw Unsupported("it has so many parameters that they come as one block");
  }
  if (task.shapes > 1) {
    throw Unsupported(fmt::format(
        "its kernels are for one shape, and this size set has {} (--size NAME/1 is its first)", task.shapes));
  }
  const search::NodePtr reference = search::ReadReference(task.reference);
  const Computation computation{search::Lower(*reference, task.arguments, {.one_pass_moments = true}),
                                search::Lower(*reference, task.arguments, {.one_pass_moments = false}),
                                &task};
  const bool is_wide = search::ElementOf(task) == "float";
  for (const Family& family : search::Families(task.kind)) {
    if (!is_wide && !family.writes_16_bits) continue;
    if (std::optional<Kernel> kernel = family.recognise(computation)) return std::move(*kernel);
  }
  if (!is_wide) throw Unsupported("in 16 bits it writes only elementwise work, which this is not");
  throw Unsupported("no family computes `" + computation.one_pass->op + "` in this form");
}

std::string WhyNotText(const Task& task, const std::string& reason) {
  std::string names;
  const std::string kind = search::Families(task.kind).empty() ? "cpp" : task.kind;
  for (const Family& family : search::Families(kind)) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : "; ", family.name, family.covers);
  }
  return fmt::format(
      "the search policy cannot write this problem: {}\n"
      "It writes these families: {}. Others need a language model (--policy openai:MODEL, anthropic:MODEL or "
      "local:DIR) or a stored episode (replay:EPISODE).",
      reason, names);
}

std::string ReplyText(const Task& task, const Kernel& kernel, const Choice& choice) {
  std::string text =
      fmt::format("The reference is {} work: {}. {}", kernel.family, kernel.summary, choice.reason);
  if (!task.start_source.empty()) {
    text +=
        " The kernel that the episode started from is not edited; this is a schedule of the search's own.";
  }
  text += "\n\n```" + task.kind + "\n" + search::SettingLine(kernel, choice.setting) +
          kernel.write(choice.setting) + "```\n\n";
  return text + choice.changed + "\n";
}

class SearchPolicy : public Policy {
 public:
  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    Completion completion;
    completion.model = "search-1";
    if (cancel != nullptr && cancel->load()) {
      completion.stop_reason = "cancelled";
      return completion;
    }
    try {
      const Kernel kernel = Recognise(request.task);
      const Choice choice = search::ChooseNext(kernel, request.task.attempts, request.sampling.seed);
      completion.text = ReplyText(request.task, kernel, choice);
    } catch (const Unsupported& unsupported) {
      const std::string text = WhyNotText(request.task, unsupported.what());
      const size_t end = text.find('\n');
      throw Error(ExitCode::kBadRequest, text.substr(0, end), text.substr(end + 1));
    }
    completion.stop_reason = "stop";
    if (on_text) on_text(completion.text);
    return completion;
  }

  std::string Name() const override { return "search"; }
  bool LoadsProcessor() const override { return true; }

  std::string WhyNot(const Task& task) const override {
    try {
      Recognise(task);
      return "";
    } catch (const Unsupported& unsupported) {
      return WhyNotText(task, unsupported.what());
    }
  }
};

}  // namespace

std::unique_ptr<Policy> MakeSearchPolicy() { return std::make_unique<SearchPolicy>(); }

}  // namespace kevin
