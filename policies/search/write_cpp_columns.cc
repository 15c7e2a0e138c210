// Reductions whose vectors lie across rows: each lane folds a row of its own.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_reduction.h"
#include "policies/search/forwarding.h"

namespace kevin::search {
std::vector<CppColumnFold> CppFoldsOf(const Reduction& work, int step, CppPrinter& print) {
  std::vector<CppColumnFold> folds;
  for (const Accumulator& one : work.accumulators) {
    if (one.step == step) folds.push_back({&one, CppFoldOf(one), print.Fresh("acc")});
  }
  return folds;
}

// acc = acc combined with the value at this point.
void CppCombineLanes(CppPrinter& print, const CppColumnFold& one, const Reduction& work,
                     const std::string& acc, const std::string& where) {
  const std::string value = print.Lanes(CppFolded(*one.accumulator));
  if (one.fold.is_argument) {
    print.Line(fmt::format("{}({}, {}, {}, {});", one.fold.name, value, print.Lanes(LinearOf(work.inner)),
                           acc, where));
  } else {
    print.Line(fmt::format("{} = {};", acc, one.fold.Combine(acc, value)));
  }
}

void CppColumns(const Reduction& work, size_t lanes, CppStage& stage) {
  CppPrinter print(stage);
  const Loop along = work.outer[lanes];
  std::vector<Loop> others = work.outer;
  others.erase(others.begin() + static_cast<long>(lanes));
  const int64_t least =
      along.extent >= 512 * stage.task.threads ? 256 : 64;  // short rows use few of a line's neighbours
  const int64_t strip = CppPiece((along.extent + 15) / 16 * 16, CppCount(others), least,
                                 stage.Value("STRIP", 1024), stage.task.threads);
  std::string begin, end;
  const int scopes = CppOpenPieces(print, stage, others, along.extent, strip, begin, end);
  std::vector<std::pair<int, std::pair<CppFold, std::string>>> results;
  const auto open_walk = [&] {
    const std::string lane = print.Fresh("j");
    CppOpenWalk(print, along.variable, 2, begin, end);
    print.Line(fmt::format("const long {} = {} - {};", lane, print.Scalar0(along), begin));
    for (const auto& [result, how] : results) {
      const auto& [fold, name] = how;
      const std::string value = print.Fresh("r");
      print.Line(fold.is_argument
                     ? fmt::format("const IntVec {} = *(const IntVec*)({}_at + {});", value, name, lane)
                     : fmt::format("const Vec {} = LoadVec({} + {});", value, name, lane));
      print.BindResult(result, CppResultText(fold, value, true), true);
    }
    return lane;
  };
  for (int step = 0; step < CppSteps(work); ++step) {
    const std::vector<CppColumnFold> folds = CppFoldsOf(work, step, print);
    for (const CppColumnFold& one : folds) {
      print.Line(fmt::format("alignas(64) float {}[{}];", one.name, strip));
      print.Line(fmt::format("for (long j = 0; j < {}; ++j) {}[j] = {};", strip, one.name, one.fold.start));
      if (one.fold.is_argument) print.Line(fmt::format("alignas(64) int {}_at[{}] = {{}};", one.name, strip));
    }
    const int inner = print.OpenLoops(work.inner);
    const std::string lane = open_walk();
    for (const CppColumnFold& one : folds) {
      const std::string acc = print.Fresh("a");
      print.Line(fmt::format("Vec {} = LoadVec({} + {});", acc, one.name, lane));
      if (one.fold.is_argument)
        print.Line(fmt::format("IntVec {}_at = *(const IntVec*)({}_at + {});", acc, one.name, lane));
      CppCombineLanes(print, one, work, acc, acc + "_at");
      print.Line(fmt::format("StoreVec({} + {}, {});", one.name, lane, acc));
      if (one.fold.is_argument)
        print.Line(fmt::format("*(IntVec*)({}_at + {}) = {}_at;", one.name, lane, acc));
    }
    print.Close("});");
    print.CloseAll(inner);
    for (const CppColumnFold& one : folds) results.push_back({one.accumulator->result, {one.fold, one.name}});
  }
  bool fence = false;
  const auto store_all = [&](const std::vector<Store>& stores, const std::vector<Loop>& inner) {
    if (stores.empty()) return;
    std::vector<Loop> outside = others;
    outside.insert(outside.end(), inner.begin(), inner.end());
    const int opened = print.OpenLoops(inner);
    open_walk();
    for (const Store& store : stores) {
      const bool streams = CppStreams(stage, store, along.variable, outside);
      print.Store(store, streams);
      fence |= streams;
    }
    print.Close("});");
    print.CloseAll(opened);
  };
  store_all(work.outer_stores, {});
  store_all(work.inner_stores, work.inner);
  if (fence) CppFence(print, stage);
  print.CloseAll(scopes);
  stage.body = print.Text();
}

}  // namespace kevin::search
