#include "policies/local/fused/decoder_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace kevin::local {
namespace {

constexpr int kWarps = 8, kChunkBytes = 512, kMostStageBytes = 4096;  // as products.cu has them
constexpr int kScoredTokens = 512, kKeptPages = 66, kSlice = 2048;    // as attend.cu and draw.cu have them
constexpr int kTileTokens = 16, kTilesInFlight = 3;                   // as decode_batch.cu has them
constexpr int kMostGroup = 8;
// Registers that a warp's part of a vector may take. Down projections are the widest.
constexpr int kVectorRegisters = 80, kMostVectorRegisters = 112;
constexpr int kReservedSharedBytes = 1024;

int UpDiv(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

int ChunksOf(int columns, int cut) { return UpDiv(2 * columns / cut, kChunkBytes); }

// The number of parts into which the rows of a matrix [rows, columns] are split so that all warps have about
// equal work; 0: impossible.
int ChooseCut(int rows, int columns, int blocks, int registers, int most_cut) {
  int best = 0;
  double least = 0;
  for (const int cut : {1, 2, 4, 8}) {
    if (cut > most_cut || 2 * columns % (16 * cut) != 0 || ChunksOf(columns, cut) * 8 > registers) continue;
    const double rounds = UpDiv(static_cast<int64_t>(UpDiv(rows, blocks)) * cut, kWarps);
    const double padding = 1.0 * ChunksOf(columns, cut) * kChunkBytes * cut / (2.0 * columns);
    const double cost = rounds / cut * (1 + 0.02 * cut) * padding;
    if (best == 0 || cost < least) best = cut, least = cost;
  }
  return best;
}

struct Cuts {
  int hidden = 0, o = 0, down = 0;
};

Cuts CutsFor(const ModelConfig& config, int blocks) {
  // Gate and up rows alternate in a warp, which therefore needs at least two rows at once.
  return {ChooseCut(2 * config.ffn, config.hidden, blocks, kVectorRegisters, 4),
          ChooseCut(config.hidden, config.heads * config.head_dim, blocks, kVectorRegisters, 8),
          ChooseCut(config.hidden, config.ffn, blocks, kMostVectorRegisters, 8)};
}

int AttendBytes(const ModelConfig& config) {
  const int group = config.heads / config.kv_heads, dim = config.head_dim;
  return 4 * (group * dim + std::max(group * kScoredTokens, kWarps * group * dim) + 3 * group);
}

// Of a block of kevin_attend: tiles of keys and values in flight, and the queries.
int BatchAttendBytes(const ModelConfig& config) {
  const int tile = kTileTokens * config.head_dim * 2;
  return kWarps * kTilesInFlight * 2 * tile + tile;
}

// Bytes of a block's shared memory that are not the ring.
int FixedBytes(const ModelConfig& config, const Cuts& cuts, int blocks) {
  const int vector = 2 * std::max({config.ffn, config.heads * config.head_dim, config.hidden});
  const int scratch = UpDiv(std::max(AttendBytes(config), vector), 128) * 128;
  const int qkv = (config.heads + 2 * config.kv_heads) * config.head_dim;
  const int sums =
      std::max({UpDiv(qkv, blocks) * cuts.hidden, UpDiv(config.hidden, blocks) * cuts.o,
                UpDiv(config.ffn, blocks) * 2 * cuts.hidden, UpDiv(config.hidden, blocks) * cuts.down,
                UpDiv(config.vocabulary, blocks) * cuts.hidden});
  const int floats = 2 * (4 * config.layers + 2) + sums + 32 + UpDiv(config.hidden, blocks) +
                     UpDiv(qkv, blocks) + config.head_dim + kKeptPages;
  return scratch + 4 * floats + 256;
}

int StageBytes(const ModelConfig& config, const Cuts& cuts) {
  int bytes = 0;
  for (const auto& [columns, cut] : {std::pair{config.hidden, cuts.hidden},
                                     {config.heads * config.head_dim, cuts.o},
                                     {config.ffn, cuts.down}}) {
    const int chunks = ChunksOf(columns, cut);
    const int pieces = UpDiv(chunks * kChunkBytes, kMostStageBytes);
    bytes = std::max(bytes, UpDiv(chunks, pieces) * kChunkBytes);
  }
  return bytes;
}

int StagesFor(const ModelConfig& config, const Cuts& cuts, const GpuShape& gpu) {
  const int left =
      gpu.block_shared_bytes - kReservedSharedBytes - FixedBytes(config, cuts, gpu.multiprocessors);
  return left / (kWarps * (StageBytes(config, cuts) + 8));
}

}  // namespace

std::string WhyNoDecoder(const ModelConfig& config, const GpuShape& gpu) {
  if (gpu.major < 9)
    return fmt::format("a GPU of compute capability {}.{}; 9.0 is needed", gpu.major, gpu.minor);
  if (config.experts > 0) return "a mixture of experts";
  if (config.head_dim != 64 && config.head_dim != 128)
    return fmt::format("heads of {} numbers", config.head_dim);
  if (config.heads % config.kv_heads != 0 || config.heads / config.kv_heads > kMostGroup)
    return fmt::format("{} query heads for each key head", config.heads / config.kv_heads);
  if (config.hidden % 8 != 0 || config.ffn % 8 != 0) return "widths that are no multiples of 8";
  const Cuts cuts = CutsFor(config, gpu.multiprocessors);
  if (cuts.hidden == 0 || cuts.o == 0 || cuts.down == 0) return "layers too wide";
  if (StagesFor(config, cuts, gpu) < 2) return "layers too wide for the GPU's shared memory";
  return "";
}

DecoderPlan PlanDecoder(const ModelConfig& config, const GpuShape& gpu, int page_tokens) {
  const Cuts cuts = CutsFor(config, gpu.multiprocessors);
  DecoderPlan plan;
  plan.blocks = gpu.multiprocessors;
  plan.decode_shared_bytes = gpu.block_shared_bytes - kReservedSharedBytes;
  plan.attend_shared_bytes = BatchAttendBytes(config);
  plan.slices = UpDiv(config.vocabulary, kSlice);
  const std::initializer_list<std::pair<const char*, int>> numbers = {
      {"HIDDEN", config.hidden},
      {"LAYERS", config.layers},
      {"HEADS", config.heads},
      {"KV_HEADS", config.kv_heads},
      {"HEAD_DIM", config.head_dim},
      {"FFN", config.ffn},
      {"VOCABULARY", config.vocabulary},
      {"QK_NORM", config.qk_norm},
      {"QKV_BIAS", config.qkv_bias},
      {"PAGE_TOKENS", page_tokens},
      {"BLOCKS", plan.blocks},
      {"STAGES", StagesFor(config, cuts, gpu)},
      {"STAGE_BYTES", StageBytes(config, cuts)},
      {"SHARED_BYTES", plan.decode_shared_bytes},
      {"CUT_HIDDEN", cuts.hidden},
      {"CUT_O", cuts.o},
      {"CUT_DOWN", cuts.down}};
  for (const auto& [name, number] : numbers) plan.macros.push_back(fmt::format("{}={}", name, number));
  plan.macros.push_back(fmt::format("NORM_EPS={:.9e}f", config.norm_epsilon));
  return plan;
}

}  // namespace kevin::local
