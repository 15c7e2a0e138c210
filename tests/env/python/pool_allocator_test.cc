// The allocator of a GPU worker's torch, over a device that keeps no memory.

#include "env/python/pool_allocator.h"

#include <map>
#include <random>
#include <set>

#include "tests/catch.h"

namespace kevin {
namespace {

constexpr uint64_t kBase = uint64_t{1} << 40, kMiB = 1 << 20;

// Work on a stream is a number that grows; an event passes when the stream has done that much.
class FakeDevice final : public PoolDevice {
 public:
  uint64_t CaptureOf(Stream stream) override { return captures[stream]; }
  Event Record(Stream stream) override {
    if (destroyed.count(stream)) return nullptr;
    REQUIRE(captures[stream] == 0);
    events[++latest] = {stream, submitted[stream]};
    return reinterpret_cast<Event>(latest);
  }
  bool HasPassed(Event event) override {
    const auto& [stream, work] = events.at(reinterpret_cast<uintptr_t>(event));
    return done[stream] >= work;
  }
  void Destroy(Event event) override { events.erase(reinterpret_cast<uintptr_t>(event)); }
  bool Synchronize() override {
    for (const auto& [stream, capture] : captures) {
      if (capture != 0) return false;
    }
    done = submitted;
    ++synchronized;
    return true;
  }

  std::map<Stream, uint64_t> captures, submitted, done;
  std::map<uintptr_t, std::pair<Stream, uint64_t>> events;
  std::set<Stream> destroyed;
  uintptr_t latest = 0;
  int synchronized = 0;
};

PoolDevice::Stream StreamOf(uintptr_t number) { return reinterpret_cast<PoolDevice::Stream>(number); }
const PoolDevice::Stream kOne = StreamOf(1), kTwo = StreamOf(2), kThree = StreamOf(3);

}  // namespace

TEST_CASE("a pool's blocks have sizes that different requests share") {
  CHECK(PoolAllocator::BlockBytes(0) == 512);
  CHECK(PoolAllocator::BlockBytes(513) == 1024);
  CHECK(PoolAllocator::BlockBytes(64 << 10) == 64 << 10);
  CHECK(PoolAllocator::BlockBytes((64 << 10) + 1) == 72 << 10);
  CHECK(PoolAllocator::BlockBytes((1 << 20) + 1) == (1 << 20) + (128 << 10));
  CHECK(PoolAllocator::BlockBytes((2 << 20) + 1) == 4 << 20);
}

TEST_CASE("a pool's block is used again at once on its own stream and not on another one") {
  FakeDevice device;
  PoolAllocator pool(kBase, 64 * kMiB, device);
  const uint64_t first = pool.Allocate(1000, kOne);
  CHECK(first == kBase);
  REQUIRE(pool.Free(first));
  CHECK_FALSE(pool.Free(first));
  CHECK(pool.Allocate(1024, kTwo) != first);
  CHECK(pool.Allocate(1024, kOne) == first);
  CHECK(pool.Allocate(1024, kOne) != first);
  CHECK(device.synchronized == 0);
}

TEST_CASE("a pool's block that another stream has used waits for that stream") {
  FakeDevice device;
  PoolAllocator pool(kBase, 64 * kMiB, device);
  const uint64_t block = pool.Allocate(1000, kOne);
  pool.RecordStream(block, kTwo);
  pool.RecordStream(block, kTwo);
  pool.RecordStream(block, kThree);
  pool.RecordStream(block, kOne);
  device.submitted[kTwo] = 5;
  device.submitted[kThree] = 7;
  REQUIRE(pool.Free(block));
  CHECK(device.events.size() == 2);
  CHECK(pool.Allocate(1000, kOne) != block);
  device.done[kTwo] = 5;
  CHECK(pool.Allocate(1000, kOne) != block);
  device.done[kThree] = 7;
  CHECK(pool.Allocate(1000, kOne) == block);
  CHECK(device.events.empty());
}

TEST_CASE("a pool waits with events until no stream of a block is captured") {
  FakeDevice device;
  PoolAllocator pool(kBase, 64 * kMiB, device);
  const uint64_t block = pool.Allocate(1000, kOne);
  pool.RecordStream(block, kTwo);
  device.captures[kTwo] = 9;
  REQUIRE(pool.Free(block));
  CHECK(device.events.empty());
  CHECK(pool.Allocate(1000, kOne) != block);
  device.captures.clear();
  CHECK(pool.Allocate(1000, kOne) == block);  // the stream has no work
}

TEST_CASE("a pool's block that has no event on one of its streams waits until all work has been awaited") {
  FakeDevice device;
  PoolAllocator pool(kBase, 64 * kMiB, device);
  const uint64_t block = pool.Allocate(1000, kOne);
  pool.RecordStream(block, kTwo);
  pool.RecordStream(block, kThree);
  device.destroyed.insert(kThree);
  REQUIRE(pool.Free(block));
  CHECK(device.events.size() <= 1);
  for (int i = 0; i < 3; ++i) CHECK(pool.Allocate(1000, kOne) != block);
  pool.Release();
  CHECK(device.synchronized == 1);
  CHECK(device.events.empty());
  CHECK(pool.Allocate(1000, kOne) == block);
}

TEST_CASE("memory of a captured graph serves that capture alone") {
  FakeDevice device;
  PoolAllocator pool(kBase, 64 * kMiB, device);
  device.captures[kOne] = 4;
  const uint64_t intermediate = pool.Allocate(1000, kOne);
  REQUIRE(pool.Free(intermediate));
  CHECK(pool.Allocate(1000, kOne) == intermediate);
  REQUIRE(pool.Free(intermediate));
  device.captures.clear();
  CHECK(pool.Allocate(1000, kOne) != intermediate);
  pool.Release();  // replays write to it for as long as the graph lives
  for (int i = 0; i < 1000; ++i) CHECK(pool.Allocate(1000, kOne) != intermediate);
  device.captures[kOne] = 5;
  CHECK(pool.Allocate(1000, kOne) != intermediate);
  device.captures[kOne] = 4;
  CHECK(pool.Allocate(1000, kOne) == intermediate);
}

TEST_CASE("an exhausted pool joins what is free, and fails without a loss") {
  FakeDevice device;
  PoolAllocator pool(kBase, 64 * kMiB, device);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(pool.Allocate(2 * kMiB, i % 2 ? kOne : kTwo));
  CHECK(pool.Allocate(2 * kMiB, kOne) == 0);
  for (const uint64_t block : blocks) REQUIRE(pool.Free(block));
  device.captures[kThree] = 1;
  CHECK(pool.Allocate(64 * kMiB, kOne) == 0);  // nothing may be awaited during a capture
  device.captures.clear();
  CHECK(pool.Allocate(64 * kMiB, kOne) == kBase);
  CHECK(pool.Allocate(512, kOne) == 0);
  REQUIRE(pool.Free(kBase));
  CHECK(pool.Allocate(64 * kMiB, kOne) == kBase);
  CHECK(pool.statistics().failures == 4 - 1);
}

TEST_CASE("a pool counts as torch.cuda.memory_stats does") {
  FakeDevice device;
  PoolAllocator pool(kBase, 64 * kMiB, device);
  const uint64_t a = pool.Allocate(1000, kOne), b = pool.Allocate(3 * kMiB, kOne);
  CHECK(pool.statistics().allocated == 1000 + 3 * kMiB);
  CHECK(pool.statistics().reserved == 1024 + 4 * kMiB);
  REQUIRE(pool.Free(b));
  CHECK(pool.statistics().allocated == 1000);
  CHECK(pool.statistics().most_allocated == 1000 + 3 * kMiB);
  CHECK(pool.statistics().reserved == 1024 + 4 * kMiB);
  pool.ResetPeaks();
  CHECK(pool.statistics().most_allocated == 1000);
  pool.Release();
  CHECK(pool.statistics().reserved == 1024);
  CHECK(pool.statistics().live_blocks == 1);
  REQUIRE(pool.Free(a));
  pool.Release();
  CHECK(pool.statistics().reserved == 0);
  CHECK(pool.LargestFree() == 64 * kMiB);
}

TEST_CASE("a pool's live blocks never overlap, and all of it comes back") {
  FakeDevice device;
  constexpr uint64_t kBytes = 256 * kMiB;
  PoolAllocator pool(kBase, kBytes, device);
  std::mt19937_64 random(5);
  std::map<uint64_t, uint64_t> live;
  for (int step = 0; step < 20000; ++step) {
    const PoolDevice::Stream stream = StreamOf(1 + random() % 3);
    device.captures[kThree] = step % 500 < 20 ? 1 + static_cast<uint64_t>(step) / 500 : 0;
    device.submitted[stream] += 1;
    if (random() % 4 == 0) device.done[stream] = device.submitted[stream];
    if (live.empty() || random() % 2 == 0) {
      const uint64_t bytes = random() % (uint64_t{1} << (6 + random() % 19)),
                     at = pool.Allocate(bytes, stream);
      if (at == 0) continue;
      REQUIRE(at >= kBase);
      REQUIRE(at + bytes <= kBase + kBytes);
      REQUIRE(at % (bytes >= 2 * kMiB ? 2 * kMiB : 512) == 0);
      const auto next = live.lower_bound(at);
      REQUIRE((next == live.end() || at + bytes <= next->first));
      REQUIRE((next == live.begin() || std::prev(next)->first + std::prev(next)->second <= at));
      live[at] = std::max<uint64_t>(bytes, 1);
      if (random() % 3 == 0 && device.captures[kThree] == 0)
        pool.RecordStream(at, StreamOf(1 + random() % 3));
    } else {
      const auto one = std::next(live.begin(), static_cast<long>(random() % live.size()));
      REQUIRE(pool.Free(one->first));
      live.erase(one);
    }
  }
  CHECK(live.size() == pool.statistics().live_blocks);
}

}  // namespace kevin
