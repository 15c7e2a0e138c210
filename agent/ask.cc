#include "agent/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "agent/machine.h"
#include "agent/parse.h"
#include "agent/records.h"
#include "agent/task.h"
#include "env/problem/text.h"
#include "env/process/machine.h"
#include "prompts/prompts.h"

namespace kevin {

TurnRecord NewTurn(int number, const std::string& run) {
  TurnRecord turn;
  turn.turn = number;
  turn.run = run;
  turn.prompt_template_hash = PromptSetHash();
  return turn;
}

PhaseGate* GateOf(const Policy& policy, const std::string& judges) {
  const std::string device = policy.ComputesOn();
  if (device.empty() || !policy.AnswersTogether()) return nullptr;
  const std::string names = ", " + judges.substr(0, judges.find(": ")) + ",";
  return names.find(", " + device + ",") == std::string::npos ? nullptr : &PhaseGate::Of(device);
}

uint64_t TurnSeed(uint64_t episode_seed, int turn) {
  if (turn == 1) return episode_seed;
  return std::stoull(Sha256Hex(fmt::format("turn {} {}", episode_seed, turn)).substr(0, 16), nullptr, 16);
}

TurnRecord Asker::Ask(int number, ConversationContext* context,
                      const std::function<void(const std::string&)>& on_phase) {
  TurnRecord turn = NewTurn(number, options_.run);
  const auto& turns = journal_.turns();
  turn.parser_version = fmt::format("{}", kParserVersion);
  turn.prompt_template = PromptTemplateFor(*context, turns);
  Request request{BuildMessages(*context, turns), options_.sampling, BuildTask(*context, turns)};
  request.sampling.seed = TurnSeed(options_.seed, number);
  request.on_attempt = [&](const RequestAttempt& attempt) {
    journal_.KeepRequest(number, attempt);
    if (attempt.outcome == "failed") on_phase("generate, again after " + attempt.error);
  };
  on_phase("generate");
  const PhaseGate::Pass answering(gate_, PhaseGate::kAnswer, cancel_);
  const std::vector<std::string> further = policy_.FurtherLocks();
  std::set<std::string> locks(further.begin(), further.end());
  if (const std::string device = policy_.ComputesOn(); !device.empty()) locks.insert(LockNameOf(device));
  const SharedDevices quiet(locks, cancel_);
  const auto start = std::chrono::steady_clock::now();
  const Completion completion = CompleteShortened(&request, context);
  turn.generate_s = SecondsSince(start);
  for (const Message& message : request.messages) turn.messages.push_back({message.role, message.content});
  FillFromCompletion(completion, request.sampling, &turn);
  turn.requests = journal_.RequestsOf(number);
  return turn;
}

// Only the server knows a prompt's exact length. While it rejects the prompt as too long, fewer attempts
// are shown, in this turn and all later ones.
Completion Asker::CompleteShortened(Request* request, ConversationContext* context) {
  while (true) {
    try {
      return policy_.Complete(*request, cancel_, {});
    } catch (const PromptTooLong&) {
      const int64_t length = PromptTokens(request->messages, journal_.turns());
      context->prompt_token_budget = std::min(context->prompt_token_budget, length) * 3 / 4;
      std::vector<Message> shorter = BuildMessages(*context, journal_.turns());
      if (shorter.back().content == request->messages.back().content) throw;
      request->messages = std::move(shorter);
    }
  }
}

}  // namespace kevin
