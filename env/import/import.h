#pragma once
// START HERE for `kevin import`: a user's PyTorch module becomes a problem file. Three steps: choose the files and
// their ids (import_targets.h), have Python describe each module (here), write the description as a problem file
// (imported_text.h). tools/importer.h runs them and the admission.

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/process/files.h"
#include "env/python/python_process.h"
#include "env/python/torch_compile.h"

namespace kevin {

// A shape of a size set beside `full` and `small`. Symbols that are left out have their value at full.
struct ImportShape {
  std::string set;
  std::map<std::string, int64_t> symbols;
  double weight = 1;
};

// A size with a range: a symbol, or a dimension of an input ("x.0"). Shapes drawn from it become the size set
// kDynamicSet.
struct ImportRange {
  std::string name;
  int64_t low = 1, high = 1;
};
inline constexpr const char* kDynamicSet = "dynamic";

struct ImportJob {
  std::string file;                      // a file with class Model, or else ...
  std::string function, example_inputs;  // ... "module:name" and the file with its arguments
  std::string folder;  // where Python looks for that module, and for files of relative names
  // With `file`: any class or function of it (`class_name`; empty: Model, or the only class), its arguments from
  // example_inputs or get_inputs(), and the constructor's from `init` (a JSON object; empty: get_init_inputs()).
  bool any_class = false;
  std::string class_name, init;
  std::string dtype;                     // with any_class: "float16" or "bfloat16", that it is cast to first
  bool eval = false;                     // the module in evaluation mode
  std::string distribution;              // of all floating-point inputs; empty: as in the file
  std::map<std::string, int64_t> small;  // symbols of the small size set; empty: derived
  std::vector<ImportShape> shapes;
  std::vector<ImportRange> dynamic;
  bool sandboxed = false;  // set by PythonImporter
};

// As import_module.py takes it: one line.
std::string ImportJobText(const ImportJob& job);

// Either the parts of a problem file, for ImportedProblemText (imported_text.h), or the reason why there are none.
struct ImportAnswer {
  nlohmann::json found;
  std::string refusal, next_step;
};

// How a user's file is run. In the sandbox (env/sandbox) it has no network, no GPU and no environment of the user's; it
// reads the folder it lies in, with the whole package where that is one (the file alone where it is the home folder or
// one above it), the example inputs,
// Python's folders, the system's, and `allow_read`; it writes to a temporary folder.
struct ImportSandbox {
  bool trust = false;  // no sandbox: it may do what the user may
  std::vector<std::filesystem::path> allow_read;
};

// Runs env/import/import_module.py, one process for many files.
class PythonImporter {
 public:
  // ../share/kevin/importer beside the program, else the source tree's.
  static std::filesystem::path Script();

  // Throws Error(kMachine) if there is no Python with torch, Error(kBadRequest) for a path of `sandbox` that does not
  // exist. `on_phase` and `stop` as in TorchCompileRequest.
  PythonImporter(std::function<void(const std::string& phase)> on_phase, const std::atomic<bool>* stop,
                 ImportSandbox sandbox = {}, std::filesystem::path script = Script());

  // Blocks. A file that ends Python or takes longer than `limit_s` is refused; the next file gets a new
  // Python. Throws Error: kMachine when Python cannot import torch or this machine has no sandbox, kBroken for an
  // invalid answer, kInterrupted after `stop`.
  ImportAnswer Describe(const ImportJob& job, double limit_s);

  const PythonTorch& python() const { return python_; }

 private:
  void Start(const ImportJob& job, double limit_s);

  std::function<void(const std::string&)> on_phase_;
  const std::atomic<bool>* stop_;
  ImportSandbox sandbox_;
  std::filesystem::path script_;
  PythonTorch python_;
  std::unique_ptr<WorkFolder> work_;            // of the sandbox
  std::vector<std::filesystem::path> visible_;  // in it, for the process that runs
  std::unique_ptr<PythonProcess> process_;
};

}  // namespace kevin
