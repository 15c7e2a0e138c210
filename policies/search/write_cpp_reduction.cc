// Reductions in C++: which way, and what the ways share.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_reduction.h"
#include "policies/search/forwarding.h"

namespace kevin::search {
namespace {

constexpr int64_t kCppSplitTerms = 1 << 14;  // from here on, few rows are shared by the threads
constexpr int64_t kCppWindowTerms = 128;     // up to here, a window's terms stay in registers

// The best loop for the lanes among `loops`, and its score.
std::pair<size_t, double> CppBestOf(const std::vector<Loop>& loops, const std::vector<ExprPtr>& values,
                                    const std::vector<Store>& stores) {
  size_t best = 0;
  double best_score = -10;
  for (size_t i = loops.size(); i-- > 0;) {
    const double filled = std::min(1.0, static_cast<double>(loops[i].extent) / 16);
    const double score = (CppLaneScore(values, stores, loops[i].variable) + 1) * filled;
    if (score > best_score + 1e-9) {
      best = i;
      best_score = score;
    }
  }
  return {best, best_score};
}

bool CppIsScalar(const Reduction& work) {
  return std::any_of(work.accumulators.begin(), work.accumulators.end(), [](const Accumulator& one) {
    const bool is_arithmetic = one.op == "sum" || one.op == "product" || one.op == "max" || one.op == "min";
    return is_arithmetic && one.value->type == Type::kInt;
  });
}

// Whether the terms of a row lie far apart, so that a walk over many at once would find few of them in the caches.
bool CppIsSpread(const Reduction& work) {
  constexpr int64_t kFar = 1024, kMany = 16;
  for (const Accumulator& one : work.accumulators) {
    for (const Expr* node : Nodes(one.value)) {
      if (node->op != "load") continue;
      int64_t far = 1;
      for (const Loop& loop : work.inner)
        far *= std::abs(StrideOf(node->args[0], loop.variable).value_or(0)) >= kFar ? loop.extent : 1;
      if (far > kMany) return true;
    }
  }
  return false;
}

}  // namespace

std::string CppFold::Combine(const std::string& a, const std::string& b) const {
  return name.empty() ? fmt::format("{} {} {}", a, sign, b) : fmt::format("{}({}, {})", name, a, b);
}

CppFold CppFoldOf(const Accumulator& accumulator) {
  const std::string& op = accumulator.op;
  CppFold fold;
  if (op == "sum") return {"0.0f", false, false, "", "+"};
  if (op == "product") return {"1.0f", false, false, "", "*"};
  if (op == "any") return {"0.0f", false, true, "Max", ""};
  if (op == "all") return {"1.0f", false, true, "Min", ""};
  const bool is_max = op == "max" || op == "argmax";
  fold.start = is_max ? "(-__builtin_inff())" : "__builtin_inff()";
  fold.name = is_max ? "NanMax" : "NanMin";
  fold.is_argument = op == "argmax" || op == "argmin";
  if (fold.is_argument) fold.name = is_max ? "TakeLarger" : "TakeSmaller";
  return fold;
}

ExprPtr CppFolded(const Accumulator& accumulator) { return ToType(accumulator.value, Type::kFloat); }

int CppSteps(const Reduction& work) {
  int steps = 0;
  for (const Accumulator& one : work.accumulators) steps = std::max(steps, one.step + 1);
  return steps;
}

std::string CppResultText(const CppFold& fold, const std::string& value, bool lanes) {
  if (fold.is_truth) return fmt::format("({} != 0.0f)", value);
  return fold.is_argument && !lanes ? fmt::format("long({})", value) : value;
}

void CppScalarReduction(const Reduction& work, CppStage& stage) {
  CppPrinter print(stage);
  const int scopes = CppOpenParallel(print, stage, work.outer);
  for (int step = 0; step < CppSteps(work); ++step) {
    std::vector<std::string> names;
    for (const Accumulator& one : work.accumulators) {
      if (one.step != step) continue;
      const CppFold fold = CppFoldOf(one);
      names.push_back(print.Fresh("acc"));
      const bool is_int = one.value->type == Type::kInt && !fold.is_argument;
      const std::string start = one.op == "max"   ? "-__LONG_MAX__ - 1"
                                : one.op == "min" ? "__LONG_MAX__"
                                                  : (one.op == "product" ? "1" : "0");
      print.Line(
          fmt::format("{} {} = {};", is_int ? "long" : "float", names.back(), is_int ? start : fold.start));
      if (fold.is_argument) print.Line(fmt::format("long {}_at = 0;", names.back()));
    }
    const int inner = print.OpenLoops(work.inner);
    size_t at = 0;
    for (const Accumulator& one : work.accumulators) {
      if (one.step != step) continue;
      const CppFold fold = CppFoldOf(one);
      const std::string& name = names[at++];
      const bool is_int = one.value->type == Type::kInt && !fold.is_argument;
      const std::string value = print.Scalar(is_int ? one.value : CppFolded(one));
      if (fold.is_argument) {
        print.Line(fmt::format("if ({0} == {0} && ({1} {2} {0} || {1} != {1})) {0} = {1}, {0}_at = {3};",
                               name, value, one.op == "argmax" ? ">" : "<",
                               print.Scalar(LinearOf(work.inner))));
      } else if (is_int && (one.op == "max" || one.op == "min")) {
        print.Line(fmt::format("{0} = {1} {2} {0} ? {1} : {0};", name, value, one.op == "max" ? ">" : "<"));
      } else {
        print.Line(fmt::format("{} = {};", name, fold.Combine(name, value)));
      }
    }
    print.CloseAll(inner);
    at = 0;
    for (const Accumulator& one : work.accumulators) {
      if (one.step != step) continue;
      const CppFold fold = CppFoldOf(one);
      const std::string& name = names[at++];
      print.BindResult(one.result, fold.is_argument ? name + "_at" : CppResultText(fold, name, false), false);
    }
  }
  for (const Store& store : work.outer_stores) print.Store(store);
  if (!work.inner_stores.empty()) {
    const int inner = print.OpenLoops(work.inner);
    for (const Store& store : work.inner_stores) print.Store(store);
    print.CloseAll(inner);
  }
  print.CloseAll(scopes);
  stage.body = print.Text();
}

void CppReduction(const Reduction& original, CppStage& stage) {
  Reduction work = original;
  int next = kCppFirstVariable;
  std::vector<ExprPtr*> exprs;
  for (Accumulator& one : work.accumulators) exprs.push_back(&one.value);
  CppAddPointers(work.outer_stores, exprs);
  CppAddPointers(work.inner_stores, exprs);
  CppJoinLoops(work.outer, exprs, next);
  CppJoinLoops(work.inner, exprs, next);
  if (work.outer.empty()) work.outer.push_back({next++, 1});
  if (work.inner.empty()) work.inner.push_back({next++, 1});
  if (CppIsScalar(work)) return CppScalarReduction(work, stage);
  std::vector<ExprPtr> inner_values, outer_values;
  for (const Accumulator& one : work.accumulators) inner_values.push_back(one.value);
  outer_values = inner_values;
  for (const ExprPtr& value : CppValues(work.inner_stores)) inner_values.push_back(value);
  for (const ExprPtr& value : CppValues(work.outer_stores)) outer_values.push_back(value);
  std::vector<Store> stores = work.inner_stores;
  const auto [inner_lanes, inner_score] = CppBestOf(work.inner, inner_values, stores);
  stores.insert(stores.end(), work.outer_stores.begin(), work.outer_stores.end());
  const auto [outer_lanes, outer_score] = CppBestOf(work.outer, outer_values, stores);
  const int64_t rows = CppCount(work.outer), terms = CppCount(work.inner);
  const bool along_rows = inner_score >= outer_score || rows == 1;
  if (along_rows && rows < 2 * stage.task.threads && rows % stage.task.threads != 0 &&
      terms >= kCppSplitTerms)
    return CppSplitRows(work, inner_lanes, stage);
  if (along_rows) return CppRows(work, inner_lanes, stage);
  if (terms <= kCppWindowTerms && !CppIsSpread(work)) return CppWindows(work, outer_lanes, stage);
  CppColumns(work, outer_lanes, stage);
}

}  // namespace kevin::search
