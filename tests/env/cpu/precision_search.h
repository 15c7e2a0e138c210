#pragma once
// What the search policy writes first for a problem in one precision.

#include "agent/conversation.h"
#include "policies/search/search_policy.h"
#include "tests/env/cpu/precision_kernels.h"

namespace kevin {

// Elementwise and broadcast work: odd functions, two inputs, a scalar.
inline constexpr const char* kSearchedProblems[] = {"level1/19", "level1/26", "level1/12", "level1/5"};

// Empty where it says that it cannot; `why` then has its words.
inline std::string SearchText(const SizedProblem& sized, const std::string& kind, std::string* why) {
  const auto policy = MakeSearchPolicy();
  ConversationContext context;
  context.problem = &sized;
  context.kind = kind;
  context.threads = 2;
  Request request;
  request.task = BuildTask(context, {});
  *why = policy->WhyNot(request.task);
  if (!why->empty()) return "";
  const std::string text = policy->Complete(request, nullptr, nullptr).text, fence = "```" + kind + "\n";
  const size_t start = text.find(fence) + fence.size();
  return text.substr(start, text.find("```", start) - start);
}

}  // namespace kevin
