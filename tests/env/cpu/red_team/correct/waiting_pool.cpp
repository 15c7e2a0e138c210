// A pool of its own, made at the first call, whose thread waits on a condition between calls.
#include <condition_variable>
#include <mutex>
#include <thread>
static std::mutex mutex;
static std::condition_variable changed;
static const float* from = nullptr;
static float* to = nullptr;
static bool wanted = false, finished = false;
static void Part(long begin, long end) {
  for (long i = begin; i < end; ++i) to[i] = from[i] > 0 ? from[i] : 0;
}
static void Serve() {
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [] { return wanted; });
    wanted = false;
    lock.unlock();
    Part(0, B * N / 2);
    lock.lock();
    finished = true;
    changed.notify_all();
  }
}
extern "C" void launch(const float* x, float* out) {
  static std::thread worker(Serve);
  std::unique_lock<std::mutex> lock(mutex);
  from = x;
  to = out;
  finished = false;
  wanted = true;
  changed.notify_all();
  lock.unlock();
  Part(B * N / 2, B * N);
  lock.lock();
  changed.wait(lock, [] { return finished; });
}
