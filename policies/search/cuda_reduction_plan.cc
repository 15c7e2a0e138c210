#include <algorithm>
#include <map>

#include "policies/search/cuda_reduction.h"

namespace kevin::search {
namespace {

constexpr int64_t kMostParts = 65535;  // of a grid's second dimension
constexpr int64_t kFewTerms = 128;     // so few that one thread folds them
// Of kept values in a thread: a block of 1024 has 64 registers a thread.
int64_t MostRegisters(int64_t threads) { return threads >= 1024 ? 32 : 64; }

bool IsPositional(const Reduction& work) {
  return std::any_of(work.accumulators.begin(), work.accumulators.end(),
                     [](const Accumulator& a) { return a.op == "argmax" || a.op == "argmin"; });
}

std::vector<ExprPtr> ExprsOf(const Reduction& work) {
  std::vector<ExprPtr> exprs;
  for (const Accumulator& accumulator : work.accumulators) exprs.push_back(accumulator.value);
  for (const Store& store : work.inner_stores)
    exprs.insert(exprs.end(), {store.value, store.guard, store.offset});
  return exprs;
}

// Bytes that lie side by side along each loop.
std::map<int, int64_t> AdjacentBytes(const CudaText& text, const Reduction& work) {
  std::map<int, int64_t> bytes;
  const auto add = [&](int buffer, const ExprPtr& offset) {
    for (const std::vector<Loop>* loops : {&work.outer, &work.inner}) {
      for (const Loop& loop : *loops) {
        if (StrideOf(offset, loop.variable) != 1) continue;
        int64_t depends = 1;  // an operand that is small counts little
        for (const std::vector<Loop>* others : {&work.outer, &work.inner}) {
          for (const Loop& other : *others) depends *= Uses(offset, other.variable) ? other.extent : 1;
        }
        bytes[loop.variable] += depends * text.ElementBytes(buffer);
      }
    }
  };
  for (const CudaLoad& load : LoadsOf(ExprsOf(work))) add(load.load->id, load.load->args[0]);
  for (const Store& store : work.inner_stores) add(store.buffer, store.offset);
  return bytes;
}

void MoveBestLast(std::vector<Loop>& loops, std::map<int, int64_t>& bytes) {
  const auto best = std::max_element(loops.begin(), loops.end(), [&](const Loop& a, const Loop& b) {
    return bytes[a.variable] < bytes[b.variable];
  });
  if (best != loops.end() && bytes[best->variable] > bytes[loops.back().variable]) {
    const Loop moved = *best;
    loops.erase(best);
    loops.push_back(moved);
  }
}

void PackReduction(Reduction& work, bool columns, int64_t width) {
  std::vector<Loop>& loops = columns ? work.outer : work.inner;
  const Loop last = loops.back();
  const auto pack = [&](ExprPtr& expr) { expr = InPacks(expr, last, width, kNeighbour); };
  for (Accumulator& accumulator : work.accumulators) pack(accumulator.value);
  for (std::vector<Store>* stores : {&work.outer_stores, &work.inner_stores}) {
    for (Store& store : *stores) pack(store.offset), pack(store.value), pack(store.guard);
  }
  loops.back().extent /= width;
}

// The widest pack for which no access that could be packed falls apart.
int64_t WidthFor(const CudaText& text, const Reduction& work, bool columns) {
  const std::vector<Loop>& loops = columns ? work.outer : work.inner;
  if (loops.empty()) return 1;
  int64_t best = 1, narrowest = 4;
  const std::vector<CudaLoad> loads = LoadsOf(ExprsOf(work));
  for (const CudaLoad& load : loads)
    narrowest = std::min<int64_t>(narrowest, text.ElementBytes(load.load->id));
  const int64_t most = columns ? 4 : 16 / std::max<int64_t>(2, narrowest);
  for (int64_t width = 2; width <= most; width *= 2) {
    if (loops.back().extent % width != 0) break;
    int64_t packed = 0, apart = 0;
    const auto add = [&](int buffer, const ExprPtr& offset, const ExprPtr& condition) {
      const ExprPtr at = InPacks(offset, loops.back(), width, kNeighbour),
                    inside = InPacks(condition, loops.back(), width, kNeighbour);
      const Neighbours neighbours =
          NeighboursOf(text.program().buffers.at(buffer), at, inside, kNeighbour, width);
      packed += neighbours == Neighbours::kPack;
      apart += neighbours == Neighbours::kEach;
    };
    for (const CudaLoad& load : loads) add(load.load->id, load.load->args[0], load.condition);
    for (const Store& store : work.inner_stores) add(store.buffer, store.offset, store.guard);
    if (packed > apart) best = width;
  }
  return best;
}

int64_t PowerAtLeast(int64_t count, int64_t low, int64_t high) {
  int64_t power = low;
  while (power < high && power < count) power *= 2;
  return power;
}

// Values that more than one pass reads, in registers of a thread for one pack.
int64_t KeptRegisters(const Reduction& work, bool columns, int64_t width) {
  std::map<std::string, int> passes;
  for (const std::vector<CudaLoad>& pass : PassLoads(work, columns)) {
    for (const CudaLoad& load : pass) ++passes[load.load->key];
  }
  int64_t kept = 0;
  for (const auto& [key, count] : passes) kept += count > 1 ? width : 0;
  return kept;
}

// Three forms for all sizes.
void PlanFewForms(int64_t packs, int64_t kept, CudaReductionPlan& plan) {
  constexpr int64_t kEach = 8;
  plan.cluster = 1;
  plan.group = packs <= 32 * kEach ? 32 : packs <= 256 * kEach ? 256 : 1024;
  plan.threads = std::max<int64_t>(plan.group, 256);
  plan.each = kEach;
  const bool fits = packs <= plan.group * kEach && kept * kEach <= MostRegisters(plan.threads);
  plan.keep = kept > 0 && fits ? CudaReductionPlan::Keep::kRegisters : CudaReductionPlan::Keep::kNo;
}

void PlanRows(const CudaText& text, const Reduction& work, int64_t outer, int64_t packs,
              CudaReductionPlan& plan) {
  const int64_t processors = text.device().multiprocessors, room = processors * 2048;
  const int64_t kept = KeptRegisters(work, plan.columns, plan.width);
  int64_t group = PowerAtLeast((packs + 3) / 4, 1, 1024);
  // Few rows: more threads for each.
  while (group < 1024 && group < packs && outer * group < room / 2) group *= 2;
  if (kept > 0 && packs * kept <= 1024 * MostRegisters(1024)) {
    while (group < 1024 && packs * kept > group * 32) group *= 2;
    plan.keep = CudaReductionPlan::Keep::kRegisters;
  } else if (kept > 0) {
    const int64_t most = HasCudaClusters(text.device()) ? 8 : 1;
    while (plan.cluster < most && (plan.cluster == 1 || packs * kept > plan.cluster * 1024 * 32))
      plan.cluster *= 2;
    const int64_t part = (packs + plan.cluster - 1) / plan.cluster;
    const int64_t bytes = part * kept * 4 + 4096;
    group = 1024;
    if (part * kept <= 1024 * 32) {
      plan.keep = CudaReductionPlan::Keep::kRegisters;
    } else if (bytes <= text.device().block_shared_bytes) {
      plan.keep = CudaReductionPlan::Keep::kShared;
    } else {
      plan.cluster = 1;
    }
  }
  plan.group = group;
  plan.threads = group > 32 ? group : outer * group >= room ? 256 : 64;
  plan.each = std::clamp<int64_t>((packs + group - 1) / group, 1, plan.width >= 4 ? 4 : 8);
  // A few forms for all sizes, so that equal stages of other sizes have one kernel.
  if (text.shares() && plan.cluster == 1 && packs <= 2048 && outer * 32 >= room / 32) {
    const int64_t few = packs <= 256 ? 32 : 256;
    if (kept * 8 <= 64 || plan.keep == CudaReductionPlan::Keep::kNo) {
      plan.group = few, plan.threads = 256;
      plan.each = packs <= 2 * few ? 2 : 8;
    }
  }
  if (text.sharing() == CudaSharing::kForms) PlanFewForms(packs, kept, plan);
  if (plan.cluster == 1 && outer * 2 <= processors && packs >= 4096) {
    const int64_t wanted = (4 * processors + outer - 1) / outer;
    plan.parts = std::clamp<int64_t>(std::min(wanted, packs / 1024), 1, kMostParts);
    if (plan.parts > 1) {
      plan.keep = CudaReductionPlan::Keep::kNo;
      plan.group = plan.threads = 256;
      plan.each = 4;
    }
  }
}

// Windows that lie side by side, with whole rows of them for each group: no divisions, and all loads at once.
void PlanAcross(const CudaText& text, const Reduction& work, int64_t outer, CudaReductionPlan& plan) {
  constexpr int64_t kFewest = 3, kMostRows = 16;
  if (plan.parts > 1 || plan.cluster > 1 || plan.keep != CudaReductionPlan::Keep::kNo || plan.width > 1)
    return;
  if (work.inner.size() < 2 || !work.inner_stores.empty() || LastStep(work) > 0) return;
  if (IsWideCudaCount(Points(work.inner))) return;
  const int64_t run = work.inner.back().extent, rows = work.inner[work.inner.size() - 2].extent;
  const int64_t group = PowerAtLeast(run, 1, 64);
  if (run < kFewest || group > 32 || rows > kMostRows ||
      outer * group < int64_t{2048} * text.device().multiprocessors)
    return;
  plan.across = true;
  plan.group = group, plan.each = rows, plan.threads = 256;
}

void PlanColumns(const CudaText& text, const Reduction& work, int64_t outer, int64_t packs,
                 CudaReductionPlan& plan) {
  const int64_t processors = text.device().multiprocessors, room = processors * 2048;
  plan.threads = 256;
  plan.group = 1;
  while (plan.group < 32 && plan.group * 8 <= packs && outer * plan.group < room) plan.group *= 2;
  while (plan.threads > 64 && plan.threads > plan.group * 8 && outer * plan.group < plan.threads * processors)
    plan.threads /= 2;
  // Long columns of one thread each make few blocks that all take long: at the end most multiprocessors would wait for
  // the last ones. Threads share columns; 128 neighbours still read whole lines of memory.
  constexpr int64_t kLongColumn = 2048, kRounds = 8;
  while (plan.group < 8 && packs / plan.group >= kLongColumn && outer * plan.group >= room &&
         outer * plan.group < kRounds * room) {
    plan.group *= 2;
    plan.threads = 128 * plan.group;
  }
  const int64_t kept = KeptRegisters(work, true, plan.width);
  // What is read again stays in registers, if several threads share a column.
  if (kept > 0 && packs * kept <= 16 * 64) {
    while (plan.group < 16 && packs * kept > plan.group * 32) plan.group *= 2;
  }
  plan.each =
      packs <= kFewTerms / 2 && plan.group == 1 ? packs : std::clamp<int64_t>(packs / plan.group, 1, 8);
  if (plan.group == 1 && packs > plan.each && work.inner.size() > 1 && work.inner.back().extent <= 16 &&
      !IsWideCudaCount(packs)) {
    plan.nested = true;
    plan.each = work.inner.back().extent;
  }
  const int64_t blocks = std::max<int64_t>(1, outer * plan.group / plan.threads);
  if (blocks * 2 <= processors && packs >= 64 * plan.group)
    plan.parts = std::clamp<int64_t>(
        std::min((4 * processors + blocks - 1) / blocks, packs / (16 * plan.group)), 1, kMostParts);
  const int64_t deep = (packs + plan.group - 1) / plan.group;
  if (plan.parts > 1) plan.nested = false;
  if (plan.parts == 1 && !plan.nested && kept > 0 && deep * kept <= 64)
    plan.keep = CudaReductionPlan::Keep::kRegisters;
}

}  // namespace

int LastStep(const Reduction& work) {
  int last = 0;
  for (const Accumulator& accumulator : work.accumulators) last = std::max(last, accumulator.step);
  return last;
}

std::vector<std::vector<CudaLoad>> PassLoads(const Reduction& work, bool columns) {
  std::vector<std::vector<ExprPtr>> exprs(static_cast<size_t>(LastStep(work)) + 2);
  for (const Accumulator& accumulator : work.accumulators)
    exprs[static_cast<size_t>(accumulator.step)].push_back(accumulator.value);
  for (const Store& store : work.inner_stores)
    exprs.back().insert(exprs.back().end(), {store.value, store.guard, store.offset});
  std::vector<std::vector<CudaLoad>> passes;
  for (const std::vector<ExprPtr>& pass : exprs) {
    passes.emplace_back();
    for (const CudaLoad& load : LoadsOf(pass)) {
      bool is_inner = false, needs_result = false;
      for (const ExprPtr& part : {load.load->args[0], load.condition}) {
        if (!part) continue;
        ForEachNode(part, [&](const Expr& node) {
          needs_result |= node.op == "result";
          if (node.op != "variable") return;
          for (const Loop& loop : work.inner) is_inner |= node.id == loop.variable;
          is_inner |= !columns && node.id == kNeighbour;
        });
      }
      if (is_inner && !needs_result) passes.back().push_back(load);
    }
  }
  return passes;
}

CudaPlannedReduction PlanCudaReduction(const CudaText& text, const Reduction& whole) {
  CudaPlannedReduction planned;
  planned.work = whole;
  Reduction& work = planned.work;
  std::map<int, int64_t> bytes = AdjacentBytes(text, work);
  if (!IsPositional(work)) MoveBestLast(work.inner, bytes);
  MoveBestLast(work.outer, bytes);
  const int64_t outer = Points(work.outer), inner = Points(work.inner);
  const int64_t along_inner = work.inner.empty() ? 0 : bytes[work.inner.back().variable];
  const int64_t along_outer = work.outer.empty() ? 0 : bytes[work.outer.back().variable];
  CudaReductionPlan& plan = planned.plan;
  // Windows: neighbouring outer points read neighbouring elements, with a small stride.
  bool is_window = false, overlaps = false;
  if (!work.outer.empty() && inner <= kFewTerms) {
    for (const CudaLoad& load : LoadsOf(ExprsOf(work))) {
      const std::optional<int64_t> stride = StrideOf(load.load->args[0], work.outer.back().variable);
      const bool uses_inner = std::any_of(work.inner.begin(), work.inner.end(), [&](const Loop& loop) {
        return Uses(load.load->args[0], loop.variable);
      });
      is_window |= uses_inner && stride && *stride >= 1 && *stride <= 4 && *stride < inner &&
                   (work.inner.size() > 1 || *stride < work.inner.back().extent);
      overlaps |= uses_inner && stride == 1;
    }
  }
  const bool is_tiny = inner <= 4 && outer >= 1024;
  plan.columns = !work.outer.empty() && (is_window || is_tiny || along_outer > along_inner || inner == 1);
  plan.width = WidthFor(text, work, plan.columns);
  if (plan.columns && is_window) {
    // Neighbours of one thread share what they load.
    plan.width = 1;
    while (overlaps && plan.width < 4 && work.outer.back().extent % (plan.width * 2) == 0) plan.width *= 2;
  }
  if (plan.width > 1) PackReduction(work, plan.columns, plan.width);
  planned.outer = Points(work.outer);
  planned.packs = Points(work.inner);
  if (plan.columns) {
    PlanColumns(text, work, planned.outer, planned.packs, plan);
  } else {
    PlanRows(text, work, planned.outer, planned.packs, plan);
    PlanAcross(text, work, planned.outer, plan);
  }
  return planned;
}

bool HasCudaGroupKnob(const CudaReductionPlan& plan) {
  return plan.group > 1 && plan.parts == 1 && plan.cluster == 1 && !plan.across;
}

std::vector<Knob> CudaReductionKnobs(const CudaText& text, const Reduction& work) {
  const CudaPlannedReduction planned = PlanCudaReduction(text, work);
  const CudaReductionPlan& plan = planned.plan;
  std::vector<Knob> knobs;
  if (HasCudaGroupKnob(plan)) {
    Knob group{"GROUP", {plan.group}, true, "threads that share a result"};
    const int64_t most = plan.columns ? 32 : 1024;
    for (const int64_t value :
         {plan.group * 2, plan.group / 2, plan.group * 4, plan.columns ? plan.group / 4 : 0}) {
      if (value >= 1 && value <= most && value <= 2 * planned.packs) group.values.push_back(value);
    }
    if (group.values.size() > 1) knobs.push_back(group);
  }
  if (plan.parts > 1) {
    Knob parts{"PARTS", {plan.parts}, true, "blocks that share a result"};
    for (const int64_t value : {plan.parts * 2, plan.parts / 2, plan.parts / 4}) {
      if (value > 1 && value <= kMostParts && value * plan.group * plan.each <= planned.packs)
        parts.values.push_back(value);
    }
    if (parts.values.size() > 1) knobs.push_back(parts);
  }
  if (plan.columns || plan.group <= 32 || plan.parts > 1) {
    Knob threads{"THREADS", {plan.threads}, true, "threads of a block"};
    for (const int64_t value : {64, 128, 256, 512}) {
      if (value != plan.threads) threads.values.push_back(value);
    }
    knobs.push_back(threads);
  }
  if (plan.keep != CudaReductionPlan::Keep::kRegisters && plan.each * plan.group < planned.packs &&
      plan.cluster == 1 && !plan.nested && !plan.across) {
    Knob each{"EACH", {plan.each}, true, "packs under way in a thread"};
    for (const int64_t value : {2, 4, 8, 16}) {
      if (value != plan.each) each.values.push_back(value);
    }
    knobs.push_back(each);
  }
  return knobs;
}

}  // namespace kevin::search
