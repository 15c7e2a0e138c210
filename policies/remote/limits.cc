#include "policies/remote/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <thread>

#include "policies/remote/json.h"

namespace kevin::remote {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr Seconds kBurst{10};
constexpr auto kPoll = std::chrono::milliseconds(50);  // the longest delay of a cancellation

bool IsSet(const CancelToken* cancel) { return cancel != nullptr && *cancel; }

template <class Clock>
auto After(typename Clock::time_point start, Seconds seconds) {
  return start + std::chrono::duration_cast<typename Clock::duration>(seconds);
}

}  // namespace

// --- Limiter ---

Limiter::Limiter(const Rates& rates) : concurrent_(rates.concurrent) {
  if (rates.requests_per_minute > 0) requests_.each = Seconds(60 / rates.requests_per_minute);
  if (rates.tokens_per_minute > 0) tokens_.each = Seconds(60 / rates.tokens_per_minute);
  // No quota is saved at the start: the first burst is smaller.
  requests_.paid_until = tokens_.paid_until = Clock::now();
}

bool Limiter::Meter::IsReady(Clock::time_point now) const {
  return each.count() == 0 || paid_until <= After<Clock>(now, std::max(Seconds(0), kBurst - each));
}

void Limiter::Meter::Take(Clock::time_point now, double units) {
  paid_until = After<Clock>(std::max(paid_until, now), each * units);
}

bool Limiter::Enter(int64_t tokens, const CancelToken* cancel) {
  std::unique_lock lock(mutex_);
  while (!IsSet(cancel)) {
    const auto now = Clock::now();
    const bool has_place = concurrent_ == 0 || active_ < concurrent_;
    if (has_place && requests_.IsReady(now) && tokens_.IsReady(now)) {
      requests_.Take(now, 1);
      tokens_.Take(now, static_cast<double>(tokens));
      ++active_;
      return true;
    }
    wake_.wait_for(lock, kPoll);
  }
  return false;
}

void Limiter::Leave(int64_t tokens, int64_t actual) {
  const std::lock_guard lock(mutex_);
  --active_;
  if (tokens_.each.count() > 0)
    tokens_.paid_until =
        After<Clock>(tokens_.paid_until, tokens_.each * static_cast<double>(actual - tokens));
  wake_.notify_one();
}

// --- CircuitBreaker ---

CircuitBreaker::Pass CircuitBreaker::Enter(const CancelToken* cancel) {
  std::unique_lock lock(mutex_);
  while (!IsSet(cancel)) {
    if (!open_) return Pass::kGo;
    if (failed_tries_ >= options_.tries) return Pass::kUnavailable;
    if (!trying_ && Clock::now() >= until_) {
      trying_ = true;
      return Pass::kTry;
    }
    wake_.wait_for(lock, kPoll);
  }
  return Pass::kCancelled;
}

void CircuitBreaker::Succeeded() {
  const std::lock_guard lock(mutex_);
  failures_ = failed_tries_ = 0;
  open_ = trying_ = false;
  wake_.notify_all();
}

void CircuitBreaker::Failed(Pass pass) {
  const std::lock_guard lock(mutex_);
  if (pass == Pass::kTry) {
    trying_ = false;
    ++failed_tries_;
    Open(Clock::now());
  } else if (++failures_ >= options_.failures && !open_) {
    Open(Clock::now());
  }
  wake_.notify_all();
}

void CircuitBreaker::Undecided(Pass pass) {
  const std::lock_guard lock(mutex_);
  if (pass == Pass::kTry) trying_ = false;
}

void CircuitBreaker::Open(Clock::time_point now) {
  open_ = true;
  const double wait = options_.wait_s * static_cast<double>(1 << std::min(failed_tries_, 20));
  until_ = After<Clock>(now, Seconds(std::min(wait, options_.longest_s)));
}

// --- Budget ---

void Budget::Begin() {
  const std::lock_guard lock(mutex_);
  const double share = ended_ > 0 ? static_cast<double>(under_way_) / ended_ : 0;
  const auto reached = [](const std::string& what) {
    throw BudgetReached(ExitCode::kDone, "the budget of " + what + " is reached",
                        "continue with --continue EPISODE and a larger budget");
  };
  if (options_.usd && usd_ * (1 + share) >= *options_.usd) reached(fmt::format("${:g}", *options_.usd));
  if (options_.tokens && static_cast<double>(tokens_) * (1 + share) >= static_cast<double>(*options_.tokens))
    reached(fmt::format("{} tokens", *options_.tokens));
  if (options_.seconds && Seconds(Clock::now() - start_).count() >= *options_.seconds)
    reached(fmt::format("{:g} s", *options_.seconds));
  ++under_way_;
}

void Budget::End(int64_t tokens, double usd) {
  const std::lock_guard lock(mutex_);
  tokens_ += tokens;
  usd_ += usd;
  --under_way_;
  ++ended_;
}

void Budget::Add(int requests, int64_t tokens, double usd) {
  const std::lock_guard lock(mutex_);
  ended_ += requests;
  tokens_ += tokens;
  usd_ += usd;
}

bool SleepUnlessCancelled(double seconds, const CancelToken* cancel) {
  using Clock = std::chrono::steady_clock;
  const auto end = After<Clock>(Clock::now(), Seconds(seconds));
  while (!IsSet(cancel)) {
    const auto left = end - Clock::now();
    if (left <= Clock::duration::zero()) return true;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, kPoll));
  }
  return false;
}

// --- Prices ---

namespace {

[[noreturn]] void ThrowBadFile(const std::filesystem::path& path, const std::string& why) {
  throw Error(ExitCode::kBadRequest, fmt::format("{}: {}", path.string(), why),
              "give a file in the schema of LiteLLM's model_prices_and_context_window.json with --prices");
}

// "input_cost_per_token_above_200k_tokens"
void ReadLongPrompt(const Json& entry, Price* price) {
  static const std::regex kPattern("(input|output)_cost_per_token_above_([0-9]{1,6})k_tokens");
  price->long_input = price->input;
  price->long_output = price->output;
  for (const auto& [name, value] : entry.items()) {
    std::smatch match;
    if (!value.is_number() || !std::regex_match(name, match, kPattern)) continue;
    price->long_prompt = std::stoll(match[2].str()) * 1000;
    (match[1] == "input" ? price->long_input : price->long_output) = value.get<double>();
  }
}

std::optional<Price> ReadPrice(const Json& entry) {
  const auto input = NumberAt(entry, "input_cost_per_token"),
             output = NumberAt(entry, "output_cost_per_token");
  if (!input || !output) return std::nullopt;
  Price price;
  price.input = *input;
  price.output = *output;
  price.cached_input = NumberAt(entry, "cache_read_input_token_cost");
  price.cache_write = NumberAt(entry, "cache_creation_input_token_cost");
  price.reasoning = NumberAt(entry, "output_cost_per_reasoning_token");
  price.max_input_tokens = IntegerAt(entry, "max_input_tokens");
  price.max_output_tokens = IntegerAt(entry, "max_output_tokens");
  ReadLongPrompt(entry, &price);
  return price;
}

std::string WithoutDate(const std::string& model) {
  static const std::regex kDate("-(20[0-9]{2}-?[0-9]{2}-?[0-9]{2})$");
  return std::regex_replace(model, kDate, "");
}

}  // namespace

PriceTable PriceTable::Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) ThrowBadFile(path, "cannot be read");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto json = ParseJson(text);
  if (!json || !json->is_object()) ThrowBadFile(path, "is not a JSON object");
  PriceTable table;
  for (const auto& [model, entry] : json->items()) {
    if (const auto price = ReadPrice(entry)) table.prices_[model] = *price;
  }
  if (table.prices_.empty())
    ThrowBadFile(path, "has no model with input_cost_per_token and output_cost_per_token");
  return table;
}

const Price* PriceTable::Find(const std::string& provider, const std::string& model) const {
  const std::string vendor = provider.substr(0, provider.find('-'));
  for (const std::string& name : {model, WithoutDate(model)}) {
    for (const std::string& key : {name, vendor + "/" + name}) {
      if (const auto found = prices_.find(key); found != prices_.end()) return &found->second;
    }
  }
  return nullptr;
}

double Cost(const Price& price, const Usage& usage) {
  const bool is_long = price.long_prompt && usage.prompt_tokens > *price.long_prompt;
  const double input = is_long ? price.long_input : price.input;
  const double output = is_long ? price.long_output : price.output;
  const int64_t fresh =
      std::max<int64_t>(0, usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens);
  const int64_t spoken = std::max<int64_t>(0, usage.completion_tokens - usage.reasoning_tokens);
  return static_cast<double>(fresh) * input +
         static_cast<double>(usage.cached_tokens) * price.cached_input.value_or(input) +
         static_cast<double>(usage.cache_write_tokens) * price.cache_write.value_or(input) +
         static_cast<double>(spoken) * output +
         static_cast<double>(usage.reasoning_tokens) * price.reasoning.value_or(output);
}

}  // namespace kevin::remote
