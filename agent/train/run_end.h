#pragma once
// Whether a training run is asked to end, by Ctrl-C at any of its ranks. Between two meetings (rank_meeting.h) ranks are apart
// for as long as a collection takes, and one that was interrupted alone would leave the others waiting for it. So a rank that
// is asked tells the others by an empty file in the run's folder: OUT/ending (finish the work in progress), then
// OUT/ending-now (stop it).

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <thread>

#include "policies/policy.h"

namespace kevin {

class RunEnd {
 public:
  // `folder`: of the run, on a file system that all ranks share; empty for a single rank. `asked_to_drain`, `asked_to_stop`:
  // at this rank; they must outlive this. The files of an earlier run are gone (Forget).
  RunEnd(std::filesystem::path folder, const CancelToken* asked_to_drain, const CancelToken* asked_to_stop);
  RunEnd(const RunEnd&) = delete;
  RunEnd& operator=(const RunEnd&) = delete;

  // At this rank or, as soon as the file is seen here, at another one.
  const CancelToken* drain() const { return &drain_.token; }
  const CancelToken* stop() const { return &stop_.token; }

  // Removes the files of `folder`: by one rank, before any begins and after all have ended.
  static void Forget(const std::filesystem::path& folder);

 private:
  struct Wish {
    const CancelToken* asked;  // at this rank
    const char* file;
    bool is_told = false;      // the file is there
    CancelToken token{false};  // at any rank
  };

  void Watch(const std::stop_token& end);
  void Share(Wish* wish) const;

  const std::filesystem::path folder_;
  Wish drain_, stop_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace kevin
