#include "env/gpu/gpu_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "env/error.h"

namespace kevin {
namespace {

constexpr int64_t kPage = 4096;
constexpr int kMaxSlotsOnGpu = 6;
constexpr int64_t kProbeVectors = 160 << 10;  // 2.5 MiB: a few microseconds
constexpr int kProbeBlocks = 640, kProbePairs = 96;
constexpr int kCanaryWords = 1 << 16;
constexpr double kBandwidthMargin = 1.1;  // a better kernel than ours may exist by that much
// mma.sync reaches some 60 % of what the newest tensor instructions do; fp8 and sparsity double it twice.
constexpr double kMatrixMargin = 1.7 * 4;

int64_t RoundUp(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

int64_t TotalBytes(const std::vector<ConcreteTensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const ConcreteTensor& t) { return sum + RoundUp(t.bytes); });
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// As env/cpu/generator.cc draws, and in the order of the trusted kernel's enumerators.
struct Drawing {
  int distribution = 0;
  float scale = 1, offset = 0;
};

Drawing DrawingOf(const TensorSpec& spec, InputMode mode, uint64_t member) {
  enum { kNormal, kUniform, kUniform01, kHeavyTailed, kPositive, kSigns };
  if (mode == InputMode::kKernelBench && !spec.is_param && spec.dtype == DType::kF32 &&
      spec.distribution != Distribution::kSigns)
    return {kUniform01, 1, 0};
  Drawing drawing{kNormal, static_cast<float>(spec.scale), static_cast<float>(spec.offset)};
  switch (spec.distribution) {
    case Distribution::kNormal:
      break;
    case Distribution::kUniform:
      drawing.distribution = kUniform;
      break;
    case Distribution::kUniform01:
      drawing.distribution = kUniform01;
      break;
    case Distribution::kHeavyTailed:
      drawing.distribution = kHeavyTailed;
      break;
    case Distribution::kPositive:
      drawing.distribution = kPositive;
      break;
    case Distribution::kSigns:
      drawing.distribution = kSigns;
      break;
    case Distribution::kMixture:
      drawing.distribution = member == 1 ? kUniform : member == 2 ? kHeavyTailed : kNormal;
      drawing.scale *= member == 1 ? 2.0F : member == 3 ? 8.0F : 1.0F;
      break;
  }
  return drawing;
}

std::string FittingSize(const Problem& problem, size_t free_bytes) {
  for (const auto& [name, symbols] : problem.sizes) {
    const SizedProblem sized = AtSize(problem, name);
    if (6.0 * static_cast<double>(TotalBytes(sized.inputs) + TotalBytes(sized.outputs)) <
        static_cast<double>(free_bytes))
      return "use --size " + name;
  }
  return "free memory on the GPU, or write a smaller size into the problem file";
}

}  // namespace

GpuSession::GpuSession(GpuSessionOptions options)
    : options_(std::move(options)),
      sized_(AtSize(options_.problem, options_.size)),
      counter_(sizeof(uint64_t) * 2),
      random_(SecretSeed()) {
  sized_.problem = &options_.problem;
  for (const ConcreteTensor& input : sized_.inputs) {
    const DType dtype = input.spec.dtype;
    if (dtype != DType::kF32 && dtype != DType::kI64 && dtype != DType::kBool)
      throw Error(
          ExitCode::kBadRequest,
          "input `" + input.spec.name + "`: inputs of type " + DTypeName(dtype) + " cannot be drawn yet",
          "use float32, int64 or bool inputs");
  }
  char bus[32] = {};
  KEVIN_CU(DeviceGetPCIBusId, bus, sizeof(bus), options_.device);
  lock_name_ = std::string("gpu-") + bus;
  std::replace(lock_name_.begin(), lock_name_.end(), ':', '-');
  const RunnerOptions runner{options_.runner_path, options_.device, options_.namespaces};
  spare_ = std::make_unique<RunnerClient>(runner);  // makes its context meanwhile
  reference_ =
      std::make_unique<Reference>(options_.problem, ReferenceOptions{1, options_.device, options_.tf32});
  stream_ = reference_->Stream();
  KEVIN_CU(ModuleLoadData, &module_, options_.trusted_cubin.data());
  stopwatch_ =
      std::make_unique<Stopwatch>(StopwatchOptions{options_.device, stream_, Function("kevin_scrub")});
  LayOut();
  for (int slot = 0; slot < memory_.slots; ++slot)
    reference_->BindSlot(static_cast<size_t>(slot), Inputs(slot));
  Draw(0);
  for (int i = 0; i < 2; ++i) {
    reference_->RunSlot(0);
    Synchronize();
  }
  reference_us_ = TimeReferenceUs(0);
  reference_->SlotOutputs(0, sized_.outputs);  // says now if the problem file and its reference disagree
  MeasurePeaks();
}

GpuSession::~GpuSession() = default;

void GpuSession::LayOut() {
  const int64_t slot_bytes = TotalBytes(sized_.inputs) + TotalBytes(sized_.outputs) +
                             static_cast<int64_t>(sized_.outputs.size()) * 2 * kPage;
  size_t free_bytes = 0, total_bytes = 0;
  KEVIN_CU(MemGetInfo, &free_bytes, &total_bytes);
  // The reference's own tensors and the truth, which are twice as wide, need some five slots' worth.
  const int64_t left = static_cast<int64_t>(static_cast<double>(free_bytes) * 0.9) - 5 * slot_bytes;
  memory_.slots = static_cast<int>(std::min<int64_t>(left / slot_bytes, kMaxSlotsOnGpu));
  if (memory_.slots < 1) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{} at size {} needs about {:.1f} GiB of GPU memory and {:.1f} GiB are free",
                    options_.problem.id, options_.size, 6.0 * static_cast<double>(slot_bytes) / (1 << 30),
                    static_cast<double>(free_bytes) / (1 << 30)),
        FittingSize(options_.problem, free_bytes));
  }
  int64_t inputs_bytes = 0, outputs_bytes = 0;
  const auto place = [&](const std::vector<ConcreteTensor>& tensors, bool output, int64_t* bytes) {
    for (const ConcreteTensor& tensor : tensors) {
      const int64_t guard = output ? kPage : 0, stride = RoundUp(tensor.bytes) + 2 * guard;
      memory_.places.push_back(
          {output, static_cast<uint64_t>(*bytes + guard), static_cast<uint64_t>(stride)});
      *bytes += stride * memory_.slots;
    }
  };
  place(sized_.inputs, false, &inputs_bytes);
  place(sized_.outputs, true, &outputs_bytes);
  inputs_ = SharedDeviceMemory::Create(options_.device, static_cast<size_t>(inputs_bytes));
  outputs_ = SharedDeviceMemory::Create(options_.device, static_cast<size_t>(outputs_bytes));
  memory_.inputs = inputs_.data();
  memory_.outputs = outputs_.data();
}

CuHandle GpuSession::Function(const char* name) const {
  CuHandle function = nullptr;
  KEVIN_CU(ModuleGetFunction, &function, module_, name);
  return function;
}

void GpuSession::Launch(const char* name, unsigned blocks, unsigned threads, void** arguments) {
  CuLaunchConfig config;
  config.grid_x = blocks;
  config.block_x = threads;
  config.stream = stream_;
  KEVIN_CU(LaunchKernelEx, &config, Function(name), arguments, nullptr);
}

void GpuSession::Synchronize() { KEVIN_CU(StreamSynchronize, stream_); }

std::vector<TensorView> GpuSession::Inputs(int slot) const {
  std::vector<TensorView> views;
  for (size_t i = 0; i < sized_.inputs.size(); ++i) {
    const ArgumentPlace& place = memory_.places[i];
    const CuDevicePtr data = memory_.inputs + place.offset + static_cast<uint64_t>(slot) * place.stride;
    views.push_back({reinterpret_cast<void*>(data), sized_.inputs[i].spec.dtype, sized_.inputs[i].shape});
  }
  return views;
}

CuDevicePtr GpuSession::Output(int slot, size_t index) const {
  const ArgumentPlace& place = memory_.places[sized_.inputs.size() + index];
  return memory_.outputs + place.offset + static_cast<uint64_t>(slot) * place.stride;
}

uint64_t GpuSession::Draw(int slot, int member) {
  const uint64_t seed = SecretSeed();
  const uint64_t chosen = (member >= 0 ? static_cast<uint64_t>(member) : seed) % kMixtureMembers;
  const std::vector<TensorView> views = Inputs(slot);
  for (size_t i = 0; i < views.size(); ++i) {
    Drawing drawing = DrawingOf(sized_.inputs[i].spec, options_.inputs, chosen);
    uint64_t own = seed + i * 0x9e3779b97f4a7c15ULL;
    void* data = views[i].data;
    long long elements = sized_.inputs[i].elements;
    auto bytes = static_cast<int>(DTypeBytes(sized_.inputs[i].spec.dtype));
    void* arguments[] = {&data,           &elements, &drawing.distribution, &own, &drawing.scale,
                         &drawing.offset, &bytes};
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(elements / 1024, 1, 132 * 16));
    Launch(sized_.inputs[i].spec.dtype == DType::kF32 ? "kevin_fill" : "kevin_fill_whole", blocks, 256,
           arguments);
    auto structure = static_cast<int>(sized_.inputs[i].spec.structure);
    long long rows = sized_.inputs[i].shape.empty() ? 1 : sized_.inputs[i].shape[0];
    void* imposed[] = {&data, &rows, &structure};
    if (structure != 0) Launch("kevin_impose", blocks, 256, imposed);
  }
  return seed;
}

void GpuSession::Poison(int slot) {
  for (size_t i = sized_.inputs.size(); i < memory_.places.size(); ++i) {
    const ArgumentPlace& place = memory_.places[i];
    KEVIN_CU(MemsetD32Async,
             memory_.outputs + place.offset - kPage + static_cast<uint64_t>(slot) * place.stride, kPoison,
             place.stride / 4, stream_);
  }
}

std::string GpuSession::BrokenGuard(int slot) {
  for (size_t o = 0; o < sized_.outputs.size(); ++o) {
    const ArgumentPlace& place = memory_.places[sized_.inputs.size() + o];
    const CuDevicePtr start = Output(slot, o);
    const uint64_t past = (static_cast<uint64_t>(sized_.outputs[o].bytes) + 3) / 4 * 4;
    KEVIN_CU(MemsetD8Async, counter_.data(), 0, counter_.bytes(), stream_);
    const std::pair<CuDevicePtr, uint64_t> guards[] = {{start - kPage, kPage},
                                                       {start + past, place.stride - kPage - past}};
    for (size_t g = 0; g < 2; ++g) {
      CuDevicePtr words = guards[g].first, count = counter_.data() + g * sizeof(uint64_t);
      auto number = static_cast<long long>(guards[g].second / 4);
      uint32_t expected = kPoison;
      void* arguments[] = {&words, &number, &expected, &count};
      Launch("kevin_count_other", 16, 256, arguments);
    }
    Synchronize();
    uint64_t counts[2] = {};
    KEVIN_CU(MemcpyDtoH, counts, counter_.data(), sizeof(counts));
    const std::string name = "output `" + sized_.outputs[o].spec.name + "`";
    if (counts[0]) return "wrote before the start of " + name;
    if (counts[1]) return "wrote past the end of " + name;
  }
  return "";
}

double GpuSession::TimeReferenceUs(int slot) {
  return stopwatch_->TimeUs([&] { reference_->RunSlot(static_cast<size_t>(slot)); });
}

std::vector<TensorView> GpuSession::ReferenceOutputs(int slot) {
  return reference_->SlotOutputs(static_cast<size_t>(slot), sized_.outputs);
}

GpuSession::Calibrated GpuSession::StartRunner() {
  Calibrated runner;
  const RunnerOptions options{options_.runner_path, options_.device, options_.namespaces};
  if (!spare_) spare_ = std::make_unique<RunnerClient>(options);
  spare_->Open(inputs_, outputs_, memory_, options_.trusted_cubin);
  runner.client = std::move(spare_);
  const ArgumentPlace& output = memory_.places[sized_.inputs.size()];
  CuDevicePtr out = memory_.outputs + output.offset, in = memory_.inputs;
  long long vectors =
      std::min<int64_t>({sized_.inputs[0].bytes / 16, sized_.outputs[0].bytes / 16, kProbeVectors});
  void* arguments[] = {&out, &in, &vectors};
  std::vector<double> differences;
  for (int i = 0; i < kProbePairs; ++i) {
    double theirs_us = 0, ours_us = 0;
    const bool first = (random_() & 1) != 0;
    const auto time_ours = [&] {
      ours_us = stopwatch_->TimeUs([&] { Launch("kevin_copy", kProbeBlocks, 256, arguments); });
    };
    if (first) time_ours();
    if (const auto fault = runner.client->Probe(output.offset, 0, vectors, kProbeBlocks, &theirs_us))
      throw Error(ExitCode::kMachine,
                  "the GPU runner fails before it has run any candidate: " + fault->message,
                  "run `kevin doctor`");
    if (!first) time_ours();
    differences.push_back(theirs_us - ours_us);
  }
  runner.offset_us = Median(differences);
  for (double& difference : differences) difference = std::abs(difference - runner.offset_us);
  runner.offset_se_us = 1.4826 * 1.2533 * Median(differences) / std::sqrt(static_cast<double>(kProbePairs));
  // Only now, so that its start-up disturbs nothing that is timed.
  spare_ = std::make_unique<RunnerClient>(options);
  return runner;
}

GpuSession::Calibrated GpuSession::TakeRunner(bool fresh) {
  if (!fresh && idle_) {
    Calibrated runner = std::move(*idle_);
    idle_.reset();
    return runner;
  }
  return StartRunner();
}

void GpuSession::GiveBack(Calibrated runner) {
  if (!runner.client->dead() && !runner.client->Unload() && CanaryLives(runner.client.get())) {
    idle_ = std::move(runner);
    return;
  }
  Calibrated fresh = StartRunner();
  if (!CanaryLives(fresh.client.get())) {
    throw Error(
        ExitCode::kMachine, "this GPU no longer computes what it should",
        "see `nvidia-smi` and the kernel's log (Xid); reset the GPU or use another with --device cuda:N");
  }
  idle_ = std::move(fresh);
}

bool GpuSession::CanaryLives(RunnerClient* runner) {
  CuDevicePtr out = Output(0, 0), count = counter_.data();
  int words = static_cast<int>(std::min<int64_t>(kCanaryWords, sized_.outputs[0].bytes / 4));
  auto seed = static_cast<uint32_t>(random_());
  if (runner->Canary(memory_.places[sized_.inputs.size()].offset, words, seed)) return false;
  KEVIN_CU(MemsetD8Async, count, 0, sizeof(uint64_t), stream_);
  void* arguments[] = {&out, &words, &seed, &count};
  Launch("kevin_canary_check", 64, 256, arguments);
  Synchronize();
  uint64_t wrong = 0;
  KEVIN_CU(MemcpyDtoH, &wrong, count, sizeof(wrong));
  return wrong == 0;
}

double GpuSession::L2WriteBackUs() const {
  int l2_bytes = 0;
  KEVIN_CU(DeviceGetAttribute, &l2_bytes, kCuL2Bytes, options_.device);
  const auto dirty = static_cast<double>(std::min<int64_t>(l2_bytes, TotalBytes(sized_.outputs)));
  return dirty / peak_bytes_per_s_ * 1e6;
}

double GpuSession::ClockMhz() {
  CuDevicePtr out = counter_.data();
  void* arguments[] = {&out};
  Launch("kevin_clock", 1, 1, arguments);
  Synchronize();
  uint64_t reading[2] = {};
  KEVIN_CU(MemcpyDtoH, reading, out, sizeof(reading));
  return static_cast<double>(reading[0]) / static_cast<double>(std::max<uint64_t>(reading[1], 1)) * 1e3;
}

double GpuSession::BestUs(int repeats, const std::function<void()>& enqueue) {
  double best = stopwatch_->TimeUs(enqueue);
  for (int i = 1; i < repeats; ++i) best = std::min(best, stopwatch_->TimeUs(enqueue));
  return best;
}

void GpuSession::MeasurePeaks() {
  constexpr int kRepeats = 4;
  // At the size of one call: reading from the inputs' memory, writing to the outputs', and both.
  long long in_vectors = TotalBytes(sized_.inputs) / 16, out_vectors = TotalBytes(sized_.outputs) / 16;
  long long both = std::min(in_vectors, out_vectors);
  CuDevicePtr in = memory_.inputs, out = memory_.outputs, sink = counter_.data();
  const auto rate = [&](long long vectors, double factor, const char* name, void** arguments) {
    for (const unsigned blocks : {132U * 8, 132U * 32}) {
      const double us = BestUs(kRepeats, [&] { Launch(name, blocks, 256, arguments); });
      peak_bytes_per_s_ = std::max(peak_bytes_per_s_, static_cast<double>(vectors) * 16 * factor / us * 1e6);
    }
  };
  void* read[] = {&in, &in_vectors, &sink};
  void* write[] = {&out, &out_vectors};
  void* copy[] = {&out, &in, &both};
  rate(in_vectors, 1, "kevin_read", read);
  rate(out_vectors, 1, "kevin_write", write);
  rate(both, 2, "kevin_copy", copy);
  int rounds = 4096;
  void* compute[] = {&sink, &rounds};
  const double blocks = 132 * 8;
  const double fma_us = BestUs(kRepeats, [&] { Launch("kevin_fma", 132 * 8, 256, compute); });
  peak_fp32_flops_ = blocks * 256 * 16 * 2 * rounds / fma_us * 1e6;
  const double mma_us = BestUs(kRepeats, [&] { Launch("kevin_mma", 132 * 8, 256, compute); });
  const double mma_flops = blocks * 8 * 4 * (2.0 * 16 * 8 * 16) * rounds / mma_us * 1e6;
  floor_us_ = std::max(sized_.min_bytes / (peak_bytes_per_s_ * kBandwidthMargin),
                       sized_.min_flops / (mma_flops * kMatrixMargin)) *
              1e6;
}

}  // namespace kevin
