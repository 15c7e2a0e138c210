#pragma once
// A small problem (x[B, N] -> out[B, N], float32) and shorthands for interpreting a launch function for it.

#include <string>

#include "env/gpu/launch/launch_function.h"
#include "tests/catch.h"

namespace kevin::launch_testing {

inline TensorSpec Tensor(const std::string& name, DType dtype = DType::kF32) {
  TensorSpec spec;
  spec.name = name;
  spec.dtype = dtype;
  spec.shape = {"B", "N"};
  return spec;
}

inline Problem SmallProblem(DType input = DType::kF32, DType output = DType::kF32) {
  Problem problem;
  problem.id = "test/1";
  problem.inputs = {Tensor("x", input)};
  problem.outputs = {Tensor("out", output)};
  problem.sizes = {{"small", {{"B", 64}, {"N", 1000}}}};
  problem.flops = problem.bytes = problem.min_flops = problem.min_bytes = "B*N";
  return problem;
}

inline InterpretedLaunch Interpret(const std::string& text, const std::string& kind = "cuda",
                                   const LaunchFunctionLimits& limits = {}) {
  static const Problem kProblem = SmallProblem();
  static const SizedProblem kSized = AtSize(kProblem, "small");
  return InterpretLaunch(kSized, kind, text, limits);
}

// The complaint, or "" when there is none.
inline std::string Complaint(const std::string& text, const std::string& kind = "cuda",
                             const LaunchFunctionLimits& limits = {}) {
  try {
    Interpret(text, kind, limits);
  } catch (const LaunchException& exception) {
    return exception.error().message;
  }
  return "";
}

// A kernel that takes anything, then `top`, then a launch function with `body`.
inline std::string Text(const std::string& body, const std::string& top = "") {
  return "__global__ void k(const float* x, float* out, long n) {}\n"
         "template <typename T, int A, bool C> __global__ void t(const T* x, T* out, long n) {}\n"
         "template <typename... A> __global__ void any(A... a) {}\n" +
         top + "\nvoid launch(const float* x, float* out) {\n" + body + "\n}\n";
}

inline KernelLaunch OnlyLaunch(const InterpretedLaunch& interpreted) {
  REQUIRE(interpreted.list.operations.size() == 1);
  return std::get<KernelLaunch>(interpreted.list.operations.front());
}

// The third argument of `k<<<1, 1>>>(x, out, EXPRESSION)`, which follows `statements`.
inline LaunchArgument Computed(const std::string& expression, const std::string& statements = "",
                               const std::string& top = "") {
  const std::string body = statements + "\nany<<<1, 1>>>(x, out, " + expression + ");";
  return OnlyLaunch(Interpret(Text(body, top))).arguments.at(2);
}

inline int64_t Whole(const std::string& expression, const std::string& statements = "",
                     const std::string& top = "") {
  return std::get<int64_t>(Computed(expression, statements, top));
}

inline double Floating(const std::string& expression, const std::string& statements = "") {
  return std::get<double>(Computed(expression, statements));
}

inline bool Truth(const std::string& expression, const std::string& statements = "",
                  const std::string& top = "") {
  return std::get<bool>(Computed(expression, statements, top));
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kevin::launch_testing
