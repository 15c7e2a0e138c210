// Loads and stores of CUDA stages: which may be done early, which move in packs.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "policies/search/cuda_text.h"

namespace kevin::search {
namespace {

// Conditions of all loads: a load below several guards needs all of them; below two different paths either.
class CudaLoadFinder {
 public:
  void Visit(const ExprPtr& e, const ExprPtr& condition) {
    if (e->args.empty()) return;
    if (!seen_.insert(condition ? e->key + condition->key : e->key).second) return;
    if (e->op == "guard") {
      Visit(e->args[0], condition);
      Visit(e->args[1], condition ? And(condition, e->args[0]) : e->args[0]);
      Visit(e->args[2], condition);
      return;
    }
    for (const ExprPtr& arg : e->args) Visit(arg, condition);
    if (e->op != "load") return;
    const auto [found, is_new] = number_.try_emplace(e->key, loads_.size());
    if (is_new) {
      loads_.push_back({e.get(), condition});
    } else {
      ExprPtr& known = loads_[found->second].condition;
      if (known) known = condition ? (known->key == condition->key ? known : Or(known, condition)) : nullptr;
    }
  }

  // Loads in the order in which they can be done.
  std::vector<CudaLoad> Sorted() {
    std::vector<CudaLoad> sorted;
    std::vector<char> state(loads_.size());
    for (size_t i = 0; i < loads_.size(); ++i) Place(i, state, sorted);
    return sorted;
  }

 private:
  void Place(size_t i, std::vector<char>& state, std::vector<CudaLoad>& sorted) {
    if (state[i]) return;
    state[i] = 1;
    std::vector<ExprPtr> needs = {loads_[i].load->args[0]};
    if (loads_[i].condition) needs.push_back(loads_[i].condition);
    for (const ExprPtr& need : needs) {
      for (const Expr* node : Nodes(need)) {
        if (node->op == "load") Place(number_.at(node->key), state, sorted);
      }
    }
    sorted.push_back(loads_[i]);
  }

  std::unordered_set<std::string> seen_;
  std::unordered_map<std::string, size_t> number_;
  std::vector<CudaLoad> loads_;
};

std::string CudaLoopHead(int64_t width) {
  return fmt::format("#pragma unroll\nfor (int w = 0; w < {}; ++w) {{\n", width);
}

}  // namespace

std::vector<CudaLoad> LoadsOf(const std::vector<ExprPtr>& exprs) {
  CudaLoadFinder finder;
  for (const ExprPtr& expr : exprs) {
    if (expr) finder.Visit(expr, nullptr);
  }
  return finder.Sorted();
}

bool IsMultiple(const ExprPtr& expr, int64_t factor) {
  if (factor == 1) return true;
  if (expr->op == "constant") return expr->integer % factor == 0;
  if (expr->op == "sum") {
    if (expr->integer % factor != 0) return false;
    for (size_t i = 0; i < expr->args.size(); ++i) {
      const int64_t shared = std::gcd(std::abs(expr->coefficients[i]), factor);
      if (!IsMultiple(expr->args[i], factor / shared)) return false;
    }
    return true;
  }
  if (expr->op == "product") return IsMultiple(expr->args[0], factor) || IsMultiple(expr->args[1], factor);
  if (expr->op == "mod") return expr->integer % factor == 0 && IsMultiple(expr->args[0], factor);
  if (expr->op == "select") return IsMultiple(expr->args[1], factor) && IsMultiple(expr->args[2], factor);
  return false;
}

ExprPtr InPacks(const ExprPtr& expr, const Loop& loop, int64_t width, int w_id) {
  if (!expr || width == 1) return expr;
  return Substitute(expr, [&](const Expr& e) -> ExprPtr {
    if (e.op != "variable" || e.id != loop.variable) return nullptr;
    return AddInt(Scaled(Variable(e.id, loop.extent / width), width), Variable(w_id, width));
  });
}

Neighbours NeighboursOf(const Buffer& buffer, const ExprPtr& offset, const ExprPtr& condition, int w_id,
                        int64_t width) {
  if (width == 1) return Neighbours::kPack;
  if (condition && Uses(condition, w_id)) return Neighbours::kEach;
  const std::optional<int64_t> stride = StrideOf(offset, w_id);
  if (stride == 0) return Neighbours::kSame;
  if (stride != 1) return Neighbours::kEach;
  const ExprPtr first = Substitute(
      offset, [&](const Expr& e) { return e.op == "variable" && e.id == w_id ? Int(0) : ExprPtr(); });
  return buffer.base % width == 0 && IsMultiple(first, width) ? Neighbours::kPack : Neighbours::kEach;
}

std::string StoreText(CudaKernel& kernel, int buffer, const std::string& offset, const std::string& value) {
  return fmt::format("{}[{}] = Narrow<{}>({});\n", kernel.Buffer(buffer), offset,
                     kernel.text().ElementType(buffer), value);
}

// --- CudaLoads ---

CudaLoads::CudaLoads(CudaKernel& kernel, std::vector<CudaLoad> loads, int w_id, int64_t width,
                     std::string slot, std::string slots)
    : kernel_(kernel), w_id_(w_id), width_(width), slot_(std::move(slot)), slots_(std::move(slots)) {
  for (CudaLoad& load : loads) {
    const Buffer& buffer = kernel.text().program().buffers.at(load.load->id);
    const Neighbours neighbours = NeighboursOf(buffer, load.load->args[0], load.condition, w_id, width);
    loads_.push_back({std::move(load), neighbours, kernel.Fresh("x")});
  }
}

std::string CudaLoads::TypeOf(size_t load) const {
  const One& one = loads_[load];
  const std::string type = CudaTypeOf(*one.load.load);
  if (one.neighbours == Neighbours::kSame) return type;
  return type == "float" ? fmt::format("Pack<{}>", width_) : fmt::format("Pack<{}, {}>", width_, type);
}

int64_t CudaLoads::Registers() const {
  int64_t registers = 0;
  for (const One& one : loads_) {
    const int64_t count = one.neighbours == Neighbours::kSame ? 1 : width_;
    registers += count * (CudaTypeOf(*one.load.load) == "long" ? 2 : 1);
  }
  return registers;
}

std::string CudaLoads::Declarations() const {
  std::string text;
  for (size_t i = 0; i < loads_.size(); ++i)
    text += fmt::format("{} {}{};\n", TypeOf(i), loads_[i].name, slots_);
  return text;
}

std::string CudaLoads::Statements(CudaPrinter printer, bool once) const {
  std::string text;
  for (const One& one : loads_) {
    const Expr& load = *one.load.load;
    const std::string buffer = kernel_.Buffer(load.id), name = one.name + slot_;
    const bool is_each = one.neighbours == Neighbours::kEach, is_pack = one.neighbours == Neighbours::kPack;
    CudaPrinter own = printer;
    own.lines().clear();
    if (is_each || is_pack) own.SetVariable(w_id_, is_each ? "w" : "0");
    std::string condition, statement;
    if (one.load.condition) condition = own.Value(one.load.condition);
    const ExprPtr offset =
        is_pack ? Substitute(
                      load.args[0],
                      [&](const Expr& e) { return e.op == "variable" && e.id == w_id_ ? Int(0) : ExprPtr(); })
                : load.args[0];
    std::string at = own.Value(offset);
    // Without a branch: where the condition fails, the first element is loaded and not used.
    if (!condition.empty()) at = fmt::format("({} ? {} : 0)", condition, at);
    if (is_pack) {
      const bool reads_once = once && kernel_.IsReadOnly(load.id);
      statement =
          fmt::format("{} = Load{}<{}>({} + {});\n", name, reads_once ? "Once" : "", width_, buffer, at);
    } else {
      statement = fmt::format("{}{} = Widen({}[{}]);\n", name, is_each ? ".at[w]" : "", buffer, at);
    }
    const bool is_block = !own.lines().empty();
    statement = own.TakeLines() + statement;
    if (is_each) {
      statement = CudaLoopHead(width_) + statement + "}\n";
    } else if (is_block) {
      statement = "{\n" + statement + "}\n";
    }
    text += statement;
    // Later loads may depend on this one; a dependent load per neighbour is inside a loop over w of its own.
    printer.SetLoad(load.key, name + (one.neighbours == Neighbours::kSame ? "" : ".at[w]"));
    if (is_pack && width_ == 1) printer.SetLoad(load.key, name + ".at[0]");
  }
  return text;
}

std::string CudaLoads::Copies(bool to_registers, const std::function<std::string(size_t)>& at) const {
  std::string text;
  for (size_t i = 0; i < loads_.size(); ++i) {
    const std::string name = loads_[i].name + slot_;
    text += to_registers ? fmt::format("{} = {};\n", name, at(i)) : fmt::format("{} = {};\n", at(i), name);
  }
  return text;
}

void CudaLoads::Bind(CudaPrinter& printer, const std::string& w) const {
  for (const One& one : loads_) {
    const bool is_same = one.neighbours == Neighbours::kSame;
    // A single value is also asked for where there is no w: in the place of a store that follows the loop.
    const std::string at = width_ == 1 ? "0" : w;
    printer.SetLoad(one.load.load->key, one.name + slot_ + (is_same ? "" : ".at[" + at + "]"));
  }
}

// --- Stores ---

std::string NeighbourLoop(const CudaPrinter& printer, const std::vector<Store>& stores, int w_id,
                          int64_t width, bool once, const std::function<void(CudaPrinter&)>& bind,
                          const std::function<std::string(CudaPrinter&)>& before) {
  CudaPrinter body = printer;
  CudaKernel& kernel = body.kernel();
  body.lines().clear();
  body.SetVariable(w_id, "w");
  bind(body);
  std::string text, declarations, after;
  if (before) text += before(body);
  for (const Store& store : stores) {
    const Buffer& buffer = kernel.text().program().buffers.at(store.buffer);
    const Neighbours neighbours = NeighboursOf(buffer, store.offset, store.guard, w_id, width);
    if (neighbours == Neighbours::kPack) {
      const std::string name = kernel.Fresh("y"), type = CudaTypeOf(*store.value);
      declarations += fmt::format("Pack<{}, {}> {};\n", width, type, name);
      const std::string value = body.Value(store.value);
      text += body.TakeLines() + fmt::format("{}.at[w] = {};\n", name, value);
      CudaPrinter last = printer;
      last.lines().clear();
      last.SetVariable(w_id, "0");
      bind(last);
      const ExprPtr first = Substitute(store.offset, [&](const Expr& e) {
        return e.op == "variable" && e.id == w_id ? Int(0) : ExprPtr();
      });
      std::string guard;
      if (store.guard) guard = last.Value(store.guard);
      const std::string at = last.Value(first);
      std::string done = fmt::format("Store{}<{}>({} + {}, {});\n", once ? "Once" : "", width,
                                     kernel.Buffer(store.buffer), at, name);
      if (!guard.empty()) done = fmt::format("if ({}) {{\n{}}}\n", guard, done);
      after += last.TakeLines() + done;
      continue;
    }
    std::string guard;
    if (store.guard) guard = body.Value(store.guard);
    const std::string lines = body.TakeLines();
    CudaPrinter inside = body;  // names made under the guard end with it
    const std::string value = inside.Value(store.value), at = inside.Value(store.offset);
    std::string done = inside.TakeLines() + StoreText(kernel, store.buffer, at, value);
    done = guard.empty() ? "{\n" + done + "}\n" : fmt::format("if ({}) {{\n{}}}\n", guard, done);
    text += lines + done;
  }
  return declarations + CudaLoopHead(width) + text + "}\n" + after;
}

}  // namespace kevin::search
