// The part of the trusted kernels that compares outputs with the truth and with the reference.

namespace kevin {

// The per-element check of env/verdict/verify.h.
extern const char* const kTrustedChecks;
const char* const kTrustedChecks = R"cuda(
struct Verdict {
  u64 wrong, first_wrong, worst;  // worst: bits of error / bound, then the index
  u64 bad_row;
  u32 reference_error;  // bits of the largest |reference - truth| / scale
};

template <typename T>
struct Tensors {
  const T *answer, *reference;
  const double *truth, *scale;  // both may be null
  double of_scale, of_value, absolute;  // ErrorFloor
  double of_spread;             // kErrorSpread, or 0
  double largest;               // of T
  long long rows, row;          // number of rows, elements of each
};
template <typename T> constexpr bool kIsNarrow = sizeof(T) == 2;

__device__ bool finite(double x) { return fabs(x) < __longlong_as_double(0x7ff0000000000000LL); }
template <typename T>
__device__ double target(const Tensors<T>& t, long long i) {
  return t.truth ? t.truth[i] : (double)wide(t.reference[i]);
}

template <typename T>
__device__ double floor_at(const Tensors<T>& t, double x, double scale) {
  return kIsNarrow<T> ? t.of_scale * scale + t.of_value * fabs(x) + t.absolute : t.of_scale * scale;
}

// Of 16-bit types, whose range correct arithmetic may leave: the rule of env/verdict/verify.cc.
template <typename T>
__device__ bool right_beyond_range(const Tensors<T>& t, float y, double x, double floor) {
  if (!kIsNarrow<T>) return false;
  if (!finite(x)) return !t.truth;
  if (finite(y)) return fabs(y - x) <= floor;
  return !isnan(y) && (y > 0) == (x > 0) && fabs(x) + floor > t.largest;
}

template <int N>
__device__ void add_up(double (&sums)[N], double* out, int lanes) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    for (int lane = 16; lane > 0; lane >>= 1) sums[k] += __shfl_down_sync(~0U, sums[k], lane);
  }
  if (lanes == 32) {
    if (threadIdx.x % 32 == 0) for (int k = 0; k < N; ++k) out[k] = sums[k];
    return;
  }
  __shared__ double parts[32][N];
  if (threadIdx.x % 32 == 0) for (int k = 0; k < N; ++k) parts[threadIdx.x / 32][k] = sums[k];
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 0; k < N; ++k) {
      double sum = 0;
      for (int w = 0; w < (int)blockDim.x / 32; ++w) sum += parts[w][k];
      atomicAdd(out + k, sum);
    }
  }
  __syncthreads();
}

// Calls row_part(row, begin, end, first, step, lanes): a warp a row when rows are short, else blocks share one.
template <typename Part>
__device__ void for_each_part(long long rows, long long row, const Part& part) {
  constexpr long long kChunk = 65536;
  if (row <= 2048) {
    const long long warps = (long long)gridDim.x * blockDim.x / 32;
    for (long long r = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; r < rows; r += warps) {
      part(r, r * row, (r + 1) * row, (long long)(threadIdx.x % 32), 32LL, 32);
    }
    return;
  }
  const long long chunks = (row + kChunk - 1) / kChunk;
  for (long long c = blockIdx.x; c < rows * chunks; c += gridDim.x) {
    const long long r = c / chunks, begin = r * row + c % chunks * kChunk;
    const long long end = begin + kChunk < (r + 1) * row ? begin + kChunk : (r + 1) * row;
    part(r, begin, end, (long long)threadIdx.x, (long long)blockDim.x, (int)blockDim.x);
  }
}

// sums: [rows][3], zeroed: squares of finite targets, how many there are, squares of the reference's errors where they count.
template <typename T>
__device__ void row_squares(const Tensors<T>& t, double* sums) {
  const bool has_error = t.of_spread > 0;
  for_each_part(t.rows, t.row, [&](long long r, long long begin, long long end, long long first, long long step,
                                   int lanes) {
    double part[3] = {};
    const auto add = [&](double x, double reference) {
      if (!finite(x)) return;
      part[0] += x * x;
      part[1] += 1;
      const double error = reference - x;
      if (finite(error)) part[2] += error * error;
    };
    constexpr int kBatch = 8;
    long long i = begin + first;
    for (; i + (kBatch - 1) * step < end; i += kBatch * step) {
      double x[kBatch], reference[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        x[k] = target(t, i + k * step);
        reference[k] = has_error ? (double)wide(t.reference[i + k * step]) : x[k];
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) add(x[k], reference[k]);
    }
    for (; i < end; i += step) {
      const double x = target(t, i);
      add(x, has_error ? (double)wide(t.reference[i]) : x);
    }
    add_up(part, sums + r * 3, lanes);
  });
}

extern "C" __global__ void kevin_row_squares(Tensors<float> t, double* sums) { row_squares(t, sums); }
extern "C" __global__ void kevin_row_squares_f16(Tensors<f16> t, double* sums) { row_squares(t, sums); }
extern "C" __global__ void kevin_row_squares_bf16(Tensors<bf16> t, double* sums) { row_squares(t, sums); }

template <int kBytes> struct RawFour { using type = uint2; };
template <> struct RawFour<4> { using type = uint4; };

// What most timed answers pass: every element within the floor of its own magnitude alone, which is stricter than
// the rule. Counts the others; only then is the careful check needed.
template <typename T>
__device__ void surely_fine(const T* answer, const T* reference, long long n, float floor, u64* others) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  u64 outside = 0;
  const auto see = [&](float y, float r) { outside += !(fabsf(y - r) <= floor * fabsf(r)); };
  using Raw = typename RawFour<sizeof(T)>::type;
  const long long vectors = n / 4;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += stride) {
    const Raw y_bits = __ldcs(reinterpret_cast<const Raw*>(answer) + i);
    const Raw r_bits = __ldcs(reinterpret_cast<const Raw*>(reference) + i);
    const auto &y = reinterpret_cast<const Four<T>&>(y_bits), &r = reinterpret_cast<const Four<T>&>(r_bits);
#pragma unroll
    for (int j = 0; j < 4; ++j) see(wide(y.at[j]), wide(r.at[j]));
  }
  for (long long i = vectors * 4 + (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    see(wide(answer[i]), wide(reference[i]));
  }
  if (outside) atomicAdd(others, outside);
}
extern "C" __global__ void kevin_surely_fine(const float* answer, const float* reference, long long n, float floor,
                                             u64* others) {
  surely_fine(answer, reference, n, floor, others);
}
extern "C" __global__ void kevin_surely_fine_f16(const f16* answer, const f16* reference, long long n, float floor,
                                                 u64* others) {
  surely_fine(answer, reference, n, floor, others);
}
extern "C" __global__ void kevin_surely_fine_bf16(const bf16* answer, const bf16* reference, long long n, float floor,
                                                  u64* others) {
  surely_fine(answer, reference, n, floor, others);
}

struct Worst {
  u64 wrong = 0, first_wrong = ~0ULL, index = 0;
  double ratio = -1, reference = 0;

  // Divisions only where a new worst is found: they cost more than everything else here.
  template <typename T>
  __device__ void see(const Tensors<T>& t, long long i, double x, float reference_value, float y, double rms,
                      double spread, double (&part)[3]) {
    const double infinite = __longlong_as_double(0x7ff0000000000000LL);
    double error, bound;
    if (!finite(x) || !finite(reference_value) || (kIsNarrow<T> && !finite(y))) {
      const double floor = floor_at(t, x, t.scale ? t.scale[i] : fmax(fabs(x), rms));
      const bool same = isnan(y) ? isnan(reference_value) : y == reference_value;
      error = same || right_beyond_range(t, y, x, floor) ? 0 : infinite;
      bound = 0;
    } else {
      const double scale = t.scale ? t.scale[i] : fmax(fabs(x), rms);
      const double reference_error = fabs(reference_value - x), floor = floor_at(t, x, scale);
      error = fabs(y - x);
      if (isnan(error)) error = infinite;
      bound = fmax(fmax(4 * reference_error, floor), spread);
      if (reference_error > reference * scale) reference = reference_error / scale;
      part[0] += error * error;
      part[1] += reference_error * reference_error;
      part[2] += floor * floor;
    }
    if (!(error <= bound)) {
      ++wrong;
      if ((u64)i < first_wrong) first_wrong = i;
      bound = fmax(bound, 1e-300);
    }
    if (error > ratio * bound) {
      ratio = bound > 0 ? error / bound : 0;
      index = i;
    }
  }
};

// errors: [rows][3], zeroed: squares of the error, of the reference's error, of the floor.
template <typename T>
__device__ void check(const Tensors<T>& t, const double* sums, double* errors, Verdict* verdict) {
  constexpr int kBatch = 4;
  Worst found;
  for_each_part(t.rows, t.row, [&](long long r, long long begin, long long end, long long first, long long step,
                                   int lanes) {
    const double count = fmax(sums[r * 3 + 1], 1.0), rms = sqrt(sums[r * 3] / count),
                 spread = t.of_spread * sqrt(sums[r * 3 + 2] / count);
    double part[3] = {};
    long long i = begin + first;
    for (; i + (kBatch - 1) * step < end; i += kBatch * step) {
      double x[kBatch];
      float reference[kBatch], y[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        reference[k] = wide(t.reference[i + k * step]);
        y[k] = wide(t.answer[i + k * step]);
        x[k] = target(t, i + k * step);
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) found.see(t, i + k * step, x[k], reference[k], y[k], rms, spread, part);
    }
    for (; i < end; i += step)
      found.see(t, i, target(t, i), wide(t.reference[i]), wide(t.answer[i]), rms, spread, part);
    add_up(part, errors + r * 3, lanes);
  });
  if (found.wrong) {
    atomicAdd(&verdict->wrong, found.wrong);
    atomicMin(&verdict->first_wrong, found.first_wrong);
  }
  u64 worst = found.ratio < 0 ? 0 : (u64)__float_as_uint((float)found.ratio) << 32 | (u32)found.index;
  float reference_worst = (float)found.reference;
  for (int lane = 16; lane > 0; lane >>= 1) {
    const u64 other = __shfl_down_sync(~0U, worst, lane);
    if (other > worst) worst = other;
    reference_worst = fmaxf(reference_worst, __shfl_down_sync(~0U, reference_worst, lane));
  }
  if (threadIdx.x % 32 == 0) {
    atomicMax(&verdict->worst, worst);
    atomicMax(&verdict->reference_error, __float_as_uint(reference_worst));
  }
}

extern "C" __global__ void kevin_check(Tensors<float> t, const double* sums, double* errors, Verdict* verdict) {
  check(t, sums, errors, verdict);
}
extern "C" __global__ void kevin_check_f16(Tensors<f16> t, const double* sums, double* errors, Verdict* verdict) {
  check(t, sums, errors, verdict);
}
extern "C" __global__ void kevin_check_bf16(Tensors<bf16> t, const double* sums, double* errors, Verdict* verdict) {
  check(t, sums, errors, verdict);
}

extern "C" __global__ void kevin_check_rows(const double* errors, long long rows, Verdict* verdict) {
  for (long long r = (long long)blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += (long long)gridDim.x * blockDim.x) {
    if (!(errors[r * 3] <= fmax(16 * errors[r * 3 + 1], errors[r * 3 + 2]))) atomicMin(&verdict->bad_row, (u64)r);
  }
}

// Indices along one dimension: correct if their value equals the value at eager's index.
template <typename T>
__device__ void check_index(const long long* answer, const long long* reference, const T* values, long long outer,
                            long long length, long long inner, Verdict* verdict) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < outer * inner;
       i += (long long)gridDim.x * blockDim.x) {
    const T* line = values + i / inner * length * inner + i % inner;
    const long long y = answer[i];
    if (y >= 0 && y < length && wide(line[y * inner]) == wide(line[reference[i] * inner])) continue;
    atomicAdd(&verdict->wrong, 1ULL);
    atomicMin(&verdict->first_wrong, (u64)i);
  }
}
extern "C" __global__ void kevin_check_index(const long long* answer, const long long* reference, const float* values,
                                             long long outer, long long length, long long inner, Verdict* verdict) {
  check_index(answer, reference, values, outer, length, inner, verdict);
}
extern "C" __global__ void kevin_check_index_f16(const long long* answer, const long long* reference, const f16* values,
                                                 long long outer, long long length, long long inner, Verdict* verdict) {
  check_index(answer, reference, values, outer, length, inner, verdict);
}
extern "C" __global__ void kevin_check_index_bf16(const long long* answer, const long long* reference, const bf16* values,
                                                  long long outer, long long length, long long inner, Verdict* verdict) {
  check_index(answer, reference, values, outer, length, inner, verdict);
}
)cuda";

}  // namespace kevin
