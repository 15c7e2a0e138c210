// polynomial exp
#include <cmath>

// exp by range reduction and a polynomial of degree 6, within 2 units in the last place.
static inline float PolynomialExp(float x) {
  x = x < -87.0F ? -87.0F : (x > 88.0F ? 88.0F : x);
  const float n = std::nearbyint(x * 1.44269504F);
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1;
  p = p * r + 1;
  union {
    int bits;
    float value;
  } power = {(static_cast<int>(n) + 127) << 23};
  return p * power.value;
}

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = v > 0 ? 1.05070099F * v : 1.75809934F * (PolynomialExp(v) - 1);
  }
}
