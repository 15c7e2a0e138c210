// Welford by plane, merged
#include <cmath>
#include <vector>

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  constexpr long pixels = H * W, count = B * pixels, run = pixels;
#pragma omp parallel for
  for (long g = 0; g < C; ++g) {
    std::vector<float> item(count);
    for (long i = 0; i < count; ++i) item[i] = x[(i / pixels * C + g) * pixels + i % pixels];
    float mean = 0, variance = 0;

    float squares = 0;
    for (long begin = 0; begin < count; begin += run) {
      const long end = begin + run < count ? begin + run : count;
      float part_mean = 0, part_squares = 0;
      for (long i = begin; i < end; ++i) {
        const float before = item[i] - part_mean;
        part_mean += before / static_cast<float>(i - begin + 1);
        part_squares += before * (item[i] - part_mean);
      }
      const float apart = part_mean - mean, share = static_cast<float>(end - begin) / static_cast<float>(end);
      mean += apart * share;
      squares += part_squares + apart * apart * static_cast<float>(end - begin) * (1 - share);
    }
    variance = squares / count;

    const float scale = 1 / std::sqrt(variance + 1e-5F);
    for (long i = 0; i < count; ++i) {
      const long at = (i / pixels * C + g) * pixels + i % pixels;
      out[at] = (item[i] - mean) * scale * weight[at / pixels % C] + bias[at / pixels % C];
    }
  }
}
