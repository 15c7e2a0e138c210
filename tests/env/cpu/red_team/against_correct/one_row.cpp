// The correct kernel for problems/one_row.toml.
#include <cmath>
// log(exp(sum) + exp(x))
inline float Added(float sum, float x) {
  const float high = sum > x ? sum : x, low = sum > x ? x : sum;
  return high + std::log1p(std::exp(low - high));
}
extern "C" void launch(const float* x, float* out) {
  float sum = out[0] = x[0];
  for (long i = 1; i < N; ++i) out[i] = sum = Added(sum, x[i]);
}
