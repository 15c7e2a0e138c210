// One token of each of several sequences: what lies between the matrix products, which are cuBLAS's.

constexpr int kMostRows = 64;

struct BatchStep {  // by value, in the kernel's parameters
  int rows;
  int given_token[kMostRows];  // negative: the token drawn for row `earlier_row` in the step before
  int earlier_row[kMostRows];
  int position[kMostRows];
};
struct Batch {
  const int* drawn;  // by the step before, of each row
  const int* pages;  // [rows, page_stride]
  int page_stride;
  int splits;        // of each sequence
  u16 *stream, *normed, *attended, *hidden;  // [rows, ...]
  const u16 *projected, *added, *gate_up;    // of products: [rows, kQkv], [rows, HIDDEN], [rows, 2 * FFN]
  float* partial;    // [rows, HEADS, splits, HEAD_DIM + 2]
  u32* counters;     // [rows, KV_HEADS], zero between launches
};

__device__ __forceinline__ float SumOfBlock(float x) {
  __shared__ float shared[32];
  x = WarpSum(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < (int)blockDim.x / 32; ++w) total += shared[w];
  return total;
}

// x (plus `added`, where there is one) to the stream, and its norm. A block for each row.
__device__ __forceinline__ void AddAndNormalise(const u16* x, const u16* added, const u16* weight, u16* stream, u16* normed) {
  constexpr int kEach = (HIDDEN / 2 + 255) / 256;
  u32 pairs[kEach];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = threadIdx.x + k * 256;
    if (i >= HIDDEN / 2) continue;
    u32 pair = ((const u32*)x)[i];
    if (added) {
      const u32 more = ((const u32*)added)[i];
      pair = Narrow(Low(pair) + Low(more)) | (u32)Narrow(High(pair) + High(more)) << 16;
    }
    ((u32*)stream)[i] = pair;
    pairs[k] = pair;
    squares += Low(pair) * Low(pair) + High(pair) * High(pair);
  }
  const float scale = rsqrtf(SumOfBlock(squares) / HIDDEN + NORM_EPS);
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = threadIdx.x + k * 256;
    if (i >= HIDDEN / 2) continue;
    const u32 weights = ((const u32*)weight)[i];
    ((u32*)normed)[i] = Narrow(Low(pairs[k]) * scale * Low(weights)) |
                        (u32)Narrow(High(pairs[k]) * scale * High(weights)) << 16;
  }
}

extern "C" __global__ void __launch_bounds__(256) kevin_embed(const Model model, const Batch batch, const BatchStep step) {
  const size_t row = blockIdx.x;
  const int given = step.given_token[row];
  const size_t token = given >= 0 ? given : batch.drawn[step.earlier_row[row]];
  AddAndNormalise(model.embedding + token * HIDDEN, nullptr, model.layers->norm1, batch.stream + row * HIDDEN,
                  batch.normed + row * HIDDEN);
}

extern "C" __global__ void __launch_bounds__(256) kevin_add_norm(const Batch batch, const u16* weight) {
  const size_t row = blockIdx.x;
  u16* stream = batch.stream + row * HIDDEN;
  AddAndNormalise(stream, batch.added + row * HIDDEN, weight, stream, batch.normed + row * HIDDEN);
}

extern "C" __global__ void __launch_bounds__(256) kevin_swiglu(const Batch batch) {
  const size_t row = blockIdx.y;
  const u16* gate = batch.gate_up + row * 2 * FFN;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < FFN / 2; i += gridDim.x * 256) {
    const u32 g = ((const u32*)gate)[i], u = ((const u32*)(gate + FFN))[i];
    const auto swiglu = [](float x, float up) { return (u32)Narrow(Rounded(x / (1 + __expf(-x))) * up); };
    ((u32*)(batch.hidden + row * FFN))[i] = swiglu(Low(g), Low(u)) | swiglu(High(g), High(u)) << 16;
  }
}

extern "C" __global__ void __launch_bounds__(256) kevin_attend(const Model model, const Batch batch, const BatchStep step,
                                                               int layer_index) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float rotation[HEAD_DIM];
  __shared__ int kept[kPagesKept];
  __shared__ bool last;
  const size_t row = blockIdx.z;
  const int kv_head = blockIdx.x, split = blockIdx.y, position = step.position[row], tokens = position + 1;
  const int splits = min(batch.splits, (tokens + kSplitTokens - 1) / kSplitTokens);
  if (split >= splits) return;
  const Layer& layer = model.layers[layer_index];
  const int each = (tokens + splits - 1) / splits, begin = min(split * each, tokens), end = min(tokens, begin + each);
  const int* pages = batch.pages + row * batch.page_stride;
  const Part part{kv_head, begin, end, begin <= position && position < end ? position : -1, pages, kept};
  for (int i = threadIdx.x; begin < end && i < kPagesKept && i <= (end - 1) / PAGE_TOKENS - begin / PAGE_TOKENS; i += 256)
    kept[i] = pages[begin / PAGE_TOKENS + i];
  FillRotation(model, position, rotation);
  __syncthreads();
  const u16* projected = batch.projected + row * kQkv;
  const auto head = [&](int which, float (&x)[kPerLane]) {
    const int index = which < kGroup ? kv_head * kGroup + which : HEADS + (which - kGroup) * KV_HEADS + kv_head;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) x[i] = Wide(projected[index * HEAD_DIM + threadIdx.x % 32 + 32 * i]);
  };
  u16* attended = batch.attended + row * HEADS * HEAD_DIM;
  float* records = batch.partial + row * HEADS * batch.splits * kRecord;
  const auto done = [&](int query_head, int d, float sum, float greatest, float weight) {
    if (splits == 1) {
      attended[query_head * HEAD_DIM + d] = Narrow(sum / weight);
      return;
    }
    float* record = records + ((size_t)query_head * splits + split) * kRecord;
    record[d] = sum;
    if (d == 0) record[HEAD_DIM] = greatest, record[HEAD_DIM + 1] = weight;
  };
  Attend(layer, part, rotation, (float*)shared, head, done);
  if (splits == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) last = ArriveLast(batch.counters + row * KV_HEADS + kv_head, splits);
  __syncthreads();
  if (last) MergeRecords(records, kv_head, splits, attended);
}
