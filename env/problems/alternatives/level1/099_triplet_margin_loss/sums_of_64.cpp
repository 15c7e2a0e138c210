// sums of 64
#include <cmath>
#include <vector>

extern "C" void launch(const float* anchor, const float* positive, const float* negative, float* out) {
  constexpr long rows = B, columns = N, run = 32;
  std::vector<float> losses(rows);
#pragma omp parallel for
  for (long b = 0; b < rows; ++b) {
    float loss = 0;

    float near = 0, far = 0;
    for (long begin = 0; begin < columns; begin += 64) {
      float near_part = 0, far_part = 0;
      for (long n = begin; n < begin + 64 && n < columns; ++n) {
        const long i = b * columns + n;
        const float p = anchor[i] - positive[i] + 1e-6F, q = anchor[i] - negative[i] + 1e-6F;
        near_part += p * p;
        far_part += q * q;
      }
      near += near_part;
      far += far_part;
    }
    loss = std::fmax(std::sqrt(near) - std::sqrt(far) + 1, 0.0F);

    losses[b] = loss;
  }
  float total = 0;
  for (long begin = 0; begin < rows; begin += run) {
    float part = 0;
    for (long b = begin; b < begin + run && b < rows; ++b) part += losses[b];
    total += part;
  }
  *out = total / static_cast<float>(B);
}
