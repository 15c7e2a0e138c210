// Joins stages. Every joint is checked by substitution: the second stage's loops are expressed in those of the first, and
// what it reads of the first must then be exactly what the first stores at that point.

#include <algorithm>
#include <optional>
#include <set>

#include "policies/search/forwarding.h"
#include "policies/search/lower.h"
#include "policies/search/stage_parts.h"
#include "policies/search/stage_use.h"

namespace kevin::search {
namespace {

int DivisionsOf(const std::vector<Store>& stores) {
  int count = 0;
  for (const Store& store : stores) {
    for (const ExprPtr& expr : {store.offset, store.value, store.guard}) {
      for (const Expr* node : Nodes(expr)) count += node->op == "div" || node->op == "mod";
    }
  }
  return count;
}

// --- The passes ---

class Fuser {
 public:
  // `stages` are those of the program or of a Repeat in it.
  Fuser(Program& program, std::vector<Stage>& stages)
      : program_(program),
        stages_(stages),
        is_in_loop_(&stages != &program.stages),
        has_inout_(std::any_of(program.buffers.begin(), program.buffers.end(),
                               [](const Buffer& buffer) { return buffer.is_inout; })) {}

  void Run() {
    DropUnread(program_, stages_);
    for (bool changed = true; changed;) {
      changed = false;
      NoteBuffers();
      is_gone_.assign(stages_.size(), false);
      for (size_t j = 1; j < stages_.size(); ++j) {
        while (!is_gone_[j] && JoinInto(j)) {
          changed = true;
          // The joint stage may join the one before it.
          while (j > 0 && is_gone_[j]) --j;
        }
      }
      RemoveGone();
      DropUnread(program_, stages_);
    }
    for (Stage& stage : stages_) {
      stage.bytes = BytesOf(stage);
      if (auto* repeat = std::get_if<Repeat>(&stage.work)) Fuser(program_, repeat->body).Run();
    }
  }

 private:
  void NoteBuffers() {
    buffers_.clear();
    for (Stage& stage : stages_) {
      buffers_.push_back(StageUseOf(stage));
      LargestVariable(stage, next_variable_);
    }
  }

  bool JoinInto(size_t j) {
    const bool is_pointwise = std::holds_alternative<Pointwise>(stages_[j].work);
    if (!is_pointwise && !std::holds_alternative<Reduction>(stages_[j].work)) return false;
    for (size_t i = j; i-- > 0;) {
      if (UsesInOutWrittenBy(i, j)) continue;
      const bool feeds = buffers_[i].writes.Intersects(buffers_[j].reads);
      if (!feeds && (is_pointwise || !buffers_[i].reads.Intersects(buffers_[j].reads))) continue;
      if (refused_.count({buffers_[i].form, buffers_[j].form}) || PlaceFor(i, j) < 0) continue;
      const std::pair<size_t, size_t> forms{buffers_[i].form, buffers_[j].form};
      depends_on_others_ = false;
      if (is_pointwise ? JoinRows(i, j) || JoinElements(i, j) : JoinReductions(i, j)) return true;
      if (!depends_on_others_) refused_.insert(forms);
    }
    return false;
  }

  // Whether j reads or writes an input-output that i writes: perhaps a part of it alone.
  bool UsesInOutWrittenBy(size_t i, size_t j) const {
    if (!has_inout_) return false;
    const std::vector<int>& writes = buffers_[i].writes.numbers;
    return std::any_of(writes.begin(), writes.end(), [&](int buffer) {
      return program_.buffers[buffer].is_inout &&
             (buffers_[j].reads.Has(buffer) || buffers_[j].writes.Has(buffer));
    });
  }

  // What the second stage read of the first must come from its expressions: in one stage it would be read from memory
  // before it is there, as the results of other rows, and of this one in some kernels.
  bool IsSafe(const Stage& joint) const { return HasIndependentPoints(program_, joint); }

  // Where the joint stage can stand: at i, if all that j reads is there by then and nothing between reads or writes what
  // j writes; at j, if nothing between reads or writes what i writes, or writes what i reads. None: -1.
  int PlaceFor(size_t i, size_t j) const {
    const StageUse &first = buffers_[i], &second = buffers_[j];
    bool can_rise = true, can_sink = true;
    for (size_t between = i + 1; between < j; ++between) {
      const BufferSet &reads = buffers_[between].reads, &writes = buffers_[between].writes;
      if (writes.Intersects(second.reads) || reads.Intersects(second.writes) ||
          writes.Intersects(second.writes)) {
        can_rise = false;
      }
      if (reads.Intersects(first.writes) || writes.Intersects(first.writes) ||
          writes.Intersects(first.reads)) {
        can_sink = false;
      }
    }
    return can_rise ? static_cast<int>(i) : can_sink ? static_cast<int>(j) : -1;
  }

  void Replace2(size_t i, size_t j, int place, Stage joint) {
    const std::string& second = stages_[j].name;
    if (joint.name.find(second) == std::string::npos && second != "output" && joint.name.size() < 60)
      joint.name += " + " + second;
    joint.flops = stages_[i].flops + stages_[j].flops;
    stages_[static_cast<size_t>(place)] = std::move(joint);
    const size_t gone = static_cast<size_t>(place) == i ? j : i;
    buffers_[static_cast<size_t>(place)] = StageUseOf(stages_[static_cast<size_t>(place)]);
    buffers_[gone] = {};
    is_gone_[gone] = true;
  }

  void RemoveGone() {
    size_t kept = 0;
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (is_gone_[i]) continue;
      if (i != kept) stages_[kept] = std::move(stages_[i]);
      ++kept;
    }
    stages_.erase(stages_.begin() + static_cast<long>(kept), stages_.end());
  }

  // Pointwise work on each element that stage i stores.
  bool JoinElements(size_t i, size_t j) {
    const auto& given = std::get<Pointwise>(stages_[j].work);
    const std::vector<Store>* made = nullptr;
    Stage joint = stages_[i];
    std::vector<Store>* target = nullptr;
    if (auto* work = std::get_if<Pointwise>(&joint.work)) target = &work->stores;
    if (auto* work = std::get_if<Contraction>(&joint.work)) target = &work->stores;
    if (auto* work = std::get_if<Scan>(&joint.work)) target = &work->stores;
    if (auto* work = std::get_if<Attention>(&joint.work)) target = &work->stores;
    std::vector<std::vector<Store>*> targets = {target};
    if (auto* work = std::get_if<Reduction>(&joint.work))
      targets = {&work->inner_stores, &work->outer_stores};
    for (std::vector<Store>* list : targets) {
      if (!list) continue;
      made = list;
      const std::vector<Store> known = KnownAt(joint, *list);
      for (const Store& store : *made) {
        if (!ReadOf(given, store.buffer)) continue;
        if (!IsOnlyStore(i, store.buffer)) {
          depends_on_others_ = true;
          continue;
        }
        if (is_in_loop_ && !WritesAll(store, PointsOf(joint, *list))) continue;
        Pointwise second = given;
        SplitAtDivisions(second, store.buffer);
        const ExprPtr read = ReadOf(second, store.buffer);
        if (!read) continue;
        const std::optional<Replacement> replacement =
            Invert(second.loops, read, program_.buffers[store.buffer].elements, store.offset);
        if (!replacement) continue;
        const std::optional<std::vector<Store>> moved =
            Moved(second.stores, *replacement, known, store.guard);
        if (!moved) continue;
        const bool is_heavy = !std::holds_alternative<Pointwise>(joint.work);
        if (DivisionsOf(*moved) > DivisionsOf(given.stores) + (is_heavy ? 6 : 1)) continue;
        list->insert(list->end(), moved->begin(), moved->end());
        if (!IsSafe(joint)) return false;
        Replace2(i, j, PlaceFor(i, j), std::move(joint));
        return true;
      }
    }
    return false;
  }

  // What the stage stores by the time that it makes the stores of `list`: results of a row are there for its elements.
  static std::vector<Store> KnownAt(const Stage& stage, const std::vector<Store>& list) {
    std::vector<Store> known = list;
    if (const auto* work = std::get_if<Reduction>(&stage.work); work && &list == &work->inner_stores)
      known.insert(known.end(), work->outer_stores.begin(), work->outer_stores.end());
    return known;
  }

  // Whether one store of stage i writes all of the buffer: not a part of a concatenation, nothing is overwritten.
  bool IsOnlyStore(size_t i, int buffer) {
    int count = 0;
    for (size_t other = 0; other < stages_.size(); ++other) {
      if (!buffers_[other].writes.Has(buffer)) continue;
      if (other != i) return false;
      ForEachStores(stages_[i], [&](std::vector<Store>& stores) {
        for (const Store& store : stores) count += store.buffer == buffer;
      });
    }
    return count == 1;
  }

  // The points at which the stage makes the stores of `list`.
  static int64_t PointsOf(const Stage& stage, const std::vector<Store>& list) {
    if (const auto* work = std::get_if<Reduction>(&stage.work))
      return CountOf(work->outer) * (&list == &work->inner_stores ? CountOf(work->inner) : 1);
    if (const auto* work = std::get_if<Contraction>(&stage.work))
      return CountOf(work->batch) * CountOf(work->m) * CountOf(work->n);
    if (const auto* work = std::get_if<Scan>(&stage.work)) return CountOf(work->outer) * work->along.extent;
    if (const auto* work = std::get_if<Attention>(&stage.work))
      return CountOf(work->batch) * CountOf(work->queries) * CountOf(work->width);
    return CountOf(std::get<Pointwise>(stage.work).loops);
  }

  // In a loop, the rest may be there from before: of other iterations.
  bool WritesAll(const Store& store, int64_t points) const {
    return !store.guard && points == program_.buffers[store.buffer].elements;
  }

  // The offset at which the stage reads the buffer, where all its reads of it are there.
  static ExprPtr ReadOf(const Pointwise& stage, int buffer) {
    ExprPtr read;
    for (const Store& store : stage.stores) {
      for (const ExprPtr& expr : {store.value, store.guard, store.offset}) {
        for (const Expr* node : Nodes(expr)) {
          if (node->op != "load" || node->id != buffer) continue;
          if (read && read->key != node->args[0]->key) return nullptr;
          read = node->args[0];
        }
      }
    }
    return read;
  }

  // Pointwise work over the rows that stage i reduces, with its results: y = (x - mean) * inverse. The joint stage has the
  // loops of the second, which may divide rows further (channels of a group).
  bool JoinRows(size_t i, size_t j) {
    if (!std::holds_alternative<Reduction>(stages_[i].work)) return false;
    const auto& first = std::get<Reduction>(stages_[i].work);
    if (CountOf(std::get<Pointwise>(stages_[j].work).loops) != CountOf(first.outer) * CountOf(first.inner))
      return false;
    for (const Store& store : first.outer_stores) {
      Pointwise second = std::get<Pointwise>(stages_[j].work);
      if (store.guard || !ReadOf(second, store.buffer)) continue;
      SplitAtDivisions(second, store.buffer);
      const ExprPtr read = ReadOf(second, store.buffer);
      std::vector<Loop> outer, inner;
      for (const Loop& loop : second.loops) (Uses(read, loop.variable) ? outer : inner).push_back(loop);
      if (CountOf(outer) != CountOf(first.outer) || CountOf(inner) != CountOf(first.inner)) continue;
      Replacement replacement;
      AddPositions(first.outer, LinearOf(outer), replacement);
      AddPositions(first.inner, LinearOf(inner), replacement);
      Stage joint = stages_[i];
      ForEachExpr(joint, [&](ExprPtr& expr) { expr = Replace(expr, replacement); });
      auto& work = std::get<Reduction>(joint.work);
      work.outer = outer;
      work.inner = inner;
      const std::optional<std::vector<Store>> moved =
          Moved(second.stores, {}, KnownAt(joint, work.inner_stores), nullptr);
      if (!moved) continue;
      work.inner_stores.insert(work.inner_stores.end(), moved->begin(), moved->end());
      if (CountDivisions(joint) > CountDivisions(stages_[i]) + CountDivisions(stages_[j])) continue;
      if (!IsSafe(joint)) continue;
      MergeLoops(joint);
      Replace2(i, j, PlaceFor(i, j), std::move(joint));
      return true;
    }
    return false;
  }

  // Splits loops whose variable is divided where the stage reads `buffer`: the divisions disappear there.
  void SplitAtDivisions(Pointwise& stage, int buffer) {
    for (size_t at = 0; at < stage.loops.size(); ++at) {
      const Loop loop = stage.loops[at];
      const ExprPtr read = ReadOf(stage, buffer);
      int64_t divisor = 0;
      for (const Expr* node : Nodes(read)) {
        if (node->op != "div" && node->op != "mod") continue;
        if (node->args[0]->op == "variable" && node->args[0]->id == loop.variable) divisor = node->integer;
      }
      if (divisor <= 1 || loop.extent % divisor != 0 || loop.extent == divisor) continue;
      const Loop high{loop.variable, loop.extent / divisor}, low{NewVariable(), divisor};
      const ExprPtr whole =
          AddInt(Scaled(Variable(high.variable, high.extent), divisor), Variable(low.variable, low.extent));
      for (Store& store : stage.stores) {
        for (ExprPtr* expr : {&store.offset, &store.value, &store.guard})
          *expr = Replace(*expr, {{loop.variable, whole}});
      }
      stage.loops[at] = high;
      stage.loops.insert(stage.loops.begin() + static_cast<long>(at) + 1, low);
    }
  }

  int NewVariable() { return ++next_variable_; }
  static void LargestVariable(Stage& stage, int& largest) {
    for (const std::vector<Loop>* loops : LoopListsOf(stage)) {
      for (const Loop& loop : *loops) largest = std::max(largest, loop.variable);
    }
    if (const auto* scan = std::get_if<Scan>(&stage.work)) largest = std::max(largest, scan->along.variable);
    if (auto* repeat = std::get_if<Repeat>(&stage.work)) {
      largest = std::max(largest, repeat->times.variable);
      for (Stage& inner : repeat->body) LargestVariable(inner, largest);
    }
  }

  // Two reductions over the same rows: the second reads results of the first, or the same rows.
  bool JoinReductions(size_t i, size_t j) {
    if (!std::holds_alternative<Reduction>(stages_[i].work)) return false;
    Stage joint = stages_[i];
    auto& first = std::get<Reduction>(joint.work);
    const auto& second = std::get<Reduction>(stages_[j].work);
    if (CountOf(first.outer) != CountOf(second.outer) || CountOf(first.inner) != CountOf(second.inner))
      return false;
    const bool reads_results = buffers_[i].writes.Intersects(buffers_[j].reads);
    Replacement replacement;
    AddPositions(second.outer, LinearOf(first.outer), replacement);
    AddPositions(second.inner, LinearOf(first.inner), replacement);
    std::vector<Store> known = first.outer_stores;
    if (!reads_results) known.clear();
    known.insert(known.end(), first.inner_stores.begin(), first.inner_stores.end());
    Forwarding forwarding(known);
    int results = 0, last_step = 0;
    for (const Accumulator& one : first.accumulators) {
      results = std::max(results, one.result + 1);
      last_step = std::max(last_step, one.step);
    }
    const auto renumbered = [&](const ExprPtr& expr) -> ExprPtr {
      if (!expr) return nullptr;
      // Results of the second before those of the first come in.
      return Substitute(expr, [&](const Expr& e) -> ExprPtr {
        return e.op == "result" ? Result(e.id + results, e.type) : nullptr;
      });
    };
    const auto moved = [&](const ExprPtr& expr) {
      return forwarding.Of(Replace(renumbered(expr), replacement));
    };
    const int step = reads_results ? last_step + 1 : 0;
    for (Accumulator one : second.accumulators) {
      one.value = moved(one.value);
      one.result += results;
      one.step += step;
      first.accumulators.push_back(std::move(one));
    }
    const auto move_stores = [&](const std::vector<Store>& from, std::vector<Store>& to) {
      for (Store store : from) {
        store.offset = moved(store.offset);
        store.value = moved(store.value);
        store.guard = moved(store.guard);
        to.push_back(std::move(store));
      }
    };
    move_stores(second.outer_stores, first.outer_stores);
    move_stores(second.inner_stores, first.inner_stores);
    if (!forwarding.fits() || CountDivisions(joint) > CountDivisions(stages_[i]) + CountDivisions(stages_[j]))
      return false;
    if (!reads_results && !SharesRead(joint, first.accumulators.size() - second.accumulators.size()))
      return false;
    std::stable_sort(first.accumulators.begin(), first.accumulators.end(),
                     [](const Accumulator& a, const Accumulator& b) { return a.step < b.step; });
    if (!IsSafe(joint)) return false;
    Replace2(i, j, PlaceFor(i, j), std::move(joint));
    return true;
  }

  // Whether accumulators from `second` on read an element that those before read too.
  static bool SharesRead(const Stage& joint, size_t second) {
    const auto& accumulators = std::get<Reduction>(joint.work).accumulators;
    std::set<std::string> before;
    for (size_t i = 0; i < accumulators.size(); ++i) {
      for (const Expr* node : Nodes(accumulators[i].value)) {
        if (node->op != "load") continue;
        if (i < second)
          before.insert(node->key);
        else if (before.count(node->key))
          return true;
      }
    }
    return false;
  }

  double BytesOf(const Stage& stage) const {
    double bytes = 0;
    for (const bool writes : {false, true}) {
      for (const int buffer : writes ? BuffersWritten(stage) : BuffersRead(stage)) {
        const Buffer& one = program_.buffers[buffer];
        bytes += static_cast<double>(one.elements) * (one.dtype == "float16" || one.dtype == "bfloat16" ? 2
                                                      : one.dtype == "int64"                            ? 8
                                                                                                        : 4);
      }
    }
    return bytes;
  }

  Program& program_;
  std::vector<Stage>& stages_;
  bool is_in_loop_, has_inout_;
  std::vector<StageUse> buffers_;  // by stage; nothing of those that are gone
  std::vector<bool> is_gone_;      // stages that are a part of another now
  // Forms of two stages that cannot be joined, whatever the other stages are: most pairs are asked for many times.
  std::set<std::pair<size_t, size_t>> refused_;
  bool depends_on_others_ = false;  // the last refusal
  int next_variable_ = 0;           // the largest so far
};

}  // namespace

void Fuse(Program& program) {
  Fuser(program, program.stages).Run();
  WriteOutputsDirectly(program);
  WidenNormInputs(program);
}

}  // namespace kevin::search
