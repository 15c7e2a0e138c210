// One token of each of several sequences: what lies between the matrix products, which are cuBLAS's.

constexpr int kMostRows = 64;

struct BatchStep {             // in the device's memory, so that a recorded step can be repeated with another
  const int* drawn;            // by the step before, of each row
  int given_token[kMostRows];  // negative: the token drawn for row `earlier_row` in the step before
  int earlier_row[kMostRows];
  int position[kMostRows];
};
struct Batch {
  const int* pages;  // [rows, page_stride]
  int page_stride;
  int splits;                                // of each sequence
  u16 *stream, *normed, *attended, *hidden;  // [rows, ...]
  u16* projected;              // of a product [rows, kQkv], to which the bias is added by being there before
  const u16 *added, *gate_up;  // of products: [rows, HIDDEN], [rows, 2 * FFN]
  float* partial;              // [rows, HEADS, splits, HEAD_DIM + 2]
  u32* counters;               // [rows, KV_HEADS], zero between launches
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
__device__ __forceinline__ void AddAndNormalise(const u16* x, const u16* added, const u16* weight,
                                                u16* stream, u16* normed) {
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

// `bias` may be null: the next product is then no layer's first.
__device__ __forceinline__ void PlaceBias(const u16* bias, u16* projected) {
  if (!bias) return;
  for (int i = threadIdx.x; i < kQkv / 2; i += 256) ((u32*)projected)[i] = ((const u32*)bias)[i];
}

extern "C" __global__ void __launch_bounds__(256)
    kevin_embed(const Model model, const Batch batch, const BatchStep* step) {
  const size_t row = blockIdx.x;
  const int given = step->given_token[row];
  const size_t token = given >= 0 ? given : step->drawn[step->earlier_row[row]];
  AddAndNormalise(model.embedding + token * HIDDEN, nullptr, model.layers->norm1, batch.stream + row * HIDDEN,
                  batch.normed + row * HIDDEN);
  PlaceBias(model.layers->qkv_bias, batch.projected + row * kQkv);
}

extern "C" __global__ void __launch_bounds__(256)
    kevin_add_norm(const Batch batch, const u16* weight, const u16* bias) {
  const size_t row = blockIdx.x;
  u16* stream = batch.stream + row * HIDDEN;
  AddAndNormalise(stream, batch.added + row * HIDDEN, weight, stream, batch.normed + row * HIDDEN);
  PlaceBias(bias, batch.projected + row * kQkv);
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

// ---- attention of one key head's query heads over one part of a sequence's tokens

constexpr int kTile = 16;  // tokens of one warp at a time
constexpr int kTilesInFlight = 3;
constexpr int kVectors = HEAD_DIM / 8;  // of 16 bytes in a key
constexpr int kTileBytes = kTile * HEAD_DIM * 2;
static_assert(kGroup <= 8, "query heads fill the upper half of a tensor core's tile");

// Where vector `vector` of a tile's row lies: rows are shuffled so that eight of them lie in different banks.
__device__ __forceinline__ u32 TilePlace(int row, int vector) {
  return (u32)(row * kVectors + (vector ^ (row & 7))) * 16;
}
__device__ __forceinline__ void LoadMatrices(u32 address, u32 (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address));
}
__device__ __forceinline__ void LoadTransposed(u32 address, u32 (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address));
}
__device__ __forceinline__ void MultiplyTile(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A warp's tiles of keys and values on their way from the cache to shared memory.
struct TileStream {
  const Layer& layer;
  const Part& part;
  u32 shared;  // of this warp: stages of keys and values
  int tiles;   // of the part

  // The tile into a stage; beyond the last an empty group, so that groups can be counted.
  __device__ __forceinline__ void Fetch(int tile, int stage) const {
    if (tile < tiles) {
      const u32 keys = shared + stage * 2 * kTileBytes, values = keys + kTileBytes;
#pragma unroll
      for (int j = 0; j < kTile * kVectors / 32; ++j) {
        const int id = j * 32 + threadIdx.x % 32, row = id / kVectors, vector = id % kVectors;
        const size_t index = part.Index(min(part.begin + tile * kTile + row, part.end - 1)) + vector * 8;
        const u32 place = TilePlace(row, vector);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(keys + place), "l"(layer.keys + index)
                     : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(values + place),
                     "l"(layer.values + index)
                     : "memory");
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
};

// Rotates the query heads into shared memory, a tile of kGroup rows below which there are zeros, and puts the new
// token's key and value into the cache if this part holds it.
__device__ __forceinline__ void PrepareHeads(const Layer& layer, const Part& part, const u16* projected,
                                             const float* rotation, char* queries) {
  const int lane = threadIdx.x % 32;
  for (int g = threadIdx.x / 32; g < 16 + 2; g += kWarps) {
    const bool is_query = g < kGroup, is_key = g == 16;
    if (g >= 16 && part.owned < 0) continue;
    float x[kPerLane] = {};
    if (is_query || g >= 16) {
      const int index = is_query ? part.kv_head * kGroup + g : HEADS + (g - 16) * KV_HEADS + part.kv_head;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) x[i] = Wide(projected[index * HEAD_DIM + lane + 32 * i]);
      if (is_query || is_key) RotateHead(is_query ? layer.q_norm : layer.k_norm, rotation, x);
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int d = lane + 32 * i;
      if (g < 16)
        *(u16*)(queries + TilePlace(g, d / 8) + d % 8 * 2) = Narrow(x[i]);
      else
        (is_key ? layer.keys : layer.values)[part.Index(part.owned) + d] = Narrow(x[i]);
    }
  }
}

// One warp's share: every eighth tile. In each thread: of query head lane / 4 the sums of values, columns
// 8 n + lane % 4 * 2 and the next, its greatest score and its total weight.
__device__ __forceinline__ void AttendTiles(const TileStream& stream, u32 queries, float (&sums)[kVectors][4],
                                            float& greatest, float& weight) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  u32 query[HEAD_DIM / 16][4];
#pragma unroll
  for (int k = 0; k < HEAD_DIM / 16; ++k)
    LoadMatrices(queries + TilePlace(lane % 16, 2 * k + lane / 16), query[k]);
  int stage = 0;
  for (int tile = warp; tile < stream.tiles; tile += kWarps) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kTilesInFlight - 1) : "memory");
    __syncwarp();
    const u32 keys = stream.shared + stage * 2 * kTileBytes, values = keys + kTileBytes;
    float scores[2][4] = {};
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; ++k) {
      u32 b[4];
      LoadMatrices(keys + TilePlace(lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2), b);
      MultiplyTile(scores[0], query[k], b[0], b[1]);
      MultiplyTile(scores[1], query[k], b[2], b[3]);
    }
    const int left = stream.part.end - stream.part.begin - tile * kTile;
    float top = greatest;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        scores[n][i] = 8 * n + lane % 4 * 2 + i < left ? scores[n][i] * rsqrtf((float)HEAD_DIM) : kLowest;
        top = fmaxf(top, scores[n][i]);
      }
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float scale = __expf(greatest - top);
    greatest = top;
    weight *= scale;
#pragma unroll
    for (int n = 0; n < kVectors; ++n) sums[n][0] *= scale, sums[n][1] *= scale;
    u32 shares[4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const u16 first = Narrow(__expf(scores[n][0] - top)), second = Narrow(__expf(scores[n][1] - top));
      weight += Wide(first) + Wide(second);
      shares[2 * n] = first | (u32)second << 16;
    }
#pragma unroll
    for (int n = 0; n < kVectors; n += 2) {
      u32 b[4];
      LoadTransposed(values + TilePlace(lane / 8 % 2 * 8 + lane % 8, n + lane / 16), b);
      MultiplyTile(sums[n], shares, b[0], b[1]);
      MultiplyTile(sums[n + 1], shares, b[2], b[3]);
    }
    __syncwarp();
    stream.Fetch(tile + kTilesInFlight * kWarps, stage);
    stage = stage + 1 == kTilesInFlight ? 0 : stage + 1;
  }
  weight += __shfl_xor_sync(~0u, weight, 1);
  weight += __shfl_xor_sync(~0u, weight, 2);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    kevin_attend(const Model model, const Batch batch, const BatchStep* step, int layer_index) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float rotation[HEAD_DIM], greatest_of[kWarps][kGroup], weight_of[kWarps][kGroup];
  __shared__ int kept[kPagesKept];
  __shared__ bool last;
  const size_t row = blockIdx.z;
  const int kv_head = blockIdx.x, split = blockIdx.y, position = step->position[row], tokens = position + 1;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int splits = min(batch.splits, (tokens + kSplitTokens - 1) / kSplitTokens);
  if (split >= splits) return;
  const Layer& layer = model.layers[layer_index];
  const int each = ((tokens + splits - 1) / splits + kTile - 1) / kTile * kTile;
  const int begin = min(split * each, tokens), end = min(tokens, begin + each);
  const int* pages = batch.pages + row * batch.page_stride;
  const Part part{kv_head, begin, end, begin <= position && position < end ? position : -1, pages, kept};
  for (int i = threadIdx.x;
       begin < end && i < kPagesKept && i <= (end - 1) / PAGE_TOKENS - begin / PAGE_TOKENS; i += 256)
    kept[i] = pages[begin / PAGE_TOKENS + i];
  FillRotation(model, position, rotation);
  __syncthreads();
  char* queries = shared + kWarps * kTilesInFlight * 2 * kTileBytes;
  const TileStream stream{layer, part,
                          (u32)__cvta_generic_to_shared(shared) + warp * kTilesInFlight * 2 * kTileBytes,
                          (end - begin + kTile - 1) / kTile};
  const bool early = part.owned < 0;  // nothing of it is still to be written
  for (int s = 0; early && s < kTilesInFlight; ++s) stream.Fetch(warp + s * kWarps, s);
  PrepareHeads(layer, part, batch.projected + row * kQkv, rotation, queries);
  __syncthreads();
  for (int s = 0; !early && s < kTilesInFlight; ++s) stream.Fetch(warp + s * kWarps, s);

  float sums[kVectors][4] = {}, greatest = kLowest, weight = 0;
  AttendTiles(stream, (u32)__cvta_generic_to_shared(queries), sums, greatest, weight);
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  float* merge = (float*)shared;  // [kWarps, kGroup, HEAD_DIM]
  const int mine = lane / 4;
  if (mine < kGroup) {
#pragma unroll
    for (int n = 0; n < kVectors; ++n) {
      float* to = merge + (warp * kGroup + mine) * HEAD_DIM + 8 * n + lane % 4 * 2;
      to[0] = sums[n][0], to[1] = sums[n][1];
    }
    if (lane % 4 == 0) greatest_of[warp][mine] = greatest, weight_of[warp][mine] = weight;
  }
  __syncthreads();
  u16* attended = batch.attended + row * HEADS * HEAD_DIM;
  float* records = batch.partial + row * HEADS * batch.splits * kRecord;
  for (int e = threadIdx.x; e < kGroup * HEAD_DIM; e += 256) {
    const int g = e / HEAD_DIM, d = e % HEAD_DIM;
    float top = kLowest, total = 0, sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, greatest_of[w][g]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float scale = __expf(greatest_of[w][g] - top);
      total += scale * weight_of[w][g], sum += scale * merge[(w * kGroup + g) * HEAD_DIM + d];
    }
    const int query_head = kv_head * kGroup + g;
    if (splits == 1) {
      attended[query_head * HEAD_DIM + d] = Narrow(sum / total);
      continue;
    }
    float* record = records + ((size_t)query_head * splits + split) * kRecord;
    record[d] = sum;
    if (d == 0) record[HEAD_DIM] = top, record[HEAD_DIM + 1] = total;
  }
  if (splits == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) last = ArriveLast(batch.counters + row * KV_HEADS + kv_head, splits);
  __syncthreads();
  if (last) MergeRecords(records, kv_head, splits, attended);
}
