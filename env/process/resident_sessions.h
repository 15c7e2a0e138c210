#pragma once
// The sessions that an evaluator keeps between requests: preparing a problem costs as much as judging a candidate of
// it, and episodes of different problems take turns. The least recently used one is dropped first. One thread.

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace kevin
