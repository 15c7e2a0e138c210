// CppPrinter: stores, and values that are computed lane by lane.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_text.h"

namespace kevin::search {

// --- By lane: what has no vector form ---

void CppPrinter::ForEachLane(const std::function<void()>& print) {
  const std::string lane = Fresh("l");
  Open(fmt::format("for (int {0} = 0; {0} < part.Count(); ++{0})", lane));
  if (!mask_.empty()) Line(fmt::format("if (!{}[{}]) continue;", mask_, lane));
  const int outer_floor = floor_, variable = lanes_variable_;
  const std::string outer_mask = mask_;
  const Binding outer = variables_.count(variable) ? variables_[variable] : Binding{};
  lane_ = lane;
  floor_ = mask_.empty() ? floor_ : Depth();
  mask_.clear();
  lanes_variable_ = -1;
  variables_[variable] = {fmt::format("({} + {})", lanes_name_, lane), Depth(), false};
  print();
  lane_.clear();
  variables_.erase(variable);
  if (!outer.name.empty()) variables_[variable] = outer;
  lanes_variable_ = variable;
  mask_ = outer_mask;
  floor_ = outer_floor;
  Close();
}

CppPrinter::Value CppPrinter::EmitByLane(const ExprPtr& expr) {
  Value value;
  value.depth = std::max({DepthOf(expr), floor_, lanes_depth_});
  value.lanes = value.named = true;
  value.text = Fresh("t");
  AtDepth(value.depth, [&] {
    Line(fmt::format("Vec {}{{}};", value.text));
    ForEachLane([&] { Line(fmt::format("{}[{}] = {};", value.text, lane_, Emit(expr).text)); });
  });
  scopes_[static_cast<size_t>(value.depth)].values[KeyOf(expr)] = value;
  return value;
}

bool CppPrinter::FitsLanes(const ExprPtr& expr) const {
  if (expr->type == Type::kFloat || !IsLanes(expr)) return true;
  constexpr int64_t kLimit = int64_t{1} << 31;
  if (expr->type == Type::kInt && (expr->low < -kLimit || expr->high >= kLimit) && expr->op != "result")
    return false;
  if (expr->op == "guard") return false;
  if (expr->op == "load")
    return expr->type == Type::kBool && LaneStride(expr->args[0]) == 1 && FitsLanes(expr->args[0]);
  if (expr->op == "to_int" && expr->args[0]->type == Type::kFloat) return false;
  return std::all_of(expr->args.begin(), expr->args.end(),
                     [&](const ExprPtr& arg) { return FitsLanes(arg); });
}

bool CppPrinter::NeedsLaneLoop(const ExprPtr& expr) const {
  if (expr->op == "load" && LaneStride(expr->args[0])) return false;
  return std::any_of(expr->args.begin(), expr->args.end(),
                     [&](const ExprPtr& arg) { return !FitsLanes(arg); });
}

// --- Stores ---

void CppPrinter::Store(const search::Store& store, bool stream) {
  const bool lanes = lanes_variable_ >= 0 && lane_.empty();
  const std::string element = stage_.Element(store.buffer);
  const bool guarded = store.guard && !(store.guard->op == "constant" && store.guard->integer);
  if (!lanes) {
    if (guarded) Open(fmt::format("if ({})", Scalar(store.guard)));
    const int outer_floor = floor_;
    if (guarded) floor_ = Depth();
    const std::string value = Scalar(store.value);
    Line(fmt::format("*({}) = {}({});", Address(store.buffer, store.offset), element, value));
    floor_ = outer_floor;
    if (guarded) Close();
    return;
  }
  const std::optional<int64_t> stride = LaneStride(store.offset);
  const bool is_float = element == "float" || element == "_Float16" || element == "bf16";
  const bool fits = stride && *stride != 0 && FitsLanes(store.value) &&
                    (!guarded || FitsLanes(store.guard)) &&
                    (is_float ? store.value->type == Type::kFloat : store.value->type != Type::kFloat);
  if (!fits || (*stride != 1 && (guarded || !is_float))) {
    ForEachLane([&] { Store(store); });
    return;
  }
  const bool masked = guarded && IsLanes(store.guard);
  const int outer_floor = floor_;
  if (guarded && !masked) Open(fmt::format("if ({})", Scalar(store.guard)));
  if (masked) {
    const std::string mask = Lanes(store.guard);
    Open("");
    mask_ = Fresh("m");
    Line(fmt::format("const IntVec {} = {};", mask_, mask));
  }
  if (guarded) floor_ = Depth();
  std::string value = Lanes(store.value);
  if (store.value->type == Type::kBool) value = fmt::format("(-{})", value);
  const std::string address = Address(store.buffer, store.offset);
  if (*stride != 1) {
    Line(fmt::format("part.StridedStore({}, {}, {});", address, stage_.Number(*stride), value));
  } else if (masked) {
    Line(fmt::format("part.StoreIf({}, {}, {});", address, value, mask_));
  } else if (stream && element == "float") {
    Line(fmt::format("{0} ? part.Stream({1}, {2}) : part.Store({1}, {2});", stage_.Constant("STREAM", 1),
                     address, value));
  } else {
    Line(fmt::format("part.Store({}, {});", address, value));
  }
  floor_ = outer_floor;
  mask_.clear();
  if (guarded) Close();
}

}  // namespace kevin::search
