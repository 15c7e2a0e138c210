// Which tiles a contraction gets: the guess for every stage, and the values to try where there are knobs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "policies/search/cuda_product_group.h"
#include "policies/search/cuda_wgmma.h"

namespace kevin::search {
namespace {

constexpr int64_t kTermsOfLongSums = 256;  // from so many on fp32 should not round at every term

struct CudaProductSize {
  int64_t batch = 1, m = 1, n = 1, k = 1;
};

struct CudaTileGuess {
  int64_t tile_m, tile_n;
  double efficiency;  // of the arithmetic in a full tile, relative to 128 x 128
};
constexpr CudaTileGuess kCudaTiles[] = {{128, 128, 1.0}, {64, 256, 0.95}, {128, 64, 0.9},  {64, 128, 0.9},
                                        {64, 64, 0.75},  {32, 256, 0.75}, {32, 128, 0.7},  {128, 32, 0.7},
                                        {32, 64, 0.55},  {64, 32, 0.55},  {16, 128, 0.45}, {16, 64, 0.4},
                                        {32, 32, 0.4}};

int64_t CudaUpDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Terms of a share: fewer are not worth the pass that adds the shares.
constexpr int64_t kCudaLeastShare = 128;

struct CudaTileScore {
  double cost;
  int64_t split;
};
// The time of the multiplications of the multiprocessor with most blocks, and of the shares' traffic.
CudaTileScore CudaScoreOf(const CudaProductSize& size, const CudaTileGuess& tile, int multiprocessors) {
  const int64_t blocks = size.batch * CudaUpDiv(size.m, tile.tile_m) * CudaUpDiv(size.n, tile.tile_n);
  // A term of a lonely small tile takes as long as this many multiplications, whatever its size.
  constexpr int64_t kLeast = 2048;
  CudaTileScore best{0, 1};
  const int64_t most = std::max<int64_t>(1, size.k / kCudaLeastShare);
  for (int64_t split = 1; split <= std::min<int64_t>(most, 64); split *= 2) {
    const int64_t mine = CudaUpDiv(blocks * split, multiprocessors) * tile.tile_m * tile.tile_n;
    if (split > 1 && mine > 4 * 128 * 128) break;
    const double terms =
        static_cast<double>(CudaUpDiv(size.k, split)) + 48;  // and the start and end of a block
    double cost = static_cast<double>(std::max(mine, kLeast)) * terms / tile.efficiency;
    // Written and read again: bytes at 30 multiplications each of all multiprocessors, and the second launch.
    if (split > 1)
      cost +=
          8.0 * 30.0 * static_cast<double>(size.batch * size.m * size.n * split) / multiprocessors / 4 + 1e6;
    if (best.cost == 0 || cost < best.cost) best = {cost, split};
  }
  return best;
}

CudaProductSize CudaSizeOf(const Contraction& c) {
  return {Points(c.batch), Points(c.m), Points(c.n), Points(c.k)};
}

// Tiles as m * 1000 + n, the most promising first; where texts are shared, of few forms.
std::vector<int64_t> CudaTileValues(const CudaProductSize& size, int multiprocessors,
                                    CudaSharing sharing = CudaSharing::kNone) {
  std::vector<std::pair<double, int64_t>> costs;
  for (const CudaTileGuess& tile : kCudaTiles) {
    if (sharing != CudaSharing::kNone && tile.tile_n != 128) continue;
    if (sharing == CudaSharing::kForms && tile.tile_m != 64) continue;
    costs.emplace_back(CudaScoreOf(size, tile, multiprocessors).cost, tile.tile_m * 1000 + tile.tile_n);
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<int64_t> values;
  for (size_t i = 0; i < std::min<size_t>(5, costs.size()); ++i) values.push_back(costs[i].second);
  return values;
}

std::vector<int64_t> CudaSplitValues(const CudaProductSize& size, int64_t tile, int multiprocessors) {
  std::vector<int64_t> values = {CudaScoreOf(size, {tile / 1000, tile % 1000, 1.0}, multiprocessors).split};
  for (const int64_t other : {int64_t{1}, values[0] * 2, values[0] / 2}) {
    const bool is_new = std::find(values.begin(), values.end(), other) == values.end();
    if (is_new && other >= 1 && other <= std::max<int64_t>(1, size.k / kCudaLeastShare))
      values.push_back(other);
  }
  return values;
}

// Of a block, whichever way the slices lie.
int64_t CudaProductBytes(int64_t tile, int64_t depth, int64_t stages, int64_t element) {
  const int64_t m = tile / 1000, n = tile % 1000;
  const auto slice = [&](int64_t lines) {
    return std::max(lines * (depth + 16 / element), depth * (lines + 8));
  };
  return std::max(stages * (slice(m) + slice(n)) * element + depth * 64, m * (n + 8) * 4);
}

// Slices in shared memory, of which all these tiles have room for; the best guess first.
std::vector<int64_t> CudaStageValues(const TaskDevice& device, const std::vector<int64_t>& tiles,
                                     int64_t depth, int64_t element) {
  std::vector<int64_t> values = {3, 4, 2};
  std::erase_if(values, [&](int64_t stages) {
    return std::any_of(tiles.begin(), tiles.end(), [&](int64_t tile) {
      return stages > 2 && CudaProductBytes(tile, depth, stages, element) > device.block_shared_bytes;
    });
  });
  return values;
}

enum CudaVia : int64_t { kViaFma, kViaTf32x3, kViaTf32, kViaHalf, kViaBrain, kViaWgmma };

bool HasCudaLimits(const Contraction& c) {
  return std::any_of(c.k_limits.begin(), c.k_limits.end(),
                     [](const ExprPtr& limit) { return limit != nullptr; });
}

// Whether windows of a copy in which the channels of a position lie together are the first choice: several taps read each
// element, few of its channels are zeros, and the text is not one of a deep network, which has no room for its kernels.
// On an H200 such
// convolutions took 0.26 to 0.65 of the time of the others (tests/bench/RESULTS.md).
bool AreCudaWindowsFirst(const Program& program, const Contraction& c, const CudaOperand& right) {
  constexpr int64_t kFewestTerms = 128;
  constexpr std::ptrdiff_t kMostContractions = 4;
  const std::optional<CudaWindows> windows = ReadCudaWindows(program, c, right);
  if (!windows || Points(windows->Taps(c)) == 1 || IsCudaDown(c)) return false;
  if (Points(c.k) < kFewestTerms || 4 * c.k[windows->channel].extent < 3 * windows->channels) return false;
  const std::vector<const Stage*> stages = LeafStages(program);
  return std::count_if(stages.begin(), stages.end(), [](const Stage* stage) {
           return std::holds_alternative<Contraction>(stage->work);
         }) <= kMostContractions;
}

// `may_be_small`: not where kernels have few forms.
std::vector<int64_t> CudaViaValues(const Program& program, const Contraction& c, const Task& task,
                                   bool may_be_small = true) {
  const std::string type = CudaProductType(program, c);
  if (type != "float32") {
    const bool is_small = may_be_small && !ChooseCudaSmall(program, task, c).tiles.empty();
    std::vector<int64_t> values = {type == "float16" ? kViaHalf : kViaBrain};
    const bool limited = HasCudaLimits(c);
    const CudaOperand left = ReadCudaOperand(program, c.lhs, c.m, c.k, limited),
                      right = ReadCudaOperand(program, c.rhs, c.n, c.k, limited);
    if (!SuitsCudaWgmma(program, task, c, left, right)) return values;
    // Products of two matrices as they are take less than half of the time so (tests/bench/RESULTS.md). Others need kernels
    // that copy first, more than the text of a deep network may have.
    const bool are_matrices = IsCudaMatrix(program, c, left) && IsCudaMatrix(program, c, right);
    const bool is_first = !is_small && !limited && (are_matrices || AreCudaWindowsFirst(program, c, right));
    values.insert(is_first ? values.begin() : values.end(), kViaWgmma);
    return values;
  }
  if (task.tf32) return {kViaTf32, kViaFma};
  // The error of the three products is a few roundings of each term: as much as that of fp32 in long sums, and more in short
  // ones, where terms may nearly cancel.
  if (CudaSizeOf(c).k < kTermsOfLongSums) return {kViaFma};
  return {kViaTf32x3, kViaFma};
}

// The tile of wgmma that is nearest to a knob of the text: 64 or 128 rows, 64 to 256 columns, 64 x 64 not.
void SetCudaWgmmaTile(const std::string& tile, CudaTiling& tiling) {
  tiling.tile_m = fmt::format("({} >= 128000 ? 128 : 64)", tile);
  tiling.tile_n =
      fmt::format("({0} % 1000 >= 256 ? 256 : {0} % 1000 >= 128 || {0} < 128000 ? 128 : 64)", tile);
}

// "128" or, of a knob in the text, an expression of it.
std::string CudaTilePart(const std::string& tile, int64_t value, bool is_row) {
  if (tile == std::to_string(value)) return std::to_string(is_row ? value / 1000 : value % 1000);
  return fmt::format("({} {} 1000)", tile, is_row ? "/" : "%");
}

}  // namespace

std::string CudaProductType(const Program& program, const Contraction& c) {
  std::string type;
  for (const ExprPtr& operand : {c.lhs, c.rhs}) {
    for (const Expr* node : Nodes(operand)) {
      if (node->op != "load") continue;
      const std::string& own = program.buffers[static_cast<size_t>(node->id)].dtype;
      if (!type.empty() && own != type) return "float32";
      type = own;
    }
  }
  return type == "float16" || type == "bfloat16" ? type : "float32";
}

CudaTiling CudaTilingOf(const CudaText& text, const Contraction& c, int64_t members) {
  const CudaProductSize size = CudaSizeOf(c);
  const int multiprocessors = text.device().multiprocessors;
  const int64_t via = text.KnobValue(
      "VIA", CudaViaValues(text.program(), c, text.task(), text.sharing() != CudaSharing::kForms)[0]);
  CudaTiling tiling;
  tiling.wgmma = via == kViaWgmma;
  const CudaWgmmaChoice choice =
      tiling.wgmma ? ChooseCudaWgmma(text.task(), c, text.shares()) : CudaWgmmaChoice();
  const CudaSmallChoice small = via == kViaHalf || via == kViaBrain
                                    ? ChooseCudaSmall(text.program(), text.task(), c, members)
                                    : CudaSmallChoice();
  const bool is_small = !small.tiles.empty() && text.sharing() != CudaSharing::kForms;
  const int64_t best = tiling.wgmma ? choice.tiles[0]
                       : is_small   ? small.tiles[0]
                                    : CudaTileValues(size, multiprocessors, text.sharing())[0];
  const bool is_long = via == kViaFma && size.k >= kTermsOfLongSums;
  const int64_t tile = text.KnobValue("TILE", best);
  const std::string tile_text = text.KnobText("TILE", best);
  tiling.tile_m = CudaTilePart(tile_text, tile, true), tiling.tile_n = CudaTilePart(tile_text, tile, false);
  if (tiling.wgmma && tile_text != std::to_string(tile)) SetCudaWgmmaTile(tile_text, tiling);
  const int64_t depth = via == kViaFma ? 16
                        : is_small     ? small.depths[0]
                                       : 32,
                element = via == kViaHalf || via == kViaBrain ? 2 : 4;
  tiling.stages =
      text.KnobText("STAGES", tiling.wgmma ? 4
                              : is_small   ? small.stages[0]
                                           : CudaStageValues(text.device(), {tile}, depth, element)[0]);
  const int64_t split = tiling.wgmma ? choice.splits[0]
                        : is_small   ? 1
                                     : CudaSplitValues(size, tile, multiprocessors)[0];
  tiling.split = text.KnobText("SPLIT_K", split);
  tiling.split_is_knob = tiling.split != std::to_string(split);
  tiling.split_body = tiling.split_is_knob ? tiling.split : text.Number(split);
  tiling.splits = tiling.split_is_knob || split > 1;
  if (tiling.wgmma) return tiling;
  tiling.depth = text.KnobText("TILE_K", depth);
  std::string rows, columns, name, last;
  if (via == kViaFma) {
    rows = fmt::format("({} >= 32 ? 8 : 4)", tiling.tile_m),
    columns = fmt::format("({} >= 64 ? 8 : 4)", tiling.tile_n);
    tiling.threads = fmt::format("({0} / {1} * ({2} / {3}))", tiling.tile_m, rows, tiling.tile_n, columns);
    name = "ContractFma", tiling.prelude = kCudaContractionFma;
    last = is_long ? ", true" : ", false";
  } else {
    rows = fmt::format("({0} >= 128 ? 64 : {0} >= 32 ? 32 : 16)", tiling.tile_m), columns = "32";
    tiling.threads = fmt::format("(32 * ({0} / {1}) * ({2} / 32))", tiling.tile_m, rows, tiling.tile_n);
    const bool is_half = via == kViaHalf || via == kViaBrain;
    name = is_half ? "ContractHalf" : "ContractTf32";
    tiling.prelude = is_half ? kCudaContractionHalf : kCudaContractionTf32;
    last = via == kViaHalf ? ", false" : via == kViaBrain ? ", true" : via == kViaTf32x3 ? ", 3" : ", 1";
  }
  if (is_small) {
    // Eight warps to a block, as far as a slice has terms for them.
    const std::string warps = fmt::format("({} / {} * ({} / 32))", tiling.tile_m, rows, tiling.tile_n);
    tiling.shares =
        fmt::format("({0} >= 8 ? 1 : 8 / {0} < {1} / 16 ? 8 / {0} : {1} / 16)", warps, tiling.depth);
    tiling.threads = fmt::format("(32 * {} * {})", warps, tiling.shares);
    last += ", " + tiling.shares;
  }
  tiling.math = fmt::format("{}<kTileM, kTileN, {}, {}, {}{}>", name, tiling.depth, rows, columns, last);
  tiling.residents = is_small
                         ? "1"
                         : fmt::format("{} / {}", via == kViaTf32x3 || via == kViaTf32 || is_long ? 256 : 512,
                                       tiling.threads);
  return tiling;
}

std::vector<Knob> CudaContractionKnobs(const Program& program, const Task& task, const Contraction& work) {
  if (IsLaterInCudaGroup(program, task, work)) return {};
  const int64_t members = static_cast<int64_t>(FindCudaGroup(program, task, work).members.size());
  const bool limited = HasCudaLimits(work);
  if (SuitsCudaRows(program, work, ReadCudaOperand(program, work.lhs, work.m, work.k, limited),
                    ReadCudaOperand(program, work.rhs, work.n, work.k, limited)))
    return {};
  const CudaProductSize size = CudaSizeOf(work);
  const std::vector<int64_t> vias = CudaViaValues(program, work, task);
  constexpr const char *kTileWhat = "rows * 1000 + columns of a tile", *kSplitWhat = "shares of the sum",
                       *kStagesWhat = "slices in shared memory",
                       *kViaWhat =
                           "arithmetic: 0 fp32, 1 three products in TF32, 2 TF32, 3 fp16, 4 bf16, 5 wgmma";
  std::vector<int64_t> tiles = CudaTileValues(size, task.device.multiprocessors),
                       splits = CudaSplitValues(size, tiles[0], task.device.multiprocessors);
  const CudaSmallChoice small = ChooseCudaSmall(program, task, work, std::max<int64_t>(members, 1));
  const bool wgmma_first = vias[0] == kViaWgmma, is_small = !small.tiles.empty();
  if (is_small) tiles = small.tiles, splits = {1};
  if (wgmma_first || vias.back() == kViaWgmma) {
    const CudaWgmmaChoice choice = ChooseCudaWgmma(task, work);
    std::vector<int64_t> others = choice.tiles;
    if (wgmma_first) std::swap(others, tiles), splits = choice.splits;
    for (const int64_t tile : others) {
      if (tiles.size() < 6 && std::find(tiles.begin(), tiles.end(), tile) == tiles.end())
        tiles.push_back(tile);
    }
  }
  // In fp32 two blocks share a multiprocessor, and its memory.
  const std::vector<int64_t> depths =
      vias[0] == kViaFma ? std::vector<int64_t>{16, 32} : std::vector<int64_t>{32, 16};
  std::vector<int64_t> stages =
      CudaStageValues(task.device, tiles, depths[0], CudaProductType(program, work) == "float32" ? 4 : 2);
  if (wgmma_first) stages = {4, 3, 2};
  if (is_small) stages = small.stages;
  if (is_small) {
    return {{"TILE", tiles, true, kTileWhat},
            {"VIA", vias, false, kViaWhat},
            {"STAGES", stages, true, kStagesWhat},
            {"TILE_K", small.depths, true, "terms of a slice"}};
  }
  return {{"TILE", tiles, true, kTileWhat},
          {"VIA", vias, false, kViaWhat},
          {"SPLIT_K", splits, true, kSplitWhat},
          {"STAGES", stages, true, kStagesWhat},
          {"TILE_K", depths, true, "terms of a slice"}};
}

}  // namespace kevin::search
