// another form of the term
#include <cmath>
#include <vector>

extern "C" void launch(const float* predictions, const float* targets, float* out) {
  constexpr long rows = N, columns = N, run = 32;
  std::vector<float> losses(rows);
#pragma omp parallel for
  for (long b = 0; b < rows; ++b) {
    float loss = 0;

    for (long begin = 0; begin < columns; begin += 64) {
      float part = 0;
      for (long n = begin; n < begin + 64 && n < columns; ++n) {
        const long i = b * columns + n;
        part += predictions[i] * targets[n] < 1 ? 1 - predictions[i] * targets[n] : 0.0F;
      }
      loss += part;
    }

    losses[b] = loss;
  }
  float total = 0;
  for (long begin = 0; begin < rows; begin += run) {
    float part = 0;
    for (long b = begin; b < begin + run && b < rows; ++b) part += losses[b];
    total += part;
  }
  *out = total / static_cast<float>(N * N);
}
