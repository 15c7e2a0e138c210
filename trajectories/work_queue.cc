#include "trajectories/work_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "env/error.h"
#include "trajectories/identity.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

// A process knows how it ends only while it runs: these end a lease, whatever else they set.
constexpr char kEndOfLease[] = "lease_owner = NULL, lease_until = NULL";

std::string SkipLocked(const Database& database) {
  return database.dialect() == SqlDialect::kPostgres ? " FOR UPDATE SKIP LOCKED" : "";
}

// Throws LeaseLost unless the item is still leased under this fence. `set` has the parameters 3 and up.
template <typename... Values>
void EndLease(Database& database, const Lease& lease, const std::string& set, const Values&... values) {
  Statement update = database.Prepare(fmt::format(
      "UPDATE work_items SET {}, {} WHERE id = ?1 AND fence = ?2 AND state = 'leased' RETURNING id",
      kEndOfLease, set));
  if (!update.Bind(lease.item, lease.fence, values...).RunForRow())
    throw LeaseLost("of work item " + lease.item);
}

struct Found {
  std::string id, owner;
  int kills = 0;
};

std::optional<Found> FindAbandoned(Database& database, const LeaseTerms& terms, const std::string& now) {
  Statement find = database.Prepare(
      "SELECT id, lease_owner, kills FROM work_items WHERE run = ?1 AND state = 'leased' AND lease_until < "
      "?2 "
      "AND (episode IS NULL OR device = ?3) ORDER BY priority DESC, id LIMIT 1" +
      SkipLocked(database));
  if (!find.Bind(terms.collection, now, terms.device).Step()) return std::nullopt;
  return Found{find.Text(0), find.Text(1), static_cast<int>(find.Integer(2))};
}

// The id and the spec of the next item. `lock`: SQL behind the query.
std::optional<std::pair<std::string, std::string>> FindWaiting(Database& database, const LeaseTerms& terms,
                                                               const std::string& now,
                                                               const std::string& lock) {
  Statement find = database.Prepare(
      "SELECT id, spec FROM work_items WHERE run = ?1 AND state = 'waiting' "
      "AND (not_before IS NULL OR not_before <= ?2) AND (episode IS NULL OR device = ?3) "
      "AND (kills = 0 OR kills < ?4) "
      "ORDER BY priority DESC, id LIMIT 1" +
      lock);
  const int below = terms.last_chances ? terms.most_kills : terms.most_kills - 1;
  if (!find.Bind(terms.collection, now, terms.device, below).Step()) return std::nullopt;
  return std::pair(find.Text(0), find.Text(1));
}

// The item waits again, or is parked.
void CountKill(Database& database, const Found& found, const LeaseTerms& terms) {
  const int kills = found.kills + 1;
  const bool poison = kills >= terms.most_kills;
  const std::string error = fmt::format("{} worker{} died on it without a turn, the latest: {}", kills,
                                        kills == 1 ? "" : "s", found.owner);
  database
      .Prepare(
          fmt::format("UPDATE work_items SET state = ?1, kills = ?2, attempts = attempts + 1, error = ?3, "
                      "finished_at = ?4, fence = fence + 1, {} WHERE id = ?5",
                      kEndOfLease))
      .Bind(poison ? "parked" : "waiting", kills, error, poison ? std::optional(UtcNow()) : std::nullopt,
            found.id)
      .Run();
}

WorkItem TakeItem(Database& database, const std::string& id, const LeaseTerms& terms,
                  const std::string& now) {
  Statement take = database.Prepare(
      "UPDATE work_items SET state = 'leased', fence = fence + 1, lease_owner = ?1, lease_until = ?2, "
      "device = CASE WHEN episode IS NULL THEN ?3 ELSE device END, not_before = NULL WHERE id = ?4 "
      "RETURNING fence, spec, episode, attempts, faults, kills");
  take.Bind(ThisProcess(), UtcAfter(now, terms.seconds), terms.device, id).Step();
  RowReader row(take);
  WorkItem item;
  item.lease = {id, row.Integer()};
  item.spec = row.Text(), item.episode = row.Text();
  item.attempts = row.Int(), item.faults = row.Int(), item.kills = row.Int();
  take.Reset();
  return item;
}

std::string LatestUnfinished(Database& database, const std::string& key) {
  Statement find = database.Prepare(
      "SELECT run FROM collections WHERE key = ? AND finished_at IS NULL AND EXISTS "
      "(SELECT 1 FROM work_items WHERE work_items.run = collections.run) ORDER BY run DESC LIMIT 1");
  return find.Bind(key).Step() ? find.Text(0) : "";
}

void AddWorker(Database& database, const std::string& run, const std::string& collection) {
  database.Prepare(InsertSql("INSERT", "collection_workers", "run, collection")).Bind(run, collection).Run();
}

}  // namespace

WorkQueue::Opened WorkQueue::Open(const std::string& key, const std::string& spec,
                                  const std::vector<std::string>& items,
                                  const std::vector<ProblemRecord>& problems, const RunRecord& process,
                                  bool always_new) {
  Store::Impl& impl = store_.impl();
  Opened opened;
  impl.Write([&] {
    Database& database = impl.database;
    // SQLite has one writer as it is.
    if (database.dialect() == SqlDialect::kPostgres)
      database.Execute("LOCK TABLE collections IN SHARE ROW EXCLUSIVE MODE");
    opened.worker_run = NewUlid();
    opened.collection = always_new ? "" : LatestUnfinished(database, key);
    opened.resumed = !opened.collection.empty();
    impl.InsertRun(opened.worker_run, process);
    if (!opened.resumed) {
      opened.collection = opened.worker_run;
      database.Prepare(InsertSql("INSERT", "collections", "run, key, spec"))
          .Bind(opened.collection, key, spec)
          .Run();
      Statement insert =
          database.Prepare(InsertSql("INSERT", "work_items", "id, run, spec, state, created_at"));
      const std::string now = UtcNow();
      for (const ProblemRecord& problem : problems) impl.PutProblem(problem);
      for (const std::string& item : items)
        insert.Bind(NewUlid(), opened.collection, item, "waiting", now).Run();
    }
    AddWorker(database, opened.worker_run, opened.collection);
  });
  return opened;
}

std::string WorkQueue::Join(const std::string& collection, const RunRecord& process) {
  Store::Impl& impl = store_.impl();
  const std::string run = NewUlid();
  impl.Write([&] {
    impl.InsertRun(run, process);
    AddWorker(impl.database, run, collection);
  });
  return run;
}

CollectionRecord WorkQueue::Find(const std::string& prefix) {
  Store::Impl& impl = store_.impl();
  const std::lock_guard lock(impl.mutex);
  Statement find = impl.database.Prepare(
      "SELECT c.run, c.key, c.spec, c.finished_at, r.started_at FROM collections c JOIN runs r ON r.id = "
      "c.run "
      "WHERE c.run BETWEEN ?1 AND ?1 || '~' ORDER BY c.run DESC LIMIT 2");
  std::vector<CollectionRecord> found;
  find.Bind(NormalizeUlid(prefix));
  while (!prefix.empty() && find.Step()) {
    RowReader row(find);
    CollectionRecord collection;
    collection.run = row.Text(), collection.key = row.Text(), collection.spec = row.Text();
    collection.finished = !row.Text().empty(), collection.started_at = row.Text();
    found.push_back(std::move(collection));
  }
  if (found.size() == 1) return found.front();
  throw Error(ExitCode::kBadRequest,
              fmt::format("{}: {} '{}'", store_.path().string(),
                          found.empty() ? "no collection" : "more than one collection begins with", prefix),
              found.empty() ? "kevin collect prints the run's id when it begins"
                            : "give more characters: " + found[0].run + ", " + found[1].run);
}

std::optional<WorkItem> WorkQueue::Take(const LeaseTerms& terms) {
  Store::Impl& impl = store_.impl();
  std::optional<WorkItem> taken;
  impl.Write([&] {
    taken.reset();
    const std::string now = impl.Now();
    while (const auto abandoned = FindAbandoned(impl.database, terms, now)) {
      CountKill(impl.database, *abandoned, terms);
    }
    if (const auto found = FindWaiting(impl.database, terms, now, SkipLocked(impl.database))) {
      taken = TakeItem(impl.database, found->first, terms, now);
    }
  });
  return taken;
}

std::optional<std::string> WorkQueue::Next(const LeaseTerms& terms) {
  Store::Impl& impl = store_.impl();
  const std::lock_guard lock(impl.mutex);
  const auto found = FindWaiting(impl.database, terms, impl.Now(), "");
  return found ? std::optional(found->second) : std::nullopt;
}

std::vector<std::string> WorkQueue::LeftToOthers(const LeaseTerms& terms) {
  Store::Impl& impl = store_.impl();
  const std::lock_guard lock(impl.mutex);
  Statement find = impl.database.Prepare(
      "SELECT DISTINCT CASE WHEN (state = 'leased' AND lease_until >= ?2) OR not_before > ?2 THEN '' "
      "WHEN episode IS NULL OR device = ?3 THEN '' ELSE coalesce(device, '') END "
      "FROM work_items WHERE run = ?1 AND state IN ('waiting', 'leased')");
  find.Bind(terms.collection, impl.Now(), terms.device);
  std::vector<std::string> devices;
  while (find.Step()) devices.push_back(find.Text(0));
  std::sort(devices.begin(), devices.end());
  return devices.empty() || devices.front().empty() ? std::vector<std::string>{} : devices;
}

std::vector<std::string> WorkQueue::Renew(const std::vector<Lease>& leases, double seconds) {
  Store::Impl& impl = store_.impl();
  std::vector<std::string> lost;
  if (leases.empty()) return lost;
  impl.Write([&] {
    lost.clear();
    const std::string until = UtcAfter(impl.Now(), seconds);
    Statement renew = impl.database.Prepare(
        "UPDATE work_items SET lease_until = ? WHERE id = ? AND fence = ? AND state = 'leased' RETURNING id");
    for (const Lease& lease : leases) {
      if (!renew.Bind(until, lease.item, lease.fence).Step()) lost.push_back(lease.item);
      renew.Reset();
    }
  });
  return lost;
}

void WorkQueue::Finish(const Lease& lease) {
  Store::Impl& impl = store_.impl();
  impl.Write(
      [&] { EndLease(impl.database, lease, "state = 'done', error = NULL, finished_at = ?3", UtcNow()); });
}

void WorkQueue::GiveBack(const Lease& lease) {
  Store::Impl& impl = store_.impl();
  impl.Write([&] { EndLease(impl.database, lease, "state = 'waiting'"); });
}

void WorkQueue::Fault(const Lease& lease, const std::string& error, double rest_s) {
  Store::Impl& impl = store_.impl();
  impl.Write([&] {
    EndLease(impl.database, lease,
             "state = 'waiting', attempts = attempts + 1, faults = faults + 1, error = ?3, not_before = ?4",
             error, UtcAfter(impl.Now(), rest_s));
  });
}

void WorkQueue::Park(const Lease& lease, const std::string& reason) {
  Store::Impl& impl = store_.impl();
  impl.Write([&] {
    EndLease(impl.database, lease, "state = 'parked', attempts = attempts + 1, error = ?3, finished_at = ?4",
             reason, UtcNow());
  });
}

void WorkQueue::ReclaimFromEnded(const std::string& collection) {
  Store::Impl& impl = store_.impl();
  std::set<std::string> owners;
  {
    const std::lock_guard lock(impl.mutex);
    Statement find = impl.database.Prepare(
        "SELECT DISTINCT lease_owner FROM work_items WHERE run = ? AND state = 'leased'");
    find.Bind(collection);
    while (find.Step()) owners.insert(find.Text(0));
  }
  std::erase_if(owners, [](const std::string& owner) { return !IsDead(owner); });
  if (owners.empty()) return;
  impl.Write([&] {
    Statement end = impl.database.Prepare(
        "UPDATE work_items SET lease_until = '' WHERE run = ? AND state = 'leased' AND lease_owner = ?");
    for (const std::string& owner : owners) end.Bind(collection, owner).Run();
  });
}

bool WorkQueue::FinishIfDone(const std::string& collection) {
  const QueueCounts counts = Count(collection);
  if (counts.waiting + counts.leased > 0) return false;
  Store::Impl& impl = store_.impl();
  impl.Write([&] {
    impl.database.Prepare("UPDATE collections SET finished_at = ? WHERE run = ? AND finished_at IS NULL")
        .Bind(UtcNow(), collection)
        .Run();
  });
  return true;
}

QueueCounts WorkQueue::Count(const std::string& collection) {
  Store::Impl& impl = store_.impl();
  const std::lock_guard lock(impl.mutex);
  Statement count =
      impl.database.Prepare("SELECT state, count(*) FROM work_items WHERE run = ? GROUP BY state");
  QueueCounts counts;
  count.Bind(collection);
  while (count.Step()) {
    const std::string state = count.Text(0);
    int64_t& slot = state == "waiting"  ? counts.waiting
                    : state == "leased" ? counts.leased
                    : state == "done"   ? counts.done
                                        : counts.parked;
    slot = count.Integer(1);
  }
  return counts;
}

std::vector<ParkedItem> WorkQueue::Parked(const std::string& collection) {
  Store::Impl& impl = store_.impl();
  const std::lock_guard lock(impl.mutex);
  Statement find = impl.database.Prepare(
      "SELECT id, spec, error FROM work_items WHERE run = ? AND state = 'parked' ORDER BY id");
  std::vector<ParkedItem> parked;
  find.Bind(collection);
  while (find.Step()) parked.push_back({find.Text(0), find.Text(1), find.Text(2)});
  return parked;
}

CollectionUsage WorkQueue::Usage(const std::string& collection, bool with_dollars) {
  Store::Impl& impl = store_.impl();
  const std::lock_guard lock(impl.mutex);
  Statement sum = impl.database.Prepare(
      "SELECT CAST(coalesce(sum(turns), 0) AS BIGINT), CAST(coalesce(sum(prompt_tokens), 0) AS BIGINT), "
      "CAST(coalesce(sum(completion_tokens), 0) AS BIGINT), coalesce(sum(device_s), 0.0) "
      "FROM work_items WHERE run = ?");
  sum.Bind(collection).Step();
  RowReader row(sum);
  CollectionUsage usage;
  usage.turns = row.Integer(), usage.prompt_tokens = row.Integer();
  usage.completion_tokens = row.Integer(), usage.device_s = row.Real();
  if (with_dollars) {
    Statement cost = impl.database.Prepare(
        "SELECT coalesce(sum(r.cost_usd), 0.0) FROM episodes e JOIN requests r ON r.episode = e.id "
        "WHERE e.run = ?");
    cost.Bind(collection).Step();
    usage.dollars = RowReader(cost).Real();
  }
  return usage;
}

std::vector<ProblemResult> WorkQueue::Results(const std::string& collection) {
  Store::Impl& impl = store_.impl();
  const std::lock_guard lock(impl.mutex);
  Statement find = impl.database.Prepare(
      "SELECT problem, policy, count(*), sum(CASE WHEN state = 'done' THEN 1 ELSE 0 END), "
      "sum(CASE WHEN best_turn IS NOT NULL THEN 1 ELSE 0 END), max(best_speedup) "
      "FROM episodes WHERE run = ? GROUP BY problem, policy ORDER BY policy, problem");
  std::vector<ProblemResult> results;
  find.Bind(collection);
  while (find.Step()) {
    RowReader row(find);
    ProblemResult result;
    result.problem = row.Text(), result.policy = row.Text();
    result.episodes = row.Int(), result.done = row.Int(), result.solved = row.Int();
    result.best_speedup = row.OptionalReal();
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace kevin
