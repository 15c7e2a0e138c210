#include "agent/train/algorithm.h"

namespace kevin {
namespace {

using local::Correction;
using local::Normaliser;
using local::Surrogate;

Algorithm OfRollouts(const std::string& name, const std::string& scheme) {
  Algorithm a;
  a.name = name;
  a.scheme = *FindScheme(scheme);
  a.train.loss.correction = Correction::kTruncate;
  return a;
}

Algorithm Imitation(const std::string& name, Picked picked) {
  Algorithm a;
  a.name = name, a.material = Material::kAnswers, a.picked = picked;
  a.scheme = *FindScheme("kevin");
  a.train.units_per_step = 16;
  a.train.updates_per_step = 1;
  a.train.loss.surrogate = Surrogate::kCrossEntropy;
  a.train.loss.normaliser = Normaliser::kTokenMean;
  a.train.schedule = {1e-5, local::Decay::kCosine, 0.1, 0};
  a.train.adam.max_grad_norm = 1;
  return a;
}

Algorithm Trloo() {
  Algorithm a = OfRollouts("trloo", "trloo");
  a.train.loss.correction = Correction::kSequenceMask;
  a.train.loss.correction_low = 0.999, a.train.loss.correction_high = 1.001;
  a.train.schedule.learning_rate = 1e-6;
  a.train.adam.max_grad_norm = 1;
  return a;
}

Algorithm Rloo() {
  Algorithm a = OfRollouts("rloo", "rloo");
  a.train.loss.surrogate = Surrogate::kReinforce;
  a.train.updates_per_step = 1;
  return a;
}

Algorithm ReinforcePlusPlus() {
  Algorithm a = OfRollouts("reinforce++", "dr-grpo");
  a.whiten = true;
  a.train.loss.normaliser = Normaliser::kTokenMean;
  return a;
}

Algorithm TokenMean(const std::string& name, const std::string& scheme) {
  Algorithm a = OfRollouts(name, scheme);
  a.train.loss.normaliser = Normaliser::kTokenMean;
  return a;
}

Algorithm Dapo() {
  Algorithm a = TokenMean("dapo", "dapo");
  a.refills = 10;
  a.train.schedule.learning_rate = 1e-6;
  return a;
}

Algorithm Gspo() {
  Algorithm a = OfRollouts("gspo", "kevin");
  a.train.loss.surrogate = Surrogate::kSequenceClip;
  a.train.loss.normaliser = Normaliser::kSequenceMean;
  a.train.loss.clip_low = 3e-4, a.train.loss.clip_high = 4e-4;
  return a;
}

Algorithm Cispo() {
  Algorithm a = OfRollouts("cispo", "kevin");
  a.train.loss.surrogate = Surrogate::kCispo;
  a.train.loss.normaliser = Normaliser::kTokenMean;
  a.train.loss.clip_high = 4;
  return a;
}

Algorithm Dpo() {
  Algorithm a = Imitation("dpo", Picked::kAll);
  a.material = Material::kPairs;
  a.train.loss.surrogate = Surrogate::kPreference;
  a.train.schedule.learning_rate = 5e-7;
  return a;
}

Algorithm Tpt() {
  Algorithm a = Imitation("tpt", Picked::kBest);
  a.train.units_per_step = 8;
  a.train.schedule.learning_rate = 1e-6;
  return a;
}

}  // namespace

const std::vector<Algorithm>& KnownAlgorithms() {
  static const std::vector<Algorithm> kAlgorithms = {Imitation("sft", Picked::kCorrect),
                                                     Tpt(),
                                                     OfRollouts("grpo", "kevin"),
                                                     OfRollouts("dr-grpo", "dr-grpo"),
                                                     Rloo(),
                                                     Trloo(),
                                                     ReinforcePlusPlus(),
                                                     Dapo(),
                                                     TokenMean("grpo-token-mean", "kevin"),
                                                     Gspo(),
                                                     Cispo(),
                                                     Dpo()};
  return kAlgorithms;
}

std::optional<Algorithm> FindAlgorithm(const std::string& name) {
  for (const Algorithm& algorithm : KnownAlgorithms()) {
    if (algorithm.name == name) return algorithm;
  }
  return std::nullopt;
}

}  // namespace kevin
