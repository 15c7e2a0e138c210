// Which way is the fastest for a contraction: an estimate of cycles for each that is possible.

#include <algorithm>
#include <utility>

#include "policies/search/cpp_contraction.h"

namespace kevin::search {
namespace {

constexpr int64_t kCppLanes = 16, kCppTileRows = 8;  // of the processor that the estimates are for

bool CppIsFloatLoad(const ExprPtr& expr, const CppStage& stage) {
  return expr->op == "load" && expr->type == Type::kFloat &&
         stage.program.buffers.at(static_cast<size_t>(expr->id)).dtype == "float32";
}

ExprPtr CppAtZero(const ExprPtr& expr, const std::vector<Loop>& loops, size_t from = 0) {
  return Substitute(expr, [&](const Expr& node) -> ExprPtr {
    if (node.op != "variable") return nullptr;
    for (size_t i = from; i < loops.size(); ++i) {
      if (loops[i].variable == node.id) return Int(0);
    }
    return nullptr;
  });
}

bool CppUsesLoops(const ExprPtr& expr, const std::vector<Loop>& loops) {
  return std::any_of(loops.begin(), loops.end(), [&](const Loop& loop) { return Uses(expr, loop.variable); });
}

// Strides by loop; empty where one is not constant.
std::vector<int64_t> CppStrides(const ExprPtr& offset, const std::vector<Loop>& loops) {
  std::vector<int64_t> strides;
  for (const Loop& loop : loops) {
    const std::optional<int64_t> stride = StrideOf(offset, loop.variable);
    if (!stride) return {};
    strides.push_back(*stride);
  }
  return strides;
}

// The distance of neighbours in the row-major order of the loops, where it is one number.
std::optional<int64_t> CppChain(const ExprPtr& offset, const std::vector<Loop>& loops) {
  if (loops.empty()) return 0;
  const std::vector<int64_t> strides = CppStrides(offset, loops);
  if (strides.empty()) return std::nullopt;
  for (size_t i = 0; i + 1 < loops.size(); ++i) {
    if (strides[i] != strides[i + 1] * loops[i + 1].extent) return std::nullopt;
  }
  return strides.back();
}

int64_t CppRoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }
int64_t CppCeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

int64_t CppTileVectors(int64_t rows) { return rows <= 2 ? 8 : rows <= 4 ? 6 : rows <= 6 ? 4 : 3; }

// Cycles of one element of k for all rows and a block of columns: two products or two loads a cycle, and a sum every
// four.
double CppBlockCycles(int64_t m, int64_t columns) {
  const int64_t tiles = CppCeilDiv(m, kCppTileRows), vectors = CppCeilDiv(columns, kCppLanes);
  double cycles = 0;
  // Tiles have one of two numbers of rows.
  for (const auto& [rows, count] :
       {std::pair(m / tiles, tiles - m % tiles), std::pair(m / tiles + 1, m % tiles)}) {
    if (count == 0) continue;
    const int64_t wide = CppCeilDiv(vectors, CppTileVectors(rows));
    const double width = static_cast<double>(vectors) / static_cast<double>(wide),
                 height = static_cast<double>(rows);
    cycles += static_cast<double>(count * wide) * std::max({height * width / 2, height / 2 + width, 2.0});
  }
  return cycles;
}

class CppPlanner {
 public:
  CppPlanner(const Contraction& work, const CppStage& stage, bool exchanged) : stage_(stage) {
    base_.work = work;
    Contraction& own = base_.work;
    if (exchanged) {
      std::swap(own.m, own.n);
      std::swap(own.lhs, own.rhs);
    }
    Join();
  }

  void Try(std::vector<CppContractionPlan>& plans) {
    struct Way {
      CppRight right;
      bool expand;
    };
    for (const Way way :
         {Way{CppRight::kDirect, false}, Way{CppRight::kField, false}, Way{CppRight::kField, true},
          Way{CppRight::kPacked, false}, Way{CppRight::kTransposed, false}, Way{CppRight::kDots, false}}) {
      CppContractionPlan plan = base_;
      plan.right = way.right;
      plan.expand = way.expand;
      plan.m = CppCount(plan.work.m);
      plan.k = CppCount(plan.work.k);
      if (!PlanLeft(plan) || !PlanRight(plan)) continue;
      plan.tables_by_batch = HasTablesByBatch(plan);
      Divide(plan);
      Estimate(plan);
      plans.push_back(std::move(plan));
    }
  }

 private:
  void Join();
  bool PlanLeft(CppContractionPlan& plan) const;
  bool PlanRight(CppContractionPlan& plan);
  bool PlanColumns(CppContractionPlan& plan, const ExprPtr& offset, bool has_room) const;
  bool HasTablesByBatch(const CppContractionPlan& plan) const;
  void Divide(CppContractionPlan& plan) const;
  void Estimate(CppContractionPlan& plan) const;

  const CppStage& stage_;
  CppContractionPlan base_;
  int next_variable_ = kCppFirstVariable;
};

void CppPlanner::Join() {
  Contraction& work = base_.work;
  std::vector<ExprPtr*> left = {&work.lhs}, right = {&work.rhs}, both = {&work.lhs, &work.rhs}, all = both;
  bool has_limits = false;
  for (ExprPtr& limit : work.k_limits) {
    if (limit) all.push_back(&limit), has_limits = true;
  }
  for (Store& store : work.stores) {
    for (ExprPtr* expr : {&store.offset, &store.value, &store.guard}) {
      if (!*expr) continue;
      for (std::vector<ExprPtr*>* list : {&left, &right, &all}) list->push_back(expr);
    }
  }
  CppJoinLoops(work.m, left, next_variable_);
  CppJoinLoops(work.n, right, next_variable_);
  CppJoinLoops(work.batch, all, next_variable_);
  if (!has_limits) {
    work.k_limits.clear();
    CppJoinLoops(work.k, both, next_variable_);
  }
  if (work.n.empty()) work.n.push_back({next_variable_++, 1});
}

bool CppPlanner::PlanLeft(CppContractionPlan& plan) const {
  const Contraction& work = plan.work;
  plan.left_is_packed = true;
  if (!CppIsFloatLoad(work.lhs, stage_)) return plan.right != CppRight::kDots;
  const ExprPtr& offset = work.lhs->args[0];
  const std::optional<int64_t> row = CppChain(offset, work.m);
  if (!row) return plan.right != CppRight::kDots;
  plan.left_row = *row;
  plan.left_base = CppAtZero(CppAtZero(offset, work.m), work.k);
  // With limits, the elements of several loops do not follow one another at equal distances.
  const bool is_even = work.k_limits.empty() || work.k.size() == 1;
  const std::optional<int64_t> step = is_even ? CppChain(offset, work.k) : std::nullopt;
  plan.left_step = step.value_or(0);
  if (plan.right == CppRight::kDots) {
    plan.left_is_packed = false;
    return true;
  }
  // Rows whose elements of k do not lie side by side are worth a copy where they are read often.
  plan.left_is_packed = !step || (*step != 1 && plan.m * plan.k > 4096 && CppCount(work.n) >= 128);
  return true;
}

// Which loops of n make columns that lie side by side in a buffer.
bool CppPlanner::PlanColumns(CppContractionPlan& plan, const ExprPtr& offset, bool has_room) const {
  const std::vector<Loop>& n = plan.work.n;
  const std::vector<int64_t> strides = CppStrides(offset, n);
  if (strides.empty() || (strides.back() != 1 && n.back().extent > 1)) return false;
  int64_t span = 1, best = 0;
  for (size_t i = n.size(); i-- > 0;) {
    if (strides[i] < span && n[i].extent > 1) break;
    span += (n[i].extent - 1) * strides[i];
    int64_t outer = 1;
    for (size_t j = 0; j < i; ++j) outer *= n[j].extent;
    const int64_t cost =
        outer * (CppRoundUp(span, kCppLanes) + kCppLanes / 2);  // a block costs something, too
    if (best != 0 && cost > best) continue;
    best = cost;
    plan.first_column = i;
    plan.columns = span;
  }
  if (plan.columns < kCppLanes && !has_room) return false;
  plan.pitch.assign(strides.begin() + static_cast<long>(plan.first_column), strides.end());
  const ExprPtr first = CppAtZero(offset, n, plan.first_column);
  plan.right_base = CppAtZero(first, plan.work.k);
  plan.right_k = CppAtZero(AddScaled(first, plan.right_base, -1), n);
  return plan.right_k->low > -(int64_t{1} << 31) && plan.right_k->high < (int64_t{1} << 31);
}

bool CppPlanner::PlanRight(CppContractionPlan& plan) {
  const Contraction& work = plan.work;
  const ExprPtr& rhs = work.rhs;
  if (plan.right == CppRight::kField) {
    std::optional<CppFieldPlan> field = CppPlanField(work, stage_, plan.expand, next_variable_);
    if (!field || field->field.elements > (int64_t{1} << 26)) return false;
    plan.field = field->field;
    return PlanColumns(plan, field->offset, true);
  }
  if (plan.right == CppRight::kDirect)
    return CppIsFloatLoad(rhs, stage_) && PlanColumns(plan, rhs->args[0], false);
  plan.first_column = 0;
  plan.columns = 1;
  plan.pitch.assign(work.n.size(), 1);
  for (size_t i = work.n.size(); i-- > 0;) {
    plan.pitch[i] = plan.columns;
    plan.columns *= work.n[i].extent;
  }
  if (plan.right == CppRight::kPacked) return true;
  if (!CppIsFloatLoad(rhs, stage_) || work.k.size() != 1 || !work.k_limits.empty()) return false;
  const std::optional<int64_t> column = CppChain(rhs->args[0], work.n);
  if (!column || StrideOf(rhs->args[0], work.k[0].variable) != 1) return false;
  if (plan.right == CppRight::kDots && StrideOf(work.lhs->args[0], work.k[0].variable) != 1) return false;
  plan.right_column = *column;
  plan.right_base = CppAtZero(CppAtZero(rhs->args[0], work.n), work.k);
  return true;
}

bool CppPlanner::HasTablesByBatch(const CppContractionPlan& plan) const {
  const std::vector<Loop>& batch = plan.work.batch;
  bool differ = false;
  if (plan.right == CppRight::kDirect || plan.right == CppRight::kField)
    differ |= CppUsesLoops(plan.right_k, batch);
  for (const ExprPtr& limit : plan.work.k_limits) differ |= limit != nullptr;
  return differ;
}

// Blocks: the operands of one stay in the second cache, and there are some tasks for every processor.
void CppPlanner::Divide(CppContractionPlan& plan) const {
  const int64_t outer =
      CppCount(plan.work.batch) *
      CppCount({plan.work.n.begin(), plan.work.n.begin() + static_cast<long>(plan.first_column)});
  const bool is_copied = plan.right == CppRight::kPacked || plan.right == CppRight::kTransposed;
  const double work = static_cast<double>(outer * plan.columns) * static_cast<double>(plan.m * plan.k);
  const int64_t tasks = work < 2e5 ? 1 : work < 4e6 ? 4 : 8;
  int64_t deep = plan.k;  // elements of a column that are read
  if (plan.field) {
    deep = 1;
    for (const Loop& loop : plan.field->rest) {
      for (const Loop& k : plan.work.k) deep *= k.variable == loop.variable ? loop.extent : 1;
    }
  }
  plan.k_block = plan.k;
  plan.row_block = plan.m;
  if (!plan.field && plan.right != CppRight::kDots && plan.k > 1024)
    plan.k_block = CppCeilDiv(plan.k, CppCeilDiv(plan.k, 768));
  if (plan.field) {
    plan.column_block = std::clamp<int64_t>(CppRoundUp(98304 / std::max<int64_t>(deep, 1), 48), 48, 480);
  } else {
    plan.column_block =
        std::clamp<int64_t>(CppRoundUp(98304 / std::max<int64_t>(plan.k_block, 1), 48), 96, 480);
  }
  plan.column_block = std::max<int64_t>(48, plan.column_block * stage_.Value("BLOCK", 4) / 4 / 48 * 48);
  if (plan.right == CppRight::kDots) plan.column_block = 64;
  int64_t blocks = CppCeilDiv(plan.columns, plan.column_block);
  if (outer * blocks < tasks)
    blocks =
        std::min(CppCeilDiv(plan.columns, plan.right == CppRight::kDots ? 4 : 48), CppCeilDiv(tasks, outer));
  // As many blocks as makes them equal among the tasks.
  if (outer == 1 && blocks > 2 && blocks % 2 == 1) ++blocks;
  const int64_t even = CppCeilDiv(plan.columns, blocks);
  plan.column_block = CppRoundUp(even, plan.right == CppRight::kDots ? 4 : even > 192 ? 48 : 16);
  blocks = CppCeilDiv(plan.columns, plan.column_block);
  if (plan.k_block < plan.k) {
    // The sums of a block wait in memory for the next elements of k.
    plan.row_block = std::min(plan.m, std::max<int64_t>(64, (int64_t{1} << 17) / plan.column_block / 8 * 8));
  }
  const int64_t row_blocks = CppCeilDiv(plan.m, plan.row_block);
  if (outer * blocks * row_blocks < tasks && plan.m > 8) {
    const int64_t wanted =
        std::min(CppCeilDiv(tasks, outer * blocks), CppCeilDiv(plan.m, is_copied ? 16 : 8));
    plan.row_block = CppRoundUp(CppCeilDiv(plan.m, wanted), 8);
  }
  // Few results of many elements: the elements are divided.
  if (plan.m * plan.columns * outer <= 64 * 64 && plan.k >= 4096 && plan.work.k_limits.empty() &&
      plan.right != CppRight::kDots) {
    plan.row_block = plan.m;
    plan.column_block = CppRoundUp(plan.columns, 16);
    plan.splits = std::min<int64_t>(64, plan.k / 512);
    plan.k_block = CppCeilDiv(plan.k, plan.splits);
    plan.splits = CppCeilDiv(plan.k, plan.k_block);
  }
}

void CppPlanner::Estimate(CppContractionPlan& plan) const {
  const Contraction& work = plan.work;
  const double batch = static_cast<double>(CppCount(work.batch));
  double outer = batch;
  for (size_t i = 0; i < plan.first_column; ++i) outer *= static_cast<double>(work.n[i].extent);
  const double k = static_cast<double>(plan.k), m = static_cast<double>(plan.m);
  const double points = batch * static_cast<double>(CppCount(work.n));
  double cycles = 0;
  if (plan.right == CppRight::kDots) {
    const double rows = static_cast<double>(CppRoundUp(plan.m, 4)) / 4 * 4;
    cycles += points * (plan.m >= 4 ? rows * (k / 32 + 6) : m * (k / 16 * 0.6 + 8));
  } else {
    const double vectors = static_cast<double>(CppRoundUp(plan.columns, kCppLanes) / kCppLanes);
    const int64_t blocks = CppCeilDiv(plan.columns, plan.column_block);
    const int64_t last = plan.columns - (blocks - 1) * plan.column_block;
    const double block_cycles = static_cast<double>(blocks - 1) * CppBlockCycles(plan.m, plan.column_block) +
                                CppBlockCycles(plan.m, last);
    cycles += outer * (k * block_cycles + 8 * m * vectors + 100 * static_cast<double>(blocks));
  }
  const double row_blocks = static_cast<double>(CppCeilDiv(plan.m, plan.row_block));
  if (plan.right == CppRight::kDirect) {
    // Rows of a matrix a multiple of a page apart share the same places of the caches.
    const std::vector<int64_t> strides =
        work.k.size() == 1 ? CppStrides(plan.right_k, work.k) : std::vector<int64_t>{};
    const int64_t bytes = strides.empty() ? 0 : strides[0] * 4;
    const double repeats = m / 8;
    if (bytes % 4096 == 0 && bytes > 0) {
      cycles += points * k * repeats * 0.3;
    } else if (bytes % 2048 == 0 && bytes > 0) {
      cycles += points * k * repeats * 0.05;
    }
  }
  if (plan.right == CppRight::kTransposed) cycles += points * k * 0.5 * row_blocks;
  if (plan.right == CppRight::kPacked) {
    bool is_vector = true;
    for (const Expr* node : Nodes(work.rhs)) {
      if (node->op == "load") is_vector &= StrideOf(node->args[0], work.n.back().variable).value_or(9) <= 1;
    }
    const double lanes = std::min<double>(16, static_cast<double>(work.n.back().extent));
    cycles += points * k * row_blocks * (is_vector ? 0.2 + (work.rhs->op == "load" ? 2 : 6) / lanes : 2.5);
  }
  if (plan.field) {
    const bool is_far = plan.field->elements > (1 << 20);
    const CppField::Axis& last = plan.field->axes.back();
    const bool jumps = StrideOf(plan.field->value->args[0], last.position).value_or(1) * last.stride > 1;
    cycles += static_cast<double>(plan.field->elements) * ((jumps ? 1.0 : 0.3) + (is_far ? 0.5 : 0.2));
  }
  if (plan.left_is_packed) cycles += batch * m * k * 1.0;
  for (const Store& store : work.stores)
    cycles += points * m * (StrideOf(store.offset, work.n.back().variable).value_or(9) == 1 ? 0.2 : 2.0);
  plan.cycles = cycles;
}

}  // namespace

std::optional<CppContractionPlan> CppPlanContraction(const Contraction& work, const CppStage& stage) {
  if (work.lhs->type != Type::kFloat || work.rhs->type != Type::kFloat) return std::nullopt;
  if (CppCount(work.m) * CppCount(work.n) < 4) return std::nullopt;
  std::vector<CppContractionPlan> plans;
  for (const bool exchanged : {false, true}) CppPlanner(work, stage, exchanged).Try(plans);
  if (plans.empty()) return std::nullopt;
  std::stable_sort(plans.begin(), plans.end(),
                   [](const auto& a, const auto& b) { return a.cycles < b.cycles; });
  return std::move(plans[std::min(plans.size() - 1, static_cast<size_t>(stage.Value("CONTRACTION", 0)))]);
}

}  // namespace kevin::search
