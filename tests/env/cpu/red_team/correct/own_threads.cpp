// Starts and joins its own threads in every call.
#include <thread>
#include <vector>
extern "C" void launch(const float* x, float* out) {
  const auto part = [=](long begin, long end) {
    for (long i = begin; i < end; ++i) out[i] = x[i] > 0 ? x[i] : 0;
  };
  std::thread other(part, 0, B * N / 2);
  part(B * N / 2, B * N);
  other.join();
}
