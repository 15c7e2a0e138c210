// Which intermediates of 16 bits are kept in fp32.
//
// Norms: a fused stage rounds what it stores after more operations than eager does, where values may be larger than the
// result: a norm that subtracts the mean then shows the rounding at full size.
//
// Chains: the check allows two roundings to the type (env/verdict/verify.h), where eager's own error at that element is
// not larger. Errors of two correct kernels that round often differ element by element, so that one with eager's
// accuracy is beyond four times eager's error somewhere.

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "policies/search/forwarding.h"

namespace kevin::search {
namespace {

struct Readers {
  bool by_product = false, by_sum = false;
  int others = 0;  // stages, and stores of the stage that adds it up
};

void Note(const std::vector<ExprPtr>& exprs, const std::function<void(Readers&)>& note,
          std::map<int, Readers>& readers) {
  std::set<int> seen;
  for (const ExprPtr& expr : exprs) {
    if (!expr) continue;
    for (const Expr* node : Nodes(expr)) {
      if (node->op == "load" && seen.insert(node->id).second) note(readers[node->id]);
    }
  }
}

void NoteStage(const Stage& stage, std::map<int, Readers>& readers) {
  const auto is_product = [](Readers& reader) { reader.by_product = true; };
  const auto is_other = [](Readers& reader) { ++reader.others; };
  std::vector<ExprPtr> stored;
  const auto add = [&](const std::vector<Store>& stores) {
    for (const Store& store : stores) stored.insert(stored.end(), {store.value, store.guard, store.offset});
  };
  if (const auto* work = std::get_if<Contraction>(&stage.work)) {
    Note({work->lhs, work->rhs}, is_product, readers);
    add(work->stores);
  } else if (const auto* attention = std::get_if<Attention>(&stage.work)) {
    Note({attention->query, attention->key, attention->value}, is_product, readers);
    Note({attention->score}, is_other, readers);
    add(attention->stores);
  } else if (const auto* reduction = std::get_if<Reduction>(&stage.work)) {
    std::vector<ExprPtr> sums;
    for (const Accumulator& one : reduction->accumulators) {
      if (one.op == "sum") sums.push_back(one.value);
    }
    Note(
        sums, [](Readers& reader) { reader.by_sum = true; }, readers);
    add(reduction->inner_stores);
    add(reduction->outer_stores);
  } else if (const auto* pointwise = std::get_if<Pointwise>(&stage.work)) {
    add(pointwise->stores);
  } else if (const auto* scan = std::get_if<Scan>(&stage.work)) {
    Note({scan->value}, is_other, readers);
    add(scan->stores);
  } else if (const auto* repeat = std::get_if<Repeat>(&stage.work)) {
    for (const Stage& inner : repeat->body) NoteStage(inner, readers);
  }
  Note(stored, is_other, readers);
}

bool IsNarrow(const Buffer& buffer) {
  return buffer.argument < 0 && (buffer.dtype == "float16" || buffer.dtype == "bfloat16");
}

// By buffer: how many intermediates of 16 bits its values have gone through one after another, itself included. Values
// that a loop carries along go through them again and again: its body is walked until nothing changes, or `most` is
// reached.
class Roundings {
 public:
  Roundings(const Program& program, int most)
      : program_(program), most_(most), depth_(program.buffers.size()) {
    Walk(program.stages);
  }
  int deepest() const { return *std::max_element(depth_.begin(), depth_.end()); }

 private:
  bool Walk(const std::vector<Stage>& stages) {
    bool has_changed = false;
    for (const Stage& stage : stages) {
      if (const auto* repeat = std::get_if<Repeat>(&stage.work)) {
        while (Walk(repeat->body)) has_changed = true;
        continue;
      }
      int before = 0;
      for (const int read : BuffersRead(stage)) before = std::max(before, depth_[static_cast<size_t>(read)]);
      for (const int written : BuffersWritten(stage)) {
        const auto at = static_cast<size_t>(written);
        const int depth = std::min(most_, before + (IsNarrow(program_.buffers[at]) ? 1 : 0));
        has_changed = has_changed || depth > depth_[at];
        depth_[at] = std::max(depth_[at], depth);
      }
    }
    return has_changed;
  }

  const Program& program_;
  int most_;
  std::vector<int> depth_;
};

}  // namespace

bool WidenChains(Program& program, int most_roundings) {
  if (program.buffers.empty() || Roundings(program, most_roundings + 1).deepest() <= most_roundings)
    return false;
  for (Buffer& buffer : program.buffers) {
    if (IsNarrow(buffer)) buffer.dtype = "float32";
  }
  return true;
}

void WidenNormInputs(Program& program) {
  std::map<int, Readers> readers;
  for (const Stage& stage : program.stages) NoteStage(stage, readers);
  for (const auto& [buffer, reader] : readers) {
    Buffer& one = program.buffers[static_cast<size_t>(buffer)];
    if (IsNarrow(one) && reader.by_sum && reader.others > 0 && !reader.by_product) one.dtype = "float32";
  }
}

}  // namespace kevin::search
