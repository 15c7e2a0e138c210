#pragma once
// The sessions that an evaluator keeps between requests: preparing a problem costs as much as judging a candidate of
// it, and episodes of different problems take turns. The least recently used one is dropped first. One thread.
// AttemptWithRoom is for memory that was estimated too low.

#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "env/error.h"

namespace kevin {

template <typename Session>
class ResidentSessions {
 public:
  explicit ResidentSessions(size_t most) : most_(most) {}

  // The session of this key, which becomes the latest used one; null: not resident.
  Session* Find(const std::string& key) {
    for (auto at = sessions_.begin(); at != sessions_.end(); ++at) {
      if (at->first != key) continue;
      sessions_.splice(sessions_.begin(), sessions_, at);
      return sessions_.front().second.get();
    }
    return nullptr;
  }

  // Drops sessions until another one may be added. Called before it is made, so that its memory is free.
  void MakeRoomForOne() {
    while (sessions_.size() >= most_) DropOldest();
  }

  // Takes the session as the latest used one.
  Session& Add(const std::string& key, std::unique_ptr<Session> session) {
    MakeRoomForOne();
    sessions_.emplace_front(key, std::move(session));
    return *sessions_.front().second;
  }

  // Drops the least recently used session. False: there is none.
  bool DropOldest() {
    if (sessions_.empty()) return false;
    sessions_.pop_back();
    return true;
  }
  // The same, but keeps the latest used one.
  bool DropOldestOther() { return sessions_.size() > 1 && DropOldest(); }

  void Clear() { sessions_.clear(); }
  size_t size() const { return sessions_.size(); }

  // The latest used one first.
  std::vector<std::string> Keys() const {
    std::vector<std::string> keys;
    for (const auto& [key, session] : sessions_) keys.push_back(key);
    return keys;
  }

 private:
  size_t most_;
  std::list<std::pair<std::string, std::unique_ptr<Session>>> sessions_;
};

// A device or the host has no memory left for the reference or for buffers. No candidate can cause it.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The reference made the device fail: no call can succeed in this process, whatever room there is.
class DeviceFailed : public Error {
 public:
  using Error::Error;
};

// OutOfMemory, or by the words of torch and of CUDA's libraries, whose exceptions are of several types.
inline bool IsOutOfMemory(const std::exception& error) {
  if (dynamic_cast<const OutOfMemory*>(&error) || dynamic_cast<const std::bad_alloc*>(&error)) return true;
  const std::string what = error.what();
  for (const char* words : {"out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED",
                            "CUDNN_STATUS_ALLOC_FAILED"}) {
    if (what.find(words) != std::string::npos) return true;
  }
  return false;
}

// The result of `attempt`. Where it runs out of memory, or fails with an Error while other sessions are resident, all
// sessions are dropped, `release_caches` gives back what their allocators keep, and it is attempted once more, alone;
// not after DeviceFailed. Throws what the attempt throws; Error(kBroken) where memory is too little even then.
template <typename Session, typename Attempt, typename Release>
auto AttemptWithRoom(ResidentSessions<Session>& sessions, const Attempt& attempt,
                     const Release& release_caches) {
  try {
    return attempt();
  } catch (const DeviceFailed&) {
    throw;
  } catch (const Error& error) {
    if (sessions.size() < 2 && !IsOutOfMemory(error)) throw;
  } catch (const std::exception& error) {
    if (!IsOutOfMemory(error)) throw;
  }
  sessions.Clear();
  release_caches();
  try {
    return attempt();
  } catch (const std::exception& error) {
    if (!IsOutOfMemory(error)) throw;
    throw Error(ExitCode::kBroken,
                std::string("memory is too little even without other problems: ") + error.what(),
                "end other programs that use the device, or choose a smaller --size");
  }
}

}  // namespace kevin
