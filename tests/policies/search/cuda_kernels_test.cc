// What the search writes in CUDA, run on the CPU by cuda_on_cpu.h and compared with an interpreter of programs in double
// precision: every kind of stage, sizes that are odd, one, or no whole number of packs.

#include <cstdlib>
#include <fstream>

#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/policies/search/program_cases.h"

using namespace kevin;
using namespace kevin::test;

namespace {

const std::string kCudaHead = "#include \"" KEVIN_SOURCE_DIR "/tests/policies/search/cuda_on_cpu.h\"\n"
                              "#include \"" KEVIN_SOURCE_DIR "/tests/policies/search/cuda_products_on_cpu.h\"";
// A misaligned access ends the test.
const std::string kCudaFlags = "-O1 -fno-strict-aliasing -w -fsanitize=alignment -fsanitize-undefined-trap-on-error";

std::string CudaTextOf(const search::Program& program, const search::Setting& setting = {}) {
  Task task = TaskOf(program, "cuda");
  for (TaskArgument& argument : task.arguments) {
    for (const auto& [from, to] : {std::pair("_Float16", "__half"), std::pair("bf16", "__nv_bfloat16")}) {
      if (const size_t at = argument.cpp_type.find(from); at != std::string::npos) argument.cpp_type.replace(at, std::string(from).size(), to);
    }
  }
  search::Setting all = setting;
  for (const search::Knob& knob : search::CudaKnobs(program, task)) all.try_emplace(knob.name, knob.values.at(0));
  std::string constants;
  for (const auto& [name, value] : all) constants += "constexpr int " + name + " = " + std::to_string(value) + ";\n";
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

void CheckOnCpu(const std::vector<ProgramCase>& cases) {
  std::vector<std::string> sources;
  std::ofstream out;
  if (const char* file = std::getenv("KEVIN_TEXTS")) out.open(file);
  for (const ProgramCase& one : cases) {
    INFO(one.name);
    const std::string text = CudaTextOf(one.program);
    if (out.is_open()) out << "// " << one.name << "\n" << text;
    sources.push_back(ToCpp(text));
  }
  const KernelLibrary library(sources, kCudaFlags, kCudaHead);
  for (size_t i = 0; i < cases.size(); ++i) CheckProgram(cases[i], library, i);
}

}  // namespace

TEST_CASE("CUDA texts agree with the interpreter") { CheckOnCpu(ChosenForCuda()); }
