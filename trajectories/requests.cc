// Requests to servers, of a Store.

#include <fmt/format.h>

#include "env/error.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

constexpr char kRequestColumns[] =
    "episode, turn, attempt, run, provider, url, model, request, started_at, outcome, status, error, "
    "retry_after_s, seconds, first_token_s, served_model, request_id, stop_cause, prompt_tokens, "
    "completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, cost_usd, response";

RequestRecord ReadRequest(Store::Impl& impl, const Statement& statement) {
  RowReader row(statement);
  RequestRecord r;
  row.Text(), r.turn = row.Int(), r.attempt = row.Int(), r.run = row.Text(), r.provider = row.Text();
  r.url = row.Text(), r.model = row.Text(), r.request = impl.GetBlob(row.Text()), r.started_at = row.Text();
  r.outcome = row.Text(), r.status = row.OptionalInt(), r.error = row.Text();
  r.retry_after_s = row.OptionalReal(), r.seconds = row.OptionalReal(), r.first_token_s = row.OptionalReal();
  r.served_model = row.Text(), r.request_id = row.Text(), r.stop_cause = row.Text();
  r.usage.prompt_tokens = row.OptionalInteger(), r.usage.completion_tokens = row.OptionalInteger();
  r.usage.cached_tokens = row.OptionalInteger(), r.cache_write_tokens = row.OptionalInteger();
  r.usage.reasoning_tokens = row.OptionalInteger(), r.cost_usd = row.OptionalReal();
  r.response = impl.GetBlob(row.Text());
  return r;
}

}  // namespace

int Store::BeginRequest(const std::string& episode, const RequestRecord& r) {
  const EncodedBlob request = EncodeText(r.request);
  const std::optional<EncodedBlob> response = EncodeArray(r.response);
  int attempt = 0;
  impl_->Write([&] {
    impl_->RequireEpisode(episode);
    impl_->Put(request);
    if (response) impl_->Put(*response);
    Statement last = impl_->database.Prepare(
        "SELECT coalesce(max(attempt), 0), (SELECT last_run FROM episodes WHERE id = ?1) FROM requests "
        "WHERE episode = ?1 AND turn = ?2");
    last.Bind(episode, r.turn).Step();
    attempt = static_cast<int>(last.Integer(0)) + 1;
    impl_->database.Prepare(InsertSql("INSERT", "requests", kRequestColumns))
        .Bind(episode, r.turn, attempt, r.run.empty() ? last.Text(1) : r.run, r.provider, r.url, r.model,
              request.hash, UtcNow(), r.outcome, r.status, NullIfEmpty(r.error), r.retry_after_s, r.seconds,
              r.first_token_s, NullIfEmpty(r.served_model), NullIfEmpty(r.request_id),
              NullIfEmpty(r.stop_cause), r.usage.prompt_tokens, r.usage.completion_tokens,
              r.usage.cached_tokens, r.cache_write_tokens, r.usage.reasoning_tokens, r.cost_usd,
              response ? std::optional(response->hash) : std::nullopt)
        .Run();
  });
  return attempt;
}

void Store::EndRequest(const std::string& episode, const RequestRecord& r) {
  const std::optional<EncodedBlob> response = EncodeArray(r.response);
  impl_->Write([&] {
    if (response) impl_->Put(*response);
    impl_->database
        .Prepare(
            "UPDATE requests SET outcome = ?, status = ?, error = ?, retry_after_s = ?, seconds = ?, "
            "first_token_s = ?, served_model = ?, request_id = ?, stop_cause = ?, prompt_tokens = ?, "
            "completion_tokens = ?, cached_tokens = ?, cache_write_tokens = ?, reasoning_tokens = ?, "
            "cost_usd = ?, response = ? WHERE episode = ? AND turn = ? AND attempt = ?")
        .Bind(r.outcome, r.status, NullIfEmpty(r.error), r.retry_after_s, r.seconds, r.first_token_s,
              NullIfEmpty(r.served_model), NullIfEmpty(r.request_id), NullIfEmpty(r.stop_cause),
              r.usage.prompt_tokens, r.usage.completion_tokens, r.usage.cached_tokens, r.cache_write_tokens,
              r.usage.reasoning_tokens, r.cost_usd, response ? std::optional(response->hash) : std::nullopt,
              episode, r.turn, r.attempt)
        .Run();
  });
}

std::vector<RequestRecord> Store::LoadRequests(const std::string& episode, int turn) {
  const std::lock_guard lock(impl_->mutex);
  Statement statement = impl_->database.Prepare(fmt::format(
      "SELECT {} FROM requests WHERE episode = ? AND turn = ? ORDER BY attempt", kRequestColumns));
  std::vector<RequestRecord> requests;
  statement.Bind(episode, turn);
  while (statement.Step()) requests.push_back(ReadRequest(*impl_, statement));
  return requests;
}

}  // namespace kevin
