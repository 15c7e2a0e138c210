// Which loops are recurrences that one kernel can run, and how threads share the work.

#include "policies/search/cuda_recurrence.h"

#include <algorithm>
#include <set>

#include "policies/search/stage_parts.h"

namespace kevin::search {
namespace {

constexpr int64_t kFewestSteps = 8;

bool HasLoad(const ExprPtr& expr) {
  const std::vector<const Expr*> nodes = Nodes(expr);
  return std::any_of(nodes.begin(), nodes.end(), [](const Expr* node) { return node->op == "load"; });
}

// Whether another stage than those of the loop reads the buffer.
bool IsReadOutside(const Program& program, const Repeat& repeat, int buffer) {
  for (const Stage& stage : program.stages) {
    if (std::get_if<Repeat>(&stage.work) == &repeat) continue;
    const std::vector<int> read = BuffersRead(stage);
    if (std::find(read.begin(), read.end(), buffer) != read.end()) return true;
  }
  return program.buffers[static_cast<size_t>(buffer)].argument >= 0;
}

class CudaRecurrenceReader {
 public:
  CudaRecurrenceReader(const Program& program, const Repeat& repeat) : program_(program), repeat_(repeat) {}

  std::optional<CudaRecurrence> Read() {
    work_.times = repeat_.times;
    if (repeat_.times.extent < kFewestSteps || !ReadProduct()) return std::nullopt;
    if (!(repeat_.body.size() == 1 ? ReadEpilogue() : ReadGates() || ReadCopies())) return std::nullopt;
    if (!FindState() || !SortLoads()) return std::nullopt;
    return work_;
  }

 private:
  bool ReadProduct() {
    if (repeat_.body.empty() || repeat_.body.size() > 2) return false;
    const auto* product = std::get_if<Contraction>(&repeat_.body[0].work);
    if (!product || product->k.size() != 1 || product->n.size() != 1 || product->m.size() > 1 ||
        product->batch.size() > 1 || product->lhs->op != "load" || product->rhs->op != "load")
      return false;
    for (const ExprPtr& limit : product->k_limits) {
      if (limit) return false;
    }
    if (HasLoad(product->lhs->args[0]) || HasLoad(product->rhs->args[0])) return false;
    if (Uses(product->rhs, repeat_.times.variable)) return false;
    work_.product = product;
    work_.size = product->k[0].extent;
    return true;
  }

  bool ReadEpilogue() {
    work_.products.clear();
    work_.unit = work_.product->n[0];
    work_.stores = work_.product->stores;
    work_.gates = {0};
    return work_.unit.extent == work_.size;
  }

  // The stage behind the product: its loops are found by their strides in what the product stored.
  bool ReadGates() {
    const auto* gates = std::get_if<Pointwise>(&repeat_.body[1].work);
    const Contraction& product = *work_.product;
    if (!gates || product.stores.size() != 1 || product.stores[0].guard ||
        product.stores[0].value->op != "result" || IsReadOutside(program_, repeat_, product.stores[0].buffer))
      return false;
    const Store& made = product.stores[0];
    if (program_.buffers[static_cast<size_t>(made.buffer)].dtype != "float32") return false;
    ExprPtr first;
    for (const CudaLoad& load : LoadsOf(ExprsOf(gates->stores))) {
      if (load.load->id == made.buffer) first = load.load->args[0];
    }
    if (!first || StrideOf(made.offset, product.n[0].variable) != 1) return false;
    Replacement replacement;
    const auto matches = [&](const Loop& loop, const std::vector<Loop>& own) {
      if (own.empty() || loop.extent != own[0].extent || replacement.count(loop.variable)) return false;
      const std::optional<int64_t> stride = StrideOf(first, loop.variable);
      if (!stride || stride != StrideOf(made.offset, own[0].variable)) return false;
      for (const auto& [known, expr] : replacement) {
        if (expr->id == own[0].variable) return false;
      }
      replacement[loop.variable] = Variable(own[0].variable, own[0].extent);
      return true;
    };
    for (const Loop& loop : gates->loops) {
      if (work_.size == loop.extent && !has_unit_ && StrideOf(first, loop.variable) == 1) {
        work_.unit = loop, has_unit_ = true;
      } else if (!matches(loop, product.m) && !matches(loop, product.batch)) {
        return false;
      }
    }
    if (!has_unit_ || replacement.size() != product.m.size() + product.batch.size()) return false;
    work_.stores = gates->stores;
    for (Store& store : work_.stores) {
      if (store.guard) return false;
      store.offset = Replace(store.offset, replacement), store.value = Replace(store.value, replacement);
    }
    return FindGates(made);
  }

  // The gates are stores of the product, and the stage behind it reads what they stored.
  bool ReadCopies() {
    const auto* copies = std::get_if<Pointwise>(&repeat_.body[1].work);
    const Contraction& product = *work_.product;
    if (!copies || copies->loops.size() != 1 || !product.batch.empty() || product.m.size() != 1 ||
        !ReadEpilogue())
      return false;
    const Loop &point = copies->loops[0], &row = product.m[0], &unit = product.n[0];
    if (point.extent != row.extent * unit.extent) return false;
    const ExprPtr place =
        AddInt(Scaled(Variable(row.variable, row.extent), unit.extent), Variable(unit.variable, unit.extent));
    const auto forwarded = [&](const Expr& e) -> ExprPtr {
      if (e.op != "load") return nullptr;
      for (const Store& made : product.stores) {
        if (made.buffer == e.id && !made.guard && made.offset->key == e.args[0]->key) return made.value;
      }
      return nullptr;
    };
    for (const Store& store : copies->stores) {
      if (store.guard) return false;
      work_.stores.push_back({store.buffer, Replace(store.offset, {{point.variable, place}}),
                              Substitute(Replace(store.value, {{point.variable, place}}), forwarded),
                              nullptr});
    }
    for (const Store& made : product.stores) {
      if (program_.buffers[static_cast<size_t>(made.buffer)].dtype != "float32") return false;
    }
    return true;
  }

  // The columns of the product that are read, relative to the unit.
  bool FindGates(const Store& made) {
    const Loop& n = work_.product->n[0];
    const ExprPtr own =
        Replace(made.offset, {{n.variable, Variable(work_.unit.variable, work_.unit.extent)}});
    for (const CudaLoad& load : LoadsOf(ExprsOf(work_.stores))) {
      if (load.load->id != made.buffer) continue;
      const ExprPtr column = AddInt(load.load->args[0], Scaled(own, -1));
      if (column->op != "constant" || column->integer < 0 || column->integer + work_.size > n.extent ||
          load.condition)
        return false;
      const auto known = std::find(work_.gates.begin(), work_.gates.end(), column->integer);
      work_.products[load.load->key] = static_cast<size_t>(known - work_.gates.begin());
      if (known == work_.gates.end()) work_.gates.push_back(column->integer);
    }
    return !work_.gates.empty();
  }

  static std::vector<ExprPtr> ExprsOf(const std::vector<Store>& stores) {
    std::vector<ExprPtr> exprs;
    for (const Store& store : stores) exprs.insert(exprs.end(), {store.offset, store.value});
    return exprs;
  }

  // The offset in the next step.
  ExprPtr Next(const ExprPtr& offset) const {
    const Loop& times = repeat_.times;
    return Replace(offset, {{times.variable, AddInt(Variable(times.variable, times.extent), Int(1))}});
  }

  // The store that writes what the next product reads; nothing else writes there.
  bool FindState() {
    const Contraction& product = *work_.product;
    const ExprPtr offset = Replace(
        product.lhs->args[0], {{product.k[0].variable, Variable(work_.unit.variable, work_.unit.extent)}});
    if (StrideOf(product.lhs->args[0], product.k[0].variable) != 1) return false;
    int found = 0, writes = 0;
    for (size_t i = 0; i < work_.stores.size(); ++i) {
      const Store& store = work_.stores[i];
      if (store.guard || HasLoad(store.offset) || store.value->type != Type::kFloat) return false;
      if (store.buffer == product.rhs->id) return false;
      if (store.buffer != product.lhs->id) continue;
      ++writes;
      if (store.offset->key != Next(offset)->key) continue;
      ++found;
      work_.state_store = i;
    }
    return found == 1 && writes == 1;
  }

  bool SortLoads() {
    for (const CudaLoad& load : LoadsOf(ExprsOf(work_.stores))) {
      if (work_.products.count(load.load->key)) continue;
      if (load.condition || HasLoad(load.load->args[0]) || load.load->type != Type::kFloat) return false;
      const ExprPtr expr = Load(load.load->id, load.load->type, load.load->args[0]);
      bool is_written = false, is_kept = false;
      for (size_t i = 0; i < work_.stores.size() && !is_kept; ++i) {
        if (work_.stores[i].buffer != load.load->id) continue;
        is_written = true;
        is_kept = work_.stores[i].offset->key == Next(load.load->args[0])->key;
        if (is_kept) work_.kept.push_back({expr, i});
      }
      if (is_written && !is_kept) return false;
      if (!is_written) work_.loads.push_back(expr);
    }
    return true;
  }

  const Program& program_;
  const Repeat& repeat_;
  CudaRecurrence work_;
  bool has_unit_ = false;
};

}  // namespace

std::optional<CudaRecurrence> ReadCudaRecurrence(const Program& program, const Repeat& repeat) {
  return CudaRecurrenceReader(program, repeat).Read();
}

std::optional<CudaRecurrencePlan> PlanCudaRecurrence(const CudaRecurrence& work, const TaskDevice& device) {
  if (!HasCudaClusters(device)) return std::nullopt;
  constexpr int64_t kOtherRegisters = 48, kMostRows = 8;
  const auto gates = static_cast<int64_t>(work.gates.size());
  const int64_t rows = Points(work.product->m), directions = Points(work.product->batch);
  for (const int64_t blocks : {8, 4, 2, 1}) {
    for (const int64_t lanes : {16, 32, 8, 4}) {
      const int64_t threads = work.size / blocks * lanes;
      if (work.size % blocks != 0 || work.size % (4 * lanes) != 0 || threads % 32 != 0 || threads > 1024)
        continue;
      // Clusters that run at the same time: one block to a multiprocessor, less what does not fill a cluster.
      const int64_t clusters = std::max<int64_t>(1, (device.multiprocessors / blocks - 2) / directions);
      CudaRecurrencePlan plan{blocks, lanes, (rows + clusters - 1) / clusters, threads};
      const int64_t room =
          std::min<int64_t>(255, 65536 / threads) - kOtherRegisters - gates * work.size / lanes;
      plan.rows = std::min({plan.rows, room / gates, lanes, kMostRows});
      if (plan.rows >= 1) return plan;
    }
  }
  return std::nullopt;
}

}  // namespace kevin::search
