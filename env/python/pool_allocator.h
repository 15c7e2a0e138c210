#pragma once
// The allocator of a GPU worker's torch: hands out parts of one range of device memory, the pool, which the evaluator made
// and maps too (env/gpu/judge/python_side.h). It keeps freed blocks by size and stream, like torch's own allocator:
//
//   - a block that is freed is used again at once on the stream that it was allocated for, in the order of that stream;
//   - a block that other streams have used as well (RecordStream) is used again when events on them have passed, or, where
//     there is no event, once all work has been awaited;
//   - a block that was allocated while its stream was captured into a graph belongs to that graph, whose replays write to
//     it: only allocations of the same capture use it again;
//   - where the pool is exhausted, or asked to (Release), all work is awaited once and the other free blocks are joined.
//
// Pure logic over PoolDevice: tests run it without a GPU. Thread-safe.

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kevin {

// What the allocator asks of the device.
class PoolDevice {
 public:
  using Stream = void*;
  using Event = void*;
  virtual ~PoolDevice() = default;
  // The capture that work on the stream becomes a part of; 0: the stream is not captured.
  virtual uint64_t CaptureOf(Stream stream) = 0;
  // An event behind all work of the stream; null: there is none, as where the stream has been destroyed.
  virtual Event Record(Stream stream) = 0;
  virtual bool HasPassed(Event event) = 0;
  virtual void Destroy(Event event) = 0;
  // Waits for all work. False: not possible now, because of a capture.
  virtual bool Synchronize() = 0;
};

// Bytes, and how many; as torch.cuda.memory_stats counts them.
struct PoolStatistics {
  uint64_t allocated = 0, most_allocated = 0;  // as asked for, in live blocks
  uint64_t reserved = 0, most_reserved = 0;    // in live and kept blocks
  uint64_t live_blocks = 0, allocations = 0, frees = 0, joins = 0, failures = 0;
};

class PoolAllocator {
 public:
  // `device` must outlive it. `base` is aligned to 2 MiB.
  PoolAllocator(uint64_t base, uint64_t bytes, PoolDevice& device);

  // 0: the pool is exhausted.
  uint64_t Allocate(uint64_t bytes, PoolDevice::Stream stream);
  // False: no live block starts there.
  bool Free(uint64_t address);
  // The live block is used by work on another stream, too.
  void RecordStream(uint64_t address, PoolDevice::Stream stream);
  // Joins what is free, as after torch.cuda.empty_cache().
  void Release();

  PoolStatistics statistics() const;
  void ResetPeaks();
  // The largest block that could be had without waiting.
  uint64_t LargestFree() const;

  // The size of the block for a request: a multiple of 512 bytes, from 64 KiB on one of 8 steps to the next power of two,
  // from 2 MiB on a multiple of that.
  static uint64_t BlockBytes(uint64_t bytes);

 private:
  struct Block {
    uint64_t address = 0, bytes = 0, asked = 0;
    PoolDevice::Stream stream = nullptr;
    uint64_t capture = 0;
    std::vector<PoolDevice::Stream> others;  // streams that use it too
  };
  // A freed block that other streams have used.
  struct Waiting {
    Block block;
    std::vector<PoolDevice::Event> events;
    bool has_events = false;
    bool needs_join = false;  // there is no event for one of the streams
  };
  using Owner = std::pair<PoolDevice::Stream, uint64_t>;  // stream, capture

  uint64_t Take(uint64_t bytes, const Owner& owner);
  uint64_t Carve(uint64_t bytes);
  void Keep(const Block& block);
  void Return(uint64_t address, uint64_t bytes);
  void PollWaiting();
  bool Join();

  PoolDevice& device_;
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> unused_;  // address to bytes, joined
  std::unordered_map<uint64_t, Block> live_;
  std::map<Owner, std::unordered_map<uint64_t, std::vector<uint64_t>>> kept_;  // by size
  std::deque<Waiting> waiting_;
  PoolStatistics statistics_;
};

}  // namespace kevin
