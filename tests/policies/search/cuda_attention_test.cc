// Attention in 16 bits on the tensor cores, run on the CPU by an emulation of the device and compared with plain loops
// over the program in double precision: tails of queries and keys, masks, heads that share keys, every tile.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "policies/search/lower.h"
#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/policies/search/program_cases.h"

using namespace kevin;
using namespace kevin::test;

namespace {

const std::string kAttentionHead = "#include \"tests/policies/search/cuda_on_cpu.h\"";
// A misaligned access ends the test.
const std::string kAttentionFlags =
    "-O1 -fno-strict-aliasing -w -fsanitize=alignment -fsanitize-undefined-trap-on-error";

struct AttentionCase {
  int64_t queries = 1, keys = 1, depth = 32, width = 32;
  bool is_causal = false;
  // "", "float" (queries, keys), "bool" (1, keys), "queries" (queries, 1): bool, all keys or none
  std::string mask = {};
  int64_t heads = 2, key_heads = 2;
  int64_t tile_q = 0, tile_keys = 0;  // 0: as chosen
};

search::Program ProgramOfAttention(const AttentionCase& one, const std::string& dtype) {
  Task task;
  task.kind = "cuda";
  std::string inputs, values;
  const auto value = [&](const std::vector<int64_t>& shape, const std::string& type, bool is_input) {
    const size_t at = task.arguments.size();
    values += fmt::format("{}{{\"dtype\":\"{}\",\"shape\":[{}]}}", values.empty() ? "" : ",", type,
                          fmt::join(shape, ","));
    if (is_input) inputs += fmt::format("{}{{\"name\":\"in{}\",\"value\":{}}}", at ? "," : "", at, at);
    task.arguments.push_back(
        {fmt::format("{}{}", is_input ? "in" : "out", at), is_input ? "input" : "output", "", shape, {}});
  };
  value({2, one.heads, one.queries, one.depth}, dtype, true);
  value({2, one.key_heads, one.keys, one.depth}, dtype, true);
  value({2, one.key_heads, one.keys, one.width}, dtype, true);
  if (one.mask == "float") value({one.queries, one.keys}, dtype, true);
  if (one.mask == "bool") value({2, 1, 1, one.keys}, "bool", true);
  if (one.mask == "queries") value({one.queries, 1}, "bool", true);
  const size_t out = task.arguments.size();
  value({2, one.heads, one.queries, one.width}, dtype, false);
  const std::string node = fmt::format(
      "{{\"op\":\"scaled_dot_product_attention\",\"args\":{{\"query\":{{\"tensor\":0}},\"key\":{{\"tensor\":1}},"
      "\"value\":{{\"tensor\":2}},\"attn_mask\":{},\"is_causal\":{},\"enable_gqa\":{}}},\"results\":[{}]}}",
      one.mask.empty() ? "null" : "{\"tensor\":3}", one.is_causal, one.heads != one.key_heads, out);
  search::Program program =
      search::Lower(search::ParseGraph(fmt::format(
                        "{{\"version\":1,\"inputs\":[{}],\"values\":[{}],\"nodes\":[{}],\"outputs\":[{}]}}",
                        inputs, values, node, out)),
                    task);
  search::Fuse(program);
  search::PlaceWorkspaces(program);
  return program;
}

std::string TextOfAttention(const AttentionCase& one, const std::string& dtype) {
  const search::Program program = ProgramOfAttention(one, dtype);
  Task task = TaskOf(program, "cuda");
  const std::string element = dtype == "float16" ? "__half" : dtype == "bfloat16" ? "__nv_bfloat16" : "float";
  for (TaskArgument& argument : task.arguments) {
    if (argument.cpp_type.find("bool") == std::string::npos)
      argument.cpp_type = (argument.role == "output" ? "" : "const ") + element + "*";
  }
  search::Setting setting;
  std::string constants;
  for (const search::Knob& knob : search::CudaKnobs(program, task)) {
    const int64_t asked = knob.name.starts_with("TILE_Q") ? one.tile_q : one.tile_keys;
    setting[knob.name] = asked > 0 ? asked : knob.values.at(0);
    constants += fmt::format("constexpr int {} = {};\n", knob.name, setting[knob.name]);
  }
  return constants + search::WriteCuda(program, task, setting);
}

bool IsOnTensorCores(const std::string& text) { return text.find("AttendTiles<kQ") != std::string::npos; }

void CheckAttention(const std::vector<AttentionCase>& cases, const std::string& dtype) {
  std::vector<std::string> sources;
  for (const AttentionCase& one : cases) {
    sources.push_back(ToCpp(TextOfAttention(one, dtype)));
    CHECK(IsOnTensorCores(sources.back()));
  }
  const KernelLibrary library(sources, kAttentionFlags, kAttentionHead);
  for (size_t i = 0; i < cases.size(); ++i) {
    const AttentionCase& one = cases[i];
    const std::string name = fmt::format("{} of {} by {}, {} and {}, tiles {} and {}{} {}", dtype,
                                         one.queries, one.keys, one.depth, one.width, one.tile_q,
                                         one.tile_keys, one.is_causal ? ", causal" : "", one.mask);
    // The bound: a few roundings of the largest result.
    CheckProgram({name, ProgramOfAttention(one, dtype), 0}, library, i);
  }
}

}  // namespace

TEST_CASE("attention in 16 bits agrees with plain loops") {
  const std::vector<AttentionCase> cases = {
      {37, 37, 32, 32},
      {64, 64, 64, 64, true},
      {1, 131, 48, 16},
      {130, 70, 40, 24},
      {150, 150, 128, 128, true},
      {77, 33, 16, 64, false, "float"},
      {5, 90, 32, 32, false, "bool", 4, 1},
      {50, 200, 80, 96, true, "", 4, 2},
      {20, 67, 160, 136},
      {70, 70, 256, 256, true},
  };
  CheckAttention(cases, "bfloat16");
  CheckAttention(cases, "float16");
}

TEST_CASE("every tile of attention in 16 bits agrees with plain loops") {
  std::vector<AttentionCase> cases;
  for (const int64_t queries : {16, 32, 64, 128}) {
    for (const int64_t keys : {64, 128}) {
      for (const bool is_causal : {false, true}) {
        cases.push_back({75, 201, 32, 48, is_causal});
        cases.back().tile_q = queries, cases.back().tile_keys = keys;
      }
    }
  }
  CheckAttention(cases, "bfloat16");
}

TEST_CASE("queries that a mask gives no key have results 0 in 16 bits") {
  std::vector<AttentionCase> cases;
  for (const int64_t queries : {16, 64}) {  // with the keys divided among warps, and not
    cases.push_back({75, 201, 32, 48, false, "queries"});
    cases.back().tile_q = queries;
  }
  CheckAttention(cases, "bfloat16");
  CheckAttention(cases, "float16");
}

TEST_CASE("queries that a mask gives no key have results 0 where scores are stored") {
  const AttentionCase one{37, 5, 160, 160, false, "queries"};
  const search::Program program = ProgramOfAttention(one, "float32");
  for (const search::Stage& stage : program.stages)
    CHECK_FALSE(std::holds_alternative<search::Attention>(stage.work));
  Memory memory = RandomMemory(program, 7);
  Interpret(program, memory);
  int masked = 0;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (!program.buffers[i].is_output) continue;
    for (size_t at = 0; at < memory[i].size(); ++at) {
      const bool has_keys = memory[3][at / 160 % 37] != 0;
      CHECK((memory[i][at] == 0) == !has_keys);
      masked += !has_keys;
    }
  }
  CHECK(masked > 0);
}

TEST_CASE("attention in fp32, and in 16 bits of odd heads, is not on the tensor cores") {
  CHECK_FALSE(IsOnTensorCores(TextOfAttention({37, 37, 32, 32}, "float32")));
  CHECK_FALSE(IsOnTensorCores(TextOfAttention({37, 37, 36, 32}, "float16")));
  CHECK_FALSE(IsOnTensorCores(TextOfAttention({37, 37, 32, 19}, "float16")));
  CHECK_FALSE(IsOnTensorCores(TextOfAttention({37, 37, 264, 32}, "bfloat16")));
}
