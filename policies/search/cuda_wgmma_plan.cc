// Products by wgmma: which can be written so, with which tiles, and convolutions as windows of a line of positions.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/search/cuda_wgmma.h"

namespace kevin::search {
namespace {

int64_t FloorDivided(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
int64_t CeilDivided(int64_t a, int64_t b) { return FloorDivided(a + b - 1, b); }

// The condition with one of the variables, if there is one.
const CudaOperandCondition* ConditionOf(const CudaOperand& right, int n, int k) {
  for (const CudaOperandCondition& condition : right.conditions) {
    if (Uses(condition.line, n) || Uses(condition.term, k)) return &condition;
  }
  return nullptr;
}

// With a lower bound the position is what it bounds; without one it is counted from the least that is read.
bool ReadDimension(const CudaOperand& right, CudaWindows::Dimension& d) {
  const Loop &n = d.n, &k = d.k;
  const std::optional<int64_t> by_n = StrideOf(right.line, n.variable),
                               by_k = StrideOf(right.term, k.variable);
  if (!by_n || !by_k || *by_n < 0) return false;
  const CudaOperandCondition* condition = ConditionOf(right, n.variable, k.variable);
  std::optional<int64_t> stride, step;
  ExprPtr rest = Int(0);  // of the condition, without loops of n and k
  if (condition) {
    stride = StrideOf(condition->line, n.variable), step = StrideOf(condition->term, k.variable);
    if (!stride || !step) return false;
    rest = AddInt(AddInt(condition->line, Scaled(Variable(n.variable, n.extent), -*stride)),
                  AddInt(condition->term, Scaled(Variable(k.variable, k.extent), -*step)));
  }
  const int64_t sign = condition && (*stride < 0 || (*stride == 0 && *step * *by_k < 0)) ? -1 : 1;
  if (condition) {
    if (*stride == 0 && *step == 0) return false;
    d.stride = sign * *stride, d.step = sign * *step;
    d.unit = d.stride != 0 ? *by_n / d.stride : *by_k / d.step;
    if (d.unit <= 0 || d.stride * d.unit != *by_n || d.step * d.unit != *by_k) return false;
  } else {
    d.unit = std::max<int64_t>(std::gcd(*by_n, std::abs(*by_k)), 1);
    d.stride = *by_n / d.unit, d.step = *by_k / d.unit;
  }
  d.stride = std::max<int64_t>(d.stride, 1);
  const int64_t reach = d.step * (k.extent - 1);
  if (condition && sign > 0) {
    d.first = rest;
    d.size = condition->range > 0 ? condition->range
                                  : d.stride * (n.extent - 1) + std::max<int64_t>(reach, 0) + rest->high + 1;
    return true;
  }
  d.first = Int(std::max<int64_t>(-reach, 0));
  d.size = d.stride * (n.extent - 1) + std::abs(reach) + 1;
  if (!condition) return true;
  if (condition->range > 0 || rest->op != "constant") return false;
  d.size = std::min(d.size, rest->integer + d.first->integer + 1);  // an upper bound alone
  return d.size > 0;
}

// Zeros after the positions of a dimension, as many as windows reach beyond either end.
void SetPitch(CudaWindows::Dimension& d) {
  const int64_t reach = d.step * (d.k.extent - 1);
  const int64_t least = d.first->low + std::min<int64_t>(reach, 0),
                most = d.first->high + std::max<int64_t>(reach, 0);
  const int64_t positions = CeilDivided(d.size, d.stride);
  const int64_t before = -FloorDivided(least, d.stride),
                after = FloorDivided(most, d.stride) + d.n.extent - positions;
  d.pitch = std::max(positions + std::max({before, after, int64_t{0}}), d.n.extent);
}

// Rows of whole packs, so that several results are stored at once, where that adds few zeros.
void AlignRows(CudaWindows::Dimension& d) {
  for (const int64_t width : {8, 4, 2}) {
    const int64_t pitch = CeilDivided(d.pitch, width) * width;
    if (d.n.extent % width != 0 || 8 * pitch > 9 * d.pitch) continue;
    d.pitch = pitch;
    return;
  }
}

bool HasBatch(const ExprPtr& expr, const Contraction& c, int& group, int64_t& stride) {
  for (size_t i = 0; i < c.batch.size(); ++i) {
    if (!Uses(expr, c.batch[i].variable)) continue;
    const std::optional<int64_t> own = StrideOf(expr, c.batch[i].variable);
    if (!own || group >= 0) return false;
    group = static_cast<int>(i), stride = *own;
  }
  return true;
}

}  // namespace

int64_t CudaWindows::Positions() const {
  int64_t positions = 1;
  for (const Dimension& dimension : dimensions) positions *= dimension.pitch;
  return positions;
}

std::vector<Loop> CudaWindows::Taps(const Contraction& c) const {
  std::vector<Loop> taps = c.k;
  taps.erase(taps.begin() + static_cast<std::ptrdiff_t>(channel));
  return taps;
}

namespace {

// Gives each tap the loop of n that it moves along: by their condition, else the one whose steps in memory are nearest.
std::vector<CudaWindows::Dimension> Paired(const Contraction& c, const CudaOperand& right,
                                           const std::vector<Loop>& taps) {
  std::vector<CudaWindows::Dimension> paired, alone;
  for (const Loop& n : c.n) {
    paired.emplace_back();
    paired.back().n = n;
  }
  for (size_t i = taps.size(); i-- > 0;) {
    const Loop& tap = taps[i];
    const CudaOperandCondition* condition = ConditionOf(right, -2, tap.variable);
    CudaWindows::Dimension* best = nullptr;
    double distance = 0;
    for (CudaWindows::Dimension& one : paired) {
      if (one.k.variable >= 0) continue;
      if (ConditionOf(right, one.n.variable, -2) != condition) continue;
      const double by_n = static_cast<double>(StrideOf(right.line, one.n.variable).value_or(0)),
                   by_k = static_cast<double>(std::abs(StrideOf(right.term, tap.variable).value_or(0)));
      if (by_n <= 0 || by_k <= 0) continue;
      const double own = std::fabs(std::log(by_n / by_k));
      if (!best || own < distance) best = &one, distance = own;
    }
    if (!best) best = &alone.emplace_back();
    best->k = tap;
  }
  alone.insert(alone.end(), paired.begin(), paired.end());
  return alone;
}

}  // namespace

std::optional<CudaWindows> ReadCudaWindows(const Program& program, const Contraction& c,
                                           const CudaOperand& right) {
  if (!right.is_split || c.n.empty() || c.k.empty() || right.wide) return std::nullopt;
  CudaWindows windows;
  windows.buffer = right.buffer;
  while (windows.channel < c.k.size() && ConditionOf(right, -2, c.k[windows.channel].variable))
    ++windows.channel;
  if (windows.channel == c.k.size()) return std::nullopt;
  const Loop channel = c.k[windows.channel];
  const bool is_limited = windows.channel < c.k_limits.size() && c.k_limits[windows.channel];
  windows.channel_stride = StrideOf(right.term, channel.variable).value_or(0);
  if (is_limited || windows.channel_stride <= 0) return std::nullopt;
  windows.dimensions = Paired(c, right, windows.Taps(c));
  ExprPtr rest = right.batch;
  size_t conditions = 0;
  for (CudaWindows::Dimension& one : windows.dimensions) {
    if (!ReadDimension(right, one)) return std::nullopt;
    conditions += ConditionOf(right, one.n.variable, one.k.variable) != nullptr;
    SetPitch(one);
    rest = AddInt(rest, Scaled(one.first, -one.unit));
    windows.phases *= one.stride;
  }
  AlignRows(windows.dimensions.back());
  if (conditions != right.conditions.size()) return std::nullopt;
  if (!HasBatch(rest, c, windows.group, windows.group_stride)) return std::nullopt;
  if (windows.group >= 0) {
    const Loop& group = c.batch[static_cast<size_t>(windows.group)];
    windows.groups = group.extent;
    rest = AddInt(rest, Scaled(Variable(group.variable, group.extent), -windows.group_stride));
  }
  if (rest->op != "constant") return std::nullopt;
  windows.start = rest->integer;
  windows.run = channel.extent > 32 ? 64 : channel.extent > 16 ? 32 : 16;
  windows.channels = CeilDivided(channel.extent, windows.run) * windows.run;
  const int64_t positions = windows.Positions();
  constexpr int64_t kMost = (int64_t{1} << 31) - 1024;
  if (positions > std::min(kMost, 2 * Points(c.n)) || windows.Row() > (1 << 20)) return std::nullopt;
  const int64_t given = program.buffers[static_cast<size_t>(right.buffer)].elements;
  if (positions * windows.Row() > 8 * given + (1 << 22)) return std::nullopt;
  return windows;
}

bool IsCudaDown(const Contraction& c) {
  if (c.stores.empty() || Points(c.m) == 1) return false;
  const ExprPtr& offset = c.stores[0].offset;
  return StrideOf(offset, c.m.back().variable) == 1 &&
         (c.n.empty() || StrideOf(offset, c.n.back().variable) != 1);
}

bool IsCudaMatrix(const Program& program, const Contraction& c, const CudaOperand& o) {
  if (!o.packed.empty()) return true;
  if (!o.is_split || !o.conditions.empty() || !o.line_stride || !o.term_stride) return false;
  const int64_t pitch = *o.line_stride == 1 ? *o.term_stride : *o.line_stride;
  if ((*o.line_stride != 1 && *o.term_stride != 1) || pitch % 8 != 0 || pitch < 8) return false;
  if (program.buffers[static_cast<size_t>(o.buffer)].base % 8 != 0) return false;
  const std::optional<int64_t> stride = CudaFlatStride(o.batch, c.batch);
  if (!stride || *stride % 8 != 0 || *stride < 0) return false;
  const bool has_start = (o.batch->op == "sum" || o.batch->op == "constant") && o.batch->integer != 0;
  return !has_start;
}

bool SuitsCudaWgmma(const Program& program, const Task& task, const Contraction& c, const CudaOperand& left,
                    const CudaOperand& right) {
  if (!HasCudaWgmma(task.device) || CudaProductType(program, c) == "float32") return false;
  if (Points(c.k) < 32 || Points(c.m) < 16 || Points(c.n) < 32) return false;
  const bool limited = std::any_of(c.k_limits.begin(), c.k_limits.end(),
                                   [](const ExprPtr& limit) { return limit != nullptr; });
  const auto is_ready = [&](const CudaOperand& o, const ExprPtr& value, bool is_left) {
    return !limited && (IsCudaMatrix(program, c, o) || PaysCudaPack(program, o, value, c, is_left));
  };
  if (Points(c.m) >= 32 && is_ready(left, c.lhs, true) && is_ready(right, c.rhs, false)) return true;
  const double flops = 2.0 * static_cast<double>(Points(c.batch) * Points(c.m)) *
                       static_cast<double>(Points(c.n) * Points(c.k));
  if (flops <= 1e8) return false;
  const std::optional<CudaWindows> windows = ReadCudaWindows(program, c, right);
  return windows && (Points(c.m) >= 32 || Points(windows->Taps(c)) > 1);
}

CudaWgmmaChoice ChooseCudaWgmma(const Task& task, const Contraction& c, bool few) {
  const bool is_down = IsCudaDown(c);
  const int64_t rows = Points(is_down ? c.n : c.m), columns = Points(is_down ? c.m : c.n);
  const int64_t slices = (Points(c.k) + 63) / 64, multiprocessors = std::max(1, task.device.multiprocessors);
  struct Form {
    int64_t m, n;
    double efficiency;
  };
  constexpr Form kForms[] = {
      {128, 256, 1.0}, {128, 128, 0.85}, {64, 256, 0.8}, {128, 64, 0.6}, {64, 128, 0.6}};
  struct Scored {
    double cost;
    int64_t tile, split;
  };
  std::vector<Scored> choices;
  for (const Form& form : kForms) {
    if (few && form.n != 128) continue;
    const int64_t tiles = Points(c.batch) * CeilDivided(rows, form.m) * CeilDivided(columns, form.n);
    Scored best{0, form.m * 1000 + form.n, 1};
    for (int64_t split = 1; split <= std::max<int64_t>(1, std::min<int64_t>(slices / 4, 64)); split *= 2) {
      // Of the busiest multiprocessor, in multiplications; the start and end of a tile count as a few slices.
      const int64_t mine = CeilDivided(tiles * split, multiprocessors);
      double cost = static_cast<double>(mine * form.m * form.n * 64) *
                    (static_cast<double>(CeilDivided(slices, split)) + 3) / form.efficiency;
      // Shares are written and read, at 100 multiplications a byte, in another launch.
      if (split > 1) {
        cost += 800.0 * static_cast<double>(Points(c.batch) * rows) * static_cast<double>(columns * split) /
                    static_cast<double>(multiprocessors) +
                1e7;
      }
      if (best.cost == 0 || cost < best.cost) best.cost = cost, best.split = split;
    }
    choices.push_back(best);
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Scored& a, const Scored& b) { return a.cost < b.cost; });
  CudaWgmmaChoice result;
  for (const Scored& choice : choices) result.tiles.push_back(choice.tile);
  result.splits = {choices[0].split}, result.cost = choices[0].cost;
  for (const int64_t other : {int64_t{1}, choices[0].split * 2}) {
    if (other != choices[0].split && other <= std::max<int64_t>(1, slices / 4))
      result.splits.push_back(other);
  }
  return result;
}

}  // namespace kevin::search
