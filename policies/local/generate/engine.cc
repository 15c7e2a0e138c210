#include "policies/local/generate/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "policies/local/generate/answer_text.h"
#include "policies/local/generate/sampler.h"
#include "policies/local/generate/scheduler.h"
#include "policies/policy.h"

namespace kevin::local {
namespace {

constexpr const char* kBadLogits =
    "the model's logits are not finite: its weights or its arithmetic are broken";

struct Asked {
  int64_t number = 0;
  GenerationRequest what;
  OnPiece on_piece;
  int open_answers = 0;
};

struct Answer : Sequence {
  Answer(std::shared_ptr<Asked> asked_request, int answer, AnswerText answer_text)
      : asked(std::move(asked_request)), index(answer), text(std::move(answer_text)) {}
  const std::shared_ptr<Asked> asked;
  const int index;
  AnswerText text;
};
using AnswerPointer = std::shared_ptr<Answer>;

void Require(bool good, const std::string& what) {
  if (!good) throw Error(ExitCode::kBadRequest, what, "correct the request");
}

void Check(const GenerationRequest& request, const ModelRunner::Shape& shape, int context) {
  Require(!request.prompt.empty(), "the prompt has no tokens");
  for (const int32_t id : request.prompt) {
    Require(id >= 0 && id < shape.vocabulary,
            fmt::format("token {} of the prompt is not among the model's {}", id, shape.vocabulary));
  }
  Require(request.answers >= 1, "less than one answer is asked for");
  Require(request.max_tokens >= 1, "less than one token is asked for");
  Require(request.stop_texts.empty() || request.make_text, "stop texts need a text");
  Require(std::none_of(request.stop_texts.begin(), request.stop_texts.end(),
                       [](const std::string& text) { return text.empty(); }),
          "a stop text is empty");
  if (static_cast<int64_t>(request.prompt.size()) < context) return;
  throw PromptTooLong(ExitCode::kBadRequest,
                      fmt::format("the prompt has {} tokens, and this model's maximum context length is {}",
                                  request.prompt.size(), context),
                      "shorten the prompt");
}

}  // namespace

uint64_t AnswerSeed(uint64_t seed, int answer) {
  if (answer == 0) return seed;
  uint64_t mixed = seed + 0x9E3779B97F4A7C15 * static_cast<uint64_t>(answer);
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
  return mixed ^ mixed >> 31;
}

class Engine::Worker {
 public:
  explicit Worker(std::unique_ptr<ModelRunner> runner)
      : runner_(std::move(runner)),
        shape_(runner_->GetShape()),
        scheduler_(shape_),
        thread_([this] { Run(); }) {}

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const ModelRunner::Shape& shape() const { return shape_; }
  int ContextTokens() const {
    const int64_t all = int64_t{shape_.pages} * shape_.page_tokens;
    return static_cast<int>(std::min<int64_t>(all, shape_.context_tokens));
  }

  int64_t Submit(GenerationRequest request, OnPiece on_piece) {
    Check(request, shape_, ContextTokens());
    auto asked = std::make_shared<Asked>();
    asked->what = std::move(request);
    asked->on_piece = std::move(on_piece);
    asked->open_answers = asked->what.answers;
    std::vector<AnswerPointer> answers;
    for (int i = 0; i < asked->what.answers; ++i) answers.push_back(MakeAnswer(asked, i));
    for (size_t i = 1; i < answers.size(); ++i) answers[i]->first = answers[0];
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
    asked->number = ++last_request_;
    for (AnswerPointer& answer : answers) answer->number = ++last_answer_;
    new_.insert(new_.end(), answers.begin(), answers.end());
    ++statistics_.requests;
    wake_.notify_one();
    return asked->number;
  }

  void Cancel(int64_t request) {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(request);
    wake_.notify_one();
  }

  void WhilePaused(const std::function<void()>& change, bool needs_memory) {
    std::unique_lock lock(mutex_);
    wants_still_ = true, wants_memory_ = needs_memory;
    wake_.notify_one();
    stood_still_.wait(lock, [this] { return is_still_ || failure_ || has_ended_; });
    lock.unlock();
    try {
      change();
    } catch (...) {
      GoOn();
      throw;
    }
    GoOn();
  }

  EngineStatistics Statistics() const {
    const std::lock_guard lock(mutex_);
    EngineStatistics statistics = statistics_;
    statistics.waiting += static_cast<int>(new_.size());
    return statistics;
  }

  std::optional<Error> PermanentFailure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  AnswerPointer MakeAnswer(const std::shared_ptr<Asked>& asked, int index) const {
    const GenerationRequest& what = asked->what;
    AnswerText text(what.make_text ? what.make_text() : nullptr, what.stop_texts);
    auto answer = std::make_shared<Answer>(asked, index, std::move(text));
    answer->tokens = what.prompt;
    answer->prompt_tokens = static_cast<int>(what.prompt.size());
    const int64_t most = int64_t{answer->prompt_tokens} + what.max_tokens;
    answer->most_tokens = static_cast<int>(std::min<int64_t>(most, ContextTokens()));
    answer->sampling = what.sampling;
    answer->sampling.seed = AnswerSeed(what.sampling.seed, index);
    if (!what.make_processor) return answer;
    answer->processor = [tokens = &answer->tokens, prompt = what.prompt.size(),
                         process = what.make_processor(index)](std::span<float> logits) {
      process(std::span(*tokens).subspan(prompt), logits);
    };
    return answer;
  }

  // --- The thread ---

  void Run() {
    try {
      while (TakeNews()) {
        const auto start = Clock::now();
        OneRound();
        busy_ += Clock::now() - start;
      }
      TakeIn();  // what came since
      EndAll(FinishReason::kCancelled, "");
      for (; !in_flight_.empty(); in_flight_.pop_front()) runner_->Wait();
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
      stood_still_.notify_all();
    } catch (const Error& error) {
      Die(error);
    } catch (const std::exception& error) {
      Die(Error(ExitCode::kBroken, error.what()));
    }
  }

  void Die(const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = error;
    }
    stood_still_.notify_all();
    TakeIn();
    EndAll(FinishReason::kFailed, error.what());
    Publish();
  }

  // Waits for work. False: the engine is ending.
  bool TakeNews() {
    {
      std::unique_lock lock(mutex_);
      PublishLocked();
      if (in_flight_.empty() && open_.empty())
        wake_.wait(lock, [this] { return ending_ || wants_still_ || !new_.empty(); });
      if (ending_) return false;
    }
    StandStillIfWanted();
    TakeIn();
    return true;
  }

  void GoOn() {
    std::unique_lock lock(mutex_);
    wants_still_ = false;
    wake_.notify_one();
    stood_still_.wait(lock, [this] { return !is_still_ || failure_ || has_ended_; });
  }

  void StandStillIfWanted() {
    std::unique_lock lock(mutex_);
    if (!wants_still_) return;
    lock.unlock();
    while (!in_flight_.empty()) TakeOldestStep();
    scheduler_.ForgetAll();
    if (wants_memory_) runner_->GiveUpCache();
    lock.lock();
    is_still_ = true;
    stood_still_.notify_all();
    wake_.wait(lock, [this] { return !wants_still_; });
    lock.unlock();
    runner_->WeightsChanged();
    lock.lock();
    is_still_ = false;
    PublishLocked();
    stood_still_.notify_all();
  }

  void TakeIn() {
    std::vector<AnswerPointer> arrived;
    std::vector<int64_t> cancelled;
    {
      const std::lock_guard lock(mutex_);
      arrived.swap(new_);
      cancelled.swap(cancelled_);
    }
    for (AnswerPointer& answer : arrived) {
      ++counts_.answers;
      counts_.prompt_tokens += answer->prompt_tokens;
      open_.emplace(answer->number, answer);
      scheduler_.Add(std::move(answer));
    }
    if (cancelled.empty()) return;
    std::sort(cancelled.begin(), cancelled.end());
    std::vector<AnswerPointer> ending;
    for (const auto& [number, answer] : open_) {
      if (std::binary_search(cancelled.begin(), cancelled.end(), answer->asked->number))
        ending.push_back(answer);
    }
    for (const AnswerPointer& answer : ending) End(*answer, AnswerPiece{}, FinishReason::kCancelled, "");
  }

  // At most one step is submitted and one waited for, so that new requests wait no longer than that.
  void OneRound() {
    bool is_idle = true;
    if (static_cast<int>(in_flight_.size()) < shape_.steps_in_flight) {
      Plan plan = scheduler_.Next();
      if (!plan.steps.empty()) {
        for (const auto& [from, to] : plan.copies) runner_->CopyPage(from, to);
        runner_->Submit(plan.steps);
        ++counts_.steps;
        counts_.step_sequences += static_cast<int64_t>(plan.steps.size());
        in_flight_.push_back(std::move(plan.drawing));
        is_idle = false;
      }
    }
    const bool is_full = static_cast<int>(in_flight_.size()) >= shape_.steps_in_flight;
    if (!in_flight_.empty() && (is_idle || is_full)) TakeOldestStep();
  }

  void TakeOldestStep() {
    const std::vector<SampledToken> drawn = runner_->Wait();
    const std::vector<SequencePointer> drawing = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (drawn.size() != drawing.size())
      throw Error(ExitCode::kBroken,
                  fmt::format("the model drew {} tokens instead of {}", drawn.size(), drawing.size()));
    for (size_t i = 0; i < drawn.size(); ++i) Take(static_cast<Answer&>(*drawing[i]), drawn[i]);
  }

  void Take(Answer& answer, const SampledToken& token) {
    if (answer.has_ended) {
      ++counts_.wasted_tokens;
      return;
    }
    if (token.id < 0) return End(answer, AnswerPiece{}, FinishReason::kFailed, kBadLogits);
    scheduler_.DrawnTokenArrived(answer, token.id);
    ++counts_.generated_tokens;
    AnswerPiece piece;
    piece.tokens = {token};
    const auto& stops = answer.asked->what.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token.id) != stops.end())
      return End(answer, std::move(piece), FinishReason::kStop, "");
    piece.text = answer.text.Add(token.id);
    const bool is_full = static_cast<int>(answer.tokens.size()) >= answer.most_tokens;
    if (answer.text.is_stopped() || is_full)
      return End(answer, std::move(piece),
                 answer.text.is_stopped() ? FinishReason::kStop : FinishReason::kLength, "");
    piece.answer = answer.index;
    answer.asked->on_piece(piece);
  }

  void End(Answer& answer, AnswerPiece piece, FinishReason reason, const std::string& why) {
    const AnswerPointer keep = open_.extract(answer.number).mapped();
    counts_.cached_tokens += answer.cached_tokens;
    piece.text += answer.text.Finish();
    if (answer.text.is_stopped() && reason == FinishReason::kLength) reason = FinishReason::kStop;
    piece.answer = answer.index;
    piece.finish = reason;
    piece.cached_tokens = answer.cached_tokens;
    piece.error = why;
    scheduler_.End(answer);
    answer.asked->on_piece(piece);
  }

  void EndAll(FinishReason reason, const std::string& why) {
    while (!open_.empty()) {
      const AnswerPointer answer = open_.begin()->second;
      End(*answer, AnswerPiece{}, reason, why);
    }
  }

  void Publish() {
    const std::lock_guard lock(mutex_);
    PublishLocked();
  }

  void PublishLocked() {
    const int64_t requests = statistics_.requests;
    statistics_ = counts_;
    statistics_.requests = requests;
    statistics_.run_tokens = scheduler_.run_tokens();
    statistics_.preemptions = scheduler_.preemptions();
    statistics_.busy_s = std::chrono::duration<double>(busy_).count();
    statistics_.running = scheduler_.running();
    statistics_.waiting = scheduler_.waiting();
    statistics_.pages = shape_.pages;
    statistics_.used_pages = shape_.pages - scheduler_.pool().available();
    statistics_.cached_pages = scheduler_.pool().cached();
  }

  const std::unique_ptr<ModelRunner> runner_;
  const ModelRunner::Shape shape_;
  // Used by the thread only.
  Scheduler scheduler_;
  std::unordered_map<int64_t, AnswerPointer> open_;
  std::deque<std::vector<SequencePointer>> in_flight_;
  EngineStatistics counts_;
  Clock::duration busy_{0};

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_, stood_still_;
  bool wants_still_ = false, wants_memory_ = false, is_still_ = false, has_ended_ = false;
  std::vector<AnswerPointer> new_;
  std::vector<int64_t> cancelled_;
  bool ending_ = false;
  int64_t last_request_ = 0, last_answer_ = 0;
  std::optional<Error> failure_;
  EngineStatistics statistics_;

  std::thread thread_;  // last: it uses all the rest
};

Engine::Engine(std::unique_ptr<ModelRunner> runner) : worker_(std::make_unique<Worker>(std::move(runner))) {}
Engine::~Engine() = default;
int64_t Engine::Submit(GenerationRequest request, OnPiece on_piece) {
  return worker_->Submit(std::move(request), std::move(on_piece));
}
void Engine::Cancel(int64_t request) { worker_->Cancel(request); }
void Engine::WhilePaused(const std::function<void()>& change, bool needs_memory) {
  worker_->WhilePaused(change, needs_memory);
}
EngineStatistics Engine::Statistics() const { return worker_->Statistics(); }
const ModelRunner::Shape& Engine::GetShape() const { return worker_->shape(); }
int Engine::ContextTokens() const { return worker_->ContextTokens(); }
std::optional<Error> Engine::PermanentFailure() const { return worker_->PermanentFailure(); }

}  // namespace kevin::local
