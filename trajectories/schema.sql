-- Kevin's database, format 10. This file is the format's document and its source: it is built into the program
-- and run on a new file. A released format never changes; the next one gets a new number, and the program
-- opens every older one: read-only as it is, for writing after an upgrade in place (trajectories/formats.cc). A
-- program refuses a file whose number is above its own.
--   format 2   candidates for GPUs: episodes.tf32; evaluations.kernels, launch_list, profile, peak_gb_per_s,
--              peak_gflop_per_s, device_s. An upgraded table has them last.
--   format 3   evaluations.machine_key; collections, collection_workers, work_items made anew; requests to servers of
--              remote policies (table requests; views turn_costs, episode_costs, run_costs); what is derived from the
--              records (attributions, turn_attributions, view attributed_turns) and two indexes that reports read
--              instead of the wide tables.
--   format 4   evaluations.timeout_phase, timeout_limit_s, failed_shape, shapes. Until then the shapes were in
--              evaluations.machine; an upgrade moves them.
--   format 5   evaluations.rules_version (1 for all verdicts that an older format had), shared_gpu; purpose 'rejudge'.
--   format 6   knob_trials; turns.tune_s.
--   format 7   evaluations.against_best, against_best_low, against_best_high, against_best_turn; turns.reply_form, and index
--              turns_figures with it.
--   format 8   turns.top_k, min_p; temperature and top_p as used, where until then they were as asked for.
--   format 9   kinds in Python: episodes.rules; evaluations.rules, backend, own_share, device_us.
--   format 10  view turn_returns: finished episodes alone, and unfinished_episodes.
--
-- Conventions
--   ids      Runs, episodes and evaluations have ULIDs: 26 characters, ordered by time, never reused, so that
--            databases merge by INSERT. All else is keyed by them or by content.
--   hashes   SHA-256, 64 lower-case hex digits.
--   times    UTC text, '2026-11-21T09:40:12.345Z'. Durations: the unit is in the name (_s, _us).
--   flags    0 or 1.   Unknown is NULL, never 0.   JSON is text.
--   seeds    64-bit unsigned numbers; as INTEGER they are stored as the signed number with the same bits,
--            in JSON as decimal strings.
-- Rows are added and, except for the columns named below, never changed: runs.finished_at, the outcome columns
-- of episodes, evaluations.superseded_by, all of work_items, and the columns of requests that say how one ended.
-- The attributions are derived and may be deleted.

PRAGMA application_id = 1264940654;   -- "Kevn": how the program knows its own files
PRAGMA user_version = 10;             -- the format's number

-- One start of a program that writes episodes.
CREATE TABLE runs (
  id              TEXT PRIMARY KEY,
  command         TEXT NOT NULL,             -- the command line as typed
  program_version TEXT NOT NULL,
  machine         TEXT NOT NULL,             -- JSON: CPU, memory, kernel, compiler, torch, ...
  owner           TEXT NOT NULL,             -- 'host boot-id pid start-time' of the process: is it still alive?
  started_at      TEXT NOT NULL,
  finished_at     TEXT                       -- NULL while it runs, and for ever if it was killed
) STRICT;

-- The text of a problem as it was; a later edit is another row with the same id.
CREATE TABLE problems (
  content_hash TEXT PRIMARY KEY,             -- of text
  id           TEXT NOT NULL,                -- 'level1/19'
  name         TEXT NOT NULL,
  families     TEXT NOT NULL,                -- JSON list of text
  flags        TEXT NOT NULL,                -- JSON list of text
  text         TEXT NOT NULL                 -- the problem file
) STRICT;
CREATE INDEX problems_id ON problems(id);

-- Bytes kept once, for all rows that refer to them. 'plain': body is the text itself. 'zlib': body is a zlib stream.
-- Arrays (token ids: int32, log-probabilities: float32) are little-endian, without a header, always 'zlib'.
CREATE TABLE blobs (
  hash  TEXT PRIMARY KEY,                    -- of the uncompressed bytes
  codec TEXT NOT NULL CHECK (codec IN ('plain', 'zlib')),
  size  INTEGER NOT NULL,                    -- uncompressed bytes
  body  ANY NOT NULL                         -- TEXT if plain, BLOB if zlib
) STRICT;

-- One policy at one problem for a number of turns.
CREATE TABLE episodes (
  id                   TEXT PRIMARY KEY,
  run                  TEXT NOT NULL REFERENCES runs(id),      -- began it
  last_run             TEXT NOT NULL REFERENCES runs(id),      -- works or last worked on it (--continue)
  problem              TEXT NOT NULL,                          -- problems.id
  problem_hash         TEXT NOT NULL REFERENCES problems(content_hash),
  policy               TEXT NOT NULL,                          -- 'search', 'replay:EPISODE', ...
  kind                 TEXT NOT NULL,                          -- of the candidates: 'cpp', 'cuda', 'ptx', 'modelnew', 'triton'
  device               TEXT NOT NULL,
  isolation            TEXT NOT NULL,
  size                 TEXT NOT NULL,                          -- size set: 'small', 'full'
  inputs               TEXT NOT NULL,                          -- 'default', 'kernelbench'
  precision            TEXT NOT NULL,
  seed                 INTEGER NOT NULL,
  turns_asked          INTEGER NOT NULL,
  prompt_template      TEXT NOT NULL,                          -- name and version
  prompt_template_hash TEXT NOT NULL,
  start_source         TEXT REFERENCES blobs(hash),            -- --from: the user's own kernel
  note                 TEXT NOT NULL,                          -- --note
  until                REAL,                                   -- --until: stop at this confirmed speed-up
  started_at           TEXT NOT NULL,
  -- The outcome; written when the episode ends, and again when a continuation ends.
  state                TEXT NOT NULL CHECK (state IN ('running', 'done', 'interrupted', 'failed')),
  state_reason         TEXT NOT NULL,
  best_turn            INTEGER,
  best_speedup         REAL,                                   -- these three from confirmation measurements
  best_speedup_low     REAL,
  best_speedup_high    REAL,
  best_path            TEXT,
  seconds              REAL NOT NULL,                          -- wall time, continuations added up
  finished_at          TEXT,
  tf32                 INTEGER NOT NULL DEFAULT 0,             -- --tf32 reference: both sides may use TF32
  rules                TEXT NOT NULL DEFAULT 'kevin'           -- --rules, of kinds in Python: 'kevin', 'kernelbench', 'open'
) STRICT;
CREATE INDEX episodes_run ON episodes(run);
CREATE INDEX episodes_problem ON episodes(problem);

-- Prompt, reply and feedback of a turn. Its verdict is the row of `evaluations` with the same
-- episode and turn and purpose 'turn' (or 'start': turn 0, the kernel given with --from).
-- View turn_messages gives the prompt's text, view turn_results everything of a turn in one row.
CREATE TABLE turns (
  episode              TEXT NOT NULL REFERENCES episodes(id),
  turn                 INTEGER NOT NULL,                       -- from 1
  run                  TEXT NOT NULL REFERENCES runs(id),      -- made it
  messages             TEXT NOT NULL,                          -- JSON: [{"role", "content": blobs.hash}]
  reply                TEXT NOT NULL,
  reasoning            TEXT NOT NULL,                          -- never sent back
  prompt_token_ids     TEXT REFERENCES blobs(hash),            -- NULL: the policy has none
  token_ids            TEXT REFERENCES blobs(hash),
  logprobs             TEXT REFERENCES blobs(hash),            -- natural log, one per token id
  temperature          REAL,                                   -- of sampling, as the server used it, as are top_p, top_k
  top_p                REAL,                                   -- and min_p; NULL: unknown, or the policy does not sample
  max_tokens           INTEGER,
  sampling_seed        INTEGER,
  stop_reason          TEXT NOT NULL,                          -- 'stop', 'length', 'cancelled'
  prompt_tokens        INTEGER,
  completion_tokens    INTEGER,
  cached_tokens        INTEGER,
  reasoning_tokens     INTEGER,
  model                TEXT NOT NULL,
  weights_hash         TEXT,
  tokenizer_hash       TEXT,
  chat_template_hash   TEXT,
  parser_version       TEXT NOT NULL,                          -- of what took the source out of the reply
  prompt_template      TEXT NOT NULL,
  prompt_template_hash TEXT NOT NULL,
  summary              TEXT NOT NULL,                          -- what changed, in the policy's words
  feedback             TEXT NOT NULL,                          -- what the policy is shown about this turn
  source_path          TEXT,
  generate_s           REAL NOT NULL,                          -- compile_s, verify_s, ... are in evaluations
  overhead_s           REAL NOT NULL,                          -- seconds minus generate_s, tune_s and evaluations.*_s
  seconds              REAL NOT NULL,                          -- wall time
  reward               REAL NOT NULL,                          -- raw, as given at the time
  created_at           TEXT NOT NULL,
  tune_s               REAL NOT NULL DEFAULT 0,                -- choosing a setting of its knobs
  reply_form           TEXT,                                   -- how the reply held the source: 'whole', 'file' (without
                                                               -- a fence), 'diff', 'function'; NULL: unknown, or none
  top_k                INTEGER,                                -- 0: all tokens
  min_p                REAL,
  PRIMARY KEY (episode, turn)
) STRICT;

CREATE TABLE candidates (
  hash       TEXT PRIMARY KEY,               -- of kind and source
  kind       TEXT NOT NULL,
  source     TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

-- One verdict on one candidate. Rows with equal `key` asked the same question; only those with NULL cached_from
-- were measured, the others repeat a verdict and count once with it.
CREATE TABLE evaluations (
  id                 TEXT PRIMARY KEY,
  episode            TEXT,
  turn               INTEGER,
  purpose            TEXT NOT NULL,          -- 'turn', 'start', 'confirm' (winner again), 'audit' (cached verdict again),
                                             -- 'rejudge' (by newer rules; supersedes the older verdict)
  -- The key and its parts (env/verdict/README.md).
  key                TEXT NOT NULL,
  key_parts          TEXT NOT NULL,          -- JSON object of text: all that `key` was hashed over
  candidate          TEXT REFERENCES candidates(hash),         -- NULL: the reply held no source
  kind               TEXT NOT NULL,
  problem_hash       TEXT NOT NULL,
  size               TEXT NOT NULL,
  inputs             TEXT NOT NULL,
  precision          TEXT NOT NULL,
  tf32               INTEGER NOT NULL,
  threads            TEXT,
  tolerance_version  TEXT,                   -- of the rule of correctness
  baseline_version   TEXT,                   -- what the reference is, and its version
  toolchain_version  TEXT,                   -- compiler and flags
  device             TEXT NOT NULL,          -- as people read it
  device_model       TEXT,
  driver             TEXT,
  isolation          TEXT NOT NULL,
  include_hashes     TEXT,                   -- of the include folders
  environment_version TEXT,                  -- of the evaluator
  -- The verdict.
  outcome            TEXT NOT NULL,          -- parse_failed, compile_failed, refused, crashed, timed_out,
                                             -- wrong, measured
  reason             TEXT NOT NULL,
  compiled           INTEGER NOT NULL,
  correct            INTEGER NOT NULL,
  verdict            TEXT,                   -- of the sequential test: fast, slow, same, ambiguous
  speedup            REAL,                   -- against the reference, from fixed pairs; with its 99 % interval
  speedup_low        REAL,
  speedup_high       REAL,
  log_se             REAL,                   -- standard error of log(speedup)
  pairs              INTEGER,                -- fixed pairs behind speedup
  processes          INTEGER,                -- runner processes they span
  against_start      REAL,                   -- the same against the kernel given with --from; where another turn was the
                                             -- best: against_best times that turn's against_start
  against_start_low  REAL,
  against_start_high REAL,
  candidate_us       REAL,                   -- median per call
  reference_us       REAL,
  gb_per_s           REAL,
  gflop_per_s        REAL,
  floor_us           REAL,                   -- no correct kernel can be faster
  max_error          REAL,
  error_bound        REAL,
  score              REAL NOT NULL,          -- 0.3 * correct + speedup * correct
  -- How it was made.
  compile_s          REAL NOT NULL,
  verify_s           REAL NOT NULL,
  measure_s          REAL NOT NULL,
  wait_s             REAL NOT NULL,          -- for the machine-wide lock
  seeds              TEXT NOT NULL,          -- JSON list of decimal strings
  log                TEXT NOT NULL,          -- compiler warnings, the candidate's stderr; trimmed
  machine            TEXT NOT NULL,          -- JSON object: how it was measured
  cached_from        TEXT REFERENCES evaluations(id),
  superseded_by      TEXT REFERENCES evaluations(id),          -- the row that overrides this one
  created_at         TEXT NOT NULL,
  -- On a GPU; NULL elsewhere.
  kernels            TEXT,                   -- JSON list of objects, one a launch: name, grid, block, registers,
                                             -- static_shared_bytes, dynamic_shared_bytes, spill_store_bytes,
                                             -- spill_load_bytes, occupancy (0 to 1), limited_by
  launch_list        TEXT,                   -- JSON: the launches of the candidate's function
  profile            TEXT,                   -- --profile: what the hardware's counters say, in sentences
  peak_gb_per_s      REAL,                   -- the device's own ceilings, measured
  peak_gflop_per_s   REAL,
  device_s           REAL,                   -- how long the device was held
  machine_key        TEXT,                   -- of the machine code with its launches
  -- More of the verdict; NULL where it does not apply.
  timeout_phase      TEXT,                   -- of timed_out: the phase, ...
  timeout_limit_s    REAL,                   -- ... and its limit
  failed_shape       TEXT,                   -- of compile_failed with several shapes: at which one
  shapes             TEXT,                   -- of a size set with several shapes: JSON list of objects: size, symbols,
                                             -- weight, the columns of the verdict, message
  rules_version      INTEGER NOT NULL DEFAULT 1,               -- of the rules of verdict and clock that gave it
  shared_gpu         INTEGER NOT NULL DEFAULT 0,               -- another process computed on the GPU at the time
  against_best       REAL,                   -- the same as speedup against the best turn of the episode at that time, in
  against_best_low   REAL,                   -- the same pairs; NULL: there was none, or the verdict was not measured anew
  against_best_high  REAL,
  against_best_turn  INTEGER,                -- that turn
  rules              TEXT NOT NULL DEFAULT 'kevin',            -- as episodes.rules
  backend            TEXT,                   -- of kinds in Python: what its own kernels are written in; 'torch': it has none
  own_share          REAL,                   -- the share of the work that its own kernels did, 0 to 1; NULL: unknown
  device_us          REAL,                   -- a call on the GPU alone; of 'cuda' and 'ptx' it is candidate_us
  FOREIGN KEY (episode, turn) REFERENCES turns(episode, turn)
) STRICT;
CREATE INDEX evaluations_key ON evaluations(key);
CREATE INDEX evaluations_machine_key ON evaluations(machine_key) WHERE machine_key IS NOT NULL;
CREATE INDEX evaluations_cached_from ON evaluations(cached_from) WHERE cached_from IS NOT NULL;
CREATE INDEX evaluations_superseded_by ON evaluations(superseded_by) WHERE superseded_by IS NOT NULL;
CREATE UNIQUE INDEX evaluations_verdict ON evaluations(episode, turn) WHERE purpose IN ('turn', 'start');

-- Every timed half of every pair.
CREATE TABLE samples (
  evaluation TEXT NOT NULL REFERENCES evaluations(id),
  position   INTEGER NOT NULL,               -- order of measuring, from 0
  process    INTEGER NOT NULL,               -- runner process
  pair       INTEGER NOT NULL,
  phase      TEXT NOT NULL,                  -- 'sequential', 'fixed', 'confirm'
  side       TEXT NOT NULL,                  -- 'candidate', 'reference', 'start' (the best turn at that time)
  calls      INTEGER NOT NULL,
  total_us   REAL NOT NULL,                  -- of all calls together
  PRIMARY KEY (evaluation, position)
) STRICT, WITHOUT ROWID;

-- What the reference took, under the same key without the candidate: one row per measured evaluation.
CREATE TABLE baselines (
  key          TEXT NOT NULL,                -- hash of the key_parts other than 'candidate'
  evaluation   TEXT NOT NULL REFERENCES evaluations(id),
  name         TEXT NOT NULL,                -- what the reference is: evaluations.baseline_version
  reference_us REAL NOT NULL,                -- median per call
  created_at   TEXT NOT NULL,
  PRIMARY KEY (key, evaluation)
) STRICT, WITHOUT ROWID;

-- == KNOBS == (format 6)

-- A reply may leave integers of its kernel open (`// knob TILE: 64 128`; env/knobs/). Short looks at some settings
-- choose the one that is judged: the turn's evaluation is of the text with that setting. A trial is no verdict and
-- enters no estimate. A turn whose reply has no knobs has no rows.
CREATE TABLE knob_trials (
  episode      TEXT NOT NULL,
  turn         INTEGER NOT NULL,
  position     INTEGER NOT NULL,             -- order of choosing, from 0; there stand the first values
  setting      TEXT NOT NULL,                -- JSON object: the value of every knob, in the order of the text
  outcome      TEXT,                         -- as evaluations.outcome; 'measured': correct in one call. NULL: not tried,
                                             -- because it is the only setting or only the first was asked for
  reason       TEXT NOT NULL,
  candidate_us REAL,                         -- median of a few calls; of several shapes their weighted geometric mean
  stopped      INTEGER NOT NULL,             -- timed for less long than others, because it was clearly slower
  chosen       INTEGER NOT NULL,             -- of one row a turn
  seconds      REAL NOT NULL,                -- wall time; settings are tried side by side, so they overlap
  PRIMARY KEY (episode, turn, position),
  FOREIGN KEY (episode, turn) REFERENCES turns(episode, turn)
) STRICT, WITHOUT ROWID;

-- == COLLECTIONS == (format 3) An upgrade makes anew what follows: older programs left work_items empty.

-- One `kevin collect`: its work items, and through episodes.run its episodes. `run` is the program that began
-- it; every process that works for it, that one included, has a row in collection_workers. The processes that
-- came later have runs of their own, which stand in episodes.last_run and turns.run.
CREATE TABLE collections (
  run         TEXT PRIMARY KEY REFERENCES runs(id),
  key         TEXT NOT NULL,                 -- hash of spec: the same request has the same key
  spec        TEXT NOT NULL,                 -- JSON: problems, policies, episodes, turns, seed, ...
  finished_at TEXT                           -- NULL while an item is waiting or leased
) STRICT;
CREATE INDEX collections_key ON collections(key);

CREATE TABLE collection_workers (
  run        TEXT PRIMARY KEY REFERENCES runs(id),
  collection TEXT NOT NULL REFERENCES collections(run)
) STRICT;

-- The queue for many workers on one database: each leases an item, renews the lease while it works and, when it
-- ends, another takes the item over with a higher fence. A write with an old fence is refused.
-- `kevin run` does not queue: it leaves these tables empty.
CREATE TABLE work_items (
  id           TEXT PRIMARY KEY,             -- ULID
  run          TEXT NOT NULL REFERENCES runs(id),              -- the collection's
  spec         TEXT NOT NULL,                -- JSON: problem, policy, seed, turns, ...
  state        TEXT NOT NULL CHECK (state IN ('waiting', 'leased', 'done', 'parked')),
  priority     INTEGER NOT NULL DEFAULT 0,   -- higher first
  episode      TEXT REFERENCES episodes(id), -- once begun; a later holder resumes it
  device       TEXT,                         -- model of the device it was begun on; only the same goes on in it
  lease_owner  TEXT,                         -- as runs.owner
  lease_until  TEXT,                         -- after this anybody may take it
  fence        INTEGER NOT NULL DEFAULT 0,   -- fencing token: grows with every lease
  attempts     INTEGER NOT NULL DEFAULT 0,   -- leases that ended without a result
  faults       INTEGER NOT NULL DEFAULT 0,   -- of them by an error of the infrastructure, since the latest turn
  kills        INTEGER NOT NULL DEFAULT 0,   -- of them by the end of the worker, since the latest turn
  not_before   TEXT,                         -- a waiting item rests until then
  turns        INTEGER NOT NULL DEFAULT 0,   -- what its episode has used so far: turns, tokens, and how long
  prompt_tokens INTEGER NOT NULL DEFAULT 0,  -- devices were held (on a CPU: verifying and measuring)
  completion_tokens INTEGER NOT NULL DEFAULT 0,
  device_s     REAL NOT NULL DEFAULT 0,
  error        TEXT,                         -- of the last failed attempt; of a parked item, why it is
  created_at   TEXT NOT NULL,
  finished_at  TEXT
) STRICT;
CREATE INDEX work_items_next ON work_items(run, state, priority DESC, id);
CREATE INDEX work_items_episode ON work_items(episode) WHERE episode IS NOT NULL;

-- Requests to servers: one row a request, also those that failed or were never
-- answered, because every one may have cost money. A row is written before its request is sent (outcome 'sent'),
-- so one that a killed process had under way stays behind as 'sent'. A turn that failed has requests and no row in
-- turns.
CREATE TABLE requests (
  episode            TEXT NOT NULL REFERENCES episodes(id),
  turn               INTEGER NOT NULL,
  attempt            INTEGER NOT NULL,           -- from 1; continuations of the episode count on
  run                TEXT NOT NULL REFERENCES runs(id),
  provider           TEXT NOT NULL,              -- the wire format: 'openai', 'openai-responses', 'anthropic', ...
  url                TEXT NOT NULL,
  model              TEXT NOT NULL,              -- asked for
  request            TEXT NOT NULL REFERENCES blobs(hash),     -- the exact body sent
  started_at         TEXT NOT NULL,
  -- How it ended.
  outcome            TEXT NOT NULL CHECK (outcome IN ('sent', 'answered', 'failed', 'cancelled', 'cached')),
  status             INTEGER,                    -- HTTP's; NULL: no answer arrived
  error              TEXT,
  retry_after_s      REAL,                       -- as the server asked
  seconds            REAL,
  first_token_s      REAL,
  served_model       TEXT,                       -- as the server says
  request_id         TEXT,
  stop_cause         TEXT,                       -- as the server spells it; turns.stop_reason is ours
  prompt_tokens      INTEGER,                    -- billed: 0 when 'cached', NULL when the server did not say
  completion_tokens  INTEGER,
  cached_tokens      INTEGER,                    -- of the prompt, read from the provider's cache
  cache_write_tokens INTEGER,                    -- of the prompt, written to it
  reasoning_tokens   INTEGER,                    -- of the completion
  cost_usd           REAL,                       -- NULL: unknown
  response           TEXT REFERENCES blobs(hash),              -- raw, with --record
  PRIMARY KEY (episode, turn, attempt)
) STRICT;
CREATE INDEX requests_run ON requests(run);

-- == DERIVED == `kevin attribute`: rewards shared out over turns by a scheme (agent/attribution/). A scheme
-- applied again to the same runs takes the place of the earlier one.
CREATE TABLE attributions (
  id          TEXT PRIMARY KEY,              -- ULID
  scheme      TEXT NOT NULL,                 -- its name: 'kevin', 'trloo', ..., or what --name said
  parameters  TEXT NOT NULL,                 -- JSON object: score, return and advantage, in full
  runs        TEXT NOT NULL,                 -- JSON list of runs.id, sorted
  turns       INTEGER NOT NULL,
  groups      INTEGER NOT NULL,              -- turns that were compared with each other
  flat_groups INTEGER NOT NULL,              -- of these, without a difference beyond the measurement error
  created_at  TEXT NOT NULL
) STRICT;
CREATE TABLE turn_attributions (
  attribution TEXT NOT NULL REFERENCES attributions(id),
  episode     TEXT NOT NULL,
  turn        INTEGER NOT NULL,              -- from 1: the user's own kernel takes no part
  score       REAL NOT NULL,                 -- of this turn alone
  score_se    REAL NOT NULL,                 -- its standard error, from evaluations.log_se; 0: unknown or none
  "return"    REAL NOT NULL,
  advantage   REAL NOT NULL,
  PRIMARY KEY (attribution, episode, turn)
) STRICT, WITHOUT ROWID;
-- What a report needs of a turn and its verdicts, without the texts beside it. (Format 2 had evaluations_turn, on
-- the first two columns alone.)
CREATE INDEX turns_figures ON turns(episode, turn, run, model, stop_reason, generate_s, overhead_s, seconds, reward,
                                    prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, reply_form);
CREATE INDEX evaluations_figures ON evaluations(episode, turn, purpose, id, superseded_by, cached_from, outcome,
                                                compiled, correct, speedup, log_se, score, compile_s, verify_s,
                                                measure_s, wait_s, device_s, rules_version);

-- == VIEWS == An upgrade drops and makes them anew from here on.

-- What was sent, message by message.
CREATE VIEW turn_messages AS
SELECT t.episode, t.turn, m.key AS position, m.value ->> 'role' AS role, b.body AS content
FROM turns t, json_each(t.messages) m JOIN blobs b ON b.hash = m.value ->> 'content';

-- One row a turn, everything joined. A superseded verdict is replaced by the one that overrides it.
CREATE VIEW turn_results AS
SELECT t.episode, t.turn, ep.problem, ep.policy, t.model,
       e.outcome, e.reason, e.compiled, e.correct, e.verdict,
       e.speedup, e.speedup_low, e.speedup_high, e.log_se, e.pairs, e.processes,
       e.against_start, e.against_start_low, e.against_start_high,
       e.candidate_us, e.reference_us, e.gb_per_s, e.gflop_per_s, e.floor_us, e.max_error, e.error_bound,
       CASE WHEN e.id = own.id THEN t.reward ELSE e.score END AS score,
       e.kind, e.size, e.inputs, e.precision, e.tf32, e.threads, e.device, e.isolation,
       e.id AS evaluation, own.cached_from,
       t.generate_s, own.compile_s, own.verify_s, own.measure_s, own.wait_s, t.overhead_s, t.seconds,
       t.stop_reason, t.prompt_tokens, t.completion_tokens,
       t.summary, t.feedback, t.reply, t.reasoning, c.source, t.source_path,
       ep.run, t.run AS turn_run, ep.problem_hash, ep.seed, ep.state AS episode_state, t.created_at,
       e.kernels, e.profile, e.peak_gb_per_s, e.peak_gflop_per_s, own.device_s, e.rules_version, e.shared_gpu,
       k.setting AS knobs, t.tune_s,
       own.against_best, own.against_best_low, own.against_best_high, own.against_best_turn, t.reply_form,
       e.rules, e.backend, e.own_share, e.device_us
FROM turns t
JOIN episodes ep ON ep.id = t.episode
JOIN evaluations own ON own.episode = t.episode AND own.turn = t.turn AND own.purpose IN ('turn', 'start')
JOIN evaluations e ON e.id = coalesce(own.superseded_by, own.id)
LEFT JOIN candidates c ON c.hash = own.candidate
LEFT JOIN knob_trials k ON k.episode = t.episode AND k.turn = t.turn AND k.chosen = 1;

-- Returns and advantages, derived from the raw rewards as in Kevin (arXiv 2507.11948, section 4.3):
--   return_t    = sum over i >= t of gamma^(i - t) * reward_i, gamma = 0.4, over the turns of one episode
--   advantage_t = (return_t - mean) / std over all turns of all episodes of one problem in one run
-- std is the population's (divided by n); where it is 0 the advantage is 0. Turn 0, the user's own kernel, is
-- no action of the policy and takes no part. Episodes whose state is not 'done' are left out, because returns over
-- the turns that are there would value the missing ones at 0; unfinished_episodes counts those of the same problem
-- and run. Needs SQLite's sqrt().
CREATE VIEW turn_returns AS
WITH RECURSIVE
  rewards AS (
    SELECT episode, turn, run, problem, problem_hash, score AS reward,
           row_number() OVER (PARTITION BY episode ORDER BY turn DESC) AS from_end
    FROM turn_results WHERE turn > 0 AND episode_state = 'done'),
  unfinished AS (
    SELECT run, problem_hash, count(*) AS episodes FROM episodes WHERE state <> 'done' GROUP BY run, problem_hash),
  discounted(episode, from_end, value) AS (
    SELECT episode, from_end, reward FROM rewards WHERE from_end = 1
    UNION ALL
    SELECT r.episode, r.from_end, r.reward + 0.4 * d.value
    FROM discounted d JOIN rewards r ON r.episode = d.episode AND r.from_end = d.from_end + 1),
  returns AS (
    SELECT r.*, d.value, avg(d.value) OVER (PARTITION BY r.run, r.problem_hash) AS mean
    FROM rewards r JOIN discounted d ON d.episode = r.episode AND d.from_end = r.from_end),
  spreads AS (
    SELECT *, avg((value - mean) * (value - mean)) OVER (PARTITION BY run, problem_hash) AS variance,
           count(*) OVER (PARTITION BY run, problem_hash) AS n
    FROM returns)
SELECT s.run, s.problem, s.episode, s.turn, s.reward, s.value AS return, s.mean AS group_mean, s.n AS group_turns,
       CASE WHEN s.variance > 1e-18 THEN (s.value - s.mean) / sqrt(s.variance) ELSE 0.0 END AS advantage,
       coalesce(u.episodes, 0) AS unfinished_episodes
FROM spreads s LEFT JOIN unfinished u ON u.run = s.run AND u.problem_hash = s.problem_hash;

-- Costs of requests. cost_usd is NULL as soon as one of them is unknown; known_usd adds up the others.
CREATE VIEW turn_costs AS
SELECT episode, turn, min(run) AS run, count(*) AS requests, count(*) FILTER (WHERE outcome = 'failed') AS failed,
       sum(prompt_tokens) AS prompt_tokens, sum(completion_tokens) AS completion_tokens,
       sum(cached_tokens) AS cached_tokens, sum(reasoning_tokens) AS reasoning_tokens,
       CASE WHEN count(*) = count(cost_usd) THEN sum(cost_usd) END AS cost_usd,
       sum(cost_usd) AS known_usd, count(*) - count(cost_usd) AS unknown_costs
FROM requests GROUP BY episode, turn;

CREATE VIEW episode_costs AS
SELECT c.episode, ep.run, ep.problem, ep.policy, count(*) AS turns, sum(c.requests) AS requests,
       sum(c.failed) AS failed, sum(c.prompt_tokens) AS prompt_tokens,
       sum(c.completion_tokens) AS completion_tokens, sum(c.cached_tokens) AS cached_tokens,
       sum(c.reasoning_tokens) AS reasoning_tokens,
       CASE WHEN count(*) = count(c.cost_usd) THEN sum(c.cost_usd) END AS cost_usd,
       sum(c.known_usd) AS known_usd, sum(c.unknown_costs) AS unknown_costs,
       EXISTS (SELECT 1 FROM turn_results r WHERE r.episode = c.episode AND r.turn > 0 AND r.correct = 1) AS solved
FROM turn_costs c JOIN episodes ep ON ep.id = c.episode GROUP BY ep.id, c.episode;

-- A problem is solved when a turn of one of the run's episodes is correct.
CREATE VIEW run_costs AS
SELECT run, count(*) AS episodes, count(DISTINCT problem) AS problems,
       count(DISTINCT problem) FILTER (WHERE solved) AS solved_problems, sum(requests) AS requests,
       sum(failed) AS failed, sum(prompt_tokens) AS prompt_tokens, sum(completion_tokens) AS completion_tokens,
       CASE WHEN count(*) = count(cost_usd) THEN sum(cost_usd) END AS cost_usd,
       sum(known_usd) AS known_usd, sum(unknown_costs) AS unknown_costs,
       CASE WHEN count(*) = count(cost_usd)
            THEN sum(cost_usd) / nullif(count(DISTINCT problem) FILTER (WHERE solved), 0) END
         AS usd_per_solved_problem
FROM episode_costs GROUP BY run;

-- Turns as `kevin attribute` left them, with their results.
CREATE VIEW attributed_turns AS
SELECT a.id AS attribution, a.scheme, r.run, r.problem, r.policy, x.episode, x.turn, r.outcome, r.speedup,
       x.score, x.score_se, x."return", x.advantage, a.created_at
FROM attributions a
JOIN turn_attributions x ON x.attribution = a.id
JOIN turn_results r ON r.episode = x.episode AND r.turn = x.turn;
