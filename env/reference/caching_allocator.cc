#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "env/reference/reference.h"

namespace kevin {
namespace {

constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20, kSmallAlignment = 64;

class CachingAllocator final : public c10::Allocator {
 public:
  CachingAllocator(std::byte* arena, size_t bytes) : next_(arena), end_(arena ? arena + bytes : nullptr) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, c10::DeviceType::CPU};
    const size_t size = RoundUp(bytes);
    void* block = Take(size);
    return {block, block, &Free, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }

 private:
  static size_t RoundUp(size_t bytes) {
    const size_t unit = bytes >= kHugePage ? kHugePage : bytes >= kPage ? kPage : kSmallAlignment;
    return (bytes + unit - 1) / unit * unit;
  }

  void* Take(size_t size) {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& free_blocks = free_[size];
    void* block = nullptr;
    if (!free_blocks.empty()) {
      block = free_blocks.back();
      free_blocks.pop_back();
    } else {
      block = end_ ? Carve(size) : std::aligned_alloc(kSmallAlignment, size);
    }
    if (!block) throw std::bad_alloc();
    live_[block] = size;
    return block;
  }

  void* Carve(size_t size) {
    const size_t alignment = size >= kHugePage ? kHugePage : size >= kPage ? kPage : kSmallAlignment;
    const auto address = reinterpret_cast<uintptr_t>(next_);
    std::byte* start = next_ + ((address + alignment - 1) / alignment * alignment - address);
    if (start + size > end_) return nullptr;
    next_ = start + size;
    return start;
  }

  static void Free(void* block);

  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
  std::unordered_map<void*, size_t> live_;
  std::byte* next_;
  std::byte* end_;
};

CachingAllocator* installed = nullptr;  // never freed: tensors use it until the process ends

void CachingAllocator::Free(void* block) {
  if (!block) return;
  const std::lock_guard lock(installed->mutex_);
  const auto found = installed->live_.find(block);
  installed->free_[found->second].push_back(block);
  installed->live_.erase(found);
}

}  // namespace

void InstallCachingAllocator(std::byte* arena, size_t bytes) {
  installed = new CachingAllocator(arena, bytes);
  c10::SetAllocator(c10::DeviceType::CPU, installed, 10);
}

}  // namespace kevin
