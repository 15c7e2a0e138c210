#include "policies/local/serve/metrics.h"

#include <fmt/format.h>

namespace kevin::local {

std::string MetricsText(const EngineStatistics& s) {
  std::string text;
  const auto add = [&](const char* type, const char* name, auto value, const char* help) {
    text += fmt::format("# HELP kevin_model_{0} {1}\n# TYPE kevin_model_{0} {2}\nkevin_model_{0} {3}\n", name,
                        help, type, value);
  };
  add("counter", "requests_total", s.requests, "Requests taken.");
  add("counter", "answers_total", s.answers, "Answers begun; a request may ask for several.");
  add("counter", "generated_tokens_total", s.generated_tokens, "Tokens in answers.");
  add("counter", "wasted_tokens_total", s.wasted_tokens, "Tokens drawn for answers that had ended.");
  add("counter", "prompt_tokens_total", s.prompt_tokens, "Tokens of prompts, once for each answer.");
  add("counter", "cached_tokens_total", s.cached_tokens, "Of these, found in the cache.");
  add("counter", "run_tokens_total", s.run_tokens, "Tokens that went through the model.");
  add("counter", "steps_total", s.steps, "Steps of the model.");
  add("counter", "step_sequences_total", s.step_sequences, "Answers in them; by steps: the mean batch.");
  add("counter", "preemptions_total", s.preemptions, "Answers put off for want of pages.");
  add("counter", "busy_seconds_total", s.busy_s, "Time with something to do.");
  add("gauge", "running", s.running, "Answers in the batch.");
  add("gauge", "waiting", s.waiting, "Answers not in it yet.");
  add("gauge", "pages", s.pages, "Pages of the cache.");
  add("gauge", "used_pages", s.used_pages, "Pages that answers use.");
  add("gauge", "cached_pages", s.cached_pages, "Pages kept for prompts to come.");
  return text;
}

}  // namespace kevin::local
