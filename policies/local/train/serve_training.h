#pragma once
// The trainer's end of the stream (wire.h).

#include <functional>
#include <memory>

#include "policies/local/model/language_model.h"
#include "policies/local/train/options.h"

namespace kevin::local {

// How the model of a run comes to be. The default loads options.model (or the newest checkpoint's, to go on)
// and attaches adapters where they are trained.
using ModelMaker =
    std::function<std::unique_ptr<LanguageModel>(const TrainOptions& options, const std::string& checkpoint)>;
std::unique_ptr<LanguageModel> LoadForTraining(const TrainOptions& options, const std::string& checkpoint);

// Answers until the other side is gone. What goes wrong is answered, and ends it.
void ServeTraining(int in, int out, const ModelMaker& make_model = LoadForTraining);

}  // namespace kevin::local
