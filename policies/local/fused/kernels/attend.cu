// Attention of one token over the pages of its sequence: the same for one row and for a batch.

constexpr int kRecord = HEAD_DIM + 2;  // a part's sum, its greatest score, its total weight
constexpr int kPagesKept = 66;         // of a block's part, in shared memory

constexpr int kQueryFloats = kGroup * HEAD_DIM;
constexpr int kScoreFloats = kGroup * kChunk;
constexpr int kMergeFloats = 8 * kGroup * HEAD_DIM;
constexpr int kAttendBytes =
    4 * (kQueryFloats + (kScoreFloats > kMergeFloats ? kScoreFloats : kMergeFloats) + 3 * kGroup);

// What stays the same for a position: cosines, then sines.
__device__ __forceinline__ void FillRotation(const Model& model, int position, float* rotation) {
  for (int i = threadIdx.x; i < HEAD_DIM; i += blockDim.x) {
    const float* table = i < HEAD_DIM / 2 ? model.cosines : model.sines;
    rotation[i] = table[(size_t)position * (HEAD_DIM / 2) + i % (HEAD_DIM / 2)];
  }
}

// Norm (where the family has one) and rotation of one head, by one warp: lane i holds dimensions i, i + 32, ...
__device__ __forceinline__ void RotateHead(const u16* norm, const float* rotation, float (&x)[kPerLane]) {
  const int lane = threadIdx.x % 32;
  if (QK_NORM) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) squares += x[i] * x[i];
    const float scale = rsqrtf(WarpSum(squares) / HEAD_DIM + NORM_EPS);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) x[i] = Rounded(x[i] * scale * Wide(norm[lane + 32 * i]));
  }
#pragma unroll
  for (int i = 0; i < kPerLane / 2; ++i) {
    const float cosine = rotation[lane + 32 * i], sine = rotation[lane + 32 * i + HEAD_DIM / 2];
    const float first = x[i], second = x[i + kPerLane / 2];
    x[i] = Rounded(first * cosine - second * sine);
    x[i + kPerLane / 2] = Rounded(second * cosine + first * sine);
  }
}

__device__ __forceinline__ int SplitsFor(int tokens) {
  const int wanted = (tokens + kSplitTokens - 1) / kSplitTokens;
  return wanted < kMostSplits ? wanted : kMostSplits;
}

// One part of one sequence's tokens, for the query heads of one key head.
struct Part {
  int kv_head, begin, end;
  int owned;         // the new token's position if this part holds it, else -1
  const int* pages;  // the whole sequence's
  const int* kept;   // from the page of `begin` on, in shared memory; kPagesKept at most

  __device__ __forceinline__ size_t Index(int token) const {
    const int slot = token / PAGE_TOKENS - begin / PAGE_TOKENS;
    const size_t page = slot < kPagesKept ? kept[slot] : __ldg(pages + token / PAGE_TOKENS);
    return ((page * PAGE_TOKENS + token % PAGE_TOKENS) * KV_HEADS + kv_head) * HEAD_DIM;
  }
};

// 256 threads; `scratch` of kAttendBytes. `head(which)` gives the projections of query head 0, 1, ... of the group, of
// the key (kGroup) and the value (kGroup + 1), this lane's dimensions; `done(head, dimension, sum, greatest, weight)`
// takes the results.
template <typename Head, typename Done>
__device__ __forceinline__ void Attend(const Layer& layer, const Part& part, const float* rotation,
                                       float* scratch, const Head& head, const Done& done) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* query = scratch;
  float* scores = query + kQueryFloats;
  float* merge = scores;
  float* maxima = scores + (kScoreFloats > kMergeFloats ? kScoreFloats : kMergeFloats);
  float* sums = maxima + kGroup;
  float* factors = sums + kGroup;

  for (int g = warp; g < kGroup + 2; g += 8) {
    if (g >= kGroup && part.owned < 0) continue;
    float x[kPerLane];
    head(g, x);
    if (g <= kGroup) RotateHead(g < kGroup ? layer.q_norm : layer.k_norm, rotation, x);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (g < kGroup)
        query[g * HEAD_DIM + lane + 32 * i] = x[i];
      else
        (g == kGroup ? layer.keys : layer.values)[part.Index(part.owned) + lane + 32 * i] = Narrow(x[i]);
    }
  }
  if (threadIdx.x < kGroup) maxima[threadIdx.x] = kLowest, sums[threadIdx.x] = 0;
  __syncthreads();

  float acc[kGroup][kPerLane] = {};
  for (int chunk = part.begin; chunk < part.end; chunk += kChunk) {
    const int count = min(part.end - chunk, kChunk);
    constexpr int kValues = 8;
    u32 values[kValues][kPerLane / 2];
    const auto load_values = [&](int base) {
#pragma unroll
      for (int u = 0; u < kValues; ++u) {
        const int t = min(base + 8 * u, count - 1);
        const u16* value = layer.values + part.Index(chunk + t) + lane * kPerLane;
#pragma unroll
        for (int i = 0; i < kPerLane / 2; ++i) values[u][i] = __ldcg((const u32*)value + i);
      }
    };
    {  // scores: eight lanes a token
      float q[kGroup][kKeyVectors * 8];
#pragma unroll
      for (int g = 0; g < kGroup; ++g)
#pragma unroll
        for (int d = 0; d < kKeyVectors * 8; ++d)
          q[g][d] = query[g * HEAD_DIM + (d / 8) * 64 + (lane % 8) * 8 + d % 8];
      constexpr int kAtOnce = 4;
      for (int base = warp * 4 + lane / 8; base - lane / 8 < count; base += 32 * kAtOnce) {
        uint4 keys[kAtOnce][kKeyVectors];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const int t = min(base + 32 * u, count - 1);
          const u16* key = layer.keys + part.Index(chunk + t) + (lane % 8) * 8;
#pragma unroll
          for (int v = 0; v < kKeyVectors; ++v) keys[u][v] = __ldcg((const uint4*)(key + v * 64));
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const int t = base + 32 * u;
#pragma unroll
          for (int g = 0; g < kGroup; ++g) {
            float even = 0, odd = 0;
#pragma unroll
            for (int v = 0; v < kKeyVectors; ++v) {
              const uint4 k = keys[u][v];
              const float* x = &q[g][v * 8];
              even = fmaf(Low(k.x), x[0], even), odd = fmaf(High(k.x), x[1], odd);
              even = fmaf(Low(k.y), x[2], even), odd = fmaf(High(k.y), x[3], odd);
              even = fmaf(Low(k.z), x[4], even), odd = fmaf(High(k.z), x[5], odd);
              even = fmaf(Low(k.w), x[6], even), odd = fmaf(High(k.w), x[7], odd);
            }
            float dot = even + odd;
            dot += __shfl_xor_sync(~0u, dot, 4);
            dot += __shfl_xor_sync(~0u, dot, 2);
            dot += __shfl_xor_sync(~0u, dot, 1);
            if (lane % 8 == 0 && t < count) scores[g * kChunk + t] = dot * rsqrtf((float)HEAD_DIM);
          }
        }
      }
    }
    load_values(warp);  // they come while the weights are made
    __syncthreads();
    for (int g = warp; g < kGroup; g += 8) {
      float top = maxima[g];
      for (int t = lane; t < count; t += 32) top = fmaxf(top, scores[g * kChunk + t]);
      top = WarpMax(top);
      float total = 0;
      for (int t = lane; t < count; t += 32) {
        const float weight = __expf(scores[g * kChunk + t] - top);
        scores[g * kChunk + t] = weight;
        total += weight;
      }
      total = WarpSum(total);
      if (lane == 0) {
        factors[g] = __expf(maxima[g] - top);
        sums[g] = sums[g] * factors[g] + total;
        maxima[g] = top;
      }
    }
    __syncthreads();
#pragma unroll
    for (int g = 0; g < kGroup; ++g)
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) acc[g][i] *= factors[g];
    for (int base = warp; base < count; base += 8 * kValues) {
      if (base != warp) load_values(base);
#pragma unroll
      for (int u = 0; u < kValues; ++u) {
        const int t = base + 8 * u;
        if (t >= count) break;
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
          const float weight = scores[g * kChunk + t];
#pragma unroll
          for (int i = 0; i < kPerLane / 2; ++i) {
            acc[g][2 * i] = fmaf(weight, Low(values[u][i]), acc[g][2 * i]);
            acc[g][2 * i + 1] = fmaf(weight, High(values[u][i]), acc[g][2 * i + 1]);
          }
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int g = 0; g < kGroup; ++g)
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      merge[(warp * kGroup + g) * HEAD_DIM + lane * kPerLane + i] = acc[g][i];
  __syncthreads();
  for (int e = threadIdx.x; e < kGroup * HEAD_DIM; e += 256) {
    const int g = e / HEAD_DIM, d = e % HEAD_DIM;
    float total = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) total += merge[(w * kGroup + g) * HEAD_DIM + d];
    done(part.kv_head * kGroup + g, d, total, maxima[g], sums[g]);
  }
}

// Whether this is the last of `count` blocks to come here; what the others wrote before can then be read. One thread.
__device__ __forceinline__ bool ArriveLast(u32* counter, int count) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  if (before != (u32)count - 1) return false;
  *counter = 0;
  return true;
}

// Puts the parts of a key head's query heads together: records [HEADS, splits, kRecord] to attended [HEADS, HEAD_DIM].
__device__ __forceinline__ void MergeRecords(const float* all, int kv_head, int splits, u16* attended) {
  const int lane = threadIdx.x % 32;
  for (int g = threadIdx.x / 32; g < kGroup; g += 8) {
    const int query_head = kv_head * kGroup + g;
    const float* records = all + (size_t)query_head * splits * kRecord;
    float top = kLowest;
    for (int s = lane; s < splits; s += 32) top = fmaxf(top, __ldcg(records + s * kRecord + HEAD_DIM));
    top = WarpMax(top);
    float total = 0, sum[kPerLane] = {};
#pragma unroll 16
    for (int s = 0; s < splits; ++s) {
      const float* record = records + s * kRecord;
      const float weight = __expf(__ldcg(record + HEAD_DIM) - top);
      total += weight * __ldcg(record + HEAD_DIM + 1);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) sum[i] = fmaf(weight, __ldcg(record + lane + 32 * i), sum[i]);
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      attended[query_head * HEAD_DIM + lane + 32 * i] = Narrow(sum[i] / total);
  }
}
