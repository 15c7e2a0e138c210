// Scans in C++. Over contiguous elements a vector is scanned in shifted steps; across rows each lane runs on its own.
// Integers have 64 bits, so no lanes: one row at a time, or rows side by side.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_text.h"

namespace kevin::search {
namespace {

struct CppScanOp {
  std::string start, combine;  // "{} + {}"
};

CppScanOp CppScanOpOf(const std::string& op) {
  if (op == "sum") return {"0.0f", "{} + {}"};
  if (op == "product") return {"1.0f", "{} * {}"};
  if (op == "max") return {"(-__builtin_inff())", "NanMax({}, {})"};
  if (op == "min") return {"__builtin_inff()", "NanMin({}, {})"};
  if (op == "logsumexp") return {"(-__builtin_inff())", "LogAddExp({}, {})"};
  throw Unsupported("a scan with " + op);
}

CppScanOp CppIntegerScanOpOf(const std::string& op) {
  if (op == "sum") return {"0L", "{} + {}"};
  if (op == "product") return {"1L", "{} * {}"};
  if (op == "max") return {"(-9223372036854775807L - 1)", "({0} > {1} ? {0} : {1})"};
  if (op == "min") return {"9223372036854775807L", "({0} < {1} ? {0} : {1})"};
  throw Unsupported("a scan of integers with " + op);
}

std::string CppCombined(const CppScanOp& op, const std::string& a, const std::string& b) {
  return fmt::format(fmt::runtime(op.combine), a, b);
}

// The element that comes at `position` of the scan.
ExprPtr CppAlong(const Scan& work, const ExprPtr& position) {
  return work.reverse ? AddInt(Int(work.along.extent - 1), Scaled(position, -1)) : position;
}

// The scan with the direction written into the expressions: it always goes upwards, along `position`.
Scan CppForwards(const Scan& work, int position) {
  Scan forwards = work;
  const ExprPtr along = CppAlong(work, Variable(position, work.along.extent));
  const auto replace = [&](const Expr& node) -> ExprPtr {
    return node.op == "variable" && node.id == work.along.variable ? along : nullptr;
  };
  forwards.value = Substitute(work.value, replace);
  for (Store& store : forwards.stores) {
    store.offset = Substitute(store.offset, replace);
    store.value = Substitute(store.value, replace);
    if (store.guard) store.guard = Substitute(store.guard, replace);
  }
  forwards.along.variable = position;
  forwards.reverse = false;
  return forwards;
}

// Lanes along the scan.
void CppScanRows(const Scan& work, const CppScanOp& op, CppStage& stage) {
  CppPrinter print(stage);
  const int scopes = CppOpenParallel(print, stage, work.outer);
  const std::string carry = print.Fresh("carry");
  print.Line(fmt::format("float {} = {};", carry, op.start));
  CppOpenWalk(print, work.along.variable, 1, "0", stage.Number(work.along.extent));
  const std::string value = print.Lanes(ToType(work.value, Type::kFloat));
  const std::string run = print.Fresh("run");
  print.Line(
      fmt::format("const auto fold{} = [](Vec a, Vec b) {{ return {}; }};", run, CppCombined(op, "a", "b")));
  print.Line(
      fmt::format("const Vec {0}_in = ScanLanes(part.Keep({1}, {2}), {2}, fold{0});", run, value, op.start));
  print.Line(fmt::format("const Vec {0}_all = {1};", run,
                         CppCombined(op, fmt::format("Splat({})", carry), run + "_in")));
  if (work.exclusive) {
    print.Line(fmt::format(
        "const Vec {0}_before = Shifted<1>({0}_all, {1}, std::make_integer_sequence<int, kLanes>{{}});", run,
        carry));
  }
  print.Line(fmt::format("{} = {}_all[kLanes - 1];", carry, run));
  print.BindResult(0, run + (work.exclusive ? "_before" : "_all"), true);
  for (const Store& store : work.stores) print.Store(store);
  print.Close("});");
  print.CloseAll(scopes);
  stage.body = print.Text();
}

// Lanes across rows, or (lanes < 0) one row at a time.
void CppScanAcross(const Scan& work, const CppScanOp& op, int lanes, CppStage& stage) {
  CppPrinter print(stage);
  std::vector<Loop> others = work.outer;
  Loop across{0, 1};
  if (lanes >= 0) {
    across = others[static_cast<size_t>(lanes)];
    others.erase(others.begin() + lanes);
  }
  constexpr int64_t kStrip = 256;
  const int64_t strip = std::min<int64_t>((across.extent + 15) / 16 * 16, kStrip);
  std::string begin, end;
  const int scopes = lanes >= 0 ? CppOpenPieces(print, stage, others, across.extent, strip, begin, end)
                                : CppOpenParallel(print, stage, others);
  const std::string carry = print.Fresh("carry"), next = print.Fresh("next");
  if (lanes >= 0) {
    print.Line(fmt::format("alignas(64) float {}[{}];", carry, strip));
    print.Line(fmt::format("for (long j = 0; j < {}; ++j) {}[j] = {};", strip, carry, op.start));
  } else {
    print.Line(fmt::format("float {} = {};", carry, op.start));
  }
  const int serial = print.OpenLoops({work.along});
  print.Open("");
  if (lanes >= 0) {
    CppOpenWalk(print, across.variable, 1, begin, end);
    const std::string lane = fmt::format("{} - {}", print.Scalar0(across), begin);
    const std::string value = print.Lanes(ToType(work.value, Type::kFloat));
    print.Line(fmt::format("const Vec {}_old = LoadVec({} + ({}));", next, carry, lane));
    print.Line(fmt::format("const Vec {} = {};", next, CppCombined(op, next + "_old", value)));
    print.Line(fmt::format("StoreVec({} + ({}), {});", carry, lane, next));
  } else {
    const std::string value = print.Scalar(ToType(work.value, Type::kFloat));
    print.Line(fmt::format("const float {}_old = {};", next, carry));
    print.Line(fmt::format("const float {} = {};", next, CppCombined(op, next + "_old", value)));
    print.Line(fmt::format("{} = {};", carry, next));
  }
  print.BindResult(0, work.exclusive ? next + "_old" : next, lanes >= 0);
  for (const Store& store : work.stores) print.Store(store);
  if (lanes >= 0) print.Close("});");
  print.Close();
  print.CloseAll(serial);
  print.CloseAll(scopes);
  stage.body = print.Text();
}

// Whole numbers: along one row, or (across >= 0) along a strip of neighbouring rows at once.
void CppScanIntegers(const Scan& work, int across, CppStage& stage) {
  const CppScanOp op = CppIntegerScanOpOf(work.op);
  CppPrinter print(stage);
  std::vector<Loop> others = work.outer;
  Loop strip_loop{0, 1};
  if (across >= 0) {
    strip_loop = others[static_cast<size_t>(across)];
    others.erase(others.begin() + across);
  }
  constexpr int64_t kStrip = 256;
  const int64_t strip = std::min(strip_loop.extent, kStrip);
  std::string begin, end;
  const int scopes = across >= 0 ? CppOpenPieces(print, stage, others, strip_loop.extent, kStrip, begin, end)
                                 : CppOpenParallel(print, stage, others);
  const std::string carry = print.Fresh("carry"), next = print.Fresh("next"), row = print.Fresh("row");
  print.Line(fmt::format("long {}[{}];", carry, strip));
  print.Line(fmt::format("for (long j = 0; j < {}; ++j) {}[j] = {};", strip, carry, op.start));
  const int serial = print.OpenLoops({work.along});
  std::string at = "0";
  if (across >= 0) {
    print.Open(fmt::format("for (long {0} = {1}; {0} < {2}; ++{0})", row, begin, end));
    print.Bind(strip_loop.variable, row);
    at = fmt::format("{} - {}", row, begin);
  } else {
    print.Open("");
  }
  const std::string value = print.Scalar(work.value);
  print.Line(fmt::format("const long {}_old = {}[{}];", next, carry, at));
  print.Line(fmt::format("const long {} = {};", next, CppCombined(op, next + "_old", value)));
  print.Line(fmt::format("{}[{}] = {};", carry, at, next));
  print.BindResult(0, work.exclusive ? next + "_old" : next, false);
  for (const Store& store : work.stores) print.Store(store);
  print.Close();
  print.CloseAll(serial);
  print.CloseAll(scopes);
  stage.body = print.Text();
}

}  // namespace

void CppScan(const Scan& original, CppStage& stage) {
  int next = kCppFirstVariable;
  Scan work = CppForwards(original, next++);
  std::vector<ExprPtr*> exprs = {&work.value};
  CppAddPointers(work.stores, exprs);
  CppJoinLoops(work.outer, exprs, next);
  std::vector<ExprPtr> values = CppValues(work.stores);
  values.push_back(work.value);
  int lanes = -1;
  double best = 0.5;
  for (size_t i = 0; i < work.outer.size(); ++i) {
    const double filled = std::min(1.0, static_cast<double>(work.outer[i].extent) / 16);
    const double score = CppLaneScore(values, work.stores, work.outer[i].variable) * filled;
    if (score < best) continue;
    best = score;
    lanes = static_cast<int>(i);
  }
  const double along = CppLaneScore(values, work.stores, work.along.variable);
  if (original.value->type == Type::kInt) return CppScanIntegers(work, along > best ? -1 : lanes, stage);
  const CppScanOp op = CppScanOpOf(original.op);
  if (along > best || (lanes < 0 && along > 0)) return CppScanRows(work, op, stage);
  CppScanAcross(work, op, lanes, stage);
}

}  // namespace kevin::search
