#include "policies/remote/response.h"

#include <fmt/format.h>
#include <sha256.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "env/error.h"
#include "policies/remote/json.h"
#include "policies/remote/wire.h"

namespace kevin::remote {

// --- Reading ---

namespace {

bool IsGood(const HttpResponse& response) {
  return response.status && *response.status >= 200 && *response.status <= 299;
}

bool HasType(const HttpResponse& response, const char* type) {
  const auto found = response.headers.find("content-type");
  return found != response.headers.end() && found->second.find(type) != std::string::npos;
}

}  // namespace

ResponseReader::ResponseReader(const Wire& wire, OnText on_text)
    : wire_(wire), answer_(std::move(on_text)), parser_([this](const SseEvent& event) { OnEvent(event); }) {}

Reading ResponseReader::Take(const HttpResponse& so_far, std::string_view piece) {
  if (!IsGood(so_far) || !HasType(so_far, "text/event-stream")) return Reading::kProgress;
  is_stream_ = true;
  const bool progress = parser_.Feed(piece);
  if (malformed_ || answer_.done || answer_.error) return Reading::kEnough;
  return progress ? Reading::kProgress : Reading::kNothingNew;
}

void ResponseReader::OnEvent(const SseEvent& event) {
  if (malformed_ || answer_.done || answer_.error) return;
  std::optional<Json> data;
  if (event.data != "[DONE]") {
    data = ParseJson(event.data);
    malformed_ = !data;
    if (malformed_) return;
  }
  wire_.ReadEvent(event, data.value_or(Json()), &answer_);
  if (!first_token_s_ && answer_.HasText())
    first_token_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ResponseReader::Finish(const HttpResponse& response) {
  if (is_stream_) return parser_.Finish();
  if (!IsGood(response) || !HasType(response, "json")) return;
  const auto body = ParseJson(response.body);
  malformed_ = !body;
  if (!body) return;
  if (!At(*body, "error").is_null()) {
    answer_.error = ErrorIn(*body);
  } else {
    wire_.ReadBody(*body, &answer_);
  }
}

// --- Failures ---

namespace {

constexpr double kLongestDelayS = 30;
constexpr size_t kLongestMessage = 500;

std::string Header(const HttpResponse& response, const char* name) {
  const auto found = response.headers.find(name);
  return found == response.headers.end() ? "" : found->second;
}

bool Contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// No credit, which some servers report as status 429 too.
bool IsAboutMoney(const ServerError& error) {
  for (const char* name : {"insufficient_quota", "credit_balance", "billing", "enforced_spend_limit_reached",
                           "insufficient_balance", "insufficient_credits"}) {
    if (Contains(error.code, name) || Contains(error.type, name)) return true;
  }
  return Contains(error.message, "exceeded your current quota") || Contains(error.message, "credit balance");
}

bool IsAboutLength(const ServerError& error) {
  if (error.code == "context_length_exceeded" || error.type == "exceed_context_size_error") return true;
  for (const char* part :
       {"maximum context length", "prompt is too long", "context window", "context size",
        "exceed context limit", "longer than the maximum", "exceeds the available context"}) {
    if (Contains(error.message, part)) return true;
  }
  return false;
}

bool IsRetriedStatus(int status) {
  return status == 408 || status == 409 || status == 425 || status == 429 || status >= 500;
}

std::string OneLine(std::string text) {
  text = ValidUtf8(text);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  if (text.size() > kLongestMessage) text = ValidUtf8(text.substr(0, kLongestMessage)) + " ...";
  return text;
}

std::string Describe(const std::string& prefix, const ServerError& error) {
  const std::string& kind = error.code.empty() ? error.type : error.code;
  const std::string message = error.message.empty() ? kind : error.message;
  return OneLine(prefix + (message.empty() ? "" : ": " + message));
}

const char* NextStepFor(int status) {
  switch (status) {
    case 401:
    case 403:
      return "check the key (its variable or --key-file) and its permissions";
    case 404:
      return "check the model's name and the base URL (--base-url)";
    case 402:
      return "add credit with the provider, then continue with --continue EPISODE";
    default:
      return "correct the request's options; kevin policy check SPEC tests them with one small request";
  }
}

// An error within a stream has no status; its type indicates the kind.
bool IsTransient(const ServerError& error) {
  for (const char* name : {"overloaded", "rate_limit", "api_error", "server_error", "timeout", "internal",
                           "unavailable", "abort"}) {
    if (Contains(error.type, name) || Contains(error.code, name)) return true;
  }
  const int code = std::atoi(error.code.c_str());
  return IsRetriedStatus(code) || (error.type.empty() && error.code.empty());
}

Failure Quota(const std::string& what) {
  return {Remedy::kGiveUp,
          what,
          "raise the provider's limit or add credit, then continue with --continue EPISODE",
          {}};
}

Failure OfStatus(const HttpResponse& response) {
  const int status = *response.status;
  const auto body = ParseJson(response.body);
  ServerError error;
  if (body) error = ErrorIn(*body).value_or(ServerError{});
  if (error.message.empty() && !body) error.message = response.body.substr(0, kLongestMessage);
  const std::string what = Describe(fmt::format("HTTP {}", status), error);
  if (IsAboutMoney(error) || status == 402) return Quota(what);
  const std::string says = Header(response, "x-should-retry");
  if (says == "true" || (says != "false" && IsRetriedStatus(status)))
    return {Remedy::kRetry, what, "", RetryAfter(response)};
  if ((status == 400 || status == 413) && IsAboutLength(error))
    return {Remedy::kShorten, what, "set the model's window with --context", {}};
  if (IsRetriedStatus(status)) return {Remedy::kGiveUp, what, "", {}};
  return {Remedy::kCorrect, what, NextStepFor(status), {}};
}

Failure OfErrorInside(const ServerError& error) {
  const std::string what = Describe("the answer ended in an error", error);
  if (IsAboutMoney(error)) return Quota(what);
  if (IsAboutLength(error)) return {Remedy::kShorten, what, "set the model's window with --context", {}};
  if (IsTransient(error)) return {Remedy::kRetry, what, "", {}};
  return {Remedy::kCorrect, what, NextStepFor(400), {}};
}

Failure OfTransport(const HttpResponse& response) {
  if (response.transport == Transport::kUntrusted) {
    return {Remedy::kGiveUp,
            OneLine(response.error),
            "if the server is trustworthy, pass its certificate with --ca-file",
            {}};
  }
  return {Remedy::kRetry, OneLine(response.error), "", {}};
}

}  // namespace

std::optional<Failure> FailureOf(const HttpResponse& response, const Answer& answer, bool malformed) {
  const bool arrived = response.transport == Transport::kDone || response.transport == Transport::kEnough;
  if (response.status && (*response.status < 200 || *response.status > 299)) return OfStatus(response);
  if (answer.error) return OfErrorInside(*answer.error);
  if (answer.IsComplete()) return std::nullopt;  // also when the connection broke after that
  if (!arrived) return OfTransport(response);
  if (malformed) return Failure{Remedy::kRetry, "the answer is not JSON", "", {}};
  const std::string type = Header(response, "content-type");
  if (!Contains(type, "text/event-stream") && !Contains(type, "json")) {
    return Failure{Remedy::kRetry,
                   OneLine(fmt::format("the answer's content type is \"{}\", not that of an API", type)),
                   "check the base URL (--base-url)",
                   {}};
  }
  return Failure{Remedy::kRetry, "the answer is incomplete", "", {}};
}

std::optional<double> RetryAfter(const HttpResponse& response) {
  char* end = nullptr;
  if (const std::string ms = Header(response, "retry-after-ms"); !ms.empty()) {
    const double value = std::strtod(ms.c_str(), &end);
    if (*end == '\0' && std::isfinite(value) && value >= 0) return value / 1e3;
  }
  const std::string after = Header(response, "retry-after");
  if (after.empty()) return std::nullopt;
  const double seconds = std::strtod(after.c_str(), &end);
  if (*end == '\0') return std::isfinite(seconds) && seconds >= 0 ? std::optional(seconds) : std::nullopt;
  return SecondsUntil(after);
}

double RetryDelay(int next, double first_s, std::optional<double> retry_after_s, std::mt19937_64& random) {
  const double whole = std::min(kLongestDelayS, first_s * std::pow(2.0, std::min(next - 2, 30)));
  const double delay = whole * std::uniform_real_distribution(0.5, 1.0)(random);
  return std::max(delay, retry_after_s.value_or(0));
}

// --- The cache ---

namespace {

namespace fs = std::filesystem;

}  // namespace

ResponseCache::ResponseCache(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  std::error_code error;
  const bool made = fs::create_directories(folder_, error);
  if (made) fs::permissions(folder_, fs::perms::owner_all, error);
  if (!error && access(folder_.c_str(), W_OK | X_OK) == 0) return;
  throw Error(ExitCode::kBadRequest,
              fmt::format("{}: the folder for responses is not writable", folder_.string()),
              "choose a writable folder with --response-cache");
}

fs::path ResponseCache::PathOf(const std::string& key) const {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> hex{};
  SHA256Data(reinterpret_cast<const uint8_t*>(key.data()), key.size(), hex.data());
  const std::string name = hex.data();
  return folder_ / name.substr(0, 2) / name;
}

// A file is one line of JSON, then the body as received.
std::optional<HttpResponse> ResponseCache::Find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(PathOf(key), std::ios::binary);
  std::string head;
  if (!file || !std::getline(file, head)) return std::nullopt;
  const auto json = ParseJson(head);
  HttpResponse response;
  response.body.assign(std::istreambuf_iterator<char>(file), {});
  const auto size = json ? IntegerAt(*json, "size") : std::nullopt;
  if (!size || static_cast<size_t>(*size) != response.body.size()) return std::nullopt;
  response.status = static_cast<int>(IntegerAt(*json, "status").value_or(200));
  response.headers["content-type"] = TextAt(*json, "content_type");
  return response;
}

void ResponseCache::Keep(const std::string& key, const HttpResponse& response) const {
  if (folder_.empty()) return;
  static std::atomic<int> count{0};
  const fs::path path = PathOf(key);
  const fs::path unfinished = fmt::format("{}.{}.{}", path.string(), getpid(), ++count);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const auto type = response.headers.find("content-type");
  const Json head = {{"status", response.status.value_or(200)},
                     {"content_type", type == response.headers.end() ? "" : ValidUtf8(type->second)},
                     {"size", response.body.size()}};
  std::ofstream file(unfinished, std::ios::binary);
  file << head.dump() << '\n' << response.body;
  file.close();
  if (file) fs::rename(unfinished, path, error);
  if (file && !error) return;
  fs::remove(unfinished, error);
  throw Error(ExitCode::kBroken, fmt::format("{}: a response cannot be written", path.string()),
              "free space on that disk, then run the command again");
}

}  // namespace kevin::remote
