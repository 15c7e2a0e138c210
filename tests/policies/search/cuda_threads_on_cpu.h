#pragma once
// Part of cuda_on_cpu.h: the threads of a block, and of all blocks of a cluster, as fibers that run in turn.

namespace emulated {

struct Barrier {
  int members = 0, arrived = 0;
  long generation = 0;
};

struct Copy {
  void* to;
  const void* from;
  int bytes;
  bool is_there;
};

struct Cluster;
struct Block {
  dim3 index;
  Cluster* cluster = nullptr;
  Barrier barrier;
  std::vector<float4> dynamic_shared;
  std::map<const void*, std::unique_ptr<float4[]>> shared;
};
struct Warp {
  Barrier barrier;
  uint64_t slots[32];
  float left[32][4], right[32][2];
};
struct Cluster {
  Barrier barrier;
  std::vector<Block> blocks;
  std::vector<Warp> warps;
};

struct Fiber {
  dim3 thread;
  Block* block = nullptr;
  Warp* warp = nullptr;
  std::deque<std::vector<Copy>> copies = {{}};  // committed groups, and the open one at the end
  jmp_buf state;
  bool has_started = false, has_ended = false;
  char* stack = nullptr;
};

inline Fiber* self = nullptr;
inline dim3 grid;
inline jmp_buf scheduler;
inline const std::function<void()>* kernel = nullptr;

constexpr size_t kStack = 64 << 10;

inline void Yield() {
  if (_setjmp(self->state) == 0) _longjmp(scheduler, 1);
}

inline void Wait(Barrier& barrier) {
  const long generation = barrier.generation;
  if (++barrier.arrived == barrier.members) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  while (barrier.generation == generation) Yield();
}

inline void Leave(Barrier& barrier) {
  if (--barrier.members > 0 && barrier.arrived == barrier.members) {
    barrier.arrived = 0;
    ++barrier.generation;
  }
}

inline void Enter() {
  (*kernel)();
  self->has_ended = true;
  Leave(self->warp->barrier);
  Leave(self->block->barrier);
  Leave(self->block->cluster->barrier);
  _longjmp(scheduler, 1);
}

inline void Resume(Fiber& fiber) {
  self = &fiber;
  if (_setjmp(scheduler) != 0) return;
  if (fiber.has_started) _longjmp(fiber.state, 1);
  fiber.has_started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack;
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, &Enter, 0);
  setcontext(&context);
}

inline char* Stacks(size_t count) {
  static std::map<size_t, char*> kept;
  char*& stacks = kept[count];
  if (stacks == nullptr) {
    stacks = static_cast<char*>(mmap(nullptr, count * kStack, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  return stacks;
}

struct Configuration {
  dim3 grid, block;
  long shared_bytes, cluster = 1;
  Configuration(dim3 g, dim3 b, long shared = 0) : grid(g), block(b), shared_bytes(shared) {}
  Configuration& Clusters(long blocks) {
    cluster = blocks;
    return *this;
  }
};

// Blocks [first, first + configuration.cluster) at once.
inline void RunCluster(const Configuration& configuration, unsigned long first) {
  const auto threads = configuration.block.x;
  const auto blocks = static_cast<unsigned>(configuration.cluster);
  Cluster cluster;
  cluster.barrier.members = static_cast<int>(threads * blocks);
  cluster.blocks.resize(blocks);
  cluster.warps.resize(blocks * ((threads + 31) / 32));
  std::vector<Fiber> fibers(threads * blocks);
  char* stacks = Stacks(fibers.size());
  for (unsigned b = 0; b < blocks; ++b) {
    Block& block = cluster.blocks[b];
    const unsigned long number = first + b;
    block.index = dim3(long(number % grid.x), long(number / grid.x % grid.y), long(number / grid.x / grid.y));
    block.cluster = &cluster;
    block.barrier.members = static_cast<int>(threads);
    block.dynamic_shared.resize(static_cast<size_t>(configuration.shared_bytes + 15) / 16,
                                {NAN, NAN, NAN, NAN});
    for (unsigned t = 0; t < threads; ++t) {
      Fiber& fiber = fibers[b * threads + t];
      fiber.thread = dim3(t, 0, 0);
      fiber.block = &block;
      fiber.warp = &cluster.warps[b * ((threads + 31) / 32) + t / 32];
      ++fiber.warp->barrier.members;
      fiber.stack = stacks + (b * threads + t) * kStack;
    }
  }
  for (bool is_running = true; is_running;) {
    is_running = false;
    for (Fiber& fiber : fibers) {
      if (!fiber.has_ended) Resume(fiber);
      is_running |= !fiber.has_ended;
    }
  }
}

inline void Run(const Configuration& configuration, const std::function<void()>& launched) {
  grid = configuration.grid;
  kernel = &launched;
  const unsigned long blocks = 1UL * grid.x * grid.y * grid.z;
  for (unsigned long first = 0; first < blocks; first += static_cast<unsigned long>(configuration.cluster)) {
    RunCluster(configuration, first);
  }
}

inline void* Shared(const void* key, size_t bytes) {
  std::unique_ptr<float4[]>& memory = self->block->shared[key];
  if (!memory) {
    memory.reset(new float4[bytes / 16 + 1]);
    std::memset(static_cast<void*>(memory.get()), 0xff, bytes);
  }
  return memory.get();
}

}  // namespace emulated
