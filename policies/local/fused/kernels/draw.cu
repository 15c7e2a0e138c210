// Draws a token from each row of logits: generate/sampler.h's rule without filters, over many blocks.

constexpr int kSlice = 2048;  // logits of one block
constexpr int kSlices = (VOCABULARY + kSlice - 1) / kSlice;

struct SliceSums {
  float greatest;
  int place;         // of the first that great
  float drawn, own;  // sums of e^((x - greatest) / temperature) and of e^(x - greatest)
};
struct DrawStep {                 // by value, in the kernel's parameters
  float inverse_temperature[64];  // 0: the most likely
  double uniform[64];
};
struct Drawn {  // as the host reads it
  int id;
  float logprob, model_logprob;
  u32 step;  // written last
};

__device__ __forceinline__ bool IsFinite(float x) { return fabsf(x) <= 3.4028235e38f; }

extern "C" __global__ void __launch_bounds__(256)
    kevin_draw_slices(const u16* logits, const DrawStep step, SliceSums* sums) {
  __shared__ float greatest[8], drawn[8], own[8];
  __shared__ int places[8];
  const int slice = blockIdx.x, row = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u16* from = logits + (size_t)row * VOCABULARY + slice * kSlice;
  const int count = min(kSlice, VOCABULARY - slice * kSlice);
  float x[kSlice / 256], top = kLowest;
  int place = 0x7fffffff;
#pragma unroll
  for (int k = 0; k < kSlice / 256; ++k) {
    const int i = threadIdx.x + k * 256;
    x[k] = i < count ? Wide(__ldcg(from + i)) : kLowest;
    if (i >= count || !IsFinite(x[k]))
      x[k] = kLowest;
    else if (x[k] > top)
      top = x[k], place = slice * kSlice + i;
  }
#pragma unroll
  for (int other = 16; other > 0; other >>= 1) {
    const float their_top = __shfl_xor_sync(~0u, top, other);
    const int their_place = __shfl_xor_sync(~0u, place, other);
    if (their_top > top || (their_top == top && their_place < place)) top = their_top, place = their_place;
  }
  if (lane == 0) greatest[warp] = top, places[warp] = place;
  __syncthreads();
  top = greatest[0], place = places[0];
  for (int w = 1; w < 8; ++w)
    if (greatest[w] > top || (greatest[w] == top && places[w] < place)) top = greatest[w], place = places[w];
  const float inverse = step.inverse_temperature[row];
  float sum = 0, own_sum = 0;
#pragma unroll
  for (int k = 0; k < kSlice / 256; ++k) {
    if (x[k] == kLowest) continue;
    sum += expf((x[k] - top) * inverse);
    own_sum += expf(x[k] - top);
  }
  sum = WarpSum(sum), own_sum = WarpSum(own_sum);
  if (lane == 0) drawn[warp] = sum, own[warp] = own_sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum = own_sum = 0;
  for (int w = 0; w < 8; ++w) sum += drawn[w], own_sum += own[w];
  sums[row * kSlices + slice] = {top, place, sum, own_sum};
}

// One block of 256 threads for each row.
extern "C" __global__ void __launch_bounds__(256)
    kevin_draw(const u16* logits, const DrawStep step, const SliceSums* sums, int* tokens, Drawn* results,
               u32 number) {
  __shared__ double before[kSlices + 1];
  __shared__ float scaled[kSlices], owns[kSlices], greatest[kSlices];
  __shared__ double totals[256];
  __shared__ float top_shared;
  __shared__ int chosen;
  const int row = blockIdx.x;
  const SliceSums* slices = sums + row * kSlices;
  const float inverse = step.inverse_temperature[row];
  for (int s = threadIdx.x; s < kSlices; s += 256) greatest[s] = slices[s].greatest;
  __syncthreads();
  if (threadIdx.x == 0) {
    int best = 0;
    for (int s = 1; s < kSlices; ++s)
      if (greatest[s] > greatest[best]) best = s;
    top_shared = greatest[best], chosen = slices[best].place;
  }
  __syncthreads();
  const float top = top_shared;
  for (int s = threadIdx.x; s < kSlices; s += 256) {
    const bool any = greatest[s] > kLowest;
    scaled[s] = any ? slices[s].drawn * expf((greatest[s] - top) * inverse) : 0;
    owns[s] = any ? slices[s].own * expf(greatest[s] - top) : 0;
  }
  __syncthreads();
  __shared__ double wanted;
  __shared__ int slice;
  __shared__ float own_total;
  if (threadIdx.x == 0) {
    double total = 0;
    float own = 0;
    for (int s = 0; s < kSlices; ++s) before[s] = total, total += scaled[s], own += owns[s];
    before[kSlices] = total;
    wanted = step.uniform[row] * total, own_total = own;
    slice = 0;
    for (int s = 0; s < kSlices; ++s)
      if (scaled[s] > 0 && before[s] <= wanted) slice = s;
  }
  __syncthreads();
  const u16* from = logits + (size_t)row * VOCABULARY + slice * kSlice;
  const int count = min(kSlice, VOCABULARY - slice * kSlice);
  if (inverse > 0) {
    constexpr int kEach = kSlice / 256;
    double mine = 0;
    for (int k = 0; k < kEach; ++k) {
      const int i = threadIdx.x * kEach + k;
      const float x = i < count ? Wide(__ldcg(from + i)) : kLowest;
      if (IsFinite(x) && x > kLowest) mine += expf((x - top) * inverse);
    }
    totals[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
      double sum = before[slice];
      int last = -1;  // with any probability, should rounding leave none beyond what is wanted
      bool found = false;
      for (int t = 0; t < 256 && !found; ++t) {
        if (totals[t] == 0 || (sum + totals[t] <= wanted && t < 255)) {
          if (totals[t] > 0) last = t * kEach;
          sum += totals[t];
          continue;
        }
        for (int k = 0; k < kEach && !found; ++k) {
          const int i = t * kEach + k;
          const float x = i < count ? Wide(__ldcg(from + i)) : kLowest;
          if (!IsFinite(x) || x == kLowest) continue;
          sum += expf((x - top) * inverse);
          last = i;
          found = sum > wanted;
        }
      }
      if (last >= 0) chosen = slice * kSlice + last;
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  const bool any = top > kLowest;
  const float logit = any ? Wide(__ldcg(logits + (size_t)row * VOCABULARY + chosen)) : 0;
  tokens[row] = any ? chosen : 0;
  Drawn* result = results + row;
  result->id = any ? chosen : -1;
  result->logprob = inverse > 0 ? (logit - top) * inverse - (float)log(before[kSlices]) : 0;
  result->model_logprob = logit - top - logf(own_total);
  __threadfence_system();
  *(volatile u32*)&result->step = number;
}
