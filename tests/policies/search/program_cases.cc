#include "tests/policies/search/program_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/catch.h"
#include "tests/policies/search/random_programs.h"

namespace kevin::test {
namespace {

using namespace search;

const char* CppTypeOf(const std::string& dtype) {
  return dtype == "float16"    ? "_Float16"
         : dtype == "bfloat16" ? "bf16"
         : dtype == "int64"    ? "long"
         : dtype == "int32"    ? "int"
         : dtype == "bool"     ? "bool"
                               : "float";
}

size_t BytesOf(const std::string& dtype) {
  return dtype == "int64" ? 8 : dtype == "bool" ? 1 : dtype == "float16" || dtype == "bfloat16" ? 2 : 4;
}

// Page-aligned, as the evaluator's buffers are.
std::unique_ptr<char[], decltype(&std::free)> AllocatePages(size_t bytes) {
  return {static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), &std::free};
}

template <class T>
void PutAs(char* to, size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}
template <class T>
T GetAs(const char* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

void PutElement(char* to, size_t i, const std::string& dtype, double value) {
  if (dtype == "float16") return PutAs(to, i, static_cast<_Float16>(value));
  if (dtype == "bfloat16") {
    const auto number = static_cast<float>(value);
    return PutAs(to, i, GetAs<uint16_t>(reinterpret_cast<const char*>(&number), 1));
  }
  if (dtype == "int64") return PutAs(to, i, static_cast<int64_t>(value));
  if (dtype == "int32") return PutAs(to, i, static_cast<int32_t>(value));
  if (dtype == "bool") return PutAs(to, i, static_cast<char>(value != 0));
  PutAs(to, i, static_cast<float>(value));
}

double GetElement(const char* from, size_t i, const std::string& dtype) {
  if (dtype == "float16") return static_cast<double>(GetAs<_Float16>(from, i));
  if (dtype == "bfloat16") {
    float number = 0;
    const auto bits = GetAs<uint16_t>(from, i);
    std::memcpy(reinterpret_cast<char*>(&number) + 2, &bits, 2);
    return number;
  }
  if (dtype == "int64") return static_cast<double>(GetAs<int64_t>(from, i));
  if (dtype == "int32") return GetAs<int32_t>(from, i);
  if (dtype == "bool") return GetAs<char>(from, i);
  return GetAs<float>(from, i);
}
std::vector<ProgramCase> EveryProgram() {
  std::vector<ProgramCase> cases;
  AddPointwise(cases);
  AddViews(cases);
  AddReductions(cases);
  AddWindows(cases);
  AddScans(cases);
  AddContractions(cases);
  AddAttention(cases);
  AddMaskedAttention(cases);
  AddRepeat(cases);
  return cases;
}
Task TaskOf(const Program& program, const std::string& kind) {
  Task task;
  task.problem = "test/1";
  task.kind = kind;
  task.threads = 2;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.argument < 0) continue;
    const std::string type = std::string(buffer.is_output ? "" : "const ") + CppTypeOf(buffer.dtype) + "*";
    task.arguments.push_back({buffer.name + std::to_string(buffer.argument),
                              buffer.is_inout    ? "inout"
                              : buffer.is_output ? "output"
                                                 : "input",
                              type,
                              {buffer.elements},
                              {}});
  }
  return task;
}

Memory RandomMemory(const Program& program, uint64_t seed) {
  Memory memory;
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (const Buffer& buffer : program.buffers) {
    std::vector<double> values;
    std::vector<char> element(8);
    for (int64_t i = 0; i < buffer.elements; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const double u = static_cast<double>(state >> 11) * 0x1.0p-53;
      const bool is_whole = buffer.dtype == "int64" || buffer.dtype == "int32";
      PutElement(element.data(), 0, buffer.dtype,
                 is_whole                 ? std::floor(u * kIndices)
                 : buffer.dtype == "bool" ? u < 0.7
                                          : (2 * u - 1) * ((state >> 40) % 16 == 0 ? 30 : 2));
      values.push_back(GetElement(element.data(), 0, buffer.dtype));
    }
    memory.push_back(std::move(values));
  }
  return memory;
}

void CheckProgram(const ProgramCase& one, const KernelLibrary& library, size_t index) {
  constexpr size_t kFence = 64;
  Memory memory = one.is_whole ? WholeMemory(one.program, 7) : RandomMemory(one.program, 7);
  std::vector<std::unique_ptr<char[], decltype(&std::free)>> blocks;
  std::vector<void*> tensors;
  std::vector<size_t> outputs;
  for (size_t i = 0; i < one.program.buffers.size(); ++i) {
    const Buffer& buffer = one.program.buffers[i];
    if (buffer.argument < 0) continue;
    const size_t bytes = static_cast<size_t>(buffer.elements) * BytesOf(buffer.dtype);
    blocks.push_back(AllocatePages(bytes + kFence));
    std::memset(blocks.back().get(), 0x7f, bytes + kFence);
    if (buffer.is_output) outputs.push_back(i);
    if (buffer.is_output && !buffer.is_inout) {
      for (double& value : memory[i]) value = GetElement(blocks.back().get(), 0, buffer.dtype);
    } else {
      for (size_t e = 0; e < memory[i].size(); ++e)
        PutElement(blocks.back().get(), e, buffer.dtype, memory[i][e]);
    }
    tensors.push_back(blocks.back().get());
  }
  library.Launch(index, tensors);
  Interpret(one.program, memory);
  for (const size_t i : outputs) {
    const Buffer& buffer = one.program.buffers[i];
    const char* data = static_cast<const char*>(tensors[static_cast<size_t>(buffer.argument)]);
    double scale = 0;
    for (const double value : memory[i])
      scale = std::isfinite(value) && std::fabs(value) < 1e30 ? std::max(scale, std::fabs(value)) : scale;
    const double epsilon = buffer.dtype == "float16"    ? 0x1p-11
                           : buffer.dtype == "bfloat16" ? 0x1p-8
                                                        : 0x1p-24;
    const bool exact = one.is_whole || (buffer.dtype != "float32" && epsilon == 0x1p-24);
    const double bound = exact ? 0 : 8 * epsilon * std::sqrt(one.terms + 1) * scale + 1e-30;
    for (size_t e = 0; e < memory[i].size(); ++e) {
      const double got = GetElement(data, e, buffer.dtype), want = memory[i][e];
      if (got == want || (std::isnan(got) && std::isnan(want)) || std::fabs(got - want) <= bound) continue;
      FAIL_CHECK(one.name << ": output " << i << " element " << e << " is " << got << ", not " << want
                          << (one.is_whole ? " in\n" + NormalForm(one.program) : ""));
      break;
    }
    const size_t bytes = memory[i].size() * BytesOf(buffer.dtype);
    CHECK(std::all_of(data + bytes, data + bytes + kFence, [](char c) { return c == 0x7f; }));
  }
}

}  // namespace kevin::test
