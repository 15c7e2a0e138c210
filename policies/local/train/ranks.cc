#include "policies/local/train/ranks.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "env/error.h"
#include "policies/local/train/rank_watch.h"

#ifdef KEVIN_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "policies/local/train/meet_in_store.h"
#endif

namespace kevin::local {
namespace {

namespace fs = std::filesystem;

class Alone : public Ranks {
 public:
  int Rank() const override { return 0; }
  int Size() const override { return 1; }
  void Sum(at::Tensor*) override {}
  void Largest(at::Tensor*) override {}
  void Gather(const at::Tensor& own, at::Tensor* all) override { all->copy_(own); }
  void Wait() override {}
};

const char* Variable(const char* name, const char* other = nullptr) {
  const char* value = std::getenv(name);
  return value == nullptr && other != nullptr ? std::getenv(other) : value;
}

int Number(const char* name, const char* text, int least) {
  int value = 0;
  const char* end = text + std::strlen(text);
  if (std::from_chars(text, end, value).ptr != end || value < least)
    throw Error(ExitCode::kBadRequest, std::string(name) + "=" + text + " is no number that makes sense");
  return value;
}

#ifdef KEVIN_GLOO
class GlooRanks : public Ranks {
 public:
  GlooRanks(const Rendezvous& rendezvous, double seconds) : rank_(rendezvous.rank), size_(rendezvous.size) {
    const std::chrono::milliseconds limit(static_cast<int64_t>(seconds * 1000));
    const auto own = MeetInStore(rendezvous, "kevin-train-", limit);
    const auto gloo = c10d::ProcessGroupGloo::Options::create(limit);
    const bool here = rendezvous.host == "localhost" || rendezvous.host.starts_with("127.");
    gloo->devices.push_back(here ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                 : c10d::ProcessGroupGloo::createDefaultDevice());
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(own, rank_, size_, gloo);
  }

  int Rank() const override { return rank_; }
  int Size() const override { return size_; }
  void Sum(at::Tensor* values) override { Reduce(values, c10d::ReduceOp::SUM); }
  void Largest(at::Tensor* values) override { Reduce(values, c10d::ReduceOp::MAX); }

  void Gather(const at::Tensor& own, at::Tensor* all) override {
    std::vector<at::Tensor> mine = {own.cpu().contiguous()};
    std::vector<std::vector<at::Tensor>> gathered(1);
    for (int i = 0; i < size_; ++i) gathered[0].push_back(at::empty_like(mine[0]));
    group_->allgather(gathered, mine)->wait();
    all->copy_(at::cat(gathered[0]));
  }

  std::function<void()> StartSumShares(const at::Tensor& all, at::Tensor own) override {
    std::vector<at::Tensor> tensors = {all.cpu()};  // on a CPU the same tensor
    const c10::intrusive_ptr<c10d::Work> work = group_->allreduce(tensors);
    return [this, work, sum = tensors[0], own]() mutable {
      work->wait();
      own.copy_(sum.narrow(0, rank_ * own.numel(), own.numel()));
    };
  }

  void Wait() override { group_->barrier()->wait(); }

 private:
  void Reduce(at::Tensor* values, c10d::ReduceOp::RedOpType operation) {
    std::vector<at::Tensor> tensors = {values->is_cpu() ? *values : values->cpu()};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    group_->allreduce(tensors, options)->wait();
    if (!values->is_cpu()) values->copy_(tensors[0]);
  }

  const int rank_, size_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};
#endif

// The ranks of a group over Gloo or NCCL, with a watch over them.
class WatchedRanks : public Ranks {
 public:
  WatchedRanks(const Rendezvous& rendezvous, const std::function<std::unique_ptr<Ranks>()>& join)
      : rank_(rendezvous.rank) {
    try {
      group_ = join();
      watch_ = std::make_unique<RankWatch>(rendezvous);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw LostRank(rank_, "another rank: " + FirstLineOf(error.what()));
    }
  }

  int Rank() const override { return group_->Rank(); }
  int Size() const override { return group_->Size(); }
  void Sum(at::Tensor* values) override {
    Guarded([&] { group_->Sum(values); });
  }
  void Largest(at::Tensor* values) override {
    Guarded([&] { group_->Largest(values); });
  }
  void Gather(const at::Tensor& own, at::Tensor* all) override {
    Guarded([&] { group_->Gather(own, all); });
  }
  void Wait() override {
    Guarded([&] { group_->Wait(); });
  }
  void Leave(const std::string& why) override { watch_->Leave(why); }
  std::function<void()> StartGather(const at::Tensor& own, at::Tensor all) override {
    return Started([&] { return group_->StartGather(own, std::move(all)); });
  }
  std::function<void()> StartSumShares(const at::Tensor& all, at::Tensor own) override {
    return Started([&] { return group_->StartSumShares(all, std::move(own)); });
  }

 private:
  std::function<void()> Started(const std::function<std::function<void()>()>& start) {
    std::function<void()> wait;
    Guarded([&] { wait = start(); });
    return [this, wait] { Guarded(wait); };
  }

  void Guarded(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string who = watch_->WhoIsMissing();
      throw LostRank(rank_, who.empty() ? "another rank: " + FirstLineOf(error.what()) : who);
    }
  }

  const int rank_;
  std::unique_ptr<Ranks> group_;
  std::unique_ptr<RankWatch> watch_;  // last: it uses the store that the group may hold
};

}  // namespace

std::vector<std::string> ExchangeTexts(Ranks& ranks, const std::string& own) {
  constexpr int64_t kRecord = 4096;
  if (own.size() > 4000) throw Error(ExitCode::kBroken, "a text for other ranks is too long");
  at::Tensor mine = at::zeros({kRecord}, at::kByte), all = at::empty({kRecord * ranks.Size()}, at::kByte);
  const auto size = static_cast<uint32_t>(own.size());
  std::memcpy(mine.mutable_data_ptr(), &size, sizeof(size));
  std::memcpy(static_cast<char*>(mine.mutable_data_ptr()) + sizeof(size), own.data(), own.size());
  ranks.Gather(mine, &all);
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks.Size(); ++rank) {
    const char* record = static_cast<const char*>(all.const_data_ptr()) + rank * kRecord;
    uint32_t length = 0;
    std::memcpy(&length, record, sizeof(length));
    texts.emplace_back(record + sizeof(length), std::min<size_t>(length, 4000));
  }
  return texts;
}

void OnAllRanks(Ranks& ranks, const std::function<void()>& work) {
  std::optional<Error> own;
  try {
    work();
  } catch (const Error& error) {
    own = error;
  } catch (const std::exception& error) {  // of torch, of the standard library: no memory
    own = Error(ExitCode::kBroken, FirstLineOf(error.what()), "start all ranks again with --resume");
  }
  const auto shortened = [](const std::string& text) { return text.substr(0, 1900); };
  const std::string mine = own ? std::to_string(static_cast<int>(own->code())) + "\n" +
                                     shortened(own->what()) + "\n" + shortened(own->next_step())
                               : "";
  const std::vector<std::string> all = ExchangeTexts(ranks, mine);
  if (own) throw *own;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const size_t what = all[rank].find('\n') + 1, next = all[rank].rfind('\n') + 1;
    throw Error(static_cast<ExitCode>(std::stoi(all[rank])),
                "rank " + std::to_string(rank) + ": " + all[rank].substr(what, next - 1 - what),
                all[rank].substr(next));
  }
}

std::unique_ptr<Ranks> OneRank() { return std::make_unique<Alone>(); }

std::unique_ptr<Ranks> JoinOverGloo(const Rendezvous& rendezvous, double seconds) {
#ifdef KEVIN_GLOO
  return std::make_unique<WatchedRanks>(rendezvous,
                                        [&] { return std::make_unique<GlooRanks>(rendezvous, seconds); });
#else
  (void)rendezvous, (void)seconds;
  throw Error(ExitCode::kMachine, "this Kevin was built without Gloo, which several ranks need",
              "install libgloo-dev and build again");
#endif
}

std::unique_ptr<Ranks> JoinOverNccl(const Rendezvous& rendezvous, double seconds, at::Device device) {
  const fs::path path = fs::read_symlink("/proc/self/exe").parent_path() / "kevin-nccl.so";
  using Maker = Ranks* (*)(const Rendezvous*, double, int);
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* maker = plugin == nullptr ? nullptr : dlsym(plugin, "KevinNcclRanks");
  if (maker == nullptr) {
    const char* why = dlerror();
    throw Error(ExitCode::kMachine, std::string("NCCL cannot be used: ") + (why ? why : path.string()),
                "build with nccl.h and CUDA's headers there, or set KEVIN_RANKS=gloo");
  }
  return std::make_unique<WatchedRanks>(rendezvous, [&] {
    return std::unique_ptr<Ranks>(reinterpret_cast<Maker>(maker)(&rendezvous, seconds, device.index()));
  });
}

namespace {

// nullopt: one rank.
std::optional<Rendezvous> RendezvousFromEnvironment() {
  const char* size = Variable("WORLD_SIZE", "SLURM_NTASKS");
  const char* rank = Variable("RANK", "SLURM_PROCID");
  if (size == nullptr || rank == nullptr) return std::nullopt;
  Rendezvous rendezvous;
  rendezvous.size = Number("WORLD_SIZE", size, 1), rendezvous.rank = Number("RANK", rank, 0);
  if (rendezvous.rank >= rendezvous.size) throw Error(ExitCode::kBadRequest, "RANK is not below WORLD_SIZE");
  if (rendezvous.size == 1) return std::nullopt;
  const char* host = Variable("MASTER_ADDR");
  const char* port = Variable("MASTER_PORT");
  if (host == nullptr || port == nullptr) {
    const bool is_slurm = Variable("WORLD_SIZE") == nullptr;
    throw Error(ExitCode::kBadRequest,
                fmt::format("{} says {} ranks, but MASTER_ADDR or MASTER_PORT is not set",
                            is_slurm ? "SLURM_NTASKS" : "WORLD_SIZE", rendezvous.size),
                is_slurm ? "set both, the same for all tasks, or unset SLURM_NTASKS for a single rank"
                         : "start it with torchrun --no-python, or set them yourself");
  }
  rendezvous.host = host, rendezvous.port = Number("MASTER_PORT", port, 1);
  // With torchrun its agent holds the store.
  const char* agent = Variable("TORCHELASTIC_USE_AGENT_STORE");
  rendezvous.agent_holds_store = agent != nullptr && std::string(agent) == "True";
  rendezvous.holds_store = rendezvous.rank == 0 && !rendezvous.agent_holds_store;
  const char* attempt = Variable("TORCHELASTIC_RESTART_COUNT");
  rendezvous.name = attempt == nullptr ? "0" : attempt;
  if (const char* wait = Variable("KEVIN_JOIN_SECONDS"))
    rendezvous.join_seconds = Number("KEVIN_JOIN_SECONDS", wait, 1);
  if (const char* lost = Variable("KEVIN_LOST_SECONDS"))
    rendezvous.lost_seconds = Number("KEVIN_LOST_SECONDS", lost, 3);
  return rendezvous;
}

std::unique_ptr<Ranks> Join(const Rendezvous& rendezvous, double seconds, at::Device device,
                            const std::function<void(const std::string&)>& say) {
  const char* wanted = Variable("KEVIN_RANKS");
  const std::string how = wanted == nullptr ? "" : wanted;
  if (!how.empty() && how != "gloo" && how != "nccl")
    throw Error(ExitCode::kBadRequest, "KEVIN_RANKS=" + how + " is neither gloo nor nccl");
  if (device.is_cuda() ? how != "gloo" : how == "nccl") {
    try {
      return JoinOverNccl(rendezvous, seconds, device);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kMachine || !how.empty()) throw;
      if (rendezvous.rank == 0)
        say(std::string(error.what()) + "; the ranks meet over Gloo, through main memory, which is slower");
    }
  }
  return JoinOverGloo(rendezvous, seconds);
}

}  // namespace

std::unique_ptr<Ranks> RanksFromEnvironment(double seconds, at::Device device,
                                            const std::function<void(const std::string&)>& say,
                                            const std::function<void(const Error&)>& on_lost) {
  std::optional<Rendezvous> rendezvous = RendezvousFromEnvironment();
  if (!rendezvous) return OneRank();
  rendezvous->on_lost = on_lost;
  return Join(*rendezvous, seconds, device, say);
}

std::unique_ptr<Ranks> FurtherRanksFromEnvironment(const std::string& group, double seconds,
                                                   at::Device device) {
  std::optional<Rendezvous> rendezvous = RendezvousFromEnvironment();
  if (!rendezvous) return OneRank();
  rendezvous->name += "-" + group;
  rendezvous->holds_store = false;  // the first group has it
  if (device.is_cpu()) return JoinOverGloo(*rendezvous, seconds);
  rendezvous->returns_early = true;
  return Join(*rendezvous, seconds, device, [](const std::string&) {});
}

}  // namespace kevin::local
