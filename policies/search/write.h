#pragma once
// From a program to the text of a kernel. A writer offers knobs and writes the text of one setting. Writing is
// deterministic and takes at most 50 ms for the deepest network. Any thread.
//
// START HERE for a new way to compute a stage: write_cpp.h or write_cuda.h.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "policies/policy.h"
#include "policies/search/program.h"

namespace kevin::search {

// A choice of the writer. The first value is the best guess; the most promising knob comes first.
struct Knob {
  std::string name;             // "TILE_M"; an identifier in upper case
  std::vector<int64_t> values;  // all are valid
  // The text declares it (`// knob TILE_M: 64 128`) and reads the constant; the environment tries the values. Else
  // the value changes the text, and each value is a candidate of its own.
  bool in_text = false;
  std::string what;  // "rows of a tile", for summaries
  int stage = -1;    // the stage that it belongs to; -1: several
};
using Setting = std::map<std::string, int64_t>;  // knob -> value

std::vector<Knob> CppKnobs(const Program& program, const Task& task);
std::vector<Knob> CudaKnobs(const Program& program, const Task& task);
// The text without knob lines. `setting` has a value for every knob; those with `in_text` are read by their names.
// Throws Unsupported with what cannot be written.
std::string WriteCpp(const Program& program, const Task& task, const Setting& setting);
std::string WriteCuda(const Program& program, const Task& task, const Setting& setting);

// --- Stages of equal form share one function ---

inline constexpr size_t kMostFunctions =
    40;  // of a text, as far as sharing goes: kernels, or functions of stages

// A number of a body that may differ between stages: where it does, it becomes a parameter of the function, else a
// literal. Do not use it where the language needs a constant. `FloatHole` takes the literal of a float ("0.25f").
std::string Hole(int64_t value);
std::string Hole(const std::string& constant);  // an expression that is known where functions are called
std::string FloatHole(const std::string& literal);
// Whether a factor or a term is so common (0, 1, 2 and the like) that it is a part of the form, and no hole.
bool IsCommonFloat(double value);

class FunctionTable {
 public:
  // `integer` is the type of parameters that come from holes of integers ("long"). `head` begins every definition ("static void",
  // "__global__ void __launch_bounds__(256)").
  explicit FunctionTable(std::string integer) : integer_(std::move(integer)) {}
  // `parameters` ("const float* __restrict__ a") and `arguments` ("in0 + 64") in equal number. `launch` is put between
  // the name and the arguments of the call ("<<<132, 256>>>"; may have holes' values as plain text). Returns the
  // number of the call.
  size_t Add(const std::string& name, const std::string& head, const std::string& body,
             const std::vector<std::string>& parameters, const std::vector<std::string>& arguments,
             const std::string& launch = "");
  // The same call again with other arguments.
  size_t AddAgain(size_t number, const std::vector<std::string>& arguments);
  // All definitions; then Call gives "name<<<132, 256>>>(in0 + 64, 17)".
  std::string Definitions();
  std::string Call(size_t number) const;
  // How many the calls so far have.
  size_t definitions() const { return groups_.size(); }

 private:
  std::string integer_;
  std::map<std::string, std::vector<size_t>> groups_;  // calls of equal text but for their numbers
  std::vector<std::string> order_;                     // of the groups
  std::vector<std::vector<size_t>*> group_of_;         // by call, as what follows
  std::vector<std::string> skeletons_;
  std::vector<std::vector<std::string>> numbers_;  // literals
  std::vector<std::string> names_, heads_, launches_, calls_;
  std::vector<std::vector<std::string>> parameters_, arguments_;
};

}  // namespace kevin::search
