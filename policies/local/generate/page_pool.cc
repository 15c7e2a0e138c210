#include "policies/local/generate/page_pool.h"

namespace kevin::local {

size_t PagePool::KeyHash::operator()(const Key& key) const {
  uint64_t hash = static_cast<uint64_t>(key.before) * 0x9E3779B97F4A7C15;
  for (const int32_t token : key.tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xD6E8FEB86659FD93;
    hash ^= hash >> 32;
  }
  return hash;
}

PagePool::PagePool(int pages, int page_tokens)
    : page_tokens_(page_tokens), pages_(static_cast<size_t>(pages)) {
  for (int page = pages; page-- > 0;) free_.push_back(page);
}

int PagePool::Take() {
  int page = -1;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (!unused_.empty()) {
    page = unused_.front();
    unused_.pop_front();
    Page& taken = pages_[static_cast<size_t>(page)];
    known_.erase(*taken.key);
    taken.key = nullptr;
  } else {
    return -1;
  }
  pages_[static_cast<size_t>(page)].users = 1;
  return page;
}

void PagePool::Release(int page) {
  Page& released = pages_[static_cast<size_t>(page)];
  if (--released.users > 0) return;
  if (released.key == nullptr) {
    free_.push_back(page);
  } else {
    released.unused = unused_.insert(unused_.end(), page);
  }
}

std::optional<PagePool::Found> PagePool::Find(Content before, std::span<const int32_t> tokens) {
  const auto found = known_.find({before, {tokens.begin(), tokens.end()}});
  if (found == known_.end()) return std::nullopt;
  Page& page = pages_[static_cast<size_t>(found->second.page)];
  if (page.users++ == 0) unused_.erase(page.unused);
  return found->second;
}

PagePool::Content PagePool::Register(int page, Content before, std::span<const int32_t> tokens) {
  const auto [known, is_new] =
      known_.try_emplace({before, {tokens.begin(), tokens.end()}}, Found{page, last_content_ + 1});
  if (is_new) {
    ++last_content_;
    pages_[static_cast<size_t>(page)].key = &known->first;
  }
  return known->second.content;
}

void PagePool::ForgetAll() {
  for (const int page : unused_) {
    pages_[static_cast<size_t>(page)].key = nullptr;
    free_.push_back(page);
  }
  unused_.clear();
  known_.clear();
}

}  // namespace kevin::local
