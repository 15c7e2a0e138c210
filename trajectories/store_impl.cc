#include "trajectories/store_impl.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <ctime>

#include "env/error.h"
#include "trajectories/blob.h"
#include "trajectories/identity.h"

namespace kevin {
namespace {

constexpr int kMostRepeats = 50;  // of a transaction that others stood in the way of
constexpr size_t kMostKnownBlobs = 50'000;

using Milliseconds = std::chrono::sys_time<std::chrono::milliseconds>;

std::string UtcText(Milliseconds time) {
  using namespace std::chrono;
  const auto seconds = floor<std::chrono::seconds>(time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(system_clock::to_time_t(seconds)),
                     (time - seconds).count());
}

// An Error kBroken of a transaction is the database's; what a single write refuses is kBadRequest or
// LeaseLost.
std::exception_ptr AsBrokenStore(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const LeaseLost&) {
    return thrown;
  } catch (const Error& error) {
    return error.code() == ExitCode::kBroken ? std::make_exception_ptr(StoreBroken(error)) : thrown;
  } catch (...) {
    return thrown;
  }
}

}  // namespace

std::pair<uint64_t, uint64_t> FileIdentity(const std::filesystem::path& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

std::string UtcNow() {
  return UtcText(std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()));
}

std::string UtcAfter(const std::string& time, double seconds) {
  std::tm parts{};
  int milliseconds = 0;
  std::sscanf(time.c_str(), "%d-%d-%dT%d:%d:%d.%dZ", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
              &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &milliseconds);
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  const auto whole = std::chrono::system_clock::from_time_t(timegm(&parts));
  return UtcText(std::chrono::floor<std::chrono::milliseconds>(whole) +
                 std::chrono::milliseconds(milliseconds + static_cast<int64_t>(seconds * 1000)));
}

Store::Impl::Impl(Database opened, std::pair<uint64_t, uint64_t> file)
    : database(std::move(opened)),
      file_identity(file),
      group_commit([this](const std::vector<PendingWrite*>& writes) { CommitTogether(writes); }) {}

Transaction Store::Impl::BeginWrite() {
  if (file_identity != std::pair<uint64_t, uint64_t>{} && FileIdentity(database.path()) != file_identity) {
    throw Error(ExitCode::kBroken,
                fmt::format("{}: the database was moved or deleted while in use", database.path().string()),
                "what was stored is in the file that was moved; start again with --db");
  }
  new_blobs_.clear(), now_.reset();
  return Transaction(database);
}

void Store::Impl::CommitTogether(const std::vector<PendingWrite*>& writes) {
  const std::lock_guard lock(mutex);
  for (int repeats = 0;; ++repeats) {
    std::exception_ptr failed;
    try {
      for (PendingWrite* write : writes) write->error = nullptr;
      CommitOnce(writes);
      if (stored_blobs_.size() > kMostKnownBlobs) stored_blobs_.clear();
      stored_blobs_.insert(new_blobs_.begin(), new_blobs_.end());
      return;
    } catch (const TryAgain&) {
      if (repeats < kMostRepeats) continue;
      failed = std::make_exception_ptr(StoreBroken(
          Error(ExitCode::kBroken, database.path().string() + ": other writers are always in the way",
                "use fewer workers, or start the same command again")));
    } catch (...) {
      failed = AsBrokenStore(std::current_exception());
    }
    stored_blobs_.clear();
    for (PendingWrite* write : writes) write->error = failed;
    return;
  }
}

void Store::Impl::CommitOnce(const std::vector<PendingWrite*>& writes) {
  if (!CommitBatch(writes)) CommitApart(writes);
}

bool Store::Impl::CommitBatch(const std::vector<PendingWrite*>& writes) {
  if (database.dialect() == SqlDialect::kSqlite) return false;
  Transaction transaction = BeginWrite();
  try {
    database.OpenBatch();
    for (PendingWrite* write : writes) (*write->work)();
    database.CloseBatch();
  } catch (const NotTogether&) {
    return false;
  } catch (const LeaseLost&) {
    return false;
  } catch (const Error& error) {
    if (error.code() == ExitCode::kBroken) throw;
    return false;
  }
  transaction.Commit();
  return true;
}

void Store::Impl::CommitApart(const std::vector<PendingWrite*>& writes) {
  Transaction transaction = BeginWrite();
  if (writes.size() == 1) {
    (*writes.front()->work)();
  } else {
    for (PendingWrite* write : writes) RunApart(write);
  }
  transaction.Commit();
}

void Store::Impl::RunApart(PendingWrite* write) {
  const size_t blobs_before = new_blobs_.size();
  database.Prepare("SAVEPOINT one").Run();
  try {
    (*write->work)();
  } catch (const TryAgain&) {
    throw;
  } catch (...) {
    if (!database.InTransaction()) throw;  // a full disk took the whole of it back
    write->error = AsBrokenStore(std::current_exception());
    new_blobs_.resize(blobs_before);
    database.Prepare("ROLLBACK TO SAVEPOINT one").Run();
  }
  database.Prepare("RELEASE SAVEPOINT one").Run();
}

bool Store::Impl::IsHeld(const std::string& episode) {
  const std::lock_guard lock(held_mutex);
  return held.count(episode) > 0;
}

void Store::Impl::RequireLease(const std::string& episode, const Used& used) {
  Lease lease;
  {
    const std::lock_guard lock(held_mutex);
    const auto found = held.find(episode);
    if (found == held.end()) return;
    lease = found->second;
  }
  Statement update = database.Prepare(
      "UPDATE work_items SET kills = CASE WHEN ?1 > 0 THEN 0 ELSE kills END, "
      "faults = CASE WHEN ?1 > 0 THEN 0 ELSE faults END, turns = turns + ?1, "
      "prompt_tokens = prompt_tokens + ?2, completion_tokens = completion_tokens + ?3, "
      "device_s = device_s + ?4 WHERE id = ?5 AND fence = ?6 AND state = 'leased' RETURNING id");
  update.Bind(used.turns, used.prompt_tokens, used.completion_tokens, used.device_s, lease.item, lease.fence);
  if (!update.RunForRow(BatchOrder::kAhead)) throw LeaseLost(episode);
}

std::string Store::Impl::Now() {
  if (database.dialect() == SqlDialect::kSqlite) return UtcNow();
  if (!now_) {
    now_ = database.QueryText(
        "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')");
  }
  return *now_;
}

EncodedBlob EncodeText(const std::string& text) {
  return {ContentHash(text), "plain", static_cast<int64_t>(text.size()), text};
}

std::optional<EncodedBlob> EncodeArray(const std::string& bytes) {
  if (bytes.empty()) return std::nullopt;
  const std::vector<unsigned char> stream = Compress(bytes);
  return EncodedBlob{ContentHash(bytes), "zlib", static_cast<int64_t>(bytes.size()),
                     std::string(stream.begin(), stream.end())};
}

void Store::Impl::Put(const EncodedBlob& blob) {
  if (stored_blobs_.count(blob.hash) > 0) return;
  new_blobs_.push_back(blob.hash);
  static const std::string kInsert = InsertSql("INSERT OR IGNORE", "blobs", "hash, codec, size, body");
  Statement insert = database.Prepare(kInsert);
  if (blob.codec == "plain" && database.dialect() == SqlDialect::kSqlite) {
    insert.Bind(blob.hash, blob.codec, blob.size, blob.body).Run();
  } else {
    const std::vector<unsigned char> bytes(blob.body.begin(), blob.body.end());
    insert.Bind(blob.hash, blob.codec, blob.size, bytes).Run();
  }
}

std::string Store::Impl::GetBlob(const std::string& hash) {
  if (hash.empty()) return "";
  Statement statement = database.Prepare("SELECT codec, size, body FROM blobs WHERE hash = ?");
  if (!statement.Bind(hash).Step()) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: blob {} is missing", database.path().string(), hash),
                "the database was edited or is damaged; other turns are not affected");
  }
  return statement.Text(0) == "zlib" ? Decompress(statement.Text(2), statement.Integer(1))
                                     : statement.Text(2);
}

}  // namespace kevin
