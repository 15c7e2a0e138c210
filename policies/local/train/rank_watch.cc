#include "policies/local/train/rank_watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

namespace kevin::local {
namespace {

using WatchClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int64_t kLeft = int64_t{1} << 40;  // added to the number of a rank that ends
constexpr auto kLookAtRanks = std::chrono::milliseconds(200);
constexpr int kRoundsToTell = 4;
constexpr double kStoreStaysSeconds = 3;  // for the others to end, too
constexpr size_t kLongestReason = 1000;

std::string BeatKey(int rank) { return "beat-" + std::to_string(rank); }
std::string WhyKey(int rank) { return "why-" + std::to_string(rank); }

struct OtherRank {
  int64_t number = 0;
  int64_t changed = 0;             // the round in which the number changed last
  std::optional<std::string> why;  // it has ended
  WatchClock::time_point ended;

  std::string Ending() const { return "it has ended" + (why->empty() ? "" : ": " + *why); }
};

}  // namespace

// Shared with the thread that talks to the store, which may wait for it longer than this rank lives.
struct RankWatch::State {
  Rendezvous rendezvous;
  c10::intrusive_ptr<c10d::Store> store;

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::vector<OtherRank> ranks;
  int64_t rounds = 0;      // answered by the store
  std::string store_lost;  // why; empty: it is there
  std::optional<std::string> leaving;
  bool ends = false, has_said_so = false;
  bool is_done = false;  // nobody talks to the store any more
  bool is_left = false;  // and nobody waits for that

  std::string Store() const {
    return (rendezvous.agent_holds_store ? "torchrun's store at " : "rank 0, which has the store at ") +
           rendezvous.host + ":" + std::to_string(rendezvous.port);
  }
  bool AllHaveEnded() const {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (static_cast<int>(rank) != rendezvous.rank && !ranks[rank].why) return false;
    }
    return true;
  }
  double SilenceOf(const OtherRank& rank) const {
    return static_cast<double>(rounds - rank.changed) * kBeatSeconds;
  }
};

// One round: this rank's number, and those of the others.
void RankWatch::Beat(const std::shared_ptr<State>& state) {
  State& s = *state;
  const int own = s.rendezvous.rank;
  std::unique_lock lock(s.mutex);
  const bool leaves = s.leaving && !s.has_said_so;
  const std::string why = leaves ? *s.leaving : "";
  lock.unlock();
  if (leaves) s.store->set(WhyKey(own), std::vector<uint8_t>(why.begin(), why.end()));
  s.store->add(BeatKey(own), leaves ? kLeft : 1);
  std::vector<std::pair<int64_t, std::string>> read(s.ranks.size());
  for (int rank = 0; rank < s.rendezvous.size; ++rank) {
    auto& [number, reason] = read[static_cast<size_t>(rank)];
    number = rank == own ? 0 : s.store->add(BeatKey(rank), 0);
    if (number < kLeft) continue;
    const std::vector<uint8_t> bytes = s.store->get(WhyKey(rank));
    reason.assign(bytes.begin(), bytes.end());
  }
  lock.lock();
  s.has_said_so |= leaves;
  ++s.rounds;
  for (size_t rank = 0; rank < read.size(); ++rank) {
    OtherRank& other = s.ranks[rank];
    if (read[rank].first != other.number) other.number = read[rank].first, other.changed = s.rounds;
    if (read[rank].first >= kLeft && !other.why)
      other.why = read[rank].second, other.ended = WatchClock::now();
  }
  s.changed.notify_all();
}

RankWatch::RankWatch(const Rendezvous& rendezvous) : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.rendezvous = rendezvous;
  s.ranks.resize(static_cast<size_t>(rendezvous.size));
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.port);
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(rendezvous.join_seconds * 1000));
  s.store = c10::make_intrusive<c10d::PrefixStore>(
      "kevin-watch-" + rendezvous.name, c10::make_intrusive<c10d::TCPStore>(rendezvous.host, options));
  std::thread([state = state_] {
    State& shared = *state;
    try {
      for (;;) {
        Beat(state);
        std::unique_lock lock(shared.mutex);
        // Whoever holds the store stays until the others need it no more.
        if (shared.has_said_so && (!shared.rendezvous.holds_store || shared.AllHaveEnded() || shared.is_left))
          break;
        shared.changed.wait_for(lock, Seconds(shared.has_said_so ? kBeatSeconds / 10 : kBeatSeconds),
                                [&] { return shared.leaving && !shared.has_said_so; });
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(shared.mutex);
      shared.store_lost = FirstLineOf(error.what());
    }
    const std::lock_guard lock(shared.mutex);
    shared.is_done = true;
    shared.changed.notify_all();
  }).detach();
  if (rendezvous.on_lost) thread_ = std::thread([this] { Watch(); });
}

RankWatch::~RankWatch() {
  {
    std::unique_lock lock(state_->mutex);
    state_->ends = true;
    if (!state_->leaving) state_->leaving = "";
    state_->changed.notify_all();
    // A store that does not answer is left behind.
    state_->changed.wait_for(lock, Seconds(kStoreStaysSeconds), [this] { return state_->is_done; });
    state_->is_left = true;
  }
  if (thread_.joinable()) thread_.join();
}

void RankWatch::Leave(const std::string& why) {
  std::unique_lock lock(state_->mutex);
  if (state_->leaving) return;
  state_->leaving = why.substr(0, kLongestReason);
  state_->changed.notify_all();
  state_->changed.wait_for(lock, Seconds(2 * kBeatSeconds),
                           [this] { return state_->has_said_so || state_->is_done; });
}

void RankWatch::Watch() {
  State& s = *state_;
  int64_t seen_rounds = 0, looks = 0;  // looks since the store answered
  std::optional<WatchClock::time_point> store_lost;
  std::string who;
  std::unique_lock lock(s.mutex);
  const auto ends = [&] { return s.ends || s.leaving; };
  while (!ends() && who.empty()) {
    s.changed.wait_for(lock, kLookAtRanks, ends);
    looks = s.rounds == seen_rounds ? looks + 1 : 0, seen_rounds = s.rounds;
    const auto now = WatchClock::now();
    for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
      const OtherRank& other = s.ranks[rank];
      if (static_cast<int>(rank) == s.rendezvous.rank) continue;
      if (other.why && Seconds(now - other.ended).count() > kLeaveSeconds)
        who = "rank " + std::to_string(rank) + ": " + other.Ending();
      if (!other.why && s.SilenceOf(other) >= s.rendezvous.lost_seconds)
        who = "rank " + std::to_string(rank) + ": it has given no sign for " +
              std::to_string(static_cast<int>(s.SilenceOf(other))) + " s";
    }
    if (!s.store_lost.empty() && !store_lost) store_lost = now;
    if (store_lost && Seconds(now - *store_lost).count() > kLeaveSeconds)
      who = s.Store() + " (" + s.store_lost + ")";
    if (Seconds(kLookAtRanks).count() * static_cast<double>(looks) >= s.rendezvous.lost_seconds)
      who = s.Store() + ", which does not answer";
  }
  if (ends()) return;
  const int own = s.rendezvous.rank;
  lock.unlock();
  s.rendezvous.on_lost(LostRank(own, who));
}

std::string RankWatch::WhoIsMissing() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  const int64_t start = s.rounds;
  s.changed.wait_for(lock, Seconds(2 * kRoundsToTell * kBeatSeconds),
                     [&] { return s.rounds >= start + kRoundsToTell || !s.store_lost.empty(); });
  const bool told = s.rounds >= start + kRoundsToTell;
  for (size_t rank = 0; told && rank < s.ranks.size(); ++rank) {
    const OtherRank& other = s.ranks[rank];
    if (static_cast<int>(rank) != s.rendezvous.rank && !other.why && other.changed <= start + 1)
      return "rank " + std::to_string(rank) + ": it gives no sign";
  }
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    if (s.ranks[rank].why) return "rank " + std::to_string(rank) + ": " + s.ranks[rank].Ending();
  }
  return s.store_lost.empty() ? "" : s.Store() + " (" + s.store_lost + ")";
}

}  // namespace kevin::local
