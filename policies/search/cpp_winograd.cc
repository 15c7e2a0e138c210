// Convolutions of 3 x 3 taps at stride 1 as F(2 x 2, 3 x 3) of Winograd (Lavin and Gray, "Fast algorithms for convolutional
// neural networks", 2016): two by two results are made of four by four positions in 16 products a channel instead of 36.
// A task takes some tiles of all channels: it transforms their positions, multiplies them with transformed weights for a
// few output channels at a time, and transforms those sums back while they are in the first cache. Tiles lie side by side
// in the vectors, which is why positions are copied first, odd and even ones apart. The error is no larger than that of
// the direct sum; F(4 x 4) has ten times as much, beyond the bound of a verdict.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_contraction_writer.h"

namespace kevin::search {
namespace {

constexpr int64_t kElements = 16;  // of a transformed tile

struct WinogradPlan {
  Contraction work;  // loops of m joined
  Loop channel, down, across;
  std::vector<Loop> images;          // one or none
  int tap_down = 0, tap_across = 0;  // variables
  ExprPtr value;                     // of one position, a load
  int position_down = 0, position_across = 0;
  int64_t low_down = 0, high_down = 0, low_across = 0, high_across = 0;  // positions outside of these are 0
  int64_t m = 0;
  int64_t tiles_down = 0, tiles_across = 0, lines = 0, steps = 0;  // with the last half tile that others read
  int64_t columns = 0, phase = 0;  // of all images; the pitch of the phases of a channel
  double cycles = 0;
};

// One axis from the field, or without a guard.
bool ReadAxis(const Loop& n, const CppField* field, int& position, int64_t& low, int64_t& high, int& next) {
  position = next++;
  low = 0, high = n.extent + 2;
  if (!field) return true;
  for (const CppField::Axis& axis : field->axes) {
    if (axis.n != n.variable) continue;
    position = axis.position, low = axis.low, high = axis.high;
    return axis.stride == 1 && axis.positions == n.extent + 2;
  }
  return false;
}

std::optional<WinogradPlan> PlanWinograd(const Contraction& given, const CppStage& stage) {
  WinogradPlan plan;
  plan.work = given;
  Contraction& work = plan.work;
  const bool has_limits = std::any_of(work.k_limits.begin(), work.k_limits.end(),
                                      [](const ExprPtr& limit) { return limit != nullptr; });
  if (has_limits || CppCount(work.batch) != 1 || work.k.size() != 3) return std::nullopt;
  if (work.n.size() == 3 && work.n[0].extent == 1)
    work.n.erase(work.n.begin());  // no expression has its variable
  if (work.n.size() != 2 && work.n.size() != 3) return std::nullopt;
  plan.channel = work.k[0], plan.tap_down = work.k[1].variable, plan.tap_across = work.k[2].variable;
  if (work.k[1].extent != 3 || work.k[2].extent != 3) return std::nullopt;
  plan.images.assign(work.n.begin(), work.n.end() - 2);
  plan.down = work.n[work.n.size() - 2], plan.across = work.n.back();
  const bool is_guarded = work.rhs->op == "guard";
  const ExprPtr load = is_guarded ? work.rhs->args[1] : work.rhs;
  if (load->op != "load" || load->type != Type::kFloat || work.lhs->type != Type::kFloat) return std::nullopt;
  if (stage.program.buffers.at(static_cast<size_t>(load->id)).dtype != "float32") return std::nullopt;
  const ExprPtr& offset = load->args[0];
  const auto stride = [&](int variable) { return StrideOf(offset, variable); };
  if (stride(plan.across.variable) != 1 || stride(plan.tap_across) != 1 || !stride(plan.down.variable) ||
      stride(plan.tap_down) != stride(plan.down.variable))
    return std::nullopt;
  int next = kCppFirstVariable;
  std::optional<CppFieldPlan> field;
  if (is_guarded) {
    field = CppPlanField(work, stage, false, next);
    if (!field || field->field.axes.size() != 2) return std::nullopt;
    plan.value = field->field.value;
  }
  const CppField* const axes = field ? &field->field : nullptr;
  if (!ReadAxis(plan.down, axes, plan.position_down, plan.low_down, plan.high_down, next) ||
      !ReadAxis(plan.across, axes, plan.position_across, plan.low_across, plan.high_across, next))
    return std::nullopt;
  if (!is_guarded) {
    const ExprPtr place = Substitute(offset, [&](const Expr& e) -> ExprPtr {
      if (e.op != "variable") return nullptr;
      if (e.id == plan.tap_down || e.id == plan.tap_across) return Int(0);
      if (e.id == plan.down.variable) return Variable(plan.position_down, plan.down.extent + 2);
      return e.id == plan.across.variable ? Variable(plan.position_across, plan.across.extent + 2) : nullptr;
    });
    plan.value = Load(load->id, Type::kFloat, place);
  }
  std::vector<ExprPtr*> left = {&work.lhs};
  CppAddPointers(work.stores, left);
  CppJoinLoops(work.m, left, next);
  plan.m = CppCount(work.m);
  plan.tiles_down = (plan.down.extent + 1) / 2, plan.tiles_across = (plan.across.extent + 1) / 2;
  plan.lines = plan.tiles_down + 1, plan.steps = plan.tiles_across + 1;
  plan.columns = CppCount(plan.images) * plan.lines * plan.steps;
  plan.phase = plan.columns + plan.steps + 64;
  // Channels that are a multiple of a page apart would share the same places of the cache.
  if (plan.phase % 512 < 16) plan.phase += 16;
  return plan;
}

// As CppPlanContraction counts them.
double CyclesOf(const WinogradPlan& plan) {
  const auto channels = static_cast<double>(plan.channel.extent), columns = static_cast<double>(plan.columns);
  const auto rows = static_cast<double>((plan.m + 7) / 8 * 8);
  const double blocks = (columns + 47) / 48;
  const double products = blocks * (rows / 8) * kElements * (channels * 12 + 20);
  const double transforms = columns / 16 * (channels * 40 + rows * 40);
  const double stores = columns * 4 * static_cast<double>(plan.m) * 0.2;
  return products + transforms + stores + channels * columns * 4 * 0.5 + channels * rows * kElements * 0.25;
}

class WinogradWriter {
 public:
  WinogradWriter(const WinogradPlan& plan, CppStage& stage)
      : plan_(plan), work_(plan.work), stage_(stage), print_(stage) {}

  void Write() {
    for (const Loop& loop : work_.batch) print_.Bind(loop.variable, "0");
    Buffers();
    FillPhases();
    TransformWeights();
    Tasks();
    stage_.body = print_.Text();
    stage_.helpers.push_back(CppContractionCore());
    stage_.helpers.push_back(CppFieldCore());
    stage_.helpers.push_back(CppWinogradCore());
  }

 private:
  std::string N(int64_t value) const { return stage_.Number(value); }
  int64_t Channels() const { return plan_.channel.extent; }
  // For tiles of 6 and of 8 rows.
  int64_t MostRows() const { return plan_.m + 7; }

  void Buffers() {
    const auto buffer = [&](int which, const char* name, int64_t floats, bool by_thread) {
      stage_.scratch.push_back({which, floats * 4, by_thread});
      print_.Line(fmt::format("float* const {} = (float*)Scratch<{}>(0);", name, which));
    };
    buffer(8, "phases", Channels() * 4 * plan_.phase + 64, false);
    buffer(9, "weights", kElements * Channels() * MostRows(), false);
    buffer(11, "all_sums", kSums, true);
    buffer(12, "all_values", kElements * Channels() * kMostColumns + 64, true);
    print_.Line(fmt::format("const long tiles = ({} + kTileRows - 1) / kTileRows;", N(plan_.m)));
  }

  // Even and odd positions of even and odd lines, apart.
  void FillPhases() {
    const int parity = kCppFirstVariable * 3, line = parity + 1;
    std::vector<Loop> loops = {plan_.channel};
    loops.insert(loops.end(), plan_.images.begin(), plan_.images.end());
    loops.push_back({parity, 2});
    loops.push_back({line, plan_.lines});
    const std::string job = print_.Fresh("row");
    const int64_t count = CppCount(loops);
    CppOpenJobs(print_, N(count), job, N(std::max<int64_t>(1, count / (16 * stage_.task.threads))));
    CppDecode(print_, stage_, loops, job);
    const auto name = [&](int variable) { return print_.Scalar(Variable(variable, 2)); };
    const std::string image = plan_.images.empty() ? "0" : print_.Scalar(OfLoop(plan_.images[0]));
    print_.Line(fmt::format("const long position = {} * 2 + {};", name(line), name(parity)));
    print_.Bind(plan_.position_down, "position");
    print_.Line(fmt::format("const bool is_inside = position >= {} && position < {};", N(plan_.low_down),
                            N(plan_.high_down)));
    print_.Open("for (long odd = 0; odd < 2; ++odd)");
    print_.Bind(plan_.position_across, "odd");
    print_.Line(fmt::format("float* const to = phases + ({} * 4 + {} * 2 + odd) * {} + ({} * {} + {}) * {};",
                            print_.Scalar(OfLoop(plan_.channel)), name(parity), N(plan_.phase), image,
                            N(plan_.lines), name(line), N(plan_.steps)));
    print_.Open("if (is_inside)");
    print_.Line(fmt::format("CopyRow({}, 2, ({} - odd) / 2, ({} - odd) / 2, {}, to);",
                            print_.Address(plan_.value->id, plan_.value->args[0]), N(plan_.low_across + 1),
                            N(plan_.high_across + 1), N(plan_.steps)));
    print_.Close("} else {");
    print_.Line(fmt::format("  for (long i = 0; i < {}; ++i) to[i] = 0;", N(plan_.steps)));
    print_.Line("}");
    print_.CloseAll(3);
  }

  void TransformWeights() {
    CppOpenJobs(print_, "tiles", "tile", "1");
    print_.Open(fmt::format("for (long channel = 0; channel < {}; ++channel)", N(Channels())));
    print_.Bind(plan_.channel.variable, "channel");
    print_.Line("float taps[9][kTileRows] = {};");
    print_.Open("for (int r = 0; r < kTileRows; ++r)");
    print_.Line("const long m = tile * kTileRows + r;");
    print_.Line(fmt::format("if (m >= {}) break;", N(plan_.m)));
    CppDecode(print_, stage_, work_.m, "m");
    for (int64_t i = 0; i < 3; ++i) {
      print_.Open("");
      print_.Bind(plan_.tap_down, std::to_string(i));
      for (int64_t j = 0; j < 3; ++j) {
        print_.Open("");
        print_.Bind(plan_.tap_across, std::to_string(j));
        print_.Line(fmt::format("taps[{}][r] = {};", 3 * i + j, print_.Scalar(work_.lhs)));
        print_.Close();
      }
      print_.Close();
    }
    print_.Close();
    print_.Line(fmt::format(
        "WinogradWeights(taps, weights + (tile * {0} + channel) * kTileRows, tiles * {0} * kTileRows);",
        N(Channels())));
    print_.CloseAll(3);
  }

  void Tasks() {
    const std::string columns = N(plan_.columns), channels = N(Channels());
    print_.Line(fmt::format("const long blocks = ({} + kWinogradColumns - 1) / kWinogradColumns;", columns));
    CppOpenJobs(print_, "blocks", "block", "1");
    print_.Line("const long begin = block * kWinogradColumns;");
    print_.Line(fmt::format(
        "const long end = begin + kWinogradColumns < {0} ? begin + kWinogradColumns : {0};", columns));
    print_.Line(fmt::format("float* const values = all_values + worker.me * {};",
                            N(kElements * Channels() * kMostColumns + 64)));
    print_.Line(fmt::format("float* const sums = all_sums + worker.me * {};", N(kSums)));
    print_.Line("float* const lines = sums + 16 * kTileRows * kWinogradColumns;");
    print_.Open(fmt::format("for (long channel = 0; channel < {}; ++channel)", channels));
    print_.Line(fmt::format(
        "WinogradValues(phases + channel * 4 * {0} + begin, {0}, {1}, values + channel * kWinogradColumns, {2} * kWinogradColumns);",
        N(plan_.phase), N(plan_.steps), channels));
    print_.Close();
    print_.Open("for (long tile = 0; tile < tiles; ++tile)");
    print_.Line(fmt::format(
        "WinogradProducts({0}, weights + tile * {0} * kTileRows, tiles * {0} * kTileRows, values, sums);",
        channels));
    print_.Line(fmt::format("const long last = (tile + 1) * kTileRows < {0} ? (tile + 1) * kTileRows : {0};",
                            N(plan_.m)));
    print_.Open("for (long m = tile * kTileRows; m < last; ++m)");
    CppDecode(print_, stage_, work_.m, "m");
    print_.Line("WinogradResults(sums + (m - tile * kTileRows) * kWinogradColumns, lines);");
    StoreLines();
    print_.CloseAll(4);
  }

  // Pieces of lines of tiles between `begin` and `end`.
  void StoreLines() {
    const std::string steps = N(plan_.steps);
    print_.Open("for (long column = begin, next; column < end; column = next)");
    print_.Line(fmt::format("const long line = column / {0}, first = line * {0};", steps));
    print_.Line(fmt::format("next = first + {0} < end ? first + {0} : end;", steps));
    print_.Line(fmt::format("const long tile_down = line % {};", N(plan_.lines)));
    if (!plan_.images.empty()) {
      print_.Line(fmt::format("const long image = line / {};", N(plan_.lines)));
      print_.Bind(plan_.images[0].variable, "image");
    }
    const std::string wide = N(plan_.across.extent);
    print_.Line(fmt::format(
        "const long low = (column - first) * 2, high = (next - first) * 2 < {0} ? (next - first) * 2 : {0};",
        wide));
    print_.Open(fmt::format("for (long y = tile_down * 2; y < tile_down * 2 + 2 && y < {}; ++y)",
                            N(plan_.down.extent)));
    print_.Bind(plan_.down.variable, "y");
    print_.Line(
        "const float* const from = lines + (y - tile_down * 2) * 2 * kWinogradColumns + (first - begin) * 2;");
    CppOpenWalk(print_, plan_.across.variable, 1, "low", "high");
    const std::string sum = print_.Fresh("sum");
    print_.Line(fmt::format("const Vec {} = part.Load(from + {});", sum, print_.Scalar0(plan_.across)));
    print_.BindResult(0, sum, true);
    for (const Store& store : work_.stores) print_.Store(store);
    print_.Close("});");
    print_.CloseAll(2);
  }

  static ExprPtr OfLoop(const Loop& loop) {
    return Variable(loop.variable, std::max<int64_t>(2, loop.extent));
  }

  // Of a block of columns, and the floats of its sums and of its lines of results.
  static constexpr int64_t kMostColumns = 48, kSums = kElements * 8 * kMostColumns + 4 * kMostColumns + 64;

  const WinogradPlan& plan_;
  const Contraction& work_;
  CppStage& stage_;
  CppPrinter print_;
};

}  // namespace

bool CppSuitsWinograd(const Contraction& work, const Program& program, const Task& task) {
  const Setting none;
  return PlanWinograd(work, CppStage{program, task, none}).has_value();
}

bool CppWinograd(const Contraction& work, CppStage& stage, double other_cycles) {
  const std::optional<WinogradPlan> plan = PlanWinograd(work, stage);
  if (!plan || CyclesOf(*plan) > other_cycles) return false;
  WinogradWriter(*plan, stage).Write();
  return true;
}

std::string CppWinogradCore() {
  return R"(enum { kWinogradVectors = TileVectors(kTileRows), kWinogradColumns = kWinogradVectors * kTileLanes };

// Element i * 4 + j of the transformed tiles at to[(i * 4 + j) * pitch]; position (y, x) of a tile lies in the phase
// (y % 2, x % 2), `line` behind where y >= 2 and one behind where x >= 2.
static inline void WinogradValues(const float* from, long phase, long line, float* to, long pitch) {
  for (int v = 0; v < kWinogradVectors; ++v, from += kTileLanes, to += kTileLanes) {
    TileVec half[4][4];
    for (int j = 0; j < 4; ++j) {
      TileVec d[4];
      for (int i = 0; i < 4; ++i) d[i] = *(const TileVec*)(from + (i % 2 * 2 + j % 2) * phase + i / 2 * line + j / 2);
      half[0][j] = d[0] - d[2];
      half[1][j] = d[1] + d[2];
      half[2][j] = d[2] - d[1];
      half[3][j] = d[1] - d[3];
    }
    for (int i = 0; i < 4; ++i) {
      float* const row = to + i * 4 * pitch;
      *(TileVec*)row = half[i][0] - half[i][2];
      *(TileVec*)(row + pitch) = half[i][1] + half[i][2];
      *(TileVec*)(row + 2 * pitch) = half[i][2] - half[i][1];
      *(TileVec*)(row + 3 * pitch) = half[i][1] - half[i][3];
    }
  }
}

static inline void WinogradWeights(const float (&taps)[9][kTileRows], float* to, long pitch) {
  for (int r = 0; r < kTileRows; ++r) {
    float half[4][3];
    for (int j = 0; j < 3; ++j) {
      const float a = taps[j][r], b = taps[3 + j][r], c = taps[6 + j][r];
      half[0][j] = a;
      half[1][j] = 0.5f * (a + b + c);
      half[2][j] = 0.5f * (a - b + c);
      half[3][j] = c;
    }
    for (int i = 0; i < 4; ++i) {
      const float a = half[i][0], b = half[i][1], c = half[i][2];
      float* const row = to + i * 4 * pitch + r;
      row[0] = a;
      row[pitch] = 0.5f * (a + b + c);
      row[2 * pitch] = 0.5f * (a - b + c);
      row[3 * pitch] = c;
    }
  }
}

// sums[e][r][column] = sum over the channels of weights * values, for the 16 elements e.
static __attribute__((noinline)) void WinogradProducts(long channels, const float* weights, long pitch,
                                                       const float* values, float* sums) {
  for (int e = 0; e < 16; ++e, weights += pitch, values += channels * kWinogradColumns) {
    TileVec sum[kTileRows][kWinogradVectors] = {};
    const float *a = weights, *b = values;
    for (long i = 0; i < channels; ++i, a += kTileRows, b += kWinogradColumns)
      AddElement<kTileRows, kWinogradVectors>(sum, a, 1, b);
    for (int r = 0; r < kTileRows; ++r)
      for (int v = 0; v < kWinogradVectors; ++v, sums += kTileLanes) *(TileVec*)sums = sum[r][v];
  }
}

template <int... L>
static inline __attribute__((always_inline)) void StoreInTurn(TileVec even, TileVec odd, float* to,
                                                              std::integer_sequence<int, L...>) {
  constexpr int half = kTileLanes / 2;
  *(TileVec*)to = __builtin_shufflevector(even, odd, (L / 2 + L % 2 * kTileLanes)...);
  *(TileVec*)(to + kTileLanes) = __builtin_shufflevector(even, odd, (half + L / 2 + L % 2 * kTileLanes)...);
}

// Two lines of results of one row of sums.
static inline void WinogradResults(const float* sums, float* lines) {
  constexpr long pitch = kTileRows * kWinogradColumns;
  for (int v = 0; v < kWinogradVectors; ++v, sums += kTileLanes, lines += 2 * kTileLanes) {
    TileVec half[2][4];
    for (int j = 0; j < 4; ++j) {
      TileVec m[4];
      for (int i = 0; i < 4; ++i) m[i] = *(const TileVec*)(sums + (i * 4 + j) * pitch);
      half[0][j] = m[0] + m[1] + m[2];
      half[1][j] = m[1] - m[2] - m[3];
    }
    for (int i = 0; i < 2; ++i) {
      const TileVec(&h)[4] = half[i];
      StoreInTurn(h[0] + h[1] + h[2], h[1] - h[2] - h[3], lines + i * 2 * kWinogradColumns,
                  std::make_integer_sequence<int, kTileLanes>{});
    }
  }
}
)";
}

}  // namespace kevin::search
