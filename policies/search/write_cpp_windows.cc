// Windows: reductions with few terms whose neighbours overlap. Each lane is a window; the accumulators stay in
// registers. Windows that do not reach beyond the borders are walked without guards. Where the terms of a row of
// windows are shared, they are folded down the columns first.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "policies/search/cpp_reduction.h"

namespace kevin::search {
namespace {

ExprPtr CppReplaced(const ExprPtr& expr, int variable, const ExprPtr& by) {
  return Substitute(expr, [&](const Expr& node) -> ExprPtr {
    return node.op == "variable" && node.id == variable ? by : nullptr;
  });
}

Reduction CppReplaced(Reduction work, int variable, const ExprPtr& by) {
  for (Accumulator& one : work.accumulators) one.value = CppReplaced(one.value, variable, by);
  std::vector<ExprPtr*> exprs;
  CppAddPointers(work.outer_stores, exprs);
  CppAddPointers(work.inner_stores, exprs);
  for (ExprPtr* expr : exprs) *expr = CppReplaced(*expr, variable, by);
  return work;
}

struct CppRange {
  int64_t begin = 0, end = 0;
};

// The numbers of `along` for which all comparisons with it hold, whatever the other variables are.
CppRange CppInterior(const Reduction& work, const Loop& along) {
  CppRange range{0, along.extent};
  bool compares = false;
  for (const Accumulator& one : work.accumulators) {
    for (const Expr* node : Nodes(one.value)) {
      const bool is_less = node->op == "less" || node->op == "less_equal";
      if (!is_less || node->args[0]->type != Type::kInt) continue;
      const ExprPtr difference = AddInt(node->args[0], Scaled(node->args[1], -1));
      const std::optional<int64_t> stride = StrideOf(difference, along.variable);
      if (!stride) return {};
      if (*stride == 0) continue;
      compares = true;
      const ExprPtr rest = AddInt(difference, Scaled(Variable(along.variable, along.extent), -*stride));
      const int64_t most = (node->op == "less" ? -1 : 0) - rest->high;  // stride * along may be at most this
      if (*stride > 0) {
        range.end = std::min(range.end, most < 0 ? 0 : most / *stride + 1);
      } else if (most < 0) {
        range.begin = std::max(range.begin, (-most - *stride - 1) / -*stride);
      }
    }
  }
  range.begin = (range.begin + 15) / 16 * 16;  // vectors of the output stay aligned
  return compares && range.end - range.begin >= 32 ? range : CppRange{};
}

// A loop of the window that only shifts along the lanes: the values depend on lanes * step + tap.
struct CppShared {
  size_t tap = 0;
  int64_t step = 0;
  std::vector<ExprPtr> values;  // of the accumulators, over the variable `column`
  Loop column;
};

std::optional<CppShared> CppSharedColumns(const Reduction& work, const Loop& along) {
  constexpr int64_t kMostColumns = 1 << 14;
  if (work.inner.size() < 2 || CppSteps(work) != 1 || !work.inner_stores.empty()) return std::nullopt;
  for (size_t tap = 0; tap < work.inner.size(); ++tap) {
    const Loop& loop = work.inner[tap];
    CppShared shared{tap, 0, {}, {kCppFirstVariable * 2 + 3, 0}};
    for (const Accumulator& one : work.accumulators) {
      if (CppFoldOf(one).is_argument) return std::nullopt;
      for (const Expr* node : Nodes(one.value)) {
        if (node->op != "load") continue;
        const std::optional<int64_t> step = StrideOf(node->args[0], along.variable),
                                     shift = StrideOf(node->args[0], loop.variable);
        if (step && shift && *shift > 0 && *step > 0 && *step % *shift == 0) shared.step = *step / *shift;
      }
    }
    shared.column.extent = (along.extent - 1) * shared.step + loop.extent;
    if (shared.step == 0 || shared.column.extent > kMostColumns) continue;
    const ExprPtr by = AddInt(Variable(shared.column.variable, shared.column.extent),
                              Scaled(Variable(along.variable, along.extent), -shared.step));
    for (const Accumulator& one : work.accumulators)
      shared.values.push_back(CppReplaced(CppFolded(one), loop.variable, by));
    const bool depends = std::any_of(shared.values.begin(), shared.values.end(),
                                     [&](const ExprPtr& value) { return Uses(value, along.variable); });
    if (!depends) return shared;
  }
  return std::nullopt;
}

void CppSharedWindows(const Reduction& work, const CppShared& shared, const Loop& along,
                      const std::vector<Loop>& others, CppStage& stage) {
  CppPrinter print(stage);
  const int scopes = CppOpenParallel(print, stage, others);
  const std::vector<CppColumnFold> folds = CppFoldsOf(work, 0, print);
  for (const CppColumnFold& one : folds)
    print.Line(
        fmt::format("alignas(64) float {}_columns[{}];", one.name, (shared.column.extent + 15) / 16 * 16));
  std::vector<Loop> down = work.inner;
  down.erase(down.begin() + static_cast<long>(shared.tap));
  CppOpenWalk(print, shared.column.variable, 1, "0", stage.Number(shared.column.extent));
  const std::string column = print.Scalar0(shared.column);
  for (const CppColumnFold& one : folds)
    print.Line(fmt::format("Vec {} = Splat({});", one.name, one.fold.start));
  const int inner = print.OpenLoops(down);
  for (size_t i = 0; i < folds.size(); ++i)
    print.Line(fmt::format("{} = {};", folds[i].name,
                           folds[i].fold.Combine(folds[i].name, print.Lanes(shared.values[i]))));
  print.CloseAll(inner);
  for (const CppColumnFold& one : folds)
    print.Line(fmt::format("StoreVec({0}_columns + {1}, {0});", one.name, column));
  print.Close("});");
  CppOpenWalk(print, along.variable, 1, "0", stage.Number(along.extent));
  for (const CppColumnFold& one : folds) {
    print.Line(fmt::format("Vec {} = Splat({});", one.name, one.fold.start));
    const std::string tap = fmt::format("part.StridedLoad({}_columns + {} * {} + tap, {})", one.name,
                                        print.Scalar0(along), shared.step, shared.step);
    print.Line(fmt::format("for (long tap = 0; tap < {}; ++tap) {} = {};", work.inner[shared.tap].extent,
                           one.name, one.fold.Combine(one.name, tap)));
    print.BindResult(one.accumulator->result, CppResultText(one.fold, one.name, true), true);
  }
  for (const Store& store : work.outer_stores) print.Store(store);
  print.Close("});");
  print.CloseAll(scopes);
  stage.body = print.Text();
}

// One walk over windows: all of a lane's terms, then its stores.
bool CppWindowWalk(CppPrinter& print, const Reduction& work, const CppStage& stage, int variable,
                   const std::vector<Loop>& others, const std::string& begin, const std::string& end,
                   bool may_stream) {
  CppOpenWalk(print, variable, 1, begin, end);
  for (int step = 0; step < CppSteps(work); ++step) {
    const std::vector<CppColumnFold> folds = CppFoldsOf(work, step, print);
    for (const CppColumnFold& one : folds) {
      print.Line(fmt::format("Vec {} = Splat({});", one.name, one.fold.start));
      if (one.fold.is_argument) print.Line(fmt::format("IntVec {}_at{{}};", one.name));
    }
    const int inner = print.OpenLoops(work.inner);
    for (const CppColumnFold& one : folds) CppCombineLanes(print, one, work, one.name, one.name + "_at");
    print.CloseAll(inner);
    for (const CppColumnFold& one : folds) {
      const std::string value = one.fold.is_argument ? one.name + "_at" : one.name;
      print.BindResult(one.accumulator->result, CppResultText(one.fold, value, true), true);
    }
  }
  bool fence = false;
  for (const Store& store : work.outer_stores) {
    const bool streams = may_stream && CppStreams(stage, store, variable, others);
    print.Store(store, streams);
    fence |= streams;
  }
  if (!work.inner_stores.empty()) {
    const int inner = print.OpenLoops(work.inner);
    for (const Store& store : work.inner_stores) print.Store(store);
    print.CloseAll(inner);
  }
  print.Close("});");
  return fence;
}

}  // namespace

void CppWindows(const Reduction& work, size_t lanes, CppStage& stage) {
  const Loop along = work.outer[lanes];
  std::vector<Loop> others = work.outer;
  others.erase(others.begin() + static_cast<long>(lanes));
  const int64_t piece = CppPiece(along.extent, CppCount(others), 64, along.extent, stage.task.threads);
  if (piece >= along.extent) {
    if (const std::optional<CppShared> shared = CppSharedColumns(work, along))
      return CppSharedWindows(work, *shared, along, others, stage);
  }
  CppPrinter print(stage);
  std::string begin, end;
  const int scopes = CppOpenPieces(print, stage, others, along.extent, piece, begin, end);
  const CppRange interior = piece >= along.extent ? CppInterior(work, along) : CppRange{};
  bool fence = false;
  if (interior.end > interior.begin) {
    const int inside = kCppFirstVariable * 2 + 4;
    const int64_t count = interior.end - interior.begin;
    print.Open("for (int side = 0; side < 2; ++side)");
    CppWindowWalk(print, work, stage, along.variable, others, fmt::format("side ? {} : 0", interior.end),
                  fmt::format("side ? {} : {}", along.extent, interior.begin), false);
    print.Close();
    const Reduction moved =
        CppReplaced(work, along.variable, AddInt(Variable(inside, count), Int(interior.begin)));
    fence = CppWindowWalk(print, moved, stage, inside, others, "0", std::to_string(count), true);
  } else {
    fence = CppWindowWalk(print, work, stage, along.variable, others, begin, end, true);
  }
  if (fence) CppFence(print, stage);
  print.CloseAll(scopes);
  stage.body = print.Text();
}

}  // namespace kevin::search
