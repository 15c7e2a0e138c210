// The products of one vector: each warp streams the rows that are its own through a ring in shared memory.

// Of a matrix and a vector. Rows are dealt out to blocks in turn; each is cut into kCut parts, and a warp always has the
// same part, so that its share of the vector stays in registers.
template <int kPhase>
struct Product {
  static constexpr int kMatrices = kPhase == 2 ? 2 : 1;  // gate and up, row by row
  static constexpr int kRows = kPhase == 0 ? kQkv : kPhase == 2 ? FFN : kPhase == 4 ? VOCABULARY : HIDDEN;
  static constexpr int kColumns = kPhase == 1 ? HEADS * HEAD_DIM : kPhase == 3 ? FFN : HIDDEN;
  static constexpr int kCut = kPhase == 1 ? CUT_O : kPhase == 3 ? CUT_DOWN : CUT_HIDDEN;
  static constexpr int kPartBytes = 2 * kColumns / kCut;
  static constexpr int kChunks = (kPartBytes + 511) / 512;  // 16 bytes for each lane
  static constexpr int kPieces = (kChunks * 512 + STAGE_BYTES - 1) / STAGE_BYTES;
  static constexpr int kPieceChunks = (kChunks + kPieces - 1) / kPieces;
  static constexpr int kPieceBytes = kPieceChunks * 512;
  static constexpr int kLastBytes = kPartBytes - (kPieces - 1) * kPieceBytes;
  static constexpr int kStep = kWarps / kCut;  // rows at once
  static_assert(kPieceBytes <= STAGE_BYTES && kLastBytes > 0 && kPartBytes % 16 == 0 && kWarps % kCut == 0);

  static __device__ __forceinline__ int Rows() {
    return (kRows - (int)blockIdx.x + BLOCKS - 1) / BLOCKS * kMatrices;
  }
};

// Walks through all that one warp multiplies, in order.
struct Cursor {
  const u16* const* matrices = nullptr;  // in shared memory: four of each layer, the head, null
  const char* row = nullptr;
  size_t stride = 0;  // to this warp's next row
  int phase = 0, rows = 0, piece = 0, pieces = 0;
  u32 piece_bytes = 0, last_bytes = 0;

  template <int kPhase>
  __device__ void BeginPhase(const u16* matrix) {
    using P = Product<kPhase>;
    static_assert(P::kMatrices == 1 || P::kStep % 2 == 0);
    constexpr size_t kRowBytes = 2 * P::kColumns;
    const int warp = threadIdx.x / 32, first = warp / P::kCut;
    const size_t index =
        blockIdx.x + (size_t)(first / P::kMatrices) * BLOCKS + (size_t)(first % P::kMatrices) * P::kRows;
    row = (const char*)matrix + index * kRowBytes + warp % P::kCut * P::kPartBytes;
    stride = (size_t)(P::kStep / P::kMatrices) * BLOCKS * kRowBytes;
    rows = max(0, (P::Rows() - first + P::kStep - 1) / P::kStep);
    pieces = P::kPieces, piece_bytes = P::kPieceBytes, last_bytes = P::kLastBytes;
  }
  // The next phase in which this warp has rows.
  __device__ void Begin() {
    while (rows == 0 && *matrices) {
      const u16* matrix = *matrices++;
      if (!*matrices)
        BeginPhase<4>(matrix);
      else if (phase == 0)
        BeginPhase<0>(matrix);
      else if (phase == 1)
        BeginPhase<1>(matrix);
      else if (phase == 2)
        BeginPhase<2>(matrix);
      else
        BeginPhase<3>(matrix);
      phase = (phase + 1) % 4;
    }
  }
  // The next piece; false at the end.
  __device__ __forceinline__ bool Next(const char** source, u32* bytes) {
    if (rows == 0) return false;
    *source = row + piece * piece_bytes;
    *bytes = piece + 1 < pieces ? piece_bytes : last_bytes;
    if (++piece == pieces) {
      piece = 0, row += stride;
      if (--rows == 0) Begin();
    }
    return true;
  }
};

struct Ring {
  char* data;  // of this warp
  u32 full;    // shared address of its barriers
  u64 policy;
  int stage = 0;  // to be consumed next
  u32 parity = 0;
  Cursor fetched;  // the first lane's

  __device__ void Fetch(int into) {
    const char* source;
    u32 bytes;
    if (!fetched.Next(&source, &bytes)) return;
    const u32 target = (u32)__cvta_generic_to_shared(data + into * STAGE_BYTES), barrier = full + 8 * into;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(target),
        "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
  }

  __device__ __forceinline__ void Wait() const {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}\n" ::"r"(full +
                                                                                                 8 * stage),
        "r"(parity)
        : "memory");
  }
  __device__ __forceinline__ void Release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) Fetch(stage);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Each warp's rows of a product; sums of the parts to `sums`, or, of whole rows of the last one, to the logits.
template <int kPhase>
__device__ __forceinline__ void Multiply(const Model& model, Ring& ring, const u16* vector, float* sums) {
  using P = Product<kPhase>;
  const int lane = threadIdx.x % 32, cut = threadIdx.x / 32 % P::kCut;
  float values[P::kChunks][8];
#pragma unroll
  for (int c = 0; c < P::kChunks; ++c) {
    uint4 v = {};
    if (c * 512 + lane * 16 < P::kPartBytes)
      v = *(const uint4*)((const char*)vector + cut * P::kPartBytes + c * 512 + lane * 16);
    const u32 pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) values[c][2 * k] = Low(pairs[k]), values[c][2 * k + 1] = High(pairs[k]);
  }
  const int rows = P::Rows();
  for (int index = threadIdx.x / 32 / P::kCut; index < rows; index += P::kStep) {
    float part[4] = {};
#pragma unroll
    for (int piece = 0; piece < P::kPieces; ++piece) {
      const char* weights = ring.data + ring.stage * STAGE_BYTES + lane * 16;
      ring.Wait();
#pragma unroll
      for (int k = 0; k < P::kPieceChunks; ++k) {
        const int c = piece * P::kPieceChunks + k;
        if (c >= P::kChunks || c * 512 + lane * 16 >= P::kPartBytes) continue;
        const uint4 w = *(const uint4*)(weights + k * 512);
        part[0] = fmaf(Low(w.x), values[c][0], part[0]), part[1] = fmaf(High(w.x), values[c][1], part[1]);
        part[2] = fmaf(Low(w.y), values[c][2], part[2]), part[3] = fmaf(High(w.y), values[c][3], part[3]);
        part[0] = fmaf(Low(w.z), values[c][4], part[0]), part[1] = fmaf(High(w.z), values[c][5], part[1]);
        part[2] = fmaf(Low(w.w), values[c][6], part[2]), part[3] = fmaf(High(w.w), values[c][7], part[3]);
      }
      ring.Release();
    }
    const float total = WarpSum((part[0] + part[1]) + (part[2] + part[3]));
    if (lane == 0) sums[index * P::kCut + cut] = total;
  }
}

// A row's parts together.
template <int kPhase>
__device__ __forceinline__ float PartsOf(const float* sums, int index) {
  float total = 0;
#pragma unroll
  for (int part = 0; part < Product<kPhase>::kCut; ++part)
    total += sums[index * Product<kPhase>::kCut + part];
  return total;
}
