#pragma once
// The composition of each step: which sequences run, and on which pages of the cache. No texts, callbacks or
// threads.

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

// The pages of a runner's cache: their users, and the contents of unused ones, so that prompts with a common
// prefix find each other's pages. One thread.
class PagePool {
 public:
  // Identifies the tokens of a full page together with all tokens before it. 0: none.
  using Content = int64_t;
  struct Found {
    int page = -1;
    Content content = 0;
  };

  PagePool(int pages, int page_tokens);

  // Takes a page for one user; its content is undefined. Among unused pages with known content the one
  // released first is evicted. -1: all are in use.
  int Take();
  // Removes one user. A page with known content can be found until it is taken.
  void Release(int page);
  // Finds the page with `tokens` after `before`, and adds a user.
  std::optional<Found> Find(Content before, std::span<const int32_t> tokens);
  // Records the content of a page in use. If another page has the same content, this one stays unknown.
  Content Register(int page, Content before, std::span<const int32_t> tokens);

  // Drops all contents. No page may be in use.
  void ForgetAll();

  int page_tokens() const { return page_tokens_; }
  int pages() const { return static_cast<int>(pages_.size()); }
  int available() const { return static_cast<int>(free_.size() + unused_.size()); }
  int cached() const { return static_cast<int>(unused_.size()); }  // known content, not in use

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
    std::list<int>::iterator unused;  // while its content is known and it is not in use
  };

  const int page_tokens_;
  std::vector<Page> pages_;
  std::vector<int> free_;
  std::list<int> unused_;  // in the order of release
  std::unordered_map<Key, Found, KeyHash> known_;
  Content last_content_ = 0;
};

// One answer being generated. Its creator sets the members above the line; the scheduler owns the rest.
struct Sequence {
  int64_t number = 0;           // unique; older ones have smaller numbers
  std::vector<int32_t> tokens;  // prompt and answer so far
  int prompt_tokens = 0;
  int most_tokens = 0;  // prompt and answer
  TokenSampling sampling;
  LogitsProcessor processor;      // may be empty
  std::weak_ptr<Sequence> first;  // the request's first answer; empty: this is it
  // ---
  int unseen = 0;          // tokens drawn, but not in `tokens` yet
  int run = 0;             // tokens whose keys and values are in the cache, or will be after its last step
  int64_t last_step = -1;  // the last step with this sequence
  std::vector<int> pages;
  std::vector<PagePool::Content> contents;  // of its first pages that are full and known
  std::weak_ptr<Sequence> waits_for;        // computes pages that this one needs too
  bool was_admitted = false, is_running = false, has_ended = false;
  int cached_tokens = 0;  // when it was first admitted

  int Length() const { return static_cast<int>(tokens.size()) + unseen; }
};
using SequencePointer = std::shared_ptr<Sequence>;

struct Plan {
  std::vector<std::pair<int, int>> copies;  // pages, from and to; before the steps
  std::vector<SequenceStep> steps;          // their spans are valid until a token arrives
  std::vector<SequencePointer> drawing;     // those of the steps with `sample`, in order
};

class Scheduler {
 public:
  explicit Scheduler(const ModelRunner::Shape& shape);

  void Add(SequencePointer sequence);
  // Frees its pages. Steps in flight may still write to them, but before any later step.
  void End(Sequence& sequence);
  // Call for each token, oldest first.
  void DrawnTokenArrived(Sequence& sequence, int32_t id);

  // Drops all contents of the cache; running sequences start again. No step may be in flight.
  void ForgetAll();

  // The next step for the caller to submit; empty when no sequence can run before a token arrives.
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
