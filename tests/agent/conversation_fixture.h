#pragma once
// A conversation about the problem ReLU, turns to put into it, and its messages as one text.

#include <optional>
#include <string>
#include <vector>

#include "agent/conversation.h"
#include "tests/support/fakes.h"

namespace kevin::testing {

struct ConversationFixture {
  Problem problem = ReluProblem();
  SizedProblem sized = AtSize(problem, "small");
  ConversationContext context;

  ConversationFixture() {
    context.problem = &sized;
    context.machine = "Fake CPU, 2 cores, avx2 fma, L1d 32K";
    context.threads = 2;
    context.tune = 8;
  }
};

inline TurnRecord Turn(int number, const std::string& comment, std::optional<double> speedup,
                       const std::string& summary) {
  TurnRecord turn;
  turn.turn = number;
  turn.summary = summary;
  turn.feedback = "Feedback of turn " + std::to_string(number) + ".";
  turn.evaluation.source = comment.empty() ? "" : FakeSource(comment);
  turn.evaluation.outcome = speedup ? "measured" : "wrong";
  turn.evaluation.correct = speedup.has_value();
  turn.evaluation.candidate_hash = comment;
  if (speedup) {
    turn.evaluation.speedup = Ratio{*speedup, *speedup - 0.05, *speedup + 0.05};
    turn.evaluation.candidate_us = 100 / *speedup;
  }
  return turn;
}

inline std::string AsText(const std::vector<Message>& messages) {
  std::string text;
  for (const Message& message : messages) text += "--- " + message.role + "\n" + message.content + "\n";
  return text;
}

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kevin::testing
