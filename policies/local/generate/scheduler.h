#pragma once
// The pages of a runner's cache: who uses them, and what is in those that nobody uses any more. Prompts that
// begin alike find each other's pages here. One thread.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policies/local/generate/model_runner.h"

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

// Who runs in the next step, and on which pages. Knows nothing of texts, callbacks and threads.

// One answer on its way. Whoever makes it sets what is above the line; the rest is the scheduler's, except
// that DrawnTokenArrived is called for each of its tokens.
struct Sequence {
  int64_t number = 0;           // names it; older ones have smaller numbers
  std::vector<int32_t> tokens;  // prompt and answer, as far as they are known
  int prompt_tokens = 0;
  int most_tokens = 0;  // prompt and answer
  TokenSampling sampling;
  LogitsProcessor processor;      // may be empty
  std::weak_ptr<Sequence> first;  // the request's first answer; empty: this is it
  // ---
  int unseen = 0;          // drawn, but not in `tokens` yet
  int run = 0;             // tokens whose keys and values are in the cache, or will be by its last step
  int64_t last_step = -1;  // the latest step that it was in
  std::vector<int> pages;
  std::vector<PagePool::Content> contents;  // of its first pages, as far as they are full and known
  std::weak_ptr<Sequence> waits_for;        // it computes pages that this one needs too
  bool was_admitted = false, is_running = false, has_ended = false;
  int cached_tokens = 0;  // when it was first admitted

  int Length() const { return static_cast<int>(tokens.size()) + unseen; }
};
using SequencePointer = std::shared_ptr<Sequence>;

struct Plan {
  std::vector<std::pair<int, int>> copies;  // pages, from and to; before the steps
  std::vector<SequenceStep> steps;          // what they point to is good until a token arrives
  std::vector<SequencePointer> drawing;     // those of the steps with `sample`, in order
};

class Scheduler {
 public:
  explicit Scheduler(const ModelRunner::Shape& shape);

  void Add(SequencePointer sequence);
  // Its pages are free for others. Steps under way may still write to them, but before those who come after.
  void End(Sequence& sequence);
  // The oldest unseen token of the sequence.
  void DrawnTokenArrived(Sequence& sequence, int32_t id);

  // No page holds anything of use any more; who was running begins again. Nothing may be under way.
  void ForgetAll();

  // The next step; without steps when nobody can run before a token arrives. The caller submits it.
  Plan Next();

  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  int64_t preemptions() const { return preemptions_; }
  int64_t run_tokens() const { return run_tokens_; }
  const PagePool& pool() const { return pool_; }

 private:
  using Sequences = std::map<int64_t, SequencePointer>;  // oldest first

  bool CanDraw(const Sequence& sequence) const;
  void AddDecodes(Plan* plan);
  bool GrowByOnePage(Sequence& sequence);
  void Preempt(Sequence& sequence);
  void AddPrompts(Plan* plan);
  void Admit(int tokens, std::vector<SequencePointer>* filling, Plan* plan);
  enum class Admission { kDone, kLater, kNoPages };
  Admission TryToAdmit(const SequencePointer& sequence, Plan* plan);
  bool MustWait(Sequence& sequence) const;
  void FindPages(Sequence& sequence);
  void CopyFromFirst(Sequence& sequence, Plan* plan);
  void GivePagesBack(Sequence& sequence);
  void AddStep(const SequencePointer& sequence, int tokens, Plan* plan);
  void RegisterFullPages(Sequence& sequence);
  std::span<const int32_t> PageOf(const Sequence& sequence, size_t index) const;
  int PagesFor(int tokens) const { return (tokens + shape_.page_tokens - 1) / shape_.page_tokens; }

  const ModelRunner::Shape shape_;
  PagePool pool_;
  Sequences running_, waiting_;
  int64_t step_ = 0;
  int budget_ = 0;  // tokens left in the step being planned
  int64_t preemptions_ = 0, run_tokens_ = 0;
};

}  // namespace kevin::local
