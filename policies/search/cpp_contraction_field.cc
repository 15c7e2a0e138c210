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
  if ((part->op != "less" && part->op != "less_equal") || part->args[0]->type != Type::kInt)
    return std::nullopt;
  ExprPtr inside = AddScaled(part->args[1], part->args[0], -1);
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
bool CppAddBound(const CppFieldBound& bound, std::vector<CppField::Axis>& axes,
                 std::vector<ExprPtr>& positions, std::vector<int64_t>& first) {
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
    return std::find_if(n.begin(), n.end(), [&](const Loop& loop) { return loop.variable == variable; }) -
           n.begin();
  };
  std::sort(field.axes.begin(), field.axes.end(),
            [&](const auto& a, const auto& b) { return place_of(a.n) < place_of(b.n); });
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
    const bool is_n = std::any_of(n.begin(), n.end(),
                                  [&](const Loop& loop) { return loop.variable == field.rest[i].variable; });
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

ExprPtr CppVariableOf(const std::vector<Loop>& loops, int variable) {
  const auto found =
      std::find_if(loops.begin(), loops.end(), [&](const Loop& loop) { return loop.variable == variable; });
  return Variable(variable, found->extent);
}

class CppFieldPlanner {
 public:
  CppFieldPlanner(const Contraction& work, bool expand, int& next_variable)
      : work_(work), expand_(expand), next_variable_(next_variable) {}

  std::optional<CppFieldPlan> Plan(const ExprPtr& condition, const Expr& load) {
    if (!ReadBounds(condition) || !SplitOffset(load)) return std::nullopt;
    FindRest();
    if (!CppLayOut(plan_.field, work_.n)) return std::nullopt;
    for (const Loop& loop : work_.n) {
      const bool is_axis = std::any_of(plan_.field.axes.begin(), plan_.field.axes.end(),
                                       [&](const CppField::Axis& axis) { return axis.n == loop.variable; });
      if (!is_axis && !Uses(rest_, loop.variable)) return std::nullopt;
    }
    MakeOffset();
    return plan_;
  }

 private:
  bool ReadBounds(const ExprPtr& condition);
  bool SplitOffset(const Expr& load);
  void FindRest();
  void MakeOffset();

  const Contraction& work_;
  bool expand_;
  int& next_variable_;
  CppFieldPlan plan_;
  std::vector<ExprPtr> positions_;  // by axis, before the axes are sorted
  std::vector<int64_t> first_;
  std::map<int, ExprPtr> shift_of_;  // of a position from its lowest and from stride * n
  ExprPtr rest_;
};

bool CppFieldPlanner::ReadBounds(const ExprPtr& condition) {
  CppField& field = plan_.field;
  const Loop& last = work_.n.back();
  std::vector<ExprPtr> parts;
  if (condition) CppConjuncts(condition, parts);
  for (const ExprPtr& part : parts) {
    const std::optional<CppFieldBound> bound = CppReadBound(part, work_.n);
    if (!bound) return false;
    if (expand_ && bound->n == last.variable) {
      field.bounds.push_back(AddInt(Scaled(bound->position, bound->is_upper ? -1 : 1), Int(bound->constant)));
    } else if (!CppAddBound(*bound, field.axes, positions_, first_)) {
      return false;
    }
  }
  // Without a guard the points of the last dimension are the positions, and taps along it belong to the rest.
  if (std::any_of(field.axes.begin(), field.axes.end(),
                  [&](const auto& axis) { return axis.n == last.variable; }))
    return true;
  CppField::Axis axis;
  axis.n = last.variable;
  axis.positions = axis.high = last.extent;
  field.axes.push_back(axis);
  positions_.push_back(Variable(last.variable, last.extent));
  first_.push_back(0);
  return true;
}

// The load's offset is the sum of pitch * position, and the rest.
bool CppFieldPlanner::SplitOffset(const Expr& load) {
  CppField& field = plan_.field;
  rest_ = load.args[0];
  ExprPtr value_offset = Int(0);
  for (size_t i = 0; i < field.axes.size(); ++i) {
    CppField::Axis& axis = field.axes[i];
    const std::optional<int64_t> stride = StrideOf(load.args[0], axis.n);
    if (!stride || *stride % axis.stride != 0) return false;
    const int64_t pitch = *stride / axis.stride;
    rest_ = AddScaled(rest_, positions_[i], -pitch);
    if (Uses(rest_, axis.n)) return false;
    axis.low = std::clamp<int64_t>(axis.low, 0, axis.positions);
    axis.high = std::clamp<int64_t>(axis.high, axis.low, axis.positions);
    const bool is_expanded = !field.bounds.empty() && axis.n == work_.n.back().variable;
    axis.position = is_expanded ? axis.n : next_variable_++;
    value_offset =
        AddScaled(value_offset, AddInt(Variable(axis.position, axis.positions), Int(first_[i])), pitch);
    shift_of_[axis.n] =
        AddScaled(AddInt(positions_[i], Int(-first_[i])), CppVariableOf(work_.n, axis.n), -axis.stride);
  }
  field.value = Load(load.id, Type::kFloat, AddInt(rest_, value_offset));
  return true;
}

void CppFieldPlanner::FindRest() {
  for (const std::vector<Loop>* loops : {&work_.batch, &work_.k, &work_.n}) {
    for (const Loop& loop : *loops) {
      bool is_rest = Uses(rest_, loop.variable);
      for (const ExprPtr& bound : plan_.field.bounds)
        is_rest |= loops != &work_.n && Uses(bound, loop.variable);
      if (is_rest) plan_.field.rest.push_back(loop);
    }
  }
}

void CppFieldPlanner::MakeOffset() {
  const CppField& field = plan_.field;
  plan_.offset = Int(0);
  for (const CppField::Axis& axis : field.axes) {
    const ExprPtr shift = shift_of_.at(axis.n);
    const ExprPtr step = AddInt(CppVariableOf(work_.n, axis.n), DivInt(shift, axis.stride));
    plan_.offset = AddScaled(plan_.offset, step, axis.pitch);
    if (axis.stride > 1) plan_.offset = AddScaled(plan_.offset, ModInt(shift, axis.stride), axis.phase_pitch);
  }
  for (size_t i = 0; i < field.rest.size(); ++i) {
    const ExprPtr variable = Variable(field.rest[i].variable, field.rest[i].extent);
    plan_.offset = AddScaled(plan_.offset, variable, field.rest_pitch[i]);
  }
}

}  // namespace

std::optional<CppFieldPlan> CppPlanField(const Contraction& work, const CppStage& stage, bool expand,
                                         int& next_variable) {
  const bool is_guarded = work.rhs->op == "guard";
  if (!is_guarded && !expand) return std::nullopt;
  const ExprPtr& load = is_guarded ? work.rhs->args[1] : work.rhs;
  if (load->op != "load" || load->type != Type::kFloat) return std::nullopt;
  if (is_guarded && (work.rhs->args[2]->op != "constant" || work.rhs->args[2]->number != 0))
    return std::nullopt;
  if (stage.program.buffers.at(static_cast<size_t>(load->id)).dtype != "float32") return std::nullopt;
  return CppFieldPlanner(work, expand, next_variable).Plan(is_guarded ? work.rhs->args[0] : nullptr, *load);
}

}  // namespace kevin::search
