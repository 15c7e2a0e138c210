#include "agent/train/batch_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>

#include "env/error.h"

namespace kevin {
namespace {

constexpr std::chrono::milliseconds kDrainCheck{100};

}  // namespace

RecordedBatches::RecordedBatches(const LearnRequest& request, const Algorithm& algorithm,
                                 const UnitOptions& units)
    : algorithm_(algorithm), turns_(request), units_(MakeUnits(algorithm_, turns_, units)) {
  RequireUnits();
}

void RecordedBatches::RequireUnits() const {
  if (!units_.units.empty()) return;
  if (algorithm_.material == Material::kRollouts) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("none of the {} tasks shows a difference between its turns beyond the measurement "
                    "error, so there is nothing to learn",
                    turns_.tasks()),
        "collect several episodes a problem (--episodes 16), or train with --keep-flat");
  }
  throw Error(ExitCode::kBadRequest,
              fmt::format("none of the {} turns fits {}", turns_.turns().size(), algorithm_.name),
              "sft --select all also takes incorrect replies; dpo needs turns that differ");
}

int64_t RecordedBatches::StepsPerEpoch() const {
  return kevin::StepsPerEpoch(units_.units.size(), static_cast<size_t>(algorithm_.train.units_per_step));
}

local::LearntData RecordedBatches::Data() const {
  return {units_.longest_tokens, static_cast<int64_t>(units_.units.size()), FingerprintOf(turns_, units_)};
}

std::string RecordedBatches::Describe() const {
  const char* what = algorithm_.material == Material::kRollouts  ? "tasks"
                     : algorithm_.material == Material::kAnswers ? "answers"
                                                                 : "pairs";
  std::string left_out = fmt::format("{} dropped", units_.dropped);
  if (units_.too_long > 0) left_out += fmt::format(", {} too long for the model", units_.too_long);
  if (units_.cut_off > 0) left_out += fmt::format(", {} cut off", units_.cut_off);
  if (units_.voided > 0) left_out += fmt::format(", {} cancelled", units_.voided);
  if (units_.without_tokens > 0) left_out += fmt::format(", {} without token ids", units_.without_tokens);
  return fmt::format("{} {} ({}) of {} turns, {} a step", units_.units.size(), what, left_out,
                     turns_.turns().size(), algorithm_.train.units_per_step);
}

std::string RecordedBatches::SamplingRemark() const {
  std::vector<std::string> parts;
  if (units_.unknown_sampling > 0)
    parts.push_back(fmt::format(
        "of {} it is not known from which distribution their tokens were drawn (temperature, top_p, top_k or min_p is "
        "not recorded)",
        units_.unknown_sampling));
  if (units_.filtered > 0)
    parts.push_back(
        fmt::format("{} were drawn by top_p, top_k or min_p, and the trainer learns the whole distribution "
                    "(collect with --top-p 1 --top-k 0 --min-p 0)",
                    units_.filtered));
  if (units_.greedy > 0) parts.push_back(fmt::format("{} were made at temperature 0", units_.greedy));
  if (parts.empty()) return "";
  return fmt::format("{} turns were left out: {}", units_.unknown_sampling + units_.greedy + units_.filtered,
                     fmt::join(parts, "; "));
}

std::vector<std::string> RecordedBatches::Remarks() const {
  std::vector<std::string> remarks = turns_.remarks();
  if (!turns_.left_out().empty()) remarks.push_back(turns_.left_out());
  if (const std::string sampling = SamplingRemark(); !sampling.empty()) remarks.push_back(sampling);
  if (units_.without_tokens > 0)
    remarks.push_back(fmt::format(
        "{} tasks were left out: their turns have no token ids, which {} needs (collect with local:DIR, or "
        "with --token-ids)",
        units_.without_tokens, algorithm_.name));
  return remarks;
}

void RecordedBatches::Prepare(const ModelText& text, const BatchOptions& options) {
  units_ = WithoutUnusable(turns_, std::move(units_), algorithm_, text, options);
  if (units_.units.empty() && !SamplingRemark().empty()) {
    throw Error(
        ExitCode::kBadRequest, "nothing to learn from: " + SamplingRemark(),
        "collect again: with --token-ids or local:DIR every request states its sampling, which is recorded; "
        "sft, tpt and dpo do not need it");
  }
  if (units_.units.empty()) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format(
            "nothing to learn from: {} samples are longer than {} tokens, {} were cut off by the length "
            "limit, {} were cancelled",
            units_.too_long, options.max_sample_tokens, units_.cut_off, units_.voided),
        "train a model with a longer context, give a larger --max-sample-tokens if you gave one, keep what was cut off "
        "(--keep-cut-off), or collect shorter answers (--max-tokens)");
  }
  maker_.emplace(turns_, units_, algorithm_, text, options);
  maker_->Make(1);
}

std::optional<LearnBatch> RecordedBatches::Take(int64_t step) {
  LearnBatch batch = coming_.valid() && coming_step_ == step ? coming_.get() : maker_->Make(step);
  coming_step_ = step + 1;
  if (step < steps_)
    coming_ = std::async(std::launch::async, [this, step] { return maker_->Make(step + 1); });
  return batch;
}

CollectedBatches::CollectedBatches(int64_t done, int64_t steps, int64_t ahead, Collect collect, Make make,
                                   const std::atomic<bool>* asked_to_drain,
                                   const std::atomic<bool>* asked_to_stop)
    : ahead_(ahead),
      collect_(std::move(collect)),
      make_(std::move(make)),
      asked_to_drain_(asked_to_drain),
      asked_to_stop_(asked_to_stop),
      learnt_(done),
      thread_([this, done, steps] { Work(done + 1, steps); }) {}

CollectedBatches::~CollectedBatches() {
  drain_ = stop_ = true;
  wake_.notify_all();
  thread_.join();
}

void CollectedBatches::Work(int64_t first, int64_t steps) {
  try {
    for (int64_t step = first; step <= steps; ++step) {
      std::unique_lock lock(mutex_);
      while (learnt_ < step - 1 - ahead_ && !drain_) wake_.wait_for(lock, kDrainCheck);
      lock.unlock();
      const std::optional<Runs> runs = drain_ ? std::nullopt : collect_(step, &drain_, &stop_);
      lock.lock();
      if (runs) runs_[step] = *runs;
      interrupted_ = !runs;
      wake_.notify_all();
      if (!runs) return;
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    wake_.notify_all();
  }
}

std::optional<LearnBatch> CollectedBatches::Take(int64_t step) {
  std::unique_lock lock(mutex_);
  while (!runs_.contains(step) && !error_ && !interrupted_) {
    wake_.wait_for(lock, kDrainCheck);
    if (*asked_to_drain_) drain_ = true;
    if (*asked_to_stop_) stop_ = true;
  }
  if (runs_.contains(step)) {
    const Runs runs = runs_.at(step);
    lock.unlock();
    return make_(step, runs);
  }
  if (error_) std::rethrow_exception(error_);
  return std::nullopt;
}

void CollectedBatches::Learnt(int64_t step) {
  const std::lock_guard lock(mutex_);
  learnt_ = step;
  wake_.notify_all();
}

}  // namespace kevin
