#pragma once
// The Python side of `kevin import`: env/import/import_module.py, one process for many files.

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/python/python_process.h"
#include "env/python/torch_compile.h"

namespace kevin {

// One shape of a size set beside `full` and `small`, in symbols of the problem; those left out are as at
// full.
struct ImportShape {
  std::string set;
  std::map<std::string, int64_t> symbols;
  double weight = 1;
};

struct ImportJob {
  std::string file;                      // a file with class Model, or else ...
  std::string function, example_inputs;  // ... "module:name" and the file with its arguments
  bool eval = false;                     // the module in evaluation mode
  std::string distribution;              // of all floating-point inputs; empty: as the file draws them
  std::map<std::string, int64_t> small;  // symbols of the small size set; empty: derived
  std::vector<ImportShape> shapes;
};

// What Python found: either the parts of a problem file (ImportedProblemText takes them) or why there is
// none.
struct ImportAnswer {
  nlohmann::json found;
  std::string refusal, next_step;
};

class PythonImporter {
 public:
  // ../share/kevin/importer beside the program, else the source tree's.
  static std::filesystem::path Script();

  // Throws Error(kMachine) when there is no Python with torch. `on_phase` and `stop` as in
  // TorchCompileRequest.
  PythonImporter(std::function<void(const std::string& phase)> on_phase, const std::atomic<bool>* stop,
                 std::filesystem::path script = Script());

  // Blocks. A file that ends Python or takes longer than `limit_s` is refused; the next one gets a new
  // Python. Throws Error: kMachine when Python cannot import torch, kBroken when it answers nonsense,
  // kInterrupted after `stop`.
  ImportAnswer Describe(const ImportJob& job, double limit_s);

  const PythonTorch& python() const { return python_; }

 private:
  std::function<void(const std::string&)> on_phase_;
  const std::atomic<bool>* stop_;
  std::filesystem::path script_;
  PythonTorch python_;
  std::unique_ptr<PythonProcess> process_;
};

}  // namespace kevin
