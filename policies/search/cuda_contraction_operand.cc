// Operands of contractions: splits their offsets and conditions into what depends on lines and what depends on terms.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "policies/search/cuda_contraction.h"
#include "policies/search/graph.h"

namespace kevin::search {
namespace {

constexpr int64_t kCudaIntMax = (int64_t{1} << 31) - 1;

bool CudaUsesAny(const ExprPtr& expr, const std::vector<Loop>& loops) {
  return std::any_of(loops.begin(), loops.end(), [&](const Loop& loop) { return Uses(expr, loop.variable); });
}

struct CudaSplitSum {
  ExprPtr batch = Int(0), line = Int(0), term = Int(0);
};

// nullopt: a part depends on lines and on terms at once.
std::optional<CudaSplitSum> CudaSplitOf(const ExprPtr& expr, const std::vector<Loop>& lines,
                                        const std::vector<Loop>& terms) {
  CudaSplitSum split;
  const auto add = [&](const ExprPtr& atom, int64_t factor) {
    const bool by_line = CudaUsesAny(atom, lines), by_term = CudaUsesAny(atom, terms);
    if (by_line && by_term) return false;
    ExprPtr& part = by_line ? split.line : by_term ? split.term : split.batch;
    part = AddInt(part, Scaled(atom, factor));
    return true;
  };
  if (expr->op != "sum") return add(expr, 1) ? std::optional(split) : std::nullopt;
  split.batch = Int(expr->integer);
  for (size_t i = 0; i < expr->args.size(); ++i) {
    if (!add(expr->args[i], expr->coefficients[i])) return std::nullopt;
  }
  return split;
}

// What must be >= 0, for each part of a conjunction; false: another condition is among them.
bool CudaCollect(const ExprPtr& condition, std::vector<ExprPtr>& not_negative) {
  if (condition->op == "and") {
    return std::all_of(condition->args.begin(), condition->args.end(),
                       [&](const ExprPtr& part) { return CudaCollect(part, not_negative); });
  }
  const bool is_less = condition->op == "less";
  if ((!is_less && condition->op != "less_equal") || condition->args[0]->type != Type::kInt) return false;
  not_negative.push_back(
      AddInt(AddInt(condition->args[1], Scaled(condition->args[0], -1)), Int(is_less ? -1 : 0)));
  return true;
}

bool CudaConditionsOf(const ExprPtr& guard, const std::vector<Loop>& lines, const std::vector<Loop>& terms,
                      std::vector<CudaOperandCondition>& conditions) {
  std::vector<ExprPtr> bounds;
  if (!CudaCollect(guard, bounds)) return false;
  for (size_t i = 0; i < bounds.size(); ++i) {
    int64_t range = 0;
    for (size_t j = i + 1; j < bounds.size() && range == 0; ++j) {
      const ExprPtr sum = AddInt(bounds[i], bounds[j]);
      if (sum->op != "constant" || sum->integer < 0) continue;
      range = sum->integer + 1;
      bounds.erase(bounds.begin() + static_cast<std::ptrdiff_t>(j));
    }
    const std::optional<CudaSplitSum> split = CudaSplitOf(bounds[i], lines, terms);
    if (!split || bounds[i]->low < -kCudaIntMax || bounds[i]->high > kCudaIntMax) return false;
    conditions.push_back({AddInt(split->batch, split->line), split->term, range});
  }
  return conditions.size() <= 3;
}

// Every number in the sum but the one of `variable` is a multiple of `width`.
bool CudaIsAligned(const ExprPtr& expr, int variable, int64_t width) {
  if (expr->op == "constant") return expr->integer % width == 0;
  if (expr->op == "variable") return expr->id == variable || width == 1;
  if (expr->op != "sum") return width == 1;
  if (expr->integer % width != 0) return false;
  for (size_t i = 0; i < expr->args.size(); ++i) {
    const bool is_own = expr->args[i]->op == "variable" && expr->args[i]->id == variable;
    if (!is_own && expr->coefficients[i] % width != 0) return false;
  }
  return true;
}

// The widest aligned run along `loops` (of `part`, one of line and term), in elements, up to 16 bytes.
int CudaCopyWidth(const Program& program, const CudaOperand& operand, const ExprPtr& part,
                  const ExprPtr& other, const std::vector<Loop>& loops, const std::optional<int64_t>& flat) {
  const Buffer& buffer = program.buffers[static_cast<size_t>(operand.buffer)];
  const int bytes = buffer.dtype == "float32" ? 4 : 2;
  const Loop inner = loops.empty() ? Loop{-1, 1} : loops.back();
  const bool is_flat = flat && *flat == 1;
  if (!is_flat && StrideOf(part, inner.variable) != 1) return 1;
  for (int width = 16 / bytes; width > 1; width /= 2) {
    if (width * bytes < 4) break;
    const bool is_whole = is_flat ? Points(loops) % width == 0 : inner.extent % width == 0;
    if (!is_whole || buffer.base % width != 0) continue;
    if (!CudaIsAligned(operand.batch, -1, width) || !CudaIsAligned(other, -1, width)) continue;
    if (!is_flat && !CudaIsAligned(part, inner.variable, width)) continue;
    const bool is_free = std::none_of(
        operand.conditions.begin(), operand.conditions.end(), [&](const CudaOperandCondition& condition) {
          return is_flat ? CudaUsesAny(condition.line, loops) || CudaUsesAny(condition.term, loops)
                         : Uses(condition.line, inner.variable) || Uses(condition.term, inner.variable);
        });
    if (is_free) return width;
  }
  return 1;
}

void CudaChooseOrder(const Program& program, const std::vector<Loop>& lines, const std::vector<Loop>& terms,
                     CudaOperand& operand) {
  const int by_line = CudaCopyWidth(program, operand, operand.line, operand.term, lines, operand.line_stride);
  const int by_term = CudaCopyWidth(program, operand, operand.term, operand.line, terms, operand.term_stride);
  const auto is_unit = [](const std::optional<int64_t>& flat, const ExprPtr& part,
                          const std::vector<Loop>& loops) {
    return Points(loops) > 1 &&
           ((flat && *flat == 1) || (!loops.empty() && StrideOf(part, loops.back().variable) == 1));
  };
  const bool unit_line = is_unit(operand.line_stride, operand.line, lines);
  const bool unit_term = is_unit(operand.term_stride, operand.term, terms);
  // Terms that come from a table are read line by line: a thread then has one line, and keeps its part in registers.
  const bool is_flat = operand.term_stride && operand.conditions.empty();
  operand.terms_together = unit_term && (is_flat || by_term > 1) && (!unit_line || by_term > by_line);
  operand.copy = operand.terms_together ? by_term : by_line;
}

}  // namespace

std::optional<int64_t> CudaFlatStride(const ExprPtr& part, const std::vector<Loop>& loops) {
  std::optional<int64_t> stride;
  int64_t inner = 1;
  for (size_t i = loops.size(); i-- > 0;) {
    const std::optional<int64_t> own = StrideOf(part, loops[i].variable);
    if (!own) return std::nullopt;
    if (loops[i].extent > 1) {
      if (!stride) stride = *own;
      if (*own != *stride * inner) return std::nullopt;
    }
    inner *= loops[i].extent;
  }
  return stride.value_or(0);
}

CudaOperand ReadCudaOperand(const Program& program, const ExprPtr& operand, const std::vector<Loop>& lines,
                            const std::vector<Loop>& terms, bool limited) {
  CudaOperand form;
  ExprPtr load = operand;
  if (load->op == "guard") {
    const ExprPtr& otherwise = load->args[2];
    if (otherwise->op != "constant" || otherwise->number != 0) return form;
    if (!CudaConditionsOf(load->args[0], lines, terms, form.conditions)) return form;
    load = load->args[1];
  }
  if (load->op != "load") return form;
  form.buffer = load->id;
  const std::optional<CudaSplitSum> split = CudaSplitOf(load->args[0], lines, terms);
  if (!split) return form;
  form.batch = split->batch, form.line = split->line, form.term = split->term;
  // With a guard, parts of offsets may be negative; bounds are those without it.
  if (std::max(std::abs(form.term->low), std::abs(form.term->high)) > kCudaIntMax) return form;
  form.wide = std::max(std::abs(form.line->low), std::abs(form.line->high)) + form.term->high > kCudaIntMax;
  form.line_stride = CudaFlatStride(form.line, lines);
  if (!limited) form.term_stride = CudaFlatStride(form.term, terms);
  form.is_split = true;
  CudaChooseOrder(program, lines, terms, form);
  return form;
}

std::string CudaInteger(const CudaText& text, const ExprPtr& expr, bool wide) {
  const auto number = [&](int64_t value) {
    return fmt::format("({}{})", wide ? "(long)" : "", text.Number(value));
  };
  const auto inner = [&](const ExprPtr& e) { return CudaInteger(text, e, wide); };
  if (expr->op == "constant") return number(expr->integer);
  if (expr->op == "variable") return fmt::format("{}v{}", wide ? "(long)" : "", expr->id);
  if (expr->op == "sum") {
    std::string sum = expr->integer != 0 ? number(expr->integer) : "";
    for (size_t i = 0; i < expr->args.size(); ++i) {
      sum += sum.empty() ? "" : " + ";
      sum += (expr->coefficients[i] == 1 ? "" : number(expr->coefficients[i]) + " * ") + inner(expr->args[i]);
    }
    return "(" + sum + ")";
  }
  if (expr->op == "product") return fmt::format("({} * {})", inner(expr->args[0]), inner(expr->args[1]));
  if (expr->op == "div" || expr->op == "mod") {
    const std::string by = number(expr->integer), of = inner(expr->args[0]);
    if (expr->args[0]->low >= 0) return fmt::format("({} {} {})", of, expr->op == "div" ? "/" : "%", by);
    return fmt::format("{}({}, {})", expr->op == "div" ? "FloorDiv" : "FloorMod", of, by);
  }
  throw Unsupported("an index with " + expr->op.Name());
}

}  // namespace kevin::search
