#include "agent/train/rollout_log.h"

#include <fmt/format.h>

#include <cmath>

#include "agent/events.h"
#include "env/process/files.h"

namespace kevin {
namespace {

constexpr size_t kMostTurns = 64, kMostBytes = 4000;

}  // namespace

void WriteRollouts(const std::filesystem::path& folder, const LearnBatch& batch) {
  std::string lines;
  const size_t stride = (batch.turns.size() + kMostTurns - 1) / kMostTurns;
  for (size_t i = 0; i < batch.turns.size(); i += stride) {
    const BatchTurn& t = batch.turns[i];
    lines += ToLine({{"step", batch.batch.step},
                     {"episode", t.episode},
                     {"turn", t.turn},
                     {"problem", t.problem},
                     {"outcome", t.outcome},
                     {"correct", t.correct},
                     {"speedup", OrNull(t.speedup)},
                     {"score", OrNull(t.score)},
                     {"return", OrNull(t.value)},
                     {"advantage", OrNull(t.advantage)},
                     {"tokens", t.tokens},
                     {"stop_reason", t.stop_reason},
                     {"model", t.model},
                     {"reply", t.reply.substr(0, kMostBytes)}});
  }
  std::filesystem::create_directories(folder);
  WriteFile((folder / fmt::format("{:08}.jsonl", batch.batch.step)).string(), lines, true);
}

}  // namespace kevin
