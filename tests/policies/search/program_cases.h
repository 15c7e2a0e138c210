#pragma once
// Programs made by hand for the tests of the writers: every kind of stage, at sizes that are odd, one, prime, or no
// whole number of vectors.

#include <string>
#include <vector>

#include "policies/policy.h"
#include "policies/search/program.h"
#include "tests/policies/search/interpreter.h"
#include "tests/policies/search/kernel_library.h"

namespace kevin::test {

struct ProgramCase {
  std::string name;
  search::Program program;
  double terms = 1;  // added up for one result
  // Inputs are whole numbers (WholeMemory) for which all values are exact.
  bool is_whole = false;
};

std::vector<ProgramCase> EveryProgram();
// "softmax 2x19x50": over the 19 terms of each of 2 x 50 places. One of them for each of some sizes is in EveryProgram.
ProgramCase Softmax(int64_t outer, int64_t terms, int64_t inner);
// Its parts: elementwise_programs.cc, reduction_programs.cc, product_programs.cc.
void AddPointwise(std::vector<ProgramCase>& cases);
void AddViews(std::vector<ProgramCase>& cases);
void AddReductions(std::vector<ProgramCase>& cases);
void AddWindows(std::vector<ProgramCase>& cases);
void AddScans(std::vector<ProgramCase>& cases);
void AddContractions(std::vector<ProgramCase>& cases);
void AddAttention(std::vector<ProgramCase>& cases);
void AddMaskedAttention(std::vector<ProgramCase>& cases);
void AddRepeat(std::vector<ProgramCase>& cases);

// `count` layers of x = relu(x * scale) and a sum of rows, of sizes and scales that all differ.
search::Program ManyStages(int count);
// `count` sums of rows, no two of the same expression; rows of 7, 1000 and 5000 elements. Then four copies of parts of a
// buffer, named "part", that differ in their places alone.
search::Program ManyKindsOfRows(int count);

// A task whose arguments are the program's buffers that are arguments, in the order of their positions.
Task TaskOf(const search::Program& program, const std::string& kind = "cpp");
// The inputs of a case: zero-mean values as the buffer's type has them; whole numbers from 0 to `kIndices` - 1.
inline constexpr int64_t kIndices = 5;
Memory RandomMemory(const search::Program& program, uint64_t seed);

// Element i of memory of the type, as the device has it; bfloat16 is cut off.
void PutElement(char* to, size_t i, const std::string& dtype, double value);
double GetElement(const char* from, size_t i, const std::string& dtype);

// Runs candidate `index` of the library and the interpreter on equal random inputs. Fails the test where an output
// differs by more than rounding explains, or where the candidate writes beyond its outputs.
void CheckProgram(const ProgramCase& one, const KernelLibrary& library, size_t index);

}  // namespace kevin::test
