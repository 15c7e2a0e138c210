#include "policies/search/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "policies/search/stage_parts.h"

namespace kevin::search {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

int64_t BytesOf(const std::string& dtype) {
  if (dtype == "int64" || dtype == "float64") return 8;
  if (dtype == "float16" || dtype == "bfloat16") return 2;
  return dtype == "bool" ? 1 : 4;
}

void AddOnce(std::vector<int>& list, int buffer) {
  if (std::find(list.begin(), list.end(), buffer) == list.end()) list.push_back(buffer);
}

}  // namespace

std::vector<std::vector<Loop>*> LoopListsOf(Stage& stage) {
  return std::visit(Overloaded{[](Pointwise& w) -> std::vector<std::vector<Loop>*> { return {&w.loops}; },
                               [](Reduction& w) -> std::vector<std::vector<Loop>*> {
                                 return {&w.outer, &w.inner};
                               },
                               [](Contraction& w) -> std::vector<std::vector<Loop>*> {
                                 return {&w.batch, &w.m, &w.n, &w.k};
                               },
                               [](Scan& w) -> std::vector<std::vector<Loop>*> { return {&w.outer}; },
                               [](Attention& w) -> std::vector<std::vector<Loop>*> {
                                 return {&w.batch, &w.queries, &w.keys, &w.depth, &w.width};
                               },
                               [](Repeat&) -> std::vector<std::vector<Loop>*> { return {}; }},
                    stage.work);
}

void ForEachStores(Stage& stage, const std::function<void(std::vector<Store>&)>& visit) {
  std::visit(Overloaded{[&](Pointwise& w) { visit(w.stores); }, [&](Contraction& w) { visit(w.stores); },
                        [&](Scan& w) { visit(w.stores); }, [&](Attention& w) { visit(w.stores); },
                        [&](Reduction& w) {
                          visit(w.outer_stores);
                          visit(w.inner_stores);
                        },
                        [&](Repeat& w) {
                          for (Stage& inner : w.body) ForEachStores(inner, visit);
                        }},
             stage.work);
}

void ForEachExpr(Stage& stage, const std::function<void(ExprPtr&)>& visit) {
  std::visit(Overloaded{[&](Contraction& w) {
                          visit(w.lhs);
                          visit(w.rhs);
                          for (ExprPtr& limit : w.k_limits) {
                            if (limit) visit(limit);
                          }
                        },
                        [&](Reduction& w) {
                          for (Accumulator& one : w.accumulators) visit(one.value);
                        },
                        [&](Scan& w) { visit(w.value); },
                        [&](Attention& w) {
                          visit(w.query);
                          visit(w.key);
                          visit(w.score);
                          visit(w.value);
                        },
                        [&](Repeat& w) {
                          for (Stage& inner : w.body) ForEachExpr(inner, visit);
                        },
                        [](Pointwise&) {}},
             stage.work);
  if (std::holds_alternative<Repeat>(stage.work)) return;
  ForEachStores(stage, [&](std::vector<Store>& stores) {
    for (Store& store : stores) {
      visit(store.offset);
      visit(store.value);
      if (store.guard) visit(store.guard);
    }
  });
}

void ForEachExpr(const Stage& stage, const std::function<void(const ExprPtr&)>& visit) {
  ForEachExpr(const_cast<Stage&>(stage), [&](ExprPtr& expr) { visit(expr); });
}

int CountDivisions(const Stage& stage) {
  int count = 0;
  ForEachExpr(stage, [&](const ExprPtr& expr) {
    for (const Expr* node : Nodes(expr)) count += node->op == "div" || node->op == "mod";
  });
  return count;
}

ExprPtr Replace(const ExprPtr& expr, const Replacement& variables) {
  return Substitute(expr, [&](const Expr& e) -> ExprPtr {
    if (e.op != "variable") return nullptr;
    const auto found = variables.find(e.id);
    return found == variables.end() ? nullptr : found->second;
  });
}

namespace {

void AddLeafStages(const std::vector<Stage>& stages, std::vector<const Stage*>& leaves) {
  for (const Stage& stage : stages) {
    if (const auto* repeat = std::get_if<Repeat>(&stage.work)) {
      AddLeafStages(repeat->body, leaves);
    } else {
      leaves.push_back(&stage);
    }
  }
}

}  // namespace

std::vector<const Stage*> LeafStages(const std::vector<Stage>& stages) {
  std::vector<const Stage*> leaves;
  AddLeafStages(stages, leaves);
  return leaves;
}

std::vector<const Stage*> LeafStages(const Program& program) { return LeafStages(program.stages); }

std::vector<int> BuffersRead(const Stage& stage) {
  std::vector<int> buffers;
  ForEachExpr(stage, [&](const ExprPtr& expr) {
    ForEachNode(expr, [&](const Expr& node) {
      if (node.op == "load") AddOnce(buffers, node.id);
    });
  });
  return buffers;
}

std::vector<int> BuffersWritten(const Stage& stage) {
  std::vector<int> buffers;
  ForEachStores(const_cast<Stage&>(stage), [&](std::vector<Store>& stores) {
    for (const Store& store : stores) AddOnce(buffers, store.buffer);
  });
  return buffers;
}

void PlaceWorkspaces(Program& program) {
  struct Life {
    int first = -1, last = -1;
  };
  std::vector<Life> lives(program.buffers.size());
  for (size_t i = 0; i < program.stages.size(); ++i) {
    for (const bool writes : {false, true}) {
      for (const int buffer : writes ? BuffersWritten(program.stages[i]) : BuffersRead(program.stages[i])) {
        if (lives[buffer].first < 0) lives[buffer].first = static_cast<int>(i);
        lives[buffer].last = static_cast<int>(i);
      }
    }
  }
  // The largest first, each at the lowest place that is free while it lives.
  std::vector<int> order;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (program.buffers[i].argument >= 0) continue;
    if (lives[i].first >= 0) {
      order.push_back(static_cast<int>(i));
    } else {
      program.buffers[i].elements = 0;  // fused away
    }
  }
  const auto bytes = [&](int buffer) {
    constexpr int64_t kAlignment = 256;
    const Buffer& one = program.buffers[buffer];
    return (one.elements * BytesOf(one.dtype) + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return bytes(a) > bytes(b); });
  std::vector<int> placed;
  program.workspace_bytes = 0;
  for (const int buffer : order) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const int other : placed) {
      if (lives[other].last < lives[buffer].first || lives[other].first > lives[buffer].last) continue;
      taken.emplace_back(program.buffers[other].place, program.buffers[other].place + bytes(other));
    }
    std::sort(taken.begin(), taken.end());
    int64_t place = 0;
    for (const auto& [begin, end] : taken) {
      if (place + bytes(buffer) <= begin) break;
      place = std::max(place, end);
    }
    program.buffers[buffer].place = place;
    program.workspace_bytes = std::max(program.workspace_bytes, place + bytes(buffer));
    placed.push_back(buffer);
  }
}

// --- Normal form ---

namespace {

// Numbers for variables and buffers in the order of their use.
class FormText {
 public:
  explicit FormText(const Program& program) : program_(program) {}

  std::string Of(const Stage& stage) {
    text_.clear();
    Add(stage);
    return text_;
  }

 private:
  void Add(const Stage& stage) {
    Stage& open = const_cast<Stage&>(stage);
    AddNumber(stage.work.index());
    for (const std::vector<Loop>* loops : LoopListsOf(open)) {
      text_ += "[";
      for (const Loop& loop : *loops) AddLoop(loop), text_ += " ";
      text_ += "]";
    }
    if (const auto* scan = std::get_if<Scan>(&stage.work)) {
      AddLoop(scan->along);
      text_ += " " + scan->op + (scan->reverse ? " reverse" : "") + (scan->exclusive ? " exclusive" : "");
    }
    if (const auto* attention = std::get_if<Attention>(&stage.work)) {
      text_ += attention->softmax ? "softmax" : "plain";
      text_ += std::string(attention->causal ? " causal" : "") + (attention->masked_is_zero ? " zero" : "");
    }
    if (const auto* reduction = std::get_if<Reduction>(&stage.work)) {
      for (const Accumulator& one : reduction->accumulators)
        text_ += fmt::format(" {}{}@{}", one.op, one.result, one.step);
    }
    if (const auto* repeat = std::get_if<Repeat>(&stage.work)) {
      AddNumber(NumberOf(repeat->times.variable, variables_));
      text_ += "x";
      AddNumber(repeat->times.extent);
      text_ += "{";
      for (const Stage& inner : repeat->body) Add(inner), text_ += ";";
      text_ += "}";
      return;
    }
    ForEachExpr(stage, [&](const ExprPtr& expr) { text_ += " ", Add(*expr); });
    ForEachStores(open, [&](std::vector<Store>& stores) {
      for (const Store& store : stores) text_ += " >", AddBuffer(store.buffer);
    });
  }
  void Add(const Expr& e) {
    if (e.op == "variable") {
      text_ += "v";
      return AddNumber(NumberOf(e.id, variables_));
    }
    if (e.op == "constant" && e.type == Type::kFloat) {
      text_ += fmt::format("{}", e.number);
      return;
    }
    if (e.op == "constant") return AddNumber(e.integer);
    text_ += "(";
    text_ += kOpNames[e.op.number()];
    if (e.op == "load") AddBuffer(e.id);
    if (e.op == "result") AddNumber(e.id);
    if (e.integer != 0) text_ += " ", AddNumber(e.integer);
    for (size_t i = 0; i < e.args.size(); ++i) {
      text_ += " ";
      if (i < e.coefficients.size() && e.coefficients[i] != 1) AddNumber(e.coefficients[i]), text_ += "*";
      Add(*e.args[i]);
    }
    text_ += ")";
  }
  void AddLoop(const Loop& loop) {
    AddNumber(NumberOf(loop.variable, variables_));
    text_ += ":";
    AddNumber(loop.extent);
  }
  void AddBuffer(int buffer) {
    const Buffer& one = program_.buffers[buffer];
    text_ += one.argument >= 0 ? "a" : "w";
    AddNumber(NumberOf(buffer, buffers_));
    if (one.dtype != "float32") text_ += "." + one.dtype;
  }
  template <class Number>
  void AddNumber(Number number) {
    const fmt::format_int digits(number);
    text_.append(digits.data(), digits.size());
  }
  static size_t NumberOf(int id, std::map<int, size_t>& numbers) {
    return numbers.try_emplace(id, numbers.size()).first->second;
  }

  const Program& program_;
  std::map<int, size_t> variables_, buffers_;
  std::string text_;
};

}  // namespace

std::string StageForm(const Program& program, const Stage& stage) { return FormText(program).Of(stage); }

std::string NormalForm(const Program& program) {
  FormText form(program);
  std::string text;
  for (const Stage& stage : program.stages) text += form.Of(stage) + "\n";
  return text;
}

}  // namespace kevin::search
