// What the search writes in CUDA, run on the CPU by cuda_on_cpu.h and compared with an interpreter of programs in double
// precision: every kind of stage, sizes that are odd, one, or no whole number of packs.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numbers>
#include <random>
#include <set>

#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/policies/search/program_builder.h"
#include "tests/policies/search/random_programs.h"

using namespace kevin;
using namespace kevin::test;

namespace {

const std::string kCudaHead =
    "#include \"tests/policies/search/cuda_on_cpu.h\"\n"
    "#include \"tests/policies/search/cuda_products_on_cpu.h\"";
// A misaligned access ends the test.
const std::string kCudaFlags =
    "-O1 -fno-strict-aliasing -w -fsanitize=alignment -fsanitize-undefined-trap-on-error";

std::string CudaTextOf(const search::Program& program, const search::Setting& setting = {}) {
  Task task = TaskOf(program, "cuda");
  for (TaskArgument& argument : task.arguments) {
    for (const auto& [from, to] : {std::pair("_Float16", "__half"), std::pair("bf16", "__nv_bfloat16")}) {
      if (const size_t at = argument.cpp_type.find(from); at != std::string::npos)
        argument.cpp_type.replace(at, std::string(from).size(), to);
    }
  }
  search::Setting all = setting;
  for (const search::Knob& knob : search::CudaKnobs(program, task))
    all.try_emplace(knob.name, knob.values.at(0));
  std::string constants;
  for (const auto& [name, value] : all)
    constants += "constexpr int " + name + " = " + std::to_string(value) + ";\n";
  return constants + search::WriteCuda(program, task, all);
}

// Of EveryProgram, those whose name contains KEVIN_CASE, if that is set.
std::vector<ProgramCase> ChosenForCuda() {
  std::vector<ProgramCase> chosen;
  const char* part = std::getenv("KEVIN_CASE");
  for (ProgramCase& one : EveryProgram()) {
    if (part == nullptr || one.name.find(part) != std::string::npos) chosen.push_back(std::move(one));
  }
  return chosen;
}

// The knobs of a case at their `variant`th values (0: the first).
search::Setting SettingOf(const search::Program& program, size_t variant) {
  search::Setting setting;
  for (const search::Knob& knob : search::CudaKnobs(program, TaskOf(program, "cuda"))) {
    setting[knob.name] = knob.values.at(variant % knob.values.size());
    if (variant > 0) ++variant;
  }
  return setting;
}

void CheckOnCpu(const std::vector<ProgramCase>& cases, const std::vector<size_t>& variants) {
  std::vector<std::string> sources;
  std::ofstream out;
  if (const char* file = std::getenv("KEVIN_TEXTS")) out.open(file);
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].name);
    const std::string text = CudaTextOf(cases[i].program, SettingOf(cases[i].program, variants[i]));
    if (out.is_open()) out << "// " << cases[i].name << "\n" << text;
    sources.push_back(ToCpp(text));
  }
  const KernelLibrary library(sources, kCudaFlags, kCudaHead);
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO("variant " << variants[i]);
    CheckProgram(cases[i], library, i);
  }
}

size_t KernelsIn(const std::string& text) {
  size_t kernels = 0;
  for (size_t at = text.find("__global__"); at != std::string::npos; at = text.find("__global__", at + 1))
    ++kernels;
  return kernels;
}

// Sums and maxima of windows of 4 x 5 that lie side by side, so many that a group of threads takes whole rows.
search::Program ManyWindows(const std::string& op) {
  using namespace search;
  constexpr int64_t kChannels = 40, kRows = 29, kColumns = 30;
  Program program;
  for (const int64_t elements : {kChannels * kRows * kColumns * 20, kChannels * kRows * kColumns}) {
    Buffer buffer;
    buffer.name = buffer.dtype = "float32";
    buffer.elements = elements;
    buffer.argument = static_cast<int>(program.buffers.size());
    buffer.is_output = buffer.argument == 1;
    program.buffers.push_back(buffer);
  }
  const std::vector<int64_t> extents = {kChannels, kRows, kColumns, 4, 5};
  std::vector<ExprPtr> at;
  std::vector<Loop> outer, inner;
  for (int i = 0; i < 5; ++i) {
    const Loop loop{i, extents[static_cast<size_t>(i)]};
    (i < 3 ? outer : inner).push_back(loop);
    at.push_back(Variable(loop.variable, loop.extent));
  }
  const ExprPtr read = OffsetOf({at[0], AddInt(Scaled(at[1], 4), at[3]), AddInt(Scaled(at[2], 5), at[4])},
                                {kChannels, kRows * 4, kColumns * 5});
  const ExprPtr write = OffsetOf({at[0], at[1], at[2]}, {kChannels, kRows, kColumns});
  program.stages.push_back(
      {"windows",
       Reduction{
           outer, inner, {{op, Load(0, Type::kFloat, read), 0, 0}}, {{1, write, Result(0), nullptr}}, {}},
       0, 0});
  PlaceWorkspaces(program);
  return program;
}

}  // namespace

TEST_CASE("windows side by side: groups of threads take whole rows") {
  const std::vector<ProgramCase> cases = {{"sums", ManyWindows("sum"), 20},
                                          {"maxima", ManyWindows("max"), 1}};
  CHECK(CudaTextOf(cases[0].program).find("if (lane < 5)") != std::string::npos);
  CheckOnCpu(cases, {0, 0});
}

TEST_CASE("CUDA texts agree with the interpreter") {
  const std::vector<ProgramCase> cases = ChosenForCuda();
  CheckOnCpu(cases, std::vector<size_t>(cases.size()));
}

TEST_CASE("CUDA texts agree with the interpreter at other values of their knobs") {
  std::vector<ProgramCase> cases;
  std::vector<size_t> variants;
  const std::vector<ProgramCase> all = ChosenForCuda();
  for (size_t i = 0; i < all.size(); i += 2) {
    if (all[i].name.starts_with("matmul") || all[i].name.starts_with("conv"))
      continue;  // cuda_contraction_test.cc
    cases.push_back(all[i]);
    variants.push_back(1 + i % 5);
  }
  CheckOnCpu(cases, variants);
}

TEST_CASE("reductions whose blocks share a result agree at every value of their knobs") {
  const std::set<std::string> wanted = {
      "argmax 1x40009x1", "truth 1x40009x1",  "softmax 1x480003x1",  // rows
      "softmax 1x5003x8", "moments 1x5003x8", "argmax 1x5003x8"};    // columns
  std::vector<ProgramCase> all = EveryProgram(), cases;
  all.push_back(Softmax(1, 480003, 1));  // a row too long for a cluster of blocks
  std::vector<size_t> variants;
  std::set<std::string> found;
  for (const ProgramCase& one : all) {
    if (!wanted.contains(one.name)) continue;
    found.insert(one.name);
    const std::vector<search::Knob> knobs = search::CudaKnobs(one.program, TaskOf(one.program, "cuda"));
    size_t most = 0;
    for (const search::Knob& knob : knobs) most = std::max(most, knob.values.size());
    INFO(one.name);
    CHECK(std::any_of(knobs.begin(), knobs.end(),
                      [](const search::Knob& knob) { return knob.name == "PARTS_0"; }));
    CHECK(CudaTextOf(one.program).find(", PARTS_0)") != std::string::npos);  // a grid
    for (size_t variant = 1; variant <= most; ++variant) cases.push_back(one), variants.push_back(variant);
  }
  CHECK(found == wanted);
  CheckOnCpu(cases, variants);
}

TEST_CASE("CUDA texts of programs made at random agree with the interpreter") {
  const std::vector<uint64_t> seeds = SeedsOr(40);
  CheckOnCpu(RandomCases(seeds), std::vector<size_t>(seeds.begin(), seeds.end()));
}

// No tensor of that size: the terms are computed. The emulation takes some seconds for them.
TEST_CASE("a reduction of more than 2^31 terms counts and points in 64 bits") {
  constexpr int64_t kTerms = (int64_t{1} << 31) + 11, kAt = kTerms - 5;
  ProgramBuilder builder;
  const Loop outer = builder.NewLoop(1), inner = builder.NewLoop(kTerms);
  const int at = builder.Output(1, "int64"), count = builder.Output(1);
  const auto beyond = [&](int64_t place) {
    return search::Select(search::Compare("less", search::Int(place - 1), Var(inner)), search::Float(1),
                          search::Float(0));
  };
  builder.Do("argmax",
             search::Reduction{{outer},
                               {inner},
                               {{"argmax", beyond(kAt), 0, 0}, {"sum", beyond(int64_t{1} << 31), 1, 0}},
                               {{at, At({outer}), search::Result(0, search::Type::kInt), nullptr},
                                {count, At({outer}), search::Result(1), nullptr}},
                               {}});
  const std::string text = CudaTextOf(builder.Case("long").program);
  const KernelLibrary library({ToCpp(text)}, "-O2 -fno-strict-aliasing -w", kCudaHead);
  int64_t place = -1;
  float ones = -1;
  library.Launch(0, {&place, &ones});
  CHECK(place == kAt);
  CHECK(ones == 11);
}

// No tensor of that size either. A thread that adds 32,000 squares one by one loses the small ones.
TEST_CASE("a long sum on few threads keeps its digits") {
  constexpr int64_t kPeriod = 1'000'003, kTerms = kPeriod << 8;
  ProgramBuilder builder;
  const Loop outer = builder.NewLoop(1), inner = builder.NewLoop(kTerms);
  const int out = builder.Output(1);
  const auto place = search::ToType(search::ModInt(Var(inner), kPeriod), search::Type::kFloat);
  const auto root = search::Binary("mul", place, search::Float(std::numbers::inv_pi_v<float>));
  const auto square = search::Binary("mul", root, root);
  double truth = 0;
  for (int i = 0; i < kPeriod; ++i) {
    const float of = static_cast<float>(i) * std::numbers::inv_pi_v<float>;
    truth += static_cast<double>(of * of) * (kTerms / kPeriod);
  }
  builder.Do(
      "sum",
      search::Reduction{
          {outer}, {inner}, {{"sum", square, 0, 0}}, {{out, At({outer}), search::Result(0), nullptr}}, {}});
  const search::Program program = builder.Case("long sum").program;
  search::Setting fewest;
  for (const search::Knob& knob : search::CudaKnobs(program, TaskOf(program, "cuda"))) {
    if (knob.name == "PARTS_0" || knob.name == "THREADS_0")
      fewest[knob.name] = *std::min_element(knob.values.begin(), knob.values.end());
  }
  REQUIRE(fewest.size() == 2);
  REQUIRE(fewest["PARTS_0"] * fewest["THREADS_0"] * int64_t{30'000} <= kTerms);
  const KernelLibrary library({ToCpp(CudaTextOf(program, fewest))}, "-O2 -fno-strict-aliasing -w", kCudaHead);
  float sum = -1;
  library.Launch(0, {&sum});
  CHECK(std::abs(sum / truth - 1) < 4e-7);
}

TEST_CASE("128 terms that one thread adds keep their digits") {
  constexpr int64_t kTerms = 128, kColumns = 300007;
  ProgramBuilder builder;
  const Loop outer = builder.NewLoop(kColumns), inner = builder.NewLoop(kTerms);
  const int in = builder.Input(kTerms * kColumns), out = builder.Output(kColumns);
  const auto offset = search::OffsetOf({Var(inner), Var(outer)}, {kTerms, kColumns});
  builder.Do("sum", search::Reduction{{outer},
                                      {inner},
                                      {{"max", search::Load(in, search::Type::kFloat, offset), 0, 0},
                                       {"sum", search::Load(in, search::Type::kFloat, offset), 1, 1}},
                                      {{out, At({outer}), search::Result(1), nullptr}},
                                      {}});
  const search::Program program = builder.Case("columns").program;
  search::Setting alone;
  for (const search::Knob& knob : search::CudaKnobs(program, TaskOf(program, "cuda"))) {
    if (knob.name == "GROUP_0") alone[knob.name] = *std::min_element(knob.values.begin(), knob.values.end());
  }
  CHECK(alone["GROUP_0"] == 1);
  const KernelLibrary library({ToCpp(CudaTextOf(program, alone))}, "-O2 -fno-strict-aliasing -w", kCudaHead);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> share(0, 1);
  std::vector<float> values(kTerms * kColumns), sums(kColumns);
  for (float& value : values) value = share(random);
  library.Launch(0, {values.data(), sums.data()});
  double worst = 0;
  for (int64_t column = 0; column < kColumns; ++column) {
    double truth = 0;
    for (int64_t i = 0; i < kTerms; ++i) truth += values[static_cast<size_t>(i * kColumns + column)];
    worst = std::max(worst, std::abs(sums[static_cast<size_t>(column)] / truth - 1));
  }
  CHECK(worst < 4e-7);
}

TEST_CASE("stages that differ in sizes and constants share CUDA kernels; a text is deterministic") {
  const ProgramCase deep{"deep", ManyStages(60), 4096};
  const std::string text = CudaTextOf(deep.program);
  CHECK(KernelsIn(text) <= 40);
  CHECK(text == CudaTextOf(ManyStages(60)));
  CheckOnCpu({deep}, {0});
}

TEST_CASE("sums over two loops that share a kernel take lengths and factors as arguments") {
  ProgramBuilder builder;
  constexpr int kCount = 50;
  constexpr int64_t kRows = 5, kLine = 241, kGap = 3, kLongest = (kLine + kGap) * (61 + kCount);
  const int in = builder.Input(kRows * kLongest), out = builder.Output(kCount * kRows);
  for (int i = 0; i < kCount; ++i) {
    const Loop row = builder.NewLoop(kRows), y = builder.NewLoop(61 + i), x = builder.NewLoop(kLine);
    const auto at = search::AddInt(search::Scaled(Var(row), kLongest),
                                   search::AddInt(search::Scaled(Var(y), kLine + kGap), Var(x)));
    const auto value = Times(Read(in, at), search::Float(0.001 * (i + 1)));
    std::vector<search::Accumulator> sums;
    ExprPtr power = value, all = search::Result(0);
    for (int sum = 0; sum < 4; ++sum) {
      sums.push_back({"sum", power, sum, 0});
      power = Times(power, value);
      if (sum > 0) all = Plus(all, search::Result(sum));
    }
    const auto to = search::AddInt(search::Int(i * kRows), Var(row));
    builder.Do("rows", search::Reduction{{row}, {y, x}, sums, {{out, to, all, nullptr}}, {}});
  }
  const ProgramCase many = builder.Case("two loops", kLine * (61 + kCount));
  const std::string text = CudaTextOf(many.program);
  CHECK(KernelsIn(text) < 15);
  CHECK(text.find(", float s") != std::string::npos);
  CheckOnCpu({many}, {0});
}

TEST_CASE("where stages of many kinds make too many kernels, rows have few forms, and places are arguments") {
  const ProgramCase wide{"wide", ManyKindsOfRows(45), 5000};
  const std::string text = CudaTextOf(wide.program);
  CHECK(text.find(" Pointwise(") != std::string::npos);
  CHECK(text.find(" Pointwise_2(") == std::string::npos);
  std::set<std::string> forms;
  const std::string head = "kGroup = ";
  for (size_t at = text.find(head); at != std::string::npos; at = text.find(head, at + 1)) {
    const std::string group = text.substr(at + head.size(), text.find(',', at) - at - head.size());
    if (std::isdigit(static_cast<unsigned char>(group[0]))) forms.insert(group);  // else a knob
  }
  CHECK((forms.size() > 1 && forms.size() <= 3));
  CheckOnCpu({wide}, {0});
}
