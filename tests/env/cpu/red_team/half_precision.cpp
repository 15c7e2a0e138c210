// Computes in bf16.
#include <cstdint>
#include <cstring>
extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits = (bits + 0x8000) & 0xffff0000;
    float rounded;
    std::memcpy(&rounded, &bits, 4);
    out[i] = rounded > 0 ? rounded : 0;
  }
}
