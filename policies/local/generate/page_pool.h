#pragma once
// The pages of a runner's cache: who uses them, and what is in those that nobody uses any more. Prompts that
// begin alike find each other's pages here. One thread.

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace kevin::local {

class PagePool {
 public:
  // Names the tokens of a full page together with all tokens before it; equal names, equal tokens. 0:
  // nothing.
  using Content = int64_t;
  struct Found {
    int page = -1;
    Content content = 0;
  };

  PagePool(int pages, int page_tokens);

  // A page for one user, with whatever is in it; of those that nobody uses the one that was given back first
  // is forgotten. -1: all are in use.
  int Take();
  // One user less. A page with a content is found until it is taken for something else.
  void Release(int page);
  // The page that holds `tokens` behind `before`, with one user more.
  std::optional<Found> Find(Content before, std::span<const int32_t> tokens);
  // Says what is in a page in use. Where another page holds the same already, this one stays unknown.
  Content Register(int page, Content before, std::span<const int32_t> tokens);

  // What is in the pages is of no more use. None may be in use.
  void ForgetAll();

  int page_tokens() const { return page_tokens_; }
  int pages() const { return static_cast<int>(pages_.size()); }
  int available() const { return static_cast<int>(free_.size() + unused_.size()); }
  int cached() const { return static_cast<int>(unused_.size()); }  // known, in use by nobody

 private:
  struct Key {
    Content before = 0;
    std::vector<int32_t> tokens;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Page {
    int users = 0;
    const Key* key = nullptr;         // of its content, in known_
    std::list<int>::iterator unused;  // while it is known and nobody uses it
  };

  const int page_tokens_;
  std::vector<Page> pages_;
  std::vector<int> free_;
  std::list<int> unused_;  // the one given back first is in front
  std::unordered_map<Key, Found, KeyHash> known_;
  Content last_content_ = 0;
};

}  // namespace kevin::local
