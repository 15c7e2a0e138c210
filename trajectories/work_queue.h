#pragma once
// The queue behind `kevin collect`: a collection is a list of work items in the database; any number of
// processes lease them, one at a time per item, with no coordinator.
//
//   waiting -> leased -> done          by the holder of the latest lease (its fence)
//              leased -> waiting       given back, or broken off by an error, after a rest
//              leased -> leased        its lease ran out or its owner has ended: the next one takes it over
//              any    -> parked        it killed its workers or failed too often; `error` says why
//
// A lease is an id and a fencing number that grows with each lease. Writes to the item's episode are checked
// against it (Store::Hold), so that a worker that seemed to have ended cannot write beside its successor.
// Threads, durability, errors: as Store's.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trajectories/records.h"
#include "trajectories/store.h"

namespace kevin {

struct CollectionRecord {
  std::string run;        // the run that began it; names the collection
  std::string key;        // hash of `spec`: the same request has the same key
  std::string spec;       // JSON
  bool finished = false;  // no item is waiting or leased any more
  std::string started_at;
};

struct WorkItem {
  Lease lease;
  std::string spec;     // JSON
  std::string episode;  // empty until it has begun
  int attempts = 0, faults = 0, kills = 0;
};

struct ParkedItem {
  std::string id, spec, error;
};

struct QueueCounts {
  int64_t waiting = 0, leased = 0, done = 0, parked = 0;
};

// The results of a collection at one problem, by one policy.
struct ProblemResult {
  std::string problem, policy;
  int episodes = 0, done = 0, solved = 0;  // solved: with a correct kernel
  std::optional<double> best_speedup;      // confirmed
};

struct LeaseTerms {
  std::string collection;
  std::string device;        // its model; an item begun on another one is left to others
  double seconds = 60;       // unless renewed
  int most_kills = 3;        // so many ended workers without a turn between them park an item
  bool last_chances = true;  // also items that the next ended worker parks; false leaves them for later
};

// The resources that a collection has used so far, over all its processes.
struct CollectionUsage {
  int64_t turns = 0, prompt_tokens = 0, completion_tokens = 0;
  double device_s = 0;  // how long GPUs were held; on a CPU what verifying and measuring took
  double dollars = 0;   // that requests are known to have cost; 0 unless asked for
};

class WorkQueue {
 public:
  explicit WorkQueue(Store& store) : store_(store) {}  // which must outlive this

  // The latest unfinished collection with this key, or else a new one with these items (one spec each), in
  // their order; the texts of its problems are stored with it. Two processes that ask at once get the same.
  // With `always_new` it is a new one.
  struct Opened {
    std::string collection;
    std::string worker_run;  // of this process
    bool resumed = false;
  };
  Opened Open(const std::string& key, const std::string& spec, const std::vector<std::string>& items,
              const std::vector<ProblemRecord>& problems, const RunRecord& process, bool always_new);

  // This process works for it too; returns its worker run.
  std::string Join(const std::string& collection, const RunRecord& process);

  // A collection by its run's id or a unique beginning of it; unknown or ambiguous: kBadRequest.
  CollectionRecord Find(const std::string& prefix);

  // The next item that waits; what ended workers left behind waits again. Nothing: none is there just now.
  std::optional<WorkItem> Take(const LeaseTerms& terms);

  // The spec of the item that Take would probably give now. A look: nothing changes.
  std::optional<std::string> Next(const LeaseTerms& terms);

  // The models of device that everything which is left belongs to: an episode that was begun stays on its model. Empty
  // where an item may still come to this one, somebody works on an item, or one rests after an error.
  std::vector<std::string> LeftToOthers(const LeaseTerms& terms);

  // Moves the ends of these leases; returns the items that somebody else has by now.
  std::vector<std::string> Renew(const std::vector<Lease>& leases, double seconds);

  // The end of a lease. All throw LeaseLost when it is somebody else's.
  void Finish(const Lease& lease);
  void GiveBack(const Lease& lease);                                        // nothing was wrong
  void Fault(const Lease& lease, const std::string& error, double rest_s);  // try again later
  void Park(const Lease& lease, const std::string& reason);

  // Leases of processes of this machine that have ended end now instead of at their time.
  void ReclaimFromEnded(const std::string& collection);

  // Marks the collection finished if nothing is left to do; true if it is.
  bool FinishIfDone(const std::string& collection);

  QueueCounts Count(const std::string& collection);
  std::vector<ParkedItem> Parked(const std::string& collection);
  // `with_dollars` reads every request: seconds where there are millions.
  CollectionUsage Usage(const std::string& collection, bool with_dollars = false);
  std::vector<ProblemResult> Results(const std::string& collection);  // by policy, then problem

 private:
  Store& store_;
};

}  // namespace kevin
