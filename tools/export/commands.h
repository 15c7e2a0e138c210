#pragma once
// The parts of `kevin export` that are more than writing a source to a file.

#include <string>
#include <vector>

#include "tools/scheme_options.h"
#include "trajectories/store.h"

namespace kevin {

struct ExportAsRequest {
  std::string as;  // "cu", "cpp", "torch-extension"
  std::string
      output;  // file or folder; empty: by_default with an ending; "-": standard output (not a folder)
  std::string by_default;  // "EPISODE-TURN"
  std::string heading;     // comment lines
  bool force = false;
};

// Writes the turn's kernel in that form and says on stderr what to do with it.
void ExportAs(const ExportAsRequest& request, Store& store, const EpisodeRecord& episode,
              const TurnRecord& turn);

struct ExportRecordsOptions {
  std::string format;  // "jsonl", "sft", "preference", "kernelbench"; empty: a kernel is exported
  std::vector<std::string> databases, runs;
  std::string problems, select;  // select is empty: as the format needs
  SchemeOptions scheme;
  double min_speedup = 0;
  int pairs = 1;
  std::string output;
  bool force = false;
};

void AddRecordsOptions(CLI::App* command, ExportRecordsOptions* options);
int ExportRecords(const ExportRecordsOptions& options);

}  // namespace kevin
