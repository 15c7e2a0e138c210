#include "tests/policies/search/interpreter.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>

namespace kevin::test {
namespace {

using namespace search;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double FloorDivide(double a, int64_t b) { return std::floor(a / static_cast<double>(b)); }

double RoundedToBfloat16(double x) {
  int exponent = 0;
  const double digits = std::frexp(x, &exponent);
  return std::isfinite(x) ? std::ldexp(std::nearbyint(std::ldexp(digits, 8)), exponent - 8) : x;
}

double Apply(const Expr& e, const std::vector<double>& a) {
  static const std::map<std::string, double (*)(double)> kOne = {
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
  static const std::map<std::string, double (*)(double, double)> kTwo = {
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
  if (e.op == "div") return FloorDivide(a[0], e.integer);
  if (e.op == "mod") return a[0] - FloorDivide(a[0], e.integer) * static_cast<double>(e.integer);
  if (e.op == "sum") {
    double sum = static_cast<double>(e.integer);
    for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(e.coefficients[i]) * a[i];
    return sum;
  }
  const auto one = kOne.find(e.op.Name());
  if (one != kOne.end()) return one->second(a.at(0));
  const auto two = kTwo.find(e.op.Name());
  if (two != kTwo.end()) return two->second(a.at(0), a.at(1));
  throw std::runtime_error("the interpreter does not know " + e.op.Name());
}

class Interpreter {
 public:
  Interpreter(const Program& program, Memory& memory) : program_(program), memory_(memory) {}

  void Run(const std::vector<Stage>& stages) {
    for (const Stage& stage : stages) std::visit([&](const auto& work) { Do(work); }, stage.work);
  }

 private:
  double Of(const ExprPtr& e) {
    if (e->op == "constant") return e->type == Type::kFloat ? e->number : static_cast<double>(e->integer);
    if (e->op == "variable") return static_cast<double>(variables_.at(e->id));
    if (e->op == "result") return results_.at(e->id);
    if (e->op == "load")
      return memory_.at(static_cast<size_t>(e->id))
          .at(static_cast<size_t>(static_cast<int64_t>(Of(e->args[0]))));
    if (e->op == "guard" || e->op == "select") return Of(e->args[0]) != 0 ? Of(e->args[1]) : Of(e->args[2]);
    std::vector<double> args;
    for (const ExprPtr& arg : e->args) args.push_back(Of(arg));
    return Apply(*e, args);
  }

  void ForEach(const std::vector<Loop>& loops, const std::function<void()>& body, size_t from = 0) {
    if (from == loops.size()) return body();
    for (int64_t i = 0; i < loops[from].extent; ++i) {
      variables_[loops[from].variable] = i;
      ForEach(loops, body, from + 1);
    }
  }

  void Put(const std::vector<Store>& stores) {
    std::vector<std::pair<double*, double>> writes;
    for (const Store& store : stores) {
      if (store.guard && Of(store.guard) == 0) continue;
      const std::string& dtype = program_.buffers.at(static_cast<size_t>(store.buffer)).dtype;
      double value = Of(store.value);
      if (dtype == "int64" || dtype == "int32") value = std::trunc(value);
      if (dtype == "bool") value = value != 0;
      std::vector<double>& buffer = memory_.at(static_cast<size_t>(store.buffer));
      writes.emplace_back(&buffer.at(static_cast<size_t>(static_cast<int64_t>(Of(store.offset)))), value);
    }
    for (const auto& [to, value] : writes) *to = value;
  }

  void Do(const Pointwise& w) {
    ForEach(w.loops, [&] { Put(w.stores); });
  }

  static double Fold(const std::string& op, double a, double b) {
    if (op == "sum") return a + b;
    if (op == "product") return a * b;
    if (op == "any") return a != 0 || b != 0;
    if (op == "all") return a != 0 && b != 0;
    if (a != a || b != b) return a + b;
    return op == "max" ? std::max(a, b) : std::min(a, b);
  }

  double Accumulated(const Accumulator& one, const std::vector<Loop>& inner) {
    const bool is_max = one.op == "max" || one.op == "argmax",
               is_argument = one.op == "argmax" || one.op == "argmin";
    double value = one.op == "product" || one.op == "all"  ? 1
                   : is_max                                ? -kInfinity
                   : one.op == "min" || one.op == "argmin" ? kInfinity
                                                           : 0;
    double position = 0, best_position = 0;
    ForEach(inner, [&] {
      const double next = Of(one.value);
      if (is_argument) {
        const bool better = value == value && (next != next || (is_max ? next > value : next < value));
        if (better) value = next, best_position = position;
      } else {
        value = Fold(one.op, value, next);
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
        for (const auto& [result, value] : now) results_[result] = value;
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
          if (w.k_limits[i] && static_cast<double>(variables_[w.k[i].variable]) >= Of(w.k_limits[i])) return;
        }
        sum += Of(w.lhs) * Of(w.rhs);
      });
      results_[0] = sum;
      Put(w.stores);
    });
  }

  void Do(const Scan& w) {
    const auto fold = [&](double a, double b) {
      if (w.op != "logsumexp") return Fold(w.op, a, b);
      const double top = std::max(a, b);
      return std::isinf(top) || a != a || b != b ? a + b == a + b ? top : a + b
                                                 : top + std::log(std::exp(a - top) + std::exp(b - top));
    };
    const double start = w.op == "sum" ? 0 : w.op == "product" ? 1 : w.op == "min" ? kInfinity : -kInfinity;
    ForEach(w.outer, [&] {
      double run = start;
      for (int64_t i = 0; i < w.along.extent; ++i) {
        variables_[w.along.variable] = w.reverse ? w.along.extent - 1 - i : i;
        const double next = fold(run, Of(w.value));
        results_[0] = w.exclusive ? run : next;
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
      results_[0] = sum;
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
          results_[1] = sum;
          Put(w.stores);
        });
      });
    });
  }

  void Do(const Repeat& w) {
    for (int64_t i = 0; i < w.times.extent; ++i) {
      variables_[w.times.variable] = i;
      Run(w.body);
    }
  }

  const Program& program_;
  Memory& memory_;
  std::map<int, int64_t> variables_;
  std::map<int, double> results_;
};

}  // namespace

void Interpret(const Program& program, Memory& memory) { Interpreter(program, memory).Run(program.stages); }

}  // namespace kevin::test
