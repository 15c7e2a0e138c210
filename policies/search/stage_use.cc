#include "policies/search/stage_use.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "policies/search/stage_parts.h"

namespace kevin::search {
namespace {

// The bytes of numbers.
class Bytes {
 public:
  template <class... Numbers>
  void Add(Numbers... numbers) {
    (AddOne(numbers), ...);
  }
  void AddText(const std::string& text) {
    AddOne(text.size());
    bytes_ += text;
  }
  const std::string& text() const { return bytes_; }

 private:
  template <class Number>
  void AddOne(Number number) {
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    bytes_.append(bytes, sizeof number);
  }
  std::string bytes_;
};

size_t DigestOf(const Stage& stage) {
  Stage& open = const_cast<Stage&>(stage);
  Bytes bytes;
  bytes.Add(stage.work.index());
  for (const std::vector<Loop>* loops : LoopListsOf(open)) {
    bytes.Add(loops->size());
    for (const Loop& loop : *loops) bytes.Add(loop.variable, loop.extent);
  }
  if (const auto* reduction = std::get_if<Reduction>(&stage.work)) {
    for (const Accumulator& one : reduction->accumulators) {
      bytes.AddText(one.op);
      bytes.Add(one.result, one.step);
    }
  }
  if (const auto* scan = std::get_if<Scan>(&stage.work)) {
    bytes.AddText(scan->op);
    bytes.Add(scan->along.variable, scan->along.extent, scan->reverse, scan->exclusive);
  }
  if (const auto* attention = std::get_if<Attention>(&stage.work))
    bytes.Add(attention->softmax, attention->causal, attention->masked_is_zero);
  ForEachExpr(stage, [&](const ExprPtr& expr) { bytes.AddText(expr->key); });
  ForEachStores(open, [&](std::vector<Store>& stores) {
    bytes.Add(stores.size());
    for (const Store& store : stores) bytes.Add(store.buffer, store.guard != nullptr);
  });
  return std::hash<std::string>()(bytes.text());
}

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
    key_.Add(stage_.work.index());
    for (const int buffer : buffers_) AddBuffer(program_.buffers.at(static_cast<size_t>(buffer)));
    for (const std::vector<Loop>* loops : LoopListsOf(const_cast<Stage&>(stage_))) {
      key_.Add(loops->size());
      for (const Loop& loop : *loops) AddLoop(loop);
    }
    AddDetails();
    ForEachExpr(stage_, [&](const ExprPtr& expr) { AddExpr(*expr); });
    ForEachStores(const_cast<Stage&>(stage_), [&](std::vector<Store>& stores) {
      key_.Add(stores.size());
      for (const Store& store : stores) key_.Add(PlaceIn(buffers_, store.buffer), store.guard != nullptr);
    });
    return fits_ ? key_.text() : "";
  }

 private:
  void AddLoop(const Loop& loop) { key_.Add(PlaceIn(variables_, loop.variable), loop.extent); }
  void AddBuffer(const Buffer& buffer) {
    key_.AddText(buffer.dtype);
    key_.Add(buffer.elements, buffer.base % kAlignment, buffer.base_symbol.empty(), buffer.argument >= 0,
             buffer.is_output, buffer.is_inout);
  }
  // What is neither a loop nor an expression nor a store.
  void AddDetails() {
    if (const auto* reduction = std::get_if<Reduction>(&stage_.work)) {
      key_.Add(reduction->accumulators.size());
      for (const Accumulator& one : reduction->accumulators) {
        key_.AddText(one.op);
        key_.Add(one.result, one.step);
      }
    } else if (const auto* scan = std::get_if<Scan>(&stage_.work)) {
      AddLoop(scan->along);
      key_.AddText(scan->op);
      key_.Add(scan->reverse, scan->exclusive);
    } else if (const auto* attention = std::get_if<Attention>(&stage_.work)) {
      key_.Add(attention->softmax, attention->causal, attention->masked_is_zero);
    } else if (const auto* contraction = std::get_if<Contraction>(&stage_.work)) {
      key_.Add(contraction->k_limits.size());
      for (const ExprPtr& limit : contraction->k_limits) key_.Add(limit != nullptr);
    }
  }
  void AddExpr(const Expr& e) {
    constexpr size_t kMostKeyBytes = 1 << 16;
    if (!fits_ || key_.text().size() > kMostKeyBytes) {
      fits_ = false;
      return;
    }
    key_.Add(static_cast<uint8_t>(e.op.number()), static_cast<uint8_t>(e.type));
    if (e.op == "variable") return key_.Add(PlaceIn(variables_, e.id), e.high);
    if (e.op == "load") key_.Add(PlaceIn(buffers_, e.id));
    if (e.op == "result") key_.Add(e.id);
    if (e.op == "constant") key_.Add(e.number);
    key_.Add(e.integer, static_cast<uint16_t>(e.args.size()));
    for (size_t i = 0; i < e.args.size(); ++i) {
      if (i < e.coefficients.size()) key_.Add(e.coefficients[i]);
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
  Bytes key_;
  bool fits_ = true;
};

}  // namespace

BufferSet::BufferSet(std::vector<int> buffers) : numbers(std::move(buffers)) {
  std::sort(numbers.begin(), numbers.end());
  for (const int buffer : numbers) mask |= uint64_t{1} << (buffer % 64);
}

bool BufferSet::Has(int buffer) const { return std::binary_search(numbers.begin(), numbers.end(), buffer); }

bool BufferSet::IntersectsSorted(const BufferSet& other) const {
  for (size_t i = 0, j = 0; i < numbers.size() && j < other.numbers.size();) {
    if (numbers[i] == other.numbers[j]) return true;
    numbers[i] < other.numbers[j] ? ++i : ++j;
  }
  return false;
}

StageUse StageUseOf(const Stage& stage) {
  return {BufferSet(BuffersRead(stage)), BufferSet(BuffersWritten(stage)), DigestOf(stage)};
}

std::string StageKey(const Program& program, const Stage& stage, const std::vector<int>& buffers) {
  return KeyWriter(program, stage, buffers).Key();
}

}  // namespace kevin::search
