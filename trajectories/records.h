#pragma once
// The rows of the store as plain values. Outcome, ratios, samples and workload are env's own values; the rest is
// translated by `agent`. schema.sql documents units and meanings of the fields in full; std::nullopt is SQL's NULL
// and means unknown. Hashes are SHA-256 in lower-case hex; times are UTC, "2026-11-21T09:40:12.345Z".

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "env/outcome.h"
#include "env/workload.h"

namespace kevin {

// One start of a program that writes episodes.
struct RunRecord {
  std::string id;                       // ULID; filled by BeginRun
  std::string command;                  // the command line as typed
  std::string program_version;          // "0.1.0"
  std::string machine = "{}";           // JSON object: CPU, memory, kernel, compiler, torch, ...
  std::string started_at, finished_at;  // filled by the store; finished_at is empty while it runs
};

struct ProblemRecord {
  std::string content_hash;  // identifies this text of the problem
  std::string id, name;      // "level1/19", "ReLU"
  std::string text;          // the problem file, whole
  std::vector<std::string> families, flags;
};

// Names a work item that a process has taken, and which taking it was; see work_queue.h.
struct Lease {
  std::string item;
  int64_t fence = 0;
};

enum class EpisodeState { kRunning, kDone, kInterrupted, kFailed };
const char* EpisodeStateName(EpisodeState state);  // "running", "done", "interrupted", "failed"

struct EpisodeRecord {
  std::string id;                     // ULID; filled by BeginEpisode
  std::string run;                    // the run that began it; a collection's, if it is part of one
  std::string last_run;               // the run of the process that begins it; empty: `run`
  Lease lease;                        // of the work item that asks for it; only for BeginEpisode
  std::string problem, problem_hash;  // id and content hash
  std::string policy;                 // "search", "replay:01J..."
  std::string kind = "cpp";           // candidate kind: "cpp", "cuda", "ptx"
  std::string device, isolation;
  Workload workload;  // as the evaluations of this episode use it
  uint64_t seed = 0;
  int turns_asked = 0;                                // --turns, plus what --continue added
  std::string prompt_template, prompt_template_hash;  // name with version, and hash of the files
  std::string start_source;                           // --from: the user's own kernel; empty: none
  std::string note;                                   // --note
  std::optional<double> until;                        // --until: stop when this speed-up is confirmed

  // Filled by FinishEpisode.
  EpisodeState state = EpisodeState::kRunning;
  std::string state_reason;  // why it ended before the last turn that was asked for; may be empty
  std::optional<int> best_turn;
  std::optional<double> best_speedup, best_speedup_low, best_speedup_high;  // from confirmation measurements
  std::string best_path;  // where the best kernel was written
  double seconds = 0;     // wall time, all continuations added up

  // Filled by the store when loaded.
  std::string started_at, finished_at;
  int turns = 0, correct_turns = 0;  // turns 1 and up that are in the store
  std::string database;              // path of the file it was read from
  int requests = 0;                  // to servers; all attempts
  std::optional<double> cost_usd;    // of them; none: unknown, or there were none
};

// How an episode ended; see the same names in EpisodeRecord. `seconds` is added to what is stored.
struct EpisodeEnd {
  EpisodeState state = EpisodeState::kDone;
  std::string state_reason;
  std::optional<int> best_turn;
  std::optional<double> best_speedup, best_speedup_low, best_speedup_high;
  std::string best_path;
  double seconds = 0;
};

struct MessageRecord {
  std::string role;     // "system", "user", "assistant"
  std::string content;  // the exact bytes sent; equal contents are stored once
};

// As the server used it; unknown where it was left to a server that does not state it.
struct SamplingRecord {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;  // 0: all tokens
  std::optional<int> max_tokens;
  std::optional<uint64_t> seed;
};

struct UsageRecord {
  std::optional<int64_t> prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
};

struct ModelRecord {
  std::string name;  // what answered
  // Empty: unknown or none. weights_hash: of the contents; of a model in training RUN@STEPS.
  std::string weights_hash, tokenizer_hash, template_hash;
};

// One verdict on one candidate; the outcome as flat fields (env/outcome.h). `kind` and `source` become a row of
// `candidates`.
struct EvaluationRecord : OutcomeFields {
  std::string id;                // ULID; filled by the store
  std::string purpose = "turn";  // "turn", "start" (--from, turn 0), "confirm", "audit", "rejudge"
  std::string candidate_hash;    // empty when the reply held no source (parse_failed)
  std::string kind, source;

  // Two evaluations with equal keys asked the same question. `key_parts` holds everything the key was hashed over,
  // by name; the parts threads, tolerance_version, baseline_version, toolchain_version, device_model, driver,
  // include_hashes and environment_version are also columns of their own (null when the map lacks them).
  std::string key;
  std::map<std::string, std::string> key_parts;
  Workload workload;
  std::string problem_hash, device, isolation;

  std::vector<ShapeResult> shapes;  // of a size set with several shapes: those that were judged, in its order
  double compile_s = 0, verify_s = 0, measure_s = 0, wait_s = 0;  // wait_s: for the machine-wide lock
  std::vector<uint64_t> seeds;
  std::vector<Sample> samples;
  std::string log;             // compiler warnings or the candidate's stderr, trimmed
  std::string machine = "{}";  // JSON object: how it was measured
  // On a GPU only.
  std::string kernels;      // JSON list of objects, one a launch; empty: unknown
  std::string launch_list;  // JSON: the launches that `launch` gave; empty: unknown
  std::string profile;      // the hardware's counters, in sentences; empty: none
  std::optional<double> peak_gb_per_s, peak_gflop_per_s;  // the device's own, measured
  std::optional<double> device_s;                         // how long the GPU was held
  std::string machine_key;                                // equal for equal machine code; empty: unknown
  bool shared_gpu = false;                                // as in Evaluation
  int rules_version = kRulesVersion;                      // of the rules that gave the verdict
  std::string backend;                                    // as in Evaluation, of a candidate in Python
  std::optional<double> own_share;                        // as in Evaluation
  std::optional<double> device_us;  // a call on the GPU alone; of cuda and ptx: candidate_us
  // In an episode: the ratio to the turn that was its best at the time, from the same pairs, and that turn.
  std::optional<Ratio> against_best;
  std::optional<int> against_best_turn;
  std::string cached_from;    // id of the evaluation whose verdict this repeats; empty: measured anew
  std::string superseded_by;  // id of the evaluation that overrides this one; empty: none
  std::string created_at;     // filled by the store
};

// One request to a server on behalf of a turn; `outcome` and what follows it say how it ended.
struct RequestRecord {
  int turn = 1;
  int attempt = 0;       // from 1; given by the store
  std::string run;       // the run that sent it; empty: the episode's latest run
  std::string provider;  // the wire format: "openai", "anthropic"
  std::string url, model;
  std::string request;     // the exact body sent
  std::string started_at;  // filled by the store
  std::string outcome;     // "sent", "answered", "failed", "cancelled", "cached"
  std::optional<int> status;
  std::string error;
  std::optional<double> retry_after_s, seconds, first_token_s;
  std::string served_model, request_id, stop_cause;
  UsageRecord usage;
  std::optional<int64_t> cache_write_tokens;
  std::optional<double> cost_usd;
  std::string response;  // raw; empty: not kept
};

// One turn: prompt, reply, verdict, feedback.
struct TurnRecord {
  int turn = 1;     // from 1; 0 is the kernel given with --from
  std::string run;  // the run that made it; empty: the episode's latest run
  std::vector<MessageRecord> messages;
  std::string reply, reasoning;
  std::vector<int32_t> prompt_token_ids, token_ids;  // empty when the policy has none
  std::vector<float> logprobs;                       // one per token_ids, or empty
  SamplingRecord sampling;
  UsageRecord usage;
  std::string stop_reason;
  ModelRecord model;
  std::string parser_version;
  std::string prompt_template, prompt_template_hash;
  std::string summary;      // what changed, in the policy's own words
  std::string feedback;     // what the policy is shown about this turn
  std::string source_path;  // where the kernel was written
  double generate_s = 0;    // the policy
  double overhead_s = 0;    // seconds minus generate, tune, compile, verify, measure and wait
  double seconds = 0;       // wall time of the turn
  double reward = 0;        // as given at the time; views follow a superseding evaluation
  EvaluationRecord evaluation;
  std::vector<KnobTrial> trials;  // settings of its knobs in the order of trying; empty: the text has none
  double tune_s = 0;              // choosing among them
  std::string reply_form;  // of the reply: "whole", "file", "diff", "function"; empty: unknown, or no source
  std::string created_at;  // filled by the store
  // Of its RequestRecords, which the store keeps by themselves; read with the turn.
  int requests = 0;
  std::optional<double> cost_usd;  // none: unknown, or there were no requests
};

}  // namespace kevin
