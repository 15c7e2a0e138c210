// What the search writes in C++, compiled and compared with an interpreter of programs in double precision: every kind
// of stage, sizes that are odd, one, or no whole number of vectors.

#include <cstdlib>
#include <fstream>

#include "env/problem/problem.h"
#include "policies/search/setting_text.h"
#include "tests/catch.h"
#include "tests/policies/search/random_programs.h"

using namespace kevin;
using namespace kevin::test;

namespace {

search::Setting FirstSetting(const search::Program& program, const Task& task) {
  search::Setting setting;
  for (const search::Knob& knob : search::CppKnobs(program, task)) setting[knob.name] = knob.values.at(0);
  return setting;
}

std::string TextWith(const search::Program& program, const Task& task, const search::Setting& setting) {
  const std::string body = search::WriteCpp(program, task, setting);
  return search::KnobLines(search::CppKnobs(program, task), setting, 0, body) + body;
}

std::string TextOf(const search::Program& program) {
  const Task task = TaskOf(program);
  return TextWith(program, task, FirstSetting(program, task));
}

// Of EveryProgram, those whose name contains KEVIN_CASE, if that is set.
std::vector<ProgramCase> Chosen() {
  std::vector<ProgramCase> chosen;
  const char* part = std::getenv("KEVIN_CASE");
  for (ProgramCase& one : EveryProgram()) {
    if (part == nullptr || one.name.find(part) != std::string::npos) chosen.push_back(std::move(one));
  }
  return chosen;
}

void CheckTexts(const std::vector<ProgramCase>& cases, const std::vector<std::string>& sources,
                const std::string& flags) {
  if (const char* file = std::getenv("KEVIN_TEXTS")) {
    std::ofstream out(file);
    for (size_t i = 0; i < cases.size(); ++i) out << "// " << cases[i].name << "\n" << sources[i];
  }
  const KernelLibrary library(sources, flags, Bf16Cpp());
  for (size_t i = 0; i < cases.size(); ++i) CheckProgram(cases[i], library, i);
}

void CheckAll(const std::vector<ProgramCase>& cases, const std::string& flags) {
  std::vector<std::string> sources;
  for (const ProgramCase& one : cases) {
    INFO(one.name);
    sources.push_back(TextOf(one.program));
  }
  CheckTexts(cases, sources, flags);
}

}  // namespace

TEST_CASE("C++ texts agree with the interpreter") { CheckAll(Chosen(), "-O1"); }

TEST_CASE("stages that differ in sizes and constants share C++ functions") {
  const ProgramCase deep{"deep", ManyStages(60), 4096};
  const std::string text = TextOf(deep.program);
  size_t functions = 0;
  for (size_t at = text.find("static void stage_"); at != std::string::npos;
       at = text.find("static void stage_", at + 1))
    ++functions;
  CHECK(functions <= 40);
  CheckAll({deep}, "-O1");
}

TEST_CASE("where stages of many kinds make too many C++ functions, places in buffers are arguments") {
  const ProgramCase wide{"wide", ManyKindsOfRows(45), 5000};
  const std::string text = TextOf(wide.program);
  CHECK(text.find("stage_part(") != std::string::npos);
  CHECK(text.find("stage_part_2(") == std::string::npos);
  CheckAll({wide}, "-O1");
}

TEST_CASE("C++ texts agree at every value of every knob") {
  std::vector<ProgramCase> owners;
  std::vector<std::string> sources;
  for (const ProgramCase& one : Chosen()) {
    const bool is_chosen = one.name.find("softmax") == 0 || one.name.find("argmax") == 0 ||
                           one.name.find("pool") == 0 || one.name == "tanh" || one.name == "large";
    if (!is_chosen) continue;
    const Task task = TaskOf(one.program);
    const search::Setting first = FirstSetting(one.program, task);
    for (const search::Knob& knob : search::CppKnobs(one.program, task)) {
      for (size_t i = 1; i < knob.values.size(); ++i) {
        search::Setting setting = first;
        setting[knob.name] = knob.values[i];
        sources.push_back(TextWith(one.program, task, setting));
        owners.push_back(one);
        owners.back().name += " with " + knob.name + " " + std::to_string(knob.values[i]);
      }
    }
  }
  CheckTexts(owners, sources, "-O1");
}

TEST_CASE("C++ texts of programs made at random agree with the interpreter") {
  const std::vector<uint64_t> seeds = SeedsOr(60);
  const std::vector<ProgramCase> cases = RandomCases(seeds);
  std::vector<std::string> sources;
  for (size_t i = 0; i < cases.size(); ++i) {
    Random random(seeds[i]);
    const Task task = TaskOf(cases[i].program);
    search::Setting setting;
    for (const search::Knob& knob : search::CppKnobs(cases[i].program, task))
      setting[knob.name] =
          knob.values[static_cast<size_t>(random.Below(static_cast<int64_t>(knob.values.size())))];
    sources.push_back(TextWith(cases[i].program, task, setting));
  }
  CheckTexts(cases, sources, "-O1");
}

TEST_CASE("C++ texts agree on processors without AVX-512 and without AVX") {
  for (const char* flags : {"-O1 -mno-avx512f", "-O1 -mno-avx512f -mno-avx -mno-fma"})
    CheckAll(Chosen(), flags);
}
