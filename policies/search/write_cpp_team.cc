// The threads of a C++ text. A call starts its threads once; every thread then runs every stage. Inside of a stage the
// threads share numbered jobs. The loop over the jobs ends when all jobs have ended, not when all threads have come: a
// thread that the system starts late finds the stages that ended without it, and catches up.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_text.h"

namespace kevin::search {

std::string CppTeamText() {
  return R"(#include <omp.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>
// The loops over jobs of a call are its phases, numbered from 0. Each thread has a share of the jobs of a phase, and
// takes those of the others when its own are taken.
struct Team {
  struct alignas(64) Counter {
    std::atomic<unsigned long> state;   // phase << 32 | jobs
  };
  Counter taken[64], ended;
  std::atomic<int> asleep;
  void Reset(int threads, unsigned long phase) {
    for (int t = 0; t < threads; ++t) taken[t].state.store(phase << 32, std::memory_order_relaxed);
    ended.state.store(phase << 32);
  }
};
static Team team;
struct Worker {
  long me, threads;
  unsigned long phase;
};
struct Jobs {
  Worker& worker;
  long count, at_once, begin = 0, end = 0, others = 0, done = 0;
  Jobs(Worker& worker, long count, long at_once) : worker(worker), count(count), at_once(at_once) {}
  // The next jobs of this thread: begin to end. False: all jobs of all threads have ended.
  bool Take() {
    if (worker.threads == 1) {
      begin = end, end = count;
      return begin < end;
    }
    for (; others < worker.threads; ++others) {
      const long from = (worker.me + others) % worker.threads;
      const long low = count * from / worker.threads, high = count * (from + 1) / worker.threads;
      std::atomic<unsigned long>& taken = team.taken[from].state;
      unsigned long state = taken.load(std::memory_order_acquire);
      while (state >> 32 == worker.phase && low + long(state & 0xffffffff) < high) {
        if (!taken.compare_exchange_weak(state, state + at_once)) continue;
        begin = low + long(state & 0xffffffff);
        end = begin + at_once < high ? begin + at_once : high;
        done += end - begin;
        return true;
      }
    }
    Leave();
    return false;
  }
  void Leave() {
    if (count <= 0) return;
    std::atomic<unsigned long>& ended = team.ended.state;
    unsigned* const phase = (unsigned*)&ended + 1;
    if (done > 0 && long(ended.fetch_add(done) & 0xffffffff) + done == count) {
      team.Reset(worker.threads, worker.phase + 1);
      if (team.asleep.load() > 0) syscall(SYS_futex, phase, FUTEX_WAKE_PRIVATE, 64, nullptr, nullptr, 0);
    } else {
      // At first without the system: waking a thread takes longer than most waits.
      for (int turn = 0; ended.load(std::memory_order_acquire) >> 32 == worker.phase; ++turn) {
        if (turn < 1000) {
          __builtin_ia32_pause();
        } else {
          team.asleep.fetch_add(1);
          syscall(SYS_futex, phase, FUTEX_WAIT_PRIVATE, unsigned(worker.phase), nullptr, nullptr, 0);
          team.asleep.fetch_sub(1);
        }
      }
    }
    ++worker.phase;
  }
};
)";
}

double CppCycles(const Stage& stage) {
  const auto values_of = [](const std::vector<Store>& stores) {
    double nodes = 0;
    for (const Store& store : stores) nodes += static_cast<double>(Nodes(store.value).size());
    return nodes;
  };
  const auto points = [](const std::vector<Loop>& loops) { return static_cast<double>(CppCount(loops)); };
  constexpr double kCyclesOfNode = 0.15, kCyclesOfProduct = 0.08;
  if (const auto* pointwise = std::get_if<Pointwise>(&stage.work))
    return points(pointwise->loops) * (0.5 + kCyclesOfNode * values_of(pointwise->stores));
  if (const auto* reduction = std::get_if<Reduction>(&stage.work)) {
    double nodes = values_of(reduction->inner_stores);
    for (const Accumulator& one : reduction->accumulators)
      nodes += static_cast<double>(Nodes(one.value).size());
    return points(reduction->outer) *
           (values_of(reduction->outer_stores) + points(reduction->inner) * (0.3 + kCyclesOfNode * nodes));
  }
  if (const auto* contraction = std::get_if<Contraction>(&stage.work))
    return points(contraction->batch) * points(contraction->m) * points(contraction->n) *
           (0.5 + kCyclesOfProduct * points(contraction->k));
  if (const auto* scan = std::get_if<Scan>(&stage.work))
    return points(scan->outer) * static_cast<double>(scan->along.extent) * 2;
  if (const auto* attention = std::get_if<Attention>(&stage.work))
    return points(attention->batch) * points(attention->queries) * points(attention->keys) *
           (2 + kCyclesOfProduct * (points(attention->depth) + points(attention->width)));
  double body = 0;
  const auto& repeat = std::get<Repeat>(stage.work);
  for (const Stage& one : repeat.body) body += CppCycles(one);
  return body * static_cast<double>(repeat.times.extent);
}

}  // namespace kevin::search
