// When two candidates of a GPU are one kernel: texts with the same machine code share a key, and nothing that
// a text can hold hides a difference from it. Everything is compiled for real, with no GPU.

#include "env/gpu/machine_key.h"

#include <cstring>
#include <map>

#include "env/gpu/launch/launch_function.h"
#include "tests/env/gpu/gpu_fixture.h"
#include "tests/folders.h"

namespace kevin {
namespace {

// A text as the environment builds it, at the full size of level1/19.
std::string KeyOfText(const std::string& source, const std::string& kind = "cuda") {
  static Farm farm;
  static const Problem problem = ListedProblem("level1/19");
  const SizedProblem sized = AtSize(problem, "full");
  const InterpretedLaunch launch = InterpretLaunch(sized, kind, source);
  GpuCompileRequest request;
  request.kind = kind;
  request.device_text = launch.split.device_text;
  request.kernels.assign(launch.kernels.begin(), launch.kernels.end());
  for (const ConstantValue& constant : launch.list.constants) request.variables.push_back(constant.symbol);
  request.symbols = sized.symbols;
  const GpuCompiled compiled = farm->Compile(request);
  INFO(source << "\n" << compiled.log << compiled.refused);
  REQUIRE(!compiled.module.cubin.empty());
  REQUIRE(compiled.refused.empty());
  std::string error;
  const LaunchPlan plan =
      MakeLaunchPlan(launch.list, compiled.module, InspectPtx(compiled.module.ptx, false).globals,
                     compiled.variables, &error);
  REQUIRE(error.empty());
  return MachinePlanHash(plan);
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// A kernel whose work is `body`; `top` stands before it.
std::string Kernel(const std::string& body, const std::string& top = "",
                   const std::string& launch = "relu<<<B * N / 256, 256>>>(x, out);") {
  return top +
         "__global__ void relu(const float* x, float* out) {\n  const long i = blockIdx.x * 256L + threadIdx.x;\n" +
         body + "\n}\nvoid launch(const float* x, float* out) { " + launch + " }\n";
}

const char* const kWork = "  out[i] = x[i] > 0 ? x[i] : 0;";

}  // namespace

TEST_CASE("texts that differ in comments, lines and names of variables are one kernel") {
  if (!TestToolchain()) return;
  const std::string text = Kernel(kWork), key = KeyOfText(text);
  CHECK(KeyOfText("// A comment.\n\n\n" + text) == key);
  CHECK(KeyOfText(Kernel(
            "  /* .section */ const float value = x[i];\n\n\n  out[i] = value > 0 ? value : 0;")) == key);
  CHECK(KeyOfText(Kernel("  asm volatile(\"// a comment\");\n" + std::string(kWork))) == key);
  std::string renamed = Replaced(text, "const long i =", "const long index =");
  renamed = Replaced(renamed, "out[i] = x[i] > 0 ? x[i] : 0", "y[index] = in[index] > 0 ? in[index] : 0");
  renamed = Replaced(renamed, "const float* x, float* out)", "const float* in, float* y)");
  CHECK(KeyOfText(renamed) == key);
  CHECK(KeyOfText(Kernel(kWork, "",
                         "\n\n const int threads = 256;\n relu<<<B * N / threads, threads>>>(x, out);")) ==
        key);
}

// The texts differ only behind the trick.
TEST_CASE("no comment and no directive of inline assembly hides the code behind it") {
  if (!TestToolchain()) return;
  const auto with = [](const std::string& assembly) {
    return KeyOfText(
        Kernel("  float v = x[i];\n  asm volatile(\"" + assembly + "\" : \"+f\"(v));\n  out[i] = v;"));
  };
  const std::string keep = "mov.f32 %0, %0;", change = "mul.f32 %0, %0, %0;";
  for (const char* start :
       {".loc 1 1 0 ", "/* */ ", "/* .loc\\n*/ ", ".loc 1 1 0 /* .section */ ", "/*\\n*/ .loc 1 1 0 ",
        ".loc 1 1 0 .loc 1 2 0 ", "/*\\n.section .debug_str\\n*/ ", "/*\\n .section .debug_str {\\n*/ ",
        "/*\\n.file 1 \\\"a\\\"\\n*/ ", "/*\\n// *//*\\n.section\\n*/\\n", "// .section\\n",
        ".pragma \\\"nounroll\\\"; ", "{ .reg .b32 hidden; } "}) {
    INFO(start);
    CHECK(with(start + keep) != with(start + change));
  }
}

TEST_CASE("constants, initial values and relocations are part of the key") {
  if (!TestToolchain()) return;
  const auto differ = [](const std::string& one, const std::string& other) {
    INFO(one << "\n" << other);
    CHECK(KeyOfText(one) != KeyOfText(other));
  };
  const std::string table = "  out[i] = x[i] * table[i & 1];";
  differ(Kernel(table, "__constant__ float table[2] = {1, 2};\n"),
         Kernel(table, "__constant__ float table[2] = {1, 3};\n"));
  differ(Kernel(table, "__constant__ float table[2] = {0.0f, 2};\n"),
         Kernel(table, "__constant__ float table[2] = {-0.0f, 2};\n"));
  differ(Kernel(table, "__device__ float table[2] = {1, 2};\n"),
         Kernel(table, "__device__ float table[2] = {1, 3};\n"));
  differ(Kernel(table, "__device__ float table[2];\n"),
         Kernel(table, "__device__ float table[2] = {1, 3};\n"));
  differ(Kernel("  out[i] = x[i] * 2;"), Kernel("  out[i] = x[i] * 3;"));
  const std::string functions =
      "__device__ __noinline__ float one(float v) { return v; }\n__device__ __noinline__ float two(float v) { return v + v; }\n"
      "using Function = float (*)(float);\n";
  const std::string calls = "  out[i] = functions[i & 1](x[i]);";
  differ(Kernel(calls, functions + "__device__ Function functions[2] = {one, two};\n"),
         Kernel(calls, functions + "__device__ Function functions[2] = {two, one};\n"));
  const std::string set = "const float values[2] = {1, 2}; cudaMemcpyToSymbol(table, values, 8); ";
  const std::string run = "relu<<<B * N / 256, 256>>>(x, out);";
  differ(Kernel(table, "__constant__ float table[2];\n", set + run),
         Kernel(table, "__constant__ float table[2];\n", Replaced(set, "1, 2", "1, 3") + run));
}

TEST_CASE("launches, arguments and resources are part of the key") {
  if (!TestToolchain()) return;
  const std::string top =
      "__global__ void other(const float* x, float* out) { out[threadIdx.x] = 1; }\n"
      "__global__ void scaled(const float* x, float* out, float factor, int n) { out[threadIdx.x] = x[n] * factor; }\n";
  std::map<std::string, std::string> seen;
  for (const char* launch : {"relu<<<B * N / 256, 256>>>(x, out);",
                             "other<<<B * N / 256, 256>>>(x, out);",
                             "relu<<<B * N / 512, 256>>>(x, out);",
                             "relu<<<B * N / 256, 128>>>(x, out);",
                             "relu<<<dim3(B, N / 256), 256>>>(x, out);",
                             "relu<<<B * N / 256, 256, 1024>>>(x, out);",
                             "relu<<<B * N / 256, 256>>>(x + 1, out);",
                             "relu<<<B * N / 256, 256>>>(x, out + 1);",
                             "relu<<<B * N / 256, 256>>>(x, out); relu<<<B * N / 256, 256>>>(x, out);",
                             "relu<<<B * N / 256, 256>>>(x, out); other<<<1, 1>>>(x, out);",
                             "other<<<1, 1>>>(x, out); relu<<<B * N / 256, 256>>>(x, out);",
                             "float* w = workspace<float>(4); relu<<<B * N / 256, 256>>>(x, out);",
                             "float* w = workspace<float>(8); relu<<<B * N / 256, 256>>>(x, out);",
                             "float* w = workspace<float>(8); relu<<<B * N / 256, 256>>>(w, out);",
                             "scaled<<<1, 256>>>(x, out, 1.0f, 1);",
                             "scaled<<<1, 256>>>(x, out, 1.5f, 1);",
                             "scaled<<<1, 256>>>(x, out, 0.0f, 1);",
                             "scaled<<<1, 256>>>(x, out, -0.0f, 1);",
                             "scaled<<<1, 256>>>(x, out, 1.0f, 2);",
                             "cudaMemsetAsync(out, 0, 4); relu<<<B * N / 256, 256>>>(x, out);",
                             "cudaMemsetAsync(out, 1, 4); relu<<<B * N / 256, 256>>>(x, out);",
                             "cudaMemsetAsync(out, 0, 8); relu<<<B * N / 256, 256>>>(x, out);"}) {
    const auto [at, is_new] = seen.emplace(KeyOfText(Kernel(kWork, top, launch)), launch);
    INFO(launch << " has the key of " << at->second);
    CHECK(is_new);
  }
  const std::string bounded =
      Replaced(Kernel(kWork), "__global__ void", "__global__ __launch_bounds__(256, 8) void");
  CHECK(KeyOfText(bounded) != KeyOfText(Kernel(kWork)));
  CHECK(
      KeyOfText(
          Kernel("  __shared__ float s[64];\n  if (N == 7) s[i & 63] = x[i];\n  out[i] = s[i & 63];")) !=
      KeyOfText(Kernel("  __shared__ float s[32];\n  if (N == 7) s[i & 31] = x[i];\n  out[i] = s[i & 31];")));
}

TEST_CASE("PTX texts have the key of what the assembler makes of them") {
  if (!TestToolchain()) return;
  const std::string text = TextOf(SourceFolder() / "tests/env/gpu/red_team/correct/written_in_ptx.ptx");
  const std::string key = KeyOfText(text, "ptx"), store = "  st.global.v4.f32 [%out], {%a, %b, %c, %d};\n";
  CHECK(KeyOfText(Replaced(text, store, "/* .section */\n" + store + "// end\n"), "ptx") == key);
  CHECK(KeyOfText(Replaced(text, store, ""), "ptx") != key);
  for (const std::string trick : {"/*\n.section .debug_str\n*/\n", "/*\n  .section\n*/", ".loc 1 1 1 "}) {
    INFO(trick);
    const std::string top = trick.find(".loc") == std::string::npos ? "" : ".file 1 \"a.cu\"\n";
    const std::string hidden = Replaced(text, ".visible", top + ".visible");
    CHECK(KeyOfText(Replaced(hidden, store, trick + store), "ptx") !=
          KeyOfText(Replaced(hidden, store, trick + Replaced(store, "%d}", "%c}")), "ptx"));
  }
  const std::string debug = ".section .debug_str\n{\n.b8 1, 2, 3\n}\n";
  CHECK(KeyOfText(Replaced(text, ".visible", debug + ".visible"), "ptx") !=
        KeyOfText(Replaced(Replaced(text, ".visible", debug + ".visible"), store, ""), "ptx"));
}

namespace {

LaunchPlan PlanWith(const std::string& cubin) {
  LaunchPlan plan;
  plan.cubin = cubin;
  return plan;
}

}  // namespace

TEST_CASE("bytes that are no machine code are compared whole") {
  for (const std::string& bytes : {std::string(), std::string("a"),
                                   std::string("\x7f"
                                               "ELF\x02\x01",
                                               6),
                                   std::string(64, '\0')})
    CHECK(MachineCodeOf(bytes) == bytes);
  CHECK(MachinePlanHash(PlanWith("a")) != MachinePlanHash(PlanWith("b")));
}

namespace {

template <typename T>
T At(const std::string& bytes, size_t place) {
  T value{};
  REQUIRE(place + sizeof(T) <= bytes.size());
  std::memcpy(&value, bytes.data() + place, sizeof(T));
  return value;
}

// Where it begins and ends: the section of type 2 of a 64-bit ELF file.
std::pair<size_t, size_t> SymbolTableOf(const std::string& cubin) {
  const auto headers = At<uint64_t>(cubin, 0x28);
  const auto bytes = At<uint16_t>(cubin, 0x3a), count = At<uint16_t>(cubin, 0x3c);
  for (size_t i = 0; i < count; ++i) {
    const size_t header = headers + i * bytes;
    if (At<uint32_t>(cubin, header + 4) != 2) continue;
    const auto begin = At<uint64_t>(cubin, header + 0x18);
    return {begin, begin + At<uint64_t>(cubin, header + 0x20)};
  }
  return {0, 0};
}

}  // namespace

TEST_CASE("every byte of a cubin counts, up to those for debuggers") {
  if (!TestToolchain()) return;
  Farm farm;
  GpuCompileRequest request;
  request.device_text = "__global__ void k(float* x) { x[threadIdx.x] += 1; }\n";
  request.kernels = {"k"};
  request.lines = true;
  const std::string cubin = farm->Compile(request).module.cubin;
  REQUIRE(!cubin.empty());
  const std::string code = MachineCodeOf(cubin);
  CHECK(code != cubin);
  size_t without_effect = 0;
  for (size_t at = 0; at < cubin.size(); ++at) {
    std::string changed = cubin;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    without_effect += MachineCodeOf(changed) == code;
  }
  // Padding between sections and the contents of debug sections.
  const auto [symbols, symbols_end] = SymbolTableOf(cubin);
  REQUIRE(symbols_end > symbols);
  constexpr size_t kSymbolBytes = 24, kNameBytes = 4;  // names of debug sections' symbols do not count
  for (size_t at = symbols; at < symbols_end; ++at) {
    if ((at - symbols) % kSymbolBytes < kNameBytes) continue;
    std::string changed = cubin;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    INFO("byte " << at - symbols << " of the symbols");
    CHECK(MachineCodeOf(changed) != code);
  }
  const size_t text = cubin.find(".nv_debug_ptx_txt");
  REQUIRE(text != std::string::npos);
  CHECK(without_effect < cubin.size() / 2);
  CHECK(without_effect > 100);
  for (const size_t end : {size_t{1}, size_t{63}, size_t{64}, cubin.size() / 2, cubin.size() - 1}) {
    const std::string cut = cubin.substr(0, end);
    CHECK(MachineCodeOf(cut) == cut);
  }
}

TEST_CASE("names that are no UTF-8 stay distinct") {
  PlannedLaunch launch;
  LaunchPlan one, other;
  launch.lowered_name = "k\xff";
  one.operations.emplace_back(launch);
  launch.lowered_name = "k\xfe";
  other.operations.emplace_back(launch);
  CHECK(MachinePlanHash(one) != MachinePlanHash(other));
}

}  // namespace kevin
