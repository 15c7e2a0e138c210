// 8 parts, first of equals
extern "C" void launch(const float* x, long* out) {
  constexpr long parts = 8;
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    long* place = out + b * N;
    float best[N];
    for (long p = 0; p < parts; ++p) {
      float part[N];
      long part_place[N];
      for (long d = p * D / parts; d < (p + 1) * D / parts; ++d) {
        const float* row = x + (b * D + d) * N;
        for (long n = 0; n < N; ++n) {
          if (d > p * D / parts && !(row[n] < part[n])) continue;
          part[n] = row[n];
          part_place[n] = d;
        }
      }
      for (long n = 0; n < N; ++n) {
        if (p > 0 && !(part[n] < best[n])) continue;
        best[n] = part[n];
        place[n] = part_place[n];
      }
    }
  }
}
