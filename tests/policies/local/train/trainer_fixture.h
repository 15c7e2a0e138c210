#pragma once
// A tiny model's batches and options, and groups of ranks: each rank a thread of the test, over Gloo.

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "policies/local/train/trainer.h"
#include "tests/catch.h"
#include "tests/policies/local/train/tiny_model.h"

namespace kevin::local {

constexpr int kVocabulary = 13;  // of the tiny model

inline ModelConfig Wider() { return TinyConfig(kVocabulary, 12); }

inline TrainOptions Options() {
  TrainOptions options;
  options.loss.normaliser = Normaliser::kTokenMean;
  options.loss.correction = Correction::kNone;
  options.schedule = {1e-2, Decay::kCosine, 0.1, 0.1};
  options.adam.max_grad_norm = 0;
  options.steps = 8;
  options.micro_tokens = 40, options.logits_tokens = 7;
  return options;
}

// Twelve samples of different lengths.
inline Batch MakeBatch(int64_t step) {
  Batch batch;
  batch.step = step;
  for (int i = 0; i < 12; ++i) {
    Sample sample;
    for (int k = 0; k <= i % 4; ++k)
      sample.prompt.push_back((i * 5 + k * 3 + static_cast<int>(step)) % kVocabulary);
    for (int k = 0; k < 2 + i % 5; ++k) sample.completion.push_back((i + k * k) % kVocabulary);
    sample.sampler_logprobs.assign(sample.completion.size(), -2.5f);
    sample.advantage = static_cast<float>(i % 3 - 1) * 0.7f + 0.1f;
    sample.temperature = i % 2 == 0 ? 0.9f : 1.0f;
    batch.samples.push_back(sample);
  }
  return batch;
}

// Of the layers' weights, in bytes.
inline int64_t LayerMemory(LanguageModel& model) {
  int64_t all = 0;
  for (int layer = 0; layer < model.Config().layers; ++layer) {
    std::set<const void*> seen;
    for (const NamedParameter& p : model.LayerParameters(layer)) {
      const c10::StorageImpl* storage = p.value.storage().unsafeGetStorageImpl();
      if (seen.insert(storage).second) all += static_cast<int64_t>(storage->nbytes());
    }
  }
  return all;
}

inline at::Tensor Flat(LanguageModel& model) {
  std::vector<at::Tensor> all;
  for (const NamedParameter& p : model.Parameters())
    all.push_back(p.value.detach().reshape(-1).to(at::kFloat));
  return at::cat(all).clone();
}

struct Trained {
  at::Tensor weights;
  std::vector<StepFigures> figures;
};

inline Trained Train(const TrainOptions& options, int64_t steps, NumberType type = NumberType::kF32) {
  const auto model = TinyModel(1, type);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  Trained trained;
  for (int64_t s = 1; s <= steps; ++s) trained.figures.push_back(trainer.Step(MakeBatch(s)));
  trainer.MakeWhole();
  trained.weights = Flat(*model);
  return trained;
}

inline double Gap(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

inline int FreePort() {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  REQUIRE(bind(file, reinterpret_cast<sockaddr*>(&address), length) == 0);
  getsockname(file, reinterpret_cast<sockaddr*>(&address), &length);
  close(file);
  return ntohs(address.sin_port);
}

// torch keeps a record of collectives for the whole process, to which several groups add without a lock: switched off
// before the first group is made.
inline const int kWithoutRecord = setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

// Runs `body` once per rank, each in a thread with its own group. The errors of each.
inline std::vector<std::string> ErrorsOfRanks(int size, const std::function<void(Ranks&)>& body) {
  const int port = FreePort();
  std::vector<std::thread> threads;
  std::vector<std::string> errors(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto ranks = JoinOverGloo({rank, size, "127.0.0.1", port, rank == 0, "test"}, 60);
        body(*ranks);
        ranks->Wait();
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void WithRanks(int size, const std::function<void(Ranks&)>& body) {
  CHECK(ErrorsOfRanks(size, body) == std::vector<std::string>(static_cast<size_t>(size)));
}

struct RunOfRanks {
  std::vector<at::Tensor> weights;  // of each rank
  std::vector<StepFigures> figures;
};

// Steps `first` to `last` on `size` ranks; from the checkpoint `resume` unless empty.
inline RunOfRanks TrainOnRanks(const TrainOptions& options, int size, int64_t first, int64_t last,
                               const std::string& resume = "", bool save = false) {
  RunOfRanks run;
  run.weights.resize(static_cast<size_t>(size));
  std::vector<std::unique_ptr<LanguageModel>> models;
  for (int i = 0; i < size; ++i) models.push_back(TinyModel(resume.empty() ? 1 : 5));
  WithRanks(size, [&](Ranks& ranks) {
    LanguageModel& model = *models[static_cast<size_t>(ranks.Rank())];
    Trainer trainer(options, model, nullptr, ranks);
    if (!resume.empty()) trainer.Resume(resume);
    for (int64_t s = first; s <= last; ++s) {
      const StepFigures figures = trainer.Step(MakeBatch(s));
      if (ranks.Rank() == 0) run.figures.push_back(figures);
    }
    if (save) trainer.Save();
    trainer.MakeWhole();
    run.weights[static_cast<size_t>(ranks.Rank())] = Flat(model);
  });
  return run;
}

// Of two steps on `size` ranks; its folder.
inline std::string CheckpointOfRanks(const TrainOptions& options, int size) {
  TrainOnRanks(options, size, 1, 2, "", true);
  return NewestCheckpoint(options.output);
}

// All of `errors` say `part`, and those of other ranks than `rank` name it.
inline void CheckAllSay(const std::vector<std::string>& errors, int rank, const std::string& part) {
  for (size_t i = 0; i < errors.size(); ++i) {
    INFO("rank " << i << ": " << errors[i]);
    CHECK(errors[i].find(part) != std::string::npos);
    CHECK((static_cast<int>(i) == rank || errors[i].starts_with("rank " + std::to_string(rank) + ": ")));
  }
}

}  // namespace kevin::local
