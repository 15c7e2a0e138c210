#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "agent/events.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "agent/train/batch_source.h"
#include "agent/train/dry_run.h"
#include "agent/train/model_text.h"
#include "agent/train/placement.h"
#include "agent/train/run_folder.h"
#include "agent/train/sampled_training.h"
#include "agent/train/served_sampler.h"
#include "agent/train/step_log.h"
#include "agent/train/trainer_process.h"
#include "env/error.h"
#include "env/gpu/find_gpus.h"
#include "env/process/machine.h"
#include "policies/local/files/model_config.h"
#include "tools/commands.h"
#include "tools/train_options.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrainExamples = R"(Examples:
  kevin train --model models/qwen --out run1                     GRPO in the Kevin recipe, one epoch, from kevin.db
  kevin train --model models/qwen --out run1 --resume            continues from the newest checkpoint
  kevin train --model models/qwen --kind cuda --since 2026-11-01 --dry-run    what would be learnt from
  kevin train --algorithm tpt --model models/qwen --out tpt1     imitate the fastest correct kernel of each problem
  kevin train --algorithm sft --select all --min-speedup 1.2 --epochs 2 --model models/qwen --out sft1
  kevin train --lora 32 --quantization nf4 --device cuda:0 --model models/qwen --out lora1
  kevin train --online --suite level1,level2 --without core --eval-suite core --eval-every 10 --model models/qwen \
              --out run2                                 turns made by the model as it is, 8 x 16 x 4 a step
  torchrun --no-python --nproc-per-node 2 kevin train --model models/qwen --out run3

OUT gets checkpoints/, model/ (or adapter/), metrics.jsonl, rollouts/ and tensorboard/; best/ and run.json from
evaluations.)";

constexpr size_t kShownBytes = 1500;  // of a prompt and of a reply in --dry-run

class TrainRun {
 public:
  explicit TrainRun(const TrainRequest& command)
      : command_(command),
        algorithm_(AlgorithmOf(&command_)),
        options_(OptionsFrom(command_, algorithm_)),
        suites_(command_.sampling, command_.without),
        progress_(stderr) {
    if (!command_.sampling.online) ReadRecords();
    if (command_.sampling.online && command_.databases.size() > 1)
      throw Error(ExitCode::kBadRequest, "--online keeps its turns in one database", "give --db once");
    CheckOutput(command_);
    if (command_.sampling.online && command_.dry_run)
      throw Error(ExitCode::kBadRequest, "--dry-run shows records, and --online has none yet",
                  "leave one of them out");
    RecordFilter filter = FilterFrom(command_.filter);
    if (command_.sampling.online) filter.kind.clear();  // what the model writes
    if (command_.sampling.online && filter != RecordFilter{})
      throw Error(ExitCode::kBadRequest, "--online learns from its own turns; filters are for records",
                  "leave them out, or leave out --online");
    Place();
  }

  int Run() {
    const InterruptGuard interrupt(2);
    interrupt_ = &interrupt;
    text_ = LoadModelText(command_.model);
    BatchOptions batches = command_.batches;
    batches.seed = command_.seed;
    // A reply that was cut off has the greatest penalty of overlong ones, which it would not learn from otherwise.
    batches.mask_cut_off = !command_.keep_cut_off && algorithm_.scheme.score.overlong == 0;
    batches.is_for_step = command_.sampling.online;
    const int64_t context = local::ReadModelConfig(command_.model).context;
    if (batches.max_sample_tokens == 0 || batches.max_sample_tokens > context)
      batches.max_sample_tokens = context;
    if (records_) {
      records_->Prepare(text_, batches);
      SetSteps();
    }
    if (command_.dry_run) return ShowRecords();
    Open();
    ServeWeights();
    std::unique_ptr<CollectedBatches> collected;
    if (command_.sampling.online) collected = Collected(batches);
    const bool whole = Learn(collected ? static_cast<BatchSource&>(*collected) : *records_);
    collected.reset();
    return whole && End() ? static_cast<int>(ExitCode::kDone) : BrokenOff();
  }

 private:
  // The devices of this rank.
  void Place() {
    OnlineSettings& o = command_.sampling;
    const PlaceRequest request{o.place, options_.device, o.sampler_device, o.judges,
                               static_cast<int>(FindGpus().size())};
    placement_ = PlaceRank(request, LocalRankFromEnvironment());
    options_.device = placement_.trainer;
    o.sampler_device = placement_.sampler, o.judges = placement_.judges;
  }

  void ReadRecords() {
    records_.emplace(RecordsFrom(command_, suites_, algorithm_), algorithm_, command_.units);
  }

  void SetSteps() {
    const double epochs = command_.epochs > 0 ? command_.epochs : command_.steps > 0 ? 0 : algorithm_.epochs;
    if (epochs > 0)
      options_.steps =
          std::max<int64_t>(1, std::llround(epochs * static_cast<double>(records_->StepsPerEpoch())));
    records_->SetSteps(options_.steps);
  }

  int ShowRecords() {
    const Json event = DryRunEvent(algorithm_, records_->turns(), records_->units(), records_->Remarks());
    const std::vector<Json> samples = SampleEvents(records_->Batch(1), text_);
    if (command_.json) {
      Print(stdout, ToLine(event));
      for (const Json& sample : samples) Print(stdout, ToLine(sample));
      return static_cast<int>(ExitCode::kDone);
    }
    PrintFormat(stdout, "{}: {}, {} steps of {} updates\n", algorithm_.name, records_->Describe(),
                options_.steps, options_.updates_per_step);
    for (const std::string& remark : records_->Remarks()) PrintFormat(stdout, "{}\n", remark);
    Print(stdout, DryRunText(event));
    for (const Json& sample : samples) Print(stdout, SampleText(sample, kShownBytes));
    return static_cast<int>(ExitCode::kDone);
  }

  bool IsFirstRank() const { return opened_.rank == 0; }
  bool IsAskedToEnd() const { return *interrupt_->flag(); }
  void Say(const std::string& text) {
    if (IsFirstRank()) progress_.Line(text);
  }

  // --- The beginning ---

  void Open() {
    progress_.Phase("loading " + command_.model);
    const OnlineSettings& online = command_.sampling;
    TrainerProcess::Sampled sampled{online.sampler_device, online.context, online.sampler_tokens};
    judges_here_ = online.Samples() && JudgesOnGpu(online, options_.device);
    const bool judges_beside_sampler =
        online.sampler_device.empty() ? judges_here_ : JudgesOnGpu(online, online.sampler_device);
    if (online.SamplesItself() && judges_beside_sampler) sampled.judge_bytes = JudgeBytes(online, suites_);
    trainer_.emplace();
    opened_ = trainer_->Open(options_, online.SamplesItself() ? &sampled : nullptr);
    if (!command_.sampling.sampler.empty() && opened_.ranks > 1)
      throw Error(ExitCode::kBadRequest, "--sampler is for one process", "leave out torchrun, or --sampler");
    done_ = saved_ = opened_.steps;
    MeetRanks();
    if (IsFirstRank()) log_.emplace(command_.output, opened_.steps);
    if (command_.sampling.Samples()) {
      progress_.Phase("starting the judges, testing the sandbox");
      const SampledRequest request{command_.output,
                                   command_.databases.front(),
                                   algorithm_.name,
                                   options_.steps,
                                   command_.seed,
                                   options_.device,
                                   algorithm_.scheme,
                                   command_.model,
                                   local::ReadModelConfig(command_.model).context};
      sampling_ = std::make_unique<SampledTraining>(request, command_.sampling, suites_, *trainer_, opened_,
                                                    progress_, StartJudges(command_.sampling));
      if (!suites_.test.empty()) sampling_->RequireUntested();
    }
    FindPeak();
    Announce();
  }

  // What ranks must have in common, and who is where.
  void MeetRanks() {
    if (opened_.ranks == 1) return;
    char host[256] = "host";
    gethostname(host, sizeof(host) - 1);
    const Json own = {{"host", host},
                      {"device", options_.device},
                      {"done", done_},
                      {"steps", options_.steps},
                      {"place", PlacementText(placement_, command_.sampling.Samples())}};
    const std::vector<std::string> all = trainer_->Exchange(ToLine(own));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const Json other = Json::parse(all[rank]);
      if (other.at("done") != done_ || other.at("steps") != options_.steps)
        throw Error(ExitCode::kBadRequest,
                    fmt::format("rank {} is at step {} of {}, rank {} at step {} of {}", opened_.rank, done_,
                                options_.steps, rank, other.at("done").get<int64_t>(),
                                other.at("steps").get<int64_t>()),
                    "start all ranks with the same options, and --out on a file system that they share");
      // Of ranks that share a device one holds its lock for all of them.
      if (static_cast<int>(rank) < opened_.rank && other.at("host") == own.at("host") &&
          other.at("device") == own.at("device"))
        holds_lock_ = false;
      Say(fmt::format("rank {} of {} on {}: {}", rank, all.size(), other.at("host").get<std::string>(),
                      other.at("place").get<std::string>()));
    }
  }

  void Announce() {
    progress_.Phase("");
    const OnlineSettings& o = command_.sampling;
    const std::string what =
        records_
            ? records_->Describe()
            : fmt::format("{} problems, {} a step, {} episodes of {} turns each, judged on {}, kept in {}",
                          suites_.learnt.size(), o.problems_per_step, o.samples, o.turns,
                          sampling_->facts().device, command_.databases.front());
    Say(fmt::format("{}: {}, {} steps of {} updates", algorithm_.name, what, options_.steps,
                    options_.updates_per_step));
    if (records_) {
      for (const std::string& remark : records_->Remarks()) Say(remark);
    }
    Say(fmt::format("{}: {:.3g} million numbers trained on {}{}{}", command_.model,
                    static_cast<double>(opened_.trained) / 1e6, options_.device,
                    opened_.ranks > 1 ? fmt::format(" by {} ranks", opened_.ranks) : "",
                    opened_.steps > 0 ? fmt::format(", from step {} on", opened_.steps + 1) : ""));
    if (o.Samples() && opened_.ranks == 1) Say(PlacementText(placement_, true));
    if (!o.SamplesItself()) return;
    Say(o.sampler_device.empty()
            ? "sampled from the same weights: nothing is copied after a step"
            : fmt::format("sampled from a second copy on {}, brought up to date after each step",
                          o.sampler_device));
  }

  void FindPeak() {
    if (!options_.device.starts_with("cuda")) return;
    const std::string dtype =
        options_.dtype.empty() ? local::NameOf(local::ReadModelConfig(command_.model).dtype) : options_.dtype;
    if (dtype != "BF16" && dtype != "bfloat16" && dtype != "F16") return;
    std::string none;
    for (const GpuFound& gpu : FindGpus(&none)) {
      if (!peak_) peak_ = PeakFlops(gpu.name);
    }
  }

  std::unique_ptr<CollectedBatches> Collected(const BatchOptions& batches) {
    const auto collect = [this](int64_t step, const CancelToken* drain, const CancelToken* stop) {
      return sampling_->CollectStep(step, drain, stop);
    };
    const auto make = [this, batches](int64_t step, const std::vector<std::string>& runs) {
      LearnRequest request;
      request.sources = {{command_.databases.front(), runs}};
      request.scheme = algorithm_.scheme;
      request.accept_old_verdicts = command_.accept_old_verdicts;
      if (algorithm_.material == Material::kAnswers) request.leave_out = LeaveOut::kTurns;
      request.may_be_empty = true;  // where all episodes are parked
      const LearnTurns turns(request);
      return BatchMaker(turns, MakeUnits(algorithm_, turns, command_.units), algorithm_, text_, batches)
          .Make(step);
    };
    return std::make_unique<CollectedBatches>(done_, options_.steps, command_.sampling.staleness, collect,
                                              make, interrupt_->flag(), interrupt_->again());
  }

  // --- The steps ---

  // False: interrupted.
  bool Learn(BatchSource& source) {
    if (!EvaluateIfDue()) return false;
    last_ = std::chrono::steady_clock::now();
    while (done_ < options_.steps) {
      std::optional<LearnBatch> batch;
      if (!IsAskedToEnd()) batch = source.Take(done_ + 1);
      if (batch && judges_here_) sampling_->ReleaseJudges();
      // Turns that are made ahead are judged meanwhile, and other programs measure: no pair is timed beside a step on
      // the same device. The lock is held before any rank begins.
      std::optional<DeviceLock> quiet;
      if (batch && holds_lock_) quiet.emplace(LockNameOf(options_.device), LockMode::kShared, nullptr);
      if (!RanksAgree(batch)) return false;
      LearnFrom(*batch);
      quiet.reset();
      ++done_;
      ServeWeights();
      source.Learnt(done_);
      const bool is_due = options_.checkpoint_every > 0 && done_ % options_.checkpoint_every == 0;
      if (is_due || done_ == options_.steps) Save();
      if (!EvaluateIfDue()) return false;
    }
    return true;
  }

  // Before each step. False: a rank was asked to end, so that all do. Throws Error(kBroken) where the ranks' batches
  // differ.
  bool RanksAgree(const std::optional<LearnBatch>& batch) {
    if (opened_.ranks == 1) return batch.has_value();
    const std::vector<std::string> all = trainer_->Exchange(batch ? local::FingerprintOf(batch->batch) : "");
    if (std::find(all.begin(), all.end(), "") != all.end()) return false;
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      throw Error(
          ExitCode::kBroken,
          fmt::format(
              "step {}: rank {} has read other records than rank 0, so that the ranks would learn from "
              "different batches",
              done_ + 1, rank),
          "give all ranks the same database, name the runs to learn from (--run), and let collections end; then "
          "--resume");
    }
    return true;
  }

  // Whether no rank was interrupted; `mine`: this one was not.
  bool AllGoOn(bool mine) {
    if (opened_.ranks == 1) return mine;
    const std::vector<std::string> all = trainer_->Exchange(mine ? "on" : "end");
    return std::find(all.begin(), all.end(), "end") == all.end();
  }

  // What rank 0 decides.
  bool DecidedByFirst(bool mine) {
    return opened_.ranks == 1 ? mine : trainer_->Exchange(mine ? "yes" : "no").front() == "yes";
  }

  void LearnFrom(const LearnBatch& learned) {
    const auto start = std::chrono::steady_clock::now();
    if (IsFirstRank())
      progress_.Phase(fmt::format("step {}/{}: learning", learned.batch.step, options_.steps));
    local::StepFigures figures;
    try {
      figures = trainer_->Step(learned.batch);
    } catch (const Error& error) {
      throw Error(error.code(),
                  fmt::format("{} (batch of {})", error.what(), fmt::join(learned.problems, ", ")),
                  error.next_step());
    }
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start).count();
    // Online, making the turns is most of a step.
    const double whole_s = std::chrono::duration<double>(now - last_).count();
    spent_ += whole_s, last_ = now;
    ++steps_;
    if (!IsFirstRank()) return;
    const double left =
        spent_ / static_cast<double>(steps_) * static_cast<double>(options_.steps - figures.step);
    Json event = StepEvent(learned, figures, options_.steps, seconds, left);
    if (sampling_) event["turns_s"] = whole_s - seconds;
    if (peak_) event["mfu"] = figures.flops / (figures.seconds * opened_.ranks * *peak_);
    log_->Add(event);
    WriteRollouts(fs::path(command_.output) / "rollouts", learned);
    if (command_.json) Print(stdout, ToLine(event));
    Say(StepLine(event));
    if (learned.turns.empty())
      Say("  this step has no turns, so nothing was learnt: all of its episodes are parked");
    for (const std::string& warning : Warnings(event, *log_->first())) Say("  warning: " + warning);
  }

  // With --sampler.
  void ServeWeights() {
    if (command_.sampling.sampler.empty()) return;
    progress_.Phase("giving the server the weights of step " + std::to_string(done_));
    if (done_ > 0) Save();
    const fs::path model = done_ > 0 ? fs::path(saved_folder_) / "model" : fs::path(command_.model);
    const std::string called = sampling_->Serve(model, done_);
    progress_.Phase("");
    if (done_ == 0 || done_ == opened_.steps) Say("weights go to the server by " + called);
  }

  void Save() {
    if (saved_ == done_ && !saved_folder_.empty()) return;
    saved_folder_ = trainer_->Save(), saved_ = done_;
    Say("checkpoint  " + saved_folder_);
  }

  // Before the first step, at each interval, and after the last. False: interrupted.
  bool EvaluateIfDue() {
    const int64_t every = command_.sampling.eval_every;
    const bool is_due = done_ == 0 || done_ == options_.steps || (every > 0 && done_ % every == 0);
    if (suites_.dev.empty() || !is_due) return true;
    const auto event = sampling_->EvaluateDev(done_, interrupt_->flag(), interrupt_->again());
    if (!AllGoOn(event.has_value())) return false;
    const bool is_best = DecidedByFirst(sampling_->IsBest(*event));
    if (is_best) {
      Save();
      if (IsFirstRank()) KeepBest(command_.output, saved_folder_);
      sampling_->SetBest(*event, saved_folder_);
    }
    if (IsFirstRank()) Evaluated(*event, is_best);
    last_ = std::chrono::steady_clock::now();
    return true;
  }

  void Evaluated(Json event, bool is_best) {
    event["best"] = is_best;
    if (event.at("split") == "test" || !log_->HasEvaluation(event.at("step"))) log_->Add(event);
    if (command_.json) Print(stdout, ToLine(event));
    Say(EvaluationLine(event) + (is_best ? "; the best so far" : ""));
  }

  // --- The end ---

  // False: interrupted while the test suite was read.
  bool End() {
    const std::string folder = trainer_->Finish();
    Say("trained     " + folder);
    if (!suites_.test.empty() && !Test()) return false;
    if (!IsFirstRank()) return true;
    Json event = {{"event", "trained"},
                  {"model", folder},
                  {"algorithm", algorithm_.name},
                  {"steps", options_.steps},
                  {"seconds", spent_}};
    if (sampling_ && sampling_->BestCheckpoint()) event["best"] = *sampling_->BestCheckpoint();
    if (command_.json) Print(stdout, ToLine(event));
    return true;
  }

  bool Test() {
    int64_t step = options_.steps;
    if (const auto best = sampling_->BestCheckpoint()) {
      step = sampling_->BestStep();
      if (command_.sampling.sampler.empty()) {
        trainer_->Restore(*best);
      } else {
        sampling_->Serve(fs::path(*best) / "model", step);
      }
    }
    const auto event = sampling_->EvaluateTest(step, interrupt_->flag(), interrupt_->again());
    if (!AllGoOn(event.has_value())) return false;
    if (IsFirstRank()) Evaluated(*event, false);
    return true;
  }

  int BrokenOff() {
    if (saved_ < done_) Save();
    Say("interrupted after step " + std::to_string(done_) + "; the same command with --resume continues");
    return static_cast<int>(ExitCode::kInterrupted);
  }

  TrainRequest command_;
  const Algorithm algorithm_;
  local::TrainOptions options_;
  const TrainSuites suites_;
  Progress progress_;
  std::optional<RecordedBatches> records_;  // offline
  ModelText text_;
  std::optional<TrainerProcess> trainer_;
  TrainerProcess::Opened opened_;
  std::unique_ptr<SampledTraining> sampling_;
  const InterruptGuard* interrupt_ = nullptr;
  Placement placement_;
  bool holds_lock_ = true;  // of options_.device, during steps
  std::optional<StepLog> log_;
  std::optional<double> peak_;  // FLOP/s
  std::string saved_folder_;
  int64_t done_ = 0, saved_ = 0, steps_ = 0;
  double spent_ = 0;
  bool judges_here_ = false;  // on the GPU that trains
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

void AddTrainCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<TrainRequest>();
  CLI::App* command = app.add_subcommand(
      "train", "Train a local model on the records of a database, or online on its own turns");
  command->footer(kTrainExamples);
  AddTrainRequest(command, options.get());
  command->callback([options, action] { *action = [options] { return TrainRun(*options).Run(); }; });
}

}  // namespace kevin
