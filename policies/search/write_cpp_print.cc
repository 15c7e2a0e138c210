// CppPrinter: scopes, names and loads. write_cpp_operations.cc prints the operations, write_cpp_stores.cc stores and what
// has no vector form.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_text.h"

namespace kevin::search {

std::string CppStage::Number(int64_t value) const {
  constexpr int64_t kLargestLiteral = 16;
  const bool is_large = value > kLargestLiteral || value < -kLargestLiteral;
  const bool is_hole = sharing == CppSharing::kAll || (sharing == CppSharing::kLarge && is_large);
  return is_hole ? Hole(value) : std::to_string(value);
}

int64_t CppStage::Value(const std::string& name, int64_t otherwise) const {
  const auto found = setting.find(name);
  return found == setting.end() ? otherwise : found->second;
}

std::string CppStage::Constant(const std::string& name, int64_t otherwise) const {
  return setting.count(name) ? name : std::to_string(otherwise);
}

std::string CppStage::Name(int buffer) const {
  const auto found = std::find(buffers.begin(), buffers.end(), buffer);
  return fmt::format("b{}", found - buffers.begin());
}

std::string CppStage::Element(int buffer) const {
  const std::string& dtype = program.buffers.at(static_cast<size_t>(buffer)).dtype;
  if (dtype == "float16") return "_Float16";
  if (dtype == "bfloat16") return "bf16";
  if (dtype == "int64") return "long";
  if (dtype == "int32") return "int";
  if (dtype == "bool") return "bool";
  return "float";
}

CppPrinter::CppPrinter(CppStage& stage) : stage_(stage), scopes_(1) {
  for (const auto& [variable, name] : stage.outer) Bind(variable, name);
}

std::string CppPrinter::Text() const { return scopes_.front().text; }

// --- Scopes ---

void CppPrinter::LineAt(int depth, const std::string& text) {
  std::string& lines = scopes_[static_cast<size_t>(depth)].text;
  lines.append(static_cast<size_t>(2 * depth + 2), ' ').append(text).push_back('\n');
}

void CppPrinter::Line(const std::string& text) { LineAt(Depth(), text); }

void CppPrinter::Open(const std::string& head) {
  Scope scope;
  scope.head = std::string(scopes_.size() * 2, ' ') + (head.empty() ? "{\n" : head + " {\n");
  scopes_.push_back(std::move(scope));
}

void CppPrinter::Close(const std::string& tail) {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (const int variable : scope.variables) variables_.erase(variable);
  for (const int result : scope.results) results_.erase(result);
  if (scope.owns_lanes) lanes_variable_ = -1;
  scopes_.back().text.append(scope.head).append(scope.text);
  Line(tail);
}

void CppPrinter::AtDepth(int depth, const std::function<void()>& print) {
  const auto first = scopes_.begin() + depth + 1;
  std::vector<Scope> stash(std::make_move_iterator(first), std::make_move_iterator(scopes_.end()));
  scopes_.erase(first, scopes_.end());
  print();
  for (Scope& scope : stash) scopes_.push_back(std::move(scope));
}

std::string CppPrinter::Fresh(const std::string& stem) { return stem + std::to_string(fresh_++); }

int CppPrinter::OpenLoops(const std::vector<Loop>& loops) {
  int opened = 0;
  for (const Loop& loop : loops) {
    const std::string v = loop.extent == 1 ? "0" : Fresh("v");
    if (loop.extent > 1) {
      Open(fmt::format("for (long {0} = 0; {0} < {1}; ++{0})", v, stage_.Number(loop.extent)));
      ++opened;
    }
    Bind(loop.variable, v);
  }
  return opened;
}

void CppPrinter::CloseAll(int count) {
  for (int i = 0; i < count; ++i) Close();
}

// --- Names ---

void CppPrinter::Bind(int variable, const std::string& name) {
  variables_[variable] = {name, Depth(), false};
  scopes_.back().variables.push_back(variable);
}

void CppPrinter::BindLanes(int variable, const std::string& name) {
  lanes_variable_ = variable;
  lanes_name_ = name;
  lanes_depth_ = Depth();
  scopes_.back().owns_lanes = true;
}

void CppPrinter::BindResult(int result, const std::string& name, bool lanes) {
  results_[result] = {name, Depth(), lanes};
  scopes_.back().results.push_back(result);
}

const CppPrinter::Leaves& CppPrinter::LeavesOf(const ExprPtr& expr) const {
  const auto known = leaves_.find(expr.get());
  if (known != leaves_.end()) return known->second.second;
  std::set<int> variables, results;
  if (expr->op == "variable") variables.insert(expr->id);
  if (expr->op == "result") results.insert(expr->id);
  for (const ExprPtr& arg : expr->args) {
    const Leaves& below = LeavesOf(arg);
    variables.insert(below.variables.begin(), below.variables.end());
    results.insert(below.results.begin(), below.results.end());
  }
  return leaves_
      .emplace(expr.get(), std::pair(expr, Leaves{{variables.begin(), variables.end()},
                                                  {results.begin(), results.end()}}))
      .first->second.second;
}

bool CppPrinter::HasLanesVariable(const ExprPtr& expr) const {
  const std::vector<int>& variables = LeavesOf(expr).variables;
  return std::find(variables.begin(), variables.end(), lanes_variable_) != variables.end();
}

bool CppPrinter::HasLanesResult(const ExprPtr& expr) const {
  const std::vector<int>& results = LeavesOf(expr).results;
  return std::any_of(results.begin(), results.end(), [&](int result) {
    const auto found = results_.find(result);
    return found != results_.end() && found->second.lanes;
  });
}

bool CppPrinter::IsLanes(const ExprPtr& expr) const {
  if (!lane_.empty() || first_lane_) return false;
  return HasLanesVariable(expr) || HasLanesResult(expr);
}

int CppPrinter::DepthOf(const ExprPtr& expr) const {
  int depth = 0;
  const Leaves& leaves = LeavesOf(expr);
  for (const int variable : leaves.variables) {
    const auto found = variables_.find(variable);
    if (variable == lanes_variable_ && lane_.empty()) {
      depth = std::max(depth, lanes_depth_);
    } else if (found != variables_.end()) {
      depth = std::max(depth, found->second.depth);
    }
  }
  for (const int result : leaves.results) {
    const auto found = results_.find(result);
    if (found != results_.end()) depth = std::max(depth, found->second.depth);
  }
  if (!lane_.empty() && depth >= lanes_depth_) depth = Depth();  // lanes are read by lane
  return depth;
}

// --- Values ---

std::string CppPrinter::TypeOf(const ExprPtr& expr, bool lanes) const {
  if (lanes) return expr->type == Type::kFloat ? "Vec" : "IntVec";
  return expr->type == Type::kFloat ? "float" : expr->type == Type::kInt ? "long" : "bool";
}

std::string CppPrinter::KeyOf(const ExprPtr& expr) const {
  return first_lane_ && HasLanesVariable(expr) ? "@" + expr->key : expr->key;
}

std::string CppPrinter::NamedText(int depth, const std::string& type, const std::string& text) {
  const std::string key = type + " " + text;
  for (int i = depth; i >= 0; --i) {
    const auto& values = scopes_[static_cast<size_t>(i)].values;
    const auto found = values.find(key);
    if (found != values.end()) return found->second.text;
  }
  const std::string name = Fresh("t");
  LineAt(depth, fmt::format("const {} {} = {};", type, name, text));
  Value value;
  value.text = name;
  scopes_[static_cast<size_t>(depth)].values[key] = value;
  return name;
}

CppPrinter::Value CppPrinter::Named(const Value& value, const ExprPtr& expr) {
  if (value.named || value.constant) return value;
  Value named = value;
  named.text = NamedText(value.depth, TypeOf(expr, value.lanes), value.text);
  named.named = true;
  scopes_[static_cast<size_t>(value.depth)].values[KeyOf(expr)] = named;
  return named;
}

CppPrinter::Value CppPrinter::Splat(const Value& value, const ExprPtr& expr) {
  if (value.lanes) return value;
  Value splat = value;
  splat.lanes = true;
  const std::string text = value.text;
  splat.text = expr->type == Type::kFloat  ? fmt::format("Splat({})", text)
               : expr->type == Type::kBool ? fmt::format("SplatInt(-int({}))", text)
                                           : fmt::format("SplatInt(int({}))", text);
  if (value.constant) return splat;
  const std::string key = "splat " + KeyOf(expr);
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto found = scopes_[i].values.find(key);
    if (found != scopes_[i].values.end()) return found->second;
  }
  splat.named = true;
  const std::string name = Fresh("s");
  LineAt(value.depth, fmt::format("const {} {} = {};", TypeOf(expr, true), name, splat.text));
  splat.text = name;
  scopes_[static_cast<size_t>(value.depth)].values[key] = splat;
  return splat;
}

void CppPrinter::CountUses(const ExprPtr& expr) {
  uses_.clear();
  if (expr->args.empty()) return;
  for (const Expr* node : Nodes(expr)) {
    for (const ExprPtr& arg : node->args) ++uses_[arg->key];
  }
}

CppPrinter::Value CppPrinter::Emit(const ExprPtr& expr) {
  const std::string key = KeyOf(expr);
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto found = scopes_[i].values.find(key);
    if (found == scopes_[i].values.end()) continue;
    Value value = found->second;
    if (value.lanes && !lane_.empty()) {
      value.text = fmt::format(fmt::runtime(expr->type == Type::kBool ? "({}[{}] != 0)" : "{}[{}]"),
                               value.text, lane_);
      value.lanes = false;
      value.depth = Depth();
    }
    return value;
  }
  Value value = EmitNew(expr);
  const bool inline_it = value.constant || value.named || (uses_[expr->key] <= 1 && value.text.size() < 70);
  return inline_it ? value : Named(value, expr);
}

CppPrinter::Value CppPrinter::EmitNew(const ExprPtr& expr) {
  if (expr->op == "constant" || expr->op == "variable" || expr->op == "result") return EmitLeaf(expr);
  if (IsLanes(expr) && expr->type == Type::kFloat && NeedsLaneLoop(expr)) return EmitByLane(expr);
  if (expr->op == "load") return EmitLoad(expr);
  if (expr->op == "guard") return EmitGuard(expr);
  if (expr->op == "sum") return EmitSum(*expr, IsLanes(expr));
  return EmitOperation(expr);
}

std::string CppPrinter::Scalar(const ExprPtr& expr) {
  CountUses(expr);
  Value value = Emit(expr);
  if (value.depth < Depth()) value = Named(value, expr);
  return value.text;
}

std::string CppPrinter::Lanes(const ExprPtr& expr) {
  CountUses(expr);
  Value value = Emit(expr);
  if (value.depth < Depth() && !value.lanes) value = Named(value, expr);
  return Splat(value, expr).text;
}

// --- Loads ---

std::string CppPrinter::Address(int buffer, const ExprPtr& offset) {
  const bool before = first_lane_;
  first_lane_ = first_lane_ || (lanes_variable_ >= 0 && lane_.empty());
  Value value = Emit(offset);
  if (value.depth < std::max(Depth(), 1) && !value.constant) value = Named(value, offset);
  first_lane_ = before;
  return fmt::format("{} + {}", stage_.Name(buffer), value.text);
}

CppPrinter::Value CppPrinter::EmitLoad(const ExprPtr& expr) {
  const ExprPtr& offset = expr->args[0];
  const std::string buffer = stage_.Name(expr->id);
  Value value;
  if (!IsLanes(expr)) {
    Value at = Emit(offset);
    value.depth = std::max(at.depth, floor_);
    if (at.depth < value.depth) at = Named(at, offset);
    const bool is_narrow = expr->type == Type::kFloat && stage_.Element(expr->id) != "float";
    value.text = fmt::format(fmt::runtime(is_narrow ? "float({}[{}])" : "{}[{}]"), buffer, at.text);
    if (!mask_.empty() && lane_.empty())
      value.text = fmt::format("(AnyLane({}) ? {} : {}(0))", mask_, value.text, TypeOf(expr, false));
    return Named(value, expr);
  }
  const std::optional<int64_t> stride = LaneStride(offset);
  value.lanes = true;
  value.depth = std::max({lanes_depth_, DepthOf(offset), floor_});
  const std::string mask = mask_.empty() ? "" : ", " + mask_, name = mask_.empty() ? "Load" : "LoadIf";
  AtDepth(value.depth, [&] {
    if (stride && *stride == 1) {
      value.text = fmt::format("part.{}({}{})", name, Address(expr->id, offset), mask);
    } else if (stride) {
      value.text = fmt::format("part.Strided{}({}, {}{})", name, Address(expr->id, offset),
                               stage_.Number(*stride), mask);
    } else {
      value.text =
          fmt::format("part.Gather{}({}, {}{})", name, buffer, Splat(Emit(offset), offset).text, mask);
    }
  });
  return Named(value, expr);
}

std::optional<int64_t> CppPrinter::LaneStride(const ExprPtr& offset) const {
  if (HasLanesResult(offset)) return std::nullopt;
  return HasLanesVariable(offset) ? StrideOf(offset, lanes_variable_) : 0;
}

// A condition in two: what all lanes share, then the rest. Either may be null.
std::pair<ExprPtr, ExprPtr> CppPrinter::SplitCondition(const ExprPtr& condition) const {
  if (!IsLanes(condition)) return {condition, nullptr};
  if (condition->op != "and") return {nullptr, condition};
  auto [shared_a, rest_a] = SplitCondition(condition->args[0]);
  auto [shared_b, rest_b] = SplitCondition(condition->args[1]);
  const auto both = [](const ExprPtr& a, const ExprPtr& b) { return a && b ? And(a, b) : a ? a : b; };
  return {both(shared_a, shared_b), both(rest_a, rest_b)};
}

CppPrinter::Value CppPrinter::EmitGuard(const ExprPtr& expr) {
  const auto [shared, rest_of_it] = SplitCondition(expr->args[0]);
  if (shared && rest_of_it) {
    Value nested = Emit(Guard(shared, Guard(rest_of_it, expr->args[1], expr->args[2]), expr->args[2]));
    scopes_[static_cast<size_t>(nested.depth)].values[KeyOf(expr)] = nested;
    return nested;
  }
  const bool lanes = IsLanes(expr);
  Value value;
  value.depth = std::max({DepthOf(expr), floor_, lanes ? lanes_depth_ : 0});
  value.lanes = lanes;
  value.named = true;
  value.text = Fresh("t");
  AtDepth(value.depth, [&] {
    const ExprPtr &condition = expr->args[0], &otherwise = expr->args[2];
    const Value holds = Emit(condition);
    const Value rest = Emit(otherwise);
    Line(fmt::format("{} {} = {};", TypeOf(expr, lanes), value.text,
                     lanes ? Splat(rest, otherwise).text : rest.text));
    const std::string outer_mask = mask_;
    const int outer_floor = floor_;
    std::string chosen;
    if (holds.lanes) {
      const std::string holds_name = Named(holds, condition).text;
      Open("");
      if (mask_.empty()) {
        mask_ = holds_name;
      } else {
        mask_ = Fresh("m");
        Line(fmt::format("const IntVec {} = {} & {};", mask_, outer_mask, holds_name));
      }
      floor_ = Depth();
      chosen = fmt::format("Select({}, {}, {})", mask_, Splat(Emit(expr->args[1]), expr->args[1]).text,
                           value.text);
    } else {
      Open(fmt::format("if ({})", holds.text));
      floor_ = Depth();
      const Value inside = Emit(expr->args[1]);
      chosen = lanes ? Splat(inside, expr->args[1]).text : inside.text;
    }
    Line(fmt::format("{} = {};", value.text, chosen));
    Close();
    mask_ = outer_mask;
    floor_ = outer_floor;
  });
  scopes_[static_cast<size_t>(value.depth)].values[KeyOf(expr)] = value;
  return value;
}

}  // namespace kevin::search
