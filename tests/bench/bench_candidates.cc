#include "tests/bench/bench_candidates.h"

#include <fmt/format.h>

#include <regex>

#include "agent/conversation.h"
#include "agent/parse.h"
#include "env/error.h"
#include "env/gpu/compile/device_source.h"
#include "policies/search/search_policy.h"

namespace kevin {
namespace {

constexpr const char* kRelu = R"(
id = "bench/relu"
name = "ReLU of {0} numbers"
families = ["elementwise"]
reference = '''
def forward(x):
    return torch.relu(x)
'''
[sizes.full]
N = {0}
[[inputs]]
name = "x"
shape = ["N"]
[[outputs]]
name = "out"
shape = ["N"]
[cost]
flops = "N"
bytes = "8*N"
min_flops = 0
min_bytes = "8*N"
)";

// The rest of the steps in a loop of its own, or the compiler leaves it rolled: a rolled step costs several
// others, and 31 steps could last longer than 32.
constexpr const char* kDelayed = R"(
__global__ void __launch_bounds__(256) relu(const float4* x, float4* out, float zero) {{
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i >= N / 4) return;
  float4 v = x[i];
  constexpr int steps = {};
#pragma unroll 1
  for (int round = 0; round < steps / 16; ++round)
#pragma unroll
    for (int step = 0; step < 16; ++step) v.x = __fadd_rn(v.x, zero);
#pragma unroll
  for (int step = 0; step < steps % 16; ++step) v.x = __fadd_rn(v.x, zero);
  v.x = v.x < 0 ? 0 : v.x;
  v.y = v.y < 0 ? 0 : v.y;
  v.z = v.z < 0 ? 0 : v.z;
  v.w = v.w < 0 ? 0 : v.w;
  out[i] = v;
}}

void launch(const float* x, float* out) {{
  relu<<<ceil_div(N / 4, 256), 256>>>((const float4*)x, (float4*)out, 0.0f);
}}
)";

constexpr const char* kEagerForm = R"(
__global__ void __launch_bounds__(128) relu(const float4* x, float4* out) {
  const long first = blockIdx.x * 512L + threadIdx.x;
  float4 v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (first + k * 128 < N / 4) v[k] = x[first + k * 128];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    v[k].x = v[k].x < 0 ? 0 : v[k].x;
    v[k].y = v[k].y < 0 ? 0 : v[k].y;
    v[k].z = v[k].z < 0 ? 0 : v[k].z;
    v[k].w = v[k].w < 0 ? 0 : v[k].w;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (first + k * 128 < N / 4) out[first + k * 128] = v[k];
}

void launch(const float* x, float* out) {
  relu<<<ceil_div(N / 4, 512), 128>>>((const float4*)x, (float4*)out);
}
)";

}  // namespace

std::string SearchKernel(const Problem& problem) {
  const SizedProblem sized = AtSize(problem, "full");
  ConversationContext context;
  context.problem = &sized;
  context.kind = "cuda";
  Request request;
  request.task = BuildTask(context, {});
  const ParsedReply reply = ParseReply(MakeSearchPolicy()->Complete(request, nullptr, {}).text, "cuda");
  if (!reply.source) throw Error(ExitCode::kBroken, problem.id + ": search: " + reply.failure);
  return *reply.source;
}

std::string Variant(const std::string& source, const std::string& mark) {
  const std::vector<std::string> kernels = KernelsIn(source);
  if (kernels.empty()) throw Error(ExitCode::kBroken, "a benchmark's text has no kernel");
  std::string text = source;
  for (const std::string& kernel : kernels)
    text = std::regex_replace(text, std::regex("\\b" + kernel + "\\b"), kernel + mark);
  return "// variant " + mark + "\n" + text;
}

std::string ZeroKernel(const Problem& problem) {
  const SizedProblem sized = AtSize(problem, "full");
  std::string launches;
  for (const ConcreteTensor& output : sized.outputs) {
    launches += fmt::format("  zero<{}><<<{}, 256>>>({}, {}L);\n", DTypeInKind(output.spec.dtype, "cuda"),
                            (output.elements + 255) / 256, output.spec.name, output.elements);
  }
  return fmt::format(R"(
template <typename T>
__global__ void zero(T* out, long count) {{
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i < count) out[i] = 0;
}}

{} {{
{}}}
)",
                     LaunchSignature(problem, "cuda"), launches);
}

std::string BrokenKernel(const std::string& source) {
  return "__device__ float broken(float x) { return x + ; }\n" + source;
}

Problem ReluProblem(int64_t elements) { return ParseProblem(fmt::format(kRelu, elements), "bench_gpu"); }

std::string DelayedRelu(int steps) { return fmt::format(kDelayed, steps); }

std::string EagerFormRelu() { return kEagerForm; }

}  // namespace kevin
