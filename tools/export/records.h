#pragma once
// Turns of many episodes as data: lines of JSON for training, and KernelBench's folder of a run.

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/attribution/attribution.h"
#include "agent/events.h"
#include "tools/record_options.h"
#include "trajectories/figures.h"
#include "trajectories/store.h"

namespace kevin {

// What `--select` says: the best kernel of each problem and rules (Workload::rules), all correct ones, or every turn.
enum class Selection { kBest, kCorrect, kAll };

struct RecordsRequest {
  std::vector<std::string> databases, runs;  // runs: ids or unique beginnings; empty: all
  std::string problems;                      // only ids that begin so
  std::string rules;                         // only episodes judged by these; empty: all
  Scheme scheme;                             // for returns and advantages
  Selection selection = Selection::kAll;
  double min_speedup = 0;   // of the correct kernels that are selected
  int pairs = 1;            // preference: the most pairs of one prompt
  AcceptedVerdicts accept;  // of doubtful ones
};

struct RecordsWritten {
  int64_t lines = 0, skipped = 0;
  std::string remark;               // about what was skipped
  std::string doubtful_verdicts;    // that were left out, in a sentence; empty: none
  std::vector<std::string> places;  // folders that were written, where they are not the output itself
};

// The options of `kevin export --format`.
struct RecordsOptions {
  std::string format;  // "jsonl", "parquet", "sft", "preference", "kernelbench"; empty: a kernel is exported
  std::string schema;  // "sft", "preference", "prompts", "trajectory"; of jsonl and parquet
  std::vector<std::string> databases, runs;
  std::string problems, rules, select;  // select is empty: as the format needs
  SchemeOptions scheme;
  double min_speedup = 0;
  int pairs = 1;
  std::string output;
  AcceptedVerdicts accept;
  bool force = false;
};

void AddRecordsOptions(CLI::App* command, RecordsOptions* options);
// Writes what was asked for and says where. Returns an ExitCode value.
int ExportRecords(const RecordsOptions& options);

using WriteLine = std::function<void(const Json& line)>;

// One object a turn: prompt, completion, token ids, log-probabilities, verdict, reward, return, advantage.
RecordsWritten WriteJsonLines(const RecordsRequest& request, const WriteLine& write);
// {"messages": [..., {"role": "assistant", "content": ...}], ...}
RecordsWritten WriteSft(const RecordsRequest& request, const WriteLine& write);
// {"prompt": [...], "chosen": [...], "rejected": [...], ...}: two answers to the very same prompt, by the same rules, whose
// scores differ by more than twice their measurement error.
RecordsWritten WritePreferences(const RecordsRequest& request, const WriteLine& write);

// The schemas of other programs (tools/README.md).
// verl's columns: data_source, prompt, ability, reward_model, extra_info; a row for each distinct prompt of a first turn.
RecordsWritten WritePrompts(const RecordsRequest& request, const WriteLine& write);
// Ids, masks, log-probabilities and advantages: a row for each turn that a trainer can learn from by itself, which
// leaves out turns without token ids, from an unknown distribution, or of unfinished episodes.
RecordsWritten WriteTrajectories(const RecordsRequest& request, const WriteLine& write);

// --- The turns that an export is about, with their attribution and without their texts ---

struct ChosenTurn {
  int turn = 0;
  OutcomeKind outcome = OutcomeKind::kParseFailed;
  double speedup = kNotKnown;
  TurnAttribution attribution;
};

struct ChosenEpisode {
  Store* store = nullptr;  // not owned
  const EpisodeFigures* figures = nullptr;
  const ProblemFigures* problem = nullptr;
  std::vector<ChosenTurn> turns;  // those that were selected, in order; never turn 0
};

// All databases of `request`, open while this lives.
class ChosenTurns {
 public:
  explicit ChosenTurns(const RecordsRequest& request);
  const std::vector<ChosenEpisode>& episodes() const { return episodes_; }
  int64_t turns() const;
  // Without lines, and with what was left out before any is written.
  RecordsWritten BeginWritten() const {
    RecordsWritten written;
    written.doubtful_verdicts = doubtful_verdicts_;
    return written;
  }

 private:
  struct Source {
    std::string database;
    Store store;
    Figures figures;
  };
  void AddSource(const RecordsRequest& request, Source& source);
  void KeepBest();

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<ChosenEpisode> episodes_;
  std::string doubtful_verdicts_;
};

// --- Parts of a line ---

using UseTurn = std::function<void(const ChosenEpisode&, const ChosenTurn&, const TurnRecord&)>;
// Calls `use` with each selected turn and its record.
void ForEachTurn(const ChosenTurns& chosen, const UseTurn& use);

Json PromptMessagesJson(const TurnRecord& turn);         // the prompt
Json PlaceJson(const ChosenEpisode& episode, int turn);  // problem, run, episode, turn, policy, rules
// backend, own_share (agent/events.h): of kernels in Python, else null.
void AddPythonJson(const EvaluationRecord& verdict, Json* line);
// reward, reward_se, return, advantage; the last two are null where they are not known.
void AddAttributionJson(const TurnAttribution& attribution, Json* line);
std::string PromptHash(const TurnRecord& turn);  // equal for equal prompts

}  // namespace kevin
