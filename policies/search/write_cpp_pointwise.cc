// Pointwise stages in C++, and the walks along vectors that other stages use too.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_text.h"

namespace kevin::search {
namespace {

constexpr int64_t kCppStreamBytes = 1 << 20;  // smaller outputs stay in the caches

// The loop whose variable goes into the lanes.
size_t CppBestLanes(const std::vector<Loop>& loops, const std::vector<ExprPtr>& values,
                    const std::vector<Store>& stores) {
  size_t best = loops.size() - 1;
  double best_score = -100;
  for (size_t i = loops.size(); i-- > 0;) {
    const double filled = std::min(1.0, static_cast<double>(loops[i].extent) / 16);
    const double score = (CppLaneScore(values, stores, loops[i].variable) + 1) * filled;
    if (score <= best_score + 1e-9) continue;
    best_score = score;
    best = i;
  }
  return best;
}

// A loop along which a load is contiguous that jumps along the lanes: a transposition. -1: none.
int CppTransposed(const std::vector<Loop>& loops, const std::vector<ExprPtr>& values, int lanes) {
  for (const ExprPtr& value : values) {
    for (const Expr* node : Nodes(value)) {
      if (node->op != "load") continue;
      const std::optional<int64_t> along = StrideOf(node->args[0], lanes);
      if (along && (*along == 0 || *along == 1 || *along == 2)) continue;
      for (size_t i = 0; i < loops.size(); ++i) {
        if (StrideOf(node->args[0], loops[i].variable) == 1) return static_cast<int>(i);
      }
    }
  }
  return -1;
}

}  // namespace

void CppOpenWalk(CppPrinter& print, int variable, const std::string& unroll, const std::string& begin,
                 const std::string& end, const std::string& unroll_name) {
  const std::string v = print.Fresh("v");
  print.Open(fmt::format("Walk<{}>({}, {}, [&](auto part, long {}, int {}) __attribute__((always_inline))",
                         unroll, begin, end, v, unroll_name));
  print.BindLanes(variable, v);
}

int CppOpenPieces(CppPrinter& print, const CppStage& stage, const std::vector<Loop>& loops, int64_t lanes,
                  int64_t piece, std::string& begin, std::string& end) {
  begin = "0";
  end = stage.Number(lanes);
  if (piece >= lanes) return CppOpenParallel(print, stage, loops);
  std::vector<Loop> with_pieces = loops;
  const int variable = kCppFirstVariable * 2;
  with_pieces.push_back({variable, (lanes + piece - 1) / piece});
  const int scopes = CppOpenParallel(print, stage, with_pieces);
  begin = print.Fresh("begin");
  end = print.Fresh("end");
  print.Line(fmt::format("const long {} = {} * {};", begin, print.Scalar(Variable(variable, 2)),
                         stage.Number(piece)));
  print.Line(fmt::format("const long {0} = {1} + {2} < {3} ? {1} + {2} : {3};", end, begin,
                         stage.Number(piece), stage.Number(lanes)));
  return scopes;
}

bool CppStreams(const CppStage& stage, const search::Store& store, int lanes_variable,
                const std::vector<Loop>& others) {
  const Buffer& buffer = stage.program.buffers.at(static_cast<size_t>(store.buffer));
  const bool is_float = buffer.dtype == "float32";
  if (!buffer.is_output || buffer.is_inout || !is_float || buffer.elements * 4 < kCppStreamBytes ||
      store.guard)
    return false;
  if (StrideOf(store.offset, lanes_variable) != 1) return false;
  int64_t variable_part = 0;
  for (const Loop& loop : others) {
    const std::optional<int64_t> stride = StrideOf(store.offset, loop.variable);
    if (!stride || *stride % 16 != 0) return false;
    variable_part += *stride;
  }
  const ExprPtr at_zero =
      Substitute(store.offset, [](const Expr& node) { return node.op == "variable" ? Int(0) : nullptr; });
  return at_zero->op == "constant" && at_zero->integer % 16 == 0 &&
         (others.empty() || variable_part % 16 == 0);
}

void CppFence(CppPrinter& print, const CppStage& stage) {
  print.Line(fmt::format("if ({}) StreamFence();", stage.Constant("STREAM", 1)));
}

void CppPointwise(const Pointwise& work, CppStage& stage) {
  Pointwise w = work;
  int next = kCppFirstVariable;
  std::vector<ExprPtr*> exprs;
  CppAddPointers(w.stores, exprs);
  CppJoinLoops(w.loops, exprs, next);
  if (w.loops.empty()) w.loops.push_back({next++, 1});
  const std::vector<ExprPtr> values = CppValues(w.stores);
  const size_t best = CppBestLanes(w.loops, values, w.stores);
  const Loop lanes = w.loops[best];
  w.loops.erase(w.loops.begin() + static_cast<long>(best));
  const std::vector<Loop> others = w.loops;
  const int transposed = CppTransposed(w.loops, values, lanes.variable);
  std::vector<Loop> serial;
  int64_t piece = lanes.extent;
  if (transposed >= 0) {  // short pieces, so that the lines of the loads stay in the nearest cache
    serial.push_back(w.loops[static_cast<size_t>(transposed)]);
    w.loops.erase(w.loops.begin() + transposed);
    piece = 64;
  } else {
    piece = CppPiece(lanes.extent, CppCount(w.loops), 1024, lanes.extent, stage.task.threads);
  }
  CppPrinter print(stage);
  std::string begin, end;
  int scopes = CppOpenPieces(print, stage, w.loops, lanes.extent, piece, begin, end);
  scopes += print.OpenLoops(serial);
  CppOpenWalk(print, lanes.variable, stage.Constant("UNROLL", 4), begin, end);
  bool fence = false;
  for (const search::Store& store : w.stores) {
    const bool streams = CppStreams(stage, store, lanes.variable, others);
    print.Store(store, streams);
    fence |= streams;
  }
  print.Close("});");
  if (fence) CppFence(print, stage);
  print.CloseAll(scopes);
  stage.body = print.Text();
}

}  // namespace kevin::search
