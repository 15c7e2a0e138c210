// Dynamic schedule, small chunks, backwards.
extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for schedule(dynamic, 1)
  for (long block = B * N / 4096 - 1; block >= 0; --block) {
    for (long i = block * 4096; i < (block + 1) * 4096; ++i) out[i] = x[i] > 0 ? x[i] : 0;
  }
}
