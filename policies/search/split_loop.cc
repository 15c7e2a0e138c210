// Stages of a kept loop that no later iteration needs leave it: they run once, for all iterations.

#include <algorithm>
#include <set>
#include <utility>

#include "policies/search/stage_parts.h"

namespace kevin::search {
namespace {

constexpr int64_t kFewestIterations = 4;
constexpr double kMostBytes = 1e9;  // of what is kept of all iterations

class LoopSplitter {
 public:
  LoopSplitter(Repeat& repeat, std::vector<Buffer>& buffers) : repeat_(repeat), buffers_(buffers) {
    for (size_t i = 0; i < repeat.body.size(); ++i) Note(i);
  }

  std::vector<Stage> Take(const std::function<Loop(int64_t)>& new_loop) {
    if (repeat_.times.extent < kFewestIterations) return {};
    FindLate();
    const bool has_late = std::find(late_.begin(), late_.end(), true) != late_.end();
    if (!has_late || std::find(late_.begin(), late_.end(), false) == late_.end()) return {};
    double bytes = 0;
    std::set<int> kept;
    for (size_t i = 0; i < late_.size(); ++i) {
      if (!late_[i]) continue;
      for (const std::set<int>* uses : {&reads_[i], &writes_[i]}) {
        for (const int buffer : *uses) {
          if (!writers_.count(buffer) || moving_.count(buffer) || !kept.insert(buffer).second) continue;
          bytes += 4.0 * static_cast<double>(At(buffer).elements * repeat_.times.extent);
        }
      }
    }
    if (bytes > kMostBytes) return {};
    for (Stage& stage : repeat_.body) Keep(stage, kept);
    for (const int buffer : kept) At(buffer).elements *= repeat_.times.extent;
    std::vector<Stage> core, after;
    for (size_t i = 0; i < late_.size(); ++i) {
      if (late_[i]) Widen(repeat_.body[i], new_loop(repeat_.times.extent));
      (late_[i] ? after : core).push_back(std::move(repeat_.body[i]));
    }
    repeat_.body = std::move(core);
    return after;
  }

 private:
  Buffer& At(int buffer) { return buffers_[static_cast<size_t>(buffer)]; }

  void Note(size_t i) {
    Stage& stage = repeat_.body[i];
    late_.push_back(!std::holds_alternative<Repeat>(stage.work));
    reads_.emplace_back(), writes_.emplace_back();
    ForEachExpr(std::as_const(stage), [&](const ExprPtr& expr) {
      for (const Expr* node : Nodes(expr)) {
        if (node->op != "load") continue;
        reads_[i].insert(node->id);
        if (Uses(node->args[0], repeat_.times.variable)) moving_.insert(node->id);
      }
    });
    ForEachStores(stage, [&](std::vector<Store>& stores) {
      for (const Store& store : stores) {
        writes_[i].insert(store.buffer);
        writers_[store.buffer].insert(i);
        if (Uses(store.offset, repeat_.times.variable)) moving_.insert(store.buffer);
      }
    });
  }

  // What a stage writes is read by later stages of the same iteration only, which are late too; what it reads is made
  // in the same iteration, or before the loop.
  bool MayBeLate(size_t i) {
    for (const int buffer : writes_[i]) {
      for (size_t r = 0; r < reads_.size(); ++r) {
        if (reads_[r].count(buffer) && (r <= i || !late_[r] || moving_.count(buffer))) return false;
      }
      for (const size_t writer : writers_[buffer]) {
        if (!late_[writer]) return false;
      }
      if (!moving_.count(buffer) && At(buffer).argument >= 0) return false;
    }
    for (const int buffer : reads_[i]) {
      if (!writers_.count(buffer)) continue;
      if (moving_.count(buffer) || At(buffer).argument >= 0 || *writers_[buffer].rbegin() >= i) return false;
    }
    return true;
  }

  void FindLate() {
    for (bool changes = true; changes;) {
      changes = false;
      for (size_t i = 0; i < late_.size(); ++i) {
        if (!late_[i] || MayBeLate(i)) continue;
        late_[i] = false;
        changes = true;
      }
    }
  }

  // The buffers have a place for each iteration.
  void Keep(Stage& stage, const std::set<int>& kept) {
    const auto moved = [&](const ExprPtr& offset, int buffer) {
      return AddInt(offset,
                    Scaled(Variable(repeat_.times.variable, repeat_.times.extent), At(buffer).elements));
    };
    const std::function<ExprPtr(const Expr&)> replace = [&](const Expr& e) -> ExprPtr {
      if (e.op != "load" || !kept.count(e.id)) return nullptr;
      return Load(e.id, e.type, moved(Substitute(e.args[0], replace), e.id));
    };
    ForEachExpr(stage, [&](ExprPtr& expr) { expr = Substitute(expr, replace); });
    ForEachStores(stage, [&](std::vector<Store>& stores) {
      for (Store& store : stores) {
        if (kept.count(store.buffer)) store.offset = moved(store.offset, store.buffer);
      }
    });
  }

  void Widen(Stage& stage, const Loop& loop) {
    const ExprPtr time = Variable(loop.variable, loop.extent);
    ForEachExpr(stage, [&](ExprPtr& expr) { expr = Replace(expr, {{repeat_.times.variable, time}}); });
    stage.flops *= static_cast<double>(loop.extent), stage.bytes *= static_cast<double>(loop.extent);
    std::vector<Loop>* loops = nullptr;
    if (auto* pointwise = std::get_if<Pointwise>(&stage.work)) loops = &pointwise->loops;
    if (auto* reduction = std::get_if<Reduction>(&stage.work)) loops = &reduction->outer;
    if (auto* scan = std::get_if<Scan>(&stage.work)) loops = &scan->outer;
    if (auto* attention = std::get_if<Attention>(&stage.work)) loops = &attention->batch;
    if (auto* product = std::get_if<Contraction>(&stage.work)) {
      bool is_limited = false;
      for (const ExprPtr& limit : product->k_limits) is_limited |= limit && Uses(limit, loop.variable);
      const bool left = Uses(product->lhs, loop.variable), right = Uses(product->rhs, loop.variable);
      loops = is_limited || left == right ? &product->batch : left ? &product->m : &product->n;
    }
    loops->insert(loops->begin(), loop);
  }

  Repeat& repeat_;
  std::vector<Buffer>& buffers_;
  std::vector<bool> late_;
  std::vector<std::set<int>> reads_, writes_;
  std::map<int, std::set<size_t>> writers_;
  std::set<int> moving_;  // buffers with a place that depends on the iteration
};

}  // namespace

std::vector<Stage> TakeStagesAfterLoop(Repeat& repeat, std::vector<Buffer>& buffers,
                                       const std::function<Loop(int64_t)>& new_loop) {
  return LoopSplitter(repeat, buffers).Take(new_loop);
}

}  // namespace kevin::search
