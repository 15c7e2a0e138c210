#include "agent/rollout/rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <latch>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "agent/rollout/exclusive_gate.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kTick = milliseconds(100);
constexpr auto kProgressEvery = milliseconds(1000);
constexpr auto kRecountEvery = milliseconds(5000);
constexpr auto kIdle = milliseconds(50);
constexpr double kLongestRest = 300;

struct ActiveItem {
  WorkItem item;
  Place* place = nullptr;
  EpisodeSpec spec;
  CancelToken cancel{false};
  RunningEpisode shown;
  int stored_turns = 0;
};

class Rollout {
 public:
  Rollout(Store& store, Environment& environment, const RolloutSources& sources,
          const RolloutOptions& options, const RolloutHooks& hooks, const CancelToken* drain,
          const CancelToken* stop)
      : store_(store),
        queue_(store),
        environment_(environment),
        sources_(sources),
        options_(options),
        hooks_(hooks),
        asked_to_drain_(drain),
        asked_to_stop_(stop),
        threads_(options.parallel + (options.parallel + 3) / 4),
        places_(options.parallel),
        all_done_(threads_) {
    terms_.collection = options.collection;
    terms_.device = DeviceModel(environment.Facts().device);
    terms_.seconds = options.lease_s;
    terms_.most_kills = options.most_kills;
  }

  RolloutEnd Run() {
    queue_.ReclaimFromEnded(options_.collection);
    Recount();
    std::thread keeper([this] { Keep(); });
    std::vector<std::thread> workers;
    for (int i = 0; i < threads_; ++i) workers.emplace_back([this] { Work(); });
    for (std::thread& worker : workers) worker.join();
    workers_gone_ = true;
    keeper.join();
    if (broken_) std::rethrow_exception(broken_);
    RolloutEnd end;
    end.complete = queue_.FinishIfDone(options_.collection);
    end.out_of = out_of_;
    if (!end.complete) end.left_to = left_to_;
    Recount();
    Report();
    return end;
  }

 private:
  // --- The threads that run episodes ---

  void Work() {
    try {
      while (!drain_) {
        Place place(places_);
        if (!place.Take(drain_)) break;
        if (RunNext(false, place) || RunNext(true, place)) continue;
        if (queue_.FinishIfDone(options_.collection) || IsLeftToOthers()) break;
        std::this_thread::sleep_for(kIdle);  // items of others may come back
      }
    } catch (...) {
      Break(std::current_exception());
    }
    // Child processes end with the thread that started them, and other threads may still use them.
    all_done_.arrive_and_wait();
  }

  // False: there was no item. `exclusive`: also takes an item that is parked when one more process ends under
  // it; no other item is leased in this process until a turn of it is stored.
  bool RunNext(bool exclusive, Place& place) {
    if (!gate_.Enter(exclusive, drain_)) return false;
    LeaseTerms terms = terms_;
    terms.last_chances = exclusive;
    try {
      std::optional<WorkItem> item = queue_.Take(terms);
      if (item) RunItem(std::move(*item), place);
      gate_.Leave(exclusive);
      return item.has_value();
    } catch (...) {
      gate_.Leave(exclusive);
      throw;
    }
  }

  // By two looks, kRecountEvery apart: a worker holds no lease between two items.
  bool IsLeftToOthers() {
    const std::lock_guard lock(others_mutex_);
    if (!left_to_.empty()) return true;
    const Clock::time_point now = Clock::now();
    if (now < next_look_) return false;
    next_look_ = now + kRecountEvery;
    std::vector<std::string> seen = queue_.LeftToOthers(terms_);
    const std::vector<std::string>& others = options_.devices_of_others;
    if (std::find_first_of(seen.begin(), seen.end(), others.begin(), others.end()) != seen.end())
      seen.clear();
    if (seen == last_look_) left_to_ = seen;
    last_look_ = std::move(seen);
    return !left_to_.empty();
  }

  void RunItem(WorkItem item, Place& place) {
    const auto active = Enter(std::move(item), place);
    try {
      Settle(active);
    } catch (...) {
      Leave(active);
      throw;
    }
    Leave(active);
  }

  void Settle(std::list<ActiveItem>::iterator active) {
    const Lease lease = active->item.lease;
    try {
      active->spec = EpisodeFromJson(active->item.spec);
      Show(active, [&](RunningEpisode& shown) {
        shown = {active->spec.problem, active->spec.policy, active->spec.number, 0, ""};
      });
      if (RunEpisodeOf(active)) {
        queue_.Finish(lease);
      } else {
        queue_.GiveBack(lease);
      }
    } catch (const LeaseLost&) {
      // Its new holder continues from the stored turns.
    } catch (const StoreBroken&) {
      throw;
    } catch (const PolicyUnavailable&) {
      queue_.GiveBack(lease);
      throw;
    } catch (const Error& error) {
      HandleFault(*active, error);
    }
  }

  // True: the episode is done; false: it was broken off.
  bool RunEpisodeOf(std::list<ActiveItem>::iterator at) {
    const ActiveItem& active = *at;
    const Problem& problem = sources_.problem(active.spec);
    Policy& policy = sources_.policy(active.spec.policy);
    EpisodeOptions options = options_.episode;
    options.run = options_.worker_run;
    options.collection = options_.collection;
    options.lease = active.item.lease;
    options.seed = active.spec.seed;
    options.turns = active.spec.turns;
    options.drain = &drain_;
    if (sources_.settings) {
      PolicySettings settings = sources_.settings(active.spec.policy);
      options.sampling = std::move(settings.sampling);
      options.prompt_token_budget = settings.prompt_token_budget;
      options.asks_for_diff = settings.asks_for_diff;
    }
    const bool resumed = !active.item.episode.empty();
    if (resumed) {
      store_.Hold(active.item.episode, active.item.lease);
      const EpisodeRecord earlier = store_.FindEpisode(active.item.episode);
      if (earlier.state == EpisodeState::kDone)
        return true;  // its worker ended before it could mark the item done
      options.continue_episode = earlier.id;
      options.finish = true;
    }
    const EpisodeRecord episode =
        RunEpisode(problem, policy, environment_, store_, options, Hooks(at, resumed), &active.cancel);
    if (episode.state != EpisodeState::kDone) return false;
    Call(hooks_.on_episode, episode);
    return true;
  }

  EpisodeHooks Hooks(std::list<ActiveItem>::iterator active, bool resumed) {
    EpisodeHooks hooks;
    hooks.on_begin = [this, active, resumed](const EpisodeRecord& episode) {
      active->item.episode = episode.id;
      Show(active, [&](RunningEpisode& shown) { shown.stored = episode.turns; });
      Call(hooks_.on_begin, episode, active->spec, resumed);
    };
    hooks.on_phase = [this, active](int turn, const std::string& phase) {
      Show(active, [&](RunningEpisode& shown) { shown.turn = turn, shown.phase = phase; });
    };
    hooks.on_turn = [this, active](const TurnRecord& turn, const EpisodeRecord& episode) {
      Account(turn, *active);
      Show(active, [&](RunningEpisode& shown) { shown.stored = turn.turn; });
      gate_.EndExclusive();
      Call(hooks_.on_turn, turn, episode);
      FollowRequests();
      if (turn.turn + 1 == episode.turns_asked) ExpectNext(episode.kind);
    };
    hooks.on_confirm = [active] { active->place->Leave(); };
    hooks.on_budget = [this] {
      const std::lock_guard lock(mutex_);
      if (!drain_ && out_of_.empty()) out_of_ = Nearest(options_.budget, tally_.Usage());
      drain_ = true;
    };
    return hooks;
  }

  // One episode at a time leaves the device idle while its last text is written and compiled. Many keep it busy: what is
  // prepared early then could only take memory from the problems in use.
  void ExpectNext(const std::string& kind) {
    if (options_.parallel > 1 || drain_) return;
    try {
      const std::optional<std::string> spec = queue_.Next(terms_);
      if (!spec) return;
      environment_.Expect(sources_.problem(EpisodeFromJson(*spec)), kind, options_.episode.workload);
    } catch (const Error&) {  // the episode itself says what fails
    }
  }

  void HandleFault(const ActiveItem& active, const Error& error) {
    if (active.cancel && asked_to_stop_ != nullptr && *asked_to_stop_) {
      queue_.GiveBack(active.item.lease);
      return;
    }
    const bool hopeless = error.code() == ExitCode::kBadRequest;
    // A turn stored under this lease has reset the count in the store.
    const int faults = (TurnsSince(active) ? 0 : active.item.faults) + 1;
    const bool park = hopeless || faults >= options_.most_faults;
    if (park) {
      queue_.Park(active.item.lease, error.what());
    } else {
      queue_.Fault(active.item.lease, error.what(),
                   std::min(kLongestRest, options_.rest_s * std::exp2(faults - 1)));
    }
    Call(hooks_.on_fault, active.spec, error.what(), park);
    if (!hopeless && ++faults_in_a_row_ >= std::max(10, 3 * options_.parallel)) {
      Break(std::make_exception_ptr(Error(ExitCode::kBroken,
                                          fmt::format("{} errors without a turn between them; the latest: {}",
                                                      faults_in_a_row_.load(), error.what()),
                                          error.next_step().empty()
                                              ? "remove the cause, then start the same command again"
                                              : error.next_step())));
    }
  }

  // --- The thread beside them ---

  void Keep() {
    Clock::time_point renewed = Clock::now(), reported = renewed, recounted = renewed;
    const auto renew_every = milliseconds(static_cast<int64_t>(options_.lease_s * 1000 / 4));
    while (!workers_gone_) {
      std::this_thread::sleep_for(kTick);
      FollowRequests();
      try {
        const Clock::time_point now = Clock::now();
        if (now - renewed >= std::min(renew_every, milliseconds(5000))) {
          renewed = now;
          RenewLeases();
          queue_.ReclaimFromEnded(options_.collection);
        }
        if (now - recounted >= kRecountEvery) {
          recounted = now;
          Recount();
        }
        if (now - reported >= kProgressEvery) {
          reported = now;
          Report();
        }
      } catch (const Error&) {
        // If it lasts, the workers get the same error and end the rollout.
      }
    }
  }

  void FollowRequests() {
    if (asked_to_drain_ != nullptr && *asked_to_drain_) drain_ = true;
    if (asked_to_stop_ != nullptr && *asked_to_stop_) CancelAll();
    const std::lock_guard lock(mutex_);
    if (!drain_ && out_of_.empty()) out_of_ = Exceeded(options_.budget, tally_.Usage(), SecondsSince(start_));
    if (!out_of_.empty()) drain_ = true;
  }

  void RenewLeases() {
    std::vector<Lease> leases;
    {
      const std::lock_guard lock(mutex_);
      for (const ActiveItem& active : active_) leases.push_back(active.item.lease);
    }
    for (const std::string& lost : queue_.Renew(leases, options_.lease_s)) {
      const std::lock_guard lock(mutex_);
      for (ActiveItem& active : active_) {
        // The episode may have ended and the item been leased again in the meantime.
        const bool same = std::any_of(leases.begin(), leases.end(), [&](const Lease& lease) {
          return lease.item == lost && lease.fence == active.item.lease.fence;
        });
        if (active.item.lease.item == lost && same) active.cancel = true;
      }
    }
  }

  void Recount() {
    tally_.Recounted(queue_.Usage(options_.collection, options_.budget.costs_are_known),
                     queue_.Results(options_.collection));
  }

  void Report() {
    if (!hooks_.on_progress) return;
    RolloutStatus status{tally_.Totals(), {}, {}, 0, false};
    status.counts = queue_.Count(options_.collection);
    {
      const std::lock_guard lock(mutex_);
      for (const ActiveItem& active : active_) status.running.push_back(active.shown);
    }
    status.seconds = SecondsSince(start_);
    status.draining = drain_;
    Call(hooks_.on_progress, status);
  }

  // --- Shared state ---

  std::list<ActiveItem>::iterator Enter(WorkItem item, Place& place) {
    const std::lock_guard lock(mutex_);
    active_.emplace_back();
    active_.back().item = std::move(item);
    active_.back().place = &place;
    return std::prev(active_.end());
  }
  void Leave(std::list<ActiveItem>::iterator active) {
    if (!active->item.episode.empty()) store_.LetGo(active->item.episode);
    const std::lock_guard lock(mutex_);
    active_.erase(active);
  }
  template <typename Change>
  void Show(std::list<ActiveItem>::iterator active, const Change& change) {
    const std::lock_guard lock(mutex_);
    change(active->shown);
  }
  bool TurnsSince(const ActiveItem& active) {
    const std::lock_guard lock(mutex_);
    return active.stored_turns > 0;
  }

  void Account(const TurnRecord& turn, ActiveItem& active) {
    tally_.Add(turn);
    const std::lock_guard lock(mutex_);
    ++active.stored_turns;
    faults_in_a_row_ = 0;
  }

  void Break(std::exception_ptr why) {
    const std::lock_guard lock(mutex_);
    if (!broken_) broken_ = why;
    drain_ = true;
  }

  void CancelAll() {
    drain_ = true;
    const std::lock_guard lock(mutex_);
    for (ActiveItem& active : active_) active.cancel = true;
  }

  template <typename Hook, typename... Values>
  void Call(const Hook& hook, const Values&... values) {
    if (!hook) return;
    const std::lock_guard lock(hooks_mutex_);
    hook(values...);
  }

  Store& store_;
  WorkQueue queue_;
  Environment& environment_;
  const RolloutSources& sources_;
  const RolloutOptions& options_;
  const RolloutHooks& hooks_;
  const CancelToken* const asked_to_drain_;
  const CancelToken* const asked_to_stop_;
  LeaseTerms terms_;
  const Clock::time_point start_ = Clock::now();
  const int threads_;
  std::counting_semaphore<> places_;
  std::latch all_done_;

  CancelToken drain_{false};
  std::atomic<bool> workers_gone_{false};
  std::atomic<int> faults_in_a_row_{0};
  ExclusiveGate gate_;
  RolloutTally tally_;
  std::mutex hooks_mutex_;
  std::mutex others_mutex_;  // of the next two lines
  Clock::time_point next_look_{};
  std::vector<std::string> last_look_, left_to_;
  std::mutex mutex_;  // of the members below
  std::list<ActiveItem> active_;
  std::string out_of_;
  std::exception_ptr broken_;
};

}  // namespace

RolloutEnd RunRollout(Store& store, Environment& environment, const RolloutSources& sources,
                      const RolloutOptions& options, const RolloutHooks& hooks, const CancelToken* drain,
                      const CancelToken* stop) {
  return Rollout(store, environment, sources, options, hooks, drain, stop).Run();
}

}  // namespace kevin
