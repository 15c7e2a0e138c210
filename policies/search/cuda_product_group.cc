// Which products share a launch, and what is different in the text of their kernel.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "policies/search/cuda_product_writer.h"

namespace kevin::search {
namespace {

constexpr size_t kMostMembers = 4;

std::vector<ExprPtr*> ExprsOf(Contraction& c) {
  std::vector<ExprPtr*> exprs = {&c.lhs, &c.rhs};
  for (Store& store : c.stores) {
    for (ExprPtr* expr : {&store.offset, &store.value, &store.guard}) {
      if (*expr) exprs.push_back(expr);
    }
  }
  return exprs;
}

// `c` with the loop variables of `first`; false: their extents differ.
bool TakeVariables(const Contraction& first, Contraction& c) {
  std::map<int, ExprPtr> names;
  for (const auto& [own, wanted] : {std::pair(&c.batch, &first.batch), std::pair(&c.m, &first.m),
                                    std::pair(&c.n, &first.n), std::pair(&c.k, &first.k)}) {
    if (own->size() != wanted->size()) return false;
    for (size_t i = 0; i < own->size(); ++i) {
      if ((*own)[i].extent != (*wanted)[i].extent) return false;
      names[(*own)[i].variable] = Variable((*wanted)[i].variable, (*wanted)[i].extent);
    }
    *own = *wanted;
  }
  for (ExprPtr* expr : ExprsOf(c)) {
    *expr = Substitute(*expr, [&](const Expr& e) -> ExprPtr {
      const auto found = e.op == "variable" ? names.find(e.id) : names.end();
      return found == names.end() ? nullptr : found->second;
    });
  }
  return true;
}

bool IsSameForm(const CudaOperand& a, const CudaOperand& b) {
  return a.is_split && b.is_split && a.batch->key == b.batch->key && a.line->key == b.line->key &&
         a.term->key == b.term->key && a.conditions.empty() && b.conditions.empty() && a.copy == b.copy &&
         a.terms_together == b.terms_together;
}

bool Overlap(const Program& program, int a, int b) {
  if (a == b) return true;
  const Buffer &one = program.buffers[static_cast<size_t>(a)],
               &other = program.buffers[static_cast<size_t>(b)];
  if (one.place < 0 || other.place < 0) return false;
  const auto bytes = [](const Buffer& buffer) {
    const bool is_half = buffer.dtype == "float16" || buffer.dtype == "bfloat16";
    return buffer.elements * (buffer.dtype == "int64" ? 8 : buffer.dtype == "bool" ? 1 : is_half ? 2 : 4);
  };
  return one.place < other.place + bytes(other) && other.place < one.place + bytes(one);
}

// Whether what one of the stages writes is none of the other's buffers.
bool AreApart(const Program& program, const Stage& a, const Stage& b) {
  const auto meet = [&](const std::vector<int>& writes, const std::vector<int>& others) {
    return std::any_of(writes.begin(), writes.end(), [&](int w) {
      return std::any_of(others.begin(), others.end(), [&](int o) { return Overlap(program, w, o); });
    });
  };
  return !meet(BuffersWritten(a), BuffersRead(b)) && !meet(BuffersWritten(b), BuffersRead(a)) &&
         !meet(BuffersWritten(a), BuffersWritten(b));
}

// The stores of both, where the second reads what the first stores at the same point, and nothing else of it; else none.
std::vector<Store> Paired(const Program& program, size_t at, const Contraction& first,
                          const Contraction& second) {
  if (first.stores.size() != 1 || first.stores[0].guard) return {};
  const Store& made = first.stores[0];
  const Stage &a = program.stages[at], &b = program.stages[at + 1];
  for (const int written : BuffersWritten(b)) {
    for (const Stage* stage : {&a, &b}) {
      for (const int other : BuffersRead(*stage)) {
        if (Overlap(program, written, other)) return {};
      }
    }
    if (Overlap(program, written, made.buffer)) return {};
  }
  for (const ExprPtr& operand : {second.lhs, second.rhs}) {
    for (const Expr* node : Nodes(operand)) {
      if (node->op == "load" && Overlap(program, node->id, made.buffer)) return {};
    }
  }
  for (const int read : BuffersRead(b)) {
    if (read != made.buffer && Overlap(program, read, made.buffer)) return {};
  }
  bool reads = false, fits = true;
  std::vector<Store> joint;
  for (Store store : second.stores) {
    for (ExprPtr* expr : {&store.offset, &store.value, &store.guard}) {
      if (!*expr) continue;
      *expr = Substitute(*expr, [&](const Expr& e) -> ExprPtr {
        if (e.op == "result") return Result(1, e.type);
        if (e.op != "load" || e.id != made.buffer) return nullptr;
        reads = true;
        fits = fits && e.args[0]->key == made.offset->key;
        return made.value;
      });
    }
    joint.push_back(store);
  }
  if (!reads || !fits) return {};
  bool is_needed = program.buffers[static_cast<size_t>(made.buffer)].argument >= 0;
  for (size_t i = 0; i < program.stages.size(); ++i) {
    const std::vector<int> others = BuffersRead(program.stages[i]);
    is_needed = is_needed || (i != at + 1 && std::count(others.begin(), others.end(), made.buffer) > 0);
  }
  if (is_needed) joint.insert(joint.begin(), made);
  return joint;
}

int LeftBuffer(const Contraction& c) { return c.lhs->op == "load" ? c.lhs->id : -1; }

const Contraction* ContractionAt(const Program& program, size_t at) {
  return at < program.stages.size() ? std::get_if<Contraction>(&program.stages[at].work) : nullptr;
}

// Whether the stage and the next one have the same left operand, at first sight.
bool MayBegin(const Program& program, size_t at) {
  const Contraction *one = ContractionAt(program, at), *next = ContractionAt(program, at + 1);
  return one && next && LeftBuffer(*one) >= 0 && LeftBuffer(*one) == LeftBuffer(*next);
}

const Contraction* SmallAt(const Program& program, const Task& task, size_t at) {
  const Contraction* const work = ContractionAt(program, at);
  return work && !ChooseCudaSmall(program, task, *work).tiles.empty() ? work : nullptr;
}

}  // namespace

CudaProductGroup FindCudaGroup(const Program& program, const Task& task, size_t at) {
  const Contraction* const first = MayBegin(program, at) ? SmallAt(program, task, at) : nullptr;
  if (!first) return {};
  const CudaOperand right = ReadCudaOperand(program, first->rhs, first->n, first->k, false);
  CudaProductGroup group;
  group.members = {*first};
  for (size_t j = at + 1; j < program.stages.size() && group.members.size() < kMostMembers; ++j) {
    const Contraction* const work = SmallAt(program, task, j);
    if (!work) break;
    Contraction own = *work;
    if (!TakeVariables(*first, own) || own.lhs->key != first->lhs->key) break;
    if (!IsSameForm(right, ReadCudaOperand(program, own.rhs, own.n, own.k, false))) break;
    if (j == at + 1) group.joint = Paired(program, at, *first, own);
    bool is_apart = true;
    for (size_t i = at; i < j; ++i)
      is_apart = is_apart && AreApart(program, program.stages[i], program.stages[j]);
    group.is_paired = !is_apart && !group.joint.empty();
    if (!is_apart && !group.is_paired) break;
    group.members.push_back(std::move(own));
    if (group.is_paired) return group;
  }
  if (group.members.size() < 2) group.members.clear();
  return group;
}

// Where the stages that may be in a group with it begin; the number of stages where it is none of the program's.
size_t BeginOf(const Program& program, const Contraction& work, size_t* at) {
  for (*at = 0; *at < program.stages.size() && ContractionAt(program, *at) != &work;) ++*at;
  size_t begin = *at;
  while (begin > 0 && MayBegin(program, begin - 1)) --begin;
  return begin;
}

CudaProductGroup FindCudaGroup(const Program& program, const Task& task, const Contraction& work) {
  size_t at = 0;
  BeginOf(program, work, &at);
  return IsLaterInCudaGroup(program, task, work) ? CudaProductGroup() : FindCudaGroup(program, task, at);
}

bool IsLaterInCudaGroup(const Program& program, const Task& task, const Contraction& work) {
  size_t at = 0;
  for (size_t i = BeginOf(program, work, &at); i < at;) {
    i += std::max<size_t>(1, FindCudaGroup(program, task, i).members.size());
    if (i > at) return at < program.stages.size();
  }
  return false;
}

// --- The text ---

// Tiles go through all members: `per` columns of each, `each` tiles of one member.
std::string CudaProductWriter::GroupColumns() const {
  return fmt::format(
      "constexpr int per = {};\nconst int rows = {}, single = {}, each = (single + per - 1) / per, columns = each * {} * "
      "kTileN;\n",
      group_.is_paired ? "kTileN / 2" : "kTileN", text_.Number(Points(c_.m)), text_.Number(Points(c_.n)),
      group_.is_paired ? 1 : group_.members.size());
}

// From the line `l` of the tiles to the line of a member, and how far its operand is from that of the first.
std::string CudaProductWriter::GroupLine(CudaKernel& kernel) const {
  std::string text = group_.is_paired
                         ? "const int member = l % kTileN / per;\nl = l / kTileN * per + l % per;\n"
                         : "const int member = l / kTileN / each;\nl -= member * each * kTileN;\n";
  text += "if (l >= single) l = 0;   // a result that is not stored\n";
  const auto buffer = [&](const Contraction& c) {
    return kernel.Buffer(ReadCudaOperand(text_.program(), c.rhs, c.n, c.k, limited_).buffer);
  };
  std::string apart = "0L";
  for (size_t i = 1; i < group_.members.size(); ++i) {
    apart = fmt::format("member == {} ? (long)({} - {}) : {}", i, buffer(group_.members[i]),
                        buffer(group_.members[0]), apart);
  }
  return text + fmt::format("const long apart = {};\n", apart);
}

std::string CudaProductWriter::GroupStores(CudaKernel& kernel) const {
  if (group_.is_paired)
    return "n = n / kTileN * per + n % kTileN;\nif (n >= single) return;\n" + Stores(kernel);
  std::string text =
      "const int member = n / kTileN / each;\nn -= member * each * kTileN;\nif (n >= single) return;\n";
  for (size_t i = 0; i < group_.members.size(); ++i)
    text += fmt::format("if (member == {}) {{\n{}}}\n", i, StoresOf(kernel, group_.members[i].stores));
  return text;
}

}  // namespace kevin::search
