#include "env/python/pool_allocator.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace kevin {
namespace {

constexpr uint64_t kSmall = 512, kMiddle = 64 << 10, kLarge = 2 << 20;

uint64_t RoundedUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

uint64_t AlignmentOf(uint64_t bytes) { return bytes >= kLarge ? kLarge : kSmall; }

}  // namespace

PoolAllocator::PoolAllocator(uint64_t base, uint64_t bytes, PoolDevice& device) : device_(device) {
  if (bytes > 0) unused_[base] = bytes;
}

uint64_t PoolAllocator::BlockBytes(uint64_t bytes) {
  if (bytes <= kMiddle) return RoundedUp(std::max<uint64_t>(bytes, 1), kSmall);
  if (bytes >= kLarge) return RoundedUp(bytes, kLarge);
  return RoundedUp(bytes, std::bit_floor(bytes) / 8);
}

uint64_t PoolAllocator::Allocate(uint64_t bytes, PoolDevice::Stream stream) {
  const std::lock_guard lock(mutex_);
  const Owner owner{stream, device_.CaptureOf(stream)};
  const uint64_t block_bytes = BlockBytes(bytes);
  if (owner.second == 0 && !waiting_.empty()) PollWaiting();
  uint64_t address = Take(block_bytes, owner);
  if (address == 0) address = Carve(block_bytes);
  // Whoever waits within a capture ends it.
  if (address == 0 && owner.second == 0 && Join()) address = Carve(block_bytes);
  if (address == 0) {
    ++statistics_.failures;
    return 0;
  }
  live_[address] = {address, block_bytes, bytes, owner.first, owner.second, {}};
  ++statistics_.allocations;
  ++statistics_.live_blocks;
  statistics_.allocated += bytes;
  statistics_.most_allocated = std::max(statistics_.most_allocated, statistics_.allocated);
  return address;
}

uint64_t PoolAllocator::Take(uint64_t bytes, const Owner& owner) {
  const auto sizes = kept_.find(owner);
  if (sizes == kept_.end()) return 0;
  const auto blocks = sizes->second.find(bytes);
  if (blocks == sizes->second.end() || blocks->second.empty()) return 0;
  const uint64_t address = blocks->second.back();
  blocks->second.pop_back();
  return address;
}

// The first place where it fits.
uint64_t PoolAllocator::Carve(uint64_t bytes) {
  for (auto range = unused_.begin(); range != unused_.end(); ++range) {
    const auto [begin, length] = *range;
    const uint64_t address = RoundedUp(begin, AlignmentOf(bytes)), before = address - begin;
    if (before + bytes > length) continue;
    unused_.erase(range);
    if (before > 0) unused_[begin] = before;
    if (length > before + bytes) unused_[address + bytes] = length - before - bytes;
    statistics_.reserved += bytes;
    statistics_.most_reserved = std::max(statistics_.most_reserved, statistics_.reserved);
    return address;
  }
  return 0;
}

bool PoolAllocator::Free(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) return false;
  Block block = std::move(found->second);
  live_.erase(found);
  ++statistics_.frees;
  --statistics_.live_blocks;
  statistics_.allocated -= block.asked;
  if (block.others.empty()) {
    Keep(block);
  } else if (block.capture == 0) {
    waiting_.push_back({std::move(block), {}, false, false});
    PollWaiting();
  }  // else replays of its graph use it on several streams: it is not used again
  return true;
}

void PoolAllocator::Keep(const Block& block) {
  kept_[{block.stream, block.capture}][block.bytes].push_back(block.address);
}

void PoolAllocator::RecordStream(uint64_t address, PoolDevice::Stream stream) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end() || found->second.stream == stream) return;
  std::vector<PoolDevice::Stream>& others = found->second.others;
  if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
}

void PoolAllocator::PollWaiting() {
  std::erase_if(waiting_, [this](Waiting& waiting) {
    std::vector<PoolDevice::Stream>& streams = waiting.block.others;
    if (!waiting.has_events) {
      // An event on a captured stream would become a part of the graph: later.
      for (PoolDevice::Stream stream : streams) {
        if (device_.CaptureOf(stream) != 0) return false;
      }
      for (PoolDevice::Stream stream : streams) {
        if (PoolDevice::Event event = device_.Record(stream)) {
          waiting.events.push_back(event);
        } else {
          waiting.needs_join = true;
        }
      }
      waiting.has_events = true;
    }
    std::erase_if(waiting.events, [this](PoolDevice::Event event) {
      if (!device_.HasPassed(event)) return false;
      device_.Destroy(event);
      return true;
    });
    if (!waiting.events.empty() || waiting.needs_join) return false;
    Keep(waiting.block);
    return true;
  });
}

void PoolAllocator::Return(uint64_t address, uint64_t bytes) {
  statistics_.reserved -= bytes;
  auto place = unused_.emplace(address, bytes).first;
  if (const auto next = std::next(place); next != unused_.end() && address + bytes == next->first) {
    place->second += next->second;
    unused_.erase(next);
  }
  if (place != unused_.begin()) {
    const auto before = std::prev(place);
    if (before->first + before->second == place->first) {
      before->second += place->second;
      unused_.erase(place);
    }
  }
}

bool PoolAllocator::Join() {
  if (!device_.Synchronize()) return false;
  ++statistics_.joins;
  for (Waiting& waiting : waiting_) {
    for (PoolDevice::Event event : waiting.events) device_.Destroy(event);
    Return(waiting.block.address, waiting.block.bytes);
  }
  waiting_.clear();
  std::erase_if(kept_, [this](const auto& of_owner) {
    if (of_owner.first.second != 0) return false;
    for (const auto& [bytes, addresses] : of_owner.second) {
      for (const uint64_t address : addresses) Return(address, bytes);
    }
    return true;
  });
  return true;
}

void PoolAllocator::Release() {
  const std::lock_guard lock(mutex_);
  Join();
}

PoolStatistics PoolAllocator::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void PoolAllocator::ResetPeaks() {
  const std::lock_guard lock(mutex_);
  statistics_.most_allocated = statistics_.allocated;
  statistics_.most_reserved = statistics_.reserved;
}

uint64_t PoolAllocator::LargestFree() const {
  const std::lock_guard lock(mutex_);
  uint64_t largest = 0;
  for (const auto& [address, bytes] : unused_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace kevin
