#include "agent/train/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "env/error.h"

namespace kevin {
namespace {

std::optional<int> NumberIn(const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || std::from_chars(text.data(), end, value).ptr != end || value < 0) return std::nullopt;
  return value;
}

std::optional<int> NumberInVariable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : NumberIn(text);
}

int RankVariable(const char* name, const char* other, int otherwise) {
  const auto number = NumberInVariable(name);
  return number ? *number : NumberInVariable(other).value_or(otherwise);
}

// Slurm's numbers of tasks by node, "4(x2),3": node 1 has 4 and node 2 has 3.
std::optional<int> TasksOfNode(const std::string& list, int node) {
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string part = list.substr(at, end - at);
    const size_t times = part.find("(x");
    const auto tasks = NumberIn(part.substr(0, times).c_str());
    const auto nodes = times == std::string::npos
                           ? std::optional(1)
                           : NumberIn(part.substr(times + 2, part.size() - times - 3).c_str());
    if (!tasks || !nodes) return std::nullopt;
    if (node < *nodes) return tasks;
    node -= *nodes;
    at = end + 1;
  }
  return std::nullopt;
}

// Slurm sets SLURM_NTASKS_PER_NODE only where it was asked for.
int TasksOfThisNode(int otherwise) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const char* list = std::getenv(name);
    if (list == nullptr) continue;
    if (const auto tasks = TasksOfNode(list, NumberInVariable("SLURM_NODEID").value_or(0))) return *tasks;
  }
  return otherwise;
}

std::string Gpu(int index) { return fmt::format("cuda:{}", index); }

[[noreturn]] void BadPlace(const std::string& place, const std::string& why) {
  throw Error(ExitCode::kBadRequest, fmt::format("--place {}: {}", place, why),
              "for example --place trainer=0-3,sampler=4-6,judge=7");
}

std::vector<std::string> SplitAt(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// "4-6" or "7".
void AddRange(const std::string& place, const std::string& range, int gpus, std::vector<int>* all) {
  const size_t dash = range.find('-');
  const auto first = NumberIn(range.substr(0, dash));
  const auto last = dash == std::string::npos ? first : NumberIn(range.substr(dash + 1));
  if (!first || !last || *first > *last)
    BadPlace(place, fmt::format("`{}` is no GPU and no range of them", range));
  for (int gpu = *first; gpu <= *last; ++gpu) {
    if (gpu >= gpus)
      BadPlace(place, fmt::format("there is no GPU {}: this process sees {} of them", gpu, gpus));
    all->push_back(gpu);
  }
}

// Ranges of one role may be separated by commas, as roles are: "trainer=0,2,sampler=1".
std::map<std::string, std::vector<int>> RolesOf(const std::string& place, int gpus) {
  std::map<std::string, std::vector<int>> roles;
  std::string role;
  for (std::string part : SplitAt(place, ',')) {
    if (const size_t equals = part.find('='); equals != std::string::npos) {
      role = part.substr(0, equals), part = part.substr(equals + 1);
      if (role != "trainer" && role != "sampler" && role != "judge")
        BadPlace(place, fmt::format("`{}` is neither trainer, sampler nor judge", role));
      if (roles.contains(role)) BadPlace(place, role + " occurs twice");
    }
    if (role.empty()) BadPlace(place, "it begins without a role");
    AddRange(place, part, gpus, &roles[role]);
  }
  return roles;
}

// One GPU for each task is often all that a process sees; then it is the first one.
std::string OwnGpu(const LocalRank& rank, int gpus) {
  const int index = gpus == 1 ? 0 : rank.local;
  if (index < gpus) return Gpu(index);
  throw Error(ExitCode::kBadRequest,
              fmt::format("{} ranks run on this machine, which has {} GPUs", rank.local_ranks, gpus),
              "start one rank a GPU (torchrun --nproc-per-node), or use --device cpu");
}

std::string TrainerDevice(const PlaceRequest& request, const LocalRank& rank) {
  const bool several = rank.local_ranks > 1;
  if (request.device == "cpu" || (request.device == "auto" && request.gpus == 0)) return "cpu";
  if (request.device == "auto" && !several) return Gpu(0);
  if (request.device == "auto" || request.device == "cuda") return OwnGpu(rank, std::max(request.gpus, 1));
  if (!request.device.starts_with("cuda:") || !NumberIn(request.device.substr(5)))
    throw Error(ExitCode::kBadRequest, "--device " + request.device + ": not auto, cpu, cuda or cuda:N");
  if (several && request.gpus > 1)
    throw Error(ExitCode::kBadRequest,
                fmt::format("--device {} would put {} ranks on one GPU", request.device, rank.local_ranks),
                "use --device cuda: each rank has its own; or --place trainer=0-3");
  return request.device;
}

std::string SamplerDevice(const PlaceRequest& request, const LocalRank& rank) {
  const std::string& device = request.sampler_device;
  if (device.empty() || device == "cpu") return device;
  if (!device.starts_with("cuda:") || !NumberIn(device.substr(5)))
    throw Error(ExitCode::kBadRequest, "--sampler-device " + device + ": not cpu or cuda:N",
                "without it the weights in training are sampled");
  if (rank.local_ranks > 1)
    throw Error(ExitCode::kBadRequest,
                fmt::format("--sampler-device {} would put the samplers of {} ranks on one GPU", device,
                            rank.local_ranks),
                "use --place, for example trainer=0-3,sampler=4-7");
  return device;
}

// The elements that fall to a rank, at least one.
std::vector<std::string> OwnShare(const std::vector<std::string>& all, const LocalRank& rank) {
  const auto local = static_cast<size_t>(rank.local), ranks = static_cast<size_t>(rank.local_ranks);
  if (all.size() <= ranks) return {all[local % all.size()]};
  std::vector<std::string> own;
  for (size_t i = local; i < all.size(); i += ranks) own.push_back(all[i]);
  return own;
}

std::vector<std::string> Judges(const PlaceRequest& request, const LocalRank& rank,
                                const std::string& trainer) {
  std::vector<std::string> all = request.judges;
  if (rank.local_ranks == 1) return all;
  if (all.empty() || all == std::vector<std::string>{"auto"})
    return trainer == "cpu" ? all : std::vector<std::string>{trainer};
  if (all == std::vector<std::string>{"all"}) {
    all.clear();
    for (int gpu = 0; gpu < request.gpus; ++gpu) all.push_back(Gpu(gpu));
    if (all.empty()) return request.judges;
  }
  return OwnShare(all, rank);
}

// A rank whose turn falls on the GPU that it trains on samples from the weights in training. `trainers`: empty: each rank
// trains on its own.
void PlaceSamplers(const std::vector<int>& samplers, const std::vector<int>& trainers,
                   const PlaceRequest& request, const LocalRank& rank, Placement* placement) {
  const auto sampler_of = [&](int local) {
    return Gpu(samplers[static_cast<size_t>(local) % samplers.size()]);
  };
  const auto trainer_of = [&](int local) {
    if (local == rank.local || placement->trainer == "cpu") return placement->trainer;
    return Gpu(!trainers.empty() ? trainers[static_cast<size_t>(local)] : request.gpus == 1 ? 0 : local);
  };
  const std::string own = sampler_of(rank.local);
  placement->samplers = 0;
  for (int local = 0; local < rank.local_ranks; ++local) {
    placement->trains_there |= own != placement->trainer && trainer_of(local) == own;
    if (sampler_of(local) == trainer_of(local)) continue;
    placement->samplers += sampler_of(local) == own;
    placement->samplers_here += sampler_of(local) == placement->trainer;
  }
  if (own != placement->trainer) placement->sampler = own;
}

std::vector<std::string> GpusOf(const std::vector<int>& indices) {
  std::vector<std::string> gpus;
  for (const int index : indices) gpus.push_back(Gpu(index));
  return gpus;
}

}  // namespace

LocalRank LocalRankFromEnvironment() {
  LocalRank rank;
  rank.ranks = std::max(1, RankVariable("WORLD_SIZE", "SLURM_NTASKS", 1));
  rank.rank = RankVariable("RANK", "SLURM_PROCID", -1);
  if (rank.ranks == 1 || rank.rank < 0) return {};
  rank.local = RankVariable("LOCAL_RANK", "SLURM_LOCALID", rank.rank);
  rank.local_ranks = std::max(
      rank.local + 1, RankVariable("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", TasksOfThisNode(rank.ranks)));
  return rank;
}

Placement PlaceRank(const PlaceRequest& request, const LocalRank& rank) {
  Placement placement;
  if (request.place.empty()) {
    placement.trainer = TrainerDevice(request, rank);
    placement.sampler = SamplerDevice(request, rank);
    placement.judges = Judges(request, rank, placement.trainer);
    placement.samplers = rank.local_ranks;  // more than one only on a CPU
    placement.trains_there = placement.sampler == placement.trainer;
    placement.samplers_here = placement.trains_there ? placement.samplers : 0;
    return placement;
  }
  if (request.device != "auto" || !request.sampler_device.empty() || !request.judges.empty())
    BadPlace(request.place, "it takes the place of --device, --sampler-device and --judge");
  const auto roles = RolesOf(request.place, request.gpus);
  const auto trainer = roles.find("trainer");
  if (trainer != roles.end()) {
    const auto& gpus = trainer->second;
    if (gpus.size() != static_cast<size_t>(rank.local_ranks))
      BadPlace(request.place, fmt::format("{} GPUs are to train, and {} ranks run on this machine",
                                          gpus.size(), rank.local_ranks));
    placement.trainer = Gpu(gpus[static_cast<size_t>(rank.local)]);
  } else {
    placement.trainer = TrainerDevice(request, rank);
  }
  if (const auto sampler = roles.find("sampler"); sampler != roles.end())
    PlaceSamplers(sampler->second, trainer != roles.end() ? trainer->second : std::vector<int>{}, request,
                  rank, &placement);
  const auto judge = roles.find("judge");
  placement.judges =
      judge != roles.end() ? OwnShare(GpusOf(judge->second), rank) : Judges(request, rank, placement.trainer);
  return placement;
}

std::string PlacementText(const Placement& placement, bool samples, const std::string& server) {
  std::string text = "trains on " + placement.trainer;
  if (!samples) return text;
  text += !server.empty()             ? ", samples from " + server
          : placement.sampler.empty() ? ", samples from the same weights"
                                      : ", samples from a second copy on " + placement.sampler;
  if (!placement.sampler.empty() && placement.samplers > 1)
    text += fmt::format(", which has {} of them", placement.samplers);
  return text + fmt::format(", judges on {}", placement.judges.empty()
                                                  ? "auto"
                                                  : fmt::format("{}", fmt::join(placement.judges, ", ")));
}

}  // namespace kevin
