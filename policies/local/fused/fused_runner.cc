#include "policies/local/fused/fused_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"

namespace kevin::local {

std::unique_ptr<ModelRunner> MakeModelRunner(LanguageModel& model, const TorchRunnerOptions& options) {
  if (model.Options().device.is_cuda() && FusedDecoder::WhyNot(model).empty())
    return std::make_unique<FusedRunner>(model, options);
  return std::make_unique<TorchRunner>(model, options);
}

FusedRunner::FusedRunner(LanguageModel& model, const TorchRunnerOptions& options)
    : torch_(model, options),
      decoder_(model, torch_.Cache(), torch_.GetShape().context_tokens),
      shape_(torch_.GetShape()) {
  shape_.steps_in_flight = 2;
}

bool FusedRunner::IsForDecoder(std::span<const SequenceStep> steps) const {
  return !steps.empty() && steps.size() <= FusedDecoder::kMostRows &&
         std::all_of(steps.begin(), steps.end(), [](const SequenceStep& step) {
           return step.tokens.size() <= 1 && step.sample && !step.processor &&
                  FusedDecoder::Draws(step.sampling);
         });
}

void FusedRunner::Submit(std::span<const SequenceStep> steps) {
  if (!IsForDecoder(steps)) {
    SubmitToTorch(steps);
    return;
  }
  std::vector<FusedDecoder::Row> rows;
  std::unordered_map<int64_t, int> next_rows;
  Pending pending;
  for (const SequenceStep& step : steps) {
    FusedDecoder::Row row;
    row.position = step.position;
    row.pages = step.pages;
    row.sampling = step.sampling;
    if (!step.tokens.empty()) {
      row.given_token = step.tokens.front();
    } else if (const auto known = tokens_.find(step.sequence); known != tokens_.end()) {
      row.given_token = known->second;
    } else if (const auto earlier = rows_.find(step.sequence); earlier != rows_.end()) {
      row.earlier_row = earlier->second;
    } else {
      throw Error(ExitCode::kBroken,
                  fmt::format("sequence {} drew no token in the step before", step.sequence));
    }
    next_rows[step.sequence] = static_cast<int>(rows.size());
    pending.sequences.push_back(step.sequence);
    rows.push_back(row);
  }
  decoder_.Decode(rows);
  rows_ = std::move(next_rows);
  tokens_.clear();
  pending_.push_back(std::move(pending));
}

// Torch's runner needs the tokens themselves.
void FusedRunner::SubmitToTorch(std::span<const SequenceStep> steps) {
  CollectAll();
  std::vector<SequenceStep> known(steps.begin(), steps.end());
  std::vector<int32_t> tokens(steps.size());
  for (size_t i = 0; i < known.size(); ++i) {
    const auto token = tokens_.find(known[i].sequence);
    if (!known[i].tokens.empty() || token == tokens_.end()) continue;
    tokens[i] = token->second;
    known[i].tokens = {&tokens[i], 1};
  }
  torch_.Submit(known);
  Pending pending;
  pending.is_collected = true;
  pending.tokens = torch_.Wait();
  rows_.clear();
  tokens_.clear();
  size_t next = 0;
  for (const SequenceStep& step : steps) {
    if (!step.sample) continue;
    pending.sequences.push_back(step.sequence);
    tokens_[step.sequence] = pending.tokens[next++].id;
  }
  pending_.push_back(std::move(pending));
}

void FusedRunner::CollectAll() {
  for (Pending& pending : pending_) {
    if (pending.is_collected) continue;
    pending.tokens = decoder_.Collect();
    pending.is_collected = true;
  }
  if (!pending_.empty()) RememberTokens(pending_.back());
}

// Keeps the tokens of the last step, if the decoder ran it.
void FusedRunner::RememberTokens(const Pending& last) {
  if (rows_.empty()) return;
  for (size_t i = 0; i < last.sequences.size(); ++i) tokens_[last.sequences[i]] = last.tokens[i].id;
}

std::vector<SampledToken> FusedRunner::Wait() {
  Pending oldest = std::move(pending_.front());
  pending_.pop_front();
  if (!oldest.is_collected) oldest.tokens = decoder_.Collect();
  if (pending_.empty()) RememberTokens(oldest);
  return std::move(oldest.tokens);
}

void FusedRunner::CopyPage(int from, int to) { torch_.CopyPage(from, to); }

}  // namespace kevin::local
