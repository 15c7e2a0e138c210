#include "tools/honest_families.h"

namespace kevin {
namespace {

enum class Mathematics { kLibrary, kFast };

// One formula: `v` is the element of the last input, `i` its place.
struct Form {
  const char* name;
  const char* expression;
  Mathematics mathematics = Mathematics::kLibrary;
};

constexpr const char* kText = R"($PRAGMA#include <cmath>

// exp as graphics processors do it: cheap, and its error grows with |x|.
static inline float Exp2Form(float x) { return std::exp2(x * 1.44269504F); }

// exp by range reduction and a polynomial of degree 6, within 2 units in the last place.
static inline float PolynomialExp(float x) {
  x = x < -87.0F ? -87.0F : (x > 88.0F ? 88.0F : x);
  const float n = std::nearbyint(x * 1.44269504F);
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1;
  p = p * r + 1;
  union { int bits; float value; } power = {(static_cast<int>(n) + 127) << 23};
  return p * power.value;
}

$LAUNCH {
#pragma omp parallel for
  for (long i = 0; i < $COUNT; ++i) {
    const float v = $IN[i];
    $OUT[i] = $EXPRESSION;
  }
}
)";

const std::map<std::string, std::vector<Form>>& Forms() {
  static const std::map<std::string, std::vector<Form>> kForms = {
      {"level1/5",
       {{"product of floats", "v * 3.14F"},
        {"product of doubles", "static_cast<float>(static_cast<double>(v) * 3.14)"},
        {"sum of two products", "3 * v + 0.14F * v"}}},
      {"level1/12",
       {{"product of floats", "a[i / M] * v"},
        {"product of doubles", "static_cast<float>(static_cast<double>(a[i / M]) * v)"}}},
      {"level1/19",
       {{"choice", "v > 0 ? v : 0.0F"},
        {"fmax", "std::fmax(v, 0.0F)"},
        {"half of x + |x|", "0.5F * (v + std::abs(v))"}}},
      {"level1/20",
       {{"choice", "v > 0 ? v : 0.01F * v"},
        {"fmax of both branches", "std::fmax(v, 0.01F * v)"},
        {"sum of both parts", "std::fmax(v, 0.0F) + 0.01F * std::fmin(v, 0.0F)"}}},
      {"level1/21",
       {{"std::exp", "1 / (1 + std::exp(-v))"},
        {"through tanh", "0.5F * (1 + std::tanh(0.5F * v))"},
        {"fast exp", "1 / (1 + std::exp(-v))", Mathematics::kFast},
        {"exp2 of scaled x", "1 / (1 + Exp2Form(-v))", Mathematics::kFast},
        {"polynomial exp", "1 / (1 + PolynomialExp(-v))"}}},
      {"level1/22",
       {{"std::tanh", "std::tanh(v)"},
        {"fast tanh", "std::tanh(v)", Mathematics::kFast},
        {"through exp", "1 - 2 / (std::exp(2 * v) + 1)"},
        {"exp2 of scaled x", "1 - 2 / (Exp2Form(2 * v) + 1)", Mathematics::kFast},
        {"through expm1", "std::expm1(2 * v) / (std::expm1(2 * v) + 2)"}}},
      {"level1/25",
       {{"quotient", "v / (1 + std::exp(-v))"},
        {"through tanh", "0.5F * v * (1 + std::tanh(0.5F * v))"},
        {"fast exp", "v / (1 + std::exp(-v))", Mathematics::kFast},
        {"exp2 of scaled x", "v / (1 + Exp2Form(-v))", Mathematics::kFast},
        {"polynomial exp", "v / (1 + PolynomialExp(-v))"}}},
      {"level1/26",
       {{"std::erf", "0.5F * v * (1 + std::erf(v * 0.70710678F))"},
        {"std::erfc", "0.5F * v * std::erfc(-v * 0.70710678F)"},
        {"fast erf", "0.5F * v * (1 + std::erf(v * 0.70710678F))", Mathematics::kFast},
        {"x times the normal CDF", "v * (0.5F + 0.5F * std::erf(v * 0.70710678F))"}}},
      {"level1/27",
       {{"std::expm1", "1.05070099F * (v > 0 ? v : 1.67326324F * std::expm1(v))"},
        {"exp minus 1", "v > 0 ? 1.05070099F * v : 1.75809934F * (std::exp(v) - 1)"},
        {"fast exp", "v > 0 ? 1.05070099F * v : 1.75809934F * (std::exp(v) - 1)", Mathematics::kFast},
        {"polynomial exp", "v > 0 ? 1.05070099F * v : 1.75809934F * (PolynomialExp(v) - 1)"}}},
      {"level1/28",
       {{"clamped quotient", "std::fmin(std::fmax(v + 3, 0.0F), 6.0F) / 6"},
        {"clamped line", "std::fmin(std::fmax(v * 0.166666667F + 0.5F, 0.0F), 1.0F)"},
        {"choice", "v <= -3 ? 0.0F : (v >= 3 ? 1.0F : (v + 3) * 0.166666667F)"}}},
      {"level1/29",
       {{"log1p of exp", "v > 20 ? v : std::log1p(std::exp(v))"},
        {"max plus log1p", "std::fmax(v, 0.0F) + std::log1p(std::exp(-std::abs(v)))"},
        {"fast log and exp", "std::fmax(v, 0.0F) + std::log(1 + std::exp(-std::abs(v)))", Mathematics::kFast},
        {"polynomial exp", "std::fmax(v, 0.0F) + std::log(1 + PolynomialExp(-std::abs(v)))"}}},
      {"level1/30",
       {{"quotient", "v / (1 + std::abs(v))"},
        {"times the reciprocal", "v * (1 / (1 + std::abs(v)))"},
        {"1 minus reciprocal", "std::copysign(1 - 1 / (1 + std::abs(v)), v)"},
        {"fast quotient", "v / (1 + std::abs(v))", Mathematics::kFast}}},
      {"level1/31",
       {{"std::expm1", "v > 0 ? v : std::expm1(v)"},
        {"exp minus 1", "v > 0 ? v : std::exp(v) - 1"},
        {"fast exp", "v > 0 ? v : std::exp(v) - 1", Mathematics::kFast},
        {"sum of both parts", "std::fmax(v, 0.0F) + (PolynomialExp(std::fmin(v, 0.0F)) - 1)"}}},
      {"level1/32",
       {{"fmin of fmax", "std::fmin(std::fmax(v, -1.0F), 1.0F)"},
        {"choice", "v < -1 ? -1.0F : (v > 1 ? 1.0F : v)"},
        {"smaller modulus", "std::copysign(std::fmin(std::abs(v), 1.0F), v)"}}},
      {"level1/88",
       {{"std::tanh", "0.5F * v * (1 + std::tanh(0.797884561F * (v + 0.044715F * v * v * v)))"},
        {"Horner's form", "0.5F * v * (1 + std::tanh(v * (0.797884561F + 0.0356774081F * (v * v))))"},
        {"through sigmoid", "v / (1 + std::exp(-2 * v * (0.797884561F + 0.0356774081F * (v * v))))"},
        {"fast tanh", "0.5F * v * (1 + std::tanh(0.797884561F * (v + 0.044715F * v * v * v)))",
         Mathematics::kFast},
        {"exp2 of scaled x", "v / (1 + Exp2Form(-2 * v * (0.797884561F + 0.0356774081F * (v * v))))",
         Mathematics::kFast}}},
  };
  return kForms;
}

std::string Count(const TensorSpec& tensor) {
  std::string count;
  for (const std::string& dim : tensor.shape) count += (count.empty() ? "(" : " * (") + dim + ")";
  return count;
}

}  // namespace

std::vector<HonestKernel> HonestElementwise(const Problem& problem) {
  std::vector<HonestKernel> kernels;
  const auto forms = Forms().find(problem.id);
  if (forms == Forms().end()) return kernels;
  for (const Form& form : forms->second) {
    const bool fast = form.mathematics == Mathematics::kFast;
    kernels.push_back(
        {form.name, HonestSource(problem, kText,
                                 {{"PRAGMA", fast ? "#pragma GCC optimize(\"fast-math\")\n" : ""},
                                  {"COUNT", Count(problem.outputs[0])},
                                  {"IN", problem.inputs.back().name},
                                  {"OUT", problem.outputs[0].name},
                                  {"EXPRESSION", form.expression}})});
  }
  return kernels;
}

}  // namespace kevin
