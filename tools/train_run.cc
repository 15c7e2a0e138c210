#include "tools/train_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/events.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "agent/train/batch_source.h"
#include "agent/train/device_choice.h"
#include "agent/train/dry_run.h"
#include "agent/train/model_text.h"
#include "agent/train/placement.h"
#include "agent/train/rank_locks.h"
#include "agent/train/rank_meeting.h"
#include "agent/train/run_end.h"
#include "agent/train/run_folder.h"
#include "agent/train/sampled_training.h"
#include "agent/train/step_log.h"
#include "agent/train/trainer_process.h"
#include "env/error.h"
#include "env/gpu/find_gpus.h"
#include "env/process/machine.h"
#include "policies/local/files/model_config.h"
#include "tools/train_devices.h"
#include "tools/train_heading.h"
#include "tools/train_options.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

class TrainRun {
 public:
  explicit TrainRun(const TrainRequest& command)
      : command_(command),
        algorithm_(AlgorithmOf(&command_)),
        options_(OptionsFrom(command_, algorithm_)),
        suites_(command_.sampling, command_.without),
        progress_(stderr) {
    if (!command_.sampling.online) ReadRecords();
    CheckSource(command_);
    CheckOutput(command_);
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
      options_.data = records_->Data();
    } else {
      options_.data.longest_tokens =
          LongestOnline(command_.sampling, algorithm_, std::min(context, command_.batches.max_sample_tokens));
    }
    if (command_.dry_run) return ShowRecords();
    Open();
    ServeWeights();
    std::unique_ptr<CollectedBatches> collected;
    if (command_.sampling.online) collected = Collected(batches);
    const bool whole = Learn(collected ? static_cast<BatchSource&>(*collected) : *records_);
    collected.reset();
    const int code = whole && End() ? static_cast<int>(ExitCode::kDone) : BrokenOff();
    if (IsFirstRank()) RunEnd::Forget(command_.output);  // all ranks have agreed
    return code;
  }

 private:
  // The devices of this rank.
  void Place() {
    const OnlineSettings& o = command_.sampling;
    asked_ = {o.place, options_.device, o.sampler_device, o.judges, static_cast<int>(FindGpus().size())};
    Use(PlaceRank(asked_, LocalRankFromEnvironment()));
  }

  void Use(const Placement& placement) {
    placement_ = placement;
    options_.device = placement.trainer;
    command_.sampling.sampler_device = placement.sampler, command_.sampling.judges = placement.judges;
  }

  // --device auto of one process, whose memory nobody else decides about: the first device that the memory plan fits.
  void ChooseByPlan() {
    if (asked_.device != "auto" || !asked_.place.empty() || LocalRankFromEnvironment().ranks > 1) return;
    std::vector<Placement> places = {placement_};
    PlaceRequest on_cpu = asked_;
    on_cpu.device = "cpu";
    if (placement_.trainer != on_cpu.device) places.push_back(PlaceRank(on_cpu, {}));
    const SharedDevices quiet(DevicesToLoad());
    const auto possible = PossibleDevices(places, options_, command_.sampling, suites_, *trainer_);
    const ChosenDevice chosen = ChooseDevice(local::ReadModelConfig(command_.model), options_, possible);
    if (chosen.index == 0) return;
    Say(chosen.line);
    trainer_.emplace();  // one without a context on the GPU
    Use(places[chosen.index]);
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
    std::string heading = fmt::format("{}: {}, {} steps of {} updates\n", algorithm_.name,
                                      records_->Describe(), options_.steps, options_.updates_per_step);
    for (const std::string& remark : records_->Remarks()) heading += remark + "\n";
    PrintDryRun(heading, event, samples, command_.json);
    return static_cast<int>(ExitCode::kDone);
  }

  bool IsFirstRank() const { return opened_.rank == 0; }
  bool IsAskedToEnd() const { return *end_->drain(); }
  void Say(const std::string& text) {
    if (IsFirstRank()) progress_.Line(text);
  }

  // --- The beginning ---

  void Open() {
    progress_.Phase("loading " + command_.model);
    trainer_.emplace();
    ChooseByPlan();
    const OnlineSettings& online = command_.sampling;
    options_.judge_bytes = JudgeBytesOn(options_.device, placement_, online, suites_);
    options_.judges_meanwhile = online.staleness > 0;
    const local::SamplingOptions sampled = SamplingOn(placement_, online, suites_);
    {
      const SharedDevices quiet(DevicesToLoad());
      opened_ = trainer_->Open(options_, online.SamplesItself() ? &sampled : nullptr);
    }
    done_ = saved_ = opened_.steps, saved_folder_ = opened_.checkpoint;
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
                                   local::ReadModelConfig(command_.model).context,
                                   opened_.split ? device_locks_ : std::vector<std::string>{}};
      sampling_ = std::make_unique<SampledTraining>(request, command_.sampling, suites_, *trainer_, opened_,
                                                    progress_, StartJudges(command_.sampling));
      sampling_->SetDevicesOfOthers(ranks_->Gather(DeviceModel(sampling_->facts().device)));
      if (!suites_.test.empty()) sampling_->RequireUntested();
    }
    peak_ = PeakOf(command_, options_);
    Announce();
  }

  // No pair is timed on a device while a model is loaded there. Ranks wait for each other meanwhile: each holds at most the
  // lock that no other rank asks for, so that none waits behind a measurement that waits for the first.
  std::vector<std::string> DevicesToLoad() const {
    const LocalRank rank = LocalRankFromEnvironment();
    if (rank.ranks > 1 && options_.device == "cpu" && rank.local > 0) return {};
    std::vector<std::string> devices{options_.device};
    const std::string& second_copy = command_.sampling.sampler_device;
    if (rank.ranks == 1 && command_.sampling.SamplesItself() && !second_copy.empty())
      devices.push_back(second_copy);
    return devices;
  }

  void MeetRanks() {
    ranks_.emplace(*trainer_, opened_);
    if (IsFirstRank()) RunEnd::Forget(command_.output);
    const RankMeeting::Met met = ranks_->Meet(
        {done_, options_.steps, options_.device, PlacementText(placement_, command_.sampling.Samples())});
    device_locks_ = met.locks;
    locks_.emplace(RankLocks::Terms{IsFirstRank(), opened_.split,
                                    met.holds_lock ? LockNameOf(options_.device) : "", met.locks},
                   [this] { ranks_->AllGoOn(true); });
    for (const std::string& line : met.lines) Say(line);
    end_.emplace(opened_.ranks > 1 ? fs::path(command_.output) : fs::path(), interrupt_->flag(),
                 interrupt_->again());
  }

  void Announce() {
    progress_.Phase("");
    const std::string what =
        records_ ? records_->Describe() : OnlineText(command_, suites_, sampling_->facts().device);
    Say(fmt::format("{}: {}, {} steps of {} updates", algorithm_.name, what, options_.steps,
                    options_.updates_per_step));
    if (records_) {
      for (const std::string& remark : records_->Remarks()) Say(remark);
    }
    for (const std::string& line : ModelLines(command_, options_.device, opened_, placement_)) Say(line);
  }

  std::unique_ptr<CollectedBatches> Collected(const BatchOptions& batches) {
    const auto collect = [this](int64_t step, const CancelToken* drain, const CancelToken* stop) {
      return sampling_->CollectStep(step, drain, stop);
    };
    const auto make = [this, batches](int64_t step, const std::vector<std::string>& runs) {
      LearnRequest request;
      request.sources = {{command_.databases.front(), runs}};
      request.scheme = algorithm_.scheme;
      request.accept = command_.accept;
      if (algorithm_.material == Material::kAnswers) request.leave_out = LeaveOut::kTurns;
      request.may_be_empty = true;  // where all episodes are parked
      const LearnTurns turns(request);
      return BatchMaker(turns, MakeUnits(algorithm_, turns, command_.units), algorithm_, text_, batches)
          .Make(step);
    };
    return std::make_unique<CollectedBatches>(done_, options_.steps, command_.sampling.staleness, collect,
                                              make, end_->drain(), end_->stop());
  }

  // --- The steps ---

  // False: interrupted.
  bool Learn(BatchSource& source) {
    if (!EvaluateIfDue()) return false;
    last_ = std::chrono::steady_clock::now();
    while (done_ < options_.steps) {
      std::optional<LearnBatch> batch;
      if (!IsAskedToEnd()) batch = source.Take(done_ + 1);
      if (batch && options_.judge_bytes > 0) sampling_->ReleaseJudges();
      if (!ranks_->Agree(done_ + 1, batch)) return false;
      // Turns that are made ahead are judged meanwhile, and other programs measure: no pair is timed beside a step on
      // the same device. The locks are held before any rank begins.
      locks_->Hold();
      const auto start = std::chrono::steady_clock::now();
      local::StepFigures figures = LearnFrom(*batch);
      locks_->Release();
      figures.sync_s += BringSamplerUp();
      Report(*batch, figures, SecondsSince(start));
      ++done_;
      ServeWeights();
      source.Learnt(done_);
      const bool is_due = options_.checkpoint_every > 0 && done_ % options_.checkpoint_every == 0;
      if (is_due || done_ == options_.steps) Save();
      if (!EvaluateIfDue()) return false;
    }
    return true;
  }

  // For other work of all ranks than a step: none of them waits any more for a lock that another one holds meanwhile.
  void HoldDevices() {
    ranks_->AllGoOn(true);
    locks_->Hold();
  }

  local::StepFigures LearnFrom(const LearnBatch& learned) {
    if (IsFirstRank())
      progress_.Phase(fmt::format("step {}/{}: learning", learned.batch.step, options_.steps));
    try {
      return trainer_->Step(learned.batch);
    } catch (const Error& error) {
      throw Error(error.code(),
                  fmt::format("{} (batch of {})", error.what(), fmt::join(learned.problems, ", ")),
                  error.next_step());
    }
  }

  // A second copy of the weights gets those of the trainer, while no pair is timed on either device. No rank is waited for
  // meanwhile. Returns the seconds that it took.
  double BringSamplerUp() {
    const OnlineSettings& online = command_.sampling;
    if (!online.SamplesItself() || online.sampler_device.empty()) return 0;
    const SharedDevices quiet({options_.device, online.sampler_device});
    return trainer_->BringSamplerUp();
  }

  void Report(const LearnBatch& learned, const local::StepFigures& figures, double seconds) {
    const auto now = std::chrono::steady_clock::now();
    // Online, making the turns is most of a step.
    const double whole_s = std::chrono::duration<double>(now - last_).count();
    spent_ += whole_s, last_ = now;
    ++steps_;
    if (!IsFirstRank()) return;
    const double left =
        spent_ / static_cast<double>(steps_) * static_cast<double>(options_.steps - figures.step);
    Json event = StepEvent(learned, figures, options_.steps, seconds, left);
    if (sampling_) AddTurnTimes(whole_s - seconds, sampling_->TakeTimes(figures.step), &event);
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
    const std::string called = Serve(done_ > 0 ? fs::path() : fs::path(command_.model), done_);
    progress_.Phase("");
    if (done_ == 0 || done_ == opened_.steps) Say("weights go to the server by " + called);
  }

  // The server has the weights of `model`, by default the trainer's. The first rank writes them and tells it; no rank asks
  // before that.
  std::string Serve(const fs::path& model, int64_t steps) {
    const ModelWriter write = [this](const fs::path& folder) {
      HoldDevices();  // weights come from them
      trainer_->WriteModel(folder.string());
      locks_->Release();
    };
    std::string called;
    if (IsFirstRank()) {
      called = sampling_->Serve(model.empty() ? write : CopyOf(model), steps);
    } else {
      if (model.empty()) write({});
      sampling_->FollowServed(steps);
    }
    ranks_->AllGoOn(true);
    return called;
  }

  void Save() {
    if (saved_ == done_ && !saved_folder_.empty()) return;
    HoldDevices();  // weights come from them
    saved_folder_ = trainer_->Save(), saved_ = done_;
    locks_->Release();
    Say("checkpoint  " + saved_folder_);
  }

  // Before the first step, at each interval, and after the last. False: interrupted.
  bool EvaluateIfDue() {
    const int64_t every = command_.sampling.eval_every;
    const bool is_due = done_ == 0 || done_ == options_.steps || (every > 0 && done_ % every == 0);
    if (suites_.dev.empty() || !is_due) return true;
    const auto event = sampling_->EvaluateDev(done_, end_->drain(), end_->stop());
    if (!ranks_->AllGoOn(event.has_value())) return false;
    const bool is_best = ranks_->DecidedByFirst(sampling_->IsBest(*event));
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
    HoldDevices();
    const std::string folder = trainer_->Finish();
    locks_->Release();
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
        HoldDevices();
        trainer_->Restore(*best);
        locks_->Release();
        BringSamplerUp();
      } else {
        Serve(fs::path(*best) / "model", step);
      }
    }
    const auto event = sampling_->EvaluateTest(step, end_->drain(), end_->stop());
    if (!ranks_->AllGoOn(event.has_value())) return false;
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
  std::optional<RankMeeting> ranks_;
  std::unique_ptr<SampledTraining> sampling_;
  const InterruptGuard* interrupt_ = nullptr;
  std::optional<RunEnd> end_;  // asked for at this rank or another one
  PlaceRequest asked_;
  Placement placement_;
  std::optional<RankLocks> locks_;         // during steps
  std::vector<std::string> device_locks_;  // of all ranks' devices
  std::optional<StepLog> log_;
  std::optional<double> peak_;  // FLOP/s
  std::string saved_folder_;
  int64_t done_ = 0, saved_ = 0, steps_ = 0;
  double spent_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

int RunTraining(const TrainRequest& request) { return TrainRun(request).Run(); }

}  // namespace kevin
