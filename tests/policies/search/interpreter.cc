#include "tests/policies/search/interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <unordered_map>

namespace kevin::test {
namespace {

using namespace search;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double RoundedToBfloat16(double x) {
  int exponent = 0;
  const double digits = std::frexp(x, &exponent);
  return std::isfinite(x) ? std::ldexp(std::nearbyint(std::ldexp(digits, 8)), exponent - 8) : x;
}

using One = double (*)(double);
using Two = double (*)(double, double);

const std::map<std::string, One> kUnary = {
    {"neg", [](double x) { return -x; }},
    {"abs", [](double x) { return std::fabs(x); }},
    {"exp", [](double x) { return std::exp(x); }},
    {"exp2", [](double x) { return std::exp2(x); }},
    {"expm1", [](double x) { return std::expm1(x); }},
    {"log", [](double x) { return std::log(x); }},
    {"log2", [](double x) { return std::log2(x); }},
    {"log10", [](double x) { return std::log10(x); }},
    {"log1p", [](double x) { return std::log1p(x); }},
    {"sqrt", [](double x) { return std::sqrt(x); }},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
    {"reciprocal", [](double x) { return 1 / x; }},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"erf", [](double x) { return std::erf(x); }},
    {"sin", [](double x) { return std::sin(x); }},
    {"cos", [](double x) { return std::cos(x); }},
    {"tan", [](double x) { return std::tan(x); }},
    {"asin", [](double x) { return std::asin(x); }},
    {"acos", [](double x) { return std::acos(x); }},
    {"atan", [](double x) { return std::atan(x); }},
    {"sinh", [](double x) { return std::sinh(x); }},
    {"cosh", [](double x) { return std::cosh(x); }},
    {"floor", [](double x) { return std::floor(x); }},
    {"ceil", [](double x) { return std::ceil(x); }},
    {"round", [](double x) { return std::nearbyint(x); }},
    {"trunc", [](double x) { return std::trunc(x); }},
    {"as_float16", [](double x) { return static_cast<double>(static_cast<_Float16>(x)); }},
    {"as_bfloat16", RoundedToBfloat16},
    {"to_int", [](double x) { return std::trunc(x); }},
    {"to_float", [](double x) { return x; }},
    {"to_bool", [](double x) { return x != 0 ? 1.0 : 0.0; }},
    {"not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
    {"sign", [](double x) { return x > 0   ? 1.0
                                   : x < 0 ? -1.0
                                           : x; }}};

const std::map<std::string, Two> kBinary = {
    {"add", [](double x, double y) { return x + y; }},
    {"sub", [](double x, double y) { return x - y; }},
    {"mul", [](double x, double y) { return x * y; }},
    {"product", [](double x, double y) { return x * y; }},
    {"div_float", [](double x, double y) { return x / y; }},
    {"pow", [](double x, double y) { return std::pow(x, y); }},
    {"fmod", [](double x, double y) { return std::fmod(x, y); }},
    {"atan2", [](double x, double y) { return std::atan2(x, y); }},
    {"minimum", [](double x, double y) { return x != x || y != y ? x + y : std::min(x, y); }},
    {"maximum", [](double x, double y) { return x != x || y != y ? x + y : std::max(x, y); }},
    {"less", [](double x, double y) { return x < y ? 1.0 : 0.0; }},
    {"less_equal", [](double x, double y) { return x <= y ? 1.0 : 0.0; }},
    {"equal", [](double x, double y) { return x == y ? 1.0 : 0.0; }},
    {"not_equal", [](double x, double y) { return x != y ? 1.0 : 0.0; }},
    {"and", [](double x, double y) { return x != 0 && y != 0 ? 1.0 : 0.0; }},
    {"or", [](double x, double y) { return x != 0 || y != 0 ? 1.0 : 0.0; }}};

// An expression with its operation looked up once: most of a test's time goes by in these.
struct Node {
  enum class Kind { kConstant, kVariable, kResult, kLoad, kSelect, kDiv, kMod, kSum, kOne, kTwo };

  Kind kind = Kind::kConstant;
  double number = 0;  // a constant, the divisor, or what a sum begins with
  size_t id = 0;
  One one = nullptr;
  Two two = nullptr;
  std::vector<Node> args;
  std::vector<double> coefficients;
};

Node::Kind KindOf(const Expr& e) {
  static const std::map<std::string, Node::Kind> kKinds = {{"constant", Node::Kind::kConstant},
                                                           {"variable", Node::Kind::kVariable},
                                                           {"result", Node::Kind::kResult},
                                                           {"load", Node::Kind::kLoad},
                                                           {"guard", Node::Kind::kSelect},
                                                           {"select", Node::Kind::kSelect},
                                                           {"div", Node::Kind::kDiv},
                                                           {"mod", Node::Kind::kMod},
                                                           {"sum", Node::Kind::kSum}};
  const std::string& name = e.op.Name();
  if (const auto found = kKinds.find(name); found != kKinds.end()) return found->second;
  if (kUnary.count(name) > 0) return Node::Kind::kOne;
  if (kBinary.count(name) > 0) return Node::Kind::kTwo;
  throw std::runtime_error("the interpreter does not know " + name);
}

size_t ArgumentsOf(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::kConstant:
    case Node::Kind::kVariable:
    case Node::Kind::kResult:
    case Node::Kind::kSum:
      return 0;
    case Node::Kind::kTwo:
      return 2;
    case Node::Kind::kSelect:
      return 3;
    default:
      return 1;
  }
}

Node NodeOf(const Expr& e) {
  Node node;
  node.kind = KindOf(e);
  node.number = e.op == "constant" && e.type == Type::kFloat ? e.number : static_cast<double>(e.integer);
  node.id = static_cast<size_t>(e.id);
  if (node.kind == Node::Kind::kOne) node.one = kUnary.at(e.op.Name());
  if (node.kind == Node::Kind::kTwo) node.two = kBinary.at(e.op.Name());
  for (const ExprPtr& arg : e.args) node.args.push_back(NodeOf(*arg));
  if (node.args.size() < ArgumentsOf(node.kind)) throw std::out_of_range("too few arguments");
  node.coefficients.assign(e.coefficients.begin(), e.coefficients.end());
  return node;
}

using Fold = double (*)(double, double);

Fold FoldOf(const std::string& op) {
  static const std::map<std::string, Fold> kFolds = {
      {"sum", [](double a, double b) { return a + b; }},
      {"product", [](double a, double b) { return a * b; }},
      {"any", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }},
      {"all", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
      {"max", [](double a, double b) { return a != a || b != b ? a + b : std::max(a, b); }},
      {"min", [](double a, double b) { return a != a || b != b ? a + b : std::min(a, b); }},
      {"logsumexp", [](double a, double b) {
         const double top = std::max(a, b);
         return std::isinf(top) || a != a || b != b ? a + b == a + b ? top : a + b
                                                    : top + std::log(std::exp(a - top) + std::exp(b - top));
       }}};
  return kFolds.at(op);
}

class Interpreter {
 public:
  Interpreter(const Program& program, Memory& memory) : program_(program), memory_(memory) {}

  void Run(const std::vector<Stage>& stages) {
    for (const Stage& stage : stages) std::visit([&](const auto& work) { Do(work); }, stage.work);
  }

 private:
  double Of(const ExprPtr& e) {
    auto found = nodes_.find(e.get());
    if (found == nodes_.end()) found = nodes_.emplace(e.get(), NodeOf(*e)).first;
    return Of(found->second);
  }

  double Of(const Node& node) const {
    switch (node.kind) {
      case Node::Kind::kConstant:
        return node.number;
      case Node::Kind::kVariable:
        return variables_.at(node.id).value();
      case Node::Kind::kResult:
        return results_.at(node.id).value();
      case Node::Kind::kLoad:
        return memory_.at(node.id).at(Place(Of(node.args[0])));
      case Node::Kind::kSelect:
        return Of(node.args[0]) != 0 ? Of(node.args[1]) : Of(node.args[2]);
      case Node::Kind::kDiv:
        return std::floor(Of(node.args[0]) / node.number);
      case Node::Kind::kMod: {
        const double a = Of(node.args[0]);
        return a - std::floor(a / node.number) * node.number;
      }
      case Node::Kind::kSum: {
        double sum = node.number;
        for (size_t i = 0; i < node.args.size(); ++i) sum += node.coefficients[i] * Of(node.args[i]);
        return sum;
      }
      case Node::Kind::kOne:
        return node.one(Of(node.args[0]));
      case Node::Kind::kTwo:
        break;
    }
    return node.two(Of(node.args[0]), Of(node.args[1]));
  }

  static size_t Place(double offset) { return static_cast<size_t>(static_cast<int64_t>(offset)); }

  using Values = std::vector<std::optional<double>>;  // by id; those not set yet throw

  static std::optional<double>& At(Values& values, int id) {
    const auto at = static_cast<size_t>(id);
    if (at >= values.size()) values.resize(at + 1);
    return values[at];
  }

  template <class Body>
  void ForEach(const std::vector<Loop>& loops, const Body& body, size_t from = 0) {
    if (from == loops.size()) return body();
    for (int64_t i = 0; i < loops[from].extent; ++i) {
      At(variables_, loops[from].variable) = static_cast<double>(i);
      ForEach(loops, body, from + 1);
    }
  }

  // Of all values, before any is stored.
  void Put(const std::vector<Store>& stores) {
    writes_.clear();
    for (const Store& store : stores) {
      if (store.guard && Of(store.guard) == 0) continue;
      const std::string& dtype = program_.buffers.at(static_cast<size_t>(store.buffer)).dtype;
      double value = Of(store.value);
      if (dtype == "int64" || dtype == "int32") value = std::trunc(value);
      if (dtype == "bool") value = value != 0;
      writes_.emplace_back(&memory_.at(static_cast<size_t>(store.buffer)).at(Place(Of(store.offset))), value);
    }
    for (const auto& [to, value] : writes_) *to = value;
  }

  void Do(const Pointwise& w) {
    ForEach(w.loops, [&] { Put(w.stores); });
  }

  double Accumulated(const Accumulator& one, const std::vector<Loop>& inner) {
    const bool is_max = one.op == "max" || one.op == "argmax",
               is_argument = one.op == "argmax" || one.op == "argmin";
    double value = one.op == "product" || one.op == "all"  ? 1
                   : is_max                                ? -kInfinity
                   : one.op == "min" || one.op == "argmin" ? kInfinity
                                                           : 0;
    double position = 0, best_position = 0;
    const Fold fold = is_argument ? nullptr : FoldOf(one.op);
    ForEach(inner, [&] {
      const double next = Of(one.value);
      if (is_argument) {
        const bool better = value == value && (next != next || (is_max ? next > value : next < value));
        if (better) value = next, best_position = position;
      } else {
        value = fold(value, next);
      }
      ++position;
    });
    return is_argument ? best_position : value;
  }

  void Do(const Reduction& w) {
    int steps = 0;
    for (const Accumulator& one : w.accumulators) steps = std::max(steps, one.step + 1);
    ForEach(w.outer, [&] {
      for (int step = 0; step < steps; ++step) {
        std::map<int, double> now;
        for (const Accumulator& one : w.accumulators) {
          if (one.step == step) now[one.result] = Accumulated(one, w.inner);
        }
        for (const auto& [result, value] : now) At(results_, result) = value;
      }
      Put(w.outer_stores);
      if (!w.inner_stores.empty()) ForEach(w.inner, [&] { Put(w.inner_stores); });
    });
  }

  void Do(const Contraction& w) {
    std::vector<Loop> outer = w.batch;
    outer.insert(outer.end(), w.m.begin(), w.m.end());
    outer.insert(outer.end(), w.n.begin(), w.n.end());
    ForEach(outer, [&] {
      double sum = 0;
      ForEach(w.k, [&] {
        for (size_t i = 0; i < w.k_limits.size(); ++i) {
          if (w.k_limits[i] && At(variables_, w.k[i].variable).value() >= Of(w.k_limits[i])) return;
        }
        sum += Of(w.lhs) * Of(w.rhs);
      });
      At(results_, 0) = sum;
      Put(w.stores);
    });
  }

  void Do(const Scan& w) {
    const Fold fold = FoldOf(w.op);
    const double start = w.op == "sum" ? 0 : w.op == "product" ? 1 : w.op == "min" ? kInfinity : -kInfinity;
    ForEach(w.outer, [&] {
      double run = start;
      for (int64_t i = 0; i < w.along.extent; ++i) {
        At(variables_, w.along.variable) = static_cast<double>(w.reverse ? w.along.extent - 1 - i : i);
        const double next = fold(run, Of(w.value));
        At(results_, 0) = w.exclusive ? run : next;
        run = next;
        Put(w.stores);
      }
    });
  }

  // One row of scores.
  std::vector<double> Scores(const Attention& w, double row) {
    std::vector<double> scores;
    double column = 0;
    ForEach(w.keys, [&] {
      double sum = 0;
      ForEach(w.depth, [&] { sum += Of(w.query) * Of(w.key); });
      At(results_, 0) = sum;
      scores.push_back(w.causal && column > row ? -kInfinity : Of(w.score));
      ++column;
    });
    if (!w.softmax) return scores;
    const double top = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (double& score : scores) total += score = std::exp(score - top);
    for (double& score : scores) score = w.masked_is_zero && top == -kInfinity ? 0 : score / total;
    return scores;
  }

  void Do(const Attention& w) {
    ForEach(w.batch, [&] {
      double row = 0;
      ForEach(w.queries, [&] {
        std::vector<double> weights = Scores(w, row++);
        if (w.causal && !w.softmax) {
          for (size_t i = static_cast<size_t>(row); i < weights.size(); ++i) weights[i] = 0;
        }
        ForEach(w.width, [&] {
          size_t at = 0;
          double sum = 0;
          ForEach(w.keys, [&] {
            const double weight = weights[at++];
            sum += weight == 0 ? 0 : weight * Of(w.value);
          });
          At(results_, 1) = sum;
          Put(w.stores);
        });
      });
    });
  }

  void Do(const Repeat& w) {
    for (int64_t i = 0; i < w.times.extent; ++i) {
      At(variables_, w.times.variable) = static_cast<double>(i);
      Run(w.body);
    }
  }

  const Program& program_;
  Memory& memory_;
  Values variables_, results_;
  std::unordered_map<const Expr*, Node> nodes_;
  std::vector<std::pair<double*, double>> writes_;  // of Put
};

}  // namespace

void Interpret(const Program& program, Memory& memory) { Interpreter(program, memory).Run(program.stages); }

}  // namespace kevin::test
