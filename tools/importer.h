#pragma once
// Turns one file or function into a problem's file: Python describes it, it is written, and admitted.

#include <memory>
#include <string>
#include <vector>

#include "env/cpu/cpu_environment.h"
#include "env/import/import.h"
#include "env/import/import_targets.h"
#include "env/import/imported_text.h"

namespace CLI {
class App;
}

namespace kevin {

// --trust and --allow-read.
void AddImportSandboxOptions(CLI::App* command, ImportSandbox* sandbox);

// --dynamic, texts NAME=LOW..HIGH; throws Error(kBadRequest) for others.
void AddDynamicOption(CLI::App* command, std::vector<std::string>* texts);
std::vector<ImportRange> DynamicRanges(const std::vector<std::string>& texts);

struct ImportResult {
  ImportTarget target;
  std::string refusal, next_step;  // why there is no problem; empty when there is one
  std::vector<std::string> notes;
  std::string size;       // where admission was run; empty: nowhere
  std::string not_tried;  // why it was not run
  std::string rejection;  // why the problem is not admitted; empty when it is, or was not tried
  std::string hardened;   // why the given inputs were made harder; empty when they were not
  int decoys = 0, decoys_rejected = 0;

  bool imported() const { return refusal.empty(); }
  bool admitted() const { return imported() && !size.empty() && rejection.empty(); }
};

class Importer {
 public:
  // Neither is owned. Without an environment nothing is admitted, for the reason `why_not`.
  Importer(PythonImporter* python, CpuEnvironment* environment, std::string why_not)
      : python_(python), environment_(environment), why_not_(std::move(why_not)) {}

  // Replaces what was imported under the same id. Throws Error as PythonImporter does, and when the problem's file
  // cannot be written (kBadRequest, kBroken when the disk is full); an error of the user's file is in the result.
  ImportResult Import(const ImportTarget& target, const ImportJob& job, double limit_s);

 private:
  void Admit(const nlohmann::json& found, bool may_harden, ImportedProblem* problem, ImportResult* result);

  PythonImporter* python_;
  CpuEnvironment* environment_;
  std::string why_not_;
};

}  // namespace kevin
