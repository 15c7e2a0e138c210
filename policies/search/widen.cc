// Which intermediates of 16 bits are kept in fp32.
//
// Norms: a fused stage rounds what it stores after more operations than eager does, where values may be larger than the
// result: a norm that subtracts the mean then shows the rounding at full size.
//
// Chains: the check allows two roundings to the type (env/verdict/verify.h), where eager's own error at that element is
// not larger. Errors of two correct kernels that round often differ element by element, so that one with eager's
// accuracy is beyond four times eager's error somewhere.
//
// Queries and keys: their rounding is an absolute error of the exponent, and scores are large where inputs are. Those that
// are products of arguments keep twice the digits: as two tensors of 16 bits for the tensor cores, in fp32 elsewhere. Where
// a product reads intermediates on the way, that rounding is as large, and nothing would be gained.

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "policies/search/cuda_attention.h"
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
  int Of(int buffer) const { return depth_[static_cast<size_t>(buffer)]; }

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

std::vector<int> LoadsIn(const ExprPtr& expr) {
  std::vector<int> loads;
  for (const Expr* node : Nodes(expr)) {
    if (node->op == "load") loads.push_back(node->id);
  }
  return loads;
}

bool HasExponential(const Reduction& work) {
  return std::any_of(work.accumulators.begin(), work.accumulators.end(), [](const Accumulator& one) {
    const std::vector<const Expr*> nodes = Nodes(one.value);
    return std::any_of(nodes.begin(), nodes.end(), [](const Expr* node) { return node->op == "exp"; });
  });
}

// The intermediates of 16 bits on the way from products of arguments to queries and keys.
class ScoreOperands {
 public:
  explicit ScoreOperands(Program& program) : program_(program), roundings_(program, 2) {
    for (const Stage& stage : program.stages) {
      for (const int buffer : BuffersWritten(stage)) writers_[buffer].push_back(&stage);
    }
  }

  // Adds those of an operand; false: it is an argument, or a product of intermediates.
  bool Add(const ExprPtr& operand) {
    std::set<int> passed, narrow;
    for (const int buffer : LoadsIn(operand)) {
      if (!Follow(buffer, passed, narrow)) return false;
    }
    narrow_.insert(narrow.begin(), narrow.end());
    return !narrow.empty();
  }

  // Their values become sums of two tensors, in the stages that make them and in the scores.
  void Split() {
    std::set<Stage*> makers;
    for (Stage& stage : program_.stages) {
      const std::vector<int> written = BuffersWritten(stage);
      if (std::any_of(written.begin(), written.end(), [&](int b) { return narrow_.count(b) > 0; }))
        makers.insert(&stage);
    }
    for (const int buffer : narrow_) {
      Buffer small = program_.buffers[static_cast<size_t>(buffer)];
      small.name += ", what rounding leaves";
      small_[buffer] = static_cast<int>(program_.buffers.size());
      program_.buffers.push_back(small);
    }
    for (Stage* maker : makers) {
      ForEachExpr(*maker, [&](ExprPtr& expr) { expr = Whole(expr); });
      ForEachStores(*maker, [&](std::vector<search::Store>& stores) { AddSmall(stores); });
    }
    for (Stage& stage : program_.stages) {
      if (auto* attention = std::get_if<Attention>(&stage.work)) {
        attention->query = Whole(attention->query);
        attention->key = Whole(attention->key);
      }
    }
  }

  void Widen() {
    for (const int buffer : narrow_) program_.buffers[static_cast<size_t>(buffer)].dtype = "float32";
  }

 private:
  bool Follow(int buffer, std::set<int>& passed, std::set<int>& narrow) {
    const Buffer& one = program_.buffers[static_cast<size_t>(buffer)];
    if (one.argument >= 0 || !passed.insert(buffer).second) return true;
    if (IsNarrow(one)) narrow.insert(buffer);
    for (const Stage* stage : writers_[buffer]) {
      const auto* product = std::get_if<Contraction>(&stage->work);
      if (!product && !std::holds_alternative<Pointwise>(stage->work) &&
          !std::holds_alternative<Reduction>(stage->work))
        return false;
      std::set<int> operands;
      if (product) {
        for (const ExprPtr& operand : {product->lhs, product->rhs}) {
          for (const int load : LoadsIn(operand)) {
            if (roundings_.Of(load) > 0) return false;
            operands.insert(load);
          }
        }
      }
      for (const int load : BuffersRead(*stage)) {
        if (!operands.count(load) && !Follow(load, passed, narrow)) return false;
      }
    }
    return true;
  }

  ExprPtr Whole(const ExprPtr& expr) const {
    return Substitute(expr, [&](const Expr& e) -> ExprPtr {
      const auto found = e.op == "load" ? small_.find(e.id) : small_.end();
      if (found == small_.end()) return nullptr;
      return Binary("add", Load(e.id, e.type, e.args[0]), Load(found->second, e.type, e.args[0]));
    });
  }

  void AddSmall(std::vector<search::Store>& stores) const {
    for (size_t i = 0; i < stores.size(); ++i) {
      const auto found = small_.find(stores[i].buffer);
      if (found == small_.end()) continue;
      search::Store small = stores[i];
      const std::string& dtype = program_.buffers[static_cast<size_t>(small.buffer)].dtype;
      small.buffer = found->second;
      small.value = Binary("sub", small.value, Unary(Op("as_" + dtype), small.value));
      stores.insert(stores.begin() + static_cast<long>(++i), small);
    }
  }

  Program& program_;
  Roundings roundings_;
  std::map<int, std::vector<const Stage*>> writers_;
  std::set<int> narrow_;
  std::map<int, int> small_;  // by buffer: that of the rest
};

}  // namespace

void KeepScoreOperands(Program& program) {
  if (program.buffers.empty()) return;
  ScoreOperands streamed(program), stored(program);
  std::set<int> read_by_softmax;
  for (const Stage& stage : program.stages) {
    const auto* work = std::get_if<Reduction>(&stage.work);
    if (!work || !HasExponential(*work)) continue;
    for (const int buffer : BuffersRead(stage)) read_by_softmax.insert(buffer);
  }
  bool splits = false, widens = false;
  for (const Stage& stage : program.stages) {
    if (const auto* attention = std::get_if<Attention>(&stage.work)) {
      if (!attention->softmax) continue;
      const bool is_half = SuitsCudaAttentionHalf(program, *attention);
      ScoreOperands& operands = is_half ? streamed : stored;
      const bool has_query = operands.Add(attention->query), has_key = operands.Add(attention->key);
      (is_half ? splits : widens) |= has_query || has_key;
    } else if (const auto* product = std::get_if<Contraction>(&stage.work)) {
      const std::vector<int> scores = BuffersWritten(stage);
      if (std::none_of(scores.begin(), scores.end(), [&](int b) { return read_by_softmax.count(b) > 0; }))
        continue;
      const bool has_left = stored.Add(product->lhs), has_right = stored.Add(product->rhs);
      widens |= has_left || has_right;
    }
  }
  if (splits) streamed.Split();
  if (widens) stored.Widen();
}

bool WidenChains(Program& program, int most_roundings) {
  if (program.buffers.empty() || Roundings(program, most_roundings + 1).deepest() <= most_roundings)
    return false;
  for (Buffer& buffer : program.buffers) {
    if (IsNarrow(buffer)) buffer.dtype = "float32";
  }
  return true;
}

bool HasNarrowChain(const Program& program) {
  const bool keeps = std::any_of(program.stages.begin(), program.stages.end(), [](const Stage& stage) {
    const auto* attention = std::get_if<Attention>(&stage.work);
    return attention && attention->softmax;
  });
  return !keeps && std::any_of(program.buffers.begin(), program.buffers.end(), IsNarrow);
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
