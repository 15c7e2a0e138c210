#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "env/error.h"
#include "policies/local/files/safetensors.h"
#include "policies/local/files/tensor_list.h"
#include "policies/local/model/build_weights.h"
#include "policies/local/train/state_layout.h"
#include "policies/local/train/stored_shares.h"
#include "policies/local/train/trainer.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;
using State = std::vector<std::pair<std::string, at::Tensor>>;

constexpr const char* kRandom = "random";

fs::path FolderOf(const TrainOptions& options) { return fs::path(options.output) / "checkpoints"; }
std::string NameOfStep(int64_t steps) { return fmt::format("step-{:08}", steps); }

void WriteShare(const fs::path& folder, const Optimizer& optimizer, const Ranks& ranks) {
  State state = optimizer.State();
  state.emplace_back(kRandom, at::detail::getDefaultCPUGenerator().get_state());
  std::vector<TensorToWrite> tensors;
  for (auto& [name, tensor] : state) {
    tensor = tensor.cpu().contiguous();
    const NumberType type = tensor.scalar_type() == at::kByte ? NumberType::kU8 : NumberType::kF32;
    const at::Tensor& kept = tensor;
    tensors.push_back(
        {name, type, kept.sizes().vec(),
         [&kept] { return std::span(static_cast<const std::byte*>(kept.const_data_ptr()), kept.nbytes()); }});
  }
  WriteOptions options;
  options.file_name = StoredShares::FileOf(ranks.Rank(), ranks.Size());
  options.shard_bytes = std::numeric_limits<int64_t>::max();
  fs::create_directories(folder);
  WriteTensors(folder, tensors, options);
}

// Of all ranks; by rank 0, after they wrote them. By a listing: a network file system may not yet know a name that it looked
// up before.
void RequireShares(const fs::path& folder, int ranks) {
  std::set<std::string> there;
  std::error_code none;
  for (fs::directory_iterator entry(folder, none), end; entry != end; entry.increment(none))
    there.insert(entry->path().filename());
  std::vector<int> missing;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!there.contains(StoredShares::FileOf(rank, ranks) + ".safetensors")) missing.push_back(rank);
  }
  if (missing.empty()) return;
  throw Error(
      ExitCode::kBroken,
      fmt::format("the checkpoint is not whole: {} has no share (optimizer-N-of-{}.safetensors) of rank {}; "
                  "older checkpoints stay",
                  folder.string(), ranks, fmt::join(missing, ", ")),
      kShareOutput);
}

// By every rank, because each may have a folder of its own; by all at once where they have one.
void RemoveShares(const fs::path& folder) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored))
    fs::remove_all(entry->path(), ignored);
  fs::remove(folder, ignored);
}

std::vector<fs::path> Checkpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().filename().string().starts_with("step-")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void Assemble(const TrainOptions& options, const LanguageModel& model, int64_t steps, const fs::path& shares,
              int ranks) {
  const std::string name = NameOfStep(steps);
  const fs::path place = FolderOf(options) / name, next = FolderOf(options) / ("." + name + ".next");
  fs::remove_all(next);
  NewFolder folder(next);
  if (options.lora.rank > 0) {
    model.SaveAdapters(folder.Path() / "adapter", options.model);
  } else {
    model.Save(folder.Path() / "model", options.model);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string share = StoredShares::FileOf(rank, ranks) + ".safetensors";
    fs::rename(shares / share, folder.Path() / share);
  }
  const nlohmann::json about = {{"steps", steps}, {"ranks", ranks}, {"options", ToJson(options)}};
  folder.WriteText("trainer.json", about.dump(2) + "\n");
  folder.Commit();
  ReplaceFolder(place, next);  // of the same step, by an earlier run or the one that this run goes on from
  fs::remove_all(shares);
  std::vector<fs::path> all = Checkpoints(FolderOf(options));
  for (size_t i = 0; i + static_cast<size_t>(std::max(1, options.keep)) < all.size(); ++i)
    fs::remove_all(all[i]);
}

void Written(const std::function<void()>& write) {
  std::string why;
  try {
    return write();
  } catch (const Error& error) {
    why = error.what();
  } catch (const fs::filesystem_error& error) {
    why = error.what();
  }
  throw Error(ExitCode::kBroken, "the checkpoint could not be written: " + why,
              "make room there; --resume goes on from the checkpoint before");
}

[[noreturn]] void Damaged(const fs::path& folder, const std::string& why) {
  throw Error(ExitCode::kBadRequest, fmt::format("checkpoint {}: {}", folder.string(), why),
              kRemoveCheckpoint);
}

// trainer.json
struct About {
  int64_t steps = 0;
  int ranks = 0;  // that wrote the checkpoint
  TrainOptions options;
};

About ReadAbout(const fs::path& folder) {
  try {
    const auto json = nlohmann::json::parse(std::ifstream(folder / "trainer.json"));
    About about{json.at("steps"), json.at("ranks"), TrainOptionsFromJson(json.at("options"))};
    if (about.ranks < 1) Damaged(folder, "trainer.json names no ranks");
    return about;
  } catch (const nlohmann::json::exception& error) {
    Damaged(folder, std::string("trainer.json is damaged: ") + error.what());
  }
}

std::string AdaptersText(const TrainOptions& o) {
  if (o.lora.rank == 0) return "without adapters (no --lora)";
  return fmt::format("with --lora {} --lora-alpha {:g} --lora-targets {}", o.lora.rank, o.lora.alpha,
                     fmt::join(TargetsOf(o.lora), ","));
}

// Compares what is known of both. `require_same(next, text)` compares the texts of both runs' options.
template <class RequireSame>
void RequireSameModel(const TrainedModel& then, const TrainedModel& now, const RequireSame& require_same) {
  const auto differ = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  if (differ(then.fingerprint, now.fingerprint))
    require_same("give the model that the run began with, in whichever folder", [](const TrainOptions& o) {
      return fmt::format("with --model {} (fingerprint {})", o.model, o.trained.fingerprint);
    });
  if (differ(then.reference, now.reference))
    require_same("give the reference that the run began with, in whichever folder",
                 [](const TrainOptions& o) {
                   return fmt::format("with --reference {} (fingerprint {})",
                                      o.reference.empty() ? o.model : o.reference, o.trained.reference);
                 });
  if (differ(then.dtype, now.dtype))
    require_same("give the --dtype that the run began with", [](const TrainOptions& o) {
      return fmt::format("with weights in {} (--dtype)", o.trained.dtype);
    });
}

// Reads trainer.json of a checkpoint that a run with the options `asked` for goes on from.
About ReadSame(const fs::path& folder, const TrainOptions& asked) {
  About about = ReadAbout(folder);
  const TrainOptions& earlier = about.options;
  const auto require_same = [&](const std::string& next, const auto& text) {
    const std::string then = text(earlier), now = text(asked);
    if (then == now) return;
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("checkpoint {} was made {}, and this run is asked for {}", folder.string(), then, now),
        next + ", or begin another in a new --out");
  };
  const std::string options = "give the options that the run began with";
  require_same(options, [](const TrainOptions& o) { return fmt::format("with --seed {}", o.seed); });
  // Of a round of imitation they follow from --problems-per-step and --samples.
  require_same(options, [](const TrainOptions& o) {
    return fmt::format("with {} updates a step", o.updates_per_step);
  });
  require_same(options, AdaptersText);
  require_same(options, [](const TrainOptions& o) { return "with --quantization " + o.quantization; });
  RequireSameModel(earlier.trained, asked.trained, require_same);
  if (earlier.data.fingerprint.empty() || asked.data.fingerprint.empty()) return about;
  require_same(options,
               [](const TrainOptions& o) { return fmt::format("with --batch {}", o.units_per_step); });
  require_same(
      "give the databases and filters that the run began with (--run, --until leave out what was recorded since)",
      [](const TrainOptions& o) {
        return fmt::format("with {} units of records (fingerprint {})", o.data.units, o.data.fingerprint);
      });
  return about;
}

void RestoreRandom(const fs::path& folder, const at::Tensor& state) {
  at::Generator random = at::detail::getDefaultCPUGenerator();
  try {
    random.set_state(state);
  } catch (const c10::Error&) {
    Damaged(folder, fmt::format("its random state of {} bytes is not one of this torch", state.numel()));
  }
}

}  // namespace

std::string SaveCheckpoint(const TrainOptions& options, const LanguageModel& model,
                           const Optimizer& optimizer, int64_t steps, Ranks& ranks) {
  const fs::path shares = FolderOf(options) / fmt::format(".shares-{}", steps);
  try {
    OnAllRanks(ranks, [&] { Written([&] { WriteShare(shares, optimizer, ranks); }); });
    OnAllRanks(ranks, [&] {
      if (ranks.Rank() != 0) return;
      RequireShares(shares, ranks.Size());
      Written([&] { Assemble(options, model, steps, shares, ranks.Size()); });
    });
  } catch (const Error&) {
    // Where a rank was lost rank 0 may still move the shares of their common folder.
    const std::string of_first = StoredShares::FileOf(0, ranks.Size()) + ".safetensors";
    std::error_code unknown;
    if (ranks.Rank() == 0 || !fs::exists(shares / of_first, unknown)) RemoveShares(shares);
    throw;
  }
  return (FolderOf(options) / NameOfStep(steps)).string();
}

std::string NewestCheckpoint(const std::string& output) {
  const std::vector<fs::path> all = Checkpoints(fs::path(output) / "checkpoints");
  return all.empty() ? "" : all.back().string();
}

std::string CheckpointToResume(const TrainOptions& options, Ranks& ranks) {
  const std::string own = options.resume ? NewestCheckpoint(options.output) : "";
  const std::vector<std::string> all = ExchangeTexts(ranks, fs::path(own).filename());
  const auto named = [](const std::string& name) { return name.empty() ? "no checkpoint" : name; };
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: rank 0 goes on from {}, rank {} from {}", FolderOf(options).string(),
                            named(all[0]), rank, named(all[rank])),
                kShareOutput);
  }
  return own;
}

int64_t StepsOf(const std::string& folder) { return ReadAbout(folder).steps; }

void RequireSameOptions(const std::string& folder, const TrainOptions& options) { ReadSame(folder, options); }

int64_t LoadCheckpoint(const std::string& folder, const TrainOptions& options, const LanguageModel& model,
                       Ranks& ranks, Optimizer* optimizer) {
  int64_t steps = 0;
  OnAllRanks(ranks, [&] {
    const About about = ReadSame(folder, options);
    StoredShares shares(folder, about.ranks, ranks.Rank(), LayoutOf(model.Parameters(), about.options.shard));
    optimizer->ReadState(shares);
    RestoreRandom(folder, shares.Common(kRandom));
    steps = about.steps;
  });
  optimizer->StateChanged();
  return steps;
}

// Of weights that are not whole on the device: in main memory of rank 0, from layer after layer. Null on other ranks, and
// where the weights are whole. All ranks call it.
std::unique_ptr<LanguageModel> Trainer::WholeOnHost() {
  if (!shards_ || shards_->IsWhole()) return nullptr;
  std::unique_ptr<LanguageModel> whole;
  std::map<std::string, at::Tensor> places;
  if (ranks_.Rank() == 0) {
    ModelOptions options;
    options.dtype = model_.Options().dtype, options.rope_tokens = 1;
    const ModelConfig& config = model_.Config();
    whole = std::make_unique<LanguageModel>(config, options, BuildWeights(config, options, *MakeNoSource()));
    places = NamedTensors(whole->GetWeights(), config);
  }
  const c10::NoGradGuard no_gradients;
  const auto copy = [&](const NamedParameter& p) {
    if (whole) places.at(p.name).copy_(p.value);
  };
  for (const NamedParameter& p : model_.Parameters()) {
    if (!IsInLayer(p)) copy(p);
  }
  shards_->VisitLayers([&](int layer) {
    for (const NamedParameter& p : model_.LayerParameters(layer)) copy(p);
  });
  return whole;
}

std::string Trainer::Save() {
  const std::unique_ptr<LanguageModel> whole = WholeOnHost();
  return SaveCheckpoint(options_, whole ? *whole : model_, optimizer_, steps_done_, ranks_);
}

void Trainer::SaveModel(const std::string& folder) {
  const std::unique_ptr<LanguageModel> whole = WholeOnHost();
  if (ranks_.Rank() != 0) return;
  fs::remove_all(folder);  // of the same run, before it went on
  if (options_.lora.rank > 0) {
    model_.SaveAdapters(folder, options_.model);
  } else {
    (whole ? *whole : model_).Save(folder, options_.model);
  }
}

void Trainer::Resume(const std::string& checkpoint) {
  steps_done_ = LoadCheckpoint(checkpoint, options_, model_, ranks_, &optimizer_);
  MakeRoomForJudge();
}

}  // namespace kevin::local
