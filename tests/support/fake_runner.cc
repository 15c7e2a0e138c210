#include "tests/support/fake_runner.h"

#include <chrono>
#include <limits>
#include <set>
#include <stdexcept>
#include <thread>

#include "env/error.h"
#include "policies/local/generate/sampler.h"

namespace kevin::local {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Require(bool good, const char* what) {
  if (!good) throw std::logic_error(std::string("fake runner: ") + what);
}

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15 ^ (b + 0x632BE59BD9B4E019);
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9;
  return x ^ x >> 32;
}

std::vector<float> LogitsOf(uint64_t history, const FakeRunner::Options& options) {
  std::vector<float> logits(static_cast<size_t>(options.shape.vocabulary));
  for (size_t i = 0; i < logits.size(); ++i) {
    const double unit = static_cast<double>(Mix(history, i) >> 11) * 0x1p-53;
    logits[i] = static_cast<float>((2 * unit - 1) * options.spread);
  }
  return logits;
}

}  // namespace

FakeRunner::FakeRunner(Options options, Counts* counts)
    : options_(options),
      counts_(counts),
      cells_(static_cast<size_t>(options.shape.pages) * static_cast<size_t>(options.shape.page_tokens)) {}

void FakeRunner::Submit(std::span<const SequenceStep> steps) {
  Check(steps);
  if (steps_ == options_.fail_at_step) throw Error(ExitCode::kBroken, "the device fell off the bus");
  Step result;
  std::map<int64_t, int32_t> drawn;
  std::map<size_t, Cell> writes;  // visible to other sequences from the next step on
  for (const SequenceStep& step : steps) {
    const SampledToken token = Run(step, &writes);
    if (!step.sample) continue;
    result.drawn.push_back(token);
    drawn[step.sequence] = token.id;
  }
  for (const auto& [slot, cell] : writes) cells_[slot] = cell;
  free_at_s_ = std::max(free_at_s_, Now()) + options_.step_seconds;
  result.ready_s = free_at_s_;
  in_flight_.push_back(std::move(result));
  drawn_before_ = std::move(drawn);
  ++steps_;
}

std::vector<SampledToken> FakeRunner::Wait() {
  Require(!in_flight_.empty(), "nothing to wait for");
  const Step step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (const double left = step.ready_s - Now(); left > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(left));
  return step.drawn;
}

void FakeRunner::CopyPage(int from, int to) {
  Require(from >= 0 && from < options_.shape.pages && to >= 0 && to < options_.shape.pages && from != to,
          "CopyPage of pages that do not exist");
  const size_t size = static_cast<size_t>(options_.shape.page_tokens);
  for (size_t i = 0; i < size; ++i)
    cells_[static_cast<size_t>(to) * size + i] = cells_[static_cast<size_t>(from) * size + i];
  if (counts_ != nullptr) ++counts_->copies;
}

void FakeRunner::Check(std::span<const SequenceStep> steps) const {
  const Shape& shape = options_.shape;
  Require(!steps.empty(), "an empty step");
  Require(static_cast<int>(in_flight_.size()) < shape.steps_in_flight, "too many steps in flight");
  Require(static_cast<int>(steps.size()) <= shape.step_sequences, "too many sequences in a step");
  std::set<int64_t> sequences;
  int64_t tokens = 0;
  for (const SequenceStep& step : steps) {
    const int count = step.tokens.empty() ? 1 : static_cast<int>(step.tokens.size());
    tokens += count;
    Require(sequences.insert(step.sequence).second, "a sequence twice in a step");
    Require(step.position + count <= shape.context_tokens, "past the context");
    Require(static_cast<int>(step.pages.size()) * shape.page_tokens >= step.position + count,
            "too few pages");
    for (const int page : step.pages) Require(page >= 0 && page < shape.pages, "no such page");
    Require(!step.tokens.empty() || drawn_before_.count(step.sequence) > 0,
            "a token that was not drawn in the previous step");
    Require(step.processor == nullptr || !step.tokens.empty(), "a processor that cannot know its tokens");
  }
  Require(tokens <= shape.step_tokens, "too many tokens in a step");
}

size_t FakeRunner::SlotOf(const SequenceStep& step, int position) const {
  const int size = options_.shape.page_tokens;
  const int page = step.pages[static_cast<size_t>(position / size)];
  return static_cast<size_t>(page) * static_cast<size_t>(size) + static_cast<size_t>(position % size);
}

std::vector<int32_t> FakeRunner::TokensOf(const SequenceStep& step) const {
  if (step.tokens.empty()) return {drawn_before_.at(step.sequence)};
  return {step.tokens.begin(), step.tokens.end()};
}

SampledToken FakeRunner::Run(const SequenceStep& step, std::map<size_t, Cell>* writes) {
  uint64_t history = 0, read = 0;
  for (int position = 0; options_.reads_history && position < step.position; ++position) {
    const Cell& cell = cells_[SlotOf(step, position)];
    Require(cell.position == position, "a page that holds another position");
    history = cell.history;
    read = Mix(read, history);
  }
  int position = step.position;
  for (const int32_t token : TokensOf(step)) {
    history = Mix(history, static_cast<uint64_t>(token));
    read = Mix(read, history);
    const bool is_new = writes->emplace(SlotOf(step, position), Cell{position, history}).second;
    Require(is_new, "two sequences write to one place");
    ++position;
  }
  if (!step.sample) return {};
  std::vector<float> logits = LogitsOf(read, options_);
  if (steps_ == options_.not_finite_at_step)
    logits.assign(logits.size(), std::numeric_limits<float>::quiet_NaN());
  if (step.processor != nullptr) (*step.processor)(logits);
  return Sample(logits, step.sampling, position);
}

std::vector<SampledToken> FakeRunner::TrueAnswer(const Options& options, std::vector<int32_t> prompt,
                                                 const TokenSampling& sampling, int tokens,
                                                 const AnswerProcessor& processor) {
  const size_t prompt_tokens = prompt.size();
  std::vector<SampledToken> answer;
  uint64_t history = 0, read = 0;
  size_t position = 0;
  while (static_cast<int>(answer.size()) < tokens) {
    for (; position < prompt.size(); ++position) {
      history = Mix(history, static_cast<uint64_t>(prompt[position]));
      read = Mix(read, history);
    }
    std::vector<float> logits = LogitsOf(read, options);
    if (processor) processor(std::span(prompt).subspan(prompt_tokens), logits);
    answer.push_back(Sample(logits, sampling, static_cast<int>(position)));
    prompt.push_back(answer.back().id);
  }
  return answer;
}

}  // namespace kevin::local
