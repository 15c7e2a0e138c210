#include "policies/local/fused/fused_decoder.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>

#include "env/error.h"
#include "policies/local/fused/decoder_plan.h"
#include "policies/local/generate/sampler.h"
#include "policies/local/gpu/gpu_program.h"
#include "policies/local/model/device.h"

namespace kevin::local {
namespace {

constexpr int kMostRows = FusedDecoder::kMostRows;
static_assert(kMostRows == kMostDecoderRows);
constexpr int kSlots = 2;               // steps in flight
constexpr int kMostSplits = 32;         // of a sequence among blocks, as in kernels/common.cu
constexpr double kPatience_s = 60;      // with a step of milliseconds
constexpr int kBlocksForAttention = 4;  // for each multiprocessor, of a batch

const void* Data(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }

// Directs torch's operators to our stream during its lifetime.
class TorchOnStream {
 public:
  TorchOnStream(const GpuStream& stream, int device)
      : before_(torch_.exchangeStream(
            c10::Stream(c10::Stream::UNSAFE, at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)),
                        reinterpret_cast<c10::StreamId>(stream.handle())))) {}
  ~TorchOnStream() { torch_.exchangeStream(before_); }
  TorchOnStream(const TorchOnStream&) = delete;
  TorchOnStream& operator=(const TorchOnStream&) = delete;

 private:
  const c10::impl::VirtualGuardImpl torch_{at::kCUDA};
  const c10::Stream before_;
};

// The number of device allocations by torch.
int64_t Allocations(int device) {
  using c10::CachingAllocator::StatType;
  const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(device));
  return stats.allocation[static_cast<size_t>(StatType::AGGREGATE)].allocated;
}

int DeviceIndex(const LanguageModel& model) { return std::max<int>(model.Options().device.index(), 0); }

}  // namespace

struct FusedDecoder::Impl {
  const LanguageModel& model;
  const ModelConfig& config;
  const PagedCache& cache;
  const int device;
  const GpuShape gpu;
  const DecoderPlan plan;
  const GpuProgram program;
  const Weights& weights;
  const int page_stride;
  GpuProgram::Kernel decode_one, embed, add_norm, swiglu, attend, draw_slices, draw;

  const void* first_weights = nullptr;  // as in the table
  at::Tensor layers, token, pages, counters, arrived, partial, slice_sums;
  at::Tensor stream, normed, projected, attended, added, gate_up, hidden, logits;  // [kMostRows, ...]
  at::Tensor batch_step;                                                           // a BatchStep
  // The adapters of each layer's qkv, o, gate_up and down in the compute type, as kernels/common.cu has them;
  // undefined where there are none. The rank is padded with zeros to a multiple of 8.
  struct Adapter {
    at::Tensor a, b;
  };
  std::vector<std::array<Adapter, 4>> adapters;
  at::Tensor inner, inner_rows;  // A x of one row, and of kMostRows
  int64_t rank = 0;
  int adapted = 0;  // linear layers with adapters
  double adapter_scale = 0;
  std::vector<int32_t> pages_there;  // what `pages` holds
  PinnedMemory page_copies, step_copies, results;
  // Batches are recorded once for each number of rows: launches cost more than the work of a small one.
  GpuStream recording;
  std::map<size_t, GpuGraph> recorded;
  uint32_t meetings = 0, step = 0;
  int slot = 0;
  struct Flight {
    int slot = 0, rows = 0;
    uint32_t step = 0;
  };
  std::deque<Flight> flights;

  Impl(const LanguageModel& the_model, const PagedCache& the_cache, int context_tokens)
      : model(the_model),
        config(the_model.Config()),
        cache(the_cache),
        device(DeviceIndex(the_model)),
        gpu(ShapeOfGpu(device)),
        plan(PlanDecoder(config, gpu, the_cache.page_tokens)),
        program(kDecoderKernels, plan.macros, gpu),
        weights(the_model.GetWeights()),
        page_stride((context_tokens + the_cache.page_tokens - 1) / the_cache.page_tokens),
        decode_one(program.Find("kevin_decode_one", plan.decode_shared_bytes)),
        embed(program.Find("kevin_embed")),
        add_norm(program.Find("kevin_add_norm")),
        swiglu(program.Find("kevin_swiglu")),
        attend(program.Find("kevin_attend", plan.attend_shared_bytes)),
        draw_slices(program.Find("kevin_draw_slices")),
        draw(program.Find("kevin_draw")),
        pages_there(static_cast<size_t>(kMostRows * page_stride), -1),
        page_copies(kSlots * pages_there.size() * sizeof(int32_t)),
        step_copies(kSlots * sizeof(BatchStep)),
        results(kSlots * kMostRows * sizeof(Drawn)) {
    std::fill_n(results.host<Drawn>(), kSlots * kMostRows, Drawn{});
    MakeBuffers();
    PackAdapters();
    FillLayers();
  }

  int Qkv() const { return (config.heads + 2 * config.kv_heads) * config.head_dim; }

  void MakeBuffers() {
    const auto buffer = [&](at::ScalarType type, std::initializer_list<int64_t> shape) {
      return at::zeros(shape, at::TensorOptions(type).device(model.Options().device));
    };
    const int64_t heads = config.heads, dim = config.head_dim;
    token = buffer(at::kInt, {kSlots, kMostRows});
    pages = buffer(at::kInt, {kMostRows, page_stride});
    counters = buffer(at::kInt, {kMostRows, config.kv_heads});
    arrived = buffer(at::kInt, {1});
    partial = buffer(at::kFloat, {kMostRows, heads, kMostSplits, dim + 2});
    slice_sums = buffer(at::kFloat, {kMostRows, plan.slices, 4});
    stream = buffer(at::kBFloat16, {kMostRows, config.hidden});
    normed = buffer(at::kBFloat16, {kMostRows, config.hidden});
    projected = buffer(at::kBFloat16, {kMostRows, Qkv()});
    attended = buffer(at::kBFloat16, {kMostRows, heads * dim});
    added = buffer(at::kBFloat16, {kMostRows, config.hidden});
    gate_up = buffer(at::kBFloat16, {kMostRows, 2 * config.ffn});
    hidden = buffer(at::kBFloat16, {kMostRows, config.ffn});
    logits = buffer(at::kBFloat16, {kMostRows, config.vocabulary});
    batch_step = buffer(at::kByte, {static_cast<int64_t>(sizeof(BatchStep))});
  }

  static std::array<const Linear*, 4> LinearsOf(const Layer& layer) {
    return {&layer.qkv, &layer.o, &layer.gate_up, &layer.down};
  }

  // Copies the adapters. Their addresses stay, unless adapters were attached since the last call: true then.
  bool PackAdapters() {
    const int adapted_before = adapted;
    const int64_t rank_before = rank;
    adapted = 0;
    adapters.resize(weights.layers.size());
    for (size_t l = 0; l < weights.layers.size(); ++l) {
      const auto linears = LinearsOf(weights.layers[l]);
      for (size_t i = 0; i < linears.size(); ++i) Pack(*linears[i], &adapters[l][i]);
    }
    if (rank == rank_before && adapted == adapted_before) return false;
    const at::TensorOptions numbers = at::TensorOptions(at::kBFloat16).device(model.Options().device);
    inner = at::zeros({3 * rank}, numbers.dtype(at::kFloat));
    inner_rows = at::zeros({kMostRows * 3 * rank}, numbers);
    return true;
  }

  void Pack(const Linear& linear, Adapter* packed) {
    if (!linear.HasAdapters()) {
      *packed = {};
      return;
    }
    ++adapted;
    adapter_scale = linear.lora_scale;
    const auto parts = static_cast<int64_t>(linear.parts.size());
    for (const Projection& part : linear.parts) {
      if (part.lora_a.defined()) rank = (part.lora_a.size(0) + 7) / 8 * 8;
    }
    if (!packed->a.defined() || packed->a.size(0) != parts * rank) {
      const at::TensorOptions numbers = at::TensorOptions(at::kBFloat16).device(model.Options().device);
      packed->a = at::zeros({parts * rank, linear.in}, numbers);
      packed->b = at::zeros({linear.out, parts * rank}, numbers);
    }
    for (int64_t p = 0; p < parts; ++p) {
      const Projection& part = linear.parts[static_cast<size_t>(p)];
      if (!part.lora_a.defined()) continue;
      const int64_t own = part.lora_a.size(0);
      packed->a.narrow(0, p * rank, own).copy_(part.lora_a);
      packed->b.narrow(0, part.first_row, part.rows).narrow(1, p * rank, own).copy_(part.lora_b);
    }
  }

  void FillLayers() {
    std::vector<DeviceLayer> table;
    for (size_t l = 0; l < weights.layers.size(); ++l) {
      const Layer& layer = weights.layers[l];
      DeviceLayer& entry = table.emplace_back();
      entry.qkv = Data(layer.qkv.weight), entry.qkv_bias = Data(layer.qkv.bias),
      entry.o = Data(layer.o.weight);
      entry.gate_up = Data(layer.gate_up.weight), entry.down = Data(layer.down.weight);
      entry.norm1 = Data(layer.input_norm), entry.norm2 = Data(layer.ffn_norm);
      entry.q_norm = Data(layer.q_norm), entry.k_norm = Data(layer.k_norm);
      const at::Tensor numbers = cache.numbers.select(0, static_cast<int64_t>(l));
      entry.keys = numbers.select(0, 0).data_ptr(), entry.values = numbers.select(0, 1).data_ptr();
      for (size_t i = 0; i < adapters[l].size(); ++i)
        entry.adapter_a[i] = Data(adapters[l][i].a), entry.adapter_b[i] = Data(adapters[l][i].b);
    }
    const int64_t bytes = static_cast<int64_t>(table.size() * sizeof(DeviceLayer));
    // Recorded batches name weights by address; the cache they find in the table.
    if (!table.empty() && table.front().qkv != first_weights) recorded.clear();
    first_weights = table.empty() ? nullptr : table.front().qkv;
    const at::Tensor filled = at::from_blob(table.data(), {bytes}, at::kByte);
    if (!layers.defined())
      layers = at::empty({bytes}, at::TensorOptions(at::kByte).device(model.Options().device));
    layers.copy_(filled);
  }

  DeviceModel ModelOnDevice() const {
    DeviceModel m;
    m.layers = Data(layers), m.embedding = Data(weights.embedding), m.final_norm = Data(weights.norm);
    m.head = Data(weights.head), m.cosines = Data(weights.rope_cos), m.sines = Data(weights.rope_sin);
    m.stream = stream.data_ptr(), m.qkv = projected.data_ptr(), m.attended = attended.data_ptr();
    m.hidden = hidden.data_ptr(), m.logits = logits.data_ptr(), m.partial = partial.data_ptr();
    m.counters = counters.data_ptr(), m.arrived = arrived.data_ptr();
    m.inner = inner.defined() ? inner.data_ptr() : nullptr;
    m.rank = static_cast<int>(rank), m.adapter_scale = static_cast<float>(adapter_scale);
    return m;
  }

  int* TokensOf(int which) { return token.data_ptr<int>() + which * kMostRows; }

  // The rows of the page table that differ from what is on the device.
  void SendPages(std::span<const Row> rows) {
    int32_t* copies = page_copies.host<int32_t>() + static_cast<size_t>(slot) * pages_there.size();
    for (size_t r = 0; r < rows.size(); ++r) {
      const std::span<const int32_t> wanted = rows[r].pages.first(
          std::min(rows[r].pages.size(), static_cast<size_t>(rows[r].position / cache.page_tokens + 1)));
      int32_t* there = pages_there.data() + r * static_cast<size_t>(page_stride);
      if (std::equal(wanted.begin(), wanted.end(), there)) continue;
      std::copy(wanted.begin(), wanted.end(), there);
      int32_t* copy = copies + r * static_cast<size_t>(page_stride);
      std::copy(wanted.begin(), wanted.end(), copy);
      CopyToDevice(pages.data_ptr<int>() + r * static_cast<size_t>(page_stride), copy,
                   wanted.size() * sizeof(int32_t));
    }
  }

  void DecodeOne(const Row& row) {
    DeviceModel m = ModelOnDevice();
    OneStep one;
    one.token = TokensOf(1 - slot) + std::max(row.earlier_row, 0);
    one.pages = pages.data_ptr<int>();
    one.given_token = row.given_token, one.position = row.position, one.meetings = meetings;
    GpuLaunch launch;
    launch.grid[0] = static_cast<unsigned>(plan.blocks);
    launch.shared_bytes = static_cast<unsigned>(plan.decode_shared_bytes);
    launch.cooperative = true;
    void* arguments[] = {&m, &one};
    GpuProgram::Launch(decode_one, launch, arguments);
    meetings += static_cast<uint32_t>(5 * config.layers + adapted);
  }

  void SendBatchStep(std::span<const Row> rows) {
    BatchStep& copy = step_copies.host<BatchStep>()[slot];
    copy.drawn = TokensOf(1 - slot);
    for (size_t r = 0; r < rows.size(); ++r) {
      copy.given_token[r] = rows[r].given_token, copy.earlier_row[r] = rows[r].earlier_row;
      copy.position[r] = rows[r].position;
    }
    CopyToDevice(batch_step.data_ptr(), &copy, sizeof(copy));
  }

  DeviceBatch BatchOnDevice(size_t rows) const {
    DeviceBatch batch;
    batch.pages = pages.data_ptr<int>(), batch.page_stride = page_stride;
    const int wanted = kBlocksForAttention * gpu.multiprocessors / (static_cast<int>(rows) * config.kv_heads);
    batch.splits = std::clamp(wanted, 1, kMostSplits);
    batch.stream = stream.data_ptr(), batch.normed = normed.data_ptr(), batch.attended = attended.data_ptr();
    batch.hidden = hidden.data_ptr(), batch.projected = projected.data_ptr(), batch.added = added.data_ptr();
    batch.gate_up = gate_up.data_ptr(), batch.partial = partial.data_ptr();
    batch.counters = counters.data_ptr();
    return batch;
  }

  // Torch on the same stream. It must not allocate: the memory would belong to another tensor when a recorded
  // batch runs.
  void LaunchBatch(size_t rows) {
    const auto n = static_cast<int64_t>(rows);
    const auto multiply = [n](const at::Tensor& in, const at::Tensor& weight, const at::Tensor& out) {
      at::Tensor target = out.narrow(0, 0, n);
      at::mm_out(target, in.narrow(0, 0, n), weight.t());
    };
    const auto adapt = [this, n](const Adapter& adapter, const at::Tensor& in, const at::Tensor& out) {
      if (!adapter.a.defined()) return;
      const int64_t width = adapter.a.size(0);
      at::Tensor between = inner_rows.narrow(0, 0, n * width).view({n, width});
      at::mm_out(between, in.narrow(0, 0, n), adapter.a.t());
      out.narrow(0, 0, n).addmm_(between, adapter.b.t(), 1, adapter_scale);
    };
    DeviceModel m = ModelOnDevice();
    DeviceBatch batch = BatchOnDevice(rows);
    const void* step_data = batch_step.data_ptr();
    GpuLaunch by_row, elementwise, attention;
    by_row.stream = elementwise.stream = attention.stream = recording.handle();
    by_row.grid[0] = static_cast<unsigned>(rows);
    elementwise.grid[0] = static_cast<unsigned>((config.ffn / 2 + 255) / 256);
    elementwise.grid[1] = static_cast<unsigned>(rows);
    attention.grid[0] = static_cast<unsigned>(config.kv_heads);
    attention.grid[1] = static_cast<unsigned>(batch.splits), attention.grid[2] = static_cast<unsigned>(rows);
    attention.shared_bytes = static_cast<unsigned>(plan.attend_shared_bytes);
    void* embed_arguments[] = {&m, &batch, &step_data};
    GpuProgram::Launch(embed, by_row, embed_arguments);
    for (int l = 0; l < config.layers; ++l) {
      const Layer& layer = weights.layers[static_cast<size_t>(l)];
      const std::array<Adapter, 4>& beside = adapters[static_cast<size_t>(l)];
      if (layer.qkv.bias.defined()) {
        projected.narrow(0, 0, n).addmm_(normed.narrow(0, 0, n), layer.qkv.weight.t());
      } else {
        multiply(normed, layer.qkv.weight, projected);
      }
      adapt(beside[0], normed, projected);
      void* attend_arguments[] = {&m, &batch, &step_data, &l};
      GpuProgram::Launch(attend, attention, attend_arguments);
      multiply(attended, layer.o.weight, added);
      adapt(beside[1], attended, added);
      const void *norm = Data(layer.ffn_norm), *bias = nullptr;
      void* norm_arguments[] = {&batch, &norm, &bias};
      GpuProgram::Launch(add_norm, by_row, norm_arguments);
      multiply(normed, layer.gate_up.weight, gate_up);
      adapt(beside[2], normed, gate_up);
      void* swiglu_arguments[] = {&batch};
      GpuProgram::Launch(swiglu, elementwise, swiglu_arguments);
      multiply(hidden, layer.down.weight, added);
      adapt(beside[3], hidden, added);
      const bool is_last = l + 1 == config.layers;
      norm = Data(weights.norm);
      if (!is_last) {
        const Layer& next = weights.layers[static_cast<size_t>(l) + 1];
        norm = Data(next.input_norm), bias = Data(next.qkv.bias);
      }
      GpuProgram::Launch(add_norm, by_row, norm_arguments);
    }
    multiply(normed, weights.head, logits);
  }

  // Runs once without recording, so that cuBLAS allocates its workspace first.
  void DecodeBatch(std::span<const Row> rows) {
    SendBatchStep(rows);
    const auto known = recorded.find(rows.size());
    if (known != recorded.end()) {
      known->second.Launch();
      return;
    }
    const TorchOnStream on_stream(recording, device);
    LaunchBatch(rows.size());
    const int64_t before = Allocations(device);
    recorded.try_emplace(rows.size(), recording, [&] { LaunchBatch(rows.size()); });
    if (Allocations(device) != before)
      throw Error(ExitCode::kBroken, "torch took memory while a decoding step was recorded");
  }

  void Draw(std::span<const Row> rows) {
    DrawStep draw_step;
    for (size_t r = 0; r < rows.size(); ++r) {
      const TokenSampling& sampling = rows[r].sampling;
      draw_step.inverse_temperature[r] = sampling.temperature > 0 ? 1 / sampling.temperature : 0;
      draw_step.uniform[r] = UniformAt(sampling.seed, static_cast<uint64_t>(rows[r].position) + 1);
    }
    const void* from = logits.data_ptr();
    void* sums = slice_sums.data_ptr();
    GpuLaunch slices;
    slices.grid[0] = static_cast<unsigned>(plan.slices), slices.grid[1] = static_cast<unsigned>(rows.size());
    void* slice_arguments[] = {&from, &draw_step, &sums};
    GpuProgram::Launch(draw_slices, slices, slice_arguments);
    GpuLaunch by_row;
    by_row.grid[0] = static_cast<unsigned>(rows.size());
    int* tokens = TokensOf(slot);
    uint64_t place = results.device() + static_cast<size_t>(slot) * kMostRows * sizeof(Drawn);
    uint32_t number = ++step;
    void* arguments[] = {&from, &draw_step, &sums, &tokens, &place, &number};
    GpuProgram::Launch(draw, by_row, arguments);
    flights.push_back({slot, static_cast<int>(rows.size()), number});
    slot = 1 - slot;
  }
};

std::string FusedDecoder::WhyNot(const LanguageModel& model) {
  const ModelOptions& options = model.Options();
  if (!options.device.is_cuda()) return "no GPU";
  if (options.dtype != NumberType::kBF16) return std::string("numbers of type ") + NameOf(options.dtype);
  if (options.quantization != Quantization::kNone) return "quantised weights";
  return WhyNoDecoder(model.Config(), ShapeOfGpu(DeviceIndex(model)));
}

FusedDecoder::FusedDecoder(const LanguageModel& model, const PagedCache& cache, int context_tokens)
    : impl_(WithTorchErrors("preparing to decode", [&] {
        UseGpu(DeviceIndex(model));
        return std::make_unique<Impl>(model, cache, context_tokens);
      })) {}

FusedDecoder::~FusedDecoder() = default;

void FusedDecoder::Decode(std::span<const Row> rows) {
  if (impl_->flights.size() >= kSlots)
    throw Error(ExitCode::kBroken, "a third decoding step before one was collected");
  const c10::InferenceMode inference;
  UseGpu(impl_->device);
  WithTorchErrors("decoding", [&] {
    impl_->SendPages(rows);
    if (rows.size() == 1) {
      impl_->DecodeOne(rows.front());
    } else {
      impl_->DecodeBatch(rows);
    }
    impl_->Draw(rows);
    return 0;
  });
}

std::vector<SampledToken> FusedDecoder::Collect() {
  const Impl::Flight flight = impl_->flights.front();
  impl_->flights.pop_front();
  const volatile Drawn* drawn = impl_->results.host<Drawn>() + flight.slot * kMostRows;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<SampledToken> tokens;
  for (int r = 0; r < flight.rows; ++r) {
    for (int looks = 0; drawn[r].step != flight.step; ++looks) {
      if (looks % 64 == 63) sched_yield();
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > kPatience_s)
        throw Error(ExitCode::kBroken, "the GPU did not finish a decoding step within a minute",
                    "see `nvidia-smi` and the kernel's log (Xid)");
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    tokens.push_back({drawn[r].id, drawn[r].logprob, drawn[r].model_logprob});
  }
  return tokens;
}

void FusedDecoder::WeightsChanged() {
  const c10::InferenceMode inference;
  WithTorchErrors("taking over new weights", [&] {
    if (impl_->PackAdapters()) impl_->recorded.clear();  // they name the adapters by address
    impl_->FillLayers();                                 // the cache may have moved
    return 0;
  });
}

}  // namespace kevin::local
