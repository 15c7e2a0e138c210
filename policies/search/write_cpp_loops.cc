// Which loops a stage has in C++, and in which order.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "policies/search/cpp_text.h"
#include "policies/search/stage_parts.h"

namespace kevin::search {
namespace {

constexpr int64_t kJobsOfThread = 16;  // so that a thread that starts late, or is interrupted, does fewer

// Divisions by a loop's variable.
int CppDivisions(const std::vector<ExprPtr*>& exprs, const std::set<int>& variables) {
  int count = 0;
  for (const ExprPtr* expr : exprs) {
    for (const Expr* node : Nodes(*expr)) {
      if (node->op != "div" && node->op != "mod") continue;
      for (const int variable : variables) count += Uses(node->args[0], variable);
    }
  }
  return count;
}

bool CppTryJoin(const Loop& first, const Loop& second, const Loop& joined,
                const std::vector<ExprPtr*>& exprs) {
  bool is_apart = false, is_divided = false;
  for (const ExprPtr* expr : exprs) {
    const LoopPairUse use = UseOfLoopPair(*expr, first, second);
    is_apart = is_apart || use.is_apart;
    is_divided = is_divided || use.is_divided;
  }
  if (!is_divided) {  // where they are apart, joined ones would be divided
    const Replacement pair = JoinedPair(first, second, joined.variable);
    if (!is_apart) {
      for (ExprPtr* expr : exprs) *expr = Replace(*expr, pair);
    }
    return !is_apart;
  }
  const ExprPtr both = Variable(joined.variable, joined.extent);
  const ExprPtr outer = DivInt(both, second.extent), inner = ModInt(both, second.extent);
  const auto replace = [&](const Expr& node) -> ExprPtr {
    if (node.op != "variable") return nullptr;
    return node.id == first.variable ? outer : node.id == second.variable ? inner : nullptr;
  };
  std::vector<ExprPtr> rewritten;
  for (const ExprPtr* expr : exprs) rewritten.push_back(Substitute(*expr, replace));
  std::vector<ExprPtr*> pointers;
  for (ExprPtr& expr : rewritten) pointers.push_back(&expr);
  if (CppDivisions(pointers, {joined.variable}) > CppDivisions(exprs, {first.variable, second.variable}))
    return false;
  for (size_t i = 0; i < exprs.size(); ++i) *exprs[i] = rewritten[i];
  return true;
}

}  // namespace

int64_t CppCount(const std::vector<Loop>& loops) {
  int64_t count = 1;
  for (const Loop& loop : loops) count *= loop.extent;
  return count;
}

void CppJoinLoops(std::vector<Loop>& loops, const std::vector<ExprPtr*>& exprs, int& next_variable) {
  std::erase_if(loops, [](const Loop& loop) { return loop.extent == 1; });
  for (size_t i = loops.size(); i-- > 1;) {
    const Loop joined{next_variable, loops[i - 1].extent * loops[i].extent};
    if (!CppTryJoin(loops[i - 1], loops[i], joined, exprs)) continue;
    ++next_variable;
    loops[i - 1] = joined;
    loops.erase(loops.begin() + static_cast<long>(i));
  }
}

double CppLaneScore(const std::vector<ExprPtr>& values, const std::vector<Store>& stores, int variable) {
  double score = 0, count = 0;
  const auto add = [&](const ExprPtr& offset, double weight) {
    const std::optional<int64_t> stride = StrideOf(offset, variable);
    score += weight * (!stride ? -1.0 : *stride == 1 ? 1.0 : *stride == 0 ? 0.5 : *stride == 2 ? 0.2 : -0.5);
    count += weight;
  };
  std::set<std::string> seen;
  for (const ExprPtr& value : values) {
    for (const Expr* node : Nodes(value)) {
      if (node->op == "load" && seen.insert(node->key).second) add(node->args[0], 1);
    }
  }
  for (const search::Store& store : stores) add(store.offset, 1.5);
  return count == 0 ? 0 : score / count;
}

std::vector<ExprPtr> CppValues(const std::vector<Store>& stores) {
  std::vector<ExprPtr> values;
  for (const search::Store& store : stores) {
    values.push_back(store.value);
    if (store.guard) values.push_back(store.guard);
  }
  return values;
}

void CppAddPointers(std::vector<Store>& stores, std::vector<ExprPtr*>& exprs) {
  for (search::Store& store : stores) {
    exprs.push_back(&store.offset);
    exprs.push_back(&store.value);
    if (store.guard) exprs.push_back(&store.guard);
  }
}

void CppOpenJobs(CppPrinter& print, const std::string& count, const std::string& job,
                 const std::string& at_once) {
  const std::string jobs = print.Fresh("jobs");
  print.Open(fmt::format("for (Jobs {0}(worker, {1}, {2}); {0}.Take();)", jobs, count, at_once));
  print.Open(fmt::format("for (long {0} = {1}.begin; {0} < {1}.end; ++{0})", job, jobs));
}

int64_t CppPiece(int64_t extent, int64_t jobs, int64_t least, int64_t most, int threads) {
  const int64_t wanted = (kJobsOfThread * threads + jobs - 1) / jobs;
  const int64_t piece = std::max((extent + wanted - 1) / wanted, least);
  const int64_t limited = std::min(std::max<int64_t>(64, most), piece);
  return limited >= extent ? extent : (limited + 63) / 64 * 64;
}

int CppOpenParallel(CppPrinter& print, const CppStage& stage, const std::vector<Loop>& loops) {
  const int64_t enough = kJobsOfThread * std::max(1, stage.task.threads);
  size_t shared = 0;
  int64_t count = 1;
  while (shared < loops.size() && count < enough) count *= loops[shared++].extent;
  const std::string job = print.Fresh("job");
  CppOpenJobs(print, stage.Number(count), job, stage.Number(std::max<int64_t>(1, count / enough)));
  int64_t below = 1;
  for (size_t i = shared; i-- > 0;) {
    if (loops[i].extent == 1) {
      print.Bind(loops[i].variable, "0");
      continue;
    }
    std::string digit = below == 1 ? job : fmt::format("{} / {}", job, stage.Number(below));
    below *= loops[i].extent;
    if (below < count) digit = fmt::format("{} % {}", digit, stage.Number(loops[i].extent));
    if (digit != job) {
      const std::string name = print.Fresh("v");
      print.Line(fmt::format("const long {} = {};", name, digit));
      digit = name;
    }
    print.Bind(loops[i].variable, digit);
  }
  return 2 + print.OpenLoops({loops.begin() + static_cast<long>(shared), loops.end()});
}

}  // namespace kevin::search
