#include "policies/search/stage_key.h"

#include <algorithm>
#include <cstring>

#include "policies/search/stage_parts.h"

namespace kevin::search {
namespace {

constexpr int64_t kAlignment = 64;  // elements; more is not asked for

class KeyWriter {
 public:
  KeyWriter(const Program& program, const Stage& stage, std::vector<int> buffers)
      : program_(program), stage_(stage), buffers_(std::move(buffers)) {
    std::sort(buffers_.begin(), buffers_.end());
    for (const std::vector<Loop>* loops : LoopListsOf(const_cast<Stage&>(stage))) {
      for (const Loop& loop : *loops) variables_.push_back(loop.variable);
    }
    if (const auto* scan = std::get_if<Scan>(&stage.work)) variables_.push_back(scan->along.variable);
    std::sort(variables_.begin(), variables_.end());
  }

  std::string Key() {
    if (std::holds_alternative<Repeat>(stage_.work)) return "";
    Add(stage_.work.index());
    for (const int buffer : buffers_) AddBuffer(program_.buffers.at(static_cast<size_t>(buffer)));
    for (const std::vector<Loop>* loops : LoopListsOf(const_cast<Stage&>(stage_))) {
      Add(loops->size());
      for (const Loop& loop : *loops) AddLoop(loop);
    }
    AddDetails();
    ForEachExpr(stage_, [&](const ExprPtr& expr) { AddExpr(*expr); });
    ForEachStores(const_cast<Stage&>(stage_), [&](std::vector<Store>& stores) {
      Add(stores.size());
      for (const Store& store : stores) Add(PlaceIn(buffers_, store.buffer)), Add(store.guard != nullptr);
    });
    return fits_ ? std::move(key_) : "";
  }

 private:
  template <class Number>
  void Add(Number number) {
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    key_.append(bytes, sizeof number);
  }
  void AddText(const std::string& text) {
    Add(text.size());
    key_ += text;
  }
  void AddLoop(const Loop& loop) {
    Add(PlaceIn(variables_, loop.variable));
    Add(loop.extent);
  }
  void AddBuffer(const Buffer& buffer) {
    AddText(buffer.dtype);
    Add(buffer.elements);
    Add(buffer.base % kAlignment);
    Add(buffer.base_symbol.empty());
    Add(buffer.argument >= 0);
    Add(buffer.is_output);
    Add(buffer.is_inout);
  }
  // What is neither a loop nor an expression nor a store.
  void AddDetails() {
    if (const auto* reduction = std::get_if<Reduction>(&stage_.work)) {
      Add(reduction->accumulators.size());
      for (const Accumulator& one : reduction->accumulators) {
        AddText(one.op);
        Add(one.result);
        Add(one.step);
      }
    } else if (const auto* scan = std::get_if<Scan>(&stage_.work)) {
      AddLoop(scan->along);
      AddText(scan->op);
      Add(scan->reverse);
      Add(scan->exclusive);
    } else if (const auto* attention = std::get_if<Attention>(&stage_.work)) {
      Add(attention->softmax);
      Add(attention->causal);
    } else if (const auto* contraction = std::get_if<Contraction>(&stage_.work)) {
      Add(contraction->k_limits.size());
      for (const ExprPtr& limit : contraction->k_limits) Add(limit != nullptr);
    }
  }
  void AddExpr(const Expr& e) {
    constexpr size_t kMostKeyBytes = 1 << 16;
    if (!fits_ || key_.size() > kMostKeyBytes) {
      fits_ = false;
      return;
    }
    Add(static_cast<uint8_t>(e.op.number()));
    Add(static_cast<uint8_t>(e.type));
    if (e.op == "variable") return Add(PlaceIn(variables_, e.id));
    if (e.op == "load") Add(PlaceIn(buffers_, e.id));
    if (e.op == "result") Add(e.id);
    if (e.op == "constant") Add(e.number);
    Add(e.integer);
    Add(static_cast<uint16_t>(e.args.size()));
    for (size_t i = 0; i < e.args.size(); ++i) {
      if (i < e.coefficients.size()) Add(e.coefficients[i]);
      AddExpr(*e.args[i]);
    }
  }
  uint16_t PlaceIn(const std::vector<int>& sorted, int number) {
    const auto found = std::lower_bound(sorted.begin(), sorted.end(), number);
    if (found == sorted.end() || *found != number) fits_ = false;
    return static_cast<uint16_t>(found - sorted.begin());
  }

  const Program& program_;
  const Stage& stage_;
  std::vector<int> buffers_, variables_;  // sorted
  std::string key_;
  bool fits_ = true;
};

}  // namespace

std::string StageKey(const Program& program, const Stage& stage, const std::vector<int>& buffers) {
  return KeyWriter(program, stage, buffers).Key();
}

}  // namespace kevin::search
