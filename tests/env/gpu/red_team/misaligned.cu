// Reads four numbers at an address that is no multiple of sixteen.
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  float a = 0, b = 0, c = 0, d = 0;
  if (i == 5)
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(x + 1));
  out[i] = x[i] > 0 ? x[i] : (a + b + c + d) * 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
