// Padded operands of convolutions: which positions a guarded load reads, and the layout of a copy with zeros around it.

#include <algorithm>

#include "policies/search/cpp_contraction.h"

namespace kevin::search {
namespace {

// A bound of the guard: `inside` >= 0, where `inside` = sign * (stride * n + others) + constant.
struct CppFieldBound {
  int n = -1;
  int64_t stride = 0, constant = 0;
  bool is_upper = false;  // sign -1
  ExprPtr position;       // stride * n + others, without a constant
};

void CppConjuncts(const ExprPtr& condition, std::vector<ExprPtr>& parts) {
  if (condition->op == "and") {
    for (const ExprPtr& arg : condition->args) CppConjuncts(arg, parts);
  } else {
    parts.push_back(condition);
  }
}

// nullopt: no bound of a position of one variable of n.
std::optional<CppFieldBound> CppReadBound(const ExprPtr& part, const std::vector<Loop>& n) {
  if ((part->op != "less" && part->op != "less_equal") || part->args[0]->type != Type::kInt) return std::nullopt;
  ExprPtr inside = AddInt(part->args[1], Scaled(part->args[0], -1));
  if (part->op == "less") inside = AddInt(inside, Int(-1));
  CppFieldBound bound;
  for (const Loop& loop : n) {
    if (!Uses(inside, loop.variable)) continue;
    const std::optional<int64_t> stride = StrideOf(inside, loop.variable);
    if (bound.n >= 0 || !stride || *stride == 0) return std::nullopt;
    bound.n = loop.variable;
    bound.stride = *stride;
  }
  if (bound.n < 0) return std::nullopt;
  bound.is_upper = bound.stride < 0;
  bound.stride = std::abs(bound.stride);
  bound.constant = inside->op == "sum" ? inside->integer : 0;
  bound.position = Scaled(AddInt(inside, Int(-bound.constant)), bound.is_upper ? -1 : 1);
  return bound;
}

// The axes from the bounds; positions count from the lowest one that is read.
bool CppAddBound(const CppFieldBound& bound, std::vector<CppField::Axis>& axes, std::vector<ExprPtr>& positions,
                 std::vector<int64_t>& first) {
  size_t at = 0;
  while (at < axes.size() && axes[at].n != bound.n) ++at;
  if (at == axes.size()) {
    CppField::Axis axis;
    axis.n = bound.n;
    axis.stride = bound.stride;
    axis.positions = bound.position->high - bound.position->low + 1;
    axis.high = axis.positions;
    if (axis.positions > (1 << 24)) return false;
    axes.push_back(axis);
    positions.push_back(bound.position);
    first.push_back(bound.position->low);
  }
  if (positions[at]->key != bound.position->key) return false;
  // position + constant >= 0, or -position + constant >= 0
  if (bound.is_upper) {
    axes[at].high = std::min(axes[at].high, bound.constant - first[at] + 1);
  } else {
    axes[at].low = std::max(axes[at].low, -bound.constant - first[at]);
  }
  return true;
}

// Places the rest outside, then the phases, then steps in the order of n.
bool CppLayOut(CppField& field, const std::vector<Loop>& n) {
  const auto place_of = [&](int variable) {
    return std::find_if(n.begin(), n.end(), [&](const Loop& loop) { return loop.variable == variable; }) - n.begin();
  };
  std::sort(field.axes.begin(), field.axes.end(), [&](const auto& a, const auto& b) { return place_of(a.n) < place_of(b.n); });
  if (field.axes.back().n != n.back().variable) return false;
  int64_t pitch = 1;
  for (size_t i = field.axes.size(); i-- > 0;) {
    CppField::Axis& axis = field.axes[i];
    axis.steps = (axis.positions + axis.stride - 1) / axis.stride;
    axis.pitch = pitch;
    pitch *= axis.steps;
  }
  // Images lie next to one another inside of a phase, so that small ones make long rows.
  field.rest_pitch.assign(field.rest.size(), 0);
  for (size_t i = field.rest.size(); i-- > 0;) {
    const bool is_n = std::any_of(n.begin(), n.end(), [&](const Loop& loop) { return loop.variable == field.rest[i].variable; });
    if (!is_n) continue;
    field.rest_pitch[i] = pitch;
    pitch *= field.rest[i].extent;
  }
  for (size_t i = field.axes.size(); i-- > 0;) {
    field.axes[i].phase_pitch = pitch;
    pitch *= field.axes[i].stride;
  }
  // Channels that are a multiple of a page apart would share the same places of the cache.
  if (pitch % 512 < 16 && pitch > 512) pitch += 16;
  for (size_t i = field.rest.size(); i-- > 0;) {
    if (field.rest_pitch[i] != 0) continue;
    field.rest_pitch[i] = pitch;
    pitch *= field.rest[i].extent;
  }
  field.elements = pitch;
  return true;
}

}  // namespace

std::optional<CppFieldPlan> CppPlanField(const Contraction& work, const CppStage& stage, int& next_variable) {
  const ExprPtr& rhs = work.rhs;
  if (rhs->op != "guard" || rhs->args[1]->op != "load" || rhs->args[1]->type != Type::kFloat) return std::nullopt;
  if (rhs->args[2]->op != "constant" || rhs->args[2]->number != 0) return std::nullopt;
  const Expr& load = *rhs->args[1];
  if (stage.program.buffers.at(static_cast<size_t>(load.id)).dtype != "float32") return std::nullopt;
  std::vector<ExprPtr> parts;
  CppConjuncts(rhs->args[0], parts);
  CppFieldPlan plan;
  CppField& field = plan.field;
  std::vector<ExprPtr> positions, others;
  std::vector<int64_t> first;
  for (const ExprPtr& part : parts) {
    const std::optional<CppFieldBound> bound = CppReadBound(part, work.n);
    if (!bound || !CppAddBound(*bound, field.axes, positions, first)) return std::nullopt;
  }
  const auto VariableOf = [&](int variable) {
    const auto found = std::find_if(work.n.begin(), work.n.end(), [&](const Loop& loop) { return loop.variable == variable; });
    return Variable(variable, found->extent);
  };
  // The last dimension may have no guard: its points are the positions, and taps along it belong to the rest.
  const Loop& last = work.n.back();
  if (std::none_of(field.axes.begin(), field.axes.end(), [&](const auto& axis) { return axis.n == last.variable; })) {
    CppField::Axis axis;
    axis.n = last.variable;
    axis.positions = axis.high = last.extent;
    field.axes.push_back(axis);
    positions.push_back(VariableOf(last.variable));
    first.push_back(0);
  }
  // The load's offset is sum of pitch * position, and the rest.
  ExprPtr rest = load.args[0], value_offset = Int(0), offset = Int(0);
  for (size_t i = 0; i < field.axes.size(); ++i) {
    CppField::Axis& axis = field.axes[i];
    const std::optional<int64_t> stride = StrideOf(load.args[0], axis.n);
    if (!stride || *stride % axis.stride != 0) return std::nullopt;
    const int64_t pitch = *stride / axis.stride;
    rest = AddInt(rest, Scaled(positions[i], -pitch));
    axis.low = std::clamp<int64_t>(axis.low, 0, axis.positions);
    axis.high = std::clamp<int64_t>(axis.high, axis.low, axis.positions);
    axis.position = next_variable++;
    value_offset = AddInt(value_offset, Scaled(AddInt(Variable(axis.position, axis.positions), Int(first[i])), pitch));
    if (Uses(rest, axis.n)) return std::nullopt;
  }
  for (const std::vector<Loop>* loops : {&work.batch, &work.k, &work.n}) {
    for (const Loop& loop : *loops) {
      if (Uses(rest, loop.variable)) field.rest.push_back(loop);
    }
  }
  std::map<int, ExprPtr> shift_of;  // of a position from its lowest and from stride * n
  for (size_t i = 0; i < field.axes.size(); ++i) {
    const CppField::Axis& axis = field.axes[i];
    shift_of[axis.n] = AddInt(AddInt(positions[i], Int(-first[i])), Scaled(VariableOf(axis.n), -axis.stride));
  }
  if (!CppLayOut(field, work.n)) return std::nullopt;
  for (const Loop& loop : work.n) {
    if (!shift_of.count(loop.variable) && !Uses(rest, loop.variable)) return std::nullopt;
  }
  field.value = Load(load.id, Type::kFloat, AddInt(rest, value_offset));
  for (const CppField::Axis& axis : field.axes) {
    const ExprPtr shift = shift_of.at(axis.n);
    offset = AddInt(offset, Scaled(AddInt(VariableOf(axis.n), DivInt(shift, axis.stride)), axis.pitch));
    if (axis.stride > 1) offset = AddInt(offset, Scaled(ModInt(shift, axis.stride), axis.phase_pitch));
  }
  for (size_t i = 0; i < field.rest.size(); ++i)
    offset = AddInt(offset, Scaled(Variable(field.rest[i].variable, field.rest[i].extent), field.rest_pitch[i]));
  plan.offset = offset;
  return plan;
}

}  // namespace kevin::search
