#include "tools/export/standalone_texts.h"

namespace kevin {

// Needs HD, kTensors, kReduction and kHasScale; after it come the reference's templates.
const char kStandaloneCommon[] = R"(
using std::exp;
using std::expm1;
using std::fabs;
using std::log;
using std::log1p;
using std::sqrt;
using std::tanh;
using std::erf;

HD bool IsInfinite(double x) { return x == INFINITY || x == -INFINITY; }
HD bool IsFinite(double x) { return x == x && !IsInfinite(x); }

struct Inputs {
  const float* p[kInputs > 0 ? kInputs : 1];
};
template <class T>
struct Buffers {
  T* p[16];
};

template <class T>
HD T Larger(T a, T b) { return a > b || a != a ? a : b; }
template <class T>
HD T Smaller(T a, T b) { return a < b || a != a ? a : b; }

// Element i of an input: the distributions that the kernel was judged on.
HD unsigned Mixed(unsigned long long seed, unsigned long long i) {
  unsigned long long z = seed * 0x9e3779b97f4a7c15ull + i * 0xd1342543de82ef95ull + 0x632be59bd9b4e019ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (unsigned)(z >> 32);
}
HD float Unit(unsigned bits) { return (float)(bits >> 8) * (1.0f / 16777216.0f); }
enum Shape { kMixture, kNormal, kUniform, kUniform01, kHeavyTailed, kPositive, kSigns };
HD float Drawn(int shape, unsigned long long seed, unsigned long long i) {
  float scale = 1;
  if (shape == kMixture) {
    const int member = (int)(seed % 4);
    shape = member == 0 ? kNormal : member == 1 ? kUniform : member == 2 ? kHeavyTailed : kNormal;
    scale = member == 1 ? 2.0f : member == 3 ? 8.0f : 1.0f;
  }
  const float u = Unit(Mixed(seed, 2 * i)), v = Unit(Mixed(seed, 2 * i + 1));
  switch (shape) {
    case kUniform: return scale * (2 * u - 1);
    case kUniform01: return u;
    case kSigns: return scale * (u < 0.5f ? -1 : 1);
    case kHeavyTailed: return scale * (2 * u - 1) / (0.03f + v);
    case kPositive: return 0.01f + u;
    default: return scale * sqrtf(-2 * logf(u + 1e-7f)) * cosf(6.2831853f * v);
  }
}

// How the terms of a reduction are joined.
enum Join { kSum, kMean, kMax, kMin, kArgmax, kArgmin };
template <class T>
struct Joined {
  T value;
  long at;
};
template <class T>
HD Joined<T> Start(int join) {
  return {join == kMax || join == kArgmax ? T(-INFINITY) : join == kMin || join == kArgmin ? T(INFINITY) : T(0), 0};
}
template <class T>
HD void Add(int join, Joined<T>* a, Joined<T> b) {
  if (join == kSum || join == kMean) {
    a->value += b.value;
  } else if (b.value != b.value ? a->value == a->value
                                : (join == kMax || join == kArgmax ? b.value > a->value : b.value < a->value)) {
    *a = b;
  }
}
// Terms r, r + step, ... of result i, in parts of 64, so that an fp32 sum stays a good one.
template <class Step, class T>
HD Joined<T> Part(const Inputs& in, const Buffers<T>& b, int join, long i, long first, long step, long terms) {
  Joined<T> all = Start<T>(join);
  for (long r = first; r < terms;) {
    Joined<T> some = Start<T>(join);
    for (int n = 0; n < 64 && r < terms; ++n, r += step) Add(join, &some, Joined<T>{Step::At(in, b, i, r), r});
    Add(join, &all, some);
  }
  return all;
}
template <class T>
HD T Finished(int join, Joined<T> all, long terms) {
  if (join == kArgmax || join == kArgmin) return T(all.at);
  return join == kMean ? all.value / T(terms) : all.value;
}
// Row q of a scan.
template <class Step, class T>
HD void ScanRow(const Inputs& in, const Buffers<T>& b, T* out, bool is_sum, long q, long terms, long inner) {
  const long base = q / inner * terms * inner + q % inner;
  T so_far = is_sum ? T(0) : T(1);
  for (long r = 0; r < terms; ++r) {
    const long i = base + r * inner;
    const T value = Step::At(in, b, i, 0);
    so_far = is_sum ? so_far + value : so_far * value;
    out[i] = so_far;
  }
}

// What came out of comparing: an element is right within max(4 |r - t|, 8 eps sqrt(K) s), with the truth t in
// double, r the same in float, K the terms of one result and s the larger of |t| and the row's RMS, or the
// problem's own scale. A row's RMS error is bounded in the same way.
struct Verdict {
  unsigned long long wrong, first_wrong;
  double worst;  // largest error over what is allowed
};
HD double Floor(double s) { return 8 * 1.1920929e-7 * sqrt((double)kReduction) * s; }
HD double OverBound(double y, double t, double r, double s) {
  if (r != r || t != t) return y != y ? 0 : INFINITY;
  if (IsInfinite(r) || IsInfinite(t)) return y == r || y == t ? 0 : INFINITY;
  if (!IsFinite(y)) return INFINITY;
  const double bound = fmax(4 * fabs(r - t), Floor(s)), error = fabs(y - t);
  return error == 0 ? 0 : bound > 0 ? error / bound : INFINITY;
}
)";

const char kStandaloneCuda[] = R"(
static void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(3);
}
static std::vector<void*> allocated;
static char* Allocate(long bytes) {
  void* at = nullptr;
  Must(cudaMalloc(&at, bytes > 0 ? bytes : 1), "not enough memory on the GPU");
  allocated.push_back(at);
  return (char*)at;
}

__global__ void FillInput(float* out, long n, int shape, float scale, float offset, unsigned long long seed) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x)
    out[i] = Drawn(shape, seed, i) * scale + offset;
}
template <class Step, class T>
__global__ void ReduceWide(Inputs in, Buffers<T> b, T* out, int join, long results, long terms) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < results; i += (long)gridDim.x * blockDim.x)
    out[i] = Finished(join, Part<Step, T>(in, b, join, i, 0, 1, terms), terms);
}
template <class Step, class T>
__global__ void ReduceDeep(Inputs in, Buffers<T> b, T* out, int join, long results, long terms) {
  __shared__ Joined<T> parts[256];
  for (long i = blockIdx.x; i < results; i += gridDim.x) {
    parts[threadIdx.x] = Part<Step, T>(in, b, join, i, threadIdx.x, blockDim.x, terms);
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        const Joined<T> other = parts[threadIdx.x + half];
        const bool is_tie = other.value == parts[threadIdx.x].value && other.at < parts[threadIdx.x].at;
        if (is_tie && join >= kMax) parts[threadIdx.x] = other;
        else Add(join, &parts[threadIdx.x], other);
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) out[i] = Finished(join, parts[0], terms);
    __syncthreads();
  }
}
template <class Step, class T>
__global__ void ScanRows(Inputs in, Buffers<T> b, T* out, bool is_sum, long rows, long terms, long inner) {
  for (long q = blockIdx.x * (long)blockDim.x + threadIdx.x; q < rows; q += (long)gridDim.x * blockDim.x)
    ScanRow<Step, T>(in, b, out, is_sum, q, terms, inner);
}
template <class Step, class T>
static void DoStep(const Inputs& in, const Buffers<T>& b, int index, const char* kind, int join, long results,
                   long terms, long inner) {
  if (kind[0] == 'c') {
    const long rows = results / terms;
    ScanRows<Step, T><<<(unsigned)std::min(rows / 128 + 1, 65535L), 128>>>(in, b, b.p[index], kind[3] == 's', rows,
                                                                           terms, inner);
  } else if (results >= 16384) {
    ReduceWide<Step, T><<<(unsigned)std::min(results / 256 + 1, 1048576L), 256>>>(in, b, b.p[index], join, results, terms);
  } else {
    ReduceDeep<Step, T><<<(unsigned)results, 256>>>(in, b, b.p[index], join, results, terms);
  }
  Must(cudaGetLastError(), "the reference");
}

__device__ double BlockSum(double value) {
  __shared__ double parts[256];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = parts[0];
  __syncthreads();
  return sum;
}
__device__ void Report(Verdict* verdict, double over, unsigned long long where) {
  if (over > 1) {
    atomicAdd(&verdict->wrong, 1ull);
    atomicMin(&verdict->first_wrong, where);
  }
  // Not negative, so that the bits of doubles order as they do.
  atomicMax((unsigned long long*)&verdict->worst, (unsigned long long)__double_as_longlong(over));
}
)";

const char kStandaloneCpu[] = R"(
static std::vector<char*> allocated;
static char* Allocate(long bytes) {
  char* const at = (char*)std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096 + 4096);
  if (at == nullptr) {
    std::fprintf(stderr, "not enough memory\n");
    std::exit(3);
  }
  std::memset(at, 0xff, bytes);
  allocated.push_back(at);
  return at;
}

template <class Step, class T>
static void DoStep(const Inputs& in, const Buffers<T>& b, int index, const char* kind, int join, long results,
                   long terms, long inner) {
  if (kind[0] == 'c') {
#pragma omp parallel for
    for (long q = 0; q < results / terms; ++q)
      ScanRow<Step, T>(in, b, b.p[index], kind[3] == 's', q, terms, inner);
    return;
  }
#pragma omp parallel for
  for (long i = 0; i < results; ++i) {
    Joined<T> all = Start<T>(join);
    const long part = (terms + 255) / 256;  // as many parts as a block has threads on a GPU
    for (long first = 0; first < terms; first += part) {
      Add(join, &all, Part<Step, T>(in, b, join, i, first, 1, std::min(terms, first + part)));
    }
    b.p[index][i] = Finished(join, all, terms);
  }
}
)";

const char kStandaloneCpuReport[] = R"(
static void Report(Verdict* verdict, double over, unsigned long long where) {
  if (over > 1 || over != over) {
    verdict->wrong++;
    if (where < verdict->first_wrong) verdict->first_wrong = where;
  }
  if (over > verdict->worst) verdict->worst = over;
}
)";

const char kStandaloneMain[] = R"(
int main(int argc, char**) {  // with any argument it only checks
  AllocateBuffers();
  Begin();
  int right = 0;
  double worst = 0;
  for (unsigned long long seed = 0; kCanCheck && seed < kSeeds; ++seed) {
    DrawInputs(seed + 4 * 7919);
    Poison();
    RunOnce();
    const Verdict verdict = Check();
    right += verdict.wrong == 0;
    if (verdict.worst > worst) worst = verdict.worst;
    if (verdict.wrong != 0) {
      std::printf("wrong: input set %llu has %llu wrong places, the first at %llu\n", seed, verdict.wrong,
                  verdict.first_wrong);
    }
  }
  if (kCanCheck) {
    std::printf("check:    %d of %d input sets right; the largest error is %.2g of what is allowed\n", right, kSeeds,
                worst);
  } else {
    std::printf("check:    none, the reference cannot be written as plain loops\n");
  }
  const int code = !kCanCheck || right == kSeeds ? 0 : 1;
  if (argc > 1) return code;
  std::vector<double> times_us;
  double spent_us = 0;
  for (int i = 0; i < 200 && (i < 20 || spent_us < 2e6); ++i) {
    DrawInputs(i);
    const double us = TimeOnce();
    spent_us += us;
    if (i >= 5) times_us.push_back(us);
  }
  std::sort(times_us.begin(), times_us.end());
  const double median = times_us[times_us.size() / 2];
  std::printf("time:     %.4g us a call, median of %zu on inputs drawn anew, caches flushed (%.4g to %.4g)\n", median,
              times_us.size(), times_us[times_us.size() / 10], times_us[times_us.size() * 9 / 10]);
  if (kBytes > 0) std::printf("rates:    %.4g GB/s, %.4g GFLOP/s by the usual counts\n", kBytes / median / 1e3, kFlops / median / 1e3);
  std::printf("recorded: %s\n", kRecorded);
  if (kRecordedEagerUs > 0) std::printf("speed-up: %.3gx against the recorded eager time\n", kRecordedEagerUs / median);
  return code;
}
)";

const char kStandaloneCudaMachine[] = R"(
static cudaEvent_t before, after;
static char* flush;
constexpr long kFlushBytes = 256L << 20;
static void Begin() {
  Must(kevin_launch::SetUp(), "setting up");
  Must(cudaEventCreate(&before), "event");
  Must(cudaEventCreate(&after), "event");
  flush = Allocate(kFlushBytes);
}
static void RunOnce() {
  Must(kevin_launch::Run(buffers, nullptr), "launch");
  Must(cudaDeviceSynchronize(), "the kernel");
}
static double TimeOnce() {
  Must(cudaMemsetAsync(flush, 1, kFlushBytes), "flush");
  Must(cudaEventRecord(before), "event");
  Must(kevin_launch::Run(buffers, nullptr), "launch");
  Must(cudaEventRecord(after), "event");
  Must(cudaDeviceSynchronize(), "the kernel");
  float ms = 0;
  Must(cudaEventElapsedTime(&ms, before, after), "event");
  return ms * 1e3;
}
)";

const char kStandaloneCpuMachine[] = R"(
static std::vector<char> flush(256L << 20, 1);
static void Begin() {}
static double TimeOnce() {
  for (size_t i = 0; i < flush.size(); i += 64) flush[i]++;
  const auto start = std::chrono::steady_clock::now();
  RunOnce();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}
)";

}  // namespace kevin
